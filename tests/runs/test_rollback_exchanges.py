"""Roll-backs of pipelines that exchange handoffs: messages of the others are neither lost nor applied twice."""

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

from baton import PipelineResult, PipelineStatus
from baton.cli.app import make_app
from baton.client import decide, read_run, roll_back
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.runs.client_waiting import waits as read_waits
from tests.exchange.exchange_pipelines import ExchangesBeside, HandsOff, Receives, StreamsIn, StreamsOut
from tests.exchange.test_exchange_of_runs import fresh, output
from tests.support import Handle, answer_to, approve, event, failure, overview, start, until, until_waiting

GIVES = {"hand on": "accepted", "stream": "accepted", "receive": "legal", "receive a stream": [1, 2, 3]}


async def until_approval(handle: Handle, title: str) -> None:
    await until(handle, lambda now: any(approval.name == title for approval in now.waiting_for))


async def denied_after_exchange(client: Client, worker: Worker, does: str) -> tuple[Handle, Handle]:
    """Return a run whose exchange has ended and whose later approval was denied, and the other pipeline."""
    id, other = fresh("one"), fresh("other")
    handle = await start(worker, ExchangesBeside.run, id=id, does=does, to=other, seconds=6)
    await approve(client, handle, "begin")
    await until_approval(handle, "later")
    peers: dict[str, tuple[Any, dict[str, Any]]] = {
        "hand on": (Receives.run, {}),
        "stream": (StreamsIn.run, {}),
        "receive": (HandsOff.run, {"to": id, "agent": "legal"}),
        "receive a stream": (StreamsOut.run, {"to": id, "count": 3}),
    }
    run, params = peers[does]
    if does == "receive a stream":
        params["agent"] = "legal"
    peer = await start(worker, run, id=other, **params)
    await peer.result()
    await until(handle, lambda now: [approval.name for approval in now.waiting_for] == ["later"])
    await approve(client, handle, "later", yes=False)
    await failure(handle)
    return handle, peer


async def rerun_from(client: Client, id: str, approval: str) -> Handle:
    """Roll a run back to before an approval, approve that, and return the new run."""
    result = await roll_back(client, id, approval, by="ann", why="again")
    rerun = client.get_workflow_handle(id, run_id=result.run_id, result_type=PipelineResult)
    await until_approval(rerun, approval)
    await approve(client, rerun, approval)
    return rerun


@pytest.mark.parametrize("does", ["hand on", "stream", "receive", "receive a stream"])
async def test_later_messages_of_other_pipelines_still_count(sealing: Client, exchange: Worker, does: str) -> None:
    """The sender has ended, so answers, handoffs and chunks are sent to the new run again."""
    handle, _ = await denied_after_exchange(sealing, exchange, does)

    rerun = await rerun_from(sealing, handle.id, "later")
    returned = await output(rerun)
    assert (returned["answer"] if does in ("hand on", "stream") else returned) == GIVES[does]


@pytest.mark.parametrize("does", ["receive", "receive a stream"])
async def test_a_received_message_is_received_again(sealing: Client, exchange: Worker, does: str) -> None:
    """Its sender got an answer, and does not send it again."""
    handle, _ = await denied_after_exchange(sealing, exchange, does)

    rerun = await rerun_from(sealing, handle.id, "begin")
    await until_approval(rerun, "later")
    await approve(sealing, rerun, "later")
    assert await output(rerun) == GIVES[does]
    assert (await overview(rerun)).notes[0].startswith("rolled back to before 'begin'")


class TestOutside:
    async def find_open(self, agents: OutsideAgents, handle: Handle) -> HandoffRef:
        """Return the open handoff, once there is one."""
        await until(handle, lambda now: now.status in (PipelineStatus.WAITING, PipelineStatus.PENDING_HANDOFF))
        while True:
            matches = [handoff async for handoff in agents.list_open("reviewer") if handoff.workflow_id == handle.id]
            if matches:
                return matches[0]

    async def answer(self, agents: OutsideAgents, found: HandoffRef, report: str) -> None:
        await agents.accept(found, "reviewer")
        await agents.return_report(found, "reviewer", report)

    @pytest.mark.parametrize("to", ["begin", "later"])
    @pytest.mark.parametrize("answered", ["before", "after"])
    async def test_an_outside_answer_holds_if_it_came_before_the_point(
        self, sealing: Client, exchange: Worker, safeguards: Safeguards, to: str, answered: str
    ) -> None:
        """A later answer is asked for again."""
        async with safeguards.shared().open() as guarded:
            agents = OutsideAgents(sealing, guarded.gate)
            handle = await start(
                exchange, ExchangesBeside.run, does="outside", first=(answered, to) == ("before", "later")
            )
            await approve(sealing, handle, "begin")
            found = await self.find_open(agents, handle)
            if answered == "after":
                await until_approval(handle, "later")
            await self.answer(agents, found, "first")
            await until_approval(handle, "later")
            await approve(sealing, handle, "later", yes=False)
            await failure(handle)

            result = await roll_back(sealing, handle.id, to, by="ann", why="again")
            rerun = sealing.get_workflow_handle(handle.id, run_id=result.run_id, result_type=PipelineResult)
            if to == "begin":
                await until_approval(rerun, "begin")
                await approve(sealing, rerun, "begin")
            await until_approval(rerun, "later")
            if to == "begin" or answered == "after":
                second = await self.find_open(agents, rerun)
                assert (second.handoff.handoff_id == found.handoff.handoff_id) is (to == "later")
                with pytest.raises(PipelineError, match=r"list what is open|claim handoff"):
                    await agents.return_report(found, "reviewer", "first")
                await self.answer(agents, second, "second")
            await approve(sealing, rerun, "later")
            assert await output(rerun) == ("second" if to == "begin" or answered == "after" else "first")
            async with Ledger(safeguards.ledger) as ledger:
                trace = await ledger.trace((await overview(rerun)).task_id)
            accepted = [record for record in trace.records if record.members["status"] == "ACCEPTED"]
            assert len(accepted) == (2 if to == "begin" else 1)


class TestApproval:
    async def test_a_later_decision_is_asked_for_again(self, sealing: Client, exchange: Worker) -> None:
        """The question is the same, so the decision counts once if it is sent again."""
        handle = await start(exchange, ExchangesBeside.run, does="ask")
        await approve(sealing, handle, "begin")
        await until_approval(handle, "later")
        old = await answer_to(handle, "beside")
        await decide(sealing, handle.id, old)
        await approve(sealing, handle, "later", yes=False)
        await failure(handle)

        result = await roll_back(sealing, handle.id, "later", by="ann", why="again")
        rerun = sealing.get_workflow_handle(handle.id, run_id=result.run_id, result_type=PipelineResult)
        await until_waiting(rerun, "beside", "later")
        first = await decide(sealing, handle.id, old)
        assert await decide(sealing, handle.id, old) == first
        with pytest.raises(PipelineError, match="changes nothing"):
            await decide(sealing, handle.id, old.model_copy(update={"choice": "deny"}))
        await approve(sealing, rerun, "later")
        assert await output(rerun) == "it is tested"


class TestPlainReset:
    async def reset(self, client: Client, handle: Handle, *without: ResetReapplyExcludeType.ValueType) -> Handle:
        """Reset a run to before its approval `later`, as the Temporal UI does."""
        point = (await read_run(client, handle.id)).step("later").reset_event
        assert point is not None
        response = await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=handle.id),
                reason="wrong plan",
                workflow_task_finish_event_id=point,
                request_id=str(uuid4()),
                reset_reapply_exclude_types=without,
            )
        )
        return client.get_workflow_handle(handle.id, run_id=response.run_id, result_type=PipelineResult)

    async def test_an_answer_of_another_pipeline_still_counts(self, sealing: Client, exchange: Worker) -> None:
        """The server applies the signal again; it applies the denial too early, and the person is asked again."""
        handle, _ = await denied_after_exchange(sealing, exchange, "hand on")

        rerun = await self.reset(sealing, handle)
        await approve(sealing, rerun, "later")
        returned = await output(rerun)
        assert returned["answer"] == "accepted"

    async def start_child(self, client: Client, worker: Worker) -> tuple[Handle, Handle]:
        """Return a run whose child and approval are open, and the child."""
        handle = await start(worker, ExchangesBeside.run, does="child")
        await approve(client, handle, "begin")
        await until_approval(handle, "later")
        await event(handle, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED)
        return handle, client.get_workflow_handle((await read_run(client, handle.id)).children[-1][0])

    async def approve_all(self, client: Client, child: Handle) -> None:
        for approval in ("begin", "beside", "later"):
            await approve(client, child, approval)
        await child.result()

    async def test_a_child_whose_end_is_in_the_history_counts(self, sealing: Client, exchange: Worker) -> None:
        """The server applies its end again."""
        handle, child = await self.start_child(sealing, exchange)
        await self.approve_all(sealing, child)
        await until_waiting(handle, "later")

        rerun = await self.reset(sealing, handle)
        await approve(sealing, rerun, "later")
        assert await output(rerun) == "it is tested"

    async def test_a_lost_child_is_shown_with_the_remedy(
        self, server: DevServer, sealing: Client, exchange: Worker
    ) -> None:
        """The run never receives its end; a roll-back to the child starts it again."""
        handle, child = await self.start_child(sealing, exchange)
        await approve(sealing, handle, "later", yes=False)
        await failure(handle)
        await failure(child)

        rerun = await self.reset(sealing, handle, ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE)
        await approve(sealing, rerun, "later")
        await until_waiting(rerun, "half")
        run_waits = await read_waits(sealing, await read_run(sealing, handle.id))
        assert run_waits is not None
        [half] = [pending for pending in run_waits.pending if pending.name == "half"]
        assert (half.child_status, half.is_lost) == ("CANCELED", True)
        arguments = ["show", handle.id, "--address", server.address]
        shell = await asyncio.to_thread(CliRunner().invoke, make_app(), arguments)
        assert f"baton rollback {handle.id} --to 2" in " ".join(shell.output.split())

        result = await roll_back(sealing, handle.id, "2", by="ann", why="its end was lost")
        rerun = sealing.get_workflow_handle(handle.id, run_id=result.run_id, result_type=PipelineResult)
        await approve(sealing, rerun, "later")
        await until_waiting(rerun, "half")
        new = (await read_run(sealing, handle.id)).children[-1][0]
        assert new != child.id
        await self.approve_all(sealing, sealing.get_workflow_handle(new))
        assert await output(rerun) == "it is tested"
