"""LangGraph nodes and graphs as stages: their state in and out, their tools and what they cost."""

import asyncio
import contextlib
import operator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from temporalio.exceptions import ApplicationError

from baton import Baton, Spend, StageContext, StageResult
from baton.agents import AgentAnswer, AgentLimits, AgentWork, agent_stage
from baton.agents.langgraph import LangGraphAgent
from baton.contract.records import EventType, HandoffContract, ToolDeniedError
from baton.errors import AgentError
from baton.wire.money import Price
from tests.agents.material import node_stage

BATON = Baton(goal="Add login", current_state=["Nothing"], decision_log=["Use JWT"])
USAGE = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}


class Draft(TypedDict, total=False):
    """A state with names of its own."""

    task: str
    notes: list[str]
    decisions: Annotated[list[str], operator.add]


def contract(*tools: str, facts: Any = ()) -> HandoffContract:
    """Return a contract that allows tools."""
    return HandoffContract(
        handoff_id="h-1",
        receiving_agent="node",
        task="Write the plan",
        facts=list(facts),
        excluded_context=[],
        allowed_tools=list(tools),
        forbidden_tools=[],
        created_at=datetime.now(UTC),
        trace_id="t-1",
    )


def model(*messages: AIMessage) -> GenericFakeChatModel:
    """Return a model that answers from a script."""
    return GenericFakeChatModel(messages=iter(messages))


@tool("crm_lookup")
def crm_lookup(customer: str) -> str:
    """Find what a customer pays."""
    if customer == "c-0":
        raise LookupError("no such customer")
    return f"{customer} pays 20 USD"


def calling(name: str, customer: str) -> AIMessage:
    """Return what a model says that calls a tool."""
    call = {"name": name, "args": {"customer": customer}, "id": "call-1", "type": "tool_call"}
    return AIMessage("", tool_calls=[call], usage_metadata=USAGE)


def looping(chat: GenericFakeChatModel, *, passes_error: bool = False) -> Any:
    """Return a graph of a model and its tools; whether the model is told of errors is as the graph says."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await chat.ainvoke(state["messages"])]}

    def more(state: MessagesState) -> str:
        return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([crm_lookup], handle_tool_errors=True) if passes_error else ToolNode([crm_lookup]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", more)
    graph.add_edge("tools", "ask")
    return graph.compile()


async def run_stage(stage: Any, context: StageContext[Baton] | None = None) -> StageResult:
    """Return what a stage answers."""
    result: StageResult = await stage(context or StageContext.for_test(BATON))
    return result


class TestNodeStage:
    """Functions, runnables and graphs as stages."""

    async def test_a_nodes_update_is_the_patch(self) -> None:
        """By default the state has the baton's fields under their names, and so has the update."""

        def plan(state: dict[str, Any]) -> dict[str, Any]:
            return {"current_state": [f"A plan for {state['goal']}"], "scratch": "not the baton's"}

        assert (await run_stage(node_stage(plan))).baton_patch == {"current_state": ["A plan for Add login"]}

    async def test_members_are_mapped_as_declared(self) -> None:
        """What a member holds and what becomes of it is declared; decisions are those that were added."""

        async def write(state: Draft) -> Draft:
            return {"notes": [state["task"].upper()], "decisions": ["Ship it"]}

        stage = node_stage(
            write,
            into={"task": "goal", "decisions": "decision_log"},
            out={"current_state": "notes", "decision_log": "decisions", "output": "notes"},
        )
        result = await run_stage(stage)

        assert result.baton_patch == {"current_state": ["ADD LOGIN"], "decision_log": ["Ship it"]}
        assert result.output == ["ADD LOGIN"]

    async def test_of_a_graphs_state_only_what_is_new_becomes_the_patch(self) -> None:
        """A graph returns its whole state: what it left alone stays out, and of the log only its own entries go."""

        class State(TypedDict):
            goal: str
            current_state: list[str]
            decision_log: Annotated[list[str], operator.add]

        graph = StateGraph(State)
        graph.add_node("decide", lambda state: {"decision_log": ["Use Postgres"]})
        graph.add_edge(START, "decide")

        assert (await run_stage(node_stage(graph, name="decide"))).baton_patch == {"decision_log": ["Use Postgres"]}

    async def test_functions_make_state_and_answer(self) -> None:
        """Where names are not enough, a function makes the state and another one the answer."""

        def into(work: AgentWork) -> dict[str, Any]:
            return {"task": f"{work.context.baton.goal}!"}

        def out(state: Any) -> AgentAnswer:
            return AgentAnswer(patch={"current_state": state["notes"]}, output=1)

        def write(state: Draft) -> Draft:
            return {"notes": [state["task"]]}

        result = await run_stage(node_stage(write, into=into, out=out))

        assert (result.baton_patch, result.output) == ({"current_state": ["Add login!"]}, 1)

    async def test_the_answer_of_a_model_is_read_in_the_last_message(self) -> None:
        """A graph of messages is given the fenced prompt in the user turn, and its last message is the answer."""
        answer = '{"baton_patch": {"decision_log": ["Use Postgres"]}}'
        graph = looping(model(AIMessage(answer, usage_metadata=USAGE)))
        context = StageContext.for_test(BATON, contract=contract())
        prompts: list[str] = []

        def into(work: AgentWork) -> dict[str, Any]:
            prompts.append(work.user_turn())
            return {"messages": [("user", work.user_turn())]}

        assert (await run_stage(node_stage(graph, out={"answer": "messages"}, into=into), context)).baton_patch == {
            "decision_log": ["Use Postgres"]
        }
        assert "Write the plan" in prompts[0]
        assert "DATA ONLY" in prompts[0]

    async def test_messages_and_prompt_may_be_members(self) -> None:
        """The names `messages`, `prompt` and `params` stand for the user turn and the pipeline's parameters."""
        states: dict[str, Any] = {}

        def look(state: dict[str, Any], config: RunnableConfig) -> dict[str, Any]:
            states.update(state)
            return {}

        stage = node_stage(look, into={"messages": "messages", "text": "prompt", "how": "params"})
        await run_stage(stage, StageContext.for_test(BATON, params={"depth": 2}))

        assert states["messages"][0]["role"] == "user"
        assert states["messages"][0]["content"] == states["text"]
        assert states["how"] == {"depth": 2}

    async def test_where_a_command_goes_is_the_output(self) -> None:
        """Baton's pipeline decides what runs next, so it is told where a node wanted to go."""

        def route(state: dict[str, Any]) -> Command[str]:
            return Command(update={"current_state": ["Reviewed"]}, goto="release")

        result = await run_stage(node_stage(route))

        assert (result.baton_patch, result.output) == ({"current_state": ["Reviewed"]}, {"goto": "release"})

    async def test_a_model_of_pydantic_is_a_state_too(self) -> None:
        """Only the members that a node has set are its update."""

        class State(BaseModel):
            goal: str = ""
            current_state: list[str] = []

        assert (await run_stage(node_stage(lambda state: State(current_state=["x"]), name="node"))).baton_patch == {
            "current_state": ["x"]
        }

    @pytest.mark.parametrize(
        ("mapping", "message"),
        [
            pytest.param({"into": {"task": "gaol"}}, "names 'gaol'", id="into"),
            pytest.param({"out": {"gaol": "task"}}, "names 'gaol'", id="out"),
        ],
    )
    async def test_a_name_that_is_not_there_is_refused(self, mapping: Any, message: str) -> None:
        """The message names what is known."""
        with pytest.raises(ApplicationError, match=message) as caught:
            await run_stage(node_stage(lambda state: {}, name="node", **mapping))

        assert caught.value.non_retryable
        assert "current_state" in str(caught.value)

    def test_a_node_that_takes_more_is_refused_at_once(self) -> None:
        """Only a graph can give a node a runtime, a store or a writer."""

        def node(state: Any, runtime: Any) -> None:
            """Take more."""

        with pytest.raises(ValueError, match="takes 'runtime' beside the state"):
            node_stage(node)

    @pytest.mark.parametrize(
        ("stage", "message", "permanent"),
        [
            pytest.param(lambda: node_stage(lambda state: 7, name="n"), "returned a int", True, id="no state"),
            pytest.param(lambda: node_stage(waiting()), "stopped at an interrupt", True, id="waits for a person"),
            pytest.param(lambda: node_stage(asks), "'asks' stopped at an interrupt", True, id="a bare node that waits"),
            pytest.param(lambda: node_stage(leaving()), "continues at 'legal' of a parent", True, id="leaves"),
            pytest.param(lambda: node_stage(circling()), "took too many steps", False, id="goes in circles"),
        ],
    )
    async def test_what_is_no_answer_fails_the_stage(self, stage: Any, message: str, permanent: bool) -> None:
        """The error says what to do, and whether another run may help."""
        with pytest.raises(ApplicationError, match=message) as caught:
            await run_stage(stage())

        assert caught.value.non_retryable is permanent

    async def test_a_providers_words_stay_out_of_the_error(self) -> None:
        """What a provider answers may hold a key; its status says whether another run may help."""

        class RefusedError(Exception):
            status_code = 401

        def ask(state: Any) -> None:
            raise RefusedError("key sk-123 is wrong")

        with pytest.raises(ApplicationError, match=r"answered 401 \(RefusedError\)") as caught:
            await run_stage(node_stage(ask))
        assert caught.value.non_retryable
        assert "sk-123" not in repr(caught.value.__cause__) + str(caught.value)

    @pytest.mark.parametrize("kind", [TypeError, KeyError])
    async def test_an_answer_that_its_client_cannot_read_is_not_quoted(self, kind: type[Exception]) -> None:
        """It may repeat a key; another run may get a better one, whatever the client calls its error."""

        class Stumbling(GenericFakeChatModel):
            def _generate(self, *args: Any, **kwargs: Any) -> Any:
                raise kind("got <html>sk-123</html>")

        message = rf"the provider's answer cannot be read \({kind.__name__}\)"
        with pytest.raises(ApplicationError, match=message) as caught:
            await run_stage(node_stage(looping(Stumbling(messages=iter(())))))
        assert caught.value.non_retryable is False
        assert "sk-123" not in repr(caught.value.__cause__) + str(caught.value)

    async def test_a_run_ends_in_its_time(self) -> None:
        """What does not come to an end is ended."""

        async def forever(state: Any) -> None:
            await asyncio.Event().wait()

        stage = agent_stage(LangGraphAgent(forever), limits=AgentLimits(seconds=0.01))

        with pytest.raises(ApplicationError, match=r"did not finish within 0\.01 s"):
            await run_stage(stage)


class TestWatch:
    """What models and tools do inside a node."""

    async def test_requests_are_charged_and_tools_recorded(self) -> None:
        """Each request is on the bill, and a tool's result is an event with its call (S5-compiler-a)."""
        answer = AIMessage('{"baton_patch": {}}', usage_metadata=USAGE)
        graph = looping(model(calling("crm_lookup", "c-1"), answer))
        context = StageContext.for_test(BATON, contract=contract("crm_lookup"))
        price = Price(input=Decimal(1), output=Decimal(4))
        stage = node_stage(
            graph, into={"messages": "messages"}, out={"answer": "messages"}, uses=["crm_lookup"], price=price
        )
        await run_stage(stage, context)

        assert context.charged == Spend(micro_usd=280, prompt_tokens=200, completion_tokens=20)
        call, result = [event for event in context.session.events if event.tool_name == "crm_lookup"]
        assert (call.type, result.type, result.call_id) == (EventType.TOOL_CALL, EventType.TOOL_RESULT, call.id)
        assert (result.content, result.success) == ("c-1 pays 20 USD", True)

    async def test_a_tool_that_the_contract_does_not_allow_does_not_run(self) -> None:
        """Whatever the model was told, the call is denied and on record (S5-fields-k)."""
        graph = looping(model(calling("crm_lookup", "c-1")))
        context = StageContext.for_test(BATON, contract=contract("policy_search"))

        with pytest.raises(ToolDeniedError, match="'crm_lookup' is not among the tools"):
            await run_stage(node_stage(graph, into={"messages": "messages"}, uses=["crm_lookup"]), context)
        (denied,) = [event for event in context.session.events if event.tool_name == "crm_lookup"]
        assert denied.success is False

    async def test_a_denied_call_ends_a_run_that_would_tell_its_model_of_it(self) -> None:
        """It fails at once, and the model is not asked again."""
        graph = looping(model(calling("crm_lookup", "c-1"), calling("crm_lookup", "c-2")), passes_error=True)
        context = StageContext.for_test(BATON, contract=contract("policy_search"))

        with pytest.raises(ToolDeniedError, match="'crm_lookup' is not among the tools"):
            await run_stage(node_stage(graph, into={"messages": "messages"}, uses=["crm_lookup"]), context)
        assert context.charged.prompt_tokens == 100
        assert [event.success for event in context.session.events if event.tool_name == "crm_lookup"] == [False]

    async def test_a_denied_call_ends_a_run_whose_node_caught_it(self) -> None:
        """Whatever else the node did."""

        async def look(state: Any) -> dict[str, Any]:
            with contextlib.suppress(ToolDeniedError):
                await crm_lookup.ainvoke({"customer": "c-1"})
            raise RuntimeError("there is nothing to go by")

        context = StageContext.for_test(BATON, contract=contract("policy_search"))
        with pytest.raises(ToolDeniedError, match="'crm_lookup' is not among the tools"):
            await run_stage(node_stage(look, uses=["crm_lookup"]), context)

    async def test_a_tool_that_fails_becomes_no_fact(self) -> None:
        """A failure is recorded as one, also where the model is told of it and goes on."""
        context = StageContext.for_test(BATON, contract=contract("crm_lookup"))
        with pytest.raises(LookupError):
            await run_stage(
                node_stage(looping(model(calling("crm_lookup", "c-0"))), into={"messages": "messages"}), context
            )

        result = next(event for event in context.session.events if event.type is EventType.TOOL_RESULT)
        assert result.success is False

    @pytest.mark.parametrize("limits", [AgentLimits(requests=1), AgentLimits(tokens=100), AgentLimits(micro_usd=100)])
    async def test_a_model_that_asks_again_by_itself_asks_no_more_beyond_a_limit(self, limits: AgentLimits) -> None:
        """It would be paid each time; and a node that catches the error has no answer taken."""
        price = Price(input=Decimal(2), output=Decimal(8))
        answers = [AIMessage("Priced", usage_metadata=USAGE) for _ in range(4)]
        chat = model(*answers).with_retry(wait_exponential_jitter=False, stop_after_attempt=2)

        async def ask(state: Any) -> dict[str, Any]:
            for _ in range(2):
                with contextlib.suppress(AgentError):
                    await chat.ainvoke("What does it cost?")
            return {"current_state": ["Priced"]}

        context = StageContext.for_test(BATON)
        with pytest.raises(ApplicationError, match="reached a limit of its run") as caught:
            await run_stage(agent_stage(LangGraphAgent(ask, price=price), limits=limits), context)
        assert caught.value.non_retryable
        assert context.charged.prompt_tokens == 100

    async def test_nodes_that_are_not_async_are_watched_too(self) -> None:
        """They run in threads; what belongs to the stage is done in the thread of the event loop."""
        chat = model(AIMessage("fine", usage_metadata=USAGE))

        def ask(state: dict[str, Any]) -> dict[str, Any]:
            crm_lookup.invoke({"customer": "c-1"})
            return {"current_state": [str(chat.invoke("How are you?").content)]}

        context = StageContext.for_test(BATON)

        assert (await run_stage(node_stage(ask), context)).baton_patch == {"current_state": ["fine"]}
        assert context.charged.prompt_tokens == 100
        assert [event.type for event in context.session.events][:2] == [EventType.TOOL_CALL, EventType.TOOL_RESULT]


def asks(state: dict[str, Any]) -> dict[str, Any]:
    """Ask a person, outside of any graph."""
    interrupt("May I?")
    return {}


def waiting() -> Any:
    """Return a graph that waits for a person."""

    def ask(state: MessagesState) -> dict[str, Any]:
        interrupt("May I?")
        return {}

    return StateGraph(MessagesState).add_node(ask).add_edge(START, "ask").compile(checkpointer=None)


def leaving() -> Any:
    """Return a graph that goes on in the graph around it."""

    def pass_on(state: MessagesState) -> Command[Any]:
        return Command(goto="legal", graph=Command.PARENT)

    graph = StateGraph(MessagesState)
    graph.add_node("pass_on", pass_on)
    graph.add_edge(START, "pass_on")
    return graph.compile()


def circling() -> Any:
    """Return a graph that goes in circles."""
    graph = StateGraph(MessagesState).add_node("turn", lambda state: {})
    return graph.add_edge(START, "turn").add_edge("turn", "turn").compile().with_config(recursion_limit=25)
