"""Troubles among runs that wait, in small; `python -m benchmarks.endurance --waiting 10000` makes them large."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.endurance import Sizes, measure
from benchmarks.endurance_checks import Execution, Repeated, count_repeated
from benchmarks.endurance_fleet import Death
from benchmarks.postgres import programs

SMALL = Sizes(waiting=30, minutes=0.0, decided=30, rate=1.0, starts=50.0, outage=3.0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose name is short enough for a socket's, and that Postgres may reach."""
    made = Path(tempfile.mkdtemp(prefix="endured-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.skipif(programs() is None, reason="there are no programs of Postgres (initdb, pg_ctl)")
async def test_troubles_lose_nothing_and_repeat_only_what_was_in_flight(folder: Path) -> None:
    """All workers killed, no space left, Postgres killed, a clock off: every run, record and stage is counted."""
    figures, faults = await measure(folder, SMALL)

    assert faults == []
    assert figures["runs"] == figures["started"] == figures["completed"] > SMALL.waiting
    assert figures["waiting"] == SMALL.waiting
    assert figures["missing"] == 0
    assert figures["killed"] == 3
    assert {trouble["name"].split()[0] for trouble in figures["troubles"]} >= {"all", "Postgres"}


def test_a_repetition_counts_as_a_fault_unless_its_worker_had_died() -> None:
    """A death before the first execution, or of another process, excuses nothing; that the server gave it up does."""
    first, second = Execution(process=1, begun=10.0, is_done=True), Execution(process=2, begun=20.0, is_done=True)
    executions = {("run", 1, 1): [first, second]}

    assert count_repeated(executions, [Death(1, 15.0)], ()) == Repeated(1, 0, [])
    assert count_repeated(executions, [], {("run", 1)}) == Repeated(0, 1, [])
    for deaths in ([], [Death(1, 5.0)], [Death(2, 15.0)], [Death(1, 25.0)]):
        assert len(count_repeated(executions, deaths, {("run", 2)}).faults) == 1
