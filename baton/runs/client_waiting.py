"""Finds out what a run waits for (stages, people, children), and which workers poll its task queue."""

import asyncio
import shlex
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.deployment.v1 import WorkerDeploymentOptions, WorkerDeploymentVersion
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType, VersioningBehavior, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from baton.core.history import StepKind
from baton.core.questions import Question
from baton.errors import PipelineError
from baton.runs.client_clock import server_now
from baton.runs.client_events import failure_reason, parse_child_id
from baton.runs.client_executions import Execution, Pause, describe, unpause
from baton.runs.client_list import BEHAVIOR, BUILD, label_of, status_of
from baton.runs.client_record import RunRecord, RunStatus, Step, StepStatus
from baton.wire.json_values import JsonFields
from baton.wire.names import WAIT_FOR_WORKER

WORKER_SILENCE = timedelta(seconds=90)
"""An idle worker polls about once a minute; a worker that has not polled for longer is gone."""

_PINNED = VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
_VERSIONED = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
_AT_WORK = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


class Build(NamedTuple):
    """A build of a worker deployment."""

    deployment: str
    id: str


class Unchosen(NamedTuple):
    """Workers that poll, but are only given runs that are pinned to their build."""

    deployment: str
    build: str | None
    current: str | None

    @property
    def remedy(self) -> str:
        """The command that routes runs to them."""
        build_option = "--unversioned" if self.build is None else f"--build-id {shlex.quote(self.build)}"
        name = shlex.quote(self.deployment)
        return f"temporal worker deployment set-current-version --deployment-name {name} {build_option}"


@dataclass(frozen=True)
class Pending(JsonFields):
    """One thing that a run waits for.

    Attributes:
        seq: The step's number.
        name: The stage, the item of a map, the approval or the child.
        kind: The kind of step.
        since: When it began.
        until: The deadline of an approval.
        asks: An approval's question.
        asked: An approval's question and texts.
        at_work: Whether a worker is executing the stage; False while it waits for a worker or its next try.
        tries: The number of tries so far, Temporal's retries included.
        failure: Why the last try failed.
        next_try: When the next try is due.
        run: The workflow id of the child.
        child_status: The child's status, one of `STATUSES`.
        is_lost: Whether the child ended before the run was reset: the run never receives its end.
    """

    seq: int
    name: str
    kind: StepKind
    since: datetime | None
    until: datetime | None = None
    asks: str | None = None
    at_work: bool = False
    tries: int = 1
    failure: str | None = None
    next_try: datetime | None = None
    run: str | None = None
    child_status: str | None = None
    is_lost: bool = False
    asked: Question | None = None


@dataclass(frozen=True)
class Waits(JsonFields):
    """What a run waits for, and whether a worker can continue it.

    Attributes:
        pending: What the run waits for, in the order of the steps.
        task_queue: The task queue of the run's workers.
        has_worker: Whether an eligible worker polled that task queue lately.
        tries: The attempt of the current workflow task: more than one means that earlier attempts failed.
        build: The build that the run is pinned to.
        unchosen: The workers that poll, if none of them is eligible.
        pause: Who paused the run, if it is paused.
    """

    pending: list[Pending]
    task_queue: str
    has_worker: bool
    tries: int = 1
    build: Build | None = None
    unchosen: Unchosen | None = None
    pause: Pause | None = None


async def waits(client: Client, run: RunRecord) -> Waits | None:
    """Return what an open run waits for; None if it has ended."""
    if run.status is not RunStatus.RUNNING:
        return None
    description = await describe(client, run.workflow_id, run.run_id)
    build = pinned_build(description)
    queue = await describe_queue(client, description.task_queue)
    unchosen, has_worker = find_unchosen(queue) if build is None else None, is_served(queue, build)
    open_steps = [step for step in run.steps if step.status is StepStatus.RUNNING]
    asked = {approval.seq: approval.excerpt for approval in run.approvals}
    pending = []
    for step in open_steps:
        if step.kind in (StepKind.STAGE, StepKind.MERGE):
            pending += _pending_stages(run, step, description)
        elif step.kind is StepKind.CHILD:
            pending.append(await _pending_child(client, run, step, description))
        else:
            waiting = asked.get(step.seq)
            asks, until = (waiting.asks or None, waiting.until) if waiting else (None, step.until)
            pending.append(Pending(step.seq, step.name, step.kind, step.began, until, asks, asked=waiting))
    tries = max(1, description.details.pending_workflow_task.attempt)
    return Waits(pending, description.task_queue, has_worker, tries, build, unchosen, description.pause)


def pinned_build(description: Execution) -> Build | None:
    """Return the build that a run is pinned to, or None."""
    versions = description.info.versioning_info
    if versions.HasField("versioning_override"):
        override = versions.versioning_override
        pinned = override.pinned.version if override.HasField("pinned") else None
    else:
        pinned = versions.deployment_version if versions.behavior == _PINNED else None
    return _to_build(pinned) if pinned and pinned.build_id else None


def indexed_build(run: Execution) -> Build | None:
    """Return the build that a run of a list is pinned to, as the server indexes it, or None."""
    if label_of(run, BEHAVIOR) != "Pinned":
        return None
    deployment, _, id = (label_of(run, BUILD) or "").partition(":")
    return Build(deployment, id) if id else None


def is_served(queue: DescribeTaskQueueResponse, build: Build | None) -> bool:
    """Return whether a worker that polls a task queue is given a run, of its build if it is pinned to one."""
    builds = _builds_of(queue)
    return build in builds if build is not None else bool(builds) and find_unchosen(queue) is None


async def describe_queue(client: Client, task_queue: str, *, stages: bool = False) -> DescribeTaskQueueResponse:
    """Return the server's description of a task queue for workflows, or for stages, above all its recent pollers.

    The server lists them for minutes after they ended; those that are silent are left out here.
    """
    kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY if stages else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    queue = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=kind,
        ),
        retry=True,
    )
    now = await server_now(client)
    recent = [
        poller for poller in queue.pollers if now - poller.last_access_time.ToDatetime(tzinfo=UTC) < WORKER_SILENCE
    ]
    del queue.pollers[:]
    queue.pollers.extend(recent)
    return queue


async def has_pollers(client: Client, task_queue: str, build: Build | None = None) -> bool:
    """Return whether a worker polled a task queue for workflow tasks lately."""
    builds = await polling_builds(client, task_queue)
    return bool(builds) if build is None else build in builds


async def polling_builds(client: Client, task_queue: str) -> set[Build | None]:
    """Return the builds whose workers polled a task queue for workflow tasks lately; None for workers without one."""
    return _builds_of(await describe_queue(client, task_queue))


def find_unchosen(queue: DescribeTaskQueueResponse) -> Unchosen | None:
    """Return the workers of a task queue if none of their builds receives runs, or None."""
    builds, versions = _builds_of(queue), queue.versioning_info
    current = (
        _to_build(versions.current_deployment_version) if versions.HasField("current_deployment_version") else None
    )
    eligible = {current}
    if versions.ramping_version_percentage:
        ramps = versions.HasField("ramping_deployment_version")
        eligible.add(_to_build(versions.ramping_deployment_version) if ramps else None)
    if not builds or builds & eligible:
        return None
    newest = max(filter(None, builds), default=None)
    deployment = newest.deployment if newest else current.deployment if current else ""
    return Unchosen(deployment, newest.id if newest else None, current.id if current else None)


def recent_identities(queue: DescribeTaskQueueResponse) -> set[str]:
    """Return the identities of the workers that polled lately."""
    return {poller.identity for poller in queue.pollers}


def _builds_of(queue: DescribeTaskQueueResponse) -> set[Build | None]:
    return {
        _to_build(poller.deployment_options) if poller.deployment_options.worker_versioning_mode == _VERSIONED else None
        for poller in queue.pollers
    }


def _to_build(version: WorkerDeploymentVersion | WorkerDeploymentOptions) -> Build:
    return Build(version.deployment_name, version.build_id)


def _pending_stages(run: RunRecord, step: Step, description: Execution) -> list[Pending]:
    """Return the pending activities of a stage, of a fan-out's stages, or of a map's items."""
    activities = description.details.pending_activities
    known = ((activity, run.sent.get(activity.activity_id)) for activity in activities)
    pending = [_pending_stage(step, sent.title, activity) for activity, sent in known if sent and sent.seq == step.seq]
    return pending or [Pending(step.seq, step.name, step.kind, step.began)]


def _pending_stage(step: Step, name: str, activity: PendingActivityInfo) -> Pending:
    return Pending(
        seq=step.seq,
        name=name,
        kind=StepKind.BRANCH if step.kind is StepKind.MERGE else StepKind.STAGE,
        since=step.began,
        at_work=activity.state == _AT_WORK,
        tries=activity.attempt,
        failure=failure_reason(activity.last_failure) if activity.HasField("last_failure") else None,
        next_try=_time_or_none(activity.next_attempt_schedule_time),
    )


async def _pending_child(client: Client, run: RunRecord, step: Step, description: Execution) -> Pending:
    started = {parse_child_id(child.workflow_id): child.workflow_id for child in description.details.pending_children}
    workflow_id = next((child_id for by, child_id in started.items() if by is not None and by[1] == step.seq), None)
    if workflow_id is None:
        return Pending(step.seq, step.name, step.kind, step.began)
    child = await describe(client, workflow_id)
    close_time = child.close_time
    is_lost = close_time is not None and run.reset is not None and close_time < run.reset
    return Pending(
        step.seq, step.name, step.kind, step.began, run=workflow_id, child_status=status_of(child), is_lost=is_lost
    )


def lacking(run: Execution) -> str | None:
    """Return what an open run's stage needs and no worker has, or None."""
    for activity in run.details.pending_activities:
        if activity.activity_type.name == WAIT_FOR_WORKER and activity.HasField("last_failure"):
            return activity.last_failure.message.partition("\n")[0]
    return None


def _time_or_none(at: Timestamp) -> datetime | None:
    return at.ToDatetime(tzinfo=UTC) if at.seconds else None


AnswerT = TypeVar("AnswerT")

ANSWER_SECONDS = 10.0
_NO_ANSWER = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.FAILED_PRECONDITION)


class NoAnswerError(PipelineError):
    """No worker answers; the call may be repeated later. Start a worker."""


async def answer_of(
    client: Client, workflow_id: str, asking: Awaitable[AnswerT], *, within: float = ANSWER_SECONDS
) -> AnswerT:
    """Await a worker's answer.

    Raises:
        NoAnswerError: No worker answers within the timeout, in seconds. What was sent may still be done.
    """
    try:
        async with asyncio.timeout(within):
            return await asking
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        pass
    except RPCError as error:
        if error.status not in _NO_ANSWER:
            raise
    description = await describe(client, workflow_id)
    queue, build = description.task_queue, pinned_build(description)
    if not await has_pollers(client, queue, build):
        raise no_worker_error(queue, build)
    raise NoAnswerError(
        f"no worker has answered within {within:g} seconds, though task queue {queue!r} has one: it is busy, or has "
        "just ended. What was sent may still count; look at the run before you decide again"
    )


async def must_be_open(client: Client, workflow_id: str, run_id: str | None = None) -> Execution:
    """Check that a run is its workflow's newest, open and not paused; return it.

    Raises:
        PipelineError: It cannot be decided about; says why.
    """
    description = await describe(client, workflow_id)
    if run_id not in (None, description.run_id):
        raise PipelineError(f"run {run_id} has ended; {workflow_id!r} continues as {description.run_id}")
    if description.close_time is not None:
        raise PipelineError(f"{workflow_id!r} no longer waits for a decision: it is {description.status}")
    if pause := description.pause:
        raise PipelineError(
            f"{workflow_id!r} was paused by {pause.by}{f': {pause.why}' if pause.why else ''}; nothing was "
            f"decided. Unpause it ({unpause(workflow_id)}) and decide again"
        )
    return description


def no_worker_error(task_queue: str, build: Build | None = None) -> NoAnswerError:
    """Return the error for a run without a worker that answers, of its build if it is pinned to one."""
    of_build = "" if build is None else f" of build {build.id!r}, to which the run is pinned,"
    return NoAnswerError(
        f"no worker{of_build} polls task queue {task_queue!r}, so nothing was decided. Start one and decide again"
    )
