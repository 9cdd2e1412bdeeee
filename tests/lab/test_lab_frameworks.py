"""Agents of frameworks in the lab: their own tools are held back, and they take another model."""

from typing import Any

import pytest
from agents import Agent as OpenAI
from agents import WebSearchTool, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from temporalio.client import Client

from baton.agents import AnswerForm, LangGraphAgent, OpenAIAgent, PydanticAgent, agent_stage, provider
from baton.lab import BASELINE, Cohort, LabOptions, Lane, Overrides, RecordedCall, run_lab
from baton.testing import pipeline_worker
from tests.chat_server import chat_server, completion
from tests.lab.refunds import EFFECTS
from tests.lab.test_lab_effects import as_if_of


def wire_money(amount: int) -> str:
    """Wire money."""
    EFFECTS.append(f"wired {amount}")
    return "wired"


async def graph(state: dict[str, Any]) -> dict[str, Any]:
    EFFECTS.append("a node ran")
    return {"current_state": ["wired"]}


def pydantic_agent() -> PydanticAgent:
    model = TestModel(call_tools=["wire_money"], custom_output_text="Done.")
    return PydanticAgent(Agent(model, name="framework", tools=[wire_money]))


def openai_agent() -> OpenAIAgent:
    call = [function_call("wire_money", {"amount": 0}, call_id="call-1")]
    model = ScriptedModel([call, call, [assistant_message("Done.")]])  # the first call is refused, and ends its run
    return OpenAIAgent(OpenAI("framework", model=model, tools=[function_tool(wire_money)]))


async def run_agent(client: Client, cohort: Cohort, agent: Any, *lanes: Lane, recorded: bool = False) -> Any:
    """Return what comes of a case of a framework's agent, by lane."""
    stage = agent_stage(agent, name="framework", answers=AnswerForm.TEXT, notes=False)
    case = as_if_of("framework", cohort.case("refund-1"))
    async with pipeline_worker(client, [], [stage]) as worker:
        if recorded:  # the call is asked about first, which says how its arguments are recorded
            [refused] = (await run_agent_once(client, case, worker.task_queue)).outcomes(case.id, BASELINE)
            call = refused.calls[0]
            case = case.model_copy(
                update={"tool_calls": [RecordedCall(tool=call.tool, arguments=call.arguments, result="wired")]}
            )
        return await run_agent_once(client, case, worker.task_queue, *lanes)


async def run_agent_once(client: Client, case: Any, queue: str, *lanes: Lane) -> Any:
    options = LabOptions(parallel=1, task_queue=queue)
    return await run_lab(client, Cohort(name="one", cases=[case]), lanes, options)


@pytest.mark.parametrize("make", [pydantic_agent, openai_agent])
async def test_a_frameworks_own_tool_is_refused_or_answered_from_the_record(
    sealed: Client, cohort: Cohort, make: Any
) -> None:
    EFFECTS.clear()
    [refused] = (await run_agent(sealed, cohort, make())).outcomes("refund-1", BASELINE)
    assert "'wire_money' was called" in refused.failure
    [answered] = (await run_agent(sealed, cohort, make(), recorded=True)).outcomes("refund-1", BASELINE)
    assert (answered.output, [call.how for call in answered.calls]) == ("Done.", ["recorded"])
    assert EFFECTS == []


async def test_a_graph_runs_only_by_name(sealed: Client, cohort: Cohort) -> None:
    EFFECTS.clear()
    [refused] = (await run_agent(sealed, cohort, LangGraphAgent(graph))).outcomes("refund-1", BASELINE)
    assert "--allow" in refused.failure
    assert EFFECTS == []


async def test_the_agents_sdk_takes_another_model_and_offers_no_hosted_tool(sealed: Client, cohort: Cohort) -> None:
    small = Lane(name="small", overrides=Overrides(model="small"))
    with chat_server(completion("Done."), completion("Done.")) as server:
        models = provider(base_url=server.url.removesuffix("/chat/completions"), api_key="key-1", api="chat")
        agent = OpenAIAgent(OpenAI("framework", model="large", tools=[WebSearchTool()]), provider=models)
        results = await run_agent(sealed, cohort, agent, small)
    assert [request.body["model"] for request in server.asked] == ["large", "small"]
    assert not any(request.body.get("tools") for request in server.asked)
    assert [outcome.output for lane in (BASELINE, "small") for outcome in results.outcomes("refund-1", lane)] == [
        "Done.",
        "Done.",
    ]
