"""Roll-backs of pipelines that exchange handoffs with others: what the others sent is neither lost nor done twice."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.worker import Worker
from typer.testing import CliRunner

from baton.cli.app import make_app
from baton.client import decide, read_run, roll_back
from baton.core.messages import PipelineResult, PipelineStatus
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.exchange.client_external import Found, OutsideAgents
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.runs.client_waiting import waits as pending
from tests.exchange.exchange_pipelines import ExchangesBeside, HandsOff, Receives, StreamsIn, StreamsOut
from tests.exchange.test_exchange_of_runs import fresh, output
from tests.support import Handle, answer_to, approve, event, failure, overview, start, until, until_waiting

GIVES = {"hand on": "accepted", "stream": "accepted", "receive": "legal", "receive a stream": [1, 2, 3]}


async def waits(handle: Handle, title: str) -> None:
    await until(handle, lambda now: any(one.name == title for one in now.waiting_for))


async def left(client: Client, worker: Worker, does: str) -> tuple[Handle, Handle]:
    """Return a run whose exchange has ended and whose approval was denied behind that, and the other pipeline."""
    id, other = fresh("one"), fresh("other")
    handle = await start(worker, ExchangesBeside.run, id=id, does=does, to=other, seconds=6)
    await approve(client, handle, "begin")
    await waits(handle, "later")
    theirs: dict[str, tuple[Any, dict[str, Any]]] = {
        "hand on": (Receives.run, {}),
        "stream": (StreamsIn.run, {}),
        "receive": (HandsOff.run, {"to": id, "agent": "legal"}),
        "receive a stream": (StreamsOut.run, {"to": id, "count": 3}),
    }
    run, params = theirs[does]
    if does == "receive a stream":
        params["agent"] = "legal"
    peer = await start(worker, run, id=other, **params)
    await peer.result()
    await until(handle, lambda now: [one.name for one in now.waiting_for] == ["later"])
    await approve(client, handle, "later", yes=False)
    await failure(handle)
    return handle, peer


@pytest.mark.parametrize("does", ["hand on", "stream", "receive", "receive a stream"])
async def test_what_another_pipeline_sent_behind_the_point_still_counts(
    sealing: Client, exchange: Worker, does: str
) -> None:
    """The other one has ended, so nobody sends it again: answers, handoffs and chunks are brought to the new run."""
    handle, _ = await left(sealing, exchange, does)

    done = await roll_back(sealing, handle.id, "later", by="ann", why="again")
    again = sealing.get_workflow_handle(handle.id, run_id=done.run_id, result_type=PipelineResult)
    await waits(again, "later")
    await approve(sealing, again, "later")
    told = await output(again)
    assert (told["answer"] if does in ("hand on", "stream") else told) == GIVES[does]


@pytest.mark.parametrize("does", ["receive", "receive a stream"])
async def test_what_was_received_is_received_again(sealing: Client, exchange: Worker, does: str) -> None:
    """Its sender got an answer, and does not send it again."""
    handle, _ = await left(sealing, exchange, does)

    done = await roll_back(sealing, handle.id, "begin", by="ann", why="again")
    again = sealing.get_workflow_handle(handle.id, run_id=done.run_id, result_type=PipelineResult)
    await waits(again, "begin")
    await approve(sealing, again, "begin")
    await waits(again, "later")
    await approve(sealing, again, "later")
    assert await output(again) == GIVES[does]
    assert (await overview(again)).notes[0].startswith("rolled back to before 'begin'")


class TestOutside:
    async def found(self, agents: OutsideAgents, handle: Handle) -> Found:
        """Return the handoff that waits, once it does."""
        await until(handle, lambda now: now.status in (PipelineStatus.WAITING, PipelineStatus.PENDING_HANDOFF))
        while True:
            [*mine] = [one for one in await agents.list_open("reviewer") if one.workflow_id == handle.id]
            if mine:
                return mine[0]

    async def answer(self, agents: OutsideAgents, found: Found, report: str) -> None:
        await agents.accept(found, "reviewer")
        await agents.return_report(found, "reviewer", report)

    @pytest.mark.parametrize("to", ["begin", "later"])
    @pytest.mark.parametrize("answered", ["before", "behind"])
    async def test_what_it_answered(
        self, sealing: Client, exchange: Worker, safeguards: Safeguards, to: str, answered: str
    ) -> None:
        """Behind the point it is asked again; before it, its answer holds."""
        async with safeguards.shared().open() as guarded:
            agents = OutsideAgents(sealing, guarded.gate)
            handle = await start(
                exchange, ExchangesBeside.run, does="outside", first=(answered, to) == ("before", "later")
            )
            await approve(sealing, handle, "begin")
            found = await self.found(agents, handle)
            if answered == "behind":
                await waits(handle, "later")
            await self.answer(agents, found, "first")
            await waits(handle, "later")
            await approve(sealing, handle, "later", yes=False)
            await failure(handle)

            done = await roll_back(sealing, handle.id, to, by="ann", why="again")
            again = sealing.get_workflow_handle(handle.id, run_id=done.run_id, result_type=PipelineResult)
            if to == "begin":
                await waits(again, "begin")
                await approve(sealing, again, "begin")
            await waits(again, "later")
            if to == "begin" or answered == "behind":
                once_more = await self.found(agents, again)
                assert (once_more.handoff.handoff_id == found.handoff.handoff_id) is (to == "later")
                with pytest.raises(PipelineError, match=r"list what is open|claim handoff"):
                    await agents.return_report(found, "reviewer", "first")
                await self.answer(agents, once_more, "second")
            await approve(sealing, again, "later")
            assert await output(again) == ("second" if to == "begin" or answered == "behind" else "first")
            async with Ledger(safeguards.ledger) as ledger:
                trace = await ledger.trace((await overview(again)).task_id)
            accepted = [one for one in trace.records if one.members["status"] == "ACCEPTED"]
            assert len(accepted) == (2 if to == "begin" else 1)


class TestApproval:
    async def test_what_was_decided_behind_the_point_is_asked_again(self, sealing: Client, exchange: Worker) -> None:
        """The question is the same, so the decision counts if somebody sends it again, and once."""
        handle = await start(exchange, ExchangesBeside.run, does="ask")
        await approve(sealing, handle, "begin")
        await waits(handle, "later")
        old = await answer_to(handle, "beside")
        await decide(sealing, handle.id, old)
        await approve(sealing, handle, "later", yes=False)
        await failure(handle)

        done = await roll_back(sealing, handle.id, "later", by="ann", why="again")
        again = sealing.get_workflow_handle(handle.id, run_id=done.run_id, result_type=PipelineResult)
        await until_waiting(again, "beside", "later")
        first = await decide(sealing, handle.id, old)
        assert await decide(sealing, handle.id, old) == first
        with pytest.raises(PipelineError, match="changes nothing"):
            await decide(sealing, handle.id, old.model_copy(update={"approved": False}))
        await approve(sealing, again, "later")
        assert await output(again) == "it is tested"


class TestPlainReset:
    async def reset(self, client: Client, handle: Handle, *without: ResetReapplyExcludeType.ValueType) -> Handle:
        """Reset a run to before its approval `later`, as the Temporal UI does."""
        point = (await read_run(client, handle.id)).step("later").reset_event
        assert point is not None
        answer = await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=handle.id),
                reason="wrong plan",
                workflow_task_finish_event_id=point,
                request_id=str(uuid4()),
                reset_reapply_exclude_types=without,
            )
        )
        return client.get_workflow_handle(handle.id, run_id=answer.run_id, result_type=PipelineResult)

    async def test_an_answer_of_another_pipeline_still_counts(self, sealing: Client, exchange: Worker) -> None:
        """It is a signal, which the server brings again; the denial it brings too early, and the person is asked."""
        handle, _ = await left(sealing, exchange, "hand on")

        again = await self.reset(sealing, handle)
        await approve(sealing, again, "later")
        told = await output(again)
        assert told["answer"] == "accepted"

    async def begun(self, client: Client, worker: Worker) -> tuple[Handle, Handle]:
        """Return a run whose child and approval are open, and the child."""
        handle = await start(worker, ExchangesBeside.run, does="child")
        await approve(client, handle, "begin")
        await waits(handle, "later")
        await event(handle, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED)
        return handle, client.get_workflow_handle((await read_run(client, handle.id)).children[-1][0])

    async def pass_on(self, client: Client, child: Handle) -> None:
        for one in ("begin", "beside", "later"):
            await approve(client, child, one)
        await child.result()

    async def test_a_child_whose_end_the_run_knew_counts(self, sealing: Client, exchange: Worker) -> None:
        """The server brings its end again."""
        handle, child = await self.begun(sealing, exchange)
        await self.pass_on(sealing, child)
        await until_waiting(handle, "later")

        again = await self.reset(sealing, handle)
        await approve(sealing, again, "later")
        assert await output(again) == "it is tested"

    async def test_a_child_that_ended_with_the_run_is_told_with_what_to_do(
        self, server: DevServer, sealing: Client, exchange: Worker
    ) -> None:
        """The run is never told of its end; a roll-back to the child begins it again."""
        handle, child = await self.begun(sealing, exchange)
        await approve(sealing, handle, "later", yes=False)
        await failure(handle)
        await failure(child)

        again = await self.reset(sealing, handle, ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE)
        await approve(sealing, again, "later")
        await until_waiting(again, "half")
        now = await pending(sealing, await read_run(sealing, handle.id))
        assert now is not None
        [half] = [one for one in now.pending if one.name == "half"]
        assert (half.stands, half.is_lost) == ("CANCELED", True)
        words = ["show", handle.id, "--address", server.address]
        shown = await asyncio.to_thread(CliRunner().invoke, make_app(), words)
        assert f"baton rollback {handle.id} --to 2" in " ".join(shown.output.split())

        done = await roll_back(sealing, handle.id, "2", by="ann", why="its end was lost")
        again = sealing.get_workflow_handle(handle.id, run_id=done.run_id, result_type=PipelineResult)
        await approve(sealing, again, "later")
        await until_waiting(again, "half")
        new = (await read_run(sealing, handle.id)).children[-1][0]
        assert new != child.id
        await self.pass_on(sealing, sealing.get_workflow_handle(new))
        assert await output(again) == "it is tested"
