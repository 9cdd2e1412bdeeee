"""Scripted and recorded agents behind the port: they work as stages, and tell what a test has to know."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from baton import Baton, BatonPatch, Spend, StageContext
from baton.agents import AgentAnswer, AgentWork, agent_stage
from baton.contract.records import EventType
from baton.errors import PatchError
from baton.testing import Cassette, CassetteMissError, Expect, RecordedAgent, ScriptedAgent, ScriptError, Scripts

PLANNED = BatonPatch(current_state=["Planned"])


def context(goal: str = "Add login", findings: list[str] | None = None) -> StageContext[Baton]:
    """Return the context of a stage in a test."""
    return StageContext.for_test(Baton(goal=goal), findings=findings)


async def look_up(customer: str) -> str:
    """Find what a customer pays."""
    return f"{customer} pays 20 USD"


class TestScriptedAgent:
    """`ScriptedAgent`."""

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(PLANNED, id="a patch"),
            pytest.param({"current_state": ["Planned"]}, id="a patch as JSON"),
            pytest.param(AgentAnswer(patch=PLANNED), id="an answer"),
            pytest.param('{"baton_patch": {"current_state": ["Planned"]}}', id="the last words of a model"),
            pytest.param(lambda work: work.read('{"baton_patch": {"current_state": ["Planned"]}}'), id="a function"),
        ],
    )
    async def test_it_gives_every_kind_of_answer(self, answer: object) -> None:
        """The stage turns each into the same patch."""
        with ScriptedAgent("plan", answer) as agent:
            result = await agent_stage(agent)(context())

        patch = result.baton_patch
        assert BatonPatch.model_validate(patch) == PLANNED

    async def test_instructions_and_prompt_can_be_expected(self) -> None:
        """Everything that a model would get, including the findings of a rejected attempt."""
        expected = Expect(PLANNED, sees=["You plan.", "Add login", "too vague", "baton_patch"])
        with ScriptedAgent("plan", expected) as agent:
            await agent_stage(agent, instructions="You plan.")(context(findings=["too vague"]))

    async def test_a_function_may_call_the_tools_and_charge(self) -> None:
        """The tools are the guarded ones, so calls are recorded."""

        async def answer(work: AgentWork) -> AgentAnswer:
            work.charge(Spend(micro_usd=500))
            tool, *_ = work.tools
            return AgentAnswer(patch={"current_state": [await tool.call({"customer": "c-1"})]})

        stage_context = context()
        with ScriptedAgent("plan", answer) as agent:
            result = await agent_stage(agent, tools=[look_up])(stage_context)

        assert result.baton_patch == {"current_state": ["c-1 pays 20 USD"]}
        assert stage_context.charged == Spend(micro_usd=500)
        assert [event.type for event in stage_context.session.events][:2] == [
            EventType.TOOL_CALL,
            EventType.TOOL_RESULT,
        ]

    async def test_an_unusable_text_is_rejected_by_the_stage(self) -> None:
        """As when a real model answers in prose."""
        with pytest.raises(PatchError):
            await agent_stage(ScriptedAgent("plan", "I am done!"))(context())

    async def test_an_answer_of_another_type_is_a_mistake_in_the_script(self) -> None:
        """The message names the accepted types."""
        with pytest.raises(TypeError, match="answers with int; expected an AgentAnswer"):
            await agent_stage(ScriptedAgent("plan", 7))(context())


class TestScripts:
    """`Scripts`."""

    def test_all_failures_are_reported_at_once(self) -> None:
        """Not only the first agent's."""
        scripts = Scripts()
        scripts.agent("plan", PLANNED)
        scripts.stage(agent_stage(ScriptedAgent("review")), PLANNED, PLANNED)

        with pytest.raises(ScriptError, match=r"'plan' was called 0 times.*\n'review' was called 0 times"):
            scripts.assert_used_up()
        assert scripts.prompts == {"plan": [], "review": []}


class Real:
    """A real agent, with a tool, a bill and thoughts of its own."""

    name = "plan"

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Look something up and answer."""
        self.runs += 1
        tool, *_ = work.tools
        result = await tool.call({"customer": "c-1"})
        work.context.session.brainstorm("What if it were free?")
        work.context.session.decision("Keep the price")
        work.charge(Spend(micro_usd=500, prompt_tokens=100))
        return AgentAnswer(patch={"current_state": [result]}, spend=Spend(micro_usd=20), said=("I looked it up.",))


@dataclass
class Priced:
    """What an agent's own code may return."""

    since: date


class TestRecordedAgent:
    """`RecordedAgent`."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        """Return where the cassette is."""
        return tmp_path / "plan.json"

    async def test_a_replay_equals_its_recording(self, file: Path) -> None:
        """Answer, bill and session are the same, and the agent runs once."""
        real, recording, replaying = Real(), context(), context()

        first = await agent_stage(RecordedAgent(real, Cassette(file, record=True)), tools=[look_up])(recording)
        second = await agent_stage(RecordedAgent(real, Cassette(file)), tools=[look_up])(replaying)

        assert real.runs == 1
        assert first == second
        assert recording.charged == replaying.charged == Spend(micro_usd=520, prompt_tokens=100)
        assert told(recording) == told(replaying)
        assert "brainstorm" in {kind for kind, *_ in told(replaying)}

    async def test_notes_are_replayed(self, file: Path) -> None:
        """Those of the answer and those that the agent made by tools."""

        async def answer(work: AgentWork) -> AgentAnswer:
            await next(tool for tool in work.tools if tool.name == "open_question").call({"text": "Since when?"})
            return work.read({"output": 20, "decided": ["Keep the price, because it is low"]})

        for record in (True, False):
            agent = RecordedAgent(ScriptedAgent("plan", answer), Cassette(file, record=record))
            result = await agent_stage(agent, tools=[look_up], answers=int)(context())

            assert result.output_as(int) == 20
            assert result.baton_patch == {
                "decision_log": ["Keep the price, because it is low"],
                "open_questions": ["Since when?"],
            }

    async def test_what_the_agents_own_code_returns_is_recorded_as_json(self, file: Path) -> None:
        """Including records and dates, which its stage accepts."""
        answer = AgentAnswer(patch={"current_state": ["Priced"]}, output=Priced(date(2026, 1, 1)))
        for record in (True, False):
            agent = RecordedAgent(ScriptedAgent("plan", answer), Cassette(file, record=record))
            result = await agent_stage(agent)(context())

            assert result.baton_patch == {"current_state": ["Priced"]}
            assert result.output == {"since": "2026-01-01"}

    async def test_an_invalid_recording_is_reported_with_its_file(self, file: Path) -> None:
        """Not only with the missing member."""
        cassette = Cassette(file, record=True)
        await agent_stage(RecordedAgent(Real(), cassette), tools=[look_up])(context())
        cassette.recordings[0].answer = {"patch": {}}
        cassette.save()

        with pytest.raises(ValueError, match=r"'plan.*' cannot be read \(KeyError: 'spend'\); record it again"):
            await agent_stage(RecordedAgent(Real(), Cassette(file)), tools=[look_up])(context())

    @pytest.mark.parametrize(
        ("instructions", "goal", "tool", "difference"),
        [
            pytest.param("You plan well.", "Add login", "look_up", "+You plan well.", id="other instructions"),
            pytest.param("You plan.", "Add logout", "look_up", r"+\*\*Goal:\*\* Add logout", id="another prompt"),
            pytest.param("You plan.", "Add login", "find", "+- find: Find what", id="another tool"),
        ],
    )
    async def test_whatever_the_agent_is_asked_is_part_of_the_key(
        self, file: Path, instructions: str, goal: str, tool: str, difference: str
    ) -> None:
        """An answer to another question proves nothing."""
        await agent_stage(
            RecordedAgent(Real(), Cassette(file, record=True)), instructions="You plan.", tools=[look_up]
        )(context())

        async def renamed(customer: str) -> str:
            """Find what a customer pays."""
            return customer

        renamed.__name__ = tool
        with pytest.raises(CassetteMissError, match=difference.replace("+", r"\+", 1)):
            await agent_stage(RecordedAgent(Real(), Cassette(file)), instructions=instructions, tools=[renamed])(
                context(goal)
            )


def told(stage_context: StageContext[Baton]) -> list[tuple[str, str, str | None, bool | None, str | None]]:
    """Return the events of a session without their times."""
    return [
        (event.type.value, event.content, event.tool_name, event.success, event.call_id)
        for event in stage_context.session.events
    ]
