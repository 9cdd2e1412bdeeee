"""Agents as stages: the port for agents of any framework.

An agent gets its work (a prompt for the user turn, instructions, guarded tools, the form of the answer, limits) and
answers with a patch, an output or a report. Temporal retries: an agent raises `AgentError`, which says whether a retry
may help.
"""

import json
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, Protocol, Unpack, runtime_checkable

from pydantic import validate_call
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from baton.agents.answers import (
    AgentAnswer,
    AnswerForm,
    answer_instructions,
    answer_schema,
    read_answer,
    split_thinking,
    to_json_value,
)
from baton.agents.failures import unreachable_kind
from baton.agents.nested import refuse_nested_agents
from baton.agents.notes import OPENING, Notes, split_notes
from baton.agents.tools import AgentTool, build_tools, wire_name
from baton.codec.failures import causes, leaf_errors, text_of
from baton.contract.activity import SessionLog
from baton.contract.records import OutputSchemaRef
from baton.contract.registry import OutputSchemas, tool_key, tool_keys
from baton.core.baton import Baton, BatonPatch
from baton.core.history import Spend
from baton.core.messages import StageResult
from baton.core.patching import without_echo
from baton.core.stages import AGENT_DECISIONS, DEFAULT_WINDOW, Retries, StageSpec
from baton.errors import AgentError, PatchError
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import AgentTerms, Stage, stage
from baton.pipelines.prompt import MAX_READ, READ_ARTIFACT, Reads
from baton.wire.json_values import Json

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


@dataclass(frozen=True)
class AgentWork:
    """The work of an agent in one run of its stage.

    Attributes:
        prompt: Contract, baton and inputs inside the data fence, for the user turn, never for the system prompt.
        instructions: The stage author's instructions, for the system prompt.
        tools: The tools that the contract allows, checked and recorded at every call; also `read_artifact` if the
            contract or the baton names something to read.
        form: Whether the agent answers with a patch, a report or a text.
        schema: The JSON Schema of the answer; None for a report or a text.
        limits: The limits of the run.
        withheld: Tools of the stage that the contract forbids; the agent does not see them.
        context: The stage's context, for framework features: `context.tools` guards tools that the framework calls
            itself, `context.session` records events.
        readable: The ids that the agent may read beside the prompt, with `context.readable_text`.
        notes: Whether a text answer is asked to close with notes, and its notes are taken from it.
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

    @property
    def handoff_id(self) -> str:
        """The id of the handoff, sent with every provider request."""
        return self.context.handoff_id

    @property
    def findings(self) -> list[str]:
        """Why the last answer was rejected, also part of the prompt; empty on the first attempt."""
        return self.context.findings

    def user_turn(self, *, with_schema: bool = False) -> str:
        """Return the user turn: the fenced prompt and the instructions for the answer.

        Args:
            with_schema: Include the answer's schema, for an agent that does not get it otherwise.
        """
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
        if isinstance(answer, str):
            _, answer = split_thinking(answer)
        if self.form is AnswerForm.REPORT and isinstance(answer, str):
            return AgentAnswer(report=answer)
        if self.form is AnswerForm.TEXT:
            text, notes = split_notes(answer) if self.notes and isinstance(answer, str) else (answer, None)
            if not isinstance(text, str) or not text.strip():
                raise PatchError(["the answer is not a text; answer with the text that was asked for"])
            return AgentAnswer(output=text.lstrip("\r\n"), notes=notes)  # frameworks leave the blank line of a thought
        return read_answer(answer, self.schema)


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


def agent_stage(
    agent: Agent,
    *,
    name: str | None = None,
    instructions: str = "",
    tools: Iterable[Callable[..., Any] | AgentTool] = (),
    answers: AnswerForm = AnswerForm.PATCH,
    baton_type: type[Baton] = Baton,
    limits: AgentLimits | None = None,
    shows_params: bool = False,
    notes: bool | Literal["required"] = True,
    **terms: Unpack[AgentTerms],
) -> Stage[StageContext[Any], StageResult]:
    """Make a stage of an agent.

    Args:
        agent: The agent.
        name: The stage's name; by default the agent's.
        instructions: The stage author's instructions. They become the system prompt, so they must not contain text of
            other agents or users.
        tools: Functions that the agent may call if its contract allows them.
        answers: Whether the agent answers with a patch, a handoff report, or a text as the stage's output.
        baton_type: The pipeline's baton type.
        limits: The limits of one run.
        shows_params: Whether the prompt contains the pipeline's parameters.
        notes: Whether a text closes with notes (`Notes`), which become the patch. Where they are missing, the history
            says "left no reasons"; with `"required"` the agent is asked again.
        **terms: Options of the stage: `reads`, `writes`, `timeout`, `retries`, `output`, `window`, … By default there
            are up to seven attempts, which covers half an hour of provider overload or rate limits, and `window` is
            that of the agent's model if known.

    Returns:
        The stage, for `Pipeline.stage` and a worker's activities; tests call it with `StageContext.for_test`.

    Raises:
        ValueError: Two tools have the same name for a model, or an option names an unknown field of the baton.
        TypeError: `agent` is not an agent, for example a framework's agent without its adapter.

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
    writes = terms.get("writes")
    if answers is not AnswerForm.TEXT or (writes is not None and not writes):
        notes = False
    runner = _AgentRunner(
        agent,
        instructions,
        own_tools,
        framework_tools,
        answers,
        limits or AgentLimits(),
        shows_params,
        None if "window" in terms else agent,
        notes,
    )

    @lru_cache(maxsize=1)  # a worker has one registry of schemas
    def build_schema(schemas: OutputSchemas | None) -> dict[str, Any]:
        return _answer_schema(schemas, result.spec, baton_type)

    async def run(context: StageContext[Any]) -> StageResult:
        schema = build_schema(context.parts.schemas) if answers is AnswerForm.PATCH else None
        return await runner.run(context, result.spec, schema)

    run.__annotations__["context"] = StageContext[baton_type]  # type: ignore[valid-type]
    run.__doc__ = f"The stage that the agent {agent.name!r} does."
    _set_defaults(terms, agent)
    result = stage(name=name or agent.name, tools=runner.tool_names, **terms)(run)
    result.origin = f"{type(agent).__module__}.{type(agent).__qualname__}"
    return result


def _set_defaults(terms: AgentTerms, agent: Agent) -> None:
    terms.setdefault("retries", _RETRIES)
    terms.setdefault("decisions", AGENT_DECISIONS)
    terms.setdefault("stream", getattr(agent, "stream", False) is True)


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
    answers: AnswerForm
    limits: AgentLimits
    shows_params: bool
    window_agent: Agent | None
    notes: bool | Literal["required"]

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of all tools that the agent may call."""
        return self.framework_tools | {tool.name for tool in self.own_tools}

    async def run(self, context: StageContext[Any], spec: StageSpec, schema: dict[str, Any] | None) -> StageResult:
        """Run the agent once."""
        try:
            work = await self._prepare_work(context, spec, schema)
            answer = normalize_answer(await _run_agent(self.agent, work), work, self.agent.name)
            if self.notes == "required" and answer.notes is None:
                work.charge(answer.spend)
                raise PatchError([f"the answer has no notes; close it with a block that begins with {OPENING}"])
        except AgentError as error:
            if error.waits:
                _log.warning("stage %r waits: %s", spec.name, text_of(error))
            # The exception chain would carry the provider's own text into the history.
            raise _application_error(error, context, spec.retries) from None
        return _stage_result(answer, work, spec.writes)

    async def _prepare_work(
        self, context: StageContext[Any], spec: StageSpec, schema: dict[str, Any] | None
    ) -> AgentWork:
        allowed = [tool for tool in self.own_tools if context.tools.allows(tool.name)]
        refuse_nested_agents(context, self.agent.name, {tool.name: tool.function for tool in allowed})
        tools = tuple(tool.guarded(context) for tool in allowed)
        reads = _find_read_mode(context, self.agent, self.tool_names)
        if reads == "tool":
            tools = (*tools, _read_tool(context))
        other_texts = [self.instructions, answer_instructions(self.answers, schema, notes=bool(self.notes))]
        if self.notes:
            context.stream.hide_block(OPENING)
        other_texts += [json.dumps([tool.description, dict(tool.parameters)]) for tool in tools]
        prompt = await context.prompt_with_inputs(
            params=self.shows_params,
            window=spec.window if self.window_agent is None else _find_window(self.window_agent),
            beside=sum(map(context.parts.counter, other_texts)),
            reads=reads,
        )
        return AgentWork(
            prompt=prompt,
            instructions=self.instructions,
            tools=tools,
            form=self.answers,
            schema=schema,
            limits=_complete_limits(self.limits, spec),
            withheld=frozenset(name for name in spec.tools if not context.tools.allows(name)),
            readable=frozenset(() if reads is None else context.readable()),
            context=context,
            notes=bool(self.notes),
        )


async def _run_agent(agent: Agent, work: AgentWork) -> AgentAnswer:
    """Run an agent; a server of tools that cannot be reached before the first request is waited for like a model."""
    charged = work.context.charged
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


def _answer_schema(schemas: OutputSchemas | None, spec: StageSpec, baton_type: type[Baton]) -> dict[str, Any]:
    output = None if spec.output is None or schemas is None else schemas.find(OutputSchemaRef.parse(spec.output))
    return answer_schema(baton_type, spec.writes, output)


def _complete_limits(limits: AgentLimits, spec: StageSpec) -> AgentLimits:
    return replace(
        limits,
        micro_usd=(spec.reserve_micro_usd or None) if limits.micro_usd is None else limits.micro_usd,
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
        return replace(answer, patch=patch, output=to_json_value(answer.output, "output"))
    except PatchError:
        work.charge(answer.spend)
        raise


def record_text(session: SessionLog, text: str) -> None:
    """Record what a model said beside its answer, and what it thought."""
    thought, said = split_thinking(text)
    if thought:
        session.internal_note(thought)
    if said.strip():
        session.model_response(said)


def _stage_result(answer: AgentAnswer, work: AgentWork, writes: frozenset[str] | None) -> StageResult:
    """Record what the agent said, and return its answer as the stage's result."""
    context = work.context
    for text in answer.said:
        record_text(context.session, text)
    if answer.notes is not None:
        context.session.keep_talk()
    if answer.output is not None and answer.claimed and context.contract is not None:  # a claim for later contracts
        context.session.model_response(json.dumps(answer.output, ensure_ascii=False))
    patch = answer.patch.to_json_object() if isinstance(answer.patch, BatonPatch) else dict(answer.patch or {})
    warnings = []
    if work.notes and not patch:
        patch = _noted_patch(answer.notes, context, writes)
        if answer.notes is None:
            warnings.append("left no reasons")
        elif left := answer.notes.count_left(context.baton):
            warnings.append(f"current_state: the {left:,} oldest entries left the baton; the history has them")
    return StageResult(
        baton_patch=without_echo(context.baton.decision_log, patch),
        output=answer.output,
        report=answer.report,
        spend=answer.spend,
        turns=list(answer.turns),
        warnings=warnings,
    )


def _noted_patch(notes: Notes | None, context: StageContext[Any], writes: frozenset[str] | None) -> dict[str, Json]:
    """Return the patch of an agent's notes, and record them for the contracts of later stages."""
    if notes is None:
        return {}
    if context.contract is not None:
        for text in notes.decided:
            context.session.decision(text)
        for text in notes.rejected:
            context.session.rejected_assumption(text)
        for text in notes.thoughts:
            context.session.brainstorm(text)
    return notes.patch(context.baton, writes)


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
