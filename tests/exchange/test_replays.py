"""Genuine handoffs that are played again, and repeated ones that must still be accepted, on a real server."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import (
    RegisterNamespaceRequest,
    ResetWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import MemoryArtifactStore, PipelineResult, PipelineStatus, WorkerParts
from baton.client import Question, read_run, roll_back
from baton.client.faces import AuditHeader
from baton.core.verdict import Code
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.plugin import BatonPlugin
from baton.testing import copy_handoff, pipeline_worker, play_again
from baton.wire.names import QUERY_QUESTIONS
from tests.exchange.exchange_pipelines import HandsOff
from tests.exchange.replay_pipelines import ACTED, ActsOn, Expires, PlaysStage, act
from tests.exchange.test_exchange_of_runs import fresh, output
from tests.support import Handle, approve, event, overview, start, until
from tests.support.tampering import sealed_handoffs

SHORT, LONG = {"seconds": 3}, {"minutes": 5}


@pytest.fixture(scope="module")
async def exchange(sealing: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(sealing, [ActsOn, Expires, HandsOff, PlaysStage], [act, *EXCHANGE_ACTIVITIES]) as worker:
        yield worker


async def accepted(exchange: Worker) -> tuple[Handle, str]:
    """Hand off to a pipeline that acts on it and ends; return it and its run."""
    receiver = await start(exchange, ActsOn.run, id=fresh("risk"), within=LONG)
    [ack] = await output(await start(exchange, HandsOff.run, to=receiver.id))
    assert (ack["answer"], await output(receiver)) == ("accepted", "acted")
    assert receiver.first_execution_run_id is not None
    return receiver, receiver.first_execution_run_id


async def answers(safeguards: Safeguards, receiver: Handle) -> list[AuditHeader]:
    """Return the headers of the answers to the handoff to a pipeline, in order."""
    async with Ledger(safeguards.ledger) as ledger:
        records = await ledger.newest(1_000)
    headers = [record.fields for record in records if record.fields.to_agent == "risk"]
    return [header for header in headers if (header.run_id or "").startswith(f"{receiver.id}/")]


class TestRefused:
    async def test_by_a_later_run_of_the_same_id(self, exchange: Worker, safeguards: Safeguards) -> None:
        """The first run's acceptance is on record; nothing is done twice, and the refusal is on record as well."""
        receiver, run_id = await accepted(exchange)
        copied = await copy_handoff(exchange.client, receiver.id, run_id)
        later = await start(exchange, ActsOn.run, id=receiver.id, within=SHORT)
        await play_again(exchange.client, receiver.id, copied)

        assert await output(later) == "nothing"
        first, second = await answers(safeguards, receiver)
        assert (first.status, first.run_chain) == ("ACCEPTED", run_id)
        assert (second.status, second.run_chain) == ("REJECTED", later.first_execution_run_id)
        assert second.reason == Code.SIGNATURE_INVALID

    async def test_by_a_later_chain_that_continued_as_new(self, exchange: Worker, safeguards: Safeguards) -> None:
        """It continues another run than the one that accepted it."""
        receiver, run_id = await accepted(exchange)
        copied = await copy_handoff(exchange.client, receiver.id, run_id)
        later = await start(exchange, ActsOn.run, id=receiver.id, within=SHORT, waits=True, continues=True)
        await approve(exchange.client, later, "begin")
        newest = await continued(exchange, later)
        await play_again(exchange.client, receiver.id, copied)

        assert await output(newest) == "nothing"
        assert [header.status for header in await answers(safeguards, receiver)] == ["ACCEPTED", "REJECTED"]

    async def test_in_another_namespace(self, exchange: Worker, server: DevServer, safeguards: Safeguards) -> None:
        """The same id there is another receiver, though its workers have the same keys and ledger."""
        receiver, run_id = await accepted(exchange)
        copied = await copy_handoff(exchange.client, receiver.id, run_id)
        name = await other_namespace(exchange.client)
        plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards=safeguards, searchable=False)
        client = await Client.connect(server.address, namespace=name, plugins=[plugin])
        async with pipeline_worker(client, [ActsOn], [act, *EXCHANGE_ACTIVITIES]) as worker:
            other = await start(worker, ActsOn.run, id=receiver.id, within=SHORT)
            await play_again(client, receiver.id, copied)
            assert await output(other) == "nothing"

        refused = (await answers(safeguards, receiver))[-1]
        assert (refused.status, refused.run_id) == ("REJECTED", f"{receiver.id}/{other.first_execution_run_id}")

    async def test_by_a_stage_of_a_later_run_of_the_same_id(self, exchange: Worker, safeguards: Safeguards) -> None:
        """A stage's handoff names its run chain, so also one that no stage has accepted is refused."""
        receiver, _ = await accepted(exchange)
        [copied] = await sealed_handoffs(exchange.client.get_workflow_handle(receiver.id), exchange.client)
        done = len(ACTED)
        attacker = await exchange.client.start_workflow(
            PlaysStage.run, copied.decode(), id=receiver.id, task_queue=exchange.task_queue
        )

        with pytest.raises(WorkflowFailureError) as raised:
            await attacker.result()
        assert "audienceRun" in str(raised.value.cause and raised.value.cause.__cause__)
        assert len(ACTED) == done


class TestExpired:
    async def test_a_stage_that_waited_too_long_is_sent_a_new_one(self, exchange: Worker) -> None:
        """Its run still waits, so nobody plays it again; only after three times a person is asked."""
        handle = await start(exchange, Expires.run)
        await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)

        now = await overview(handle)
        [question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
        pending = question.handoff
        assert sum("had expired; it is made again" in note for note in now.notes) == 3
        assert (pending.reason, pending.attempts) == (Code.SIGNATURE_INVALID, 4)
        assert handle.first_execution_run_id not in ACTED
        await handle.terminate()


class TestAccepted:
    async def test_by_a_run_that_continued_as_new(self, exchange: Worker) -> None:
        """The handoff came before, or comes after."""
        receiver = await start(exchange, ActsOn.run, id=fresh("risk"), within=LONG, waits=True, continues=True)
        sender = await start(exchange, HandsOff.run, to=receiver.id)
        await approve(exchange.client, receiver, "begin")

        newest = await continued(exchange, receiver)

        [ack] = await output(sender)
        assert ack["answer"] == "accepted"
        assert await output(newest) == "acted"
        assert ACTED.count(str(newest.run_id)) == 1

    async def test_again_after_a_roll_back(self, exchange: Worker) -> None:
        """The new run continues the one that accepted it."""
        receiver = await acting(exchange)
        rolled = await roll_back(exchange.client, receiver.id, "begin", by="ann", why="again")

        await acts_again(exchange, receiver, rolled.run_id)

    async def test_again_after_a_plain_reset(self, exchange: Worker) -> None:
        """The server applies the signal to the new run again."""
        receiver = await acting(exchange)
        point = (await read_run(exchange.client, receiver.id)).step("begin").reset_event
        assert point is not None
        response = await exchange.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=exchange.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=receiver.id),
                reason="again",
                workflow_task_finish_event_id=point,
                request_id=str(uuid4()),
            )
        )

        await acts_again(exchange, receiver, response.run_id)


async def continued(exchange: Worker, handle: Handle) -> Handle:
    """Return the run that continues a run as new, once it has begun."""
    events = exchange.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
    ended = await event(events, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW)
    run_id = ended.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return exchange.client.get_workflow_handle(handle.id, run_id=run_id, result_type=PipelineResult)


async def acting(exchange: Worker) -> Handle:
    """Hand off to a pipeline that has begun after an approval, and return it once it waits after it has acted."""
    receiver = await start(exchange, ActsOn.run, id=fresh("risk"), within=LONG, waits=True, later=True)
    await approve(exchange.client, receiver, "begin")
    await output(await start(exchange, HandsOff.run, to=receiver.id))
    await until(receiver, lambda now: "later" in [wait.name for wait in now.waiting_for])
    return receiver


async def acts_again(exchange: Worker, receiver: Handle, run_id: str) -> None:
    """Let a run that continues a reset one end, and check that its stage ran."""
    handle = exchange.client.get_workflow_handle(receiver.id, run_id=run_id, result_type=PipelineResult)
    for approval in ("begin", "later"):
        await approve(exchange.client, handle, approval)
    assert await output(handle) == "acted"
    assert ACTED.count(run_id) == 1


async def other_namespace(client: Client) -> str:
    """Register a namespace, and return its name once it can be used."""
    name = fresh("other")
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=Duration(seconds=24 * 3600))
    )
    return name
