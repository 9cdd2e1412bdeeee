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

    async def test_released_runs_that_fit_are_counted(self, folder: Path) -> None:
        """So that a test notices when the histories are gone."""
        assert await assert_replays_folder(folder, [Linear, Gated]) == 2

    async def test_every_one_that_does_not_fit_is_told(self, folder: Path) -> None:
        """By its path and why, whether it is changed code, another pipeline or no history at all."""
        add(folder, "notes.json", "[]")

        with pytest.raises(AssertionError) as raised:
            await assert_replays_folder(folder, [StagesSwapped])

        told = str(raised.value).splitlines()
        assert told[0] == "3 of 3 histories do not replay:"
        assert "linear.json: the code does not replay" in told[1]
        assert told[2].startswith("- notes.json is not a history: ")
        assert any("old/approval.json belongs to pipeline 'Gated', which was not passed" in one for one in told)

    async def test_an_empty_folder_is_no_success(self, tmp_path: Path) -> None:
        """Nothing was replayed, and the message says how to get a history."""
        with pytest.raises(AssertionError, match=r"`baton export RUN FILE\.json`"):
            await assert_replays_folder(tmp_path, [Linear])


def add(folder: Path, name: str, text: str) -> None:
    """Add a file."""
    (folder / name).write_text(text, encoding="utf-8")
