"""Agents of the OpenAI Agents SDK as stages: tools checked, handoffs inside a run kept to the contract, all charged."""

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
    from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

from baton.agents.answers import AgentAnswer
from baton.agents.billing import in_time, window_of
from baton.agents.failures import NO_USABLE_FORM, finish_error, is_parse_error, provider_error, unreadable
from baton.agents.openai_agents_run import (
    AgentGraph,
    EventSpeaker,
    GuardedCopies,
    RecordingHooks,
    ToolRaisedError,
    contract_input_filter,
    ended,
)
from baton.agents.port import AgentWork
from baton.contract.records import ToolDeniedError
from baton.core.stages import name_set
from baton.errors import AgentError, PatchError
from baton.wire.money import Price

__all__ = ["OpenAIAgent", "contract_input_filter", "provider"]

_ENDED = re.compile(r"(?:finish_reason=|incomplete_details=IncompleteDetails\(reason=)'(\w+)'")


def provider(
    *, base_url: str | None = None, api_key: str | None = None, api: Literal["responses", "chat"] = "responses"
) -> ModelProvider:
    """Return a provider of models that asks once, and follows no redirect: repeating is Temporal's.

    Args:
        base_url: Where the models are; by default what the environment says, and else OpenAI.
        api_key: The key; by default `OPENAI_API_KEY` of the worker's environment. It is in no message and no record.
        api: OpenAI's own interface, or chat completions, which most other servers speak.

    Raises:
        openai.OpenAIError: The environment has no key.
    """
    direct = DefaultAsyncHttpxClient(follow_redirects=False)  # it would carry the prompt to another address
    client = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0, http_client=direct)
    return OpenAIProvider(openai_client=client, use_responses=api == "responses")


class OpenAIAgent:
    """An agent of the OpenAI Agents SDK behind the port `baton.agents.port.Agent`.

    Args:
        agent: The agent. Its instructions come before those of the stage.
        provider: Whom its model is asked of, where the model is a name; by default OpenAI, with the key that the
            worker's environment has.
        answer: How the model is made to answer in the stage's schema: by the provider's structured output, or by the
            prompt, for servers that have no such thing.
        of_output: Makes the answer of the agent's own output, for an agent whose `output_type` is to be kept.
        price: What the model costs, where the public price list does not know it.
        mcp_tools: The tools of its MCP servers that it may use; others are not offered.
        context: What the agent's own tools find as their context.
        stream: Stream the model's answers to those who follow the run, as `p.stage(…, stream=True)` does.

    Raises:
        ValueError: The agent has an `output_type` and nothing makes an answer of it.
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
        if agent.output_type is not None and of_output is None:
            raise ValueError(
                f"the agent {agent.name!r} has an output_type; say with of_output what becomes of its output, or "
                "leave the type out and it answers with a patch"
            )
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
    def tool_names(self) -> frozenset[str]:
        """The tools that the agent, and those it may hand off to, bring along."""
        return self._graph.tool_names | self._mcp_tools

    @property
    def window(self) -> int | None:
        """How many tokens the window of the agent's model holds, as far as the price list knows."""
        model = self._graph.first.model
        return window_of(model) if isinstance(model, str) else None

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the agent once, with those it hands off to.

        Raises:
            AgentError: The provider refused or failed, a guardrail stopped the run, or a limit was reached.
            PatchError: The model gave no usable answer.
            ToolDeniedError: An agent called a tool that the contract does not allow.
        """
        own = self._of_output is not None
        structured = self._native and not own and work.schema is not None
        turn = partial(work.user_turn, with_schema=not structured and not own)
        output = _own_type if own else AnswerSchema(work) if structured else None
        copies = GuardedCopies(self._graph, work, output, self._mcp_tools)
        record = RecordingHooks(work, self.name, copies, self._price)
        try:
            config = self._config(work, contract_input_filter(work, copies.tools_of, turn))
            async with in_time(work, self.name):
                result = await self._run(
                    await copies.agent(self._graph.first, self._context), work, turn(), record, config
                )
        except Exception as error:
            raise _reported(error, self.name) from None
        finally:
            record.settle()
            await work.context.tools.settle()
        if result.interruptions:
            names = ", ".join(sorted({str(one.name) for one in result.interruptions}))
            message = f"agent {self.name!r} waits for the approval of {names}; ask people with the pipeline's approvals"
            raise AgentError(message, permanent=True)
        if self._of_output is not None:
            return self._of_output(result.final_output)
        answer = result.final_output
        return answer if isinstance(answer, AgentAnswer) else work.read(str(answer))

    async def _run(
        self, agent: Agent[Any], work: AgentWork, turn: str, hooks: RecordingHooks, config: RunConfig
    ) -> RunResult | RunResultStreaming:
        """Run the SDK to its end; where people follow the run, tell them what its events say."""
        terms: Any = {
            "context": self._context,
            "max_turns": None,
            "hooks": hooks,
            "run_config": config,
        }  # the meter keeps the limits
        if not work.context.stream.wanted:
            return await Runner.run(agent, turn, **terms)
        running = Runner.run_streamed(agent, turn, **terms)
        speaker = EventSpeaker(work.context.stream)
        try:
            async for event in running.stream_events():
                speaker.tell(event)
        finally:
            await ended(running)
        return running

    def _config(self, work: AgentWork, passed_on: HandoffInputFilter) -> RunConfig:
        """Return the terms of a run."""
        return RunConfig(
            model_provider=self._models,
            handoff_input_filter=passed_on,
            tracing_disabled=True,
            trace_include_sensitive_data=False,
            tool_not_found_behavior="return_error_to_model",
        )

    @cached_property
    def _models(self) -> ModelProvider:
        """Whom models are asked of; no key is needed where every agent has its model."""
        named = any(not isinstance(agent.model, Model) for agent in self._graph.agents)
        return self._provider or (provider() if named else OpenAIProvider())


class AnswerSchema(AgentOutputSchemaBase):
    """The schema of a stage's answer, for the SDK."""

    def __init__(self, work: AgentWork) -> None:
        self._work = work

    def is_plain_text(self) -> bool:
        """Return whether the answer is a text: it is an object."""
        return False

    def name(self) -> str:
        """Return the schema's name."""
        return "answer"

    def json_schema(self) -> dict[str, Any]:
        """Return the schema."""
        return self._work.schema or {}

    def is_strict_json_schema(self) -> bool:
        """Return whether every member is required: none is."""
        return False

    def validate_json(self, json_str: str) -> AgentAnswer:
        """Return the answer in a text."""
        return self._work.read(json_str)


def _own_type(agent: Agent[Any]) -> Any:
    """Return the type of output that an agent has."""
    return agent.output_type


def _reported(error: Exception, agent: str) -> Exception:
    """Return what the stage raises for what a run of the SDK raised."""
    who = f"agent {agent!r}"
    for one in _chain(error):
        if isinstance(one, ToolDeniedError | PatchError | AgentError):  # the SDK wraps what a tool or a schema raises
            return one
        if isinstance(one, ToolRaisedError):
            return one.error
    if (told := provider_error(error, agent)) is not None:
        return told
    match error:
        case MaxTurnsExceeded():
            return AgentError(f"{who} reached the limit of requests to its model", permanent=True)
        case UserError():
            return AgentError(f"{who} is not set up to run: {error}", permanent=True)
        case OpenAIError() if not isinstance(error, APIError):
            return AgentError(f"{who} is not set up to run: its provider has no key or no address", permanent=True)
        case ModelBehaviorError() if (early := finish_error(_reason(error), agent)) is not None:
            return early
        case Exception() if is_parse_error(error, Model):
            return unreadable(error, agent)
        case ModelBehaviorError():
            return PatchError([NO_USABLE_FORM])
        case AgentsException():
            return AgentError(f"{who} was stopped ({type(error).__name__}{_guard(error)})", permanent=True)
        case _:
            return error


def _guard(error: AgentsException) -> str:
    """Return which guardrail stopped a run, if one did; the name is its author's own."""
    found = getattr(getattr(error, "guardrail_result", error), "guardrail", None)
    return f": {found.get_name()!r}" if found is not None else ""


def _reason(error: ModelBehaviorError) -> str | None:
    """Return why an answer of a model ended, where the SDK says so; it does in its message alone."""
    found = _ENDED.search(error.message)
    return found[1] if found else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it."""
    while error is not None:
        yield error
        error = error.__cause__
