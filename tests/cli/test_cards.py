"""What a page says of a run that does not go on by itself."""

import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from baton import Baton, Budget, Exhibit, PipelineResult, Spend, StepKind
from baton.cli.output import stack
from baton.cli.show import approval_rows, baton_rows, heading, output_rows, repair_hints, waits_card
from baton.client import Pending, Question, RunRecord, RunStatus, Step, StepStatus, Waits, standing
from baton.core.messages import PipelineInput
from baton.core.questions import approval_choices
from baton.core.state import PipelineState
from baton.runs.client_events import Timer
from baton.runs.client_waiting import Build, Unchosen

BEGAN = datetime.now(UTC).replace(microsecond=0)
UNTIL = BEGAN + timedelta(hours=1)
SCORE = Step(2, "score", StepKind.STAGE, StepStatus.RUNNING, BEGAN, failure="its handoff was not accepted: BUDGET")


def run(*steps: Step, **members: Any) -> RunRecord:
    state = PipelineState(Baton(goal="Add login"))
    start = PipelineInput(goal="Add login")
    return RunRecord("r-1", "run-1", "Delivery", start, state, steps=[*steps], began=BEGAN, **members)


def shown(row: RenderableType | None) -> list[str]:
    """Return the lines that a wide terminal shows."""
    file = StringIO()
    Console(file=file, width=200, highlight=False, markup=False, emoji=False).print(row or "")
    return [line.strip() for line in file.getvalue().splitlines()]


def hints(of: RunRecord) -> list[str]:
    """Return what one may do about a run."""
    return [hint.plain for hint in repair_hints(of)]


def waiting(*pending: Pending, tries: int = 1) -> Waits:
    """Return what the server says of a run that a worker has."""
    return Waits([*pending], "baton", has_worker=True, tries=tries)


class TestBaton:
    def test_the_state_that_no_stage_wrote_is_left_out(self) -> None:
        """A run that has ended is not shown as starting."""
        first = PipelineInput(goal="Add login", baton={"constraints": ["No new database"]}).first_baton()

        assert shown(stack(*baton_rows(first))) == ["Goal: Add login", "", "Constraints:", "· No new database"]
        assert shown(stack(*baton_rows(first.model_copy(update={"current_state": ["Planned"]}))))[2] == "Current State:"


class TestWaitsCard:
    def test_a_run_whose_build_has_no_workers_names_it_with_a_remedy(self) -> None:
        """Workers of other builds are polling, but do not get the run."""
        waits = Waits([], "baton", has_worker=False, build=Build("delivery", "2026-05-01"))

        text = " ".join(shown(waits_card(run(SCORE), waits)))

        assert "No worker of build 2026-05-01, to which the run is pinned" in text
        assert "--versioning-override-deployment-name delivery --versioning-override-build-id BUILD" in text
        assert f"baton rollback r-1 --to {SCORE.seq} --why" in text

    def test_a_run_that_waits_for_the_current_build_names_it(self) -> None:
        """Workers of another build get no runs."""
        unchosen = Waits([], "baton", has_worker=False, unchosen=Unchosen("delivery", "two", current="one"))

        text = shown(waits_card(run(), unchosen))

        assert "none is of the current build one, so none is given the run" in " ".join(text)
        assert text[-1].endswith("set-current-version --deployment-name delivery --build-id two")

    def test_a_waiting_handoff_replaces_its_stage(self) -> None:
        """The stage does not start before a decision."""
        record = run(SCORE, timers=[Timer("step 2: deadline of handoff f47ac10b to score: top up", BEGAN, UNTIL)])
        lines = shown(waits_card(record, waiting(Pending(2, "score", StepKind.STAGE, BEGAN))))

        assert lines[0].startswith("Waits for a person until ")
        assert lines[0].endswith("step 2 score needs a decision: BUDGET.")
        assert lines[1:] == ["baton inbox show r-1"]
        assert standing(record).status == "PENDING_HANDOFF"

    def test_a_handoff_that_was_never_sent_has_its_reason(self) -> None:
        """Its step is not in the history yet."""
        record = run(timers=[Timer("step 2: deadline of handoff f47ac10b to score: top up", BEGAN, UNTIL)])

        assert shown(waits_card(record, waiting()))[0].endswith("the handoff to step 2 score needs a decision: top up.")

    def test_a_sleep_is_shown_once(self) -> None:
        """With its purpose and its end; its timer is not listed again."""
        pending = Pending(2, "until the next look", StepKind.SLEEP, BEGAN, UNTIL)
        timer = Timer("step 2: sleeps: until the next look", BEGAN, UNTIL)
        [line] = shown(waits_card(run(timers=[timer]), waiting(pending)))
        assert line.startswith("Sleeps in step 2 until the next look until ")

    def test_other_timers_are_shown_by_name(self) -> None:
        """The answer of another pipeline, or a pipeline's own pause; an approval shows its own deadline."""
        timers = [
            Timer("answer to handoff f47ac10b, attempt 1", BEGAN, UNTIL),
            Timer("", BEGAN, UNTIL),
            Timer("step 3: deadline of approval release", BEGAN, UNTIL),
        ]
        lines = shown(waits_card(run(timers=timers), waiting()))

        assert [line.partition(", until")[0] for line in lines] == [
            "Waits for answer to handoff f47ac10b, attempt 1",
            "Waits for a timer",
        ]

    def test_a_child_is_shown_with_its_status_and_a_command(self) -> None:
        """What it waits for is in its own run."""
        step = Step(2, "Research", StepKind.CHILD, StepStatus.RUNNING, BEGAN)
        child = "r-1.Research.step2.89327917"

        def lines(stands: str) -> list[str]:
            pending = Pending(2, "Research", StepKind.CHILD, BEGAN, run=child, child_status=stands)
            return shown(waits_card(run(step), waiting(pending)))

        assert lines("SUSPENDED") == [
            "Waits for the child of step 2 Research, which is SUSPENDED.",
            f"baton show {child}",
        ]


class TestHeading:
    def test_a_suspended_run_shows_how_often_it_failed(self) -> None:
        """With the worker's reason, and what follows from it."""
        stuck = run(suspended="NotFoundError: no such pipeline")
        lines = shown(heading(stuck, waiting(tries=4)))

        assert lines[0] == "Delivery  r-1  SUSPENDED"
        assert "its worker's code has failed 4 times: NotFoundError: no such pipeline. It continues" in lines[-1]
        assert "failed: NotFound" in shown(heading(stuck))[-1]

    @pytest.mark.parametrize(
        ("status", "why", "text"),
        [
            (RunStatus.FAILED, "StageFailedError: no", "Failed: StageFailedError: no."),
            (RunStatus.TERMINATED, "not needed any more", "Terminated: not needed any more."),
            (RunStatus.CANCELED, "not needed (by ann)", "Canceled: not needed (by ann)."),
        ],
    )
    def test_a_terminated_run_has_not_failed(self, status: RunStatus, why: str, text: str) -> None:
        """The reason of the termination is not shown as a failure."""
        assert shown(heading(run(status=status, failure=why, ended=UNTIL)))[-1].startswith(text)

    def test_the_duration_of_a_rolled_back_run_counts_from_the_roll_back(self) -> None:
        """As in `baton list`."""
        record = run(reset=UNTIL, ended=UNTIL + timedelta(seconds=2), status=RunStatus.COMPLETED)

        assert re.search(r" · reset .*\d\d:\d\d:\d\d · took 2\.0 s · ", shown(heading(record))[2])
        assert standing(record).sentence == "Completed: 0 steps in 2.0 s."


class TestRepairHints:
    def test_they_name_the_step_that_failed_the_run(self) -> None:
        """Not an earlier failure that the pipeline handled."""
        steps = [
            Step(1, "by_model", StepKind.STAGE, StepStatus.FAILED, failure="RuntimeError: the model is down"),
            Step(2, "by_rules", StepKind.STAGE, StepStatus.DONE),
            Step(3, "send", StepKind.STAGE, StepStatus.FAILED, failure="RuntimeError: the post is shut"),
            Step(4, "file", StepKind.STAGE, StepStatus.FAILED, failure="canceled by the pipeline"),
            Step(5, "call_off", StepKind.STAGE, StepStatus.FAILED, failure="RuntimeError: the post is shut"),
        ]
        why = "StageFailedError: stage 'send' failed: RuntimeError: the post is shut"

        again, anew = hints(run(*steps, status=RunStatus.FAILED, failure=why))

        assert "baton rollback r-1 --to 3 " in again
        assert "baton fork r-1 --at 3 " in anew
        [again, _] = hints(run(*steps, status=RunStatus.FAILED, failure="ValueError: of its own"))
        assert "--to 1 " in again, "where no step says it, the first is where things began to go wrong"
        step = Step(6, "release manager", StepKind.APPROVAL, StepStatus.DONE, approved=False)
        why = "ApprovalDeniedError: 'release manager' was denied by ann: no"
        [again, _] = hints(run(*steps, step, status=RunStatus.FAILED, failure=why))
        assert "--to 6 " in again, "who denied may be asked again"


class TestOutput:
    def test_a_large_output_is_cut_with_a_command_for_the_rest(self) -> None:
        """A terminal is not flooded."""
        for size in (10, 5_000_000):
            result = PipelineResult(task_id="t", baton={"goal": "Add login"}, steps=1, output="x" * size)
            lines = [line for row in output_rows(run(result=result)) for line in shown(row)]
            assert sum(map(len, lines)) < 4_000
            assert ("baton show r-1/run-1 --json" in lines) is (size > 10)


def test_the_question_is_separate_from_the_exhibits() -> None:
    """It cannot be read as the last line of an exhibit."""
    asked = Question(
        id="3:a",
        seq=3,
        title="boss",
        since=BEGAN,
        until=BEGAN,
        asks="Send it?",
        shows=[Exhibit.of("Dear Acme", "letter")],
        choices=approval_choices(None),
    )

    assert [shown(row) for row in approval_rows("r-1", asked)] == [
        ["letter:"],
        ["│ Dear Acme"],
        ["the question:"],
        ["│ Send it?"],
    ]


@pytest.mark.parametrize(
    ("spent", "says"),
    [
        pytest.param(1_380, "$0.498620 of $0.50 left", id="some is spent, but less than rounding to cents shows"),
        pytest.param(0, "$0.50 of $0.50 left", id="nothing is spent"),
        pytest.param(380_000, "$0.12 of $0.50 left", id="much is spent"),
    ],
)
def test_a_partly_spent_budget_shows_what_is_left(spent: int, says: str) -> None:
    """Unless nothing was spent."""
    start = PipelineInput(goal="Add login", budget=Budget(initial_micro_usd=500_000))
    record = RunRecord("r-1", "run-1", "Delivery", start, PipelineState(Baton(goal="Add login")), began=BEGAN)
    record.billed = Spend(micro_usd=spent)

    assert says in " ".join(shown(heading(record)))


def test_a_cancelled_run_is_reported_once() -> None:
    """The status says it."""
    lines = shown(heading(run(status=RunStatus.CANCELED, failure="canceled")))

    assert " ".join(lines).lower().count("canceled") == 1
