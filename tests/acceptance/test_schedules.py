"""`baton schedule`, as people call it, on a real server."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, ScheduleCalendarSpec, ScheduleRange, ScheduleSpec

from baton import BatonPlugin, WorkerParts, open_store
from baton.cli.summer_time import skipped_time
from baton.client import read_run
from baton.devserver import DevServer
from tests.acceptance.operating import Operator


@pytest.fixture
def operator(server: DevServer, tmp_path: Path) -> Operator:
    return Operator(tmp_path, {"TEMPORAL_ADDRESS": server.address, "BATON_TASK_QUEUE": "scheduled"})


async def test_a_schedule_starts_runs_is_listed_and_is_deleted(operator: Operator) -> None:
    """A scheduled run is an ordinary pipeline, with goal, labels and task."""
    words = ("--cron", "0 7 * * 1-5", "--timezone", "Europe/Berlin", "--goal", "Ship", "--param", "depth=3")
    response = await operator.json("schedule", "Delivery", *words, "--id", "nightly")
    assert response["next"].endswith(("05:00:00+00:00", "06:00:00+00:00"))

    parts = WorkerParts(artifacts=open_store(operator.folder / "artifacts"))
    client = await Client.connect(operator.variables["TEMPORAL_ADDRESS"], plugins=[BatonPlugin(parts)])
    async with operator.worker("scheduled"):
        await client.get_schedule_handle("nightly").trigger()
        while not (rows := [schedule for schedule in await operator.json("schedule") if schedule["last"]]):
            pass  # the list lags behind; each look takes a process
        [row] = rows
        await operator.until_asked(row["last"])
        run = await read_run(client, row["last"])
        waiting = await operator.json("list", "--pipeline", "Delivery", "--status", "waiting")
        [listed] = [item for item in waiting if item["workflow_id"] == row["last"]]
    assert (row["schedule"], row["pipeline"], row["cron"], row["paused"]) == (
        "nightly",
        "Delivery",
        "0 7 * * 1-5",
        False,
    )
    assert run.start.goal == "Ship"
    assert run.start.params == {"depth": 3}
    assert listed["workflow_id"] == row["last"]
    assert listed["task_id"]

    assert "schedule 'nightly' already exists" in await operator.refused(
        "schedule", "Delivery", *words, "--id", "nightly"
    )
    await operator("schedule", "delete", "nightly")
    assert await operator.json("schedule", "list") == []
    assert "no schedule 'nightly'" in await operator.refused("schedule", "delete", "nightly")


async def test_an_invalid_cron_is_a_usage_error(operator: Operator) -> None:
    """The message has the server's error."""
    message = await operator.refused("schedule", "Delivery", "--cron", "at noon", "--goal", "Ship", code=2)
    assert "cron" in message


async def test_a_time_that_summer_time_skips_is_named(operator: Operator) -> None:
    """In the schedule's own zone, as its first run is."""
    words = ("--timezone", "Europe/Berlin", "--goal", "Ship")
    skipped = await operator.json("schedule", "Delivery", "--cron", "30 2 * * *", *words, "--id", "skips")
    kept = await operator.json("schedule", "Delivery", "--cron", "30 3 * * *", *words, "--id", "keeps")
    said = await operator("schedule", "Delivery", "--cron", "30 2 29 3 *", *words, "--id", "told")

    day = datetime.fromisoformat(skipped["skipped"])
    assert (day.month, day.isoweekday(), f"{day:%H:%M}") == (3, 7, "02:30")
    assert kept["skipped"] is None
    assert re.search(r"first run \d{4}-03-29 \d\d:30 CES?T", said)


@pytest.mark.parametrize(
    ("zone", "hour", "month", "skipped"),
    [
        ("Europe/Berlin", 2, 3, "2027-03-28 02:30"),
        ("Europe/Berlin", 2, 6, None),
        ("Australia/Lord_Howe", 2, 10, None),  # it skips half an hour, from 2:00
        ("America/New_York", 2, 3, "2027-03-14 02:30"),
        ("UTC", 2, 3, None),
    ],
)
def test_skipped_times(zone: str, hour: int, month: int, skipped: str | None) -> None:
    """From the zone's rules and the schedule's calendar."""
    every: Any = {"day_of_month": [ScheduleRange(1, 31)], "day_of_week": [ScheduleRange(0, 6)]}
    calendar = ScheduleCalendarSpec(
        minute=[ScheduleRange(30)], hour=[ScheduleRange(hour)], month=[ScheduleRange(month)], **every
    )
    found = skipped_time(ScheduleSpec(calendars=[calendar], time_zone_name=zone), datetime(2026, 11, 29, tzinfo=UTC))
    assert (None if found is None else f"{found:%Y-%m-%d %H:%M}") == skipped
