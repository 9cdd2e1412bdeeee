"""The cost of a run for each form in which providers report tokens."""

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic_ai.models
import pytest
from agents import Agent as SdkAgent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio.exceptions import ApplicationError

from baton import Spend, Stage
from baton.agents import AgentLimits, AgentTool, Usage, agent_stage, billing
from baton.agents.billing import compute_cost
from baton.agents.chat_completions import chat_agent
from baton.agents.langgraph import LangGraphAgent
from baton.agents.openai_agents import OpenAIAgent, provider
from baton.agents.pydantic_ai import PydanticAgent
from baton.wire.money import Price
from tests.agents.material import ANSWER, PATCH, context, lookup
from tests.chat_server import ChatServer, Reply, chat_server, chunks, completion

GOOD = '{"baton_patch": {"decision_log": ["Keep sessions out, because they need a store"]}}'
PRICE = Price(input=10, output=100, cached_input=1, cache_write=20, reasoning=200)
Made = Callable[..., Stage[Any, Any]]


@pytest.fixture(autouse=True)
def own_server() -> Iterator[None]:
    """Allow requests to this machine."""
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


def by_chat(server: ChatServer, *, answer: Any = "native", stream: bool = False, **terms: Any) -> Stage[Any, Any]:
    """Return a stage of `chat_agent`."""
    return agent_stage(
        replace(chat_agent("plan", server.url, "mine-1", price=PRICE, answer=answer), stream=stream), **terms
    )


def by_pydantic_ai(
    server: ChatServer, *, answer: Any = "native", stream: bool = False, **terms: Any
) -> Stage[Any, Any]:
    """Return a stage of a Pydantic AI agent."""
    model = OpenAIChatModel("mine-1", provider=OpenAIProvider(base_url=server.base, api_key="sk-house-1"))
    agent = PydanticAgent(Agent(model, name="plan"), answer=answer, price=PRICE, stream=stream)
    return agent_stage(agent, **terms)


def by_openai_agents(server: ChatServer, **terms: Any) -> Stage[Any, Any]:
    """Return a stage of an agent of the OpenAI Agents SDK."""
    models = provider(base_url=server.base, api_key="sk-house-1", api="chat")
    return agent_stage(OpenAIAgent(SdkAgent("plan", model="mine-1"), provider=models, price=PRICE), **terms)


CACHED = {
    "prompt_tokens": 1_000,
    "completion_tokens": 100,
    "total_tokens": 1_100,
    "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 300},
}
BESIDE = {
    "prompt_tokens": 1_000,
    "completion_tokens": 60,
    "total_tokens": 1_100,
    "completion_tokens_details": {"reasoning_tokens": 40},
}
WIRE: dict[str, tuple[Mapping[str, Any], int]] = {
    "plain": ({"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}, 20_000),
    "cached": (CACHED, 1_000 + 600 + 6_000 + 10_000),
    "reasoning beside the completion": (BESIDE, 10_000 + 6_000 + 8_000),
    "floats": ({"prompt_tokens": 1000.0, "completion_tokens": 100.0, "total_tokens": 1100.0}, 20_000),
}


class TestWire:
    """Every adapter, against a server with the provider's wire format."""

    @pytest.mark.parametrize("make_model", [by_chat, by_pydantic_ai, by_openai_agents])
    async def test_every_form_is_charged_in_full_and_once(self, make_model: Made) -> None:
        """Cached tokens have their price, and reasoning is charged wherever the server reports it."""
        charged = {}
        for name, (usage, _) in WIRE.items():
            with chat_server({**completion(GOOD, model="mine-1"), "usage": usage}) as server:
                stage_context = context()
                await make_model(server)(stage_context)
                charged[name] = (
                    stage_context.charged.prompt_tokens,
                    stage_context.charged.completion_tokens,
                    stage_context.charged.micro_usd,
                )

        assert charged == {name: (1_000, 100, cost) for name, (_, cost) in WIRE.items()}

    @pytest.mark.parametrize("make_model", [by_chat, by_pydantic_ai])
    async def test_a_stream_that_restates_its_usage_is_charged_once(self, make_model: Made) -> None:
        """In each chunk, as vLLM does, or twice at the end."""
        events = chunks("final_result", ANSWER, read=1_000, written=100)
        events = [
            {**event, "usage": {"prompt_tokens": 1000.0, "completion_tokens": min(100, index * 25), "total_tokens": 0}}
            for index, event in enumerate([*events, events[-1]])
        ]
        with chat_server(Reply(events=events)) as server:
            stage_context = context()
            await make_model(server, stream=True, answer="tool")(stage_context)

        assert stage_context.charged == Spend(micro_usd=20_000, prompt_tokens=1_000, completion_tokens=100)

    async def test_a_server_that_does_not_count_is_estimated(self) -> None:
        """Every request is charged tokens."""
        with chat_server(completion(GOOD) | {"usage": None}) as server:
            stage_context = context()
            await by_chat(server)(stage_context)

        assert 100 < stage_context.charged.prompt_tokens < 2_000
        assert 10 < stage_context.charged.completion_tokens < 200

    async def test_a_given_price_counts_before_the_list(self) -> None:
        """Also for a model in the price list."""
        with chat_server(completion(GOOD, model="gpt-4o")) as server:
            stage_context = context()
            await agent_stage(chat_agent("plan", server.url, "gpt-4o", price=PRICE))(stage_context)

        assert stage_context.charged.micro_usd == 20_000


class _Streaming(GenericFakeChatModel):
    """A model whose stream restates the usage in each chunk."""

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        for written in (25, 50, 100, 100):
            usage: Any = {"input_tokens": 1_000, "output_tokens": written, "total_tokens": 1_000 + written}
            yield ChatGenerationChunk(message=AIMessageChunk(content="x", usage_metadata=usage))


class TestLangChain:
    """The reports of its models."""

    async def test_a_stream_that_restates_its_usage_is_charged_once(self) -> None:
        """LangChain itself would add it up."""
        model = _Streaming(messages=iter(()))

        async def plan(state: dict[str, Any]) -> dict[str, Any]:
            chunks = [chunk async for chunk in model.astream("Plan")]
            return {"current_state": [f"{len(chunks)} chunks"]}

        stage_context = context()
        await agent_stage(LangGraphAgent(plan, price=PRICE))(stage_context)

        assert stage_context.charged == Spend(micro_usd=20_000, prompt_tokens=1_000, completion_tokens=100)

    async def test_cached_input_is_charged_at_its_price(self) -> None:
        """Its own form of usage has the details."""
        usage: Any = {
            "input_tokens": 1_000,
            "output_tokens": 100,
            "total_tokens": 1_100,
            "input_token_details": {"cache_read": 600, "cache_creation": 300},
        }
        model = GenericFakeChatModel(messages=iter([AIMessage("done", usage_metadata=usage)]))

        async def plan(state: dict[str, Any]) -> dict[str, Any]:
            return {"current_state": [str((await model.ainvoke("Plan")).content)]}

        stage_context = context()
        await agent_stage(LangGraphAgent(plan, price=PRICE))(stage_context)

        assert stage_context.charged.micro_usd == 1_000 + 600 + 6_000 + 10_000


class TestLimits:
    """The limits of a run."""

    @pytest.mark.parametrize("make_model", [by_chat, by_pydantic_ai, by_openai_agents])
    async def test_an_answer_that_is_paid_is_taken(self, make_model: Made) -> None:
        """It is charged in full even if it exceeds the stage's reservation."""
        with chat_server(completion(GOOD, model="mine-1")) as server:
            stage_context = context()
            result = await make_model(server, limits=AgentLimits(micro_usd=1, tokens=1))(stage_context)

        assert result.baton_patch == PATCH
        assert stage_context.charged.micro_usd == 20_000

    @pytest.mark.parametrize(
        ("limits", "request_count"),
        [
            pytest.param(AgentLimits(requests=2), 2, id="requests"),
            pytest.param(AgentLimits(tokens=2_000), 2, id="tokens"),
            pytest.param(AgentLimits(micro_usd=30_000), 2, id="money"),
            pytest.param(AgentLimits(micro_usd=0), 1, id="no money"),
        ],
    )
    @pytest.mark.parametrize("make_model", [by_chat, by_pydantic_ai, by_openai_agents])
    async def test_a_limit_refuses_the_next_request(
        self, make_model: Made, limits: AgentLimits, request_count: int
    ) -> None:
        """Also tools before it do not run, because their results would be wasted."""
        call = completion(calls=[("crm_lookup", {"customer": "c-1"})], model="mine-1")
        with chat_server(call, call, call) as server:
            stage = make_model(server, tools=[AgentTool.of(lookup, name="crm.lookup")], limits=limits)
            with pytest.raises(ApplicationError, match="reached a limit of its run") as raised:
                await stage(context())
            assert len(server.asked) == request_count

        assert raised.value.non_retryable


class TestCostOf:
    """`compute_cost`."""

    def test_a_known_model_has_its_price(self) -> None:
        """By the price list, without a network; cached tokens are cheaper."""
        million = 1_000_000
        plain, cached = (compute_cost("gpt-4o", Usage(input=million, cached_input=part)) for part in (0, million))

        assert plain == 2_500_000
        assert cached == 1_250_000
        assert compute_cost("gpt-4o", Usage(input=1_000), url="https://models.example/v1") == 2_500

    def test_an_unknown_model_has_no_window(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Unknown is not free; it is logged once."""
        monkeypatch.setitem(sys.modules, "genai_prices", None)
        monkeypatch.setattr(billing, "_price_list", billing._price_list.__wrapped__)

        assert [compute_cost("model-of-nobody", Usage(input=1_000)) for _ in range(2)] == [None, None]
        assert len(caplog.records) == 1

    @pytest.mark.parametrize("extra", ["agents", "openai-agents", "langgraph"])
    def test_every_adapter_that_charges_brings_the_price_list(self, extra: str) -> None:
        """Known models have prices with each extra installed separately."""
        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

        assert any(needed.startswith("genai-prices") for needed in project["optional-dependencies"][extra])
