"""One protocol at every boundary: to a stage, another pipeline, and an outside agent."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import MemoryArtifactStore, PipelineStatus, WorkerParts
from baton.client import AuditRecord, Explanation, Question, read_run
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.external import QUERY_MESSAGE, QUERY_OUTSIDE, OutsideHandoff
from baton.exchange.records import message_digest
from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff
from baton.handoff.store_gate import handoff_gate
from baton.handoff.store_safeguards import Safeguards
from baton.handoff.store_signing import open_sealed
from baton.ledger.store import Ledger
from baton.outside.client_external import OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker, run_pipeline
from baton.wire.names import QUERY_EXPLAIN, QUERY_QUESTIONS
from tests.contract.contract_pipelines import CONTRACT_PIPELINES, CONTRACT_STAGES, SCHEMAS, Reviewed
from tests.exchange.exchange_pipelines import EXCHANGES, HandsOff, HandsOutside, Receives, ThereAndBack
from tests.handoff.handoff_pipelines import PIPELINES, FourAgents, Miscounts
from tests.handoff.handoff_stages import INJECTION, STAGES
from tests.pipelines.stages import EXECUTED
from tests.support import Handle, failure, start, until


@pytest.fixture(scope="module")
async def sealing(server: DevServer, safeguards: Safeguards) -> Client:
    parts = WorkerParts(artifacts=MemoryArtifactStore(), schemas=SCHEMAS)
    return await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])


@pytest.fixture(scope="module")
async def worker(sealing: Client) -> AsyncIterator[Worker]:
    """Return a worker that knows every kind of receiver."""
    pipelines = [*PIPELINES, *EXCHANGES, *CONTRACT_PIPELINES]
    async with pipeline_worker(sealing, pipelines, [*STAGES, *CONTRACT_STAGES, *EXCHANGE_ACTIVITIES]) as worker:
        yield worker


async def to_a_stage(worker: Worker, safeguards: Safeguards, *, hostile: bool) -> Handle:
    """Hand on from stage to stage; a hostile handoff waits for a person, and is not executed."""
    handle = await start(worker, FourAgents.run, poisoned=hostile)
    await (until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF) if hostile else handle.result())
    assert EXECUTED[handle.id, "score"] == (not hostile)
    return handle


async def to_a_pipeline(worker: Worker, safeguards: Safeguards, *, hostile: bool) -> Handle:
    """Hand on to another pipeline by signal; nothing of a hostile handoff is merged."""
    receiver = await start(worker, Receives.run, id=f"risk-{uuid4()}")
    sender = await start(worker, HandsOff.run, to=receiver.id, state=state(hostile=hostile))
    await (sender if hostile else receiver).result()
    assert (await receiver.query("baton"))["decision_log"] == ([] if hostile else ["Took over from legal"])
    await sender.result()
    return sender


async def to_an_outside_agent(worker: Worker, safeguards: Safeguards, *, hostile: bool) -> Handle:
    """Have an outside agent fetch and accept a handoff; it must not begin a hostile one."""
    sender = await start(worker, HandsOutside.run, state=state(hostile=hostile))
    await until(sender, lambda now: now.status is PipelineStatus.WAITING)
    async with safeguards.shared().open() as guarded:
        agents = OutsideAgents(worker.client, guarded.gate)
        found = None
        while found is None:  # visibility lags a little
            found = await anext(
                (ref async for ref in agents.list_open("reviewer") if ref.workflow_id == sender.id), None
            )
        await agents.claim(found, "reviewer")
        receipt = await agents.accept(found, "reviewer")
        assert bool(receipt.verdict) is not hostile
        if receipt.verdict:
            await agents.return_report(found, "reviewer", "done")
    await sender.result()
    return sender


def state(*, hostile: bool) -> dict[str, Any]:
    return {"goal": "g", "note": INJECTION if hostile else "Liability is uncapped"}


Boundary = Callable[..., Awaitable[Handle]]
BOUNDARIES = [to_a_stage, to_a_pipeline, to_an_outside_agent]


async def handoffs(client: Client, safeguards: Safeguards, handle: Handle) -> list[AuditRecord]:
    run = await read_run(client, handle.id)
    async with Ledger(safeguards.ledger) as ledger:
        trace = await ledger.trace(run.start.task_id or "", verifier=safeguards.keyring.public())
    assert trace.report.verdict == "valid, completeness not checked"
    return [record for record in trace.records if record.fields.kind == "handoff"]


@pytest.mark.parametrize("cross", BOUNDARIES)
class TestEveryBoundary:
    async def test_a_good_handoff_is_recorded_as_the_one_message(
        self, worker: Worker, safeguards: Safeguards, cross: Boundary
    ) -> None:
        """Every boundary has the same format: all records pass one schema.

        S3-2-g, S3-3.1-a, S3-17-a.
        """
        handle = await cross(worker, safeguards, hostile=False)

        records = await handoffs(worker.client, safeguards, handle)
        assert records
        assert {match.fields.status for match in records} == {"ACCEPTED"}
        assert [handoff_gate()(match.body) for match in records] == [[]] * len(records)

    async def test_a_hostile_one_is_refused_by_the_receiver(
        self, worker: Worker, safeguards: Safeguards, cross: Boundary
    ) -> None:
        """The receiver's own validator rejects it first, with the same reason everywhere.

        S3-3.1-a, S3-5.1-c, S3-2-d, S3-7.1.4-b.
        """
        handle = await cross(worker, safeguards, hostile=True)

        refused = (await handoffs(worker.client, safeguards, handle))[-1]
        assert (refused.fields.status, refused.fields.reason) == ("REJECTED", "SAFETY_VIOLATION")
        assert refused.fields.attempt == 1


class TestBothWays:
    async def test_an_answer_is_a_handoff_as_well(self, worker: Worker, safeguards: Safeguards) -> None:
        """The answer is a handoff in the same task, and names the one that it answers (S3-17-b)."""
        there = await start(worker, ThereAndBack.run, to=f"risk-{uuid4()}")
        await there.result()

        out, answer = await handoffs(worker.client, safeguards, there)
        assert [handoff_gate()(record.body) for record in (out, answer)] == [[], []]
        assert (out.fields.from_agent, out.fields.to_agent) == ("legal", "risk")
        assert (answer.fields.from_agent, answer.fields.to_agent) == ("risk", "legal")
        assert answer.body["parentHandoffId"] == out.body["handoffId"]


class TestOneHandoff:
    async def test_the_contract_is_compiled_then_sealed_around_the_baton(
        self, worker: Worker, safeguards: Safeguards
    ) -> None:
        """The message's `currentState` is the baton, the contract is of that handoff, a report is the answer (X-4)."""
        handle = await start(worker, Reviewed.run, marker="xyzzy")
        await handle.result()
        explanation = await handle.query(QUERY_EXPLAIN, "review", result_type=Explanation)
        run = await read_run(worker.client, handle.id)
        batons = {entry.stage_id: after.to_json_object() for entry, after in run.history}

        to_review, to_clerk = await handoffs(worker.client, safeguards, handle)
        assert explanation.terms.handoff_id == to_review.fields.event_id
        assert to_review.body["currentState"] == batons["research"]
        assert to_clerk.body["currentState"] == batons["review"]
        assert batons["write_down"]["decision_log"][-1].startswith("Send the email"), "as its report says"

    async def test_the_outside_list_is_made_of_the_message(self, worker: Worker, safeguards: Safeguards) -> None:
        """The record of an unclaimed task has the message's values, under its rules (S3-17-d)."""
        sender = await start(worker, HandsOutside.run, state=state(hostile=False))
        await until(sender, lambda now: now.status is PipelineStatus.WAITING)
        [handoff] = await sender.query(QUERY_OUTSIDE, result_type=list[OutsideHandoff])
        sealed = await sender.query(QUERY_MESSAGE, handoff.handoff_id, result_type=UnverifiedHandoff)

        message = open_sealed(sealed.raw, safeguards.keyring).message
        assert (handoff.handoff_id, handoff.digest) == (message["handoffId"], message_digest(message))
        assert (handoff.agent, handoff.description) == (message["toAgent"]["agentType"], message["taskDescription"])
        id_rule = OutsideHandoff.model_json_schema()["properties"]["handoff_id"]["pattern"]
        assert id_rule == Handoff.model_json_schema()["properties"]["handoffId"]["pattern"]
        await sender.terminate()

    async def test_a_person_sees_the_message_itself(self, worker: Worker, safeguards: Safeguards) -> None:
        """A task that waits for a person keeps its handoff (S3-17-c)."""
        handle = await to_a_stage(worker, safeguards, hostile=True)
        baton = await handle.query("baton")
        [question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
        pending = question.handoff

        message = (await handoffs(worker.client, safeguards, handle))[-1].body
        assert handoff_gate()(message) == []
        assert message["currentState"] == baton
        agents = (message["fromAgent"]["agentId"], message["toAgent"]["agentType"])
        assert (pending.handoff_id, pending.sender, pending.receiver) == (message["handoffId"], *agents)
        await handle.terminate()


async def test_an_answer_that_the_ledger_cannot_record_is_told_to_its_stage(
    worker: Worker, safeguards: Safeguards
) -> None:
    """It is a finding, not a failure that is retried in vain."""
    run = await run_pipeline(worker, Miscounts.run, PipelineInput(goal="Count"))

    assert run.result.output == str(2**60)
    assert EXECUTED[run.handle.id, "miscounts"] == 2
    async with Ledger(safeguards.ledger) as ledger:
        trace = await ledger.trace(run.result.task_id, verifier=safeguards.keyring.public())
    assert [record.fields.status for record in trace.records] == ["ACCEPTED", "RETURNED", "ACCEPTED", "RETURNED"]
    assert "2**53" in str(trace.records[1].message)


async def test_parameters_that_cannot_be_sealed_are_named(worker: Worker) -> None:
    """When the pipeline starts, so that no receiver gets a message without a valid seal."""
    text = await failure(await start(worker, FourAgents.run, ids=[1, 2**60]))

    assert text.startswith("stage 'extract' is not sent anything: step.params.ids.1: a whole number of 2**53 or beyond")
