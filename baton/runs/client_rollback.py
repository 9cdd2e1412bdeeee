"""Rolls a run back: finds the point, resets the run to it, and settles the abandoned part's children and spend."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest, SignalWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.core.history import Spend, StepKind
from baton.core.operations import Fact, Operation, Preview
from baton.core.past import RollBacks, RolledBack
from baton.errors import HistoryError
from baton.runs.client_control import continued
from baton.runs.client_executions import describe, history, list_executions
from baton.runs.client_list import equal
from baton.runs.client_reader import read_run
from baton.runs.client_record import Reset, RunRecord, RunStatus, Step
from baton.wire.json_values import JsonFields
from baton.wire.money import format_usd
from baton.wire.names import HANDOFF, HANDOFF_ANSWER, HANDOFF_CHUNK, ROLLED_BACK
from baton.wire.text import quantity

_PIPELINE_SIGNALS = (HANDOFF, HANDOFF_ANSWER, HANDOFF_CHUNK)


@dataclass(frozen=True)
class RollbackPoint(JsonFields):
    """The target of a roll-back, and what it abandons.

    Attributes:
        run: The run that has the event to reset to.
        step: The first step that runs again.
        event: The event to reset to.
        newest: The workflow's newest run, which the roll-back ends.
    """

    run: RunRecord
    step: Step
    event: int
    newest: RunRecord

    @property
    def also_again(self) -> list[Step]:
        """Earlier steps that began at or after the point, so they run again too."""
        earlier = [step for step in self.run.steps if step.seq < self.step.seq]
        return [step for step in earlier if step.reset_event is not None and step.reset_event >= self.event]

    @property
    def again(self) -> list[Step]:
        """All steps taken so far that will run again, in order."""
        return [*self.also_again, *(step for step in self.newest.steps if step.seq >= self.step.seq)]

    @property
    def undone(self) -> list[Step]:
        """The decided approvals that it undoes."""
        return [step for step in self.again if step.kind is StepKind.APPROVAL and step.approved is not None]

    @property
    def spent(self) -> Spend:
        """The spend after the point. It stays charged."""
        return self.newest.billed.minus(self.run.billed_by(self.event))

    @property
    def children(self) -> list[str]:
        """Workflow ids of the children that the newest run started after the point."""
        last_event = self.event if self.run.run_id == self.newest.run_id else 0
        return [child for child, _, initiated in self.newest.children if initiated > last_event]


@dataclass(frozen=True)
class RolledBackRun(JsonFields):
    """The result of a roll-back.

    Attributes:
        run_id: The new run, which continues at the step.
        from_run_id: The abandoned run.
        step: The first step that runs again.
        event: The event that the run was reset to.
        also_again: Names of earlier steps that run again too: they share the step's workflow task, or that of a child
            that has to run again because it ended after the step had begun.
        stopped_children: Workflow ids of the abandoned run's children that were terminated.
    """

    run_id: str
    from_run_id: str
    step: Step
    event: int
    also_again: list[str] = field(default_factory=list)
    stopped_children: list[str] = field(default_factory=list)


async def find_point(client: Client, workflow_id: str, to: str, run_id: str | None = None) -> RollbackPoint:
    """Return the point of a roll-back, without changing anything.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        to: The step: its number, its name, or `name:2` for the second of that name.
        run_id: The run; the newest by default.

    Returns:
        The point.

    Raises:
        HistoryError: The step does not exist, or it ran in the workflow that this one was forked from.
        temporalio.service.RPCError: The run does not exist.
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
    return RollbackPoint(run, step, _find_safe_event(run, step.reset_event), await read_run(client, workflow_id))


def _find_safe_event(run: RunRecord, event: int) -> int:
    """Return an event early enough that every child whose end would be lost runs again."""
    is_closed = run.status is not RunStatus.RUNNING
    while True:
        lost_steps = [
            step
            for step in run.steps
            if step.kind is StepKind.CHILD
            and step.reset_event is not None
            and step.reset_event < event
            and (run.ended_child(step) or (event if is_closed else 0)) >= event
        ]
        if not lost_steps:
            return event
        event = min(step.reset_event or event for step in lost_steps)


@dataclass(frozen=True)
class RollbackPreview(Preview):
    """What a roll-back would do now.

    Attributes:
        point: Where the run goes back to, and what that abandons.
    """

    point: RollbackPoint = field(kw_only=True)


@dataclass(frozen=True)
class RollBack(Operation[RollbackPreview, RolledBackRun]):
    r"""Roll an open or closed run back to right before a step; it continues from there.

    The server ends the run and starts another with its history up to the step (Temporal's reset). Later signals and
    updates are dropped, except for handoffs, answers and chunks from other pipelines. Children that the abandoned run
    started after that point are terminated, and the new run records who rolled back and why. Effects of stages outside
    are not undone, and their spend stays charged.

    `preview` and `commit` raise `HistoryError` if the step does not exist, or it ran in the workflow that this one was
    forked from, and `temporalio.service.RPCError` if the server refuses.

    Attributes:
        client: A connected client.
        workflow_id: The pipeline.
        to: The step: its number, its name, or `name:2` for the second of that name.
        run_id: The run; the newest by default.

    Example:
        ```python
        operation = RollBack(client, "order-1", "plan")
        preview = await operation.preview()
        print(preview.title, *[fact.text for fact in preview.facts], sep="\n")
        result = await operation.commit(preview.mark, by="ann", why="wrong plan")
        ```
    """

    client: Client
    workflow_id: str
    to: str
    run_id: str | None = None
    nothing_done = "nothing was rolled back"

    async def preview(self) -> RollbackPreview:
        """Return what would run again, stop and be undone."""
        point = await find_point(self.client, self.workflow_id, self.to, self.run_id)
        newest, step = point.newest, point.step
        asking: list[JsonValue] = [open_step.seq for open_step in newest.steps if _is_asking(open_step)]
        basis: dict[str, JsonValue] = {
            "run": newest.run_id,
            "status": newest.status.value,
            "to": [point.run.run_id, point.event, step.seq],
            "steps": newest.steps[-1].seq if newest.steps else 0,
            "asking": asking,
            "children": len(point.children),
        }
        title = f"{self.workflow_id} ({newest.status.value}) goes back to before {step.seq} {step.name}"
        return RollbackPreview(title, _consequences(point), basis, point=point)

    async def _perform(self, preview: RollbackPreview, by: str, why: str) -> RolledBackRun:
        point = preview.point
        new_run_id = await _reset(self.client, point, RolledBack(to=point.step.name, by=by, why=why))
        await _resend_signals(self.client, point)
        stopped = [
            child
            for child in point.children
            if await _terminate(self.client, child, f"parent {self.workflow_id!r} rolled back by {by}")
        ]
        also_again = [step.name for step in point.also_again]
        return RolledBackRun(new_run_id, point.newest.run_id, point.step, point.event, also_again, stopped)

    def _changes(self, shown: Mapping[str, Any], preview: RollbackPreview) -> list[str]:
        point, newest = preview.point, preview.point.newest
        if shown["run"] != newest.run_id:
            return [continued(newest)]
        changes = []
        if shown["status"] != newest.status.value:
            changes.append(f"the run is {newest.status.value} now")
        if later := [step for step in newest.steps if step.seq > shown["steps"]]:
            changes.append(f"also {_names(later)} would run again")
        if decided := [step for step in newest.steps if step.seq in shown["asking"] and not _is_asking(step)]:
            changes.append(f"decided meanwhile: {_names(decided)}")
        if started := point.children[shown["children"] :]:
            changes.append(f"also the child {', '.join(started[:_MAX_NAMES])} would stop")
        return changes or ["it would go back to another point"]


async def roll_back(
    client: Client, workflow_id: str, to: str, *, by: str, why: str, run_id: str | None = None
) -> RolledBackRun:
    """Roll a run back without showing it to anybody first: `RollBack.commit` without a mark."""
    return await RollBack(client, workflow_id, to, run_id).commit(by=by, why=why)


def _consequences(point: RollbackPoint) -> list[Fact]:
    spent = point.spent
    costs = [format_usd(spent.micro_usd)] if spent.micro_usd else []
    costs += [quantity(spent.tokens, "token")] if spent.tokens else []
    return [
        Fact(f"{quantity(len(point.again), 'step')} will run again."),
        *([Fact(f"{' and '.join(costs)} spent on that stays charged.")] if costs else []),
        *(
            Fact(
                f"Approval {step.name!r} ({'approved' if step.approved else 'denied'}) is undone, and asked for again.",
                is_loss=True,
            )
            for step in point.undone
        ),
        *(Fact(f"Child {child} is terminated if it is open.", is_loss=True, run=child) for child in point.children),
        *([] if point.undone else [Fact("No decision is undone.")]),
        *([] if point.children else [Fact("No child is stopped.")]),
        Fact("What stages did outside is not undone."),
    ]


def _is_asking(step: Step) -> bool:
    return step.kind is StepKind.APPROVAL and step.approved is None and step.ended is None


def _names(steps: list[Step]) -> str:
    shown = ", ".join(f"{step.seq} {step.name}" for step in steps[:_MAX_NAMES])
    return shown if len(steps) <= _MAX_NAMES else f"{shown} and {len(steps) - _MAX_NAMES} more"


async def _reset(client: Client, point: RollbackPoint, roll_back: RolledBack) -> str:
    """Reset the run to the point, and return the new run's id."""
    response = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=point.run.workflow_id, run_id=point.run.run_id),
            reason=roll_back.note,
            workflow_task_finish_event_id=point.event,
            request_id=str(uuid4()),
            identity=roll_back.by,
            reset_reapply_exclude_types=[
                ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
                ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
            ],
        ),
        retry=True,
    )
    return response.run_id


async def _resend_signals(client: Client, point: RollbackPoint) -> None:
    """Send the new run the signals that other pipelines sent after the point: they do not send them again.

    The signals are sealed, so the new run validates each as usual, and accepts it once.
    """
    missed: list[HistoryEvent] = []
    run_id, base = point.newest.run_id, point.run.run_id
    while True:
        _, events = await history(client, point.run.workflow_id, run_id)
        missed[:0] = [event_ for event_ in events if run_id != base or event_.event_id > point.event]
        previous = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if run_id == base or not previous:
            break
        run_id = previous
    for event in missed:
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name not in _PIPELINE_SIGNALS:
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
            if error.status is not RPCStatusCode.NOT_FOUND:  # the new run has ended
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
_MAX_PAUSES = 25  # gives terminated children five seconds to end

_MAX_BETWEEN = 20
_MAX_NAMES = 8


@activity.defn(name=ROLLED_BACK)
async def rolled_back(known_resets: int) -> RollBacks:
    """Return the calling run's resets after the first ``known_resets``, each with the spend it abandoned.

    All data comes from histories, which only the server writes; who rolled back, and why, is as stated by them.
    """
    info, client = activity.info(), activity.client()
    assert info.workflow_id is not None  # noqa: S101 - a pipeline has scheduled it
    run = await read_run(client, info.workflow_id, info.workflow_run_id)
    return RollBacks(made=[await _settle(client, run, reset) for reset in run.resets[known_resets:]])


async def _settle(client: Client, run: RunRecord, reset: Reset) -> RolledBack:
    base = await read_run(client, run.workflow_id, reset.base_run_id)
    newest, known_spend = await _find_newest(client, base, run.run_id), base.billed_by(reset.event)
    # Each of these runs has settled the resets before it, or has spent nothing.
    newest = max([newest, *await _list_between(client, base, run.run_id)], key=lambda other: _spend_order(other.billed))
    abandoned, stopped_children = newest.billed.minus(known_spend), []
    topped_up = newest.topped_up_by(newest.last_event) - base.topped_up_by(reset.event)
    shares_history = newest is base or any(later.base_run_id == base.run_id for later in newest.resets)
    last_event = reset.event if shares_history else 0
    for child, child_run, initiated in newest.children:
        if initiated <= last_event:
            continue
        status = await _await_end(client, child, child_run)
        if status == "TERMINATED":
            stopped_children.append(child)
        if initiated not in newest.ended_children:
            spend, child_top_ups = await _read_account(client, child)
            abandoned, topped_up = abandoned + spend, topped_up + child_top_ups
    return RolledBack.from_reason(
        reset.reason,
        from_run_id=newest.run_id,
        stopped_children=stopped_children,
        left=abandoned,
        topped_up_micro_usd=max(0, topped_up),
    )


async def _list_between(client: Client, base: RunRecord, run_id: str) -> list[RunRecord]:
    """Return the runs between a run and its reset; the server does not link them."""
    base_start, run_start = [(await describe(client, base.workflow_id, id)).start_time for id in (base.run_id, run_id)]
    query = f"{equal('WorkflowId', base.workflow_id)} AND ExecutionStatus != 'ContinuedAsNew'"
    executions = [execution async for execution in list_executions(client, query, most=_MAX_BETWEEN)]
    ids = [execution.run_id for execution in executions if base_start < execution.start_time < run_start]
    return [await read_run(client, base.workflow_id, id) for id in ids]


async def _find_newest(client: Client, base: RunRecord, run_id: str) -> RunRecord:
    """Return the last run of the abandoned part: it may have continued as new, or been reset, several times."""
    newest = base
    while True:
        next_run_id = newest.next_run_id or ""
        if newest is not base:
            execution = await describe(client, newest.workflow_id, newest.run_id)
            next_run_id = execution.details.workflow_extended_info.reset_run_id or next_run_id
        if next_run_id in ("", run_id):
            return newest
        newest = await read_run(client, newest.workflow_id, next_run_id)


def _spend_order(spend: Spend) -> tuple[int, int]:
    return spend.micro_usd, spend.tokens


async def _await_end(client: Client, workflow_id: str, run_id: str) -> str:
    """Return the status of a child once it has ended; `roll_back` terminates it right after the reset."""
    for _ in range(_MAX_PAUSES):
        status = (await describe(client, workflow_id, run_id)).status
        if status != "RUNNING":
            break
        await asyncio.sleep(_PAUSE)
    return status


async def _read_account(client: Client, workflow_id: str) -> tuple[Spend, int]:
    """Return a child's total cost and its top-ups; zero if it is not a pipeline."""
    try:
        child = await read_run(client, workflow_id)
    except HistoryError:
        return Spend(), 0
    return child.billed, child.topped_up_by(child.last_event)
