"""What a run of a Pydantic AI agent costs, and how far it may go, where the framework has no price for it."""

from decimal import Decimal

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio.exceptions import ApplicationError

from baton.agents.port import AgentLimits, AgentTool, agent_stage
from baton.agents.pydantic_ai import PydanticAgent
from baton.compression.summariser import Price
from baton.core.history import Spend
from tests.chat_server import chat_server, completion
from tests.unit.integrations.material import ANSWER, context, lookup


async def test_a_price_that_is_given_counts_towards_the_limit() -> None:
    """The framework keeps a limit of money by its own list of prices alone, which may not know the model."""
    price, of = Price(prompt=Decimal(1), completion=Decimal(1)), context()
    call = completion(calls=[("crm_lookup", {"customer": "c-1"})], model="mine-1")
    with chat_server(call, call) as server:
        asked = OpenAIChatModel("mine-1", provider=OpenAIProvider(base_url=server.base, api_key="sk-house-1"))
        agent = PydanticAgent(Agent(asked, name="plan"), price=price)
        stage = agent_stage(agent, tools=[AgentTool.of(lookup, name="crm.lookup")], limits=AgentLimits(micro_usd=2_000))
        with pytest.raises(ApplicationError, match="the run cost 2200 µUSD; it may cost 2000") as raised:
            await stage(of)

    assert (raised.value.non_retryable, of.charged.micro_usd, len(server.asked)) == (True, 2_200, 2)


async def test_more_tokens_of_a_cache_than_were_read_cost_money() -> None:
    """Some endpoints do not count what they had in a cache among what was read, and the framework prices none of it."""
    reply = completion(calls=[("final_result", ANSWER)], read=1_000, written=100)
    reply["usage"]["prompt_tokens_details"] = {"cached_tokens": 5_000}
    with chat_server(reply) as server:
        asked = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=server.base, api_key="sk-house-1"))
        await agent_stage(PydanticAgent(Agent(asked, name="plan")))(of := context())

    assert of.charged == Spend(micro_usd=2_250, prompt_tokens=1_000, completion_tokens=100)
