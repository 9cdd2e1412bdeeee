"""How a stage receives a handoff: its worker's gate answers before any of the stage's code runs."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from baton.artifacts.activity import max_wait
from baton.contract.records import TOOL_DENIED
from baton.core.history import Spend, find_spend
from baton.core.messages import StageInput, StageReturn
from baton.core.outline import Outline
from baton.core.receivers import ReceiverRequirements
from baton.core.stages import StageSpec
from baton.core.verdict import Code, Finding, Receipt, Verdict
from baton.errors import ConfigurationError
from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff
from baton.handoff.store_gate import AUDIENCE_RUN, Gate, audience_check, contract_check
from baton.handoff.validation import Check
from baton.keys.store_keyring import KeyringError
from baton.ledger.chain import CANCELED
from baton.ledger.entries import run_name
from baton.ledger.records import AuditCost, AuditEntry, Kind, LedgerError, LedgerUnavailableError
from baton.telemetry.metrics import Metrics, Transport
from baton.telemetry.verdicts import record_answer
from baton.wire.json_values import canonical_json
from baton.wire.names import HANDOFF_REFUSED
from baton.wire.store_clock import now_utc
from baton.wire.text import list_faults

_FIRST_PAUSE, _MAX_PAUSE = 0.1, 5.0  # seconds between attempts to record what a stage returned
_RECORD_PATIENCE = 300.0  # seconds that a result waits for its record
_ATTEMPT_SECONDS = 30.0  # that an attempt may take with a ledger that does not answer
_ANSWER_PAUSES = (0.2, 0.5, 1.0)  # seconds between attempts to record an answer
_MAX_REFUSAL_LENGTH = 1_000
_MAX_RUN_CHAINS = 10_000
_run_chains: dict[str, str] = {}  # the first run of each continued run's chain; it never changes
_log = logging.getLogger(__name__)


def requirements(spec: StageSpec) -> ReceiverRequirements:
    """Return the stage's requirements for a handoff."""
    return ReceiverRequirements(spec.name, spec.version, spec.requires)


def require_gate(gate: Gate | None) -> Gate:
    """Return the worker's gate, which a sealed handoff needs."""
    if gate is None:
        raise ConfigurationError(
            "this worker was handed a sealed handoff and has no gate to verify it with; start it with safeguards"
        )
    return gate


async def answer_handoff(
    gate: Gate,
    metrics: Metrics,
    sealed: UnverifiedHandoff,
    spec: StageSpec,
    clock: Callable[[], datetime] = now_utc,
) -> tuple[Receipt, Handoff, StageInput]:
    """Answer a stage's handoff: return the recorded receipt, the handoff, and the stage's input in it.

    Raises:
        ApplicationError: It is rejected; the error carries the stage's answer.
    """
    began = gate.clock()
    stage_inputs: list[StageInput] = []  # filled by its check, so that the input is parsed once
    run_chain = await find_run_chain(_claimed_chain(sealed)) if activity.in_activity() else None
    checks = [
        _input_check(stage_inputs),
        contract_check(clock, gate.freshness.tolerance),
        *_address_checks(run_chain),
    ]
    # A short outage must not use up the stage's own retries.
    for pause in (*_ANSWER_PAUSES, None):
        try:
            receipt, judgement = await gate.accept(
                sealed.raw, requirements(spec), run_id=current_run_name(), run_chain=run_chain, extra_checks=checks
            )
            break
        except LedgerUnavailableError as error:
            if pause is None:
                raise _outage_failure(error) from error
            _log.warning("a handoff to %s waits for the ledger: %s", spec.name, error)
            await asyncio.sleep(pause)
    # The handoff has the server's time, so its latency is measured by that clock.
    at = activity.info().started_time + (receipt.at - began) if activity.in_activity() else receipt.at
    record_answer(metrics, receipt.model_copy(update={"at": at}), judgement.outline, spec.name, Transport.QUEUE)
    if judgement.handoff is None or not receipt.verdict:
        raise refusal_error(_refused_return(receipt, spec, judgement.outline))
    return receipt, judgement.handoff, stage_inputs[0]


def _outage_failure(error: LedgerUnavailableError) -> Exception:
    """Return the failure of a stage that could not begin: the number of its tries before, and what they had charged.

    The server does not retry it: the run waits and sends the handoff again, and this try does not count.
    """
    policy = activity.info().retry_policy if activity.in_activity() else None
    if policy is None or not policy.maximum_attempts:  # retried without end
        return error
    info = activity.info()
    return ApplicationError(
        str(error),
        info.attempt - 1,
        *info.heartbeat_details,
        type=LedgerUnavailableError.__name__,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


def _claimed_chain(sealed: UnverifiedHandoff) -> str | None:
    """Return the run of this activity if a handoff in canonical form is made out for it; None otherwise."""
    info = activity.info()
    beginning = canonical_json({"audience": info.workflow_id, AUDIENCE_RUN: info.workflow_run_id})[:-1]
    return info.workflow_run_id if sealed.raw.startswith(beginning) else None


def _address_checks(run_chain: str | None) -> list[Check]:
    """Return the check that a handoff is for a stage of this workflow: elsewhere, its seal holds as well."""
    if run_chain is None:
        return []
    info = activity.info()
    return [audience_check(info.workflow_id or "", info.workflow_namespace or "", run_chain)]


async def find_run_chain(claimed: str | None) -> str:
    """Return the first run of the chain to which the activity's run belongs, by the server.

    Args:
        claimed: What the run says; it is asked about only where a run says that it continues another one.
    """
    info = activity.info()
    run_id = info.workflow_run_id or ""
    if claimed == run_id:
        return run_id
    if run_id not in _run_chains:
        run = activity.client().get_workflow_handle(info.workflow_id or "", run_id=run_id)
        first_run_id = (await run.describe()).raw_info.first_run_id
        if len(_run_chains) >= _MAX_RUN_CHAINS:
            del _run_chains[next(iter(_run_chains))]
        _run_chains[run_id] = first_run_id or run_id
    return _run_chains[run_id]


def _input_check(stage_inputs: list[StageInput]) -> Check:
    """Return the check that `step` holds a stage's input, which it leaves in ``stage_inputs``."""

    def check(handoff: Handoff) -> list[Finding]:
        try:
            stage_inputs[:] = [handoff.stage_input()]
        except ValidationError as error:
            paths = ", ".join(sorted({".".join(map(str, fault["loc"])) for fault in list_faults(error)}))
            text = f"'step' is not a stage's input; see {paths}"
            return [Finding(code=Code.SCHEMA_INVALID, text=text, at="/step")]
        return []

    return check


def _refused_return(receipt: Receipt, spec: StageSpec, outline: Outline) -> StageReturn:
    """Return the stage's answer to a handoff that it rejected."""
    seq = outline.step.seq or 1
    # A forged message, or one of another task, is recorded in the chain that it names, not in this run's.
    anchor = None if receipt.verdict.reason is Code.SIGNATURE_INVALID else receipt.anchor
    return StageReturn(stage=spec.name, seq=seq, attempt=receipt.attempt, verdict=receipt.verdict, anchor=anchor)


def expired_return(stage_input: StageInput, findings: list[Finding]) -> StageReturn:
    """Return the stage's answer to a plain input whose contract has expired."""
    verdict = Verdict(
        valid=False,
        reason=Code.INCOMPLETE_CONTEXT,
        details="; ".join(finding.text for finding in findings),
        findings=findings,
    )
    return StageReturn.for_input(stage_input, verdict=verdict)


def refusal_error(answer: StageReturn) -> ApplicationError:
    """Return the activity failure that carries a stage's rejection."""
    assert answer.verdict is not None  # noqa: S101 - `_refused_return` and `expired_return` set it
    text = f"{answer.verdict.reason}: {answer.verdict.details}"[:_MAX_REFUSAL_LENGTH]
    return ApplicationError(
        text, answer, type=HANDOFF_REFUSED, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )


async def record_return(gate: Gate, handoff: Handoff, returned: StageReturn, anchor: str | None) -> str | None:
    """Record what a stage returned, and return the new head of the chain."""
    answer = {"baton_patch": returned.baton_patch, "output": returned.output, "findings": returned.findings}

    async def record() -> str:
        head = await gate.record_return(
            handoff, returned.attempt, answer, returned.spend, execution=_execution(), run_id=current_run_name()
        )
        return head.anchor

    return await record_or_warn(record, f"what {returned.stage} returned") or anchor


async def record_or_warn(record: Callable[[], Awaitable[str]], description: str) -> str | None:
    """Record paid work; wait for the ledger while there is time, then only log it: a failure would repeat the work."""
    deadline, pause = time.monotonic() + min(max_wait() - _ATTEMPT_SECONDS, _RECORD_PATIENCE), _FIRST_PAUSE
    while True:
        try:
            return await record()
        except (LedgerUnavailableError, KeyringError) as error:
            is_stopping = not activity.in_activity() or activity.is_worker_shutdown()
            if isinstance(error, KeyringError) or is_stopping or time.monotonic() + pause > deadline:
                _log.warning("%s is not on record: %s", description, error)
                return None
            if pause == _FIRST_PAUSE:
                _log.warning("%s waits for the ledger: %s", description, error)
        with suppress(TimeoutError):  # a worker that stops waits no longer
            await asyncio.wait_for(activity.wait_for_worker_shutdown(), pause)
        pause = min(2 * pause, _MAX_PAUSE)


@contextmanager
def _warn_if_unrecorded(description: str) -> Iterator[None]:
    """Log that something could not be recorded, instead of failing."""
    try:
        yield
    except (LedgerError, KeyringError) as error:
        _log.warning("%s is not on record: %s", description, error)


async def record_failure(gate: Gate, handoff: Handoff, attempt: int, error: BaseException) -> None:
    """Record that a stage failed after accepting; log it if the ledger is down."""
    activity_id = activity.info().activity_id if activity.in_activity() else None
    spend = find_spend(error.details) if isinstance(error, ApplicationError) else Spend()
    details, run_id = f"{type(error).__name__}: {error}", current_run_name()
    with _warn_if_unrecorded("that a stage failed"):
        await gate.record_failure(
            handoff, attempt, details, execution=_execution(), spend=spend, run_id=run_id, activity_id=activity_id
        )


async def record_cancellation(gate: Gate, handoff: Handoff, stage_input: StageInput, spend: Spend) -> None:
    """Record what a canceled stage had charged, because its run will not."""
    details = activity.cancellation_details() if activity.in_activity() else None
    if not spend or details is None or not (details.cancel_requested or details.not_found):
        return
    entry = AuditEntry(
        kind=Kind.ROLLBACK,
        task_id=stage_input.task_id,
        event_id=stage_input.handoff_id,
        attempt=stage_input.attempt,
        execution=_execution(),
        status=CANCELED,
        timestamp=now_utc(),
        to_agent=stage_input.stage,
        run_id=current_run_name(),
        cost=AuditCost.of(handoff.cost_tracking).after(spend),
        message={"charged": spend.model_dump(mode="json")},
    )
    with _warn_if_unrecorded(f"what {stage_input.stage} had charged when it was canceled"):
        await gate.record(entry)


async def record_denied_call(gate: Gate, stage_input: StageInput, tool: str, handoff_id: str, number: int) -> None:
    """Record the call of a tool that the contract does not allow; log it if the ledger is down."""
    entry = AuditEntry(
        kind="denial",
        task_id=stage_input.task_id,
        event_id=f"{stage_input.handoff_id}.{number}",
        attempt=stage_input.attempt,
        execution=_execution(),
        status=TOOL_DENIED,
        timestamp=now_utc(),
        from_agent=stage_input.stage,
        details=f"{tool!r} is not among the tools of handoff {handoff_id!r}; it did not run",
        run_id=current_run_name(),
        message={"tool": tool, "handoffId": handoff_id},
    )
    with _warn_if_unrecorded(f"a denied call of {tool!r}"):
        await gate.record(entry)


def _execution() -> int:
    """Return which execution of the activity this is, from 1."""
    return activity.info().attempt if activity.in_activity() else 1


def current_run_name() -> str | None:
    """Return the name that records use for the activity's workflow run."""
    if not activity.in_activity():
        return None
    info = activity.info()
    return run_name(info.workflow_id or "", info.workflow_run_id or "")
