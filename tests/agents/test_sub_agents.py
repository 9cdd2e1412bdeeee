"""Agents that act in the stage of another: their tools are guarded, their requests charged, and all is on record."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent as SdkAgent
from agents import Usage, WebSearchTool, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_function_web_search import ActionSearch
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker
from typer.testing import CliRunner

from baton import MemoryArtifactStore, StageContext, WorkerParts
from baton.agents import AgentLimits, AgentTool, OpenAIAgent, PydanticAgent, agent_stage, agent_tool
from baton.cli.app import make_app
from baton.client import read_run
from baton.contract.records import EventType, ToolDeniedError
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from baton.wire.json_values import digest
from tests.agents.agent_pipelines import Asks
from tests.agents.material import BATON, context, contract, node_stage
from tests.agents.test_langgraph import USAGE, crm_lookup, model
from tests.collector import attributes, collecting
from tests.support import start
from tests.telemetry.test_tracing import recording, told

PATCH = '{"baton_patch": {"decision_log": ["Offer 10 %, because they pay late"]}}'
SENT: list[str] = []
READ: list[str] = []
"""What the clerk was given to read."""
_ids = itertools.count()


def lookup(customer: str) -> str:
    """Find what a customer pays."""
    return f"{customer} pays 20 USD"


def send(text: str) -> str:
    """Send a mail, which no test allows."""
    SENT.append(text)
    return "sent"


def pydantic_agent(name: str, *answers: Any, tools: Any = ()) -> PydanticAgent:
    """Return an agent of Pydantic AI that gives these answers, each of 100 and 10 tokens."""
    left = list(answers)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        READ.extend(str(getattr(part, "content", "")) for part in messages[-1].parts)
        part = left.pop(0)
        return ModelResponse(
            [TextPart(part) if isinstance(part, str) else ToolCallPart(*part)],
            usage=RequestUsage(input_tokens=100, output_tokens=10),
        )

    return PydanticAgent(Agent(FunctionModel(respond), name=name, tools=tools), answer="prompted")


def sdk_agent(name: str, *answers: Any, tools: Any = ()) -> OpenAIAgent:
    """Return an agent of the OpenAI Agents SDK that gives these answers, each of 100 and 10 tokens."""
    return OpenAIAgent(SdkAgent(name, model=sdk_model(*answers), tools=[*map(function_tool, tools)]), answer="prompted")


def sdk_model(*answers: Any) -> ScriptedModel:
    usage = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
    steps = [
        [assistant_message(answer)]
        if isinstance(answer, str)
        else [function_call(*answer, call_id=f"call-{next(_ids)}")]
        for answer in answers
    ]
    return ScriptedModel(steps, default_usage=usage)


def happened(stage_context: StageContext[Any]) -> list[tuple[str, str | None, str | None]]:
    """Return who did what with which tool."""
    kinds = (EventType.TOOL_CALL, EventType.TOOL_RESULT)
    events = [event for event in stage_context.session.events if event.type in kinds]
    return [(event.type.value.removeprefix("tool_"), event.tool_name, event.agent) for event in events]


ASKED = ("clerk", {"task": "What does c-1 pay?"})
MAKERS = pytest.mark.parametrize("clerk_of", [pydantic_agent, sdk_agent])
LEADS = pytest.mark.parametrize("lead_of", [pydantic_agent, sdk_agent])


@LEADS
@MAKERS
class TestAgentTool:
    """`agent_tool`, in each framework, of an agent of each."""

    async def test_it_is_charged_and_recorded_under_its_name(self, lead_of: Any, clerk_of: Any) -> None:
        """Its answer is a model's, and so no certain fact; the stage declares its tools."""
        clerk = clerk_of("clerk", ("lookup", {"customer": "c-1"}), "They pay 20 USD.", tools=[lookup])
        stage = agent_stage(lead_of("lead", ASKED, PATCH), tools=[agent_tool(clerk, "Knows customers.")], name="offer")
        given = context(contract(["clerk", "lookup"]), stage="offer")
        result = await stage(given)

        assert stage.spec.tools == {"clerk", "lookup"}
        assert result.baton_patch == {"decision_log": ["Offer 10 %, because they pay late"]}
        assert happened(given) == [
            ("call", "clerk", "offer"),
            ("call", "lookup", "clerk"),
            ("result", "lookup", "clerk"),
            ("result", "clerk", "offer"),
        ]
        assert given.charged.prompt_tokens == 400
        assert [event.by_model for event in given.session.events if event.tool_name == "clerk"] == [False, True]
        assert "They pay 20 USD." in [event.content for event in given.session.events]

    async def test_it_may_not_call_what_the_contract_forbids(self, lead_of: Any, clerk_of: Any) -> None:
        """Not even if its model was never offered it; the call is on record as its own."""
        SENT.clear()
        clerk = clerk_of("clerk", ("send", {"text": "Pay!"}), "Sent.", tools=[send])
        stage = agent_stage(lead_of("lead", ASKED, PATCH), tools=[agent_tool(clerk, "Knows customers.")])
        given = context(contract(["clerk"], ["send"]))
        with pytest.raises(ToolDeniedError, match="'send'"):
            await stage(given)

        assert SENT == []
        assert ("result", "send", "clerk") in happened(given)

    async def test_the_limits_bound_all_together(self, lead_of: Any, clerk_of: Any) -> None:
        """Three requests are two of the lead and the clerk's first."""
        clerk = clerk_of("clerk", ("lookup", {"customer": "c-1"}), "They pay 20 USD.", tools=[lookup])
        tools = [agent_tool(clerk, "Knows customers.")]
        stage = agent_stage(lead_of("lead", ASKED, PATCH), tools=tools, limits=AgentLimits(requests=2))
        with pytest.raises(ApplicationError, match="reached a limit of its run: 2 requests"):
            await stage(context(contract(["clerk", "lookup"])))


async def test_it_reads_its_task_and_the_rules_and_not_the_conversation() -> None:
    """A long task is whole, and what the tools of the stage found before is a fact."""
    READ.clear()
    task = "What does c-1 pay? " * 40 + "In euros."
    clerk = pydantic_agent("clerk", "They pay 20 EUR.")
    lead = sdk_agent("lead", ("lookup", {"customer": "c-1"}), ("clerk", {"task": task}), PATCH, tools=[lookup])
    stage = agent_stage(lead, tools=[agent_tool(clerk, "Knows customers.", instructions="Be brief.")])
    baton = BATON.model_copy(update={"constraints": ["No discounts over 10 %"], "decision_log": ["Use JWT"]})
    await stage(StageContext.for_test(baton, contract=contract(["clerk", "lookup"])))

    [prompt] = READ
    assert all(text in prompt for text in ("In euros.", "No discounts over 10 %", "c-1 pays 20 USD"))
    assert "Use JWT" not in prompt


class TestPydanticAgent:
    """An agent that a tool's own function runs."""

    @pytest.mark.parametrize("passes_usage_on", [False, True])
    async def test_is_charged_once_and_recorded_under_the_tools_name(self, passes_usage_on: bool) -> None:
        """Whether or not it counts in the same place as its caller."""
        clerk = pydantic_agent("clerk", ("lookup", {"customer": "c-1"}), "They pay 20 USD.", tools=[lookup]).agent
        lead = pydantic_agent("lead", ("ask", {"question": "What?"}), PATCH)

        @lead.agent.tool
        async def ask(ctx: RunContext[Any], question: str) -> str:
            """Ask the clerk."""
            return str((await clerk.run(question, usage=ctx.usage if passes_usage_on else None)).output)

        given = context(contract(["ask", "lookup"]), stage="offer")
        await agent_stage(lead, notes=False)(given)

        assert given.charged.prompt_tokens == 400
        assert happened(given) == [
            ("call", "ask", "offer"),
            ("call", "lookup", "ask"),
            ("result", "lookup", "ask"),
            ("result", "ask", "offer"),
        ]
        assert given.session.events[-1].by_model

    async def test_may_run_in_a_tool_of_the_stage(self) -> None:
        """If the contract allows all its tools."""
        clerk = pydantic_agent("clerk", ("lookup", {"customer": "c-1"}), "They pay 20 USD.", tools=[lookup]).agent

        async def ask(question: str) -> str:
            return str((await clerk.run(question)).output)

        given = context(contract(["ask", "lookup"]), stage="offer")
        lead = pydantic_agent("lead", ("ask", {"question": "What?"}), PATCH)
        await agent_stage(lead, tools=[AgentTool.of(ask, name="ask")])(given)

        assert ("result", "lookup", "ask") in happened(given)
        assert given.charged.prompt_tokens == 400

    async def test_is_refused_if_its_own_tools_run_others(self) -> None:
        """What a third agent calls nobody would check or charge."""
        SENT.clear()
        mailer = pydantic_agent("mailer", ("send", {"text": "Pay!"}), "Sent.", tools=[send]).agent

        async def help_out(task: str) -> str:
            """Ask the mailer."""
            return str((await mailer.run(task)).output)

        clerk = pydantic_agent("clerk", ("help_out", {"task": "?"}), "Sent.", tools=[help_out]).agent
        lead = pydantic_agent("lead", ("ask", {"question": "What?"}), PATCH)

        @lead.agent.tool_plain
        async def ask(question: str) -> str:
            """Ask the clerk."""
            return str((await clerk.run(question)).output)

        with pytest.raises(ApplicationError, match="'ask' runs the agent 'clerk'"):
            await agent_stage(lead)(context(contract(["ask", "help_out"], ["send"])))
        assert SENT == []

    async def test_is_refused_with_a_tool_that_the_contract_withholds(self) -> None:
        """Before anything runs."""
        clerk = pydantic_agent("clerk", "Sent.", tools=[send]).agent
        lead = pydantic_agent("lead", ("ask", {"question": "What?"}), PATCH)

        @lead.agent.tool_plain
        async def ask(question: str) -> str:
            """Ask the clerk."""
            return str((await clerk.run(question)).output)

        with pytest.raises(ApplicationError, match="'ask' runs the agent 'clerk'"):
            await agent_stage(lead)(context(contract(["ask"], ["send"])))


async def test_a_handoff_of_the_sdk_is_an_event_of_the_session() -> None:
    """Who called which tool is told before it and after it."""
    billing = SdkAgent(
        "billing", model=sdk_model(("lookup", {"customer": "c-1"}), PATCH), tools=[function_tool(lookup)]
    )
    triage = SdkAgent("triage", model=sdk_model(("transfer_to_billing", {})), handoffs=[billing])
    given = context(contract(["lookup"]), stage="support")
    await agent_stage(OpenAIAgent(triage, answer="prompted"), notes=False)(given)

    assert happened(given) == [
        ("call", "transfer_to_billing", "support"),
        ("call", "lookup", "billing"),
        ("result", "lookup", "billing"),
    ]
    assert given.charged.prompt_tokens == 300


async def test_a_tool_that_openai_runs_is_on_record() -> None:
    """With the arguments that the model gave it."""
    search = ResponseFunctionWebSearch(
        id="ws-1", status="completed", type="web_search_call", action=ActionSearch(type="search", query="batons")
    )
    agent = SdkAgent("scout", model=ScriptedModel([[search, assistant_message(PATCH)]]), tools=[WebSearchTool()])
    given = context(contract(["web_search"]))
    await agent_stage(OpenAIAgent(agent, answer="prompted"), notes=False)(given)

    [call] = [event for event in given.session.events if event.type is EventType.TOOL_CALL]
    assert call.tool_name == "web_search"
    assert "batons" in call.content


async def test_a_subgraph_acts_under_the_name_of_its_node() -> None:
    """Its tools are guarded and recorded wherever they are called."""

    async def work(state: MessagesState) -> dict[str, Any]:
        await crm_lookup.ainvoke({"customer": "c-1"})
        return {"messages": [await model(AIMessage("20 USD", usage_metadata=USAGE)).ainvoke("What?")]}

    inner = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    outer = StateGraph(MessagesState).add_node("clerk", inner).add_edge(START, "clerk").compile()
    given = context(contract(["crm_lookup"]), stage="offer")
    await node_stage(outer, into={"messages": "messages"}, out={}, uses=["crm_lookup"])(given)

    assert happened(given) == [("call", "crm_lookup", "clerk"), ("result", "crm_lookup", "clerk")]
    assert given.charged.prompt_tokens == 100


class TestToolCallHistory:
    """What a handoff says of the tools that were called before it."""

    def stages(self) -> dict[str, Any]:
        """Return a stage with the same tool for each adapter."""
        call = ("lookup", {"customer": "c-1"})
        tool = AgentTool.of(lookup, name="lookup")
        return {
            "pydantic": agent_stage(pydantic_agent("a", call, PATCH), tools=[tool]),
            "pydantic's own": agent_stage(pydantic_agent("a", call, PATCH, tools=[lookup])),
            "sdk": agent_stage(sdk_agent("a", call, PATCH), tools=[tool]),
            "sdk's own": agent_stage(sdk_agent("a", call, PATCH, tools=[lookup])),
        }

    async def test_every_adapter_names_the_arguments_by_the_same_digest(self) -> None:
        """A call has the digest of its arguments as canonical JSON (S3-5.2-w)."""
        for name, stage in self.stages().items():
            given = context(contract(["lookup"]))
            await stage(given)
            events, _ = await given.session.close(given.parts.artifacts)
            [call] = [event for event in events if event.type is EventType.TOOL_CALL]
            assert call.ref == digest({"customer": "c-1"}), name

    async def test_a_graphs_and_a_programs_too(self) -> None:
        """A tool of LangChain, and a function that the stage's own code calls by position."""
        given = context(contract(["crm_lookup", "lookup"]))

        async def look(state: Any) -> dict[str, Any]:
            await crm_lookup.ainvoke({"customer": "c-1"})
            return {}

        await node_stage(look, uses=["crm_lookup"])(given)
        await given.tools.call("lookup", lookup, "c-1")
        events, _ = await given.session.close(given.parts.artifacts)
        calls = [event.ref for event in events if event.type is EventType.TOOL_CALL]
        assert calls == [digest({"customer": "c-1"})] * 2


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    """Return a worker with a stage whose agent asks another."""
    plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards=safeguards)
    client = await Client.connect(server.address, plugins=[plugin])
    clerk = pydantic_agent("clerk", ("lookup", {"customer": "c-1"}), "They pay 20 USD.", tools=[lookup])
    lead = sdk_agent("lead", ASKED, PATCH)
    stages = [
        agent_stage(lead, tools=[agent_tool(clerk, "Knows customers.")], name="offer", turns=True),
        agent_stage(pydantic_agent("code", PATCH)),
    ]
    async with pipeline_worker(client, [Asks], stages) as worker:
        yield worker


async def test_history_and_the_next_handoff_say_who_did_what(
    worker: Worker, server: DevServer, safeguards: Safeguards
) -> None:
    """The cost of the stage has that of both agents."""
    handle = await start(worker, Asks.run)
    task_id = (await handle.result()).task_id
    run = await read_run(worker.client, handle.id)
    entry = run.state.outcomes[0].entries[0]
    command = ["history", handle.id, "--address", server.address]
    shown = await asyncio.to_thread(CliRunner().invoke, make_app(), command)
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        last = [record.body for record in (await ledger.trace(task_id)).handoffs][-1]

    assert entry.agents == {"clerk": ["lookup"]}
    assert entry.spend.prompt_tokens == 400
    assert "the agent clerk acted in it; it called lookup" in " ".join(shown.output.split())
    turns = last["conversationHistoryVerbatim"]
    assert {"role": "clerk: lookup", "content": "c-1 pays 20 USD"} in turns
    calls = [(call["tool"], call["inputHash"], call["outputTokens"] > 0) for call in last["toolCallHistory"]]
    assert ("lookup", digest({"customer": "c-1"}), True) in calls


async def test_an_agent_as_a_tool_is_a_transfer_that_returns() -> None:
    """Its tool's span names the agent, by the GenAI conventions."""
    clerk = pydantic_agent("clerk", "They pay 20 USD.")
    stage = agent_stage(pydantic_agent("lead", ASKED, PATCH), tools=[agent_tool(clerk, "Knows.")], name="offer")
    with collecting() as collector:
        with recording(collector) as tracing, tracing.stage("offer", told(), {}, 1):
            await stage(context(contract(["clerk"]), stage="offer"))
        found = attributes(collector.span("execute_tool clerk").attributes)

    assert (found["gen_ai.transfer.mode"], found["gen_ai.transfer.target.name"]) == ("return_to_caller", "clerk")
