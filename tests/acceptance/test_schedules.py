"""`baton schedule`, as people call it, on a real server."""

from pathlib import Path

import pytest
from temporalio.client import Client

from baton import BatonPlugin, WorkerParts
from baton.artifacts.store import open_store
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
