"""Consoles, numbers and times."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from baton.cli.output import fit_columns, format_age, format_time, make_console, make_table, printable
from baton.wire.text import elapsed, format_duration


class TestMakeConsole:
    def test_a_pipe_is_wide_and_has_no_colours(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Piped output is not cut at 80 columns."""
        monkeypatch.delenv("COLUMNS", raising=False)
        make_console().print("[bold]" + "x" * 100, style="red")

        assert capsys.readouterr().out == "[bold]" + "x" * 100 + "\n"

    def test_columns_can_be_set(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """With the usual variable COLUMNS."""
        monkeypatch.setenv("COLUMNS", "20")

        assert make_console().width == 20


class TestPrintable:
    def test_every_control_character_but_the_line_break_is_replaced(self) -> None:
        """C0, DEL and C1 characters cannot control the terminal."""
        controls = "".join(map(chr, [*range(32), *range(127, 160)]))

        assert set(printable(controls)) == {"\ufffd", "\n", " "}

    def test_letters_of_every_script_stay(self) -> None:
        """Printable text is shown unchanged."""
        assert printable("Prüfung 検査 ✓") == "Prüfung 検査 ✓"


class TestTimes:
    def test_a_time_of_the_same_day_needs_no_date(self) -> None:
        """The date is shown once, at the top."""
        began = datetime(2026, 11, 21, 12, tzinfo=UTC)

        assert format_time(began + timedelta(seconds=5), began).count(":") == 2
        assert "-" not in format_time(began + timedelta(seconds=5), began)
        assert format_time(began + timedelta(days=2), began).startswith("2026-11-2")

    def test_an_unknown_time_is_left_out(self) -> None:
        """A step that has not begun has no time."""
        now = datetime(2026, 11, 21, tzinfo=UTC)

        assert (format_time(None), format_age(None, now), format_duration(elapsed(None, now))) == ("", "", "")


class TestMakeTable:
    def test_a_narrow_terminal_keeps_names_readable(self) -> None:
        """A name is broken only down to a minimum width, and continues on the next line."""
        table = make_table("run", "stage", "since", whole=("since",), leading=26)
        table.add_row("named.Research.step1.f2af39", "plan", "13 minutes and 20 seconds ago")
        file = StringIO()
        Console(file=file, width=30, highlight=False).print(table)

        assert [line.partition(" ")[0] for line in file.getvalue().splitlines()] == [
            "run",
            "named.Research.s",
            "tep1.f2af39",
        ]


class TestFitColumns:
    @pytest.mark.parametrize(
        ("width", "terminal", "line"),
        [
            pytest.param(60, True, "project-init-b10b0063  project_init  COMPLETED  3 min ago", id="there is room"),
            pytest.param(50, True, "project-init-b10b0063  project_init  COMPLETED", id="the last column gives way"),
            pytest.param(36, True, "project-init-b10b0063  project_init", id="and the one before it"),
            pytest.param(60, False, "project-init-b10b0063  project_init  COMPLETED  3 min ago", id="a file has all"),
        ],
    )
    def test_a_run_can_be_copied_from_the_list(self, width: int, terminal: bool, line: str) -> None:
        """Trailing columns are dropped before a name is broken."""
        table = make_table("run", "pipeline", "status", "started")
        table.add_row("project-init-b10b0063", "project_init", "COMPLETED", "3 min ago")
        file = StringIO()
        console = Console(file=file, width=width, highlight=False, force_terminal=terminal, color_system=None)
        console.print(fit_columns(table, console, keep=2))

        assert file.getvalue().splitlines()[1].rstrip() == line
