"""Small storms; `python -m tests.storm --runs 200` runs a large one, also with `--approvals`."""

from pathlib import Path

import pytest

from baton.testing import local_server
from tests.storm.approvals import ApprovalStorm
from tests.storm.rollbacks import GRANTED, RESERVED
from tests.storm.rollbacks import storm as roll_backs
from tests.storm.storm import Options, Storm


@pytest.mark.slow
async def test_every_run_ends_replays_and_reads_back(tmp_path: Path) -> None:
    """Under queries, with workers killed and stopped, every run replays its history."""
    async with local_server() as server:
        report = await Storm(server, tmp_path, Options(runs=12, at_once=12)).run()

    assert report.is_sound, "\n".join(report.lines())
    assert report.counts["queries answered"] > 0
    assert report.counts["workers stopped"] > 0


@pytest.mark.slow
async def test_no_question_is_answered_by_a_decision_that_was_not_made_on_it(tmp_path: Path) -> None:
    """Duplicates, late, contradicting and foreign decisions, roll-backs, new runs, workers killed and stopped."""
    async with local_server() as server:
        report = await ApprovalStorm(server, tmp_path, Options(runs=3, at_once=3)).run()

    assert report.is_sound, "\n".join(report.lines())
    assert report.counts["answers by update"] + report.counts["answers by signal"] > 0
    assert report.counts["forged decisions"] > 0
    assert report.counts["workers stopped while a question was open"] > 0


async def test_roll_backs_never_overrun_a_budget(tmp_path: Path) -> None:
    """Failing runs that are rolled back over and over pay what was granted, plus one reservation at most."""
    paid = await roll_backs(tmp_path, runs=3, times=5)

    assert GRANTED <= max(paid) <= GRANTED + RESERVED
