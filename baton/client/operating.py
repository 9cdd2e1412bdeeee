"""What operators do to runs: decide, roll back, fork. Each leaves who and why in the history."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from baton.client.executions import ANSWER_WITHIN, asked, describe
from baton.client.forking import after_all, forked_input
from baton.client.reading import read_run
from baton.client.record import RunRecord, Step
from baton.client.updating import decided_by_update
from baton.client.waiting import has_pollers, pinned_build
from baton.protocol.errors import HistoryError, PatchError, PipelineError
from baton.protocol.history import Spend
from baton.protocol.json_values import Json
from baton.protocol.messages import Decided, Decision, Overview, PipelineInput, RolledBack
from baton.protocol.names import DECIDE, QUERY_CHECK_PATCH, QUERY_STATUS, ROLLED_BACK
from baton.protocol.pending import name_refusal


@dataclass(frozen=True)
class RolledBackRun:
    """What a roll-back did.

    Attributes:
        run_id: The run that goes on from the step.
        from_run_id: The run that was left.
        step: The step it was rolled back to before.
        event: The event it was reset to.
        also_again: Names of light stages before the step that share its workflow task, and so run again too.
        stopped_children: Workflow ids of the children of the left run that were terminated.
    """

    run_id: str
    from_run_id: str
    step: Step
    event: int
    also_again: list[str]
    stopped_children: list[str]


async def decide(client: Client, workflow_id: str, decision: Decision) -> Decided:
    """Decide about an open approval, bound to the baton as it is now unless the decision names a digest.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        decision: Which approval, yes or no, who and why.

    Returns:
        How the approval ended; of a repeated decision the first answer.

    Raises:
        PipelineError: The decision is refused: not open, decided otherwise, or the baton has changed; or it is paused.
        temporalio.service.RPCError: There is no such run, or no worker answers.
    """
    handle = client.get_workflow_handle(workflow_id)
    if decision.digest is None:
        overview = await asked(handle, QUERY_STATUS, result_type=Overview)
        decision = decision.model_copy(update={"digest": overview.digest})

    async def waits() -> bool:
        now = await handle.query(QUERY_STATUS, result_type=Overview)
        return any(
            (one.kind, one.name, one.digest) == ("approval", decision.approval, decision.digest)
            for one in now.waiting_for
        )

    return await decided_by_update(handle, DECIDE, decision, Decided, waits)


async def roll_back(
    client: Client, workflow_id: str, to: str, *, by: str, why: str, run_id: str | None = None
) -> RolledBackRun:
    """Take a live or closed run back to right before a step, and let it go on from there.

    The server ends the run and starts another with its history up to the step (Temporal's reset). Signals and
    updates that came later belong to the abandoned future and are not applied again. Children that the left
    run started after that point are terminated, and the new run is told by whom and why. What stages did in
    the world outside is not undone, and what was charged for it stays charged.

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
        HistoryError: There is no such step, or it happened in another workflow from which this one was forked.
        PipelineError: The name of who rolls back has control characters; nothing was done.
        temporalio.service.RPCError: The server refuses.
    """
    _must_be_shown(by)
    run = await read_run(client, workflow_id, run_id)
    step = run.step(to)
    while step.reset_event is None:
        if not run.took_over(step):
            raise HistoryError(
                f"the history tells of step {step.seq} ({step.name!r}) only how it ended, so there is no event to go "
                f"back to: fork at that step instead (baton fork {workflow_id} --at {step.seq}), or go back further"
            )
        if run.previous_run_id is None:
            raise HistoryError(
                f"step {step.seq} ({step.name!r}) was taken over when {workflow_id!r} was forked; it has no event "
                f"here to go back to: fork at that step instead (baton fork {workflow_id} --at {step.seq})"
            )
        run = await read_run(client, workflow_id, run.previous_run_id)
        step = run.step(str(step.seq))
    left = await read_run(client, workflow_id)
    after = step.reset_event if run.run_id == left.run_id else 0
    orphans = [child for child, _, initiated in left.children if initiated > after]
    reset = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run.run_id),
            reason=f"rolled back to before {step.name!r} by {by}: {why}",
            workflow_task_finish_event_id=step.reset_event,
            request_id=str(uuid4()),
            identity=by,
            reset_reapply_exclude_types=[
                ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
                ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
            ],
        ),
        retry=True,
    )
    stopped = [
        child for child in orphans if await _terminate(client, child, f"parent {workflow_id!r} rolled back by {by}")
    ]
    spent = left.billed.beyond(run.billed_by(step.reset_event))
    for child in stopped:
        spent += await _billed(client, child)
    told = RolledBack(to=step.name, by=by, why=why, from_run_id=left.run_id, stopped_children=stopped, left=spent)
    await _tell(client.get_workflow_handle(workflow_id), told)  # not that run alone: it may have continued as new
    same_task = [one for one in run.steps if one.reset_event == step.reset_event and one.seq < step.seq]
    return RolledBackRun(reset.run_id, left.run_id, step, step.reset_event, [one.name for one in same_task], stopped)


async def fork(
    client: Client,
    workflow_id: str,
    at: str,
    *,
    by: str,
    why: str,
    patch: Mapping[str, Json] | None = None,
    new_id: str | None = None,
    task_queue: str | None = None,
    run_id: str | None = None,
) -> WorkflowHandle[Any, Any]:
    """Start a new run that takes over everything before a step, optionally with an edited baton.

    The steps before are not executed again: their recorded outcomes are returned to the pipeline's code. The
    old run is left as it is.

    Args:
        client: A connected client.
        workflow_id: The pipeline to fork.
        at: The step from which on the new run executes by itself.
        by: Who forks.
        why: The reason, for the history.
        patch: A patch to apply right before that step.
        new_id: The new workflow id; made from the old one by default.
        task_queue: Where the new run's workers listen; the old run's queue by default.
        run_id: Which run to fork; the newest by default.

    Returns:
        A handle of the new run.

    Raises:
        HistoryError: There is no such step.
        PatchError: The patch does not fit the baton, or breaks a rule of the pipeline that a worker tells of; nothing
            was started.
        PipelineError: The name of who forks has control characters; nothing was started.
    """
    _must_be_shown(by)
    run = await read_run(client, workflow_id, run_id)
    step = run.step(at)
    start = forked_input(run, step, patch=patch, by=by, why=why, source=await _executed_in(client, run, step))
    described = await describe(client, workflow_id, run_id)
    goes_to_the_same = task_queue in (None, described.task_queue) and pinned_build(described) is None
    # Other workers may have code with other rules.
    if patch is not None and goes_to_the_same and await has_pollers(client, described.task_queue):
        await _check_patch(client, run, start, patch)
    return await client.start_workflow(
        run.pipeline,
        start,
        id=new_id or f"{workflow_id}-fork-{uuid4().hex[:8]}",
        task_queue=task_queue or described.task_queue,
    )


async def _check_patch(client: Client, run: RunRecord, start: PipelineInput, patch: Mapping[str, Json]) -> None:
    """Ask a worker whether the pipeline refuses a patch: only its code knows what is protected, and its baton's type.

    Where nobody answers, or workers of an older release do, the new run will tell.

    Raises:
        PatchError: It does.
    """
    handle = client.get_workflow_handle(run.workflow_id, run_id=run.run_id)
    baton = after_all(run, start.outcomes).baton.to_json_object()
    try:
        findings = await asked(
            handle,
            QUERY_CHECK_PATCH,
            args=[baton, dict(patch)],
            result_type=list[str],
            rpc_timeout=ANSWER_WITHIN,
        )
    except (WorkflowQueryFailedError, RPCError, PipelineError, HistoryError):
        return
    if findings:
        raise PatchError(findings)


def _must_be_shown(by: str) -> None:
    """Refuse a name that is not to be shown to others.

    Raises:
        PipelineError: It has control characters, or is empty.
    """
    if unnamed := name_refusal(by):
        raise PipelineError(unnamed)


async def _executed_in(client: Client, run: RunRecord, step: Step) -> RunRecord:
    """Return the run that a step was taken over from, as far back as the server still has them."""
    while run.took_over(step) and (earlier := run.earlier) is not None:
        try:
            run = await read_run(client, *earlier)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            break
    return run


async def _billed(client: Client, workflow_id: str) -> Spend:
    """Return what a child was charged; nothing if it is no pipeline."""
    try:
        return (await read_run(client, workflow_id)).billed
    except HistoryError:
        return Spend()


async def _terminate(client: Client, workflow_id: str, reason: str) -> bool:
    """Terminate a workflow; False if it had ended already."""
    try:
        await client.get_workflow_handle(workflow_id).terminate(reason=reason)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


async def _tell(handle: WorkflowHandle[Any, Any], told: RolledBack) -> None:
    """Tell the new run; it may have ended already, then there is nobody to tell."""
    try:
        await handle.signal(ROLLED_BACK, told)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
