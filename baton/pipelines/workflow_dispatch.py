"""Running a stage's activity, again if its patch is rejected, and a child's workflow."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from pydantic import JsonValue, ValidationError
from temporalio import workflow
from temporalio.common import TypedSearchAttributes
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    is_cancelled_exception,
)

from baton.core.baton import Baton
from baton.core.history import Spend, find_top_up
from baton.core.messages import PipelineInput, PipelineResult, StageInput, StageReturn
from baton.core.past import Heir
from baton.core.patching import unknown_decisions
from baton.errors import PatchError, StageFailedError
from baton.handoff.workflow_attempt import OutgoingHandoff, StageExecutionError, reason_of, spend_of
from baton.handoff.workflow_coordinator import HandoffCoordinator
from baton.pipelines.workflow_steps import MAX_SERVER_NAME_BYTES, check_task_queue
from baton.sdk.search import start_attributes
from baton.wire.json_values import Json
from baton.wire.text import describe_faults, disarm, quantity

AcceptedT = TypeVar("AcceptedT")
Takes = Callable[[Baton, PipelineResult], Mapping[str, Json]]

MAX_AT_WORK = 500
"""How many stages and children of a run are at work at once; the server rejects the task with the 2,001st."""
_MAX_TASK_STEPS = 50  # that begin in one workflow task, which has two seconds
_MAX_TASK_BYTES = 3_000_000  # of content in one workflow task; the server ends a run whose task completes with 4 MB


class StepLimit:
    """Limits how many steps are at work at once, and how many steps and bytes begin in one workflow task."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_AT_WORK)
        self._beginning = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._task = 0
        self._steps = 0
        self._bytes = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the slots during the block; it begins once the current workflow task may begin a step."""
        async with self._slots:
            async with self._beginning:
                await self._wait_until(lambda: self._steps < _MAX_TASK_STEPS)
                self._steps += 1
            yield

    async def admit(self, *content: Json) -> None:
        """Wait until a message fits into the current workflow task; a single message always does.

        Args:
            *content: What the pipeline and its agents put into the message. Baton's own members do not count: a new
                one would start timers in recorded runs that had none.
        """
        size = len(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
        async with self._sending:
            await self._wait_until(lambda: not self._bytes or self._bytes + size <= _MAX_TASK_BYTES)
            self._bytes += size

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while True:
            task = workflow.info().get_current_history_length()
            if task != self._task:
                self._task, self._steps, self._bytes = task, 0, 0
            if condition():
                return
            await workflow.sleep(timedelta(milliseconds=1), summary="the next slice of many steps")


async def run_stage(
    delivery: OutgoingHandoff,
    handoffs: HandoffCoordinator,
    base: Callable[[], tuple[Baton, int]],
    accept: Callable[[StageReturn, Baton], AcceptedT],
    task_queue: str | None,
    limit: StepLimit,
) -> AcceptedT:
    """Run a stage until its handoff and its patch are accepted, or its attempts are used up."""
    spec = delivery.spec
    task_queue = delivery.task_queue = check_task_queue(task_queue)
    findings: list[str] = []
    refusals = 0
    await handoffs.reserve(delivery)
    try:
        while refusals < spec.attempts:
            delivery.sent += 1
            baton, after = handoffs.corrected_base(delivery, base())
            restricted, earlier = spec.restrict(baton)
            message = delivery.stage_input.model_copy(
                update={
                    "baton": restricted.to_json_object(),
                    "earlier_decisions": earlier,
                    "attempt": delivery.sent,
                    "findings": findings,
                    "after": after,
                }
            )
            message = handoffs.with_contract(delivery, await handoffs.fit(delivery, message, task_queue))
            outgoing = handoffs.message_for(delivery, message)
            await limit.admit(*_content_of(message))
            try:
                returned = await handoffs.execute(delivery, outgoing)
            except StageExecutionError as error:
                handoffs.account.charge(delivery.key, f"{message.attempt} raised", error.spend)
                await handoffs.handle_failure(delivery, error)
                continue
            if returned.verdict is None and returned.seq != message.seq:
                raise StageFailedError(
                    f"stage {spec.name!r} answered for step {returned.seq}, expected step {message.seq}; its input was "
                    "replaced in transit"
                )
            handoffs.note_answer(returned)
            if returned.verdict is not None:
                await handoffs.handle_rejection(delivery, returned.verdict)
                continue
            handoffs.account.charge(delivery.key, str(returned.attempt), returned.spend)
            if handoffs.record_corrections(delivery):
                baton = base()[0]  # with the sender's correction
            findings = returned.findings
            if not findings:
                try:
                    return accept(returned, baton)
                except PatchError as error:
                    findings = error.findings
            refusals += 1
    finally:
        handoffs.account.settle(delivery.key)
    raise StageFailedError(
        f"stage {spec.name!r} was refused {quantity(spec.attempts, 'time')} and is rolled back; the baton is "
        f"unchanged. Last findings: {'; '.join(findings)}"
    )


def _content_of(message: StageInput) -> list[JsonValue]:
    """Return what the pipeline and its agents put into a stage's input."""
    facts = message.contract.get("facts") if message.contract else None
    texts: list[JsonValue] = [message.summary, *message.findings]
    return [message.baton, message.params, message.inputs, message.personal_data, [*message.turns], texts, facts]


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
async def settle_failure(
    handoffs: HandoffCoordinator, kind: str, seq: int, step: str, task_id: str
) -> AsyncIterator[None]:
    """If a child fails or is canceled in the block, charge its reported cost, release the rest, and record its end."""
    try:
        yield
    except (StageFailedError, asyncio.CancelledError) as error:
        spend, topped_up = Spend(), 0
        if isinstance(error, StageExecutionError):
            spend, topped_up = error.spend, error.topped_up_micro_usd
        handoffs.account.settle_child(seq, step, spend, topped_up_micro_usd=topped_up)
        if isinstance(error.__cause__, ChildWorkflowError):  # else no child was started
            await handoffs.receive_failure(kind, seq, step, error.__cause__, task_id)
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
