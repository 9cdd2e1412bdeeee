"""How a stage receives a handoff: through its worker's gate, before any of its own code runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from baton.contract.records import TOOL_DENIED
from baton.core.history import Spend, find_spend
from baton.core.messages import StageInput, StageReturn
from baton.core.stages import StageSpec
from baton.core.verdict import Code, Finding, Verdict
from baton.errors import ConfigurationError
from baton.handoff.relay import STEP_WORKFLOW
from baton.handoff.sealed import UnverifiedHandoff
from baton.handoff.store_gate import Gate, contract_check, now_utc
from baton.handoff.validation import Check, Receipt, ReceiverRequirements
from baton.keys.store_keyring import KeyringError
from baton.ledger.chain import CANCELED
from baton.ledger.entries import cost_after, run_name
from baton.ledger.records import AuditEntry, Kind, LedgerError, LedgerUnavailableError
from baton.telemetry.metering import tell_answer
from baton.telemetry.metrics import Metrics, Transport
from baton.wire.names import HANDOFF_REFUSED
from baton.wire.text import list_faults

_PAUSES = (0.1, 0.5, 2.0)  # seconds between the tries to put on record what a stage returned
_PATIENCE = (0.2, 0.5, 1.0)  # between the tries to put an answer on record
_LONGEST_REFUSAL = 1_000
_log = logging.getLogger(__name__)


def requirements(spec: StageSpec) -> ReceiverRequirements:
    """Return what a stage requires of a handoff."""
    return ReceiverRequirements(spec.name, spec.version, spec.requires)


def not_empty(fields: frozenset[str]) -> Check:
    """Return the check that required fields of the baton hold something; one that is empty was not sent."""

    def check(message: Mapping[str, Any]) -> list[Finding]:
        state = message["currentState"]
        return [
            Finding(
                code=Code.INCOMPLETE_CONTEXT,
                text=f"currentState holds nothing in {name!r}, which the receiver requires; fill it",
                at=f"/currentState/{name}",
            )
            for name in sorted(fields)
            if not name.startswith("/") and name in state and not state[name] and state[name] not in (0, False)
        ]

    return check


def gate_of(gate: Gate | None) -> Gate:
    """Return the worker's gate."""
    if gate is None:
        raise ConfigurationError(
            "this worker was handed a sealed handoff and has no gate to verify it with; start it with safeguards"
        )
    return gate


async def accepted(
    gate: Gate,
    metrics: Metrics,
    sealed: UnverifiedHandoff,
    spec: StageSpec,
    clock: Callable[[], datetime] = now_utc,
) -> tuple[Receipt, StageInput | None, Mapping[str, Any]]:
    """Answer the handoff that a stage was sent."""
    held: list[StageInput] = []  # read once: the checks and the stage use the same
    further = [not_empty(spec.requires), _of_this_workflow, _readable(held), contract_check(clock)]
    # A short outage is not a failure of the stage, whose own retries are for what it does itself: it is waited for.
    for pause in (*_PATIENCE, None):
        try:
            receipt, message = await gate.accept(
                sealed.raw, requirements(spec), run_id=run_of_activity(), further=further
            )
            break
        except LedgerUnavailableError as error:
            if pause is None:
                raise
            _log.warning("a handoff to %s waits for the ledger: %s", spec.name, error)
            await asyncio.sleep(pause)
    tell_answer(metrics, receipt, message, spec.name, Transport.QUEUE)
    return receipt, held[0] if receipt.verdict else None, message


def _of_this_workflow(message: Mapping[str, Any]) -> list[Finding]:
    """Return a finding if a handoff was made for a stage of another workflow: its seal holds there as well as here."""
    named = message.get("step", {}).get(STEP_WORKFLOW)
    if not activity.in_activity() or named == activity.info().workflow_id:
        return []
    text = "the handoff was made for a stage of another workflow; one that is sent on to this one is a replay"
    return [Finding(code=Code.SIGNATURE_INVALID, text=text, at=f"/step/{STEP_WORKFLOW}")]


def _readable(held: list[StageInput]) -> Check:
    """Return the check that a handoff has what a stage needs beside the document's members; what it read is kept."""

    def check(message: Mapping[str, Any]) -> list[Finding]:
        try:
            held[:] = [StageInput.from_handoff(message)]
        except ValidationError as error:
            places = ", ".join(sorted({".".join(map(str, fault["loc"])) for fault in list_faults(error)}))
            text = f"'step' is not what a pipeline sends its stages: see {places}"
            return [Finding(code=Code.SCHEMA_INVALID, text=text, at="/step")]
        return []

    return check


def refused(receipt: Receipt, spec: StageSpec, message: Mapping[str, Any]) -> StageReturn:
    """Return what a stage answers to a handoff that it did not accept."""
    step = message.get("step")
    seq = step.get("seq", 1) if isinstance(step, Mapping) else 1
    seq = seq if isinstance(seq, int) and seq > 0 else 1
    # What is not genuine, or of another task, is on record in the chain that it names: no anchor of this run's chain.
    anchor = None if receipt.verdict.reason is Code.SIGNATURE_INVALID else receipt.anchor
    return StageReturn(stage=spec.name, seq=seq, attempt=receipt.attempt, verdict=receipt.verdict, anchor=anchor)


def expired_return(given: StageInput, findings: list[Finding]) -> StageReturn:
    """Return what a stage answers to a plain input whose contract has expired; it did not run."""
    verdict = Verdict(
        valid=False, reason=Code.INCOMPLETE_CONTEXT, details="; ".join(one.text for one in findings), findings=findings
    )
    return StageReturn.for_input(given, verdict=verdict)


def refusal(returned: StageReturn) -> ApplicationError:
    """Return the failure by which the activity of a stage answers that it did not accept, with the answer in it."""
    assert returned.verdict is not None  # noqa: S101 - both that make one set it
    said = f"{returned.verdict.reason}: {returned.verdict.details}"[:_LONGEST_REFUSAL]
    return ApplicationError(
        said, returned, type=HANDOFF_REFUSED, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )


async def returned_on_record(
    gate: Gate, message: Mapping[str, Any], returned: StageReturn, anchor: str | None
) -> str | None:
    """Put on record what a stage returned, and return the chain's head after it."""
    answer = {"baton_patch": returned.baton_patch, "output": returned.output, "findings": returned.findings}

    async def put() -> str:
        return (await gate.returned(message, answer, returned.spend, run_id=run_of_activity())).anchor

    return await put_or_warn(put, f"what {returned.stage} returned") or anchor


async def put_or_warn(put: Callable[[], Awaitable[str]], what: str) -> str | None:
    """Put something on record that was paid for and must not be done again for want of the ledger."""
    for pause in (*_PAUSES, None):
        try:
            return await put()
        except (LedgerUnavailableError, KeyringError) as error:
            if pause is None:
                _log.warning("%s is not on record: %s", what, error)
                break
            await asyncio.sleep(pause)
    return None


@contextmanager
def _or_warn(what: str) -> Iterator[None]:
    """Leave it to the worker's log that something is not on record, without a ledger to put it into."""
    try:
        yield
    except (LedgerError, KeyringError) as error:
        _log.warning("%s is not on record: %s", what, error)


async def failed_on_record(gate: Gate, message: Mapping[str, Any], error: Exception) -> None:
    """Put on record that a stage failed after it had accepted; without the ledger it is left to the worker's log."""
    info = activity.info() if activity.in_activity() else None
    attempt, activity_id = (info.attempt, info.activity_id) if info else (1, None)
    spend = find_spend(error.details) if isinstance(error, ApplicationError) else Spend()
    why, run_id = f"{type(error).__name__}: {error}", run_of_activity()
    with _or_warn("that a stage failed"):
        await gate.failed(message, why, attempt, spend=spend, run_id=run_id, activity_id=activity_id)


async def canceled_on_record(gate: Gate, message: Mapping[str, Any], given: StageInput, spend: Spend) -> None:
    """Put on record what an abandoned stage had charged, because no run will report it."""
    why = activity.cancellation_details() if activity.in_activity() else None
    if not spend or why is None or not (why.cancel_requested or why.not_found):
        return
    entry = AuditEntry(
        kind=Kind.ROLLBACK,
        task_id=given.task_id,
        event_id=f"{given.handoff_id}.{given.attempt}",
        status=CANCELED,
        timestamp=now_utc(),
        to_agent=given.stage,
        run_id=run_of_activity(),
        cost=cost_after(message, spend),
        message={"charged": spend.model_dump(mode="json")},
    )
    with _or_warn(f"what {given.stage} had charged when it was canceled"):
        await gate.record(entry)


async def denied_on_record(gate: Gate, given: StageInput, tool: str, handoff_id: str, number: int) -> None:
    """Record that a stage called a tool that its contract does not allow; in the log if the ledger is down."""
    info = activity.info() if activity.in_activity() else None
    run = info.attempt if info else 1
    entry = AuditEntry(
        kind="denial",
        task_id=given.task_id,
        event_id=f"{given.handoff_id}.{given.attempt}.{run}.{number}",
        attempt=given.attempt,
        status=TOOL_DENIED,
        timestamp=now_utc(),
        from_agent=given.stage,
        details=f"{tool!r} is not among the tools of handoff {handoff_id!r}; it did not run",
        run_id=run_of_activity(),
        message={"tool": tool, "handoffId": handoff_id},
    )
    with _or_warn(f"a denied call of {tool!r}"):
        await gate.record(entry)


def run_of_activity() -> str | None:
    """Return the workflow and run that the running stage belongs to, as its records name them."""
    if not activity.in_activity():
        return None
    info = activity.info()
    return run_name(info.workflow_id or "", info.workflow_run_id or "")
