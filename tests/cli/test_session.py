"""What a command asks a person, and what is taken for an answer."""

import sys
from io import StringIO

import pytest
import typer
from rich.console import Console

from baton.cli.options import GlobalOptions
from baton.cli.session import Session


class Typed(StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


class Interrupted:
    """An input at which somebody presses Ctrl-C."""

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        raise KeyboardInterrupt


class TestConfirm:
    @pytest.fixture(autouse=True)
    def on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Console, "is_terminal", True)

    def test_only_yes_confirms(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The end of the input counts as no."""
        for typed in ("n\n", "\n", ""):
            monkeypatch.setattr(sys, "stdin", Typed(typed))
            with pytest.raises(typer.Exit) as end:
                Session(GlobalOptions()).confirm("sure?", yes=False)
            assert end.value.exit_code == 1
        monkeypatch.setattr(sys, "stdin", Typed("y\n"))
        Session(GlobalOptions()).confirm("sure?", yes=False)

    def test_without_a_terminal_it_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither a missing terminal nor --json is consent; --yes is."""
        monkeypatch.setattr(sys, "stdin", Typed("y\n"))
        with pytest.raises(typer.BadParameter):
            Session(GlobalOptions(json=True)).confirm("sure?", yes=False)
        monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
        with pytest.raises(typer.BadParameter):
            Session(GlobalOptions()).confirm("sure?", yes=False)
        Session(GlobalOptions()).confirm("sure?", yes=True)

    def test_ctrl_c_interrupts_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It does not count as a denial with exit code 1."""
        monkeypatch.setattr(sys, "stdin", Interrupted())

        with pytest.raises(KeyboardInterrupt):
            Session(GlobalOptions()).confirm("sure?", yes=False)
