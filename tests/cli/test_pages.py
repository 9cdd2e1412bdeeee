"""The lines that tell of a run while it is watched."""

import io
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console
from rich.live import Live

from baton import Baton, StepKind
from baton.cli.options import GlobalOptions
from baton.cli.session import Session
from baton.cli.show import waits_card
from baton.cli.watch import Page, news_lines
from baton.client import (
    Followed,
    News,
    NewsKind,
    Pending,
    RunRecord,
    RunStatus,
    Step,
    StepStatus,
    Waits,
)
from baton.core.messages import PipelineInput
from baton.core.state import PipelineState
from baton.runs.client_news import Reading, compare

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def failed_run(why: str) -> RunRecord:
    """Return a run that failed because its only stage did."""
    step = Step(1, "plan", StepKind.STAGE, StepStatus.FAILED, AT, AT, failure=why)
    start, state = PipelineInput(goal="Add login"), PipelineState(Baton(goal="Add login"))
    run = RunRecord("w", "run-1", "Delivery", start, state, steps=[step], began=AT, ended=AT)
    run.status, run.failure = RunStatus.FAILED, "StageFailedError: stage 'plan' failed: OSError: no"
    return run


class TestNewsLines:
    def test_the_last_line_has_the_cause(self) -> None:
        """Below the step that failed."""
        run = failed_run("OSError: no")
        step, end = list(news_lines(compare(None, Reading.of(run), AT), run))[-2:]

        assert step.plain.endswith("✗ 1 plan: failed: OSError: no")
        assert end.plain.endswith("■ FAILED: StageFailedError: stage 'plan' failed: OSError: no")

    def test_an_unfinished_step_without_a_reason_is_left_out(self) -> None:
        """A run that was terminated while it waited has no failed step."""
        record = failed_run("")
        record.status, record.failure = RunStatus.TERMINATED, "not needed any more"

        step, end = list(news_lines(compare(None, Reading.of(record), AT), record))[-2:]
        assert step.plain.endswith("✗ 1 plan: the run ended before it did")
        assert end.plain.endswith("■ TERMINATED: not needed any more")


class TestPage:
    def test_it_shows_what_streams_and_that_the_server_is_lost(self) -> None:
        """A stage's newest text and tool calls, under its number, until it ends."""
        step = Step(1, "plan", StepKind.STAGE, StepStatus.RUNNING, AT)
        run = replace(failed_run(""), status=RunStatus.RUNNING, steps=[step], failure=None, ended=None)
        page = Page(Console(width=100))
        pieces = (("text", "First "), ("text", "look."), ("tool_called", "{}"), ("tool_answered", "two"))
        page.take(Followed(run, [News(NewsKind(kind), AT, text, step, tool="find") for kind, text in pieces]))
        page.take(Followed(run, [], lost="it restarts"))
        written = io.StringIO()
        console = Console(width=100, file=written)
        console.print(page.whole())
        text = written.getvalue()
        assert re.search(r"1 │ First look\.\n +│ → find \{\}\n +│ ← find two\n", text)
        assert "the server is unreachable (it restarts); waiting for it" in text
        page.take(Followed(run, [News(NewsKind.STEP_DONE, AT, step=step)]))
        console.print(page.whole())
        assert written.getvalue().count("First look.") == 1


class TestCommands:
    COMMANDS = (
        "baton rollback 'the contract of 2026' --to 1 --why '…'",
        "baton fork 'the contract of 2026' --at 1 --patch @fix.json",
    )

    def failed(self) -> RunRecord:
        """Return a run that failed, and has a long name."""
        run = failed_run("OSError: no")
        run.workflow_id = "the contract of 2026"
        return run

    @pytest.mark.parametrize("columns", [40, 60])
    def test_on_the_live_page_they_are_broken_as_a_shell_accepts(self, columns: int) -> None:
        """A copied command runs as a whole."""
        written = io.StringIO()
        console = Console(file=written, width=columns, height=40, force_terminal=True, color_system=None)
        page = Page(console)
        page.take(Followed(self.failed(), []))
        with Live(page, console=console, auto_refresh=False):
            pass

        frames = re.split(r"(?:\x1b\[[0-9;?]*[A-Za-z]|\r)+", written.getvalue())
        [frame, *_] = [frame for frame in frames if "baton rollback" in frame]
        assert max(map(len, frame.splitlines())) <= columns
        copied = frame[frame.index("baton rollback") :].replace("\\\n", "").splitlines()
        assert shlex.split(copied[0]) == shlex.split(self.COMMANDS[0])
        assert shlex.split(copied[1]) == shlex.split(self.COMMANDS[1])

    @pytest.mark.parametrize("terminal", [True, False])
    def test_elsewhere_each_is_one_line(self, terminal: bool) -> None:
        """The terminal wraps it, and copies it as one line."""
        written = io.StringIO()
        console = Console(file=written, width=40, force_terminal=terminal, color_system=None)
        run, page = self.failed(), Page(console)
        page.take(Followed(run, []))
        pending = Pending(1, "release manager", StepKind.APPROVAL, since=AT)
        step = Step(1, "release manager", StepKind.APPROVAL, StepStatus.RUNNING, AT)
        waiting = replace(run, status=RunStatus.RUNNING, steps=[step])
        session = Session(GlobalOptions(), out=console)
        session.show(page.whole())
        session.show(waits_card(waiting, Waits([pending], "baton", has_worker=True)))

        lines = written.getvalue().splitlines()
        for command in (*self.COMMANDS, "baton approve 'the contract of 2026' 'release manager' --why '…'"):
            assert any(line.endswith(command) for line in lines)
