"""An order whose receiver is killed while it accepts it: it starts one run, and the answer does not change."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from baton import PipelineInput
from baton.client import AcceptHandoff
from baton.devserver import DevServer
from baton.ledger.records import Kind
from baton.protocol import OrderError, open_order
from tests.handoff.companies import Company, accept, accepting, company, exporting, forget, name_of
from tests.handoff.order_pipelines import compute, orders_score, risk_scoring
from tests.support.processes import ROOT

ACCEPTED, STARTED = (Kind.HANDOFF, "ACCEPTED"), (Kind.RELAY, "STARTED")


async def accept_killed(when: str, acme: Company, globex: Company, data: bytes, workflow_id: str = "") -> None:
    """Have a process of the receiver accept an order; it is killed before or after the run starts."""
    order = globex.folder / f"{uuid4()}.json"
    order.write_bytes(data)
    address = globex.client.service_client.config.target_host
    files = [str(globex.folder), str(order), acme.publish(globex.folder)]
    command = ["-m", "tests.handoff.order_killed", when, address, *files, workflow_id, globex.worker.task_queue]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
    assert await process.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
async def globex(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Company]:
    async with company(server, tmp_path_factory.mktemp("globex"), [risk_scoring], [compute]) as made:
        yield made


@pytest.fixture(scope="module")
async def ordered(acme: Company) -> str:
    """Return a run of the ordering pipeline that has ended."""
    id, queue = f"deal-{uuid4()}", acme.worker.task_queue
    await acme.client.execute_workflow(orders_score, PipelineInput(goal="Sell the deal"), id=id, task_queue=queue)
    return id


@pytest.fixture
async def data(acme: Company, ordered: str) -> bytes:
    return await exporting(acme, ordered, audience=str(uuid4())).commit(by="ann")


def order_of(acme: Company, data: bytes) -> tuple[str, str]:
    """Return the ids of an order's task, and of the order."""
    opened = open_order(data, acme.gate.keyring.public())
    return opened.order.head.task_id, opened.id


class TestKilled:
    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_the_next_call_goes_on_where_it_was(
        self, acme: Company, globex: Company, data: bytes, when: str
    ) -> None:
        """Before the start, it starts the run; after it, nothing starts again. Both are on record once."""
        await accept_killed(when, acme, globex, data)
        task_id, order_id = order_of(acme, data)
        assert await globex.records(task_id, order_id) == [ACCEPTED]
        again = await accept(globex, acme, data)
        later = await accept(globex, acme, data)

        assert (again.started, later.started) == (when == "before", False)
        assert {again.workflow_id, later.workflow_id} == {f"order-{order_id}"}
        assert await globex.records(task_id, order_id) == [ACCEPTED, STARTED]
        assert (await globex.client.get_workflow_handle(f"order-{order_id}").result())["task_id"] == task_id

    async def test_a_run_that_is_forgotten_meanwhile_does_not_start_again(
        self, acme: Company, globex: Company, data: bytes
    ) -> None:
        """Its start was never recorded, but its stages' handoffs were."""
        await accept_killed("after", acme, globex, data)
        task_id, order_id = order_of(acme, data)
        await globex.client.get_workflow_handle(f"order-{order_id}").result()
        await forget(globex.client, f"order-{order_id}")
        again = await accept(globex, acme, data)

        assert (again.started, again.workflow_id) == (False, f"order-{order_id}")
        assert await globex.records(task_id, order_id) == [ACCEPTED, STARTED]

    async def test_it_is_not_started_under_another_id(self, acme: Company, globex: Company, data: bytes) -> None:
        """Who accepted it first starts it: the run is theirs. What has not started is not said to be."""
        id = f"serve-1-order-{order_of(acme, data)[1]}"
        await accept_killed("before", acme, globex, data, id)
        with pytest.raises(OrderError):
            await accept(globex, acme, data)
        first = await accept(globex, acme, data, workflow_id=id)
        second = await accept(globex, acme, data)

        assert (first.started, second.started) == (True, False)
        assert first.workflow_id == second.workflow_id == id

    async def test_one_that_expires_before_its_run_starts_starts_none(
        self, acme: Company, globex: Company, data: bytes
    ) -> None:
        """Nobody has the receipt yet, and its contract says for how long its facts hold."""
        await accept_killed("before", acme, globex, data)
        again = await aged(globex, acme, data).commit(by="bob")

        assert (again.receipt.verdict.reason, again.workflow_id) == ("SIGNATURE_INVALID", None)


def aged(globex: Company, acme: Company, data: bytes) -> AcceptHandoff:
    """Return the acceptance of an order a day later, by the receiver's clock."""

    def later() -> datetime:
        return globex.gate.clock() + timedelta(hours=25)

    operation = accepting(globex, acme, data, audience=name_of(data))
    return replace(operation, gate=replace(globex.gate, clock=later))


async def test_the_receipt_stays_the_same(acme: Company, globex: Company, data: bytes) -> None:
    """To the byte, whoever asks for it again, also after the order has expired."""
    first = await accept(globex, acme, data)
    again = await accept(globex, acme, data)
    later = await aged(globex, acme, data).commit(by="eve")

    assert {again.signed, later.signed} == {first.signed}
    assert (later.started, later.workflow_id) == (False, first.workflow_id)
