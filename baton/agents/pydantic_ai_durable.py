"""Fine-grained durable agents of Pydantic AI: each model request and each tool call is an activity."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Literal, Unpack

from baton.lazy import needs_extra

with needs_extra("agents", __name__):
    from pydantic_ai import Agent, AgentRunResult, RunContext, StructuredDict, ToolOutput, capture_run_messages
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, TemporalDurability
    from pydantic_ai.exceptions import ModelRetry
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import Tool, ToolDefinition
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import RunUsage, UsageLimits

from pydantic import ValidationError
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_core import PydanticSerializationError, to_json
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from baton.agents.answers import AgentAnswer, AnswerForm, read_form, to_json_value, typed_output
from baton.agents.nested import refuse_nested_agents
from baton.agents.notes import NOTE_TOOLS, note_tools
from baton.agents.port import READ_TOOL, AgentLimits, AgentWork, agent_stage, resolve_answers
from baton.agents.pydantic_ai_run import (
    OUTPUT_TOOL,
    check_finished,
    convert_usage,
    filter_native_tools,
    functions_of,
    handoff_settings,
    has_own_type,
    tool_names_of,
    translate_error,
    with_unique_calls,
)
from baton.agents.pydantic_ai_session import list_events, record_events
from baton.agents.results import possible_notes, require_notes, stage_result, with_turns
from baton.agents.tools import AgentTool, CallIds
from baton.artifacts.activity import ArtifactAccess
from baton.contract.records import ToolDeniedError
from baton.core.baton import Baton
from baton.core.history import Spend
from baton.core.inputs import decode_inputs, encode_inputs
from baton.core.messages import StageResult
from baton.core.notes import Notes
from baton.errors import AgentError, PatchError, StageFailedError
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_parts import current_parts
from baton.pipelines.activity_stage import AgentTerms, Stage, stage
from baton.pipelines.prompt import MAX_READ, READ_ARTIFACT, read_page, shown_text, unknown_id
from baton.pipelines.workflow import Pipeline
from baton.report.parsing import parse_report
from baton.report.records import ReportError
from baton.wire.json_values import Json
from baton.wire.money import Price, to_micro_usd, to_usd
from baton.wire.text import describe_faults

_READ_TIMEOUT = timedelta(minutes=1)

_TOOLS, _WITHHELD = "tools", "withheld"
_IN_WORKFLOW = {"temporal": False}  # otherwise the framework expects a tool when the agent is created

_read_answer: ContextVar[Callable[[Any], AgentAnswer] | None] = ContextVar("baton_durable_answer", default=None)
"""Reads the run's answer, by its schema. Not in the run's metadata, which is repeated in each activity."""


class DurableAgentsPlugin(PydanticAIPlugin):
    """Pydantic AI's plugin without its payload converter, for use with `BatonPlugin`; it registers agents' activities.

    Baton's payload converter reads the same types. Providers' error texts stay out of the history.
    """

    def __init__(self) -> None:
        super().__init__()
        self.data_converter = None
        self.interceptors = [RedactProviderErrors()]
        self.activities = [_read_page]


class UnderContract(AbstractCapability[Any]):
    """The capability that limits a durable agent to the tools of its contract; use it beside `TemporalDurability`.

    It runs in workflow code, before an activity is scheduled. Outside a durable agent's run it changes nothing.
    """

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Show the model only the tools that it may call."""
        allowed = _allowed_tools(ctx)
        return [tool for tool in tool_defs if allowed is None or tool.name in allowed]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Remove forbidden provider tools, which cannot be checked elsewhere."""
        allowed = _allowed_tools(ctx)
        return filter_native_tools(request_context, lambda name: allowed is None or name in allowed)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """Make the ids of a response's calls unique, and refuse one that calls a forbidden tool.

        Raises:
            ToolDeniedError: It calls a forbidden tool; none of its calls is made.
            UnexpectedModelBehavior: The response was cut off or stopped.
        """
        metadata = ctx.metadata or {}
        for call in response.tool_calls:
            if call.tool_name in metadata.get(_WITHHELD, ()):
                raise ToolDeniedError(call.tool_name, metadata["handoff_id"], allowed=metadata[_TOOLS])
        if _read_answer.get() is not None:
            check_finished(response)
            parts = (part for message in request_context.messages for part in message.parts)
            ids = CallIds(part.tool_call_id for part in parts if isinstance(part, ToolCallPart))
            response = with_unique_calls(response, ids)
        return response

    async def after_output_process(self, ctx: RunContext[Any], *, output_context: Any, output: Any) -> Any:
        """Return an answer in the wrong form to the model, in the same conversation."""
        read = _read_answer.get()
        if read is not None and not ctx.partial_output:
            try:
                read(output)
            except (PatchError, ReportError) as error:
                raise ModelRetry("; ".join(map(str, error.findings))) from None
        return output


def _allowed_tools(ctx: RunContext[Any]) -> Sequence[str] | None:
    """Return the tools that a run may call, or None outside a durable agent's run."""
    allowed: Sequence[str] | None = (ctx.metadata or {}).get(_TOOLS)
    return allowed


class DurableAgent:
    """An agent with durable steps; a separate pipeline runs it, usually as a child of another pipeline.

    Args:
        agent: The agent, with a name, its tools, and the capabilities `UnderContract` and `TemporalDurability`.
        name: The name of its stages; by default the agent's.
        instructions: The stage author's instructions; they must not contain text from a handoff.
        limits: The limits of one run.
        price: The model's price, if the price list does not know it.
        answers: What the agent answers with, as for `agent_stage`; by default its own `output_type`, otherwise a patch.
        notes: Whether answers carry notes, as for `agent_stage`.
        turns: Whether its turns travel on, as for `agent_stage`.
        **terms: Options of the stage that accepts the handoff; `writes` and `output` apply to the answer.

    Attributes:
        stages: The stages for the worker's activities; `DurableAgentsPlugin` adds the agent's own activities.

    Raises:
        ValueError: The agent has no name or lacks a capability.

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
        answers: AnswerForm | type[Any] | None = None,
        notes: bool | Literal["required"] = True,
        turns: bool = False,
        **terms: Unpack[AgentTerms],
    ) -> None:
        capabilities: list[AbstractCapability[Any]] = []
        agent.root_capability.apply(capabilities.append)
        if not agent.name or not {UnderContract, TemporalDurability} <= set(map(type, capabilities)):
            raise ValueError("a durable agent needs a name, and the capabilities UnderContract and TemporalDurability")
        if agent.instrument is None:
            agent.instrument = False  # `Agent.instrument_all()` would trace each activity as an agent, with its texts
        self.agent = agent
        self.name = name or agent.name
        self._instructions = instructions
        accept_terms: Any = {key: value for key, value in terms.items() if key != "output"}
        accepts = _AcceptHandoff(self.name, agent)
        self._accept_stage = agent_stage(accepts, limits=limits, answers=answers, notes=bool(notes), **accept_terms)
        self._form, self._kind = resolve_answers(answers, accepts)
        self._notes = possible_notes(
            notes, self._form, self._kind, tools=accepts.tool_names, writes=terms.get("writes")
        )
        self._unrecorded = {OUTPUT_TOOL, READ_ARTIFACT, *NOTE_TOOLS} - tool_names_of(agent)
        self._turns = turns
        self._price = price
        self._seconds = None if limits is None else limits.seconds
        answer_terms: Any = {
            key: value for key, value in terms.items() if key in ("writes", "output", "retries", "timeout")
        }
        recorder = self._make_recorder()
        # One attempt: a retry would be rejected again and charged again.
        self._answer_stage = stage(name=f"{self.name}.answer", agent=True, attempts=1, **answer_terms)(recorder)
        self._failure_stage = stage(name=f"{self.name}.failed", agent=True, writes=())(_record_failure)

    @property
    def stages(self) -> list[Stage[Any, Any]]:
        """The stages that accept the handoff, record the answer, and charge a failed run."""
        return [self._accept_stage, self._answer_stage, self._failure_stage]

    async def run(self, pipeline: Pipeline, *, inputs: Mapping[str, Any] | None = None) -> StageResult:
        """Run the agent in a running pipeline; for workflow code.

        Args:
            pipeline: The pipeline.
            inputs: The inputs by name, as for `Pipeline.stage`.

        Returns:
            The agent's answer, after it was applied to the baton.

        Raises:
            AgentError: The provider or the model refused, or a limit was reached.
            PatchError: The model gave no usable answer within the agent's own retries.
            ToolDeniedError: The agent called a forbidden tool, which did not run.
            StageFailedError: The handoff or the answer was rejected.
            InputError: An input has an invalid name or cannot be handed on.
            asyncio.CancelledError: The run was cancelled; its usage so far is charged.
        """
        accepted: Any = (await pipeline.stage(self._accept_stage, inputs=inputs)).output
        if pipeline.is_recorded(self._answer_stage.spec.name):  # in the run that this one forks or continues
            return await pipeline.stage(self._answer_stage)
        with pipeline.defer_continue_as_new():  # the next run would start over and grow just as long
            return await self._run_and_record(pipeline, accepted, inputs or {})

    async def _run_and_record(
        self, pipeline: Pipeline, accepted: dict[str, Any], inputs: Mapping[str, Any]
    ) -> StageResult:
        usage, noted = RunUsage(), Notes()
        with capture_run_messages() as messages:
            try:
                async with asyncio.timeout(self._seconds or None):
                    result = await self._run_agent(accepted, usage, inputs, noted)
                answer = to_json_value(result.output, "the answer")
            except asyncio.CancelledError:
                params = {"denied": None, **self._session(usage, messages)}
                await asyncio.shield(self._record_failed_run(pipeline, params))  # charged even if cancelled again
                raise
            except Exception as error:
                if not is_cancelled_exception(error):
                    params = {"denied": _denied_call(error), **self._session(usage, messages)}
                    await self._record_failed_run(pipeline, params)
                raise self._translate_error(error) from None
        return await pipeline.stage(
            self._answer_stage,
            params={"answer": answer, "noted": vars(noted), **self._session(usage, result.new_messages())},
        )

    def _make_recorder(self) -> Callable[[StageContext[Baton]], Coroutine[Any, Any, StageResult]]:
        """Return the function of the stage that records an answer."""

        async def record_answer(context: StageContext[Baton]) -> StageResult:
            _charge_and_record(context)
            params: Any = context.params
            noted = Notes(**params["noted"])
            notes = bool(self._notes)
            answer = read_form(params["answer"], self._form, kind=self._kind, notes=notes)
            if self._kind is not None:
                answer = replace(answer, output=typed_output(self._kind, answer.output))
            writes = self._answer_stage.spec.writes
            result = stage_result(answer, context, form=self._form, notes=notes, noted=noted, writes=writes)
            return with_turns(result, context.session, self.name) if self._turns else result

        return record_answer

    def _check_answer(self, output: Any, *, schema: dict[str, Any] | None, noted: Notes) -> AgentAnswer:
        """Return what an output says, or raise what its agent has to correct."""
        answer = read_form(output, self._form, schema, self._kind, notes=bool(self._notes))
        if answer.report is not None:
            parse_report(answer.report)
        if self._notes == "required":
            require_notes(answer, noted)
        return answer

    async def _run_agent(
        self, accepted: dict[str, Any], usage: RunUsage, inputs: Mapping[str, Any], noted: Notes
    ) -> AgentRunResult[Any]:
        schema = accepted["schema"]
        _read_answer.set(partial(self._check_answer, schema=schema, noted=noted))
        answer_type: Any = ToolOutput(StructuredDict(schema, name="answer"), name=OUTPUT_TOOL) if schema else None
        tools = [_workflow_tool(tool) for tool in note_tools(noted) if tool.name in accepted["note_tools"]]
        if accepted["readable"]:
            tools.append(self._read_tool(accepted, inputs))
        return await self.agent.run(
            accepted["prompt"],
            output_type=answer_type,
            instructions=self._instructions or None,
            toolsets=[FunctionToolset(tools)] if tools else None,
            model_settings=handoff_settings(accepted["handoff_id"]),
            usage=usage,
            usage_limits=UsageLimits(
                request_limit=accepted["requests"],
                total_tokens_limit=accepted["tokens"],
                cost_limit=None if accepted["micro_usd"] is None else to_usd(accepted["micro_usd"]),
            ),
            metadata={name: accepted[name] for name in ("handoff_id", _TOOLS, _WITHHELD)},
        )

    def _read_tool(self, accepted: Mapping[str, Any], inputs: Mapping[str, Any]) -> Tool[Any]:
        """Return the tool that reads what the handoff names: inputs and the report here, anything else by its hash."""
        digests: Mapping[str, str | None] = accepted["readable"]

        async def read(id: str, offset: int = 0, limit: int = MAX_READ) -> dict[str, Json]:
            if id not in digests:
                return unknown_id(id, digests)
            if (digest := digests[id]) is None:
                named = encode_inputs({id: inputs[id]} if id in inputs else {})
                value: Any = decode_inputs(named).get(id, accepted["report"])
                return read_page(id, shown_text(value), offset, limit)
            return await workflow.execute_activity(
                _read_page,
                args=[id, digest, offset, limit],
                start_to_close_timeout=_READ_TIMEOUT,
                retry_policy=RetryPolicy(maximum_attempts=self._accept_stage.spec.retries.attempts),
            )

        return Tool(read, takes_ctx=False, name=READ_ARTIFACT, description=READ_TOOL.description, metadata=_IN_WORKFLOW)

    def _session(self, usage: RunUsage, messages: Sequence[ModelMessage]) -> dict[str, Any]:
        """Return a run's cost and session as parameters of the stages that record them."""
        tokens = convert_usage(usage)
        cost = to_micro_usd(usage.cost or Decimal(0)) if self._price is None else self._price.micro_usd(tokens)
        spend = Spend(micro_usd=cost, prompt_tokens=tokens.input, completion_tokens=tokens.output)
        return {"spend": spend.model_dump(mode="json"), "events": list_events(messages, self._unrecorded)}

    def _translate_error(self, error: Exception) -> Exception:
        if isinstance(error, TimeoutError):
            return AgentError(f"agent {self.name!r} did not finish within {self._seconds:g} s")
        if isinstance(error, ActivityError):  # its own message says only that an activity failed
            return AgentError(_explain_activity_error(self.name, error))
        return translate_error(error, self.name)

    async def _record_failed_run(self, pipeline: Pipeline, params: dict[str, Any]) -> None:
        try:
            await pipeline.stage(self._failure_stage, params=params)
        except StageFailedError as error:  # the agent's own error matters more
            workflow.logger.warning("the cost of a failed run of agent %r was not recorded: %s", self.name, error)


def _workflow_tool(tool: AgentTool) -> Tool[Any]:
    """Return a tool that workflow code calls itself; arguments that do not fit are noted nowhere."""

    async def call(text: str) -> str:
        try:
            return str(await tool.function(text=text))
        except ValidationError as error:
            raise ModelRetry(describe_faults(error)) from None

    return Tool(call, takes_ctx=False, name=tool.name, description=tool.description, metadata=_IN_WORKFLOW)


class _AcceptHandoff:
    """Accepts the handoff, and returns the prompt and the limits of the run."""

    def __init__(self, name: str, agent: Agent[Any, Any]) -> None:
        self.name = name
        self.tool_names = tool_names_of(agent)
        self._functions = functions_of(agent)
        self.own_output = has_own_type(agent)

    async def run(self, work: AgentWork) -> AgentAnswer:
        refuse_nested_agents(work.context, self, self._functions)
        allows = work.context.tools.allows
        readable = work.context.readable()
        own_tools = self.tool_names | ({READ_ARTIFACT} if readable else set())
        allowed = {name for name in self.tool_names if allows(name)} | {tool.name for tool in work.tools}
        output: Any = {
            "prompt": work.user_turn(),
            "schema": work.schema,
            _TOOLS: sorted(allowed),
            _WITHHELD: sorted(own_tools - allowed),
            "note_tools": sorted(NOTE_TOOLS & {tool.name for tool in work.tools} - self.tool_names),
            "readable": readable if work.readable else {},
            "report": work.context.given.report if work.readable else "",
            "handoff_id": work.handoff_id,
            "requests": work.limits.requests,
            "tokens": work.limits.tokens,
            "micro_usd": work.limits.micro_usd,
        }
        return AgentAnswer(patch={}, output=output, claimed=False)


@activity.defn(name="baton.read_artifact")
async def _read_page(id: str, digest: str, offset: int, limit: int) -> dict[str, Json]:
    """Return a part of an artifact in the store."""
    parts = current_parts()
    text = await ArtifactAccess(parts.artifacts, [], [], parts.counter).text_of(digest)
    return read_page(id, text, offset, limit)


async def _record_failure(context: StageContext[Baton]) -> StageResult:
    """Charge and record a failed or cancelled run, and its denied call."""
    _charge_and_record(context)
    params: Any = context.params
    if params["denied"] is not None:
        await context.tools.deny(**params["denied"])
    return StageResult()


def _charge_and_record(context: StageContext[Baton]) -> None:
    params: Any = context.params
    context.charge(Spend.model_validate(params["spend"]))
    record_events(context.session, params["events"])


def _denied_call(error: Exception) -> dict[str, str] | None:
    return {"name": error.tool, "handoff_id": error.handoff_id} if isinstance(error, ToolDeniedError) else None


def _explain_activity_error(agent: str, error: ActivityError) -> str:
    cause = error.cause or error
    message = getattr(cause, "message", None) or str(cause)
    if isinstance(cause, ApplicationError) and cause.type:
        if cause.type in (AgentError.__name__, PatchError.__name__):
            return message
        message = f"{cause.type}: {message}"
    return f"agent {agent!r}: {error.activity_type}: {message}"


_ERROR_KEY = "pydantic_ai_model_error"  # where the framework stores what its workflow rebuilds the error from
_ACTIVITY_PREFIX = "agent__"  # of the framework's activities, followed by the agent's name
_PROVIDER_TEXTS = ("body", "headers", "hint", "suggested_model_id")


class RedactProviderErrors(Interceptor):
    """A worker's interceptor that removes a provider's own texts from failures."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Intercept every activity."""
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    """Redacts failures of the agents' activities."""

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run the activity."""
        if not activity.info().activity_type.startswith(_ACTIVITY_PREFIX):
            return await super().execute_activity(input)
        try:
            result = await super().execute_activity(input)
            to_json(result)
            return result
        except PydanticSerializationError:  # Temporal would retry it forever
            message = (
                f"agent {_agent_name()!r}: a model or tool returned what cannot be stored, such as a lone surrogate"
            )
            raise ApplicationError(message, type=AgentError.__name__, non_retryable=True) from None
        except ModelAPIError as error:
            raise ApplicationError(_describe(error), type=type(error).__name__) from None
        except ApplicationError as error:
            if isinstance(error.__cause__, UnexpectedModelBehavior):  # its message would quote the answer
                raise _application_error(error.__cause__) from None
            if not isinstance(error.__cause__, ModelAPIError):
                raise
            raise ApplicationError(
                _describe(error.__cause__),
                *(_redact(detail, error.__cause__) for detail in error.details),
                type=error.type,
                non_retryable=error.non_retryable,
                next_retry_delay=error.next_retry_delay,
            ) from None
        except Exception as error:
            if (translated := _application_error(error)) is error:
                raise
            raise translated from None


def _application_error(error: Exception) -> Exception:
    """Convert a framework's error for Temporal; return other errors unchanged."""
    translated = translate_error(error, _agent_name())
    if not isinstance(translated, AgentError | PatchError) or translated is error:
        return error
    permanent = isinstance(translated, PatchError) or translated.permanent
    return ApplicationError(str(translated), type=type(translated).__name__, non_retryable=permanent)


def _describe(error: ModelAPIError) -> str:
    return str(translate_error(error, _agent_name()))


def _agent_name() -> str:
    parts = activity.info().activity_type.split("__")
    return parts[1] if len(parts) > 1 else parts[0]


def _redact(detail: Any, error: ModelAPIError) -> Any:
    """Return a detail of a failure without the provider's own texts."""
    if not isinstance(detail, dict) or not isinstance(detail.get(_ERROR_KEY), dict):
        return detail
    encoded = detail[_ERROR_KEY]
    args = list(encoded.get("args") or ())
    if args:  # the last one is the body of a response, or the client's message
        args[-1] = None if isinstance(error, ModelHTTPError) else _describe(error)
    state = {name: None if name in _PROVIDER_TEXTS else value for name, value in (encoded.get("state") or {}).items()}
    return {**detail, _ERROR_KEY: {**encoded, "args": args, "state": state}}
