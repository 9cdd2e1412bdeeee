"""The lines that tell of a run while it is watched."""

from datetime import UTC, datetime

from baton.cli.pages import news_lines
from baton.client import RunRecord, RunStatus, Step, StepStatus
from baton.client.news import news_of
from baton.protocol.baton import Baton
from baton.protocol.history import StepKind
from baton.protocol.messages import PipelineInput
from baton.protocol.state import PipelineState

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def failed_run(why: str) -> RunRecord:
    """Return a run that failed because its only stage did."""
    step = Step(1, "plan", StepKind.STAGE, StepStatus.FAILED, AT, AT, failure=why)
    start, state = PipelineInput(goal="Add login"), PipelineState(Baton(goal="Add login"))
    run = RunRecord("w", "run-1", "Delivery", start, state, steps=[step], began=AT, ended=AT)
    run.status, run.failure = RunStatus.FAILED, "StageFailedError: stage 'plan' failed: OSError: no"
    return run


class TestNewsLines:
    """A line for each piece of news."""

    def test_the_end_does_not_repeat_why_its_last_step_failed(self) -> None:
        """The reason stands one line above; it is said where no line said it."""
        ends = {
            why: list(news_lines(news_of(None, failed_run(why), AT), failed_run(why)))[-2:]
            for why in ("OSError: no", "")
        }

        step, end = ends["OSError: no"]
        assert step.plain.endswith("✗ 1 plan: failed: OSError: no")
        assert end.plain.endswith("■ FAILED: StageFailedError: stage 'plan' failed")
        assert ends[""][1].plain.endswith("■ FAILED: StageFailedError: stage 'plan' failed: OSError: no")

    def test_a_step_that_a_run_left_behind_is_not_told_without_a_reason(self) -> None:
        """Of a run that was terminated while it waited, "failed:" stood there, and nothing behind it."""
        ended = failed_run("")
        ended.status, ended.failure = RunStatus.TERMINATED, "not needed any more"

        step, end = list(news_lines(news_of(None, ended, AT), ended))[-2:]
        assert step.plain.endswith("✗ 1 plan: the run ended before it did")
        assert end.plain.endswith("■ TERMINATED: not needed any more")
