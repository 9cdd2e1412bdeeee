"""Forks a run: starts another run that keeps the outcomes before a step."""

import asyncio
import base64
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from baton.budget.billing import forked_budget
from baton.codec.conversion import can_seal
from baton.core.history import CANCELED_WITH_RUN, Outcome, StepKind
from baton.core.messages import Origin, PipelineInput
from baton.core.operations import Fact, Operation, Preview
from baton.core.pages import write_pages
from baton.core.past import Heir
from baton.core.state import PipelineState
from baton.errors import HistoryError, PatchError, PipelineError
from baton.personal.records import merge_payloads
from baton.runs.client_control import continued
from baton.runs.client_executions import describe
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord, Step
from baton.runs.client_waiting import has_pollers
from baton.wire.json_values import Json
from baton.wire.text import quantity


@dataclass(frozen=True)
class ForkPreview(Preview):
    """What a fork would do now.

    Attributes:
        run: The run that is forked.
        step: The first step that the new run executes.
        source: The run that executed that step, if it was an earlier one of the chain.
    """

    run: RunRecord = field(kw_only=True)
    step: Step = field(kw_only=True)
    source: RunRecord = field(kw_only=True)

    @property
    def kept(self) -> list[Step]:
        """The steps that are reused."""
        return [step for step in self.run.steps if step.seq < self.step.seq]

    @property
    def again(self) -> list[Step]:
        """The steps taken so far that are executed again."""
        return [step for step in self.run.steps if step.seq >= self.step.seq]


@dataclass(frozen=True)
class Fork(Operation[ForkPreview, WorkflowHandle[Any, Any]]):
    """Start a new run that reuses everything before a step, optionally with an edited baton.

    Earlier steps are not executed again: the pipeline's code gets their recorded outcomes. The old run is unchanged.
    Workers with safeguards take such a past only under a seal, so the client needs the deployment's keys.

    `preview` and `commit` raise `HistoryError` if the step does not exist, and `PatchError` if the patch does not fit
    the baton or breaks a rule of the pipeline, as the old run's history has them. `commit` also raises `PipelineError`
    if the name in ``by`` has control characters (nothing was started), or the code does not fit the recorded outcomes
    or refuses the patch (the new run is suspended, or has failed).

    Attributes:
        client: A connected client.
        workflow_id: The pipeline to fork.
        at: The first step that the new run executes.
        patch: A patch to apply right before that step.
        new_id: The new workflow id; made from the old one by default.
        task_queue: The new run's task queue; the old run's by default.
        run_id: The run to fork; the newest by default.
    """

    client: Client
    workflow_id: str
    at: str
    patch: Mapping[str, Json] | None = None
    new_id: str | None = None
    task_queue: str | None = None
    run_id: str | None = None
    nothing_done = "nothing was forked"

    async def preview(self) -> ForkPreview:
        """Return what would be reused, and what executed again."""
        run = await read_run(self.client, self.workflow_id, self.run_id)
        step = run.step(self.at)
        source = await _find_executing_run(self.client, run, step)
        start = forked_input(run, step, patch=self.patch, by="", why="", source=source)
        basis: dict[str, JsonValue] = {"run": run.run_id, "at": step.seq, "kept": start.recorded_count}
        title = f"{self.workflow_id} ({run.status.value}) is forked at {step.seq} {step.name}"
        preview = ForkPreview(title, [], basis, run=run, step=step, source=source)
        preview.facts.extend(_consequences(preview))
        return preview

    async def _perform(self, preview: ForkPreview, by: str, why: str) -> WorkflowHandle[Any, Any]:
        client, run, patch = self.client, preview.run, self.patch
        if any(stage_input.handoff_id for stage_input in run.inputs) and not can_seal(client.data_converter):
            raise PipelineError(
                f"run {self.workflow_id!r} has safeguards, so a fork's past must be sealed, and this client has no "
                "keys: set BATON_KEYS to the workers' keyring, or pass BatonPlugin(keyring=…) in a program; nothing "
                "was started"
            )
        start = forked_input(run, preview.step, patch=patch, by=by, why=why, source=preview.source)
        execution = await describe(client, self.workflow_id, self.run_id)
        queue = self.task_queue or execution.task_queue
        new_id = self.new_id or f"{self.workflow_id}-fork-{uuid4().hex[:8]}"
        start = start.model_copy(update={"heir": Heir(namespace=client.namespace, workflow_id=new_id)})
        handle: WorkflowHandle[Any, Any] = await client.start_workflow(run.pipeline, start, id=new_id, task_queue=queue)
        if (start.recorded_count or patch is not None) and await has_pollers(client, queue):
            await _check_outcomes_fit(client, handle)
        return handle

    def _changes(self, shown: Mapping[str, Any], preview: ForkPreview) -> list[str]:
        if shown["run"] != preview.run.run_id:
            return [continued(preview.run)]
        if shown["at"] != preview.step.seq:
            return [f"{self.at!r} is step {preview.step.seq} now"]
        return ["another outcome before the step would be reused"]


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
    """Fork a run without showing it to anybody first: `Fork.commit` without a mark."""
    return await Fork(client, workflow_id, at, patch, new_id, task_queue, run_id).commit(by=by, why=why)


def _consequences(preview: ForkPreview) -> list[Fact]:
    kept, again = preview.kept, preview.again
    names = f": {', '.join(step.name for step in kept)}" if kept else ""
    decided = [step for step in kept if step.kind is StepKind.APPROVAL and step.approved is not None]
    return [
        Fact("A new run starts. This one stays as it is, and so do its children."),
        Fact(
            f"{quantity(len(kept), 'step')} before it {'is' if len(kept) == 1 else 'are'} reused, not executed "
            f"again{names}."
        ),
        *(Fact(f"Approval {step.name!r} ({'approved' if step.approved else 'denied'}) is reused.") for step in decided),
        Fact(
            f"From {preview.step.seq} {preview.step.name} on, everything is executed, also outside: "
            f"{', '.join(step.name for step in again)}."
        ),
    ]


_ANSWERED_WITHIN = 2.0  # seconds, in which a new run has begun
_REFUSALS = (PipelineError.__name__, PatchError.__name__)
_TASK_ENDS = ("workflow_task_completed_event_attributes", "workflow_task_failed_event_attributes")


async def _check_outcomes_fit(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
    """Raise if a fork cannot begin: the code does not fit the recorded outcomes, or its input is unusable."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_ANSWERED_WITHIN):
            async for event in handle.fetch_history_events(wait_new_event=True):
                if event.WhichOneof("attributes") in _TASK_ENDS:
                    break
    if why := (await read_run(client, handle.id)).suspended:
        raise PipelineError(
            f"the fork {handle.id} is suspended before its first stage: {why}. Terminate it, or start workers that fit"
        )
    if (await handle.describe()).status is not WorkflowExecutionStatus.FAILED:
        return
    try:
        await handle.result()
    except WorkflowFailureError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type in _REFUSALS:
            raise PipelineError(f"the fork {handle.id} failed at once: {error.cause.message}") from None


def refused_patch(run: RunRecord, patch: Mapping[str, Json], at: Step | None = None) -> list[str]:
    """Return why a patch of a run's baton would be refused, a sentence each; no worker is needed.

    The rules are those that the pipeline's code published when the run began. What its own type of baton demands of
    the fields that `Baton` does not have, only the code knows: it checks such a patch again, and refuses it.

    Args:
        run: The run.
        patch: The patch.
        at: The step before which a fork would apply it; by default the current baton is checked.
    """
    try:
        run.check_patch(patch, None if at is None else _restore_outcomes(run, _outcomes_before(run, at)))
    except PatchError as error:
        return error.findings
    return []


async def _find_executing_run(client: Client, run: RunRecord, step: Step) -> RunRecord:
    """Return the run that executed a step, or the oldest run of the chain that the server still has."""
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
    """Return the input of a run that reuses everything before ``step``.

    Args:
        run: The run to fork.
        step: The first step that is executed again.
        patch: A patch to apply right before it.
        by: Who forks.
        why: The reason.
        source: The run that executed the step, if it was not ``run``.

    Returns:
        The input.

    Raises:
        HistoryError: An earlier step has no outcome yet, or was canceled with the run.
        PatchError: The patch does not fit the baton there.
    """
    ended = {outcome.seq for outcome in run.state.outcomes if outcome.kind is not StepKind.EDIT}
    if unfinished := [earlier for earlier in run.steps if earlier.seq < step.seq and earlier.seq not in ended]:
        names = ", ".join(f"{earlier.seq} {earlier.name} ({earlier.status.value})" for earlier in unfinished)
        raise HistoryError(f"cannot fork at step {step.seq} ({step.name!r}): before it, {names} has no outcome yet")
    kept_outcomes = _outcomes_before(run, step)
    if cut_off := next((outcome for outcome in kept_outcomes if outcome.failure == CANCELED_WITH_RUN), None):
        raise HistoryError(
            f"cannot fork at step {step.seq} ({step.name!r}): step {cut_off.seq} ({cut_off.name!r}) before it was "
            "canceled because the run was asked to cancel, and the fork would wait in it for ever; fork at step "
            f"{cut_off.seq} or before"
        )
    outcomes = [outcome.model_copy(update={"order": order}) for order, outcome in enumerate(kept_outcomes)]
    if patch is not None:
        state = _restore_outcomes(run, outcomes)
        run.check_patch(patch, state)
    executed_in = source or run
    bills = [bill for bill in executed_in.bills if bill.seq < step.seq]
    topped_up = executed_in.topped_up_by(step.reset_event or executed_in.last_event)
    budget, carried_budget = forked_budget(executed_in.start, bills, outcomes, topped_up)
    beside_baton = _carry_over(executed_in, step)
    beside_baton["carried"] = {**beside_baton["carried"], **carried_budget}
    return run.start.model_copy(
        update={
            "task_id": run.task_id,  # the ledger's chain and the vault's seals are the task's
            **write_pages(outcomes),
            "edit": dict(patch) if patch is not None else None,
            "origin": Origin(workflow_id=run.workflow_id, run_id=run.run_id, at=step.name, by=by, why=why),
            "continued": 0,
            "budget": budget,
            **beside_baton,
        }
    )


def _outcomes_before(run: RunRecord, step: Step) -> list[Outcome]:
    return [
        outcome
        for outcome in run.state.outcomes
        if outcome.seq < step.seq or (outcome.kind is StepKind.EDIT and outcome.seq <= step.seq)
    ]


def _restore_outcomes(run: RunRecord, outcomes: Iterable[Outcome]) -> PipelineState:
    state = PipelineState(run.state.initial)
    for outcome in outcomes:
        state.restore(outcome)
    return state


def _carry_over(run: RunRecord, step: Step) -> dict[str, Any]:
    """Return the members of the input with the data that stages handed on beside the baton, up to a step."""
    seq = step.seq
    carried = {} if run.took_over(step) else run.start.carried  # it may contain later data than the step's
    carried = {name: value for name, value in carried.items() if name != "operators"}  # the old run's notes
    handoff_state: Any = carried.get("handoffs", {})
    turns, summary, since = [*handoff_state.get("turns", [])], handoff_state.get("summary", ""), 0
    older = handoff_state.get("older", [])
    upstream = handoff_state.get("upstream", {})
    released, personal = {**handoff_state.get("released", {})}, {**run.start.personal_data}
    for stage_input in run.inputs:
        if stage_input.seq < seq:
            released |= stage_input.released
        if stage_input.seq <= seq and stage_input.summary:
            turns, summary, since = [*stage_input.turns], stage_input.summary, stage_input.after
            older = [ref.model_dump(mode="json") for ref in stage_input.older]
    for order, result in run.accepted:
        if result.seq < seq:
            turns += result.turns if order >= since else []
            upstream = result.spend.model_dump(mode="json")  # measures a model's summary
            personal = merge_payloads(personal, result.personal_data or {})
    on_record = bool(run.anchors) or handoff_state.get("on_record", False)  # so the fork records its first failure too
    if handoff_state or turns or summary or released or on_record:
        new_state = {
            **handoff_state,
            "turns": turns,
            "summary": summary,
            "older": older,
            "upstream": upstream,
            "released": released,
            "on_record": on_record,
        }
        if relay := handoff_state.get("relay"):
            new_state["relay"] = {**relay, "personal_data": merge_payloads(relay["personal_data"], personal)}
        carried = {**carried, "handoffs": new_state}
    if run.chunks:  # streamed chunks came as signals, and are not part of any outcome
        streams: Any = carried.get("streams", {})
        chunks: list[JsonValue] = [base64.b64encode(chunk).decode() for chunk in run.chunks]
        carried = {**carried, "streams": {**streams, "opening": [*streams.get("opening", []), *chunks]}}
    return {"carried": carried, "personal_data": personal}
