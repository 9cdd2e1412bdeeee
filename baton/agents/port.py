"""Agents as stages: the port for agents of any framework.

An agent gets its work (a prompt for the user turn, instructions, guarded tools, the form of the answer, limits) and
answers with a patch, an output or a report. Temporal retries: an agent raises `AgentError`, which says whether a retry
may help.
"""

import json
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, Protocol, Unpack, runtime_checkable

from pydantic import TypeAdapter, validate_call
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from baton.agents.answers import (
    AgentAnswer,
    AnswerForm,
    answer_instructions,
    answer_schema,
    read_form,
    to_json_value,
    type_adapter,
    typed_output,
    typed_schema,
)
from baton.agents.current_work import check_steering, current_work
from baton.agents.failures import unreachable_kind
from baton.agents.lab import overrides_for
from baton.agents.nested import refuse_nested_agents
from baton.agents.notes import note_tools
from baton.agents.results import possible_notes, require_notes, stage_result, with_turns
from baton.agents.tools import AgentTool, build_tools, wire_name
from baton.codec.failures import causes, leaf_errors, text_of
from baton.contract.activity_transcript import TranscriptLog
from baton.contract.records import OutputSchemaRef
from baton.contract.registry import OutputSchemas, tool_key, tool_keys
from baton.core.baton import Baton, BatonPatch
from baton.core.history import Spend
from baton.core.lab import Overrides
from baton.core.messages import StageResult
from baton.core.notes import OPENING, Notes
from baton.core.stages import AGENT_DECISIONS, DEFAULT_WINDOW, Retries, StageSpec
from baton.errors import AgentError, PatchError
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import AgentTerms, Stage, stage
from baton.pipelines.prompt import MAX_READ, READ_ARTIFACT, Reads
from baton.wire.json_values import Json
from baton.wire.money import Usage

HANDOFF_HEADER = "X-Baton-Handoff-Id"
"""The HTTP header of every provider request that carries the handoff id."""

_log = logging.getLogger(__name__)
_SHARE_OF_TIMEOUT = 0.95  # an agent that stops before the activity's timeout can still report its cost
_ADAPTERS = {
    "pydantic_ai": "baton.agents.pydantic_ai.PydanticAgent",
    "agents": "baton.agents.openai_agents.OpenAIAgent",
    "langgraph": "baton.agents.langgraph.LangGraphAgent",
}
_RETRIES = Retries(attempts=7)
_MAX_PAUSE = 900.0  # seconds between two attempts while a provider is overloaded
_MAX_RETRY_AFTER = 366 * 86_400.0  # seconds; a provider may ask for any number


@dataclass(frozen=True)
class AgentLimits:
    """The limits of one run of an agent; None means no limit.

    Attributes:
        requests: The most requests to models.
        tokens: The most tokens, input and output together.
        micro_usd: The most money, in millionths of a US dollar; by default the stage's reservation.
        seconds: The longest duration; by default a little less than the stage's timeout.
    """

    requests: int | None = 30
    tokens: int | None = None
    micro_usd: int | None = None
    seconds: float | None = None


@dataclass
class Bill:
    """What a run has used so far, with the agents that it asked: `AgentLimits` apply to all of it.

    Attributes:
        requests: The requests to models.
        usage: The tokens.
        spend: The cost.
    """

    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    spend: Spend = field(default_factory=Spend)


@dataclass(frozen=True)
class AgentWork:
    """The work of an agent in one run of its stage.

    Attributes:
        prompt: Contract, baton and inputs inside the data fence, for the user turn, never for the system prompt.
        instructions: The stage author's instructions, for the system prompt.
        tools: The tools that the contract allows, checked and recorded at every call; also `read_artifact` if the
            contract or the baton names something to read, and the tools for notes if the agent has tools anyway.
        form: Whether the agent answers with a patch, a report, a text or a typed output.
        schema: The JSON Schema of the answer; None for a report, a text, or an output of the agent's own type.
        limits: The limits of the run.
        withheld: Tools of the stage that the contract forbids; the agent does not see them.
        context: The stage's context, for framework features: `context.tools` guards tools that the framework calls
            itself, `context.session` records events.
        readable: The ids that the agent may read beside the prompt, with `context.readable_text`.
        notes: Whether the answer is asked for notes, and they are taken from it.
        answer_type: The type of a typed output, unless it is the agent's own.
        noted: What the agent noted by tools so far.
        bill: What the run has used so far.
        is_lead: Whether it is the stage's own agent, not one that another agent asks.
        overrides: In the lab, what a candidate changes: `model` and `prompt` are the adapter's to apply.
    """

    prompt: str
    instructions: str
    tools: tuple[AgentTool, ...]
    form: AnswerForm
    schema: dict[str, Any] | None
    limits: AgentLimits
    withheld: frozenset[str]
    context: StageContext[Any]
    readable: frozenset[str] = frozenset()
    notes: bool = False
    answer_type: TypeAdapter[Any] | None = None
    noted: Notes = field(default_factory=Notes)
    bill: Bill = field(default_factory=Bill)
    is_lead: bool = True
    overrides: Overrides = field(default_factory=Overrides)

    @property
    def own_output(self) -> bool:
        """Whether the agent's framework asks for an output of the agent's own type."""
        return self.form is AnswerForm.TYPED and self.answer_type is None

    @property
    def handoff_id(self) -> str:
        """The id of the handoff, sent with every provider request."""
        return self.context.handoff_id

    @property
    def transcript(self) -> TranscriptLog:
        """Records what models are asked and answer; `UsageMeter` does so for adapters that count their requests."""
        return self.context.session.transcript

    @property
    def findings(self) -> list[str]:
        """Why the last answer was rejected, also part of the prompt; empty on the first attempt."""
        return self.context.findings

    def user_turn(self, *, with_schema: bool = False) -> str:
        """Return the user turn: the fenced prompt and the instructions for the answer.

        Args:
            with_schema: Include the answer's schema, for an agent that does not get it otherwise.
        """
        if self.own_output:
            return f"{self.prompt}\nDo your part of the task.\n"
        asked = answer_instructions(self.form, self.schema if with_schema else None, notes=self.notes)
        return f"{self.prompt}\n{asked}"

    def charge(self, spend: Spend, model: str = "") -> None:
        """Charge the cost of a request immediately: it has to be paid even if the run is lost."""
        self.context.charge(spend, model)

    def refuse_forbidden(self, names: Iterable[str]) -> None:
        """Refuse calls of forbidden tools, even if the model was never offered them. Unknown names are ignored.

        Args:
            names: The names of the calls, as the model spells them (`AgentTool.wire_name`).

        Raises:
            ToolDeniedError: A tool is forbidden; the denial is recorded.
        """
        forbidden = self.withheld | self.context.forbidden_tools
        spellings = {tool_key(spelling): name for name in forbidden for spelling in (name, wire_name(name))}
        for name in names:
            if (forbidden_name := spellings.get(tool_key(name))) is not None:
                self.context.tools.check(forbidden_name)

    def read(self, answer: str | Mapping[str, Any]) -> AgentAnswer:
        """Parse the agent's last text, or the object it returned.

        Raises:
            PatchError: The answer does not have the requested form; the agent gets the findings.
        """
        self.transcript.answered(answer if isinstance(answer, str) else json.dumps(answer, default=str))
        return read_form(answer, self.form, self.schema, self.answer_type, notes=self.notes)


class Agent(Protocol):
    """The port: anything that can do a stage.

    Example:
        >>> class Echo:
        ...     name = "echo"
        ...     async def run(self, work: AgentWork) -> AgentAnswer:
        ...         return AgentAnswer(patch={"current_state": [f"{len(work.tools)} tools"]})
        >>> echo = agent_stage(Echo())
        >>> import asyncio
        >>> asyncio.run(echo(StageContext.for_test(Baton(goal="Add login")))).baton_patch
        {'current_state': ['0 tools']}
    """

    @property
    def name(self) -> str:
        """The agent's name, and by default its stage's."""
        ...

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Do the work.

        Must stop promptly when cancelled, and leave nothing running.

        Raises:
            AgentError: The agent failed; `permanent` if a retry would not help.
            PatchError: The model gave no usable answer; the next attempt gets the findings.
            ToolDeniedError: The agent called a tool that its contract forbids.
        """
        ...


@runtime_checkable
class BringsTools(Protocol):
    """An agent whose framework has tools of its own."""

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of these tools; the stage declares them too."""
        ...


@runtime_checkable
class KnowsWindow(Protocol):
    """An agent that knows the context window of its model."""

    @property
    def window(self) -> int | None:
        """The size of the window in tokens, or None if unknown."""
        ...


@runtime_checkable
class ReadsArtifacts(Protocol):
    """An agent that chooses how it reads artifacts and inputs; others get the tool `read_artifact`."""

    @property
    def reads(self) -> Reads | None:
        """By the tool, by files made from `work.readable`, or not at all (None)."""
        ...


@runtime_checkable
class HasOwnOutput(Protocol):
    """An agent whose framework may ask for an output of the agent's own type."""

    @property
    def own_output(self) -> bool:
        """Whether the agent has such a type; it is kept unless the stage says what the agent answers with."""
        ...


def agent_stage(
    agent: Agent,
    *,
    name: str | None = None,
    instructions: str = "",
    tools: Iterable[Callable[..., Any] | AgentTool] = (),
    answers: AnswerForm | type[Any] | None = None,
    baton_type: type[Baton] = Baton,
    limits: AgentLimits | None = None,
    shows_params: bool = False,
    notes: bool | Literal["required"] = True,
    turns: bool = False,
    **terms: Unpack[AgentTerms],
) -> Stage[StageContext[Any], StageResult]:
    """Make a stage of an agent.

    Args:
        agent: The agent.
        name: The stage's name; by default the agent's.
        instructions: The stage author's instructions. They become the system prompt, so they must not contain text of
            other agents or users.
        tools: Functions that the agent may call if its contract allows them.
        answers: Whether the agent answers with a patch, a handoff report, or a text as the stage's output; or the type
            of the output, such as a pydantic model. By default the agent's own `output_type`, otherwise a patch.
        baton_type: The pipeline's baton type.
        limits: The limits of one run.
        shows_params: Whether the prompt contains the pipeline's parameters.
        notes: Whether answers carry notes (`Notes`), which become the patch. Where a text or a typed output has none,
            the history says "left no reasons"; with `"required"` the agent is asked again.
        turns: Whether what its tools returned and what it answered travels on as turns of the conversation, which is
            compressed when it grows too long. Under a contract the next agents do not read it.
        **terms: Options of the stage: `reads`, `writes`, `timeout`, `retries`, `output`, `window`, … By default there
            are up to seven attempts, which covers half an hour of provider overload or rate limits, and `window` is
            that of the agent's model if known.

    Returns:
        The stage, for `Pipeline.stage` and a worker's activities; tests call it with `StageContext.for_test`.

    Raises:
        ValueError: Two tools have the same name for a model, an option names an unknown field of the baton, or notes
            are required that the answer has no room for, or people may send it notes (`steer`) that it cannot show.
        TypeError: `agent` is not an agent, for example a framework's agent without its adapter, or `answers` is
            neither a form nor a type that pydantic can describe.

    Example:
        >>> class Fixed:
        ...     name = "plan"
        ...     async def run(self, work: AgentWork) -> AgentAnswer:
        ...         return work.read('{"baton_patch": {"decision_log": ["Use JWT"]}}')
        >>> agent_stage(Fixed(), writes=["decision_log"], timeout=timedelta(minutes=5))
        <stage plan>
    """
    _check_agent(agent)
    own_tools = build_tools(tools)
    framework_tools = agent.tool_names if isinstance(agent, BringsTools) else frozenset[str]()
    _check_tool_names(own_tools, framework_tools, agent.name)
    form, kind = resolve_answers(answers, agent)
    tool_names = framework_tools | {tool.name for tool in own_tools}
    notes = possible_notes(notes, form, kind, tools=tool_names, writes=terms.get("writes"))
    window, limits = None if "window" in terms else agent, limits or AgentLimits()
    runner = _AgentRunner(
        agent, instructions, own_tools, framework_tools, form, kind, limits, shows_params, window, notes, turns
    )

    @lru_cache(maxsize=1)  # a worker has one registry of schemas
    def build_schema(schemas: OutputSchemas | None) -> dict[str, Any] | None:
        return runner.schema(schemas, result.spec, baton_type)

    async def run(context: StageContext[Any]) -> StageResult:
        return await runner.run(context, result.spec, build_schema(context.parts.schemas))

    run.__annotations__["context"] = StageContext[baton_type]  # type: ignore[valid-type]
    run.__doc__ = f"The stage that the agent {agent.name!r} does."
    _set_defaults(terms, agent)
    if terms.get("steer"):
        check_steering(agent, agent.name)
    result = stage(name=name or agent.name, tools=runner.tool_names, agent=True, **terms)(run)
    result.origin = f"{type(agent).__module__}.{type(agent).__qualname__}"
    return result


def _set_defaults(terms: AgentTerms, agent: Agent) -> None:
    terms.setdefault("retries", _RETRIES)
    terms.setdefault("decisions", AGENT_DECISIONS)
    terms.setdefault("stream", getattr(agent, "stream", False) is True)


def resolve_answers(answers: AnswerForm | type[Any] | None, agent: Agent) -> tuple[AnswerForm, TypeAdapter[Any] | None]:
    """Return the form of an agent's answers and the type of their output, unless it is the agent's own."""
    has_type = isinstance(agent, HasOwnOutput) and agent.own_output
    if answers is None:
        return AnswerForm.TYPED if has_type else AnswerForm.PATCH, None
    if not isinstance(answers, AnswerForm):
        return AnswerForm.TYPED, type_adapter(answers)
    if answers is AnswerForm.TYPED and not has_type:
        raise ValueError(f"agent {agent.name!r} has no output_type; pass the type itself: answers=Facts")
    return answers, None


@dataclass(frozen=True)
class _AgentRunner:
    """Runs an agent as a stage; see `agent_stage` for the attributes.

    Attributes:
        window_agent: The agent whose model determines the window; None if the stage sets it.
    """

    agent: Agent
    instructions: str
    own_tools: tuple[AgentTool, ...]
    framework_tools: frozenset[str]
    form: AnswerForm
    kind: TypeAdapter[Any] | None
    limits: AgentLimits
    shows_params: bool
    window_agent: Agent | None
    notes: bool | Literal["required"]
    turns: bool

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of all tools that the agent may call."""
        asked = (tool.agent_tools or frozenset() for tool in self.own_tools)
        return self.framework_tools.union({tool.name for tool in self.own_tools}, *asked)

    def schema(self, schemas: OutputSchemas | None, spec: StageSpec, baton_type: type[Baton]) -> dict[str, Any] | None:
        """Return the schema of the answers, if they are in JSON that Baton asks for."""
        if self.kind is not None:
            return typed_schema(self.kind, notes=bool(self.notes))
        if self.form is not AnswerForm.PATCH:
            return None
        output = None if spec.output is None or schemas is None else schemas.find(OutputSchemaRef.parse(spec.output))
        return answer_schema(baton_type, spec.writes, output, notes=bool(self.notes))

    async def run(self, context: StageContext[Any], spec: StageSpec, schema: dict[str, Any] | None) -> StageResult:
        """Run the agent once."""
        context.session.is_agent = True  # a context of a test has another spec
        try:
            work = await self._prepare_work(context, spec, schema)
            work.transcript.give([("system", work.instructions), ("user", work.user_turn(with_schema=True))])
            answer = normalize_answer(await _run_agent(self.agent, work), work, self.agent.name)
            if self.notes == "required":
                require_notes(answer, work.noted, charge=work.charge)
        except AgentError as error:
            if error.waits:
                _log.warning("stage %r waits: %s", spec.name, text_of(error))
            # The exception chain would carry the provider's own text into the history.
            raise _application_error(error, context, spec.retries) from None
        result = stage_result(answer, context, form=work.form, notes=work.notes, noted=work.noted, writes=spec.writes)
        return with_turns(result, context.session, spec.name) if self.turns else result

    async def _prepare_work(
        self, context: StageContext[Any], spec: StageSpec, schema: dict[str, Any] | None
    ) -> AgentWork:
        overrides = overrides_for(self.agent, spec.name, lab := context.given.lab)
        instructions = overrides.instructions_for(self.instructions)
        allowed = [tool for tool in self.own_tools if context.tools.allows(tool.name)]
        functions = {tool.name: tool.function for tool in allowed if tool.agent_tools is None}
        refuse_nested_agents(context, self.agent, functions)
        tools = tuple(tool.guarded(context) for tool in allowed)
        reads = _find_read_mode(context, self.agent, self.tool_names)
        if reads == "tool":
            tools = (*tools, _read_tool(context))
        noted = Notes()
        if self.notes and any(map(context.tools.allows, self.tool_names)):  # only beside other tools
            taken = tool_keys(self.tool_names) | tool_keys(context.forbidden_tools)
            tools = (*tools, *(tool for tool in note_tools(noted) if tool_key(tool.name) not in taken))
        other_texts = [instructions, answer_instructions(self.form, schema, notes=bool(self.notes))]
        if self.notes and self.form is AnswerForm.TEXT:
            context.stream.hide_block(OPENING)
        elif self.notes:
            context.stream.hide_object()
        other_texts += [json.dumps([tool.description, dict(tool.parameters)]) for tool in tools]
        prompt = await context.prompt_with_inputs(
            params=self.shows_params,
            window=overrides.window or (spec.window if self.window_agent is None else _find_window(self.window_agent)),
            beside=sum(map(context.parts.counter, other_texts)),
            reads=reads,
        )
        return AgentWork(
            prompt=prompt,
            instructions=instructions,
            tools=tools,
            form=self.form,
            schema=schema,
            limits=_complete_limits(self.limits, spec, lab.case_micro_usd if lab else None),
            withheld=frozenset(name for name in spec.tools if not context.tools.allows(name)),
            readable=frozenset(() if reads is None else context.readable()),
            context=context,
            notes=bool(self.notes),
            answer_type=self.kind,
            noted=noted,
            overrides=overrides,
        )


async def _run_agent(agent: Agent, work: AgentWork) -> AgentAnswer:
    """Run an agent; a server of tools that cannot be reached before the first request is waited for like a model."""
    charged = work.context.charged
    current_work.set(work)  # each stage runs in a context of its own
    try:
        return await agent.run(work)
    except Exception as error:
        if isinstance(error, AgentError) or work.context.charged != charged:
            raise
        kind = next((name for name in map(unreachable_kind, _all_causes(error)) if name), None)
        if kind is None:
            raise
        raise AgentError(
            f"agent {agent.name!r}: a server of its tools could not be reached ({kind})", waits=True
        ) from None


def _all_causes(error: BaseException) -> Iterable[BaseException]:
    return (inner for cause in causes(error) for leaf in leaf_errors(cause) for inner in causes(leaf))


def _find_window(agent: Agent) -> int:
    return (agent.window if isinstance(agent, KnowsWindow) else None) or DEFAULT_WINDOW


def _find_read_mode(context: StageContext[Any], agent: Agent, tool_names: Iterable[str]) -> Reads | None:
    """Return how an agent reads what the handoff names; None if there is nothing to read or it is forbidden."""
    if not context.readable():
        return None
    if tool_key(READ_ARTIFACT) in tool_keys(tool_names) | tool_keys(context.forbidden_tools):
        return None
    return agent.reads if isinstance(agent, ReadsArtifacts) else "tool"


def _read_tool(context: StageContext[Any]) -> AgentTool:
    async def read(**arguments: Any) -> dict[str, Json]:
        return await context.read_artifact(*_validate_read(**arguments))

    return replace(READ_TOOL, function=read)


def _read_artifact(id: str, offset: int = 0, limit: int = MAX_READ) -> tuple[str, int, int]:
    """Read a part of an artifact, input or fact that your context names, from a character on."""
    return id, offset, limit


# Built once: a schema takes as long as a scripted request.
READ_TOOL = AgentTool.of(_read_artifact, name=READ_ARTIFACT)
"""The description of the tool that reads what a handoff names."""
_validate_read = validate_call(_read_artifact)


def _check_agent(agent: object) -> None:
    """Refuse an object that is not an `Agent`, and name its adapter."""
    is_agent = isinstance(getattr(agent, "name", None), str) and callable(getattr(agent, "run", None))
    package = type(agent).__module__.partition(".")[0]
    if is_agent and package != "pydantic_ai":  # its agents have both attributes with another meaning
        return
    adapter = _ADAPTERS.get(package)
    if adapter is not None:
        raise TypeError(f"{type(agent).__qualname__!r} is an agent of a framework: wrap it in {adapter}")
    raise TypeError(f"an agent has a name, a str, and an async run(work); found {type(agent).__qualname__}")


def _check_tool_names(own_tools: Iterable[AgentTool], framework_tools: Iterable[str], agent: str) -> None:
    """Refuse tools that a model could not tell apart."""
    spellings = {tool_key(wire_name(name)): name for name in framework_tools}
    for tool in own_tools:
        if (other := spellings.get(tool_key(tool.wire_name))) is not None:
            raise ValueError(
                f"the tool {tool.name!r} of the stage and {other!r}, which agent {agent!r} brings, are both "
                f"{tool.wire_name!r} to a model; rename one"
            )


def _complete_limits(limits: AgentLimits, spec: StageSpec, case_micro_usd: int | None) -> AgentLimits:
    own = (spec.reserve_micro_usd or None) if limits.micro_usd is None else limits.micro_usd
    return replace(
        limits,
        micro_usd=min((limit for limit in (own, case_micro_usd) if limit is not None), default=None),
        seconds=spec.timeout.total_seconds() * _SHARE_OF_TIMEOUT if limits.seconds is None else limits.seconds,
    )


def normalize_answer(answer: Any, work: AgentWork, agent: str) -> AgentAnswer:
    """Convert the parts of an agent's answer to JSON."""
    if not isinstance(answer, AgentAnswer):
        message = f"agent {agent!r} returned {type(answer).__name__}; return an AgentAnswer, also from `of_output`"
        raise AgentError(message, permanent=True)
    patch = answer.patch
    try:
        if not isinstance(patch, BatonPatch):
            patch = to_json_value(dict(patch or {}), "baton_patch")
        output = to_json_value(answer.output, "output")
        if work.answer_type is not None and answer.claimed:
            output = typed_output(work.answer_type, output)
        return replace(answer, patch=patch, output=output)
    except PatchError:
        work.charge(answer.spend)
        raise


def _application_error(error: AgentError, context: StageContext[Any], retries: Retries) -> ApplicationError:
    """Convert an agent's error for Temporal, with the cost of the run so far."""
    return ApplicationError(
        str(error),
        *context.cost_details(),
        type=type(error).__name__,
        non_retryable=error.permanent,
        next_retry_delay=_retry_delay(error, retries),
        # BENIGN logs one line per attempt instead of a traceback.
        category=ApplicationErrorCategory.BENIGN if error.waits else ApplicationErrorCategory.UNSPECIFIED,
    )


def _retry_delay(error: AgentError, retries: Retries) -> timedelta | None:
    """Return the delay before the next attempt, or None if the stage's own retries wait long enough."""
    attempt = min(activity.info().attempt if activity.in_activity() else 1, 60)
    own = min(retries.first.total_seconds() * retries.factor ** (attempt - 1), retries.longest.total_seconds())
    delay = error.retry_after or 0.0
    if error.waits:
        jitter = random.uniform(0.75, 1.25)  # noqa: S311 - not used for security
        delay = max(delay, min(2.0 * 4.0 ** (attempt - 1), _MAX_PAUSE) * jitter)
    return timedelta(seconds=min(delay, _MAX_RETRY_AFTER)) if delay > own else None
