"""A folder of histories: all of it replays, or all that does not is told."""

import shutil
from pathlib import Path

import pytest

from baton.testing import assert_replays_folder
from tests.pipelines.pipelines import Gated, Linear
from tests.replay.mutants import StagesSwapped
from tests.replay.record import HISTORIES


class TestAssertReplaysFolder:
    """`assert_replays_folder`."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return a folder with the histories of two runs, one in a sub-folder."""
        (tmp_path / "old").mkdir()
        shutil.copy(HISTORIES / "linear.json", tmp_path / "linear.json")
        shutil.copy(HISTORIES / "approval.json", tmp_path / "old" / "approval.json")
        return tmp_path

    async def test_replayed_histories_are_counted(self, folder: Path) -> None:
        """A test notices when the histories are missing."""
        assert await assert_replays_folder(folder, [Linear, Gated]) == 2

    async def test_every_failure_is_reported(self, folder: Path) -> None:
        """With path and reason: changed code, another pipeline, or not a history."""
        add(folder, "notes.json", "[]")

        with pytest.raises(AssertionError) as raised:
            await assert_replays_folder(folder, [StagesSwapped])

        lines = str(raised.value).splitlines()
        assert lines[0] == "3 of 3 histories do not replay:"
        assert "linear.json: the code does not replay" in lines[1]
        assert lines[2].startswith("- notes.json is not a history: ")
        assert any("old/approval.json belongs to pipeline 'Gated', which was not passed" in line for line in lines)

    async def test_an_empty_folder_fails(self, tmp_path: Path) -> None:
        """The message says how to get a history."""
        with pytest.raises(AssertionError, match=r"`baton export RUN FILE\.json`"):
            await assert_replays_folder(tmp_path, [Linear])


def add(folder: Path, name: str, text: str) -> None:
    """Add a file."""
    (folder / name).write_text(text, encoding="utf-8")
