"""The table and the JSON of `baton history`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from baton import Baton, Settled, StepKind
from baton.cli.history import history_as_json, history_table
from baton.cli.watch import news_lines
from baton.client import News, NewsKind, RunRecord, Step, StepStatus
from baton.client.faces import explain_in
from baton.core.messages import PipelineInput, StageInput, StageReturn
from baton.core.state import PipelineState
from baton.errors import HistoryError
from baton.runs.client_events import Timer
from baton.runs.client_news import Reading, compare

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def decided_run() -> RunRecord:
    """Return a run in which one of two approvals was granted and the other denied."""
    start, state = PipelineInput(goal="Add login"), PipelineState(Baton(goal="Add login"))
    run = RunRecord("w", "run-1", "Delivery", start, state, began=AT)
    for seq, title, approved in ((1, "legal", True), (2, "security", False)):
        decided = Settled(
            title=title,
            question=f"{seq}:x",
            choice="approve" if approved else "deny",
            who="ann",
            why="seen",
            at=AT,
            via="update",
            digest="sha256:0",
        )
        state.record_decision(seq, decided)
        run.steps.append(Step(seq, title, StepKind.APPROVAL, StepStatus.DONE, AT, AT, approved=approved))
    return run


def shown(run: RunRecord) -> str:
    console = Console(width=100)
    with console.capture() as written:
        console.print(history_table(run))
    return written.get()


class TestTimes:
    def test_a_step_that_was_begun_again_says_why(self) -> None:
        """A worker that died is why a step took long."""
        start, state = PipelineInput(goal="Add login"), PipelineState(Baton(goal="Add login"))
        run = RunRecord("w", "run-1", "Delivery", start, state, began=AT)
        step = Step(1, "plan", StepKind.STAGE, StepStatus.DONE, AT, AT + timedelta(minutes=4))
        run.steps.append(replace(step, retries=2, retried="its worker stopped responding"))
        state.record_stage(StageReturn(stage="plan", seq=1, baton_patch={"goal": "Log in"}), AT)

        assert "retried 2 times: its worker stopped responding" in shown(run)
        assert history_as_json(run)["history"][0]["retries"] == 2

    def test_a_step_that_a_roll_back_kept_has_its_own_time(self) -> None:
        """The workflow records it again days later, but its work ended when it ended."""
        start, state = PipelineInput(goal="Add login"), PipelineState(Baton(goal="Add login"))
        run = RunRecord("w", "run-2", "Delivery", start, state, began=AT)
        run.steps.append(Step(1, "plan", StepKind.STAGE, StepStatus.DONE, AT, AT + timedelta(seconds=4)))
        state.record_stage(StageReturn(stage="plan", seq=1, baton_patch={"goal": "Log in"}), AT + timedelta(days=3))

        [row] = history_as_json(run)["history"]
        assert row["timestamp"] == "2026-11-21T12:00:04+00:00"
        assert "2026-11-24" not in shown(run)


class TestOrder:
    def test_what_follows_from_a_failure_stands_below_it(self) -> None:
        """Steps are in the order in which they ended, also those without a change of the baton."""
        start, state = PipelineInput(goal="Book"), PipelineState(Baton(goal="Book"))
        run = RunRecord("w", "run-1", "Trip", start, state, began=AT)
        for seq, (name, status) in enumerate([("book", "done"), ("pay", "failed"), ("cancel_booking", "done")], 1):
            run.steps.append(Step(seq, name, StepKind.STAGE, StepStatus(status), AT, AT + timedelta(seconds=seq)))
        state.record_stage(StageReturn(stage="book", seq=1), AT)
        state.record_failure(2, "pay", StepKind.STAGE, "stage 'pay' failed: no money")
        state.record_stage(StageReturn(stage="cancel_booking", seq=3), AT)

        run.steps[1] = replace(run.steps[1], failure="no money")
        text = shown(run)
        assert text.index("book") < text.index("no money") < text.index("cancel_booking")


class TestEnds:
    def test_no_step_of_a_closed_run_is_running(self) -> None:
        """A terminated run leaves its steps unfinished."""
        start, state = PipelineInput(goal="Add login"), PipelineState(Baton(goal="Add login"))
        run = RunRecord("w", "run-1", "Delivery", start, state, began=AT)
        run.steps.append(Step(1, "plan", StepKind.STAGE, StepStatus.RUNNING, AT))
        assert "at work" in shown(run)

        run.steps = [Step(1, "plan", StepKind.STAGE, StepStatus.FAILED, AT, AT + timedelta(seconds=4))]
        assert "the run ended before it did" in shown(run)


def refused_run() -> RunRecord:
    """Return a run of a fan-out and a stage that fails, both with refused attempts."""
    start, state = PipelineInput(goal="Add login"), PipelineState(Baton(goal="Add login"))
    run = RunRecord("w", "run-1", "Delivery", start, state, began=AT)
    told: list[tuple[int, str, int, list[str]]] = [
        *((1, "audit", 1, []), (1, "profile", 1, []), (1, "audit", 2, ["goal: too long"])),
        *((1, "audit", 3, ["goal: too long"]), (1, "audit", 4, ["constraints:\nnot a list", "x" * 300])),
        *((2, "pay", 1, []), (2, "pay", 2, ["no amount"]), (2, "pay", 3, ["no currency"])),
    ]
    for seq, stage, attempt, findings in told:
        sent = StageInput(stage=stage, seq=seq, attempt=attempt, task_id="t", baton={}, findings=findings)
        run.sent[f"{seq} {stage} {attempt}"] = sent
    run.steps += [
        Step(1, "audit+profile", StepKind.MERGE, StepStatus.DONE, AT, AT, attempts=4),
        Step(2, "pay", StepKind.STAGE, StepStatus.FAILED, AT, AT, attempts=3, failure="no currency"),
    ]
    state.record_fan_out(
        1, "audit+profile", [StageReturn(stage="audit", seq=1, attempt=4), StageReturn(stage="profile", seq=1)], AT
    )
    return run


class TestRefusals:
    def test_each_row_says_why_attempts_were_refused(self) -> None:
        """In order, briefly, in the row of its branch; of a failed stage the last reason is its failure."""
        text = " ".join(shown(refused_run()).split())

        assert text.count("refused: ") == 3
        order = ["audit ×4", "goal: too long", "constraints: not a list; x", "pay ×3", "refused: no amount"]
        assert sorted(order, key=text.index) == order
        assert text.count("no currency") == 1

    def test_the_json_has_the_whole_reasons(self) -> None:
        """For programs, and for who wants to read on."""
        rows = {row["stage_id"]: row["refused"] for row in history_as_json(refused_run())["history"]}

        assert rows == {
            "audit": ["goal: too long", f"constraints:\nnot a list; {'x' * 300}"],
            "profile": [],
            "audit+profile": [],
        }


class TestStates:
    def test_a_step_is_at_work_only_if_something_works(self) -> None:
        """What a suspended run, a question and a sleep have in common is that nobody does."""
        run = RunRecord("w", "r", "P", PipelineInput(goal="g"), PipelineState(Baton(goal="g")), began=AT)
        run.steps += [Step(seq, f"step-{seq}", StepKind.STAGE, began=AT) for seq in (1, 2, 3)]
        run.steps.append(Step(4, "nap", StepKind.SLEEP, began=AT))
        run.lacking = {2}
        run.timers.append(Timer("step 3: deadline of handoff h to step-3: why", AT, AT + timedelta(days=1)))

        states = ("at work", "suspended", "waits for a decision", "sleeps")
        assert [state for line in shown(run).splitlines() for state in states if state in line] == [*states]
        run.suspended = "it changed"
        assert shown(run).count("suspended") == 4


class TestDecisions:
    def test_a_denial_is_distinguished_from_an_approval(self) -> None:
        """In the table, in the JSON and in the news."""
        run = decided_run()
        text = shown(run)
        lines = [line.plain for line in news_lines(compare(None, Reading.of(run), AT), run)]

        assert text.index("approved by ann") < text.index("✗") < text.index("denied by ann")
        assert [row["approved"] for row in history_as_json(run)["history"]] == [True, False]
        assert any(line.endswith("✓ 1 legal: approved by ann: seen") for line in lines)
        assert any(line.endswith("✗ 2 security: denied by ann: seen") for line in lines)
        assert [one.to_json_object().get("approved") for one in compare(None, Reading.of(run), AT) if one.entries] == [
            True,
            False,
        ]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (StepKind.APPROVAL, "its kind is approval, and only stages have them"),
        (StepKind.CHILD, "it is a pipeline of its own; explain a stage of its run"),
        (StepKind.STAGE, "no agent does it"),
    ],
)
def test_a_step_without_a_contract_is_not_explained(kind: StepKind, reason: str) -> None:
    """The error says what to do instead."""
    run = decided_run()
    run.steps.append(Step(3, "pay", kind, StepStatus.DONE, AT, AT))
    with pytest.raises(HistoryError) as raised:
        explain_in(run, "pay")
    assert str(raised.value).startswith(f"step 3 ('pay') was given no contract and made no prompt: {reason}")


def test_every_kind_of_news_has_a_line() -> None:
    """What the run waits for, what a stage streams, what was undone and edited; long arguments are shortened."""
    run = decided_run()
    run.steps.append(step := Step(3, "write", StepKind.STAGE, StepStatus.RUNNING, AT, attempts=2))
    asked = Step(4, "risk", StepKind.APPROVAL, StepStatus.DONE, AT, AT)  # about a handoff
    run.state.record_edit({"goal": "Log in"}, AT, "bob", "typo")
    edit = [run.state.entries[-1]]
    news = [
        (News(NewsKind.RUN_STARTED, AT, "Add login"), "▶ Delivery w: Add login"),
        (News(NewsKind.RUN_SUSPENDED, AT, "it changed"), "! Suspended: its worker's code has failed: it changed."),
        (News(NewsKind.WAITS_FOR_WORKER, AT, "no key"), "! Suspended: no worker can do its stage: no key."),
        (News(NewsKind.STEP_STARTED, AT, step=step), "● 3 write: begins"),
        (News(NewsKind.STEP_REFUSED, AT, "a gap", step), "! 3 write: refused, attempt 2 begins: a gap"),
        (
            News(NewsKind.HANDOFF_WAITS, AT, "unsafe", step),
            "! 3 write: waits for a person (baton inbox show w): unsafe",
        ),
        (News(NewsKind.STEP_DONE, AT, step=asked, entries=run.state.entries[:1]), "✓ 4 risk: decided by ann: seen"),
        (News(NewsKind.STEP_UNDONE, AT, step=step), "↺ 3 write: undone"),
        (News(NewsKind.REUSED, AT, "2 steps of v"), "↷ reused: 2 steps of v"),
        (News(NewsKind.EDITED, AT, entries=edit), "✎ the baton was edited by bob"),
        (News(NewsKind.TEXT, AT, "Once", step), "… 3 write: Once"),
        (News(NewsKind.TOOL_CALLED, AT, "x" * 100, step, tool="find"), f"→ 3 write: calls find {'x' * 79}…"),
        (News(NewsKind.TOOL_ANSWERED, AT, "two\nlines", step, tool="find"), "← 3 write: find answered two lines"),
        (News(NewsKind.STREAM_RESTARTED, AT, step=step), "↺ 3 write: begins again; its earlier output does not count"),
        (News(NewsKind.NOTE, AT, "look here"), "! look here"),
    ]
    for piece, line in news:
        assert line in next(news_lines([piece], run)).plain, piece.kind
