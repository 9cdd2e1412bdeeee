"""Agents of the OpenAI Agents SDK as stages, with guarded tools, contracts for handoffs inside a run, and billing."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, Literal

from baton.lazy import needs_extra

with needs_extra("openai-agents", __name__):
    from agents import (
        Agent,
        AgentOutputSchemaBase,
        HandoffInputFilter,
        Model,
        ModelBehaviorError,
        ModelProvider,
        OpenAIProvider,
        RunConfig,
        Runner,
        RunResult,
        RunResultStreaming,
    )
    from agents.exceptions import AgentsException, MaxTurnsExceeded, UserError
    from agents.run import CallModelInputFilter
    from openai import APIError, AsyncOpenAI, OpenAIError

from baton.agents.answers import AgentAnswer
from baton.agents.billing import find_window, time_limit
from baton.agents.failures import NO_USABLE_FORM, finish_error, is_parse_error, provider_error, unreadable_error
from baton.agents.nested import refuse_nested_agents
from baton.agents.openai_agents_run import (
    AgentGraph,
    EventForwarder,
    GuardedCopies,
    RecordingHooks,
    ToolRaisedError,
    contract_input_filter,
    notes_filter,
    stop_run,
)
from baton.agents.openai_agents_wire import WatchedClient, watching
from baton.agents.port import AgentWork
from baton.contract.records import ToolDeniedError
from baton.core.stages import name_set
from baton.errors import AgentError, PatchError
from baton.wire.money import Price

__all__ = ["OpenAIAgent", "WatchedClient", "contract_input_filter", "provider"]

_FINISH_REASON = re.compile(r"(?:finish_reason=|incomplete_details=IncompleteDetails\(reason=)'(\w+)'")


def provider(
    *, base_url: str | None = None, api_key: str | None = None, api: Literal["responses", "chat"] = "responses"
) -> ModelProvider:
    """Return a model provider without retries, which are Temporal's, and without redirects.

    Args:
        base_url: The address of the models; by default the environment's, otherwise OpenAI's.
        api_key: The key; by default `OPENAI_API_KEY` of the worker's environment. It is in no message and no record.
        api: OpenAI's responses API, or chat completions, which most other servers offer.

    Raises:
        openai.OpenAIError: The environment has no key.
    """
    direct = WatchedClient(follow_redirects=False)  # a redirect would send the prompt to another address
    client = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0, http_client=direct)
    return OpenAIProvider(openai_client=client, use_responses=api == "responses")


class OpenAIAgent:
    """An agent of the OpenAI Agents SDK behind the port `baton.agents.port.Agent`.

    Args:
        agent: The agent. Its instructions come before those of the stage.
        provider: The provider for models given by name; by default OpenAI, with the key in the worker's environment.
            One of your own needs a client with `http_client=WatchedClient()`: without it, a text that is cut off
            passes as whole.
        answer: How the model gets the stage's schema: by the provider's structured output, or in the prompt, for
            servers without structured output.
        of_output: Makes the answer from the agent's own output; it keeps the agent's `output_type`. Without it that
            output is the stage's, unless the stage says what the agent answers with.
        price: The model's price, if the public price list does not know it.
        mcp_tools: The tools of its MCP servers that it may use; others are not offered.
        context: The context of the agent's own tools.
        stream: Stream the model's answers to clients that follow the run, like `p.stage(…, stream=True)`.
    """

    def __init__(
        self,
        agent: Agent[Any],
        *,
        provider: ModelProvider | None = None,
        answer: Literal["native", "prompted"] = "native",
        of_output: Callable[[Any], AgentAnswer] | None = None,
        price: Price | None = None,
        mcp_tools: Iterable[str] = (),
        context: Any = None,
        stream: bool = False,
    ) -> None:
        self._graph = AgentGraph(agent)
        self._provider = provider
        self._native = answer == "native"
        self._of_output = of_output
        self._price = price
        self._mcp_tools = name_set(mcp_tools, "mcp_tools")
        self._context = context
        self.stream = stream

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._graph.first.name

    @property
    def steers(self) -> bool:
        """Whether its models are shown people's notes: they are."""
        return True

    @property
    def tool_names(self) -> frozenset[str]:
        """The tools of the agent and of the agents that it may hand off to."""
        return self._graph.tool_names | self._mcp_tools

    @property
    def own_output(self) -> bool:
        """Whether the agent has an `output_type`, or its output is made into an answer."""
        return self._of_output is not None or self._graph.first.output_type not in (None, str)

    @property
    def lab_overrides(self) -> frozenset[str]:
        """A candidate may have another model."""
        return frozenset({"model"})

    @property
    def window(self) -> int | None:
        """The size of the model's context window in tokens, if the price list knows it."""
        model = self._graph.first.model
        return find_window(model) if isinstance(model, str) else None

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the agent once, with the agents that it hands off to.

        Raises:
            AgentError: The provider rejected the request or failed, a guardrail stopped the run, or it reached a limit.
            PatchError: The model gave no usable answer.
            ToolDeniedError: An agent called a forbidden tool.
        """
        refuse_nested_agents(work.context, self, self._graph.functions)
        keeps_type = self._of_output is not None or work.own_output
        structured = self._native and not keeps_type and work.schema is not None
        turn = partial(work.user_turn, with_schema=not structured and not keeps_type)
        output = _own_output_type if keeps_type else AnswerSchema(work) if structured else None
        copies = GuardedCopies(self._graph, work, output, self._mcp_tools)
        hooks = RecordingHooks(work, self.name, copies, self._price)
        try:
            filters = contract_input_filter(work, copies.tool_names_of, turn), notes_filter(work)
            config = self._config(*filters, work.overrides.model)
            async with time_limit(work, self.name):
                agent = await copies.copy_agent(self._graph.first, self._context)
                with watching(hooks.watch):
                    result = await self._run(agent, work, turn(), hooks, config)
        except Exception as error:
            raise _translate_error(error, self.name) from None
        finally:
            hooks.settle()
            await work.context.tools.settle()
        if result.interruptions:
            names = ", ".join(sorted({str(interruption.name) for interruption in result.interruptions}))
            message = f"agent {self.name!r} waits for the approval of {names}; ask people with the pipeline's approvals"
            raise AgentError(message, permanent=True)
        if self._of_output is not None:
            return self._of_output(result.final_output)
        answer = result.final_output
        if isinstance(answer, AgentAnswer):
            return answer
        return AgentAnswer(output=answer) if work.own_output else work.read(str(answer))

    async def _run(
        self, agent: Agent[Any], work: AgentWork, turn: str, hooks: RecordingHooks, config: RunConfig
    ) -> RunResult | RunResultStreaming:
        """Run the SDK to its end, and stream its events if clients follow the run."""
        # Without max_turns: the meter keeps the limits.
        terms: Any = {"context": self._context, "max_turns": None, "hooks": hooks, "run_config": config}
        if not work.context.stream.wanted:
            return await Runner.run(agent, turn, **terms)
        running = Runner.run_streamed(agent, turn, **terms)
        forwarder = EventForwarder(work.context.stream)
        try:
            async for event in running.stream_events():
                forwarder.forward(event)
        finally:
            await stop_run(running)
        return running

    def _config(
        self, input_filter: HandoffInputFilter, notes: CallModelInputFilter | None, model: str | None
    ) -> RunConfig:
        return RunConfig(
            model=model,
            model_provider=self._models,
            handoff_input_filter=input_filter,
            call_model_input_filter=notes,
            tracing_disabled=True,
            trace_include_sensitive_data=False,
            tool_not_found_behavior="return_error_to_model",
        )

    @cached_property
    def _models(self) -> ModelProvider:
        """The provider; no key is needed if every agent has its own model."""
        uses_names = any(not isinstance(agent.model, Model) for agent in self._graph.agents)
        return self._provider or (provider() if uses_names else OpenAIProvider())


class AnswerSchema(AgentOutputSchemaBase):
    """The schema of a stage's answer, for the SDK."""

    def __init__(self, work: AgentWork) -> None:
        self._work = work

    def is_plain_text(self) -> bool:
        """Return False: the answer is an object."""
        return False

    def name(self) -> str:
        """Return the schema's name."""
        return "answer"

    def json_schema(self) -> dict[str, Any]:
        """Return the schema."""
        return self._work.schema or {}

    def is_strict_json_schema(self) -> bool:
        """Return False: no member is required."""
        return False

    def validate_json(self, json_str: str) -> AgentAnswer:
        """Parse the answer."""
        return self._work.read(json_str)


def _own_output_type(agent: Agent[Any]) -> Any:
    return agent.output_type


def _translate_error(error: Exception, agent: str) -> Exception:
    """Return the error of the stage for an error of the SDK."""
    subject = f"agent {agent!r}"
    for cause in _causes(error):
        if isinstance(cause, ToolDeniedError | PatchError | AgentError):  # the SDK wraps errors of tools and schemas
            return cause
        if isinstance(cause, ToolRaisedError):
            return cause.error
    if (translated := provider_error(error, agent)) is not None:
        return translated
    match error:
        case MaxTurnsExceeded():
            return AgentError(f"{subject} reached the limit of requests to its model", permanent=True)
        case UserError():
            return AgentError(f"{subject} is not set up to run: {error}", permanent=True)
        case OpenAIError() if not isinstance(error, APIError):
            return AgentError(f"{subject} is not set up to run: its provider has no key or no address", permanent=True)
        case ModelBehaviorError() if (finish := finish_error(_finish_reason(error), agent)) is not None:
            return finish
        case Exception() if is_parse_error(error, Model):
            return unreadable_error(error, agent)
        case ModelBehaviorError() if "tool call ID" in error.message:  # the server's fault, and no answer corrects it
            problem = "the server gave two tool calls one id, and the SDK refuses them; use another server or API"
            return AgentError(f"{subject}: {problem}", permanent=True)
        case ModelBehaviorError():
            return PatchError([NO_USABLE_FORM])
        case AgentsException():
            return AgentError(f"{subject} was stopped ({type(error).__name__}{_guardrail_name(error)})", permanent=True)
        case _:
            return error


def _guardrail_name(error: AgentsException) -> str:
    """Return the name of the guardrail that stopped a run, if one did."""
    guardrail = getattr(getattr(error, "guardrail_result", error), "guardrail", None)
    return f": {guardrail.get_name()!r}" if guardrail is not None else ""


def _finish_reason(error: ModelBehaviorError) -> str | None:
    """Return why an answer ended early; the SDK says so only in its message."""
    match = _FINISH_REASON.search(error.message)
    return match[1] if match else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
