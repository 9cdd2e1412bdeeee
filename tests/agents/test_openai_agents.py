"""Agents of the OpenAI Agents SDK as stages: scripted models, and a server that speaks the providers' wire format."""

import itertools
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, GuardrailFunctionOutput, Usage, function_tool, handoff, output_guardrail
from agents.mcp import MCPServerStdio
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from pydantic import BaseModel
from temporalio.exceptions import ApplicationError

from baton import Baton, StageContext, StageResult
from baton.agents import AgentAnswer, agent_stage
from baton.agents.openai_agents import OpenAIAgent
from baton.contract.records import Confidence, EventType, Fact, HandoffContract, SourceProvenance, ToolDeniedError
from baton.errors import ConfigurationError

BATON = Baton(goal="Answer the customer", decision_log=["Be brief"])
ANSWER = '{"baton_patch": {"decision_log": ["Offer 10 %"]}}'
PATCH = {"decision_log": ["Offer 10 %"]}
_numbers = itertools.count()
MCP_SERVER = """
from mcp.server import MCPServer

server = MCPServer("prices", log_level="ERROR")


@server.tool()
def price_of(product: str) -> str:
    return f"{product} is 3 EUR"


@server.tool()
def drop_prices() -> str:
    raise AssertionError("it is never run")


@server.tool()
def not_named() -> str:
    raise AssertionError("it is never run")


server.run()
"""
USAGE = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)


def contract(*tools: str, forbidden: tuple[str, ...] = ()) -> HandoffContract:
    """Return a contract that allows tools, with one fact."""
    at = datetime.now(UTC)
    source = SourceProvenance(source="crm.lookup", timestamp=at, method="tool_call:crm.lookup")
    return HandoffContract(
        handoff_id="h-1",
        receiving_agent="support",
        task="Answer the mail",
        facts=[Fact(claim="They pay 20 USD", source=source, confidence=Confidence.HIGH, event_id="e-1")],
        excluded_context=[],
        allowed_tools=list(tools),
        forbidden_tools=list(forbidden),
        created_at=at,
        trace_id="t-1",
    )


def scripted(*steps: Any) -> ScriptedModel:
    """Return a model that answers from a script, each answer of 100 and 10 tokens."""
    return ScriptedModel(steps, default_usage=USAGE)


def says(text: str) -> list[Any]:
    """Return an answer that is a text."""
    return [assistant_message(text)]


def calls(name: str, **arguments: Any) -> list[Any]:
    """Return an answer that calls a tool."""
    return [function_call(name, arguments, call_id=f"call-{next(_numbers)}")]


@function_tool
def lookup(customer: str) -> str:
    """Find what a customer pays."""
    if customer == "c-0":
        raise LookupError("no such customer, SECRET")
    return f"{customer} pays 20 USD"


@function_tool
def send(text: str) -> str:
    """Send a mail."""
    raise AssertionError("it is never run")


async def run_stage(stage: Any, context: StageContext[Baton] | None = None) -> StageResult:
    """Return what a stage answers."""
    result: StageResult = await stage(context or StageContext.for_test(BATON))
    return result


def read(call: Any) -> str:
    """Return all that a model was given to read, as one text."""
    return json.dumps([call.system_instructions, call.input], ensure_ascii=False, default=str)


class TestOpenAIAgent:
    """One run of an agent."""

    async def test_it_answers_with_a_patch(self) -> None:
        """The prompt is the user turn, instructions the system prompt, and the schema goes along (X-6, S3-10.1-d)."""
        model = scripted(says(ANSWER))
        agent = Agent("support", instructions="You answer mails.", model=model)
        stage = agent_stage(OpenAIAgent(agent), instructions="Be kind.", writes=["decision_log"])
        context = StageContext.for_test(BATON, contract=contract())

        assert (await run_stage(stage, context)).baton_patch == PATCH
        (call,) = model.calls
        assert call.system_instructions == "You answer mails.\n\nBe kind."
        assert "They pay 20 USD" in read(call)
        assert call.output_schema is not None
        assert list(call.output_schema.json_schema()["properties"]["baton_patch"]["properties"]) == ["decision_log"]
        assert call.tracing.is_disabled()

    async def test_without_structured_output_the_prompt_spells_the_schema(self) -> None:
        """Servers that know no schema are told in words, and a code fence around the answer is no harm."""
        model = scripted(says(f"```json\n{ANSWER}\n```"))
        stage = agent_stage(OpenAIAgent(Agent("support", model=model), answer="prompted"))

        assert (await run_stage(stage)).baton_patch == PATCH
        assert "JSON Schema" in read(model.calls[0])

    async def test_the_agents_own_output_type_is_kept(self) -> None:
        """An agent that exists already needs not be rewritten."""

        class Offer(BaseModel):
            percent: int

        agent = OpenAIAgent(
            Agent("support", model=scripted(says('{"percent": 10}')), output_type=Offer),
            of_output=lambda offer: AgentAnswer(patch={"decision_log": [f"Offer {offer.percent} %"]}),
        )

        assert (await run_stage(agent_stage(agent))).baton_patch == PATCH

    def test_an_agent_as_a_tool_is_refused(self) -> None:
        """Its own tools would be called without a check."""
        inner = Agent("inner", tools=[send])
        outer = Agent("outer", tools=[inner.as_tool("ask_inner", "Ask.")])

        with pytest.raises(ValueError, match="agent_tool"):
            OpenAIAgent(outer)

    async def test_a_guardrail_stops_the_stage(self) -> None:
        """A tripped guardrail is final."""

        @output_guardrail
        async def never(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
            return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

        agent = Agent("support", model=scripted(says(ANSWER)), output_guardrails=[never])

        with pytest.raises(ApplicationError, match="OutputGuardrailTripwireTriggered: 'never'") as caught:
            await run_stage(agent_stage(OpenAIAgent(agent)))
        assert caught.value.non_retryable

    async def test_without_a_key_its_variable_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The key comes from the worker's environment; the run waits for a worker that has it."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)

        with pytest.raises(ConfigurationError, match="'OPENAI_API_KEY'"):
            await run_stage(agent_stage(OpenAIAgent(Agent("support", model="gpt-4o"))))

    async def test_an_approval_is_the_pipelines(self) -> None:
        """A tool that waits for a person within the run would wait for ever."""

        @function_tool(needs_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            return "paid"

        agent = Agent("support", model=scripted(calls("pay", amount=1)), tools=[pay])

        with pytest.raises(ApplicationError, match="waits for the approval of pay") as caught:
            await run_stage(agent_stage(OpenAIAgent(agent)))
        assert caught.value.non_retryable


class TestTools:
    """The agent's own tools and those of the stage, checked where they are called."""

    async def test_only_allowed_tools_are_offered(self) -> None:
        """The model is not even told of the others (S5-fields-k)."""
        model = scripted(says(ANSWER))
        stage = agent_stage(OpenAIAgent(Agent("support", model=model, tools=[lookup, send])), notes=False)
        assert stage.spec.tools == {"lookup", "send"}
        await run_stage(stage, StageContext.for_test(BATON, contract=contract("lookup")))

        assert [tool.name for tool in model.calls[0].tools] == ["lookup"]

    @pytest.mark.parametrize("name", [pytest.param("send", id="its own"), pytest.param("mail_send", id="forbidden")])
    async def test_a_call_that_is_not_allowed_ends_the_run(self, name: str) -> None:
        """Whatever the model was told, nothing of its answer is carried out, and the call is on record."""
        model = scripted(calls(name, text="Hello"))
        context = StageContext.for_test(BATON, contract=contract("lookup", forbidden=("mail.send",)))

        with pytest.raises(ToolDeniedError, match="is not among the tools of handoff 'test'"):
            await run_stage(agent_stage(OpenAIAgent(Agent("support", model=model, tools=[lookup, send]))), context)
        assert [event.success for event in context.session.events if event.type is EventType.TOOL_RESULT] == [False]

    async def test_a_tool_added_during_the_run_is_checked(self) -> None:
        """A tool of the agent gives it another one, which the contract does not allow (S5-fields-k)."""
        ran: list[str] = []

        @function_tool
        def late() -> str:
            ran.append("late")
            return "done"

        @function_tool
        def grow(context: ToolContext[Any]) -> str:
            assert context.agent is not None
            context.agent.tools.append(late)
            return "grown"

        model = scripted(calls("grow"), calls("late"))
        stage = agent_stage(OpenAIAgent(Agent("support", model=model, tools=[grow])))
        with pytest.raises(ToolDeniedError, match="'late' is not among the tools"):
            await stage(StageContext.for_test(Baton(goal="Answer"), contract=contract("grow")))

        assert ran == []

    async def test_calls_and_results_are_recorded(self) -> None:
        """From them facts are compiled for later agents (S5-compiler-a)."""
        model = scripted(calls("lookup", customer="c-1"), says(ANSWER))
        context = StageContext.for_test(BATON)
        await run_stage(agent_stage(OpenAIAgent(Agent("support", model=model, tools=[lookup]))), context)

        call, result = context.session.events[:2]
        assert (call.type, call.content) == (EventType.TOOL_CALL, '{"customer":"c-1"}')
        assert (result.content, result.success, result.call_id) == ("c-1 pays 20 USD", True, call.id)

    async def test_a_tool_that_fails_becomes_no_fact(self) -> None:
        """The model is told what the tool tells it, the session that it failed (S5-fields-i)."""
        model = scripted(calls("lookup", customer="c-0"), says(ANSWER))
        context = StageContext.for_test(BATON)
        await run_stage(agent_stage(OpenAIAgent(Agent("support", model=model, tools=[lookup]))), context)

        assert context.session.events[1].success is False
        assert "An error occurred while running the tool" in read(model.calls[1])
        assert "SECRET" not in read(model.calls[1])

    async def test_of_an_mcp_servers_tools_only_those_named_are_offered(self, tmp_path: Path) -> None:
        """A real server beside the worker: its tools are checked and recorded as the agent's own are (S5-fields-k)."""
        program = tmp_path / "prices.py"
        program.write_text(MCP_SERVER, encoding="utf-8")
        model = scripted(calls("price_of", product="tea"), calls("drop_prices"))
        async with MCPServerStdio({"command": sys.executable, "args": [str(program)]}) as server:
            agent = Agent("support", model=model, mcp_servers=[server])
            stage = agent_stage(OpenAIAgent(agent, mcp_tools=["price_of", "drop_prices"]), notes=False)
            context = StageContext.for_test(BATON, contract=contract("price_of"))
            with pytest.raises(ToolDeniedError, match="'drop_prices' is not among the tools"):
                await run_stage(stage, context)

        assert stage.spec.tools == {"price_of", "drop_prices"}
        assert [tool.name for tool in model.calls[0].tools] == ["price_of"]
        assert "tea is 3 EUR" in read(model.calls[1])
        recorded = [(event.tool_name, event.success) for event in context.session.events if event.tool_name]
        assert recorded == [("price_of", None), ("price_of", True), ("drop_prices", False)]


class TestContractInputFilter:
    """Handoffs inside a run."""

    def handing(self, to_first: Any, specialist: ScriptedModel) -> tuple[OpenAIAgent, ScriptedModel]:
        """Return an agent that looks something up, says something and hands off."""
        billing = Agent("billing", instructions="You know prices.", model=specialist, tools=[send])
        thinking = [assistant_message("MARKER-THOUGHT"), *calls("lookup", customer="c-1")]
        first = scripted(thinking, calls("transfer_to_billing"))
        return OpenAIAgent(Agent("support", model=first, tools=[lookup], handoffs=[to_first(billing)])), first

    @pytest.mark.parametrize(
        "make_handoff", [pytest.param(lambda agent: agent, id="agent"), pytest.param(handoff, id="handoff object")]
    )
    async def test_the_next_agent_reads_the_contract_and_no_history(self, make_handoff: Any) -> None:
        """What the run has established and what the stage was given cross; messages and calls do not (S5-prob-i)."""
        specialist = scripted(says(ANSWER))
        agent, _ = self.handing(make_handoff, specialist)
        context = StageContext.for_test(BATON, contract=contract("lookup"))

        assert (await run_stage(agent_stage(agent), context)).baton_patch == PATCH
        (call,) = specialist.calls
        assert len(call.input) == 1
        assert call.input[0]["role"] == "user"
        text = call.input[0]["content"]
        assert "high, lookup at" in text
        assert "c-1 pays 20 USD" in text
        assert "They pay 20 USD" in text
        assert "MARKER-THOUGHT" not in text.partition("**Facts:**")[0]
        assert "transfer_to_billing" not in read(call)
        assert call.tools == []

    async def test_the_next_agents_tools_are_checked_too(self) -> None:
        """A handoff is no way around the contract."""
        agent, _ = self.handing(lambda handoff: handoff, scripted(calls("send", text="Hello")))

        with pytest.raises(ToolDeniedError, match="'send'"):
            await run_stage(agent_stage(agent), StageContext.for_test(BATON, contract=contract("lookup")))

    async def test_the_history_does_not_cross_a_handoff(self) -> None:
        """An excluded event is in no prompt of the next agent."""
        specialist = scripted(says(ANSWER))
        agent, _ = self.handing(lambda handoff: handoff, specialist)
        context = StageContext.for_test(BATON)
        context.session.brainstorm("MARKER-BRAINSTORM")
        context.session.tool_result("crm", "MARKER-EXCLUDED", exclude=True)
        await run_stage(agent_stage(agent), context)

        assert "MARKER-BRAINSTORM" not in read(specialist.calls[0])
        assert "MARKER-EXCLUDED" not in read(specialist.calls[0])
