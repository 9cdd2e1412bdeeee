"""Typed answers of every adapter, and the notes beside them: the baton travels without a request more."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pydantic_ai.models
import pytest
from agents import Agent as SdkAgent
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio.client import Client

from baton import Baton, MemoryArtifactStore, PatchError, Safeguards, StageContext, WorkerParts
from baton.agents import Agent as Port
from baton.agents import AgentAnswer, AgentTool, AgentWork, AnswerForm, agent_stage, notes_tools
from baton.agents.langgraph import LangGraphAgent
from baton.agents.notes import NOTE_TOOLS
from baton.agents.openai_agents import OpenAIAgent, provider
from baton.agents.pydantic_ai import PydanticAgent
from baton.agents.subprocess_agent import SubprocessAgent
from baton.client.faces import explain_in
from baton.contract.records import EventType
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker, run_pipeline
from tests.agents.material import context, contract, lookup
from tests.agents.test_adapters import native, plain, pydantic, sdk
from tests.agents.test_answer_forms import graph
from tests.agents.typed_pipelines import FACTS, NOTED, PROMPTS, READABLE, WHOLE, Facts, Offers, find, offer
from tests.agents.wire_model import WireModel
from tests.chat_server import ChatServer, Reply, chat_server, completion, text_chunks

CRM = AgentTool.of(lookup, name="crm.lookup")
ANSWER = {"output": FACTS, **NOTED}
DECIDED = {"decision_log": NOTED["decided"]}
WRONG = {"output": {"customer": "c-1", "paysUsd": "SECRET"}}


def program(server: ChatServer) -> Port:
    """Return a program that asks the server, as it is told to on stdin, and tells more than the answer."""
    code = (
        "import json, sys, urllib.request as web;"
        "prompt = sys.stdin.read(); assert 'paysUsd' in prompt;"
        f"body = json.dumps({{'messages': [{{'role': 'user', 'content': prompt}}]}}).encode();"
        f"request = web.Request({server.base + '/chat/completions'!r}, body, {{'Content-Type': 'application/json'}});"
        "reply = json.load(web.urlopen(request));"
        "print('I looked.'); print(reply['choices'][0]['message']['content'])"
    )
    return SubprocessAgent("plan", [sys.executable, "-c", code])


Maker = Callable[[ChatServer], Port]
ALL: list[Maker] = [plain, pydantic, native, sdk, graph, program]


def answering(agent: Maker, answer: Any) -> dict[str, Any]:
    """Return the completion by which an agent gives an answer."""
    return completion(calls=[("final_result", answer)]) if agent is pydantic else completion(json.dumps(answer))


def sent_schema(server: ChatServer) -> str:
    """Return what the first request says of the answer's form, wherever it is said."""
    body = server.asked[0].body
    return json.dumps([body.get("response_format"), body.get("tools"), body["messages"][-1]["content"]])


@pytest.fixture(autouse=True)
def own_server() -> Iterator[None]:
    """Allow requests; they go to this machine."""
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


@pytest.mark.parametrize("agent", ALL)
class TestEveryAdapter:
    """`answers=Facts`: an adapter must ..."""

    async def test_return_what_the_type_writes_and_the_notes_beside_it(self, agent: Maker) -> None:
        """In one request, which has the schema; the notes are no part of the output, and become patch and events."""
        stage_context = context()
        with chat_server(answering(agent, ANSWER)) as server:
            result = await agent_stage(agent(server), answers=Facts)(stage_context)
            schema = sent_schema(server)

        assert (result.output, result.baton_patch, result.warnings) == (WHOLE, DECIDED, [])
        assert len(server.asked) == 1
        assert "paysUsd" in schema
        assert "rejected" in schema
        recorded = [(event.type, event.content) for event in stage_context.session.events]
        assert recorded[-3:] == [
            (EventType.DECISION, NOTED["decided"][0]),
            (EventType.REJECTED_ASSUMPTION, NOTED["rejected"][0]),
            (EventType.BRAINSTORM, NOTED["thought"][0]),
        ]

    @pytest.mark.parametrize(
        "noted",
        [
            pytest.param({}, id="none"),
            pytest.param({"decided": [], "open": None}, id="empty"),
            pytest.param({"decided": [7]}, id="not texts"),
            pytest.param({"decided": {"why": "x"}}, id="not a list"),
            pytest.param({"decided": ["x" * 2_000]}, id="too long"),
        ],
    )
    async def test_keep_the_work_without_notes(self, agent: Maker, noted: dict[str, Any]) -> None:
        """The history says so, and nothing is asked again."""
        with chat_server(answering(agent, {"output": FACTS, **noted})) as server:
            result = await agent_stage(agent(server), answers=Facts)(context())

        assert (result.output, result.baton_patch, result.warnings) == (WHOLE, {}, ["left no reasons"])

    async def test_lead_an_output_that_does_not_fit_to_another_attempt(self, agent: Maker) -> None:
        """The finding names the member and not its value."""
        with chat_server(*[answering(agent, WRONG)] * 3) as server, pytest.raises(PatchError) as raised:
            await agent_stage(agent(server), answers=Facts)(context())

        assert "paysUsd" in str(raised.value)
        assert "SECRET" not in str(raised.value)

    async def test_ask_for_no_notes_where_none_are_wanted(self, agent: Maker) -> None:
        """`notes=False` takes them away; what comes all the same is dropped."""
        with chat_server(answering(agent, ANSWER)) as server:
            result = await agent_stage(agent(server), answers=Facts, notes=False)(context())
            schema = sent_schema(server)

        assert (result.output, result.baton_patch, result.warnings) == (WHOLE, {}, [])
        assert "rejected" not in schema


class Says:
    """An agent that answers with a fixed answer."""

    name = "says"

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.tools: list[str] = []

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer."""
        self.tools = [tool.name for tool in work.tools]
        return self._answer if isinstance(self._answer, AgentAnswer) else work.read(self._answer)


async def answered(answer: Any, answers: Any = Facts, **terms: Any) -> Any:
    """Return the result of a stage whose agent says this."""
    return await agent_stage(Says(answer), answers=answers, **terms)(StageContext.for_test(Baton(goal="Offer")))


class TestTypes:
    """What `answers=` takes."""

    async def test_any_type_that_pydantic_can_describe(self) -> None:
        """The output is a member, so it need not be an object."""
        assert (await answered('```json\n{"output": [1, "2"]}\n```', list[int])).output == [1, 2]

    async def test_other_things_are_refused(self) -> None:
        """Where the stage is made."""

        class Opaque:
            """What pydantic knows nothing of."""

        with pytest.raises(TypeError, match="expected an AnswerForm, or a type"):
            agent_stage(Says(""), answers=Opaque)
        with pytest.raises(ValueError, match="pass the type itself"):
            agent_stage(Says(""), answers=AnswerForm.TYPED)

    async def test_notes_may_be_required(self) -> None:
        """Then an answer without them is asked for again."""
        with pytest.raises(PatchError, match="no notes"):
            await answered({"output": FACTS}, notes="required")
        assert (await answered(ANSWER, notes="required")).baton_patch == DECIDED

    @pytest.mark.parametrize("answer", ["{}", json.dumps(FACTS), "[]", "Done.", "null"])
    async def test_an_answer_without_an_output_is_a_finding(self, answer: str) -> None:
        """It says what is expected."""
        with pytest.raises(PatchError, match=r'answer with {"output": …}'):
            await answered(answer)

    async def test_a_record_of_the_agent_itself_is_checked_as_well(self) -> None:
        """An adapter may make it in another way."""
        assert (await answered(AgentAnswer(output=Facts(customer="c-1", paysUsd=1)))).output_as(Facts).pays == 1
        with pytest.raises(PatchError, match="paysUsd"):
            await answered(AgentAnswer(output={"customer": "c-1"}))

    async def test_a_patch_has_what_it_rejected_beside_it(self) -> None:
        """For the contracts of later stages; it is no part of the patch."""
        stage_context = context()
        answer = {"baton_patch": {"current_state": ["Done"]}, "rejected": ["Sessions"], "thought": "A bot?"}
        result = await agent_stage(Says(answer))(stage_context)

        assert (result.baton_patch, result.warnings) == ({"current_state": ["Done"]}, [])
        recorded = [(event.type, event.content) for event in stage_context.session.events]
        assert recorded == [(EventType.REJECTED_ASSUMPTION, "Sessions"), (EventType.BRAINSTORM, "A bot?")]


def own_pydantic(server: ChatServer, **terms: Any) -> Port:
    """Return an agent of Pydantic AI with an output type of its own."""
    model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=server.base, api_key="key"))
    return PydanticAgent(Agent(model, name="plan", output_type=Facts, **terms))


def own_sdk(server: ChatServer) -> Port:
    """Return an agent of the OpenAI Agents SDK with an output type of its own."""
    models = provider(base_url=server.base, api_key="key", api="chat")
    return OpenAIAgent(SdkAgent("plan", model="gpt-4o", output_type=list[int]), provider=models)


class TestOwnTypes:
    """An agent's own `output_type`, without `of_output`."""

    async def test_of_pydantic_ai(self) -> None:
        """Its output is the stage's as JSON; it has no room for notes, and the prompt asks for none."""
        with chat_server(completion(calls=[("final_result", FACTS)])) as server:
            result = await agent_stage(own_pydantic(server))(context())
            schema = sent_schema(server)

        assert (result.output, result.baton_patch, result.warnings) == (WHOLE, {}, ["left no reasons"])
        assert "baton_patch" not in schema
        assert "decided" not in schema

    async def test_of_the_agents_sdk(self) -> None:
        """The same."""
        with chat_server(completion('{"response": [1, 2]}')) as server:
            result = await agent_stage(own_sdk(server))(context())

        assert (result.output, result.warnings) == ([1, 2], ["left no reasons"])

    async def test_the_stage_may_say_otherwise(self) -> None:
        """By its form, or by a type, which brings notes."""
        patch = {"baton_patch": {"current_state": ["Done"]}}
        with chat_server(completion(calls=[("final_result", patch)])) as server:
            result = await agent_stage(own_pydantic(server), answers=AnswerForm.PATCH)(context())
        assert result.baton_patch == patch["baton_patch"]
        with chat_server(completion(calls=[("final_result", ANSWER)])) as server:
            result = await agent_stage(own_pydantic(server), answers=Facts)(context())
        assert (result.output, result.baton_patch) == (WHOLE, DECIDED)

    async def test_notes_that_it_has_no_room_for_cannot_be_required(self) -> None:
        """Unless it has tools, it could never answer."""
        with chat_server() as server:
            with pytest.raises(ValueError, match="no room for notes"):
                agent_stage(own_pydantic(server), notes="required")
            agent_stage(own_pydantic(server, tools=[lookup]), notes="required")


def own_tools(server: ChatServer) -> Port:
    """Return an agent of Pydantic AI with an output type and a tool of its own."""
    return own_pydantic(server, tools=[lookup])


@tool("crm_lookup")
def crm_lookup(customer: str) -> str:
    """Find what a customer pays."""
    return lookup(customer)


def tool_graph(server: ChatServer) -> Port:
    """Return a graph of a model, its tool and the tools for notes."""
    model = WireModel(base=server.base)

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    nodes = StateGraph(MessagesState).add_node("ask", ask).add_node("tools", ToolNode([crm_lookup, *notes_tools]))
    nodes.add_edge(START, "ask").add_conditional_edges("ask", tools_condition).add_edge("tools", "ask")
    return LangGraphAgent(nodes, into={"messages": "messages"}, uses=["crm_lookup"])


NOTING = [
    ("note_decision", {"text": "Offer 10 %,\nbecause they pay late"}),
    ("open_question", {"text": "Since when?"}),
    ("consider", {"text": "A bot?"}),
    ("reject", {"text": "A refund"}),
]


class TestTools:
    """The tools by which an agent notes while it works."""

    @pytest.mark.parametrize("agent", [plain, pydantic, native, sdk, own_tools, tool_graph])
    async def test_they_are_called_beside_its_own(self, agent: Maker) -> None:
        """In the same request; what they note is the patch, and no result of theirs is a fact."""
        name = "lookup" if agent is own_tools else "crm_lookup"
        calling = completion(calls=[(name, {"customer": "c-1"}), *NOTING])
        last = answering(pydantic, FACTS) if agent is own_tools else answering(agent, {"output": FACTS})
        stage_context = context(contract(["crm.lookup", "crm_lookup", "lookup"]))
        tools = [] if agent in (own_tools, tool_graph) else [CRM]
        with chat_server(calling, last) as server:
            answers = None if agent is own_tools else Facts
            result = await agent_stage(agent(server), answers=answers, tools=tools)(stage_context)
            offered = {one["function"]["name"] for one in server.asked[0].body.get("tools", [])}

        assert len(server.asked) == 2
        assert agent is tool_graph or offered >= NOTE_TOOLS
        assert (result.output, result.warnings) == (WHOLE, [])
        assert result.baton_patch == {
            "decision_log": ["Offer 10 %, because they pay late"],
            "open_questions": ["Since when?"],
        }
        events = [(event.type, event.content) for event in stage_context.session.events if event.tool_name is None]
        assert events[-3:] == [
            (EventType.DECISION, "Offer 10 %, because they pay late"),
            (EventType.REJECTED_ASSUMPTION, "A refund"),
            (EventType.BRAINSTORM, "A bot?"),
        ]
        assert not [event for event in stage_context.session.events if event.tool_name in NOTE_TOOLS]

    @pytest.mark.parametrize(
        ("tools", "terms", "offered"),
        [
            pytest.param([], {}, set(), id="no tools of its own"),
            pytest.param([CRM], {"notes": False}, set(), id="no notes"),
            pytest.param([CRM], {"answers": AnswerForm.REPORT}, set(), id="a report, which has its own"),
            pytest.param([AgentTool.of(lookup, name="crm.x")], {}, set(), id="none is allowed"),
            pytest.param([CRM], {}, NOTE_TOOLS - {"reject"}, id="beside its own, but for a forbidden one"),
        ],
    )
    async def test_they_are_offered_where_there_are_tools_anyway(
        self, tools: list[AgentTool], terms: dict[str, Any], offered: set[str]
    ) -> None:
        """A contract does not limit them, because they reach nothing outside."""
        agent = Says({"baton_patch": {}} if "answers" not in terms else "## Agent Handoff Report\n")
        await agent_stage(agent, tools=tools, **terms)(context(contract(["crm.lookup"], ["reject"])))

        assert {*agent.tools} & NOTE_TOOLS == offered

    async def test_a_tool_of_that_name_is_the_agents_own(self) -> None:
        """It is guarded as any."""
        own = AgentTool("consider", lambda: "mine")
        agent = Says({"baton_patch": {}})
        await agent_stage(agent, tools=[own])(StageContext.for_test(Baton(goal="g")))

        assert agent.tools.count("consider") == 1

    async def test_what_they_noted_is_added_to_a_patch(self) -> None:
        """Neither the patch's own entries nor the noted ones are lost."""
        patch = {"decision_log": ["Be brief"], "open_questions": ["Who pays?"]}
        with chat_server(completion(calls=NOTING), completion(json.dumps({"baton_patch": patch}))) as server:
            result = await agent_stage(native(server), tools=[CRM])(context())

        assert result.baton_patch == {
            "decision_log": ["Be brief", "Offer 10 %, because they pay late"],
            "open_questions": ["Who pays?", "Since when?"],
        }


@pytest.mark.parametrize("agent", [plain, sdk])
@pytest.mark.parametrize("answer", [ANSWER, {"baton_patch": DECIDED, "thought": NOTED["thought"]}])
async def test_people_who_watch_are_not_shown_the_notes(agent: Maker, answer: dict[str, Any]) -> None:
    """An answer in JSON is no text for people, in whatever pieces it comes."""
    text = f"I looked.\n{json.dumps(answer)}" if agent is sdk else json.dumps(answer)
    stage_context = context()
    stage_context.given = stage_context.given.model_copy(update={"stream": True})
    answers = Facts if "output" in answer else None
    with chat_server(Reply(events=text_chunks(text[:11], text[11:20], text[20:]))) as server:
        made = agent_stage(agent(server), answers=answers)
        if agent is sdk:
            with pytest.raises(PatchError):  # words before the object are a fault; people may still see them
                await made(stage_context)
        else:
            await made(stage_context)

    shown = "".join(part["text"] for part in stage_context.stream.to_json())  # type: ignore[misc]
    assert shown == ("I looked.\n" if agent is sdk else "")


async def test_pipelines_and_the_next_agent_read_the_facts(server: DevServer, safeguards: Safeguards) -> None:
    """As records in code, as readable text in a prompt; what was rejected does not cross, and the run replays."""
    PROMPTS.clear()
    plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards=safeguards)
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [Offers], [find, offer]) as worker:
        run = await run_pipeline(worker, Offers.run, PipelineInput(goal="Make an offer"))

    assert run.result.output == {"pays": 20, "percent": 10}
    assert run.baton.decision_log == NOTED["decided"]
    assert READABLE in PROMPTS[1]
    assert NOTED["decided"][0] in PROMPTS[1]
    assert NOTED["rejected"][0] not in PROMPTS[1]
    assert NOTED["thought"][0] not in PROMPTS[1]
    excluded: Any = explain_in(run.record, "offer").contract["excludedContext"]
    assert {"type:rejected_assumption", "type:brainstorm"} <= set(excluded)
    await assert_replays(run.handle, [Offers], plugin=plugin)
