"""What operators do to runs: decide and fork. Each leaves who and why in the history."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from baton.core.messages import Decided, Decision, Overview, PipelineInput
from baton.errors import HistoryError, OutcomeMismatchError, PatchError, PipelineError
from baton.handoff.pending import name_refusal
from baton.runs.client_executions import ANSWER_WITHIN, asked, describe
from baton.runs.client_fork import after_all, forked_input
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord, Step
from baton.runs.client_update import decided_by_update
from baton.runs.client_waiting import has_pollers, pinned_build
from baton.wire.json_values import Json
from baton.wire.names import DECIDE, QUERY_CHECK_PATCH, QUERY_STATUS

_MISFITS = (OutcomeMismatchError.__name__, PipelineError.__name__)


async def decide(client: Client, workflow_id: str, decision: Decision) -> Decided:
    """Decide about an open approval.

    A decision is about one question and the baton that was shown. Where it names neither, both are read from the run
    here: it then counts for what is asked now. Name them, from the query `waiting`, if the person looked earlier.

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
    if decision.question is None or decision.digest is None:
        overview = await asked(handle, QUERY_STATUS, result_type=Overview)
        named = [one for one in overview.waiting_for if (one.kind, one.name) == ("approval", decision.approval)]
        question = decision.question or (named[0].question if named else None)
        digest = decision.digest or overview.digest
        decision = decision.model_copy(update={"question": question, "digest": digest})

    async def waits() -> bool:
        now = await handle.query(QUERY_STATUS, result_type=Overview)
        return any((one.question, one.digest) == (decision.question, decision.digest) for one in now.waiting_for)

    return await decided_by_update(handle, DECIDE, decision, Decided, waits)


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
        PipelineError: The name of who forks has control characters, and nothing was started; or the code does not
            fit the steps that were taken over, and the new run has failed.
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
    queue = task_queue or described.task_queue
    handle: WorkflowHandle[Any, Any] = await client.start_workflow(
        run.pipeline, start, id=new_id or f"{workflow_id}-fork-{uuid4().hex[:8]}", task_queue=queue
    )
    if start.outcomes and await has_pollers(client, queue):
        await _check_taken_over(handle)
    return handle


async def _check_taken_over(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until a fork has answered once, and see that the code took over the first steps.

    Raises:
        PipelineError: It could not, and the new run has failed.
    """
    with suppress(WorkflowQueryFailedError, RPCError, PipelineError, HistoryError):
        await asked(handle, QUERY_STATUS, rpc_timeout=ANSWER_WITHIN)
    if (await handle.describe()).status is not WorkflowExecutionStatus.FAILED:
        return
    try:
        await handle.result()
    except WorkflowFailureError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type in _MISFITS:
            raise PipelineError(f"the fork {handle.id} failed at once: {error.cause.message}") from None


async def _check_patch(client: Client, run: RunRecord, start: PipelineInput, patch: Mapping[str, Json]) -> None:
    """Ask a worker whether the pipeline refuses a patch: only its code knows what is protected, and its baton's type.

    If no worker answers, the new run reports it.

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
