"""`baton mcp` as it is typed, up to where a coding agent would begin to talk."""

import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from baton.exchange.cli import mcp


def called(*words: str) -> Result:
    app = typer.Typer(add_completion=False)
    app.command("mcp")(mcp)
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "160"})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in a folder without keys, in an environment that names none."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("BATON_")]:
        monkeypatch.delenv(name)


class TestMcp:
    def test_it_must_know_who_the_agent_is(self) -> None:
        """Handoffs are addressed by name; without one it would have none to list."""
        found = called()

        assert found.exit_code == 2
        assert "--agent" in found.stderr

    def test_a_version_that_is_none_is_refused_at_once(self) -> None:
        """Otherwise the agent could claim every handoff and accept none."""
        found = called("--agent", "reviewer", "--agent-version", "v1")

        assert found.exit_code == 2
        assert "is not a version" in found.stderr

    def test_it_makes_no_keys_of_its_own(self, tmp_path: Path) -> None:
        """Moves that are sealed with other keys than the workers' would all be refused, so it says so at once."""
        found = called("--agent", "reviewer")

        assert found.exit_code == 1
        assert "BATON_KEYS" in found.stderr
        assert not (tmp_path / ".baton").exists()
        assert found.stdout == ""

    def test_its_help_says_what_it_is(self) -> None:
        """The protocol and where to name the command."""
        found = called("--help")

        assert found.exit_code == 0
        assert "Model Context Protocol" in found.stdout
        assert "--holder" in found.stdout
