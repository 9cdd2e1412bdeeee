"""Faults of tools and of servers that call them: named, waited for, and not paid for twice."""

import asyncio
import json
from collections.abc import Iterator, Sequence

import httpx2
import pydantic_ai.models
import pytest
from temporalio.exceptions import ApplicationError

from baton import Baton, StageContext
from baton.agents import AgentAnswer, AgentLimits, AgentTool, AgentWork, agent_stage
from baton.contract.activity import MAX_EQUAL_FAILURES, ToolAnswer
from baton.contract.records import ToolDeniedError
from tests.agents.test_adapters import CRM, GOOD, Maker, native, plain, run_agent, sdk
from tests.agents.test_streaming import graph
from tests.chat_server import Reply, chat_server, completion


@pytest.fixture(autouse=True)
def own_server() -> Iterator[None]:
    """Allow requests; they go to this machine."""
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


def calling(ids: Sequence[str]) -> Reply:
    """Return a reply with a call of the tool for each id."""
    body = completion(calls=[("crm_lookup", {"customer": f"c-{number}"}) for number, _ in enumerate(ids)])
    for call, call_id in zip(body["choices"][0]["message"]["tool_calls"], ids, strict=True):
        call["id"] = call_id
    return Reply(body)


@pytest.mark.parametrize("agent", [plain, native, graph])
@pytest.mark.parametrize("replies", [[["x", "x"]], [["x"], ["x"]]], ids=["in one answer", "in two answers"])
async def test_repeated_ids_of_tool_calls_are_made_unique(agent: Maker, replies: list[list[str]]) -> None:
    """Some servers number the calls of each answer from the start; each result reaches its own call."""
    with chat_server(*map(calling, replies), Reply(completion(GOOD))) as server:
        await run_agent(agent(server), *([] if agent is graph else [CRM]))
        sent = server.asked[-1].body["messages"]

    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == ["x", "x_2"]
    called = [call["id"] for message in sent for call in message.get("tool_calls") or ()]
    assert called == ["x", "x_2"]


async def test_repeated_ids_are_not_tried_again_where_the_framework_refuses_them() -> None:
    """The OpenAI Agents SDK refuses them; another request would cost as much and fail as well."""
    fault = "two tool calls one id"
    with chat_server(calling(["x", "x"])) as server, pytest.raises(ApplicationError, match=fault) as failed:
        await run_agent(sdk(server), CRM)

    assert failed.value.non_retryable


@pytest.mark.parametrize("agent", [plain, native, sdk])
async def test_equal_failing_calls_are_denied(agent: Maker) -> None:
    """A model that repeats a call that cannot succeed is stopped."""
    calls: list[str] = []

    def lookup(customer: str) -> ToolAnswer:
        calls.append(customer)
        return ToolAnswer("unknown", f"{customer} is unknown", success=False)

    tool = AgentTool.of(lookup, name="crm.lookup")
    replies = [calling([f"call_{number}"]) for number in range(MAX_EQUAL_FAILURES + 1)]
    with chat_server(*replies) as server, pytest.raises(ToolDeniedError, match="same arguments failed"):
        await run_agent(agent(server), tool)

    assert calls == ["c-0"] * MAX_EQUAL_FAILURES


@pytest.mark.parametrize("agent", [plain, native, sdk])
async def test_a_hanging_tool_is_named(agent: Maker) -> None:
    """The agent's time ends while the tool runs."""

    async def lookup(customer: str) -> str:
        await asyncio.Event().wait()
        return customer

    tool = AgentTool.of(lookup, name="crm.lookup")
    with chat_server(calling(["x"])) as server:
        stage = agent_stage(agent(server), tools=[tool], limits=AgentLimits(seconds=1.0))
        with pytest.raises(ApplicationError, match=r"did not finish within 1 s; it waited for 'crm\.lookup'"):
            await stage(StageContext.for_test(Baton(goal="Add login")))


async def test_a_server_of_tools_that_is_away_is_waited_for_like_a_model() -> None:
    """Before the first request nothing was paid, so the agent may be run again for half an hour."""

    class WithTools:
        name = "support"

        async def run(self, work: AgentWork) -> AgentAnswer:
            async with httpx2.AsyncClient() as client, asyncio.TaskGroup() as tasks:
                tasks.create_task(client.get("http://127.0.0.1:1/mcp"))
            return work.read(json.loads(GOOD))

    with pytest.raises(ApplicationError, match="a server of its tools could not be reached") as failed:
        await run_agent(WithTools())

    assert not failed.value.non_retryable
    assert failed.value.next_retry_delay is not None
