"""The receiver's gate: every handoff passes it before a receiver of any kind acts.

The seal is verified over the received bytes, then the message is parsed and its age, schema, completeness, safety and
budget are checked; all findings are reported. The verdict is written to the ledger before the caller learns it: a
handoff that cannot be recorded is not accepted.
"""

import asyncio
import contextlib
import functools
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import Any

from baton.contract.validation import expiry_findings, validate_contract
from baton.core.history import Spend
from baton.core.outline import Outline
from baton.core.receivers import ReceiverRequirements
from baton.core.store_schemas import SchemaGate
from baton.core.verdict import TOLERANCE, Code, Finding, HandoffStatus, Receipt, Verdict, rejected
from baton.errors import HandoffError
from baton.handoff.records import Handoff, handoff_schema
from baton.handoff.sealed import NAMESPACE, SealError
from baton.handoff.store_signing import open_sealed
from baton.handoff.validation import Check, check_handoff, staleness_finding
from baton.keys.store_keyring import Key, Keyring, Purpose
from baton.keys.store_keys import PublicKeys
from baton.ledger.chain import ChainHead
from baton.ledger.entries import RedactionPolicy, handoff_entry, redact, usable_name
from baton.ledger.records import FAILED, AuditCost, AuditEntry, AuditHeader, Kind, LedgerConflictError
from baton.ledger.store import Ledger
from baton.ledger.store_writer import Appended
from baton.personal.records import commit_unsealed, is_payload
from baton.safety.detector import detect
from baton.safety.scan import Detector, ScanPolicy, apply_waivers, scan
from baton.wire.json_values import digest as digest_of
from baton.wire.json_values import format_digest, loads_strict, sha256
from baton.wire.store_clock import now_utc


@cache
def handoff_gate() -> SchemaGate:
    """Return the gate of the handoff message's current schema, compiled once (about 20 ms)."""
    return SchemaGate(handoff_schema())


START = "start"
"""The record kind of a task's first message, which no agent handed on."""
MAX_BYTES_ON_LOOP = 16 * 1024
"""A longer message is checked in a thread, so that the worker's event loop stays free."""
MAX_ERROR_LENGTH = 1_000
"""How many characters of a receiver's error are recorded."""
MAX_RAW_BYTES = 64 * 1024
"""How many bytes of a message that is not JSON are recorded."""


REPLAY = "replay"
"""The rule of the finding that a message was meant for, or accepted by, somebody else."""
AUDIENCE_RUN = "audienceRun"
"""The member that names the first run of the chain that may accept a message."""


def audience_check(audience: str, namespace: str, run_chain: str) -> Callable[[Handoff | Outline], list[Finding]]:
    """Return the check that a message names this receiver; a message for another one is a replay.

    Args:
        audience: The receiver's address: its workflow id, or an outside agent's.
        namespace: The receiver's namespace.
        run_chain: The first run of the receiver's chain; a message need not name it.
    """

    def check(message: Handoff | Outline) -> list[Finding]:
        addresses = {
            "audience": (message.audience, audience),
            NAMESPACE: (message.namespace, namespace),
            AUDIENCE_RUN: (message.audience_run, message.audience_run and run_chain),
        }
        return [
            Finding(
                code=Code.SIGNATURE_INVALID,
                text=f"its member {name!r} does not name {expected!r}, where it arrived; a copy is not accepted",
                at=f"/{name}",
                rule=REPLAY,
            )
            for name, (named, expected) in addresses.items()
            if named != expected
        ]

    return check


def contract_check(clock: Callable[[], datetime], tolerance: timedelta) -> Check:
    """Return the check that a received contract is valid, and has not expired; `tolerance` as in `Freshness`."""

    def check(handoff: Handoff) -> list[Finding]:
        contract: Any = (handoff.step or {}).get("contract")
        if contract is None:
            return []
        now = clock()
        if faults := validate_contract(contract, now=now, tolerance=tolerance).errors:
            return [finding.model_copy(update={"at": f"/step/contract{finding.at}"}) for finding in faults]
        return expiry_findings(contract, now)

    return check


@dataclass(frozen=True)
class Freshness:
    """How old a handoff may be.

    Attributes:
        max_age: The maximum age; None leaves it to the message's `expiresAt`.
        tolerance: How far the sender's clock may be ahead of the receiver's, for a handoff and its contract.
    """

    max_age: timedelta | None = None
    tolerance: timedelta = TOLERANCE


@dataclass(frozen=True)
class Judgement:
    """The gate's judgement of a handoff, before it is recorded.

    Attributes:
        verdict: The verdict, before people's releases.
        message: The parsed message; empty if its seal does not hold.
        handoff: The handoff in it; None if its seal or its schema does not hold.
        flags: What the safety scan noticed and let pass.
    """

    verdict: Verdict
    message: Mapping[str, Any] = field(default_factory=dict)
    handoff: Handoff | None = None
    flags: Sequence[str] = ()

    @cached_property
    def outline(self) -> Outline:
        """What the message says of itself."""
        return Outline.of(self.message)


def judge_opened(
    message: Mapping[str, Any],
    receiver: ReceiverRequirements,
    policy: ScanPolicy,
    detector: Detector,
    freshness: Freshness,
    *,
    clock: Callable[[], datetime],
    extra_checks: Iterable[Check] = (),
) -> Judgement:
    """Judge a message whose seal was verified, and which `loads_strict` has parsed."""
    flags: list[str] = []

    def scan_message(message: Any) -> list[Finding]:
        report = scan(message, detector, policy)
        flags.extend(report.labels)
        return report.violations

    def check_freshness(handoff: Handoff) -> list[Finding]:
        finding = staleness_finding(handoff, clock(), freshness.max_age, freshness.tolerance)
        return [finding] if finding else []

    checks = [check_freshness, _check_personal_data, *extra_checks]
    verdict, handoff = check_handoff(message, receiver, scan_message, check_schema=handoff_gate(), extra_checks=checks)
    return Judgement(verdict, message, handoff, flags)


@dataclass(frozen=True)
class Gate:
    """Answers handoffs for a receiver.

    Attributes:
        keyring: Opens seals.
        ledger: Records each answer; it must be open.
        policy: How the safety scan treats suspicions.
        detector: The safety detector.
        freshness: How old a handoff may be.
        clock: Returns the current time.
        redact: What is recorded as a commitment only, or None; see `Safeguards.redact`.
        trust: Public keys of others, whose seals it opens in place of the keyring's.
    """

    keyring: Keyring
    ledger: Ledger
    policy: ScanPolicy = field(default_factory=ScanPolicy)
    detector: Detector = detect
    freshness: Freshness = field(default_factory=Freshness)
    clock: Callable[[], datetime] = now_utc
    redact: RedactionPolicy | None = None
    trust: PublicKeys | None = None

    async def accept(
        self,
        raw: bytes,
        receiver: ReceiverRequirements,
        *,
        run_id: str | None = None,
        run_chain: str | None = None,
        task_id: str | None = None,
        extra_checks: Iterable[Check] = (),
    ) -> tuple[Receipt, Judgement]:
        """Answer a handoff: return the receipt once it is recorded, and what it is about.

        Args:
            raw: The message as received.
            receiver: The receiver's requirements.
            run_id: The receiver's workflow and run, for the record.
            run_chain: The first run of the receiver's chain; without it, a replay to a later run is not detected.
            task_id: The task that the message must belong to, if it is known.
            extra_checks: Further checks of a message whose schema holds.

        Returns:
            The receipt, and the message as it was judged; of an accepted one `handoff` is never None.

        Raises:
            LedgerUnavailableError: The answer could not be recorded; nothing was accepted.
        """
        judge = functools.partial(self.judge, raw, receiver, task_id=task_id, extra_checks=extra_checks)
        is_quick = self.detector is detect and len(raw) <= MAX_BYTES_ON_LOOP  # another detector may ask a service
        judgement = judge() if is_quick else await asyncio.to_thread(judge)
        message, handoff = judgement.message, judgement.handoff
        at, digest = self.clock(), format_digest(sha256(raw))
        readable = message or _read_unverified(raw)
        outline = judgement.outline if message else Outline.of(readable)
        verdict, released_by = apply_waivers(judgement.verdict, message)
        chain = task_id or usable_name(outline.task_id) or "unknown"
        find_replay = functools.partial(self._find_replay, handoff, chain, run_chain)
        if verdict and (refusal := await find_replay()) is not None:
            verdict = refusal
        begins = verdict and outline.initial and outline.step.reply_to is None
        entry = handoff_entry(
            self._recordable(readable),
            task_id=chain,
            kind=START if begins else Kind.HANDOFF,
            status=verdict.answer,
            timestamp=at,
            attempt=outline.step.attempt,
            reason=None if verdict.reason is None else verdict.reason.value,
            details=verdict.details,
            actor=released_by,
            run_id=run_id,
        ).model_copy(update={"run_chain": run_chain})
        if not message:  # a forger chose its id: the genuine handoff must not conflict with it
            entry = entry.model_copy(update={"conflict": digest})
        try:
            head, repeated = await self._record_answer(entry, readable)
            refusal = await find_replay() if verdict and repeated else None  # another run may have come first
        except LedgerConflictError:
            refusal = rejected(
                Code.SIGNATURE_INVALID,
                "another message with this handoff id was answered before; a handoff is sent again as it was",
                "/handoffId",
            )
        if refusal is not None:
            verdict = refusal
            conflict: dict[str, Any] = {"conflict": digest}
            conflict |= {"status": HandoffStatus.REJECTED, "reason": Code.SIGNATURE_INVALID, "details": verdict.details}
            head, repeated = await self.ledger.append_once(entry.model_copy(update=conflict))
        receipt = Receipt(
            handoff_id=usable_name(outline.handoff_id) or "",
            task_id=chain,
            digest=digest,
            attempt=outline.step.attempt,
            verdict=verdict,
            flags=[*judgement.flags] if verdict.valid else [],
            anchor=head.anchor,
            at=at,
            again=repeated,
        )
        return receipt, judgement

    def is_answer_to(self, raw: bytes, header: AuditHeader) -> bool:
        """Return whether an answer on record is to this handoff, and not to another message with its id."""
        readable = open_sealed(raw, self.trust or self.keyring).message
        keys = self.keyring.all_keys(Purpose.INDEX)
        return header.message_hash in {digest_of(self._recordable(readable, key)) for key in keys}

    async def _find_replay(self, handoff: Handoff | None, chain: str, run_chain: str | None) -> Verdict | None:
        """Return the rejection of a handoff that a run accepted which the receiver's does not continue, or None."""
        if handoff is None or run_chain is None or handoff.audience_run:  # it names the only chain that may accept it
            return None
        for header in await self.ledger.acceptances(chain, handoff.handoff_id):
            if header.run_chain != run_chain:
                text = (
                    f"{header.run_id!r} accepted it before, and the receiver's run does not continue that one; make a "
                    "new handoff"
                )
                return Verdict.of([Finding(code=Code.SIGNATURE_INVALID, text=text, at="/handoffId", rule=REPLAY)])
        return None

    def judge(
        self,
        raw: bytes,
        receiver: ReceiverRequirements,
        *,
        task_id: str | None = None,
        extra_checks: Iterable[Check] = (),
    ) -> Judgement:
        """Judge a handoff without recording anything; nobody may act on it yet."""
        try:
            message = open_sealed(raw, self.trust or self.keyring).message
        except SealError as error:
            return Judgement(rejected(Code.SIGNATURE_INVALID, str(error)))
        checks = [*extra_checks, *([] if task_id is None else [_task_check(task_id)])]
        return judge_opened(
            message, receiver, self.policy, self.detector, self.freshness, clock=self.clock, extra_checks=checks
        )

    def unsafe(self, message: Any) -> list[str]:
        """Return the safety scan's violations in a message that is not a handoff, without quoting it."""
        return [
            f"{violation.rule} at {violation.at or '/'}"
            for violation in scan(message, self.detector, self.policy).violations
        ]

    async def record_return(
        self,
        handoff: Handoff,
        attempt: int,
        answer: Mapping[str, Any],
        spend: Spend,
        *,
        execution: int = 1,
        run_id: str | None = None,
    ) -> ChainHead:
        """Record a receiver's result of a handoff, with its cost in all executions."""
        entry = AuditEntry(
            kind="completion",
            task_id=handoff.task_id,
            event_id=handoff.handoff_id,
            attempt=attempt,
            execution=execution,
            status="RETURNED",
            timestamp=self.clock(),
            from_agent=handoff.to_agent.agent_type,
            run_id=run_id,
            cost=AuditCost.of(handoff.cost_tracking).after(spend),
            message=self.without_redacted(dict(answer), handoff.handoff_id),
        )
        return await self._append(entry)

    async def record_failure(
        self,
        handoff: Handoff,
        attempt: int,
        error: str,
        *,
        execution: int = 1,
        spend: Spend | None = None,
        run_id: str | None = None,
        activity_id: str | None = None,
    ) -> None:
        """Record that a receiver failed after accepting, and what it had spent in all executions."""
        await self._append(
            AuditEntry(
                kind="completion",
                task_id=handoff.task_id,
                event_id=handoff.handoff_id,
                attempt=attempt,
                execution=execution,
                status=FAILED,
                timestamp=self.clock(),
                from_agent=handoff.to_agent.agent_type,
                details=error[:MAX_ERROR_LENGTH],
                run_id=run_id,
                cost=AuditCost.of(handoff.cost_tracking).after(spend) if spend else None,
                message={"activity": activity_id} if activity_id else {},
            )
        )

    async def record(self, entry: AuditEntry) -> str:
        """Record any other entry, and return the anchor of its chain."""
        if self.redact is not None and isinstance(entry.message, dict):
            entry = entry.model_copy(update={"message": self.without_redacted(entry.message, entry.event_id)})
        return (await self._append(entry)).anchor

    async def _append(self, entry: AuditEntry) -> ChainHead:
        """Append an entry, as a conflict if another message is on record for its event, as after a repeated run."""
        try:
            return await self.ledger.append(entry)
        except LedgerConflictError:
            conflict = format_digest(sha256(entry.message_bytes()))
            return await self.ledger.append(entry.model_copy(update={"conflict": conflict}))

    async def _record_answer(self, entry: AuditEntry, readable: Mapping[str, Any]) -> Appended:
        """Record an answer once, recognising one whose commitments were made with a retired INDEX key."""
        try:
            return await self.ledger.append_once(entry)
        except LedgerConflictError:
            for key in self.keyring.all_keys(Purpose.INDEX)[1:]:
                earlier = self._recordable(readable, key)
                if earlier != entry.message:
                    with contextlib.suppress(LedgerConflictError):
                        return await self.ledger.append_once(entry.model_copy(update={"message": earlier}))
            raise

    def _recordable(self, readable: Mapping[str, Any], key: Key | None = None) -> dict[str, Any]:
        """Return a handoff as recorded, with commitments under an INDEX key, by default the current one."""
        handoff_id = readable.get("handoffId")
        return self.without_redacted(commit_unsealed(readable, lambda: self._salt(handoff_id, key)), handoff_id, key)

    def without_redacted(self, message: dict[str, Any], event_id: object, key: Key | None = None) -> dict[str, Any]:
        """Return a message with commitments in place of what the data policy redacts."""
        policy = self.redact
        if policy is None:
            return message
        salt = self._salt(event_id, key)
        return redact(message, policy, lambda at: hmac.digest(salt, at.encode("utf-8", "replace"), "sha256"))

    def _salt(self, event_id: object, key: Key | None = None) -> bytes:
        """Return the salt of an event's commitments: secret, and the same for a repeated answer."""
        label = f"commitment {event_id}".encode("utf-8", "replace")
        return hmac.digest((key or self.keyring.current(Purpose.INDEX)).secret, label, "sha256")


def _task_check(task_id: str) -> Check:
    """Return the check that a message belongs to the receiver's task; a message of another one is a replay."""

    def check(handoff: Handoff) -> list[Finding]:
        if handoff.task_id == task_id:
            return []
        return [Finding(code=Code.SIGNATURE_INVALID, text="the message is of another task", at="/taskId")]

    return check


def _read_unverified(raw: bytes) -> dict[str, Any]:
    """Return a message whose seal does not hold, for the record only: parsed if it is JSON, else as text."""
    try:
        message = loads_strict(raw)
    except HandoffError:
        message = None
    if isinstance(message, dict):
        return message
    return {"raw": raw[:MAX_RAW_BYTES].decode("utf-8", "backslashreplace")}


def _check_personal_data(handoff: Handoff) -> list[Finding]:
    """Return a finding if personal data is not encrypted: it must never be recorded."""
    if is_payload(handoff.personal_data_payload or {}):
        return []
    text = "personalDataPayload is not sealed; seal it with the vault before handing it on"
    return [Finding(code=Code.SCHEMA_INVALID, text=text, at="/personalDataPayload")]
