"""The news between two readings of a run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from baton import Baton, HistoryEntry, Outcome, PipelineInput, StepKind
from baton.client import PendingHandoff, Question, RunRecord, RunStatus, Step, StepStatus
from baton.client.faces import describe_news
from baton.core.state import PipelineState
from baton.runs.client_events import Timer
from baton.runs.client_news import News, NewsKind, Reading, compare
from baton.runs.client_record import Note

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return the time that many seconds after the run began."""
    return BEGAN + timedelta(seconds=seconds)


def step(seq: int, status: StepStatus = StepStatus.DONE, **members: Any) -> Step:
    """Return a step that takes one second, the ``seq``-th second."""
    ended = None if status is StepStatus.RUNNING else at(seq)
    return replace(Step(seq, f"stage{seq}", StepKind.STAGE, status, at(seq - 1), ended), **members)


def run(*steps: Step, id: str = "run-1", recorded: float = 0, **members: Any) -> RunRecord:
    """Return a run with these steps; ``recorded`` delays the times of their entries."""
    state = PipelineState(Baton(goal="Add login"))
    for item in steps:
        if item.status in (StepStatus.DONE, StepStatus.REUSED):
            entry = HistoryEntry(
                seq=item.seq,
                stage_id=item.name,
                timestamp=at(item.seq + recorded),
                patch={"decision_log": [f"by {item.name}"]},
            )
            state.restore(Outcome(seq=item.seq, order=len(state.outcomes), name=item.name, entries=[entry]))
    start = PipelineInput(goal="Add login")
    return RunRecord("w", id, "Delivery", start, state, steps=[*steps], began=BEGAN, **members)


def news_of(previous: RunRecord | None, current: RunRecord) -> list[News]:
    """Return the news from one whole reading to the next."""
    return compare(Reading.of(previous) if previous else None, Reading.of(current), at(100))


def news_between(previous: RunRecord | None, current: RunRecord) -> list[tuple[str, int | None]]:
    """Return the news, by kind and step."""
    return [(piece.kind.value, piece.step.seq if piece.step else None) for piece in news_of(previous, current)]


class TestCompare:
    """From one reading to the next."""

    def test_the_first_reading_has_all_news_in_order(self) -> None:
        """A late follower gets everything: what was done, and what is under way.

        Proves S1-design-i: how understanding evolved can be followed step by step.
        """
        assert news_between(None, run(step(1), step(2), step(3, StepStatus.RUNNING))) == [
            ("run_started", None),
            ("step_done", 1),
            ("step_done", 2),
            ("step_started", 3),
        ]

    def test_a_failed_fan_out_is_news_once_though_another_branch_ends_later(self) -> None:
        """Its end is the last branch's; a fan-out that started over and failed again is news again."""
        fails = {"kind": StepKind.MERGE, "failure": "the model is gone"}
        previous = run(step(1, StepStatus.FAILED, **fails))
        later = {**fails, "failure": "'fail' failed: the model is gone", "ended": at(1.5)}

        assert news_between(previous, run(step(1, StepStatus.FAILED, **later))) == []
        assert news_between(previous, run(step(1, StepStatus.FAILED, **later, began=at(1)))) == [("step_failed", 1)]

    def test_the_same_reading_has_no_news(self) -> None:
        """Nothing is repeated."""
        assert news_between(run(step(1)), run(step(1))) == []

    @pytest.mark.parametrize(
        ("old_steps", "new_steps", "news"),
        [
            pytest.param([], [step(1, StepStatus.RUNNING)], [("step_started", 1)], id="a step begins"),
            pytest.param([step(1, StepStatus.RUNNING)], [step(1)], [("step_done", 1)], id="it is done"),
            pytest.param([], [step(1)], [("step_done", 1)], id="it began and is done at once"),
            pytest.param(
                [step(1, StepStatus.RUNNING)],
                [step(1, StepStatus.RUNNING, attempts=2)],
                [("step_refused", 1)],
                id="its patch is refused and it tries again",
            ),
            pytest.param(
                [step(1, StepStatus.RUNNING)],
                [step(1, StepStatus.FAILED, failure="no")],
                [("step_failed", 1)],
                id="it fails",
            ),
        ],
    )
    def test_each_change_of_a_step_is_news(
        self, old_steps: list[Step], new_steps: list[Step], news: list[tuple[str, int]]
    ) -> None:
        """And none is repeated."""
        assert news_between(run(*old_steps), run(*new_steps)) == news

    def test_a_failure_with_the_workflows_prefix_is_not_news_again(self) -> None:
        """A new failure, or another reason, is."""
        failed = step(1, StepStatus.FAILED, failure="OSError: no")
        worded = step(1, StepStatus.FAILED, failure="stage 'stage1' failed: OSError: no")

        assert news_between(run(failed), run(worded)) == []
        assert news_between(run(failed), run(replace(failed, failure="OSError: yes"))) == [("step_failed", 1)]
        assert news_between(run(failed), run(replace(worded, ended=at(9)))) == [("step_failed", 1)]

    def test_a_waiting_handoff_is_news_once_with_its_reason(self) -> None:
        """And again if the same step's next handoff waits."""
        stuck = step(2, StepStatus.RUNNING, failure="its handoff was not accepted")
        previous = run(step(1), stuck)
        timer = Timer("step 2: deadline of handoff f47ac10b to score: rejected", at(3), at(60))
        current = run(step(1), stuck, timers=[Timer("cooling down", at(3), at(60)), timer])

        assert news_between(previous, current) == [("handoff_waits", 2)]
        assert news_of(previous, current)[0].text == "its handoff was not accepted"
        assert news_between(current, current) == news_between(current, previous) == []
        renamed = replace(timer, name="step 2: deadline of handoff 9b1deb4d to score: rejected")
        rewaiting = run(step(1), stuck, timers=[renamed])
        assert news_between(current, rewaiting) == [("handoff_waits", 2)]
        unsent = replace(timer, name="step 2: deadline of handoff f47ac10b to score: top up, BUDGET_EXHAUSTED")
        assert news_of(run(step(1)), run(step(1), timers=[unsent]))[0].text == "top up, BUDGET_EXHAUSTED"

    def test_what_is_asked_is_with_its_news(self) -> None:
        """Programs need its id, the people and the deadline; a handoff that was never sent has no step to name."""
        members = {"handoff_id": "f47ac10b", "seq": 2, "sender": "plan", "receiver": "score", "fate": "top_up"}
        pending = PendingHandoff.model_validate({**members, "details": "no money"})
        asked = [
            Question(
                id=f"{seq}:a", seq=seq, title=title, since=at(3), until=at(60), choices=[], who=["ann"], handoff=of
            )
            for seq, title, of in ((1, "gate", None), (2, "plan → score", pending))
        ]
        timer = Timer("step 2: deadline of handoff f47ac10b to score: top up, BUDGET_EXHAUSTED", at(3), at(60))
        current = run(step(1, StepStatus.RUNNING, kind=StepKind.APPROVAL), timers=[timer], asked=asked)

        [_, gate, handoff] = news_of(None, current)

        assert gate.to_json_object()["question"] == {
            "id": "1:a",
            "title": "gate",
            "who": ["ann"],
            "needs": 1,
            "until": at(60).isoformat().replace("+00:00", "Z"),
        }
        assert (handoff.step, handoff.text, handoff.question) == (None, "no money", asked[1])
        assert describe_news(handoff, current).startswith("2 score: ")

    def test_an_agent_outside_is_news_once(self) -> None:
        """Nobody else says in the news that a run waits for it."""
        current = run(timers=[Timer("answer of reviewer outside", at(3), at(60))])

        assert news_between(run(), current) == [("waits_outside", None)]
        assert "reviewer" in news_of(run(), current)[0].text
        assert news_between(current, current) == []

    def test_a_suspension_is_news_once_for_each_reason(self) -> None:
        """That it is still suspended, or continues, is not."""
        running, stuck = run(step(1)), run(step(1), suspended="no such pipeline")

        assert news_between(running, stuck) == [("run_suspended", None)]
        assert news_between(stuck, stuck) == news_between(stuck, running) == []
        assert news_between(stuck, run(step(1), suspended="another reason")) == [("run_suspended", None)]

    def test_the_end_comes_last(self) -> None:
        """A run's end follows the step that ended it, with its reason."""
        previous = run(step(1, StepStatus.RUNNING))
        current = run(step(1, StepStatus.FAILED, failure="no"), status=RunStatus.FAILED, failure="no", ended=at(0.5))

        assert news_between(previous, current) == [("step_failed", 1), ("run_ended", None)]
        assert news_of(previous, current)[-1].text == "FAILED: no"

    def test_a_roll_back_undoes_steps_and_repeats_none(self) -> None:
        """Kept steps are not news, though the reset changed the last one's time of recording."""
        abandoned = run(step(1), step(2), step(3), status=RunStatus.TERMINATED, ended=at(5))
        repeated, note = step(2, StepStatus.RUNNING, began=at(6)), Note(at(5.5), "rolled back by ann")
        current = run(step(1), repeated, id="run-2", recorded=5, reset=note.at, notes=[note])

        assert news_between(abandoned, current) == [
            ("run_replaced", None),
            ("step_undone", 2),
            ("step_undone", 3),
            ("note", None),
            ("step_started", 2),
        ]
        assert {piece.at for piece in news_of(abandoned, current)[:4]} == {at(5.5)}

    def test_a_roll_back_is_news_once_though_the_continuing_run_has_its_note_too(self) -> None:
        """The reset event's note is the longer one."""
        continued = run(step(1), notes=[Note(BEGAN, "reset from run run-0: rolled back by ann")], next_run_id="run-2")

        assert news_between(continued, run(step(1), id="run-2", notes=[Note(BEGAN, "rolled back by ann")])) == [
            ("run_replaced", None)
        ]

    def test_a_step_done_again_after_a_roll_back_is_news_again(self) -> None:
        """Even if it made the same changes as before."""
        abandoned = run(step(1), step(2), status=RunStatus.TERMINATED, ended=at(5))
        current = run(step(1), step(2, began=at(6), ended=at(7)), id="run-2")

        assert ("step_done", 2) in news_between(abandoned, current)
        assert ("step_done", 1) not in news_between(abandoned, current)

    def test_a_run_that_continues_as_new_repeats_nothing(self) -> None:
        """The outcomes of its input are known steps."""
        continued = run(step(1), step(2), status=RunStatus.CONTINUED_AS_NEW, ended=at(3), next_run_id="run-2")
        current = run(step(1, StepStatus.REUSED), step(2, StepStatus.REUSED), id="run-2", previous_run_id="run-1")

        assert news_between(continued, current) == [("run_replaced", None)]

    def test_a_fork_lists_the_steps_it_took_over_in_one_piece(self) -> None:
        """These steps happened in another run."""
        news = news_of(None, run(step(1, StepStatus.REUSED), step(2)))

        assert [piece.kind for piece in news] == [NewsKind.RUN_STARTED, NewsKind.REUSED, NewsKind.STEP_DONE]
        assert news[1].text == "1 stage1"


class TestToJsonObject:
    """News as JSON."""

    def test_empty_members_are_left_out(self) -> None:
        """A program needs no knowledge of our classes."""
        [_, step_done] = news_of(None, run(step(1)))

        document = step_done.to_json_object()
        assert {name: document[name] for name in document if name != "entries"} == {
            "what": "step_done",
            "at": "2026-11-21T12:00:01Z",
            "seq": 1,
            "name": "stage1",
            "kind": "stage",
            "attempts": 1,
            "seconds": 1.0,
        }
        assert document["entries"][0]["patch"] == {"decision_log": ["by stage1"]}
