"""Agents as stages: the port that an agent of any framework stands behind.

An agent gets its work (a prompt for the user turn, instructions, tools that are checked where they are called, the
form of the answer, limits) and answers with a patch, an output or a report. Retries belong to Temporal: an agent
raises `AgentError`, says whether another run may help, and the stage is run again or not.
"""

import json
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Protocol, Unpack, runtime_checkable

from pydantic import validate_call
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from baton.agents.answers import AgentAnswer, AnswerForm, answer_schema, how_to_answer, json_form, read_answer
from baton.agents.tools import AgentTool, tools_of, wire_name
from baton.contract.records import OutputSchemaRef
from baton.contract.registry import OutputSchemas, tool_keys
from baton.core.baton import Baton, BatonPatch
from baton.core.history import Spend
from baton.core.messages import StageResult
from baton.core.stages import DEFAULT_WINDOW, Retries, StageSpec
from baton.errors import AgentError, PatchError
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_stage import AgentTerms, Stage, stage
from baton.pipelines.prompt import MAX_READ, READ_ARTIFACT, Reads
from baton.wire.json_values import Json

HANDOFF_HEADER = "X-Baton-Handoff-Id"
"""The header by which every request to a provider names the handoff it is made under."""

_log = logging.getLogger(__name__)
_SHARE_OF_TIMEOUT = 0.95  # an agent that is ended by itself still tells its bill; one that is lost does not
_ADAPTERS = {
    "pydantic_ai": "baton.agents.pydantic_ai.PydanticAgent",
    "agents": "baton.agents.openai_agents.OpenAIAgent",
    "langgraph": "baton.agents.langgraph.LangGraphAgent",
}
_RETRIES = Retries(attempts=7)
_LONGEST_PAUSE = 900.0  # seconds between two runs that wait for a provider
_LONGEST_WISH = 366 * 86_400.0  # seconds; a provider may name any number


@dataclass(frozen=True)
class AgentLimits:
    """How far one run of an agent may go; what is None is not limited here.

    Attributes:
        requests: The most requests to models.
        tokens: The most tokens, read and written together.
        micro_usd: The most money, in millionths of a US dollar; what the stage reserves, unless said otherwise.
        seconds: The longest time; a little less than the stage's timeout, unless said otherwise.
    """

    requests: int | None = 30
    tokens: int | None = None
    micro_usd: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class AgentWork:
    """What an agent is to do in one run of its stage.

    Attributes:
        prompt: Contract, baton and inputs inside the data fence, for the user turn and never for the system prompt.
        instructions: What the stage's author tells the agent; the system prompt.
        tools: What it may call: allowed by its contract, checked and recorded at every call; and `read_artifact`,
            where its contract or its baton names something to read.
        form: Whether it answers with a patch, a report or a text.
        schema: The JSON Schema of the answer; None for a report or a text.
        limits: How far it may go.
        withheld: Tools of the stage that the contract does not allow; the agent is not told of them.
        context: The stage's context, for what a framework adds of its own: `context.tools` guards tools that the
            framework calls by itself, `context.session` records what happened.
        readable: What it may read beside the prompt: ids for `context.readable_text`.
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

    @property
    def handoff_id(self) -> str:
        """The handoff under which the agent acts; every request it makes names it."""
        return self.context.handoff_id

    @property
    def findings(self) -> list[str]:
        """Why its last answer was refused; the prompt tells it as well. Empty on the first attempt."""
        return self.context.findings

    def user_turn(self, *, with_schema: bool = False) -> str:
        """Return the whole user turn: the fenced prompt, and how to answer.

        Args:
            with_schema: Spell out the answer's schema, for an agent that is not given it in another way.
        """
        return f"{self.prompt}\n{how_to_answer(self.form, self.schema if with_schema else None)}"

    def charge(self, spend: Spend, model: str = "") -> None:
        """Charge what a request of a model cost, at once: it is paid even if the run is lost a moment later."""
        self.context.charge(spend, model)

    def refuse_forbidden(self, names: Iterable[str]) -> None:
        """Refuse calls of tools that the contract withholds, whatever the model believes to have.

        An unknown name is ignored: nothing could run.

        Args:
            names: What the model wants to call, in its own spelling of the names (`AgentTool.wire_name`).

        Raises:
            ToolDeniedError: One of them is withheld; the denial is put on record.
        """
        contract = self.context.contract
        known = self.withheld | frozenset(contract.forbidden_tools if contract else ())
        withheld = {spelling: name for name in known for spelling in (name, wire_name(name))}
        shown = {tool.wire_name for tool in self.tools}
        for name in names:
            if name in withheld and name not in shown:
                self.context.tools.check(withheld[name])

    def read(self, answer: str | Mapping[str, Any]) -> AgentAnswer:
        """Return the answer in the last text of an agent, or in the object it returned.

        Raises:
            PatchError: It is not in the form that was asked for; the findings go to the agent.
        """
        if self.form is AnswerForm.REPORT and isinstance(answer, str):
            return AgentAnswer(report=answer)
        if self.form is AnswerForm.TEXT:
            if not isinstance(answer, str) or not answer.strip():
                raise PatchError(["the answer is not a text; answer with the text that was asked for"])
            return AgentAnswer(output=answer)
        return read_answer(answer, self.schema)


class Agent(Protocol):
    """Anyone who does a stage: the port.

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
        """The agent's name, which is its stage's unless that is given another one."""
        ...

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Do the work.

        It ends in time when it is cancelled, and leaves nothing running behind.

        Raises:
            AgentError: It could not; `permanent` where another run would not help.
            PatchError: Its model answered in no usable form; the findings are for the next attempt.
            ToolDeniedError: It called a tool that its contract does not allow.
        """
        ...


@runtime_checkable
class BringsTools(Protocol):
    """An agent whose framework has tools of its own, beside those that the stage gives it."""

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of these tools; the stage declares them as its own."""
        ...


@runtime_checkable
class KnowsWindow(Protocol):
    """An agent that knows its model's window."""

    @property
    def window(self) -> int | None:
        """How many tokens the window holds; None if it is not known."""
        ...


@runtime_checkable
class ReadsArtifacts(Protocol):
    """An agent that says how it reads what its prompt names; one that does not has the tool `read_artifact`."""

    @property
    def reads(self) -> Reads | None:
        """By the tool, by files that it makes of `work.readable`, or not at all (None)."""
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
    **terms: Unpack[AgentTerms],
) -> Stage[StageContext[Any], StageResult]:
    """Make a stage that an agent does.

    Args:
        agent: The agent.
        name: The stage's name; the agent's by default.
        instructions: What the stage's author tells the agent. It becomes the system prompt, so nothing that another
            agent or a user wrote belongs into it.
        tools: Functions that the agent may call, as far as its contract allows.
        answers: Whether it answers with a patch, with a handoff report, or with a text that is the stage's output.
        baton_type: The pipeline's type of baton.
        limits: How far one run may go.
        shows_params: Whether the prompt holds the pipeline's parameters beside the inputs.
        **terms: The terms of a stage: `reads`, `writes`, `timeout`, `retries`, `output`, `window`, … By default it
            runs up to seven times, which spans half an hour where a provider is overloaded or limits the rate, and
            `window` is that of the agent's model where it is known.

    Returns:
        The stage, for `Pipeline.stage` and for a worker's activities; a test calls it with `StageContext.for_test`.

    Raises:
        ValueError: Two tools have the same name for a model, or a term names a field that the baton does not have.
        TypeError: It is not an agent, such as a framework's agent without its adapter.

    Example:
        >>> class Fixed:
        ...     name = "plan"
        ...     async def run(self, work: AgentWork) -> AgentAnswer:
        ...         return work.read('{"baton_patch": {"decision_log": ["Use JWT"]}}')
        >>> agent_stage(Fixed(), writes=["decision_log"], timeout=timedelta(minutes=5))
        <stage plan>
    """
    _refuse_other(agent)
    own = tools_of(tools)
    brought = agent.tool_names if isinstance(agent, BringsTools) else frozenset[str]()
    _refuse_two_of_a_name(own, brought, agent.name)
    window = None if "window" in terms else agent
    doing = _Doing(agent, instructions, own, brought, answers, limits or AgentLimits(), shows_params, window)

    @lru_cache(maxsize=1)  # a worker has one registry of schemas
    def shape(schemas: OutputSchemas | None) -> dict[str, Any]:
        return _shape(schemas, made.spec, baton_type)

    async def run(context: StageContext[Any]) -> StageResult:
        schema = shape(context.parts.schemas) if answers is AnswerForm.PATCH else None
        return await doing.run(context, made.spec, schema)

    run.__annotations__["context"] = StageContext[baton_type]  # type: ignore[valid-type]
    run.__doc__ = f"The stage that the agent {agent.name!r} does."
    terms.setdefault("retries", _RETRIES)
    terms.setdefault("stream", getattr(agent, "stream", False) is True)
    made = stage(name=name or agent.name, tools=doing.named, **terms)(run)
    return made


@dataclass(frozen=True)
class _Doing:
    """How an agent does its stage; its parts are the arguments of `agent_stage`.

    Attributes:
        brought: The tools that the agent brings.
        sizes: Whose model's window counts; None where the stage's own does.
    """

    agent: Agent
    instructions: str
    own: tuple[AgentTool, ...]
    brought: frozenset[str]
    answers: AnswerForm
    limits: AgentLimits
    shows_params: bool
    sizes: Agent | None

    @property
    def named(self) -> frozenset[str]:
        """The names of all tools that the agent may call."""
        return self.brought | {tool.name for tool in self.own}

    async def run(self, context: StageContext[Any], spec: StageSpec, schema: dict[str, Any] | None) -> StageResult:
        """Have the agent do the stage once."""
        work = await self._work(context, spec, schema)
        try:
            answer = as_json(await self.agent.run(work), work, self.agent.name)
        except AgentError as error:
            if error.waits:
                _log.warning("stage %r waits: %s", spec.name, error)
            # The chain would carry a provider's own words into the history.
            raise _failure(error, context, spec.retries) from None
        return _result(answer, context)

    async def _work(self, context: StageContext[Any], spec: StageSpec, schema: dict[str, Any] | None) -> AgentWork:
        """Return what the agent is to do: its tools, and the prompt for which that leaves room."""
        tools = tuple(tool.guarded(context) for tool in self.own if context.tools.allows(tool.name))
        reads = _reads(context, self.agent, self.named)
        if reads == "tool":
            tools = (*tools, _reader(context))
        beside = [self.instructions, how_to_answer(self.answers, schema)]
        beside += [json.dumps([one.description, dict(one.parameters)]) for one in tools]
        prompt = await context.prompt_with_inputs(
            params=self.shows_params,
            window=spec.window if self.sizes is None else _window(self.sizes),
            beside=sum(map(context.parts.counter, beside)),
            reads=reads,
        )
        return AgentWork(
            prompt=prompt,
            instructions=self.instructions,
            tools=tools,
            form=self.answers,
            schema=schema,
            limits=_limits(self.limits, spec),
            withheld=frozenset(name for name in spec.tools if not context.tools.allows(name)),
            readable=frozenset(() if reads is None else context.readable()),
            context=context,
        )


def _window(agent: Agent) -> int:
    """Return how many tokens the window of an agent's model holds."""
    return (agent.window if isinstance(agent, KnowsWindow) else None) or DEFAULT_WINDOW


def _reads(context: StageContext[Any], agent: Agent, named: Iterable[str]) -> Reads | None:
    """Return how an agent reads what the handoff names; None where there is nothing, or it cannot or may not."""
    if not context.readable():
        return None
    forbidden = {*context.spec.forbids, *(context.contract.forbidden_tools if context.contract else ())}
    if tool_keys([READ_ARTIFACT]) & (tool_keys(named) | tool_keys(forbidden)):
        return None
    return agent.reads if isinstance(agent, ReadsArtifacts) else "tool"


def _reader(context: StageContext[Any]) -> AgentTool:
    """Return the tool that reads what the handoff names."""

    async def read(**arguments: Any) -> dict[str, Json]:
        return await context.read_artifact(*_read_arguments(**arguments))

    return replace(READER, function=read)


def _read_artifact(id: str, offset: int = 0, limit: int = MAX_READ) -> tuple[str, int, int]:
    """Read a part of an artifact, input or fact that your context names, from a character on."""
    return id, offset, limit


# Made once: a schema costs as much as a request by script.
READER = AgentTool.of(_read_artifact, name=READ_ARTIFACT)
"""The tool that reads what a handoff names, as a model sees it."""
_read_arguments = validate_call(_read_artifact)


def _refuse_other(agent: object) -> None:
    """Refuse what does not fit the port, and name the adapter for it."""
    fits = isinstance(getattr(agent, "name", None), str) and callable(getattr(agent, "run", None))
    package = type(agent).__module__.partition(".")[0]
    if fits and package != "pydantic_ai":  # whose agents have both, and mean something else by them
        return
    adapter = _ADAPTERS.get(package)
    if adapter is not None:
        raise TypeError(f"{type(agent).__qualname__!r} is an agent of a framework: wrap it in {adapter}")
    raise TypeError(f"an agent has a name, a str, and an async run(work); found the {type(agent).__qualname__}")


def _refuse_two_of_a_name(own: Iterable[AgentTool], brought: Iterable[str], agent: str) -> None:
    """Refuse a tool of the stage that has the name of one of the agent's: one would be called in place of the other."""
    spellings = {wire_name(name): name for name in brought}
    for tool in own:
        if (other := spellings.get(tool.wire_name)) is not None:
            raise ValueError(
                f"the tool {tool.name!r} of the stage and {other!r}, which agent {agent!r} brings, are both "
                f"{tool.wire_name!r} to a model; rename one"
            )


def _shape(schemas: OutputSchemas | None, spec: StageSpec, baton_type: type[Baton]) -> dict[str, Any]:
    """Return the schema of the answer, that of the output in it where the worker knows it."""
    found = None if spec.output is None or schemas is None else schemas.find(OutputSchemaRef.parse(spec.output))
    return answer_schema(baton_type, spec.writes, found)


def _limits(most: AgentLimits, spec: StageSpec) -> AgentLimits:
    """Return limits that the stage's own terms complete."""
    return replace(
        most,
        micro_usd=(spec.reserve_micro_usd or None) if most.micro_usd is None else most.micro_usd,
        seconds=spec.timeout.total_seconds() * _SHARE_OF_TIMEOUT if most.seconds is None else most.seconds,
    )


def as_json(answer: Any, work: AgentWork, agent: str) -> AgentAnswer:
    """Return an agent's answer with parts that are JSON, which what its own framework returned need not be."""
    if not isinstance(answer, AgentAnswer):
        why = f"agent {agent!r} returned {type(answer).__name__}; return an AgentAnswer, also from `of_output`"
        raise AgentError(why, permanent=True)
    patch = answer.patch
    try:
        if not isinstance(patch, BatonPatch):
            patch = json_form(dict(patch or {}), "baton_patch")
        return replace(answer, patch=patch, output=json_form(answer.output, "output"))
    except PatchError:
        work.charge(answer.spend)
        raise


def _result(answer: AgentAnswer, context: StageContext[Any]) -> StageResult:
    """Return an agent's answer as the stage's result, after what was said in it is on record."""
    for text in answer.said:
        context.session.model_response(text)
    if answer.output is not None and answer.claimed and context.contract is not None:  # for the contracts to come
        context.session.model_response(json.dumps(answer.output, ensure_ascii=False))
    return StageResult(
        baton_patch=answer.patch if isinstance(answer.patch, BatonPatch) else dict(answer.patch or {}),
        output=answer.output,
        report=answer.report,
        spend=answer.spend,
        turns=list(answer.turns),
    )


def _failure(error: AgentError, context: StageContext[Any], retries: Retries) -> ApplicationError:
    """Return an agent's failure for Temporal: whether it is retried, when, and what the run cost so far."""
    return ApplicationError(
        str(error),
        *context.cost_details(),
        type=type(error).__name__,
        non_retryable=error.permanent,
        next_retry_delay=_pause(error, retries),
        # What passes by itself is a line of the log, and no traceback for each try.
        category=ApplicationErrorCategory.BENIGN if error.waits else ApplicationErrorCategory.UNSPECIFIED,
    )


def _pause(error: AgentError, retries: Retries) -> timedelta | None:
    """Return how long to wait before the next run; None leaves it to the stage's own retries, if those wait as long."""
    run = min(activity.info().attempt if activity.in_activity() else 1, 60)
    own = min(retries.first.total_seconds() * retries.factor ** (run - 1), retries.longest.total_seconds())
    wanted = error.retry_after or 0.0
    if error.waits:
        jitter = random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        wanted = max(wanted, min(2.0 * 4.0 ** (run - 1), _LONGEST_PAUSE) * jitter)
    return timedelta(seconds=min(wanted, _LONGEST_WISH)) if wanted > own else None
