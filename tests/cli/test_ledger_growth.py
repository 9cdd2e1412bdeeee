"""Where a ledger in a file ends, as `baton doctor` says it."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from baton.cli.storage_checks import FILE_BYTES, FILE_RECORDS_PER_S, check_growth
from baton.client import Ledger, LedgerOptions
from baton.client.faces import CheckMark
from benchmarks.capacity import FIGURES
from benchmarks.capacity_plan import sqlite_limits
from tests.ledger.material import NOW, entry


class TestDoctor:
    def test_its_limits_follow_from_the_figures(self) -> None:
        """Where it says that a file ends, there is room left on the measured machine, and not too much."""
        rate, size = sqlite_limits(json.loads(FIGURES.read_text(encoding="utf-8")))

        assert rate / 8 < FILE_RECORDS_PER_S < rate
        assert size / 8 < FILE_BYTES < size

    @pytest.mark.parametrize(
        ("size", "rate", "says"),
        [
            (FILE_BYTES + 1, None, "a file ends at 25 GB"),
            (1_000, FILE_RECORDS_PER_S * 2, "came at 1,000 a second; a file ends at 500"),
            (1_000, FILE_RECORDS_PER_S / 2, None),
            (1_000, None, None),
        ],
    )
    def test_a_ledger_that_has_outgrown_its_file_is_named(
        self, tmp_path: Path, size: int, rate: float | None, says: str | None
    ) -> None:
        """By its size, or by how fast its newest records came."""
        file = tmp_path / "ledger.db"
        file.touch()
        os.truncate(file, size)

        found = check_growth(file, rate)

        assert (found is None) is (says is None)
        if found is not None and says is not None:
            assert found.mark is CheckMark.WARN
            assert says in found.found

    async def test_the_rate_is_that_of_the_newest_records(self, tmp_path: Path) -> None:
        """Older ones do not count, and too few say nothing."""
        moments = [NOW, *(NOW + timedelta(hours=1, seconds=second) for second in range(4))]
        remaining = iter(moments)
        async with Ledger(tmp_path / "ledger.db", LedgerOptions(clock=lambda: next(remaining))) as ledger:
            for number in range(len(moments)):
                await ledger.append(entry(number))

            assert await ledger.rate(4) == pytest.approx(4 / 3)
            assert await ledger.rate(6) is None
