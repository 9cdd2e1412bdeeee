"""Running a child's workflow, and what its parent takes from it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from pydantic import JsonValue, ValidationError
from temporalio import workflow
from temporalio.common import TypedSearchAttributes
from temporalio.exceptions import ApplicationError, ChildWorkflowError, is_cancelled_exception

from baton.core.baton import Baton
from baton.core.history import Spend, find_top_up
from baton.core.messages import PipelineInput, PipelineResult
from baton.core.past import Heir
from baton.core.patching import unknown_decisions
from baton.errors import PatchError, StageFailedError
from baton.handoff.workflow_coordinator import HandoffCoordinator
from baton.handoff.workflow_failures import StageExecutionError, reason_of, spend_of
from baton.pipelines.workflow_steps import MAX_SERVER_NAME_BYTES, check_task_queue
from baton.sdk.search import start_attributes
from baton.wire.json_values import Json
from baton.wire.text import describe_faults, disarm

Takes = Callable[[Baton, PipelineResult], Mapping[str, Json]]


async def run_child(
    kind: str, seq: int, step: str, start: PipelineInput, task_queue: str | None, *, searchable: bool
) -> PipelineResult:
    """Run a child pipeline to its end; if its parent ends first, the child is asked to cancel."""
    info, child_id = workflow.info(), _child_id(seq, step)
    if start.has_past:
        heir = Heir(namespace=info.namespace, workflow_id=child_id, run_id=info.run_id)
        start = start.model_copy(update={"heir": heir})
    try:
        result: PipelineResult = await workflow.execute_child_workflow(
            kind,
            start,
            id=child_id,
            result_type=PipelineResult,
            task_queue=check_task_queue(task_queue),
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            search_attributes=TypedSearchAttributes(start_attributes(kind, start.task_id)) if searchable else None,
            static_summary=disarm(start.goal[:200]),
        )
    except ChildWorkflowError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError(f"child {step!r} was cancelled") from error
        details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
        raise StageExecutionError(
            f"child {step!r} failed: {reason_of(error)}", spend_of(error), topped_up_micro_usd=find_top_up(details)
        ) from error
    return result


def _child_id(seq: int, step: str) -> str:
    """Return a new id with the parent's and the step's name, cut where the server would refuse it."""
    suffix = f".step{seq}.{workflow.uuid4().hex[:8]}"
    names = f"{workflow.info().workflow_id}.{step.replace('.', '-')}".encode()
    return names[: MAX_SERVER_NAME_BYTES - len(suffix)].decode(errors="ignore") + suffix


@asynccontextmanager
async def settle_failure(handoffs: HandoffCoordinator, kind: str, seq: int, step: str) -> AsyncIterator[None]:
    """If a child fails or is canceled in the block, charge its reported cost, release the rest, and record its end."""
    try:
        yield
    except (StageFailedError, asyncio.CancelledError) as error:
        spend, topped_up = Spend(), 0
        if isinstance(error, StageExecutionError):
            spend, topped_up = error.spend, error.topped_up_micro_usd
        handoffs.run.account.settle_child(seq, step, spend, topped_up_micro_usd=topped_up)
        if isinstance(error.__cause__, ChildWorkflowError):  # else no child was started
            await handoffs.receive_failure(kind, seq, step, error.__cause__)
        raise


def child_patch(baton: Baton, result: PipelineResult) -> dict[str, JsonValue]:
    """Return the patch for a parent: the child's new decisions, its artifacts and its work scope."""
    try:
        child = Baton.from_json_object({key: value for key, value in result.baton.items() if key in Baton.FIELDS})
    except ValidationError as error:  # the child was not written with Baton
        raise PatchError([f"its baton is not valid: {describe_faults(error)}"]) from None
    known = {(ref.id, ref.hash) for ref in baton.artifacts}
    patch: dict[str, JsonValue] = {}
    decisions = unknown_decisions(baton.decision_log, child.decision_log)
    refs = [ref for ref in child.artifacts if (ref.id, ref.hash) not in known]
    scope = [entry for entry in child.work_scope if entry not in baton.work_scope]
    if decisions:
        patch["decision_log"] = [*decisions]
    if refs:
        patch["artifacts"] = [ref.model_dump(mode="json", exclude_none=True) for ref in (*baton.artifacts, *refs)]
    if scope:
        patch["work_scope"] = [*baton.work_scope, *scope]
    return patch
