"""External effects, which no roll-back undoes, are compensated, whatever else happens meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.worker import Worker

from baton import Budget, OnExhaustion
from baton.cli.show import repair_hints
from baton.client import StepStatus, fork, read_run, roll_back, standing
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.errors import HistoryError
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays
from tests.pipelines.undoing import PIPELINES, STAGES, AsksFirst, Books, HasItBooked, Reserves, WorksBesideItsChild
from tests.support import (
    GOAL,
    LIMIT,
    Handle,
    approve,
    event,
    failure,
    names,
    overview,
    sealing_worker,
    start,
    until_waiting,
)


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    async with sealing_worker(server, safeguards, PIPELINES, STAGES) as it:
        yield it


async def canceled(worker: Worker, handle: Handle, safeguards: Safeguards) -> list[str]:
    """Return the steps of a canceled run; its history replays."""
    newest = worker.client.get_workflow_handle(handle.id)
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(newest.result(), 60)
    assert (await newest.describe()).status is WorkflowExecutionStatus.CANCELED
    await assert_replays(newest, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))
    return names(await read_run(worker.client, handle.id))


async def test_a_pipeline_canceled_during_compensation_runs_all_of_it(worker: Worker, safeguards: Safeguards) -> None:
    """The running compensation ends, and the others run."""
    handle = await start(worker, Books.run, then="break", seconds=2)
    await until_waiting(handle, "call_off")
    await handle.cancel()

    assert await canceled(worker, handle, safeguards) == ["book", "breaks", "call_off", "tell"]
    run = await read_run(worker.client, handle.id)
    assert run.baton.decision_log == ["Booked", "Called off", "Told"]


async def test_a_compensation_gets_the_registered_inputs(worker: Worker, safeguards: Safeguards) -> None:
    """Later changes of the value have no effect (issue 33)."""
    handle = await start(worker, Reserves.run)
    assert "the model is down" in await failure(handle)

    run = await read_run(worker.client, handle.id)
    assert run.baton.decision_log == ["Reserved", "Released [4, 5] by value", "Released [4, 5] by output"]
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_compensation_without_money_is_noted_and_the_others_run(worker: Worker, safeguards: Safeguards) -> None:
    """The run fails with its own error."""
    handle: Handle = await worker.client.start_workflow(
        Books.run,
        PipelineInput(
            goal=GOAL,
            params={"then": "pay"},
            budget=Budget(initial_micro_usd=1_200, then=OnExhaustion.STOP),
        ),
        id=f"books-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
    )

    assert (await failure(handle)).startswith("'pay' needs")
    run = await read_run(worker.client, handle.id)
    assert names(run) == ["book", "pay", "call_off", "tell"]
    [note] = (await overview(handle)).notes
    assert note.startswith("compensation 'refund' failed, see to it by hand: 'refund' needs 0.0005 USD")
    assert [each.text for each in run.notes] == [note], "its history tells it without a worker"
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))


async def test_repair_hints_go_back_to_before_the_compensated_steps(worker: Worker, safeguards: Safeguards) -> None:
    """Directly before the failed stage, the booking would count as made."""
    handle = await start(worker, Books.run, then="break")
    assert "the model is down" in await failure(handle)

    run = await read_run(worker.client, handle.id)
    assert names(run) == ["book", "breaks", "call_off", "tell"]
    again, anew = (hint.plain for hint in repair_hints(run))
    assert "What its steps from 1 on did outside was undone." in standing(run).sentence
    assert f"baton rollback {handle.id} --to 1 " in again
    assert f"baton fork {handle.id} --at 1 " in anew
    assert (run.notes, run.to_json_object()["undone_since"]) == ([], 1)
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_canceled_pipeline_compensates_without_continuing_as_new(
    worker: Worker, safeguards: Safeguards
) -> None:
    """The next run would not be canceled, and would wait for ever."""
    handle = await start(worker, Books.run, then="sleep", events=12)
    await until_waiting(handle, "sleep")
    await asyncio.sleep(1.1)  # a run continues as new after a second at the earliest
    await handle.cancel()

    assert await canceled(worker, handle, safeguards) == ["book", "sleep", "call_off", "tell"]


@pytest.mark.parametrize("how", ["fails", "terminated"])
async def test_a_child_compensates_if_its_parent_ends_first(worker: Worker, safeguards: Safeguards, how: str) -> None:
    """It is asked to cancel; a terminated one would leave its booking."""
    handle = await start(worker, HasItBooked.run)
    await event(handle, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED)
    [(id, _, _)] = (await read_run(worker.client, handle.id)).children
    child = worker.client.get_workflow_handle(id)
    await until_waiting(child, "sleep")
    if how == "fails":
        await approve(worker.client, handle, "go on")
        assert "the model is down" in await failure(handle)
    else:
        await handle.terminate()

    assert await canceled(worker, child, safeguards) == ["book", "sleep", "call_off", "tell"]


async def test_a_fork_inherits_nothing_after_the_cancellation(worker: Worker, safeguards: Safeguards) -> None:
    """It would wait in the canceled step for ever."""
    handle = await start(worker, Books.run, then="sleep")
    await until_waiting(handle, "sleep")
    await handle.cancel()
    assert (await canceled(worker, handle, safeguards))[-1] == "tell"
    step = (await read_run(worker.client, handle.id)).steps[1]
    assert (step.status, step.failure) == (StepStatus.FAILED, "canceled with the run")

    with pytest.raises(HistoryError, match=r"step 2 \('sleep'\) before it was canceled because the run was asked to"):
        await fork(worker.client, handle.id, "tell", by="bob", why="tell once more")
    other = await fork(worker.client, handle.id, step.name, by="bob", why="wait again")
    await until_waiting(other, step.name)
    await other.cancel()
    assert (await canceled(worker, other, safeguards))[-1] == "tell"


async def test_a_child_that_ended_after_the_roll_backs_point_starts_again(worker: Worker) -> None:
    """It was canceled with its failed parent, which a reset run does not learn."""
    handle = await start(worker, WorksBesideItsChild.run)
    assert "the model is down" in await failure(handle)
    done = await roll_back(worker.client, handle.id, "stumbles_once", by="bob", why="the model is up again")
    rolled_back = worker.client.get_workflow_handle(handle.id)
    while not (children := (await read_run(worker.client, handle.id)).children):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await approve(worker.client, worker.client.get_workflow_handle(children[-1][0]), "the half")
    result = await asyncio.wait_for(rolled_back.result(), LIMIT.total_seconds())

    assert sorted(done.also_again) == ["asks", "tell"]
    assert result["baton"]["decision_log"] == ["Booked", "Told", "Stumbled once"]
    await assert_replays(rolled_back, PIPELINES, plugin=BatonPlugin())


async def test_a_compensation_that_is_not_what_was_approved_does_not_stop_the_others(worker: Worker) -> None:
    """The bound stage is left to people, and the older one runs."""
    handle = await start(worker, AsksFirst.run, late=False)
    await until_waiting(handle, "release manager")
    await approve(worker.client, handle)
    await failure(handle)

    run = await read_run(worker.client, handle.id)
    assert names(run) == ["book", "release manager", "breaks", "tell"]
    [note] = [note for note in (await overview(handle)).notes if note.startswith("compensation")]
    assert note.startswith("compensation 'call_off' failed, see to it by hand: 'release manager' approved")


async def test_a_missed_deadline_can_be_told_from_a_no(worker: Worker) -> None:
    """The error has who, why and by which way."""
    late = await start(worker, AsksFirst.run, late=True)
    denied = await start(worker, AsksFirst.run, late=False)
    await approve(worker.client, denied, yes=False)

    assert (await denied.result()).output == ["update", "ann", "it is tested", False]
    via, who, _, approved = (await late.result()).output
    assert (via, who, approved) == ("deadline", "deadline", False)
