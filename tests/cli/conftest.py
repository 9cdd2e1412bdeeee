"""What the tests of the `baton` command share."""

from pathlib import Path

import pytest

from tests.cli.desk import Desk, desk_in


@pytest.fixture
def baton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return `baton audit`, in a folder with a signed ledger of two tasks."""
    monkeypatch.chdir(tmp_path)
    return desk_in(tmp_path)
