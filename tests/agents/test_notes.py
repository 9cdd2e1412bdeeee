"""The notes that close a text answer: the baton travels without a request more."""

import pytest

from baton import Baton, PatchError, StageContext, StageResult, apply_patch, estimate_tokens
from baton.agents import AgentAnswer, AgentWork, AnswerForm, Notes, agent_stage
from baton.agents.notes import INSTRUCTIONS
from baton.contract.records import EventType
from baton.core.notes import split_notes
from baton.pipelines.activity_stream import StageStream
from tests.agents.material import contract

OPENING = "```baton"
TEXT = "Handoffs are where batons fall."
BLOCK = """```baton
decided: Be brief, because it is a note (rejected: a long essay)
done: The draft is written
fact: Teams drop 3 of 100 batons (source: races.csv:12)
must: Never name a runner
open: Who reads it?
rejected: Leave the numbers out
thought: What if we skip the compliance check?
```"""
BATON = Baton(goal="Write", constraints=["British spelling"], current_state=[f"{n}" for n in range(8)])


class Says:
    """An agent whose model said something."""

    name = "says"

    def __init__(self, text: str) -> None:
        self._text = text
        self.asked = ""

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer."""
        self.asked = work.user_turn()
        return work.read(self._text)


async def answered(text: str, baton: Baton = BATON, **terms: object) -> StageResult:
    """Return the result of a stage whose agent said this."""
    return await agent_stage(Says(text), answers=AnswerForm.TEXT, **terms)(StageContext.for_test(baton))  # type: ignore[arg-type]


async def test_they_become_the_patch_and_are_no_part_of_the_output() -> None:
    """Decisions are appended, rules and questions added; rejected ideas and thoughts do not cross."""
    result = await answered(f"{TEXT}\n\n{BLOCK}\n")

    assert (result.output, result.warnings) == (TEXT, [])
    assert result.baton_patch == {
        "current_state": [*"01234567", "Teams drop 3 of 100 batons (source: races.csv:12)", "The draft is written"],
        "decision_log": ["Be brief, because it is a note (rejected: a long essay)"],
        "constraints": ["British spelling", "Never name a runner"],
        "open_questions": ["Who reads it?"],
    }
    assert "compliance" not in str(result.baton_patch)


async def test_they_change_only_what_the_stage_may_write() -> None:
    """A stage that writes one field hands on the notes of that field."""
    result = await answered(f"{TEXT}\n{BLOCK}", writes=["decision_log"])

    assert list(result.baton_patch) == ["decision_log"]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("", id="none"),
        pytest.param(f"{OPENING}\n```", id="empty"),
        pytest.param(f"{OPENING}\ndecided: Be brief", id="cut off"),
        pytest.param(f"{OPENING}\nverdict: good\n```", id="an unknown key"),
        pytest.param(f"{OPENING}\ndecided:\n```", id="a key alone"),
        pytest.param(f"{OPENING}\nBe brief\n```", id="no key"),
        pytest.param(f"{OPENING}\ndecided: {'x' * 2_000}\n```", id="too long"),
        pytest.param(f"{OPENING}\n" + "done: it\n" * 70 + "```", id="too many"),
    ],
)
async def test_without_them_the_work_is_kept(block: str) -> None:
    """The history says so, and only `notes="required"` asks again."""
    result = await answered(f"{TEXT}\n\n{block}")

    assert (str(result.output).strip(), result.baton_patch, result.warnings) == (TEXT, {}, ["left no reasons"])
    with pytest.raises(PatchError, match="no notes"):
        await answered(f"{TEXT}\n\n{block}", notes="required")


async def test_a_stage_that_writes_nothing_is_not_asked() -> None:
    """It could hand none of them on."""
    agent = Says(TEXT)
    result = await agent_stage(agent, answers=AnswerForm.TEXT, writes=[])(StageContext.for_test(BATON))

    assert (OPENING in agent.asked, result.warnings) == (False, [])


async def test_they_can_be_left_out() -> None:
    """Then a block is text like any other, and nothing is asked for."""
    agent = Says(f"{TEXT}\n\n{BLOCK}")
    result = await agent_stage(agent, answers=AnswerForm.TEXT, notes=False)(StageContext.for_test(BATON))

    assert (result.output, result.baton_patch, result.warnings) == (f"{TEXT}\n\n{BLOCK}", {}, [])
    assert OPENING not in agent.asked


def test_a_block_inside_a_text_stays() -> None:
    """Only the end of an answer is a closing block."""
    text = f"Write this:\n{BLOCK}\nThat is all."

    assert split_notes(text) == (text, None)
    assert split_notes(f"{text}\n{BLOCK}")[0] == text


async def test_no_fact_is_dropped_until_there_are_many_and_then_the_history_says_so() -> None:
    """The oldest leave. The state that a run begins with leaves with the first fact, for it is no longer true."""
    begun = Baton(goal="Write", current_state=["Workflow starting"])
    first = await answered(f"{TEXT}\n\n{Notes(facts=[f'Fact {n}' for n in range(30)]).render()}", begun)
    baton = apply_patch(begun, first.baton_patch)
    second = await answered(f"{TEXT}\n\n{Notes(facts=[f'Fact {n}' for n in range(25, 50)]).render()}", baton)

    assert (first.warnings, baton.current_state) == ([], [f"Fact {n}" for n in range(30)])
    assert second.baton_patch == {"current_state": [f"Fact {n}" for n in range(2, 50)]}
    assert second.warnings == ["current_state: the 2 oldest entries left the baton; the history has them"]


@pytest.mark.parametrize("closing", [pytest.param(BLOCK, id="notes"), pytest.param("", id="none")])
async def test_nothing_that_was_said_on_the_way_is_a_fact(closing: str) -> None:
    """What a model says beside its answer is on record as talk, also where no notes say what crosses."""

    class Thinks(Says):
        async def run(self, work: AgentWork) -> AgentAnswer:
            work.context.session.model_response("The queue is the bottleneck")
            return await super().run(work)

    stage_context = StageContext.for_test(BATON, contract=contract())
    await agent_stage(Thinks(f"{TEXT}\n\n{closing}"), answers=AnswerForm.TEXT)(stage_context)
    said = [event.type for event in stage_context.session.events if event.content == "The queue is the bottleneck"]

    assert said == [EventType.ASSISTANT_MESSAGE]
    assert EventType.LLM_RESPONSE not in {event.type for event in stage_context.session.events}


def test_an_entry_that_is_there_is_not_repeated() -> None:
    """Neither are equal notes."""
    notes = Notes(must=["British spelling", "Be kind", "Be kind"], done=["7"])

    assert notes.patch(BATON, None) == {"constraints": ["British spelling", "Be kind"]}


def test_asking_for_them_is_cheap() -> None:
    """At most 150 tokens of prompt, and no request."""
    assert estimate_tokens(INSTRUCTIONS) <= 150


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(f"{TEXT}\n\n{BLOCK}", f"{TEXT}\n\n", id="a closing block"),
        pytest.param(f"{TEXT} \n\n", f"{TEXT} \n\n", id="no block"),
        pytest.param(f"{TEXT}\n\n{BLOCK}\nMore.", f"{TEXT}\n\nMore.", id="text after it"),
        pytest.param("```py\nx = 1\n```", "```py\nx = 1\n```", id="other code"),
        pytest.param("```batons\nx\n```", "```batons\nx\n```", id="another language"),
        pytest.param(f"{TEXT}\n{OPENING}", f"{TEXT}\n", id="its first line"),
        pytest.param(f"{TEXT}\n{OPENING}\ndecided: x", f"{TEXT}\n", id="half of it"),
        pytest.param("Use ```baton in it", "Use ```baton in it", id="within a line"),
    ],
)
def test_people_who_watch_do_not_see_the_block(text: str, shown: str, size: int) -> None:
    """In whatever pieces the text comes."""
    stream = StageStream(wanted=True, notify=lambda: None)
    stream.hide_block(OPENING)
    for start in range(0, len(text), size):
        stream.text(text[start : start + size])

    assert "".join(part["text"] for part in stream.to_json()) == shown  # type: ignore[misc]


def test_what_a_script_renders_is_read_back() -> None:
    """Every kind of note."""
    notes = split_notes(f"{TEXT}\n\n{BLOCK}")[1]

    assert notes is not None
    assert split_notes(f"{TEXT}\n\n{notes.render()}") == (TEXT, notes)
