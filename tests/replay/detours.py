"""Runs with detours, for `tests.replay.record`: decisions, cancellations, late answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from baton import Budget, PipelineStatus
from baton.client import HandoffAction, Question, decide
from baton.core.messages import PipelineInput
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import OutsideAgents
from baton.wire.names import QUERY_QUESTIONS
from tests.budget.paying_pipelines import Takes
from tests.exchange.exchange_pipelines import (
    Accepts,
    AsksTheInbox,
    Broadcasts,
    HandsOutside,
    Receives,
)
from tests.handoff import handoff_pipelines as handed
from tests.handoff.inbox_pipelines import ForgetsInABranch
from tests.pipelines.pipelines import AsksWhileWorking
from tests.pipelines.undoing import Books
from tests.support import GOAL, Handle, approve, start, until, until_waiting

Recording = Callable[[Worker, str], Awaitable[Handle]]


async def run_canceled(worker: Worker, id: str) -> Handle:
    """Return a run that was canceled while a stage was running and two people were asked."""
    handle = await start(worker, AsksWhileWorking.run, id=id, gate="shut", patch={})
    await until_waiting(handle, "hold", "legal", "security")
    await handle.cancel()
    await _until_ended(handle)
    return handle


async def run_undone_canceled(worker: Worker, id: str) -> Handle:
    """Return a run that was canceled while it undid the steps of a failed run, after it had continued as new."""
    handle = await start(worker, Books.run, id=id, then="break", seconds=2, events=8)
    await until_waiting(handle, "call_off")
    await handle.cancel()
    await _until_ended(handle)
    return handle


PLAIN: dict[str, Recording] = {
    "canceled": run_canceled,
    "undone-canceled": run_undone_canceled,
}
"""Runs of workers without safeguards."""


async def _start_taking(worker: Worker, id: str, steps: list[Any], micro_usd: int = 100_000, **params: Any) -> Handle:
    """Start a run that takes these steps, with a budget."""
    start_input = PipelineInput(
        goal=GOAL, budget=Budget(initial_micro_usd=micro_usd), params={"steps": steps, "does": {}, **params}
    )
    return await worker.client.start_workflow(Takes.run, start_input, id=id, task_queue=worker.task_queue)


async def run_children(worker: Worker, id: str) -> Handle:
    """Return a run whose first child failed and released its budget, and whose second child completed."""
    return await _until_done(
        await _start_taking(worker, id, ["first", {"child": ["second", "fail"]}, {"child": ["first"]}])
    )


async def run_continuing(worker: Worker, id: str, *, last: bool) -> Handle:
    """Return the first or the last run of a chain with handoffs, a fan-out and a budget."""
    steps: list[Any] = ["first", "sleep", ["first", "second"], "sleep", {"child": ["first"]}, "sleep", "ask", "second"]
    handle = await _start_taking(worker, id, steps, events=20)
    newest: Handle = worker.client.get_workflow_handle(id)
    await approve(worker.client, newest)
    await newest.result()
    return newest if last else worker.client.get_workflow_handle(id, run_id=handle.first_execution_run_id)


async def run_decided(worker: Worker, id: str, action: HandoffAction, **further: Any) -> Handle:
    """Return a run in which a person decided about each handoff that nobody accepted, also in a branch."""
    handle = await start(worker, ForgetsInABranch.run, id=id)
    await _decide(worker, handle, action, **further)
    await _until_ended(handle)
    return handle


async def run_undone(worker: Worker, id: str) -> Handle:
    """Return a run whose last stage failed after it had accepted, so that the others were compensated."""
    return await _until_done(await start(worker, handed.Undoes.run, id=id))


async def run_requeued(worker: Worker, id: str) -> Handle:
    """Return a run whose receiver failed for good, got the handoff again from a person, and was then abandoned."""
    handle = await start(worker, handed.Breaks.run, id=id)
    first_question = await _decide(worker, handle, HandoffAction.REQUEUE)
    await _decide(worker, handle, HandoffAction.ABANDON, after=first_question)
    await _until_ended(handle)
    return handle


async def run_personal(worker: Worker, id: str) -> Handle:
    """Return a run with a person's data that waited in between."""
    handle = await start(worker, handed.Personal.run, id=id, wait=True)
    await approve(worker.client, handle, "go on")
    return await _until_done(handle)


async def run_broadcast(worker: Worker, id: str) -> Handle:
    """Return a run that handed off to three receivers; two of them exist and are the quorum."""
    receivers = {
        agent: (await start(worker, Accepts.run, id=f"{id}-{agent}", agent=agent)).id for agent in ("risk", "tax")
    }
    return await _until_done(
        await start(worker, Broadcasts.run, id=id, to={**receivers, "style": f"{id}-nobody"}, quorum=2)
    )


async def run_asked(worker: Worker, id: str) -> Handle:
    """Return a run whose handoff got no answer until a person had it sent again."""
    handle = await start(worker, AsksTheInbox.run, id=id, to=f"{id}-to", seconds=5)
    await _read_question(handle)
    await start(worker, Receives.run, id=f"{id}-to")
    await _decide(worker, handle, HandoffAction.REQUEUE)
    return await _until_done(handle)


def outside(safeguards: Safeguards) -> Recording:
    """Return the recording of a run with an outside agent that gave the task back, claimed it again and finished it.

    Args:
        safeguards: Seal the agent's moves.
    """

    async def recording(worker: Worker, id: str) -> Handle:
        handle = await start(worker, HandsOutside.run, id=id)
        await until(handle, lambda now: now.status is PipelineStatus.WAITING)
        async with safeguards.shared().open() as guarded:
            agents = OutsideAgents(worker.client, guarded.gate)
            while not (open_handoffs := [ref async for ref in agents.list_open("reviewer")]):  # noqa: ASYNC110 - the index tells nobody
                await asyncio.sleep(0.05)
            await agents.give_back(await agents.claim(open_handoffs[0], "reviewer"), "reviewer")
            await agents.accept(open_handoffs[0], "reviewer")
            await agents.return_patch(open_handoffs[0], "reviewer", {"decision_log": ["Clause 4.2 is fine"]})
        return await _until_done(handle)

    return recording


OUTSIDE = ("outside",)
"""What `outside` recorded."""

HANDED: dict[str, Recording] = {
    "children": run_children,
    "handoffs-continued": lambda worker, id: run_continuing(worker, id, last=True),
    "handoffs-requeued": run_requeued,
    "undone": run_undone,
    "personal": run_personal,
    "broadcast": run_broadcast,
    "asked": run_asked,
}
"""Runs of workers with safeguards."""


async def _until_done(handle: Handle) -> Handle:
    await handle.result()
    return handle


async def _until_ended(handle: Handle) -> None:
    """Wait for the end of a run, whatever it is."""
    try:
        await handle.result()
    except WorkflowFailureError:
        return


async def _read_question(handle: Handle, after: Question | None = None) -> Question:
    """Return the question about a handoff once there is one, and a later one than ``after``."""
    while True:
        await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
        asked: list[Question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
        if asked and (after is None or asked[0].id != after.id):
            return asked[0]
        await asyncio.sleep(0.05)


async def _decide(
    worker: Worker, handle: Handle, choice: HandoffAction, *, after: Question | None = None, **data: Any
) -> Question:
    """Decide as Ann about the pending handoff, and return the question."""
    question = await _read_question(handle, after)
    answer = question.answer(choice, who="ann", why="looked at", data=data or None)
    await decide(worker.client, handle.id, answer)
    return question
