"""Costs across runs: `baton bill`, the rest of a budget, and top-ups."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Budget, MemoryArtifactStore, PipelineInput, Requester, WorkerParts
from baton.client import Charged, GroupBy, read_charges, read_run, roll_back, sum_charges
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker, run_pipeline
from tests.acceptance.operating import Operator
from tests.budget.bill_pipelines import (
    bill_cheap,
    bill_child,
    bill_dear,
    bill_parent,
    bill_work,
    pay_and_fail,
    pay_twice,
)
from tests.support import failure, sealing_worker, until_waiting


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    async with sealing_worker(server, safeguards, [bill_parent, bill_child], [bill_dear, bill_cheap]) as it:
        yield it


@pytest.fixture
def baton(server: DevServer, tmp_path: Path) -> Operator:
    return Operator(tmp_path, {"TEMPORAL_ADDRESS": server.address})


async def rows(baton: Operator, by: str) -> dict[str, Any]:
    """Return the bill of these pipelines by name; other tests use the same server."""
    report = json.loads(await baton("bill", "--group-by", by, "--json"))
    return {row[by]: row for row in report["rows"] if row[by].startswith("bill")}


class TestBill:
    async def test_a_run_that_cannot_be_read_is_named(self, server: DevServer, baton: Operator) -> None:
        """Its payloads are in another store; the other runs are still billed."""
        elsewhere = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()))
        client = await Client.connect(server.address, plugins=[elsewhere])
        start = PipelineInput(goal="Cost", params={"text": os.urandom(400_000).hex()})
        handle = await client.start_workflow("bill_parent", start, id=f"bill-{uuid4()}", task_queue="nobody")
        stderr = ""
        while handle.id not in stderr:  # the server's index lags behind, and tells nobody when it has caught up
            _, stderr = await baton.both("bill", "--json")
        await handle.terminate()
        assert f"run {handle.id!r} is not in the bill" in " ".join(stderr.split())

    async def test_each_amount_counts_once(self, worker: Worker, baton: Operator, tmp_path: Path) -> None:
        """A child's cost counts in the child only, a repeated step twice; a provider's export is compared."""
        run = await run_pipeline(worker, bill_parent, PipelineInput(goal="Cost"))
        second_run = await roll_back(worker.client, run.handle.id, "bill_child", by="ann", why="again")
        await worker.client.get_workflow_handle(run.handle.id, run_id=second_run.run_id).result()

        by_pipeline, by_model = await rows(baton, "pipeline"), await rows(baton, "model")
        assert by_pipeline["bill_parent"]["micro_usd"] == 700_000
        assert by_pipeline["bill_child"]["micro_usd"] == 2 * 30_000
        assert by_model["bill-large"]["micro_usd"] == 700_000
        assert by_model["bill-small"] == {
            "model": "bill-small",
            "micro_usd": 40_000,
            "prompt_tokens": 100,
            "completion_tokens": 0,
        }
        assert (await rows(baton, "stage"))["bill_dear"]["completion_tokens"] == 100
        assert not json.loads(await baton("bill", "--since", "2999-01-01", "--json"))["rows"]
        of_an_hour = json.loads(await baton("bill", "--since", "1h", "--json"))["rows"]
        assert {row["pipeline"]: row["micro_usd"] for row in of_an_hour}["bill_parent"] == 700_000

        charges = [charge async for charge in read_charges(worker.client)]
        assert [charge async for charge in read_charges(worker.client, limit=1)] == charges[:1]
        assert sum_charges(charges, GroupBy.PIPELINE)["bill_parent"].micro_usd == 700_000

        export = tmp_path / "usage.csv"
        export.write_text("Model,Input tokens,Cost USD\nbill-large-2026-01-01,1000,$0.70\nbill-small,100,3.00\n")
        report = json.loads(await baton("bill", "--reconcile", str(export), "--json", code=1))
        agrees = {row["model"]: row["agrees"] for row in report["rows"]}
        assert (agrees["bill-large"], agrees["bill-small"]) == (True, False)
        export.write_text("a,b\n1,2\n")
        _, stderr = await baton.both("bill", "--reconcile", str(export), code=1)
        assert "has the columns a, b; expected one for the model" in stderr


class TestWork:
    """What a cost was for: a tool, a requester, work that was taken or not."""

    async def test_every_cost_has_a_tool_a_requester_and_a_fate(self, own_server: DevServer) -> None:
        """A rejected attempt, a stage that failed and the part that was rolled back are told apart."""
        once = 2 * (300 + 20 + 4_000) + 70_000
        client = await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards="off")])
        start = PipelineInput(goal="Cost", requester=Requester(id="ann"))
        async with pipeline_worker(client, [bill_work], [pay_twice, pay_and_fail]) as worker:
            handle = await client.start_workflow(bill_work, start, id="bill-work", task_queue=worker.task_queue)
            await failure(handle)
            again = await roll_back(client, handle.id, "pay_twice", by="ann", why="again")
            await failure(client.get_workflow_handle(handle.id, run_id=again.run_id))

        charges: list[Charged] = []
        while sum(charge.spend.micro_usd for charge in charges) < 2 * once:  # the server's index lags behind
            charges = [charge async for charge in read_charges(client)]
        sums = {by: {name: spend.micro_usd for name, spend in sum_charges(charges, by).items()} for by in GroupBy}
        assert sums[GroupBy.WORK] == {"rolled back": once, "failed": 70_000, "accepted": 4_320, "rejected": 4_320}
        assert sums[GroupBy.TOOL] == {"(no tool)": 2 * (once - 640), "bill_search": 2 * 640}
        assert sums[GroupBy.REQUESTER] == {"ann": 2 * once}
        assert sums[GroupBy.MODEL] == {"(not named)": 140_080, "bill-search": 4 * 4_300}


class TestBudget:
    async def test_a_top_up_says_whether_it_is_enough(self, worker: Worker, baton: Operator, client: Client) -> None:
        """A stage is charged beyond its reservation, and the history names who topped up."""
        handle = await worker.client.start_workflow(
            bill_parent,
            PipelineInput(goal="Cost", budget=Budget(initial_micro_usd=500_000)),
            id="bill-topped-up",
            task_queue=worker.task_queue,
        )
        await until_waiting(handle, "bill_dear")
        assert json.loads(await baton("show", handle.id, "--json"))["budget"]["left_micro_usd"] == 500_000

        top_up = ("inbox", "top-up", handle.id, "--why", "dear", "--yes", "--json", "--usd")
        first = json.loads(await baton(*top_up, "0.05"))["budget"]
        second = json.loads(await baton(*top_up, "0.30"))["budget"]
        await handle.result()

        assert first == {"micro_usd": 550_000, "left_micro_usd": 550_000, "missing_micro_usd": 50_000}
        assert second == {"micro_usd": 850_000, "left_micro_usd": 850_000, "missing_micro_usd": 0}
        run = await read_run(worker.client, handle.id)
        assert (run.billed.micro_usd, run.left_micro_usd) == (730_000, 120_000)
        assert "$0.12 of $0.85 left" in " ".join((await baton("show", handle.id)).split())
        decided = json.loads(await baton("history", handle.id, "--json"))["decided"]
        assert [(row["who"], row["choice"], row["data"]["micro_usd"]) for row in decided] == [
            ("ann", "top_up", 50_000),
            ("ann", "top_up", 300_000),
        ]

    async def test_a_list_has_run_ids_and_the_last_stage(self, worker: Worker, baton: Operator) -> None:
        """The index has a quick run's stage too late."""
        run = await run_pipeline(worker, bill_child, PipelineInput(goal="Cost"))
        listed = json.loads(await baton("list", "--pipeline", "bill_child", "--limit", "100", "--json"))
        listed_run = next(each for each in listed if each["workflow_id"] == run.handle.id)
        assert (listed_run["stage"], listed_run["run_id"]) == ("bill_cheap", run.record.run_id)
