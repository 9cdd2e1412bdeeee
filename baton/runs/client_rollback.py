"""Roll a run back: find the point, reset the run to it, settle what the abandoned part had started and spent."""

import asyncio
from dataclasses import dataclass, field
from uuid import uuid4

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest, SignalWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.core.history import Spend, StepKind
from baton.core.messages import RollBacks, RolledBack
from baton.errors import HistoryError, PipelineError
from baton.exchange.records import HANDOFF, HANDOFF_ANSWER
from baton.handoff.pending import name_refusal
from baton.runs.client_executions import describe, history, list_executions
from baton.runs.client_reader import read_run
from baton.runs.client_record import Reset, RunRecord, RunStatus, Step
from baton.wire.names import HANDOFF_CHUNK, ROLLED_BACK

_FROM_PIPELINES = (HANDOFF, HANDOFF_ANSWER, HANDOFF_CHUNK)


@dataclass(frozen=True)
class RollbackPoint:
    """Where a roll-back goes, and what it leaves.

    Attributes:
        run: The run that has the event to go back to.
        step: The first step that runs again.
        event: The event that the run is reset to.
        newest: The workflow's newest run, which the roll-back ends.
    """

    run: RunRecord
    step: Step
    event: int
    newest: RunRecord

    @property
    def also_again(self) -> list[Step]:
        """Steps before the step that began at or after the point, so they run again too."""
        before = [one for one in self.run.steps if one.seq < self.step.seq]
        return [one for one in before if one.reset_event is not None and one.reset_event >= self.event]

    @property
    def again(self) -> list[Step]:
        """All steps taken so far that will run again, in order."""
        return [*self.also_again, *(one for one in self.newest.steps if one.seq >= self.step.seq)]

    @property
    def spent(self) -> Spend:
        """What was spent after the point. It stays charged."""
        return self.newest.billed.beyond(self.run.billed_by(self.event))

    @property
    def children(self) -> list[str]:
        """Workflow ids of the children that the newest run started after the point."""
        after = self.event if self.run.run_id == self.newest.run_id else 0
        return [child for child, _, initiated in self.newest.children if initiated > after]


@dataclass(frozen=True)
class RolledBackRun:
    """What a roll-back did.

    Attributes:
        run_id: The new run, which continues from the step.
        from_run_id: The run that was left.
        step: The step it was rolled back to before.
        event: The event it was reset to.
        also_again: Names of steps before the step that run again too: they share its workflow task, or that of a child
            which has to run again because it ended after the step had begun.
        stopped_children: Workflow ids of the children of the left run that were terminated.
    """

    run_id: str
    from_run_id: str
    step: Step
    event: int
    also_again: list[str] = field(default_factory=list)
    stopped_children: list[str] = field(default_factory=list)


async def find_point(client: Client, workflow_id: str, to: str, run_id: str | None = None) -> RollbackPoint:
    """Return where a roll-back would go, without changing anything.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        to: The step: its number, its name, or `name:2` for the second of that name.
        run_id: Which run; the newest by default.

    Returns:
        The point.

    Raises:
        HistoryError: There is no such step, or it ran in another workflow from which this one was forked.
        temporalio.service.RPCError: There is no such run.
    """
    run = await read_run(client, workflow_id, run_id)
    step = run.step(to)
    while step.reset_event is None:
        fork = f"fork at that step instead (baton fork {workflow_id} --at {step.seq})"
        if not run.took_over(step):
            raise HistoryError(
                f"the history records only how step {step.seq} ({step.name!r}) ended, so there is no event to go back "
                f"to: {fork}, or go back further"
            )
        if run.previous_run_id is None:
            raise HistoryError(
                f"step {step.seq} ({step.name!r}) ran before {workflow_id!r} was forked, so there is no event here to "
                f"go back to: {fork}"
            )
        run = await read_run(client, workflow_id, run.previous_run_id)
        step = run.step(str(step.seq))
    return RollbackPoint(run, step, _before_lost_children(run, step.reset_event), await read_run(client, workflow_id))


def _before_lost_children(run: RunRecord, event: int) -> int:
    """Return the event to go back to so that no child is waited for whose end lies behind it."""
    is_closed = run.status is not RunStatus.RUNNING
    while True:
        lost = [
            one
            for one in run.steps
            if one.kind is StepKind.CHILD
            and one.reset_event is not None
            and one.reset_event < event
            and (run.ended_child(one) or (event if is_closed else 0)) >= event
        ]
        if not lost:
            return event
        event = min(one.reset_event or event for one in lost)


async def roll_back(
    client: Client, workflow_id: str, to: str, *, by: str, why: str, run_id: str | None = None
) -> RolledBackRun:
    """Roll an open or closed run back to right before a step; it continues from there.

    The server ends the run and starts another with its history up to the step (Temporal's reset). Signals and
    updates that came later belong to the abandoned part and are not applied again, except for the handoffs, answers
    and chunks of other pipelines. Children that the left
    run started after that point are terminated, and the new run records who rolled back and why. What stages did
    outside is not undone, and what they spent stays charged.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        to: The step: its number, its name, or `name:2` for the second of that name.
        by: Who rolls back.
        why: The reason, for the history.
        run_id: Which run; the newest by default.

    Returns:
        What was done.

    Raises:
        HistoryError: There is no such step, or it ran in another workflow from which this one was forked.
        PipelineError: The name of who rolls back has control characters; nothing was done.
        temporalio.service.RPCError: The server refuses.
    """
    if unnamed := name_refusal(by):
        raise PipelineError(unnamed)
    point = await find_point(client, workflow_id, to, run_id)
    new_run_id = await _reset(client, point, RolledBack(to=point.step.name, by=by, why=why))
    await _bring_again(client, point)
    stopped = [
        child
        for child in point.children
        if await _terminate(client, child, f"parent {workflow_id!r} rolled back by {by}")
    ]
    also_again = [one.name for one in point.also_again]
    return RolledBackRun(new_run_id, point.newest.run_id, point.step, point.event, also_again, stopped)


async def _reset(client: Client, point: RollbackPoint, told: RolledBack) -> str:
    """Reset the run to the point, and return the new run's id."""
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=point.run.workflow_id, run_id=point.run.run_id),
            reason=told.note,
            workflow_task_finish_event_id=point.event,
            request_id=str(uuid4()),
            identity=told.by,
            reset_reapply_exclude_types=[
                ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
                ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
            ],
        ),
        retry=True,
    )
    return answer.run_id


async def _bring_again(client: Client, point: RollbackPoint) -> None:
    """Send the new run what other pipelines had sent the left ones after the point: they do not send it again.

    It is sealed, so it counts as it did, and once.
    """
    lost: list[HistoryEvent] = []
    run_id, base = point.newest.run_id, point.run.run_id
    while True:
        _, events = await history(client, point.run.workflow_id, run_id)
        lost[:0] = [one for one in events if run_id != base or one.event_id > point.event]
        previous = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if run_id == base or not previous:
            break
        run_id = previous
    for event in lost:
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name not in _FROM_PIPELINES:
            continue
        request = SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=point.run.workflow_id),
            signal_name=signal.signal_name,
            input=signal.input,
            header=signal.header,
            request_id=str(uuid4()),
        )
        try:
            await client.workflow_service.signal_workflow_execution(request, retry=True)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # the new run has ended, and needs none of it
                raise
            return


async def _terminate(client: Client, workflow_id: str, reason: str) -> bool:
    """Terminate a workflow; False if it had ended already."""
    try:
        await client.get_workflow_handle(workflow_id).terminate(reason=reason)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


_PAUSE = 0.2
_LOOKS = 25  # so many pauses are five seconds for the children to end that a roll-back terminates

_MOST_BETWEEN = 20


@activity.defn(name=ROLLED_BACK)
async def rolled_back(told: int) -> RollBacks:
    """Return the resets of the run that asks, from the ``told``-th on, with the bills of what each left.

    All of it is read from histories, which only the server writes. Who rolled the run back and why is what they said.
    """
    info, client = activity.info(), activity.client()
    assert info.workflow_id is not None  # noqa: S101 - a pipeline has scheduled it
    run = await read_run(client, info.workflow_id, info.workflow_run_id)
    return RollBacks(made=[await _settled(client, run, reset) for reset in run.resets[told:]])


async def _settled(client: Client, run: RunRecord, reset: Reset) -> RolledBack:
    base = await read_run(client, run.workflow_id, reset.base_run_id)
    newest, known = await _newest(client, base, run.run_id), base.billed_by(reset.event)
    # Each of them has settled what was left before it, or has spent nothing.
    newest = max([newest, *await _between(client, base, run.run_id)], key=lambda one: _size(one.billed))
    left, stopped = newest.billed.beyond(known), []
    shares = newest is base or any(one.base_run_id == base.run_id for one in newest.resets)
    after = reset.event if shares else 0
    for child, child_run, initiated in newest.children:
        if initiated <= after:
            continue
        status = await _ended(client, child, child_run)
        if status == "TERMINATED":
            stopped.append(child)
        if initiated not in newest.ended_children:
            left += await _billed(client, child)
    return RolledBack.from_reason(reset.reason, from_run_id=newest.run_id, stopped_children=stopped, left=left)


async def _between(client: Client, base: RunRecord, run_id: str) -> list[RunRecord]:
    """Return the runs that came between one and that which was reset from it: the server links none of them."""
    first, mine = [(await describe(client, base.workflow_id, one)).start_time for one in (base.run_id, run_id)]
    name = base.workflow_id.replace("'", "''")
    query = f"WorkflowId = '{name}' AND ExecutionStatus != 'ContinuedAsNew'"
    found = [one async for one in list_executions(client, query, most=_MOST_BETWEEN)]
    ids = [one.run_id for one in found if first < one.start_time < mine]
    return [await read_run(client, base.workflow_id, one) for one in ids]


async def _newest(client: Client, base: RunRecord, run_id: str) -> RunRecord:
    """Return the last run of the part that was left: it may have continued as new, and been reset, several times."""
    newest = base
    while True:
        following = newest.next_run_id or ""
        if newest is not base:
            execution = await describe(client, newest.workflow_id, newest.run_id)
            following = execution.details.workflow_extended_info.reset_run_id or following
        if following in ("", run_id):
            return newest
        newest = await read_run(client, newest.workflow_id, following)


def _size(spend: Spend) -> tuple[int, int]:
    return spend.micro_usd, spend.prompt_tokens + spend.completion_tokens


async def _ended(client: Client, workflow_id: str, run_id: str) -> str:
    """Return the status of a child, once it has ended: who rolls back terminates it right after the reset."""
    for _ in range(_LOOKS):
        status = (await describe(client, workflow_id, run_id)).status
        if status != "RUNNING":
            break
        await asyncio.sleep(_PAUSE)
    return status


async def _billed(client: Client, workflow_id: str) -> Spend:
    """Return what a child was charged; nothing if it is not a pipeline."""
    try:
        return (await read_run(client, workflow_id)).billed
    except HistoryError:
        return Spend()
