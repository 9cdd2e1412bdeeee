"""The receiver's gate: what every handoff passes before anybody acts on it, the same for all kinds of receivers.

The seal is verified over the received bytes, then the message is read; then come its age, its schema, completeness,
safety and budget, all reported. Whatever the verdict, it is written to the ledger before the caller learns it: a
handoff whose record could not be written is not accepted and nothing runs.
"""

import asyncio
import contextlib
import functools
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any

import jsonschema_rs

from baton.contract.validation import expiry_findings, validate_contract
from baton.core.history import Spend
from baton.core.verdict import MAX_FINDINGS, Code, Finding, HandoffStatus, Verdict, rejected
from baton.errors import HandoffError
from baton.exchange.records import reply_to_of
from baton.handoff.records import handoff_schema
from baton.handoff.sealed import SealError
from baton.handoff.store_signing import open_sealed
from baton.handoff.validation import Check, Receipt, ReceiverRequirements, Scan, stale, validate_handoff
from baton.keys.store_keyring import Key, Keyring, Purpose
from baton.ledger.chain import ChainHead
from baton.ledger.entries import AGAIN, LONGEST_NAME, RedactionPolicy, cost_after, handoff_entry, redact, usable_name
from baton.ledger.records import FAILED, AuditEntry, Kind, LedgerConflictError
from baton.ledger.store import Ledger
from baton.ledger.store_writer import Appended
from baton.personal.records import is_payload, recordable
from baton.safety.detector import detect
from baton.safety.scan import Detector, ScanPolicy, Unsafe, after_release, scan
from baton.wire.json_values import MAX_MESSAGE_VALUES, find_excess, format_digest, loads_strict, sha256
from baton.wire.schemas import Path, format_pointer

_MOST_ERRORS = 4 * MAX_FINDINGS  # a place can break several rules; a hostile message can break any number
_MOST_CHECKED = 200  # values whose errors are all listed
_LONGEST_RULE = 300  # characters; a rule names what a schema lists, and members of the message that it does not know
_MOST_RULES = 3
_LONGEST_PATTERN = 80  # characters; a longer one is unreadable
_VALUE = "a value"


class SchemaGate:
    """A compiled JSON Schema that answers with findings."""

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        document = handoff_schema() if schema is None else dict(schema)
        self._validator = jsonschema_rs.Draft202012Validator(
            document,
            validate_formats=True,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
            mask=_VALUE,
        )

    def __call__(self, message: Any) -> list[Finding]:
        """Return what is wrong with a message; nothing, if it is valid."""
        if (over := find_excess(message, MAX_MESSAGE_VALUES)) is not None:
            at = format_pointer(over.path)
            return [Finding(code=Code.SCHEMA_INVALID, at=at, text=f"{at!r} {over.text}")]
        if self._validator.is_valid(message):
            return []
        places: dict[tuple[str | int, ...], jsonschema_rs.ValidationError] = {}
        for error in islice(self._errors(message), _MOST_ERRORS):
            places.setdefault(_place(error), error)
        return [_finding(place, error) for place, error in islice(places.items(), MAX_FINDINGS)]

    def _errors(self, message: Any) -> Iterator[jsonschema_rs.ValidationError]:
        """Yield errors of an invalid message: of a long one the first, and those of its beginning."""
        beginning, cut = _beginning(message)
        if not cut:
            yield from self._validator.iter_errors(message)
            return
        try:
            self._validator.validate(message)
        except jsonschema_rs.ValidationError as error:
            yield error
        for further in self._validator.iter_errors(beginning):
            at = tuple(further.instance_path)
            if not any(place[: len(at)] == at for place in cut):  # else it may be due to what was cut off
                yield further


def _beginning(message: Any) -> tuple[Any, list[Path]]:
    """Return the first values of a message, level by level, and the places of the containers that were cut."""
    cut: list[Path] = []
    left = _MOST_CHECKED
    whole = [message]
    level: list[tuple[Path, Any, Any, Any]] = [((), message, whole, 0)]
    while level:
        inner: list[tuple[Path, Any, Any, Any]] = []
        for path, value, parent, key in level:
            if not isinstance(value, (dict, list)):
                continue
            size = min(len(value), left)
            left -= size
            if size < len(value):
                cut.append(path)
            copy: Any = dict(islice(value.items(), size)) if isinstance(value, dict) else value[:size]
            parent[key] = copy
            members = copy.items() if isinstance(copy, dict) else enumerate(copy)
            inner += [((*path, name), one, copy, name) for name, one in members]
        level = inner
    return whole[0], cut


def _place(error: jsonschema_rs.ValidationError) -> tuple[str | int, ...]:
    """Return where the fault is; of a missing member, where it should be."""
    missing = (error.kind.property,) if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required) else ()
    return (*error.instance_path, *missing)


def _finding(place: tuple[str | int, ...], error: jsonschema_rs.ValidationError) -> Finding:
    """Return the finding of a broken rule."""
    at = format_pointer(place)
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return Finding(code=Code.SCHEMA_INVALID, at=at, text=f"{at!r} is missing; send it")
    rules = [error, *_nearest(error)]
    text = "; ".join(f"{_named(format_pointer(one.instance_path))}{_rule(one)}" for one in rules)
    return Finding(code=Code.SCHEMA_INVALID, at=at, text=text)


def _named(at: str) -> str:
    """Return how a place is called in a sentence."""
    return repr(at) if at else "the whole"


def _rule(error: jsonschema_rs.ValidationError) -> str:
    """Return what is wrong at a place, so that the place can stand before it."""
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.FalseSchema):
        return " is not allowed here"
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Pattern) and len(error.kind.pattern) > _LONGEST_PATTERN:
        return " does not have the form that its schema asks for"
    said = " ".join(error.message.split())[:_LONGEST_RULE]
    return said.removeprefix(_VALUE) if said.startswith(f"{_VALUE} ") else f": {said}"


def _nearest(error: jsonschema_rs.ValidationError) -> list[jsonschema_rs.ValidationError]:
    """Return what is wrong by the choice that comes nearest, where a schema has several and none fits."""
    choices: list[list[jsonschema_rs.ValidationError]] = [*filter(None, getattr(error.kind, "context", None) or ())]
    return min(choices, key=len)[:_MOST_RULES] if choices else []


@cache
def handoff_gate() -> SchemaGate:
    """Return the gate of the handoff message's current schema, compiled once (about 20 ms)."""
    return SchemaGate()


START = "start"
"""The kind of record of a first agent's start: no agent handed on to it, so it is not a handoff record."""
LARGEST_ON_LOOP = 16 * 1024
"""A longer message, in bytes, is checked in a thread: other activities of the worker continue meanwhile."""
LONGEST_ERROR = 1_000
"""How much of what a receiver raised is put on record, in characters."""
LONGEST_RAW = 64 * 1024
"""How much of a message that is no JSON is put on record, in bytes."""


def now_utc() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


def addressed_to(audience: str) -> Check:
    """Return the check that a message names this receiver; sent on to another one, it would be a replay."""

    def check(message: Mapping[str, Any]) -> list[Finding]:
        if message.get("audience") == audience:
            return []
        return [
            Finding(
                code=Code.SIGNATURE_INVALID,
                text=f"the message is not for {audience!r}; its member 'audience' must name the receiver",
                at="/audience",
            )
        ]

    return check


def contract_check(clock: Callable[[], datetime]) -> Check:
    """Return the check of a contract where it is received: that it is whole, and has not expired."""

    def check(message: Mapping[str, Any]) -> list[Finding]:
        contract = message.get("step", {}).get("contract")
        if contract is None:
            return []
        now = clock()
        if faults := validate_contract(contract, now=now).findings():
            return [one.model_copy(update={"at": f"/step/contract{one.at}"}) for one in faults]
        return expiry_findings(contract, now)

    return check


@dataclass(frozen=True)
class Freshness:
    """How old a handoff may be.

    Attributes:
        max_age: The oldest that is accepted; None leaves it to the message's own `expiresAt`.
        tolerance: How far ahead of the receiver's clock a sender's may be.
    """

    max_age: timedelta | None = None
    tolerance: timedelta = timedelta(minutes=5)


@dataclass(frozen=True)
class Judged:
    """What the gate makes of a handoff before it is on record.

    Attributes:
        verdict: The verdict; no person's release is in it.
        message: The message as it was read: empty if its seal does not hold.
        flags: What the safety scan noticed and let pass.
    """

    verdict: Verdict
    message: Mapping[str, Any]
    flags: Sequence[str] = ()


@dataclass(frozen=True)
class Gate:
    """Everything a receiver needs in order to answer handoffs.

    Attributes:
        keyring: Opens seals.
        ledger: Where each answer is put on record; it must be open.
        policy: What to make of suspicions.
        detector: The safety detector.
        freshness: How old a handoff may be.
        clock: Tells the time.
        redact: What is recorded as a commitment only, or None; see `Safeguards.redact`.
    """

    keyring: Keyring
    ledger: Ledger
    policy: ScanPolicy = field(default_factory=ScanPolicy)
    detector: Detector = detect
    freshness: Freshness = field(default_factory=Freshness)
    clock: Callable[[], datetime] = now_utc
    redact: RedactionPolicy | None = None

    async def accept(
        self,
        raw: bytes,
        receiver: ReceiverRequirements,
        *,
        run_id: str | None = None,
        task_id: str | None = None,
        further: Iterable[Check] = (),
    ) -> tuple[Receipt, Mapping[str, Any]]:
        """Answer a handoff, and return the answer once it is on record."""
        judge = functools.partial(self.judge, raw, receiver, task_id=task_id, further=further)
        on_loop = self.detector is detect and len(raw) <= LARGEST_ON_LOOP  # another detector may ask a service
        judged = judge() if on_loop else await asyncio.to_thread(judge)
        message = judged.message
        at, digest = self.clock(), format_digest(sha256(raw))
        shown = message or _unread(raw)
        attempt = _attempt(shown)
        verdict, released = after_release(judged.verdict, message)
        chain = task_id or usable_name(shown.get("taskId")) or "unknown"
        begins = verdict and message.get("initial") is True and reply_to_of(message) is None
        entry = handoff_entry(
            self._recorded(shown),
            task_id=chain,
            kind=START if begins else Kind.HANDOFF,
            status=verdict.answer,
            timestamp=at,
            attempt=attempt,
            reason=None if verdict.reason is None else verdict.reason.value,
            details=verdict.details,
            actor=released,
            run_id=run_id,
        )
        if not message:  # anyone who wrote it chose its id: what really has it is not to be taken for a second one
            entry = entry.model_copy(update={"event_id": _second_id(entry.event_id, digest)})
        try:
            head, again = await self._answer(entry, shown)
        except LedgerConflictError:
            verdict = rejected(
                Code.SIGNATURE_INVALID,
                "another message with this handoff id was answered before; a handoff is sent again as it was",
                "/handoffId",
            )
            second: dict[str, Any] = {"event_id": _second_id(entry.event_id, digest)}
            second |= {"status": HandoffStatus.REJECTED, "reason": Code.SIGNATURE_INVALID, "details": verdict.details}
            head, again = await self.ledger.append_once(entry.model_copy(update=second))
        receipt = Receipt(
            handoff_id=usable_name(shown.get("handoffId")) or "",
            task_id=chain,
            digest=digest,
            attempt=attempt,
            verdict=verdict,
            flags=[*judged.flags] if verdict.valid else [],
            anchor=head.anchor,
            at=at,
            again=again,
        )
        return receipt, message

    def judge(
        self,
        raw: bytes,
        receiver: ReceiverRequirements,
        *,
        task_id: str | None = None,
        further: Iterable[Check] = (),
    ) -> Judged:
        """Return what a handoff is worth, without putting anything on record: nothing may follow from it yet."""
        try:
            message = open_sealed(raw, self.keyring).message
        except SealError as error:
            return Judged(rejected(Code.SIGNATURE_INVALID, str(error)), {})
        checks: list[Check] = [self._freshness_check, _personal_check, *further]
        if task_id is not None:
            checks.append(_task_check(task_id))
        flags: list[str] = []
        verdict = validate_handoff(message, receiver, self._scan(flags), check_schema=handoff_gate(), further=checks)
        return Judged(verdict, message, flags)

    def unsafe(self, message: Any) -> list[str]:
        """Return what the safety scan rejects in a message that is not a handoff; none of it quotes the text."""
        return [f"{one.rule} at {one.at or '/'}" for one in scan(message, self.detector, self.policy).violations]

    async def returned(
        self, message: Mapping[str, Any], answer: Mapping[str, Any], spend: Spend, *, run_id: str | None = None
    ) -> ChainHead:
        """Put on record what a receiver made of a handoff, with its own cost in it."""
        entry = AuditEntry(
            kind="completion",
            task_id=message["taskId"],
            event_id=message["handoffId"],
            attempt=_attempt(message),
            status="RETURNED",
            timestamp=self.clock(),
            from_agent=message["toAgent"]["agentType"],
            run_id=run_id,
            cost=cost_after(message, spend),
            message=self._redacted(dict(answer), message["handoffId"]),
        )
        # A run before this one may be on record, and have answered otherwise.
        return await self._append(entry)

    async def failed(
        self,
        message: Mapping[str, Any],
        error: str,
        attempt: int,
        *,
        spend: Spend | None = None,
        run_id: str | None = None,
        activity_id: str | None = None,
    ) -> None:
        """Put on record that a receiver failed after it had accepted, and what it had spent."""
        # Sent again as it was, past a worker that lacked something, it may fail in a run with the same number.
        await self._append(
            AuditEntry(
                kind="completion",
                task_id=message["taskId"],
                event_id=message["handoffId"],
                attempt=attempt,
                status=f"{FAILED}_{_attempt(message)}",
                timestamp=self.clock(),
                from_agent=message["toAgent"]["agentType"],
                details=error[:LONGEST_ERROR],
                run_id=run_id,
                cost=cost_after(message, spend) if spend else None,
                message={"activity": activity_id} if activity_id else {},
            )
        )

    async def record(self, entry: AuditEntry) -> str:
        """Put anything else on record, and return the head of its chain as a text."""
        if self.redact is not None and isinstance(entry.message, dict):
            entry = entry.model_copy(update={"message": self._redacted(entry.message, entry.event_id)})
        return (await self._append(entry)).anchor

    async def _append(self, entry: AuditEntry) -> ChainHead:
        """Put an entry on record: beside the one that is there if that has its id and another message."""
        try:
            return await self.ledger.append(entry)
        except LedgerConflictError:
            second = _second_id(entry.event_id, format_digest(sha256(entry.message_bytes())))
            return await self.ledger.append(entry.model_copy(update={"event_id": second}))

    async def _answer(self, entry: AuditEntry, shown: Mapping[str, Any]) -> Appended:
        """Put an answer on record, unless it is: also with the commitments of an INDEX key that is retired by now."""
        try:
            return await self.ledger.append_once(entry)
        except LedgerConflictError:
            for key in self.keyring.all_keys(Purpose.INDEX)[1:]:
                earlier = self._recorded(shown, key)
                if earlier != entry.message:
                    with contextlib.suppress(LedgerConflictError):
                        return await self.ledger.append_once(entry.model_copy(update={"message": earlier}))
            raise

    def _recorded(self, shown: Mapping[str, Any], key: Key | None = None) -> dict[str, Any]:
        """Return a handoff as it may be recorded, with commitments under an INDEX key, the current one by default."""
        event = shown.get("handoffId")
        return self._redacted(recordable(shown, lambda: self._salt(event, key)), event, key)

    def _redacted(self, message: dict[str, Any], event: object, key: Key | None = None) -> dict[str, Any]:
        """Return a message as the data policy lets it be recorded."""
        policy = self.redact
        if policy is None:
            return message
        salt = self._salt(event, key)
        return redact(message, policy, lambda at: hmac.digest(salt, at.encode("utf-8", "replace"), "sha256"))

    def _salt(self, event: object, key: Key | None = None) -> bytes:
        """Return the salt of an event's commitments: it cannot be guessed, and a repeated answer has the same."""
        named = f"commitment {event}".encode("utf-8", "replace")
        return hmac.digest((key or self.keyring.current(Purpose.INDEX)).secret, named, "sha256")

    def _scan(self, flags: list[str]) -> Scan:
        """Return the safety scan of one message, which leaves in ``flags`` what it notices and lets pass."""

        def look(message: Any) -> list[Unsafe]:
            report = scan(message, self.detector, self.policy)
            flags.extend(report.labels)
            return report.violations

        return look

    def _freshness_check(self, message: Mapping[str, Any]) -> list[Finding]:
        """Return a finding if a message is stale, or from the future."""
        reason = stale(message, self.clock(), self.freshness.max_age, self.freshness.tolerance)
        return [Finding(code=Code.SIGNATURE_INVALID, text=reason, at="/timestamp")] if reason else []


def _task_check(task_id: str) -> Check:
    """Return the check that a message belongs to the receiver's task: one from another task is a replay."""

    def check(message: Mapping[str, Any]) -> list[Finding]:
        if message["taskId"] == task_id:
            return []
        return [Finding(code=Code.SIGNATURE_INVALID, text="the message is of another task", at="/taskId")]

    return check


def _second_id(event_id: str, digest: str) -> str:
    """Return the id under which something else of an event that is on record already is recorded as well."""
    return f"{event_id[: LONGEST_NAME - 17]}{AGAIN}{digest[7:23]}"


def _unread(raw: bytes) -> dict[str, Any]:
    """Return a message whose seal does not hold, for the record only: read if it can be, else as a text."""
    try:
        message = loads_strict(raw)
    except HandoffError:
        message = None
    if isinstance(message, dict):
        return message
    return {"raw": raw[:LONGEST_RAW].decode("utf-8", "backslashreplace")}


def _personal_check(message: Mapping[str, Any]) -> list[Finding]:
    """Return a finding if personal data is in clear: it is never in a message, and so never on record."""
    if is_payload(message.get("personalDataPayload", {})):
        return []
    text = "personalDataPayload holds what no vault sealed; seal it with the vault before it is handed on"
    return [Finding(code=Code.SCHEMA_INVALID, text=text, at="/personalDataPayload")]


def _attempt(message: Mapping[str, Any]) -> int:
    step = message.get("step")
    attempt = step.get("attempt", 1) if isinstance(step, Mapping) else 1
    return attempt if isinstance(attempt, int) and 0 < attempt < 1_000_000 else 1
