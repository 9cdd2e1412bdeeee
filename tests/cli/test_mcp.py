"""`baton mcp` as it is typed, up to where a coding agent would begin to talk."""

import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from baton.cli.outside import mcp


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
    def test_the_agents_name_is_required(self) -> None:
        """Handoffs are addressed by name."""
        result = called()

        assert result.exit_code == 2
        assert "--agent" in result.stderr

    def test_an_invalid_version_is_refused_at_once(self) -> None:
        """Otherwise the agent could claim every handoff and accept none."""
        result = called("--agent", "reviewer", "--agent-version", "v1")

        assert result.exit_code == 2
        assert "is not a version" in result.stderr

    def test_it_makes_no_keys_of_its_own(self, tmp_path: Path) -> None:
        """Moves sealed with other keys than the workers' would all be refused."""
        result = called("--agent", "reviewer")

        assert result.exit_code == 1
        assert "BATON_KEYS" in result.stderr
        assert not (tmp_path / ".baton").exists()
        assert result.stdout == ""

    def test_its_help_says_what_it_is(self) -> None:
        """It names the protocol and where to configure the command."""
        result = called("--help")

        assert result.exit_code == 0
        assert "Model Context Protocol" in result.stdout
        assert "--holder" in result.stdout
