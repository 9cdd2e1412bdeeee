"""Fine-grained durable agents of Pydantic AI: each request to a model and each tool call is an activity of its own."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextvars import ContextVar
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Unpack

from baton.lazy import needs_extra

with needs_extra("agents", __name__):
    from pydantic_ai import Agent, AgentRunResult, RunContext, StructuredDict, ToolOutput, capture_run_messages
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, TemporalDurability
    from pydantic_ai.exceptions import ModelRetry
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import Tool, ToolDefinition
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import RunUsage, UsageLimits

from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_core import PydanticSerializationError, to_json
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from baton.agents.answers import AgentAnswer, read_answer
from baton.agents.port import READER, AgentLimits, AgentWork, agent_stage
from baton.agents.pydantic_ai_run import (
    OUTPUT_TOOL,
    finished,
    names_of_tools,
    offered,
    reported,
    settings_under,
    usage_of,
)
from baton.artifacts.activity import ArtifactAccess
from baton.contract.activity import shorten_claim
from baton.contract.records import ToolDeniedError
from baton.core.baton import Baton
from baton.core.history import Spend
from baton.core.inputs import decode_inputs, encode_inputs, input_text
from baton.core.messages import StageResult
from baton.errors import AgentError, PatchError, StageFailedError
from baton.pipelines.activity_context import StageContext, current_parts
from baton.pipelines.activity_stage import AgentTerms, Stage, stage
from baton.pipelines.prompt import MAX_READ, READ_ARTIFACT, page_note, read_page, unknown_id
from baton.pipelines.workflow import Pipeline
from baton.wire.json_values import Json
from baton.wire.money import Price, to_micro_usd, to_usd

_LONGEST_TOLD = 16_000  # characters of an answer or a result, which goes through the history to its record
_READ_WITHIN = timedelta(minutes=1)

_TOOLS, _WITHHELD = "tools", "withheld"

_schema: ContextVar[dict[str, Any] | None] = ContextVar("baton_durable_schema", default=None)
"""What the answer of the run under way has to fit; its metadata would be repeated with each of its activities."""


class DurableAgentsPlugin(PydanticAIPlugin):
    """Pydantic AI's plugin beside `BatonPlugin`: it registers the agents' activities, and leaves payloads to Baton.

    The framework's own would put its payload converter in the place of Baton's, which reads the same types. What a
    provider says when it refuses stays out of the history.
    """

    def __init__(self) -> None:
        super().__init__()
        self.data_converter = None
        self.interceptors = [RedactProviderErrors()]
        self.activities = [_read_page]


class UnderContract(AbstractCapability[Any]):
    """The capability that a durable agent needs beside `TemporalDurability`: the tools of its contract and no others.

    It works in workflow code, before an activity is scheduled. Outside a durable agent's run it changes nothing.
    """

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Show the model the tools that it may call."""
        allowed = _allowed(ctx)
        return [one for one in tool_defs if allowed is None or one.name in allowed]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Offer the model those tools of its provider that it may call: they cannot be checked elsewhere."""
        allowed = _allowed(ctx)
        return offered(request_context, lambda name: allowed is None or name in allowed)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """Refuse a response that calls another tool of the agent.

        Raises:
            ToolDeniedError: It does; none of its calls is made.
            UnexpectedModelBehavior: It was cut off, or stopped.
        """
        metadata = ctx.metadata or {}
        for call in response.tool_calls:
            if call.tool_name in metadata.get(_WITHHELD, ()):
                raise ToolDeniedError(call.tool_name, metadata["handoff_id"], allowed=metadata[_TOOLS])
        if _schema.get() is not None:
            finished(response)
        return response

    async def after_output_validate(self, ctx: RunContext[Any], *, output_context: Any, output: Any) -> Any:
        """Return an answer that does not fit its stage's schema, in the same conversation."""
        schema = _schema.get()
        if schema is not None and not ctx.partial_output:
            try:
                read_answer(output, schema)
            except PatchError as error:
                raise ModelRetry("; ".join(error.findings)) from None
        return output


def _allowed(ctx: RunContext[Any]) -> Sequence[str] | None:
    """Return the tools that a run may call; None outside a durable agent's run."""
    allowed: Sequence[str] | None = (ctx.metadata or {}).get(_TOOLS)
    return allowed


class DurableAgent:
    """An agent whose every step is durable; a pipeline of its own runs it, usually as the child of another one.

    Args:
        agent: The agent, with a name, its tools, and the capabilities `UnderContract` and `TemporalDurability`.
        name: The name of its stages; the agent's by default.
        instructions: What the stage's author tells the agent; nothing that came with a handoff belongs into it.
        limits: How far one run may go.
        price: What the model costs, where the price list does not know it.
        **terms: The terms of the stage that accepts the handoff; `writes` and `output` bind the answer.

    Attributes:
        stages: What the worker needs among its activities; `DurableAgentsPlugin` adds the agent's own.

    Raises:
        ValueError: The agent has no name, or lacks one of the capabilities.

    Example:
        ```python
        durable = [UnderContract(), TemporalDurability()]
        planner = DurableAgent(Agent("openai:gpt-4o", name="plan", capabilities=durable))


        @workflow.defn
        class Plans(PydanticAIWorkflow):
            __pydantic_ai_agents__ = [planner.agent]

            @workflow.init
            def __init__(self, start: PipelineInput) -> None:
                self.pipeline = Pipeline(start, contracts=ContractTerms())

            @workflow.run
            async def run(self, start: PipelineInput) -> PipelineResult:
                await planner.run(self.pipeline)
                return self.pipeline.result()


        client = await Client.connect("localhost:7233", plugins=[BatonPlugin(), DurableAgentsPlugin()])
        worker = Worker(client, task_queue="baton", workflows=[Plans], activities=planner.stages)
        ```
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        name: str | None = None,
        instructions: str = "",
        limits: AgentLimits | None = None,
        price: Price | None = None,
        **terms: Unpack[AgentTerms],
    ) -> None:
        found: list[AbstractCapability[Any]] = []
        agent.root_capability.apply(found.append)
        kinds = {type(one) for one in found}
        if not agent.name or not {UnderContract, TemporalDurability} <= kinds:
            raise ValueError(
                "a durable agent needs a name, and both UnderContract() and TemporalDurability() among its capabilities"
            )
        if (
            agent.instrument is None
        ):  # `Agent.instrument_all()` would record each of its activities as an agent, with text
            agent.instrument = False
        self.agent = agent
        self.name = name or agent.name
        self._instructions = instructions
        opening: Any = {key: value for key, value in terms.items() if key != "output"}
        self._accepts = agent_stage(_AcceptHandoff(self.name, agent), limits=limits, **opening)
        self._unrecorded = {OUTPUT_TOOL, READ_ARTIFACT} - names_of_tools(agent)
        self._price = price
        self._seconds = None if limits is None else limits.seconds
        settling: Any = {
            key: value for key, value in terms.items() if key in ("writes", "output", "retries", "timeout")
        }
        # Once: the same answer would be refused again, and its bill be paid again.
        self._settles = stage(name=f"{self.name}.answer", attempts=1, **settling)(_record_answer)
        self._gives_up = stage(name=f"{self.name}.failed", writes=())(_record_failure)

    @property
    def stages(self) -> list[Stage[Any, Any]]:
        """The stages: one accepts the handoff, one returns the answer, one has a run charged that came to none."""
        return [self._accepts, self._settles, self._gives_up]

    async def run(self, pipeline: Pipeline, *, inputs: Mapping[str, Any] | None = None) -> StageResult:
        """Have the agent do its work in the running pipeline; call it in workflow code.

        Args:
            pipeline: The pipeline.
            inputs: What it works on, by name, as of `Pipeline.stage`.

        Returns:
            What the agent answered, applied to the baton.

        Raises:
            AgentError: The provider or the model refused, or a limit was reached.
            PatchError: The model gave no usable answer, as often as the agent's own retries allow.
            ToolDeniedError: It called a tool that its contract does not allow; the tool did not run.
            StageFailedError: Its handoff or its answer was refused.
            InputError: An input has no usable name, or cannot be handed on.
            asyncio.CancelledError: It was cancelled; what it had used until then is charged.
        """
        opened: Any = (await pipeline.stage(self._accepts, inputs=inputs)).output
        if pipeline.is_recorded(self._settles.spec.name):  # by the run that was forked, or that this one continues
            return await pipeline.stage(self._settles)
        with pipeline.defer_continue_as_new():  # or the next run would think again, and grow as long again
            return await self._answered(pipeline, opened, inputs or {})

    async def _answered(self, pipeline: Pipeline, opened: dict[str, Any], inputs: Mapping[str, Any]) -> StageResult:
        """Have the agent think, and return what it answered, once that is on record."""
        usage = RunUsage()
        with capture_run_messages() as messages:
            try:
                async with asyncio.timeout(self._seconds or None):
                    result = await self._think(opened, usage, inputs)
            except asyncio.CancelledError:
                told = {"denied": None, **self._session(usage, messages)}
                await asyncio.shield(self._tell(pipeline, told))  # it is paid, also if it is cancelled again
                raise
            except Exception as error:
                if not is_cancelled_exception(error):
                    await self._tell(pipeline, {"denied": _denied(error), **self._session(usage, messages)})
                raise self._reported(error) from None
        return await pipeline.stage(
            self._settles, params={"answer": result.output, **self._session(usage, result.new_messages())}
        )

    async def _think(self, opened: dict[str, Any], usage: RunUsage, inputs: Mapping[str, Any]) -> AgentRunResult[Any]:
        """Run the agent under what the stage that accepted its handoff told."""
        _schema.set(opened["schema"])
        return await self.agent.run(
            opened["prompt"],
            output_type=ToolOutput(StructuredDict(opened["schema"], name="answer"), name=OUTPUT_TOOL),
            instructions=self._instructions or None,
            toolsets=[self._reader(opened["readable"], inputs)] if opened["readable"] else None,
            model_settings=settings_under(opened["handoff_id"]),
            usage=usage,
            usage_limits=UsageLimits(
                request_limit=opened["requests"],
                total_tokens_limit=opened["tokens"],
                cost_limit=None if opened["micro_usd"] is None else to_usd(opened["micro_usd"]),
            ),
            metadata={name: opened[name] for name in ("handoff_id", _TOOLS, _WITHHELD)},
        )

    def _reader(self, named: Mapping[str, str | None], inputs: Mapping[str, Any]) -> FunctionToolset[Any]:
        """Return the tool that reads what the handoff names: an input from here, anything else by its hash."""

        async def read(id: str, offset: int = 0, limit: int = MAX_READ) -> dict[str, Json]:
            if id not in named:
                return unknown_id(id, named)
            if (digest := named[id]) is None:
                value: Any = decode_inputs(encode_inputs({id: inputs[id]}))[id]
                return read_page(id, input_text(value), offset, limit)
            return await workflow.execute_activity(
                _read_page,
                args=[id, digest, offset, limit],
                start_to_close_timeout=_READ_WITHIN,
                retry_policy=RetryPolicy(maximum_attempts=self._accepts.spec.retries.attempts),
            )

        in_workflow = {"temporal": False}  # else the framework would want it registered when the agent was made
        tool: Tool[Any] = Tool(
            read, takes_ctx=False, name=READ_ARTIFACT, description=READER.description, metadata=in_workflow
        )
        return FunctionToolset([tool])

    def _session(self, usage: RunUsage, messages: Sequence[ModelMessage]) -> dict[str, Any]:
        """Return a run's bill and session, as the stage that records them takes them."""
        seen = usage_of(usage)
        cost = to_micro_usd(usage.cost or Decimal(0)) if self._price is None else self._price.micro_usd(seen)
        spend = Spend(micro_usd=cost, prompt_tokens=seen.input, completion_tokens=seen.output)
        return {"spend": spend.model_dump(mode="json"), "events": _events(messages, self._unrecorded)}

    def _reported(self, error: Exception) -> Exception:
        """Return what the run raises for what the framework raised."""
        if isinstance(error, TimeoutError):
            return AgentError(f"agent {self.name!r} did not come to an end within {self._seconds:g} s")
        if isinstance(error, ActivityError):  # its own message says only that an activity failed
            return AgentError(_why(self.name, error))
        return reported(error, self.name)

    async def _tell(self, pipeline: Pipeline, told: dict[str, Any]) -> None:
        """Have a run charged that failed or was cancelled, and its denied call put on record."""
        try:
            await pipeline.stage(self._gives_up, params=told)
        except StageFailedError as error:  # why the agent ended matters more
            workflow.logger.warning(
                "what the run of agent %r cost that came to no end is not on record: %s", self.name, error
            )


class _AcceptHandoff:
    """The agent that accepts the handoff, and tells the workflow what to do under it."""

    def __init__(self, name: str, agent: Agent[Any, Any]) -> None:
        self.name = name
        self.tool_names = names_of_tools(agent)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Return the prompt and what binds the run; the patch stays empty."""
        allows = work.context.tools.allows
        readable = work.context.readable()
        known = self.tool_names | ({READ_ARTIFACT} if readable else set())
        allowed = {name for name in self.tool_names if allows(name)} | {tool.name for tool in work.tools}
        opened: Any = {
            "prompt": work.user_turn(),
            "schema": work.schema,
            _TOOLS: sorted(allowed),
            _WITHHELD: sorted(known - allowed),
            "readable": readable if work.readable else {},
            "handoff_id": work.handoff_id,
            "requests": work.limits.requests,
            "tokens": work.limits.tokens,
            "micro_usd": work.limits.micro_usd,
        }
        return AgentAnswer(patch={}, output=opened, claimed=False)


@activity.defn(name="baton.read_artifact")
async def _read_page(id: str, digest: str, offset: int, limit: int) -> dict[str, Json]:
    """Return a part of what the store has under a hash."""
    parts = current_parts()
    text = await ArtifactAccess(parts.artifacts, [], [], parts.counter).text_of(digest)
    return read_page(id, text, offset, limit)


async def _record_answer(context: StageContext[Baton]) -> StageResult:
    """Return what the agent answered, its session on record and its bill with it."""
    _charge_and_record(context)
    given: Any = context.params
    answer = read_answer(given["answer"])
    return StageResult(baton_patch=dict(answer.patch or {}), output=answer.output)


async def _record_failure(context: StageContext[Baton]) -> StageResult:
    """Charge what a failed or cancelled run cost, and put its session and the call that was denied on record."""
    _charge_and_record(context)
    given: Any = context.params
    if given["denied"] is not None:
        await context.tools.deny(**given["denied"])
    return StageResult()


def _charge_and_record(context: StageContext[Baton]) -> None:
    """Charge a run's bill, and record its session."""
    given: Any = context.params
    context.charge(Spend.model_validate(given["spend"]))
    for event in given["events"]:
        _record(context, event)


def _record(context: StageContext[Baton], event: dict[str, Any]) -> None:
    """Record one event of the conversation in the session."""
    log = context.session
    match event["kind"]:
        case "call":
            log.tool_call(event["tool"], event["text"])
        case "result":
            at = datetime.fromisoformat(event["at"])
            log.tool_result(event["tool"], event["text"], success=event["success"], retrieved_at=at)
        case "thought":
            log.internal_note(event["text"])
        case _:
            log.model_response(event["text"])


def _events(messages: Sequence[ModelMessage], unrecorded: Set[str]) -> list[Any]:
    """Return what happened in a conversation, each in a few words, with the time of a result's retrieval."""
    found: list[Any] = []
    for message in messages:
        for part in message.parts:
            match part:
                case ToolCallPart(tool_name=tool) if tool not in unrecorded:
                    found.append({"kind": "call", "tool": tool, "text": shorten_claim(part.args_as_json_str())})
                case ToolReturnPart(tool_name=tool) if tool not in unrecorded:
                    text = shorten_claim(part.model_response_str(), _LONGEST_TOLD)
                    result = {"kind": "result", "tool": tool, "text": text, "at": part.timestamp.isoformat()}
                    found.append({**result, "success": part.outcome == "success"})
                case ToolReturnPart(tool_name=tool, content=dict(page)) if tool == READ_ARTIFACT:
                    if (note := page_note(page)) is not None:  # not a fact for the next stages
                        found.append({"kind": "thought", "text": note})
                case ThinkingPart(content=text) if text.strip():
                    found.append({"kind": "thought", "text": shorten_claim(text)})
                case TextPart(content=text) if text.strip():
                    found.append({"kind": "said", "text": shorten_claim(text, _LONGEST_TOLD)})
    return found


def _denied(error: Exception) -> dict[str, str] | None:
    """Return which call was denied, if that ended the run."""
    return {"name": error.tool, "handoff_id": error.handoff_id} if isinstance(error, ToolDeniedError) else None


def _why(agent: str, error: ActivityError) -> str:
    """Return why an activity of an agent failed for good."""
    cause = error.cause or error
    told = getattr(cause, "message", None) or str(cause)
    if isinstance(cause, ApplicationError) and cause.type:
        if cause.type in (AgentError.__name__, PatchError.__name__):
            return told
        told = f"{cause.type}: {told}"
    return f"agent {agent!r}: {error.activity_type}: {told}"


_ENCODED = "pydantic_ai_model_error"  # where the framework puts what its workflow makes the error of
_OF_AN_AGENT = "agent__"  # how the framework names the activities of its agents, with the agent's name behind it
_WORDS = ("body", "headers", "hint", "suggested_model_id")


class RedactProviderErrors(Interceptor):
    """The worker's interceptor that leaves a provider's own words out of what a request failed with."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Stand around every activity."""
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    """One activity; those of other kinds are passed through."""

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run the activity."""
        if not activity.info().activity_type.startswith(_OF_AN_AGENT):
            return await super().execute_activity(input)
        try:
            result = await super().execute_activity(input)
            to_json(result)
            return result
        except PydanticSerializationError:  # Temporal would run it again without end
            why = f"agent {_agent()!r}: a model or tool answered what cannot be stored, such as half a character"
            raise ApplicationError(why, type=AgentError.__name__, non_retryable=True) from None
        except ModelAPIError as error:
            raise ApplicationError(_text(error), type=type(error).__name__) from None
        except ApplicationError as error:
            if isinstance(error.__cause__, UnexpectedModelBehavior):  # the framework's, with its words as they are
                raise _told(error.__cause__) from None
            if not isinstance(error.__cause__, ModelAPIError):
                raise
            raise ApplicationError(
                _text(error.__cause__),
                *(_redacted(one, error.__cause__) for one in error.details),
                type=error.type,
                non_retryable=error.non_retryable,
                next_retry_delay=error.next_retry_delay,
            ) from None
        except Exception as error:
            if (told := _told(error)) is error:
                raise
            raise told from None


def _told(error: Exception) -> Exception:
    """Return what an activity fails with for what the framework raised; the error itself where it is not its own."""
    made = reported(error, _agent())
    if not isinstance(made, AgentError | PatchError) or made is error:
        return error
    final = isinstance(made, PatchError) or made.permanent
    return ApplicationError(str(made), type=type(made).__name__, non_retryable=final)


def _text(error: ModelAPIError) -> str:
    """Return what happened, in words of our own."""
    return str(reported(error, _agent()))


def _agent() -> str:
    """Return the name of the agent whose activity it is, which is in the activity's name."""
    named = activity.info().activity_type.split("__")
    return named[1] if len(named) > 1 else named[0]


def _redacted(detail: Any, error: ModelAPIError) -> Any:
    """Return a detail of a failure without what the provider said."""
    if not isinstance(detail, dict) or not isinstance(detail.get(_ENCODED), dict):
        return detail
    encoded = detail[_ENCODED]
    args = list(encoded.get("args") or ())
    if args:  # the last one is the body of an answer, or what the client of the provider said
        args[-1] = None if isinstance(error, ModelHTTPError) else _text(error)
    state = {name: None if name in _WORDS else value for name, value in (encoded.get("state") or {}).items()}
    return {**detail, _ENCODED: {**encoded, "args": args, "state": state}}
