"""What is new between two readings of a run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from baton.client import RunRecord, RunStatus, Step, StepStatus
from baton.core.baton import Baton
from baton.core.history import HistoryEntry, Outcome, StepKind
from baton.core.messages import PipelineInput
from baton.core.state import PipelineState
from baton.runs.client_events import Timer
from baton.runs.client_news import News, NewsKind, news_of
from baton.runs.client_record import Note

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return the moment that many seconds after the run began."""
    return BEGAN + timedelta(seconds=seconds)


def step(seq: int, status: StepStatus = StepStatus.DONE, **members: Any) -> Step:
    """Return a step that takes a second, the ``seq``-th of them."""
    ended = None if status is StepStatus.RUNNING else at(seq)
    return replace(Step(seq, f"stage{seq}", StepKind.STAGE, status, at(seq - 1), ended), **members)


def run(*steps: Step, id: str = "run-1", recorded: float = 0, **members: Any) -> RunRecord:
    """Return a run with these steps; ``recorded`` is by how much later the workflow recorded what they changed."""
    state = PipelineState(Baton(goal="Add login"))
    for one in steps:
        if one.status in (StepStatus.DONE, StepStatus.TAKEN_OVER):
            entry = HistoryEntry(
                seq=one.seq,
                stage_id=one.name,
                timestamp=at(one.seq + recorded),
                patch={"decision_log": [f"by {one.name}"]},
            )
            state.restore(Outcome(seq=one.seq, order=len(state.outcomes), name=one.name, entries=[entry]))
    start = PipelineInput(goal="Add login")
    return RunRecord("w", id, "Delivery", start, state, steps=[*steps], began=BEGAN, **members)


def told(before: RunRecord | None, after: RunRecord, **members: Any) -> list[tuple[str, int | None]]:
    """Return what is new, by kind and step."""
    news: list[News] = news_of(before, after, at(100), **members)
    return [(one.kind.value, one.step.seq if one.step else None) for one in news]


class TestNewsOf:
    """From one reading to the next."""

    def test_the_first_reading_tells_everything_in_order(self) -> None:
        """Who joins late hears the whole story: what was done, and what is under way.

        Proves S1-design-i: how understanding evolved can be followed step by step.
        """
        assert told(None, run(step(1), step(2), step(3, StepStatus.RUNNING))) == [
            ("run_started", None),
            ("step_done", 1),
            ("step_done", 2),
            ("step_started", 3),
        ]

    def test_a_fan_out_that_failed_is_told_once_though_its_other_branch_ends_later(self) -> None:
        """Its time is the last branch's; one that began anew and failed again is told again."""
        fails = {"kind": StepKind.MERGE, "failure": "the model is gone"}
        before = run(step(1, StepStatus.FAILED, **fails))
        later = {**fails, "failure": "'fail' failed: the model is gone", "ended": at(1.5)}

        assert told(before, run(step(1, StepStatus.FAILED, **later))) == []
        assert told(before, run(step(1, StepStatus.FAILED, **later, began=at(1)))) == [("step_failed", 1)]

    def test_nothing_is_told_twice(self) -> None:
        """The same reading again is no news."""
        assert told(run(step(1)), run(step(1))) == []

    @pytest.mark.parametrize(
        ("before", "after", "news"),
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
    def test_a_step_goes_its_way(self, before: list[Step], after: list[Step], news: list[tuple[str, int]]) -> None:
        """Each change of a step is told once."""
        assert told(run(*before), run(*after)) == news

    def test_a_failure_that_the_workflow_says_in_its_own_words_is_no_second_one(self) -> None:
        """What failed anew, or for another reason, is."""
        failed = step(1, StepStatus.FAILED, failure="OSError: no")
        worded = step(1, StepStatus.FAILED, failure="stage 'stage1' failed: OSError: no")

        assert told(run(failed), run(worded)) == []
        assert told(run(failed), run(replace(failed, failure="OSError: yes"))) == [("step_failed", 1)]
        assert told(run(failed), run(replace(worded, ended=at(9)))) == [("step_failed", 1)]

    def test_a_handoff_that_waits_is_told_once_with_its_reason(self) -> None:
        """And again if the same step's next handoff waits."""
        stuck = step(2, StepStatus.RUNNING, failure="its handoff was not accepted")
        before = run(step(1), stuck)
        held = Timer("step 2: deadline of handoff f47ac10b", at(3), at(60))
        after = run(step(1), stuck, timers=[Timer("cooling down", at(3), at(60)), held])

        assert told(before, after) == [("handoff_waits", 2)]
        assert news_of(before, after, at(100))[0].text == "its handoff was not accepted"
        assert told(after, after) == told(after, before) == []
        again = run(step(1), stuck, timers=[replace(held, name="step 2: deadline of handoff 9b1deb4d")])
        assert told(after, again) == [("handoff_waits", 2)]
        unsent = replace(held, name="step 2: deadline of handoff f47ac10b: top up, BUDGET_EXHAUSTED")
        assert news_of(run(step(1)), run(step(1), timers=[unsent]), at(100))[0].text == "top up, BUDGET_EXHAUSTED"

    def test_code_that_cannot_go_on_is_told_once_for_each_reason(self) -> None:
        """A run that is suspended is news, that it still is none; what it goes on with tells the rest."""
        going, stuck = run(step(1)), run(step(1), suspended="no such pipeline")

        assert told(going, stuck) == [("run_suspended", None)]
        assert told(stuck, stuck) == told(stuck, going) == []
        assert told(stuck, run(step(1), suspended="another reason")) == [("run_suspended", None)]

    def test_the_end_comes_last(self) -> None:
        """A run's end is told after the step that ended it, with its reason."""
        before = run(step(1, StepStatus.RUNNING))
        after = run(step(1, StepStatus.FAILED, failure="no"), status=RunStatus.FAILED, failure="no", ended=at(0.5))

        assert told(before, after) == [("step_failed", 1), ("run_ended", None)]
        assert news_of(before, after, at(100))[-1].text == "FAILED: no"

    def test_a_roll_back_undoes_steps_and_repeats_none(self) -> None:
        """What the new run kept is no news, though the reset gave the last of it another time of recording."""
        left = run(step(1), step(2), step(3), status=RunStatus.TERMINATED, ended=at(5))
        again, note = step(2, StepStatus.RUNNING, began=at(6)), Note(at(5.5), "rolled back by ann")
        gone_on = run(step(1), again, id="run-2", recorded=5, reset=note.at, notes=[note])

        assert told(left, gone_on) == [
            ("run_goes_on", None),
            ("step_undone", 2),
            ("step_undone", 3),
            ("note", None),
            ("step_started", 2),
        ]
        assert {one.at for one in news_of(left, gone_on, at(100))[:4]} == {at(5.5)}

    def test_a_roll_back_is_told_once_though_the_run_that_continues_has_its_note_as_well(self) -> None:
        """The reset's own event says more than what is handed on."""
        left = run(step(1), notes=[Note(BEGAN, "reset from run run-0: rolled back by ann")], next_run_id="run-2")

        assert told(left, run(step(1), id="run-2", notes=[Note(BEGAN, "rolled back by ann")])) == [
            ("run_goes_on", None)
        ]

    def test_a_step_done_again_after_a_roll_back_is_told_again(self) -> None:
        """Even if it changed the same as the first time."""
        left = run(step(1), step(2), status=RunStatus.TERMINATED, ended=at(5))
        again = run(step(1), step(2, began=at(6), ended=at(7)), id="run-2")

        assert ("step_done", 2) in told(left, again)
        assert ("step_done", 1) not in told(left, again)

    def test_a_run_that_continues_as_new_repeats_nothing(self) -> None:
        """The outcomes it was handed are the steps that were told already."""
        left = run(step(1), step(2), status=RunStatus.CONTINUED_AS_NEW, ended=at(3), next_run_id="run-2")
        gone_on = run(
            step(1, StepStatus.TAKEN_OVER), step(2, StepStatus.TAKEN_OVER), id="run-2", previous_run_id="run-1"
        )

        assert told(run(step(1)), left, goes_on=True) == [("step_done", 2)]
        assert told(left, gone_on) == [("run_goes_on", None)]

    def test_a_fork_tells_what_it_took_over_in_one_line(self) -> None:
        """Those steps happened in another run."""
        news = news_of(None, run(step(1, StepStatus.TAKEN_OVER), step(2)), at(100))

        assert [one.kind for one in news] == [NewsKind.RUN_STARTED, NewsKind.TAKEN_OVER, NewsKind.STEP_DONE]
        assert news[1].text == "1 stage1"


class TestToJsonObject:
    """News as JSON."""

    def test_it_has_what_there_is_to_say_and_no_more(self) -> None:
        """A program that follows a run needs no knowledge of our classes."""
        [_, done] = news_of(None, run(step(1)), at(100))

        told = done.to_json_object()
        assert {name: told[name] for name in told if name != "entries"} == {
            "what": "step_done",
            "at": "2026-11-21T12:00:01+00:00",
            "seq": 1,
            "name": "stage1",
            "kind": "stage",
            "attempts": 1,
            "seconds": 1.0,
        }
        assert told["entries"][0]["patch"] == {"decision_log": ["by stage1"]}
