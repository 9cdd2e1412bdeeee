"""Fork a run: start another one that keeps what happened before a step."""

import base64
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from baton.budget.billing import forked_budget
from baton.core.history import CANCELED_WITH_RUN, Outcome, StepKind
from baton.core.messages import Origin, PipelineInput
from baton.core.patching import patch_effect
from baton.core.state import PipelineState
from baton.errors import HistoryError, OutcomeMismatchError, PatchError, PipelineError
from baton.handoff.pending import name_refusal
from baton.personal.records import merged
from baton.runs.client_executions import ANSWER_WITHIN, asked, describe
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord, Step
from baton.runs.client_waiting import has_pollers, pinned_build
from baton.wire.json_values import Json
from baton.wire.names import QUERY_CHECK_PATCH, QUERY_STATUS

_MISFITS = (OutcomeMismatchError.__name__, PipelineError.__name__)


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
    if unnamed := name_refusal(by):
        raise PipelineError(unnamed)
    run = await read_run(client, workflow_id, run_id)
    step = run.step(at)
    start = forked_input(run, step, patch=patch, by=by, why=why, source=await _executed_in(client, run, step))
    described = await describe(client, workflow_id, run_id)
    goes_to_the_same = task_queue in (None, described.task_queue) and pinned_build(described) is None
    # Other workers may have code with other rules.
    if patch is not None and goes_to_the_same and await has_pollers(client, described.task_queue):
        baton = after_all(run, start.outcomes).baton.to_json_object()
        if findings := await _refused_by_code(client, run, baton, patch):
            raise PatchError(findings)
    queue = task_queue or described.task_queue
    handle: WorkflowHandle[Any, Any] = await client.start_workflow(
        run.pipeline, start, id=new_id or f"{workflow_id}-fork-{uuid4().hex[:8]}", task_queue=queue
    )
    if start.outcomes and await has_pollers(client, queue):
        await _check_taken_over(handle)
    return handle


async def _check_taken_over(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until a fork has answered once, and see that the code took over the first steps."""
    with suppress(WorkflowQueryFailedError, RPCError, PipelineError, HistoryError):
        await asked(handle, QUERY_STATUS, rpc_timeout=ANSWER_WITHIN)
    if (await handle.describe()).status is not WorkflowExecutionStatus.FAILED:
        return
    try:
        await handle.result()
    except WorkflowFailureError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type in _MISFITS:
            raise PipelineError(f"the fork {handle.id} failed at once: {error.cause.message}") from None


async def refused_patch(client: Client, run: RunRecord, patch: Mapping[str, Json], at: Step | None = None) -> list[str]:
    """Return why a patch of a run's baton would be refused, a sentence each; nothing is changed.

    What is protected only the pipeline's code knows; if no worker answers, only what the history tells is checked.

    Args:
        client: A connected client.
        run: The run.
        patch: The patch.
        at: The step before which a fork would apply it; by default it is checked on the baton as it is now.
    """
    state = run.state if at is None else after_all(run, _kept(run, at))
    try:
        patch_effect(state.baton, patch, state.stage_rules())
    except PatchError as error:
        return error.findings
    return await _refused_by_code(client, run, state.baton.to_json_object(), patch)


async def _refused_by_code(
    client: Client, run: RunRecord, baton: dict[str, Any], patch: Mapping[str, Json]
) -> list[str]:
    """Ask a worker why the pipeline refuses a patch; return nothing if none answers."""
    handle = client.get_workflow_handle(run.workflow_id, run_id=run.run_id)
    try:
        findings: list[str] = await asked(
            handle,
            QUERY_CHECK_PATCH,
            args=[baton, dict(patch)],
            result_type=list[str],
            rpc_timeout=ANSWER_WITHIN,
        )
    except (WorkflowQueryFailedError, RPCError, PipelineError, HistoryError):
        return []
    return findings


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


def forked_input(
    run: RunRecord,
    step: Step,
    *,
    patch: Mapping[str, Json] | None,
    by: str,
    why: str,
    source: RunRecord | None = None,
) -> PipelineInput:
    """Return the input of a run that takes over everything before ``step``.

    Args:
        run: The run to fork.
        step: The first step that is executed again.
        patch: A patch to apply right before it.
        by: Who forks.
        why: The reason.
        source: The run in which the step was executed; ``run`` itself unless it took the step over.

    Returns:
        The input.

    Raises:
        HistoryError: A step before has not ended, so there is no outcome to take over; or it was canceled with the run.
        PatchError: The patch does not fit the baton there.
    """
    ended = {outcome.seq for outcome in run.state.outcomes if outcome.kind is not StepKind.EDIT}
    open_before = [one for one in run.steps if one.seq < step.seq and one.seq not in ended]
    if open_before:
        names = ", ".join(f"{one.seq} {one.name} ({one.status.value})" for one in open_before)
        raise HistoryError(f"cannot fork at step {step.seq} ({step.name!r}): before it, {names} has no outcome yet")
    kept = _kept(run, step)
    if cut_off := next((one for one in kept if one.failure == CANCELED_WITH_RUN), None):
        raise HistoryError(
            f"cannot fork at step {step.seq} ({step.name!r}): step {cut_off.seq} ({cut_off.name!r}) before it was "
            "canceled because the run was asked to cancel, and the fork would wait in it for ever; fork at step "
            f"{cut_off.seq} or before"
        )
    outcomes = [one.model_copy(update={"order": order}) for order, one in enumerate(kept)]
    if patch is not None:
        state = after_all(run, outcomes)
        patch_effect(state.baton, patch, state.stage_rules())
    executed_in = source or run
    budget, carried_budget = forked_budget(
        executed_in.start, [bill for bill in executed_in.bills if bill.seq < step.seq], outcomes
    )
    handed_on = _handed_on(executed_in, step)
    handed_on["carried"] = {**handed_on["carried"], **carried_budget}
    return run.start.model_copy(
        update={
            "task_id": run.task_id,  # the ledger's chain and the vault's seals are the task's
            "outcomes": outcomes,
            "edit": dict(patch) if patch is not None else None,
            "origin": Origin(workflow_id=run.workflow_id, run_id=run.run_id, at=step.name, by=by, why=why),
            "continued": 0,
            "budget": budget,
            **handed_on,
        }
    )


def _kept(run: RunRecord, step: Step) -> list[Outcome]:
    """Return the outcomes that a fork at a step takes over."""
    return [
        one for one in run.state.outcomes if one.seq < step.seq or (one.kind is StepKind.EDIT and one.seq <= step.seq)
    ]


def after_all(run: RunRecord, outcomes: Iterable[Outcome]) -> PipelineState:
    """Return the state of a run's pipeline after some of its outcomes."""
    state = PipelineState(run.state.initial)
    for outcome in outcomes:
        state.restore(outcome)
    return state


def _handed_on(run: RunRecord, step: Step) -> dict[str, Any]:
    """Return the members of the input that carry what stages handed on beside the baton, up to a step."""
    seq = step.seq
    carried = {} if run.took_over(step) else run.start.carried  # which may tell of what came after a step before it
    carried = {name: told for name, told in carried.items() if name != "operators"}  # the notes are the old run's own
    before: Any = carried.get("handoffs", {})
    turns, summary, since = [*before.get("turns", [])], before.get("summary", ""), 0
    upstream = before.get("upstream", {})
    released, personal = {**before.get("released", {})}, {**run.start.personal_data}
    for given in run.inputs:
        if given.seq < seq:
            released |= given.released
        if given.seq <= seq and given.summary:
            turns, summary, since = [*given.turns], given.summary, given.after
    for order, returned in run.accepted:
        if returned.seq < seq:
            turns += returned.turns if order >= since else []
            upstream = returned.spend.model_dump(mode="json")  # by it a model's summary is measured
            personal = merged(personal, returned.personal_data or {})
    on_record = bool(run.anchors) or before.get("on_record", False)  # so what fails first in the fork is as well
    if before or turns or summary or released or on_record:
        handoffs = {
            **before,
            "turns": turns,
            "summary": summary,
            "upstream": upstream,
            "released": released,
            "on_record": on_record,
        }
        if relay := before.get("relay"):
            handoffs["relay"] = {**relay, "personal_data": merged(relay["personal_data"], personal)}
        carried = {**carried, "handoffs": handoffs}
    if run.chunks:  # what was streamed came by signals, and no outcome tells of it
        streams: Any = carried.get("streams", {})
        came: list[JsonValue] = [base64.b64encode(one).decode() for one in run.chunks]
        carried = {**carried, "streams": {**streams, "opening": [*streams.get("opening", []), *came]}}
    return {"carried": carried, "personal_data": personal}
