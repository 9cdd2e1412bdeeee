"""What a command asks a person, and what is taken for an answer."""

import sys
from io import StringIO

import pytest

from baton.cli.options import GlobalOptions
from baton.cli.session import Session


class Interrupted:
    """An input at which somebody presses Ctrl-C."""

    def readline(self) -> str:
        """Be interrupted."""
        raise KeyboardInterrupt


class TestConfirm:
    """`Session.confirm`."""

    @pytest.mark.parametrize(("typed", "answer"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)], ids=repr)
    def test_only_a_yes_is_one(self, monkeypatch: pytest.MonkeyPatch, typed: str, *, answer: bool) -> None:
        """The end of the input is no answer, and so a no."""
        monkeypatch.setattr(sys, "stdin", StringIO(typed))

        assert Session(GlobalOptions()).confirm("sure?") is answer

    def test_ctrl_c_is_what_it_is_anywhere_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The command ended by code 1, as one that was denied."""
        monkeypatch.setattr(sys, "stdin", Interrupted())

        with pytest.raises(KeyboardInterrupt):
            Session(GlobalOptions()).confirm("sure?")
