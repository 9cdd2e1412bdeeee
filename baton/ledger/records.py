"""The entries and records of the audit ledger, and its errors.

An `AuditRecord` is one link of a task's hash chain. Its bytes are made once and never serialized again.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

from baton.core.costs import CostTracking
from baton.core.history import Spend
from baton.errors import BatonError
from baton.wire.json_values import canonical_json, format_digest, loads_strict, pae, parse_digest, sha256
from baton.wire.records import CamelRecord, Count, Digest, Instant, Record


class LedgerError(BatonError):
    """An operation of the ledger failed; a handoff whose record is refused must not be executed.

    See the more specific errors.
    """


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be reached, read or written now; retrying an append is safe. See its disk or database."""


class LedgerConflictError(LedgerError):
    """The same event is already on record with another message; do not retry.

    Verify the ledger; after a restore, roll the run back.
    """


class LedgerSchemaError(LedgerError):
    """The ledger's tables do not fit this version of Baton. Run `baton audit migrate`, or upgrade Baton."""


class LedgerKeysError(LedgerError):
    """This process has none of the keys that signed the newest records of the ledger.

    Use the key file that wrote it.
    """


class LedgerContinuityError(LedgerError):
    """The ledger does not continue a checkpoint: it was deleted, restored from a backup, cut or rewritten.

    Find out which, before any worker starts; then move the witness away.
    """


class EvidenceError(LedgerError):
    """A bundle or a cold segment cannot be read: it is truncated, of an unknown format, or of another ledger.

    Get a whole copy, or export it again.
    """


FORMAT = "baton.audit/2"
"""The member `format` of every header; a new layout gets a new number."""

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name: 1 to 255 characters without control characters."""
Word = Annotated[str, StringConstraints(max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$")]
"""A code such as `"handoff"` or `"ACCEPTED"`."""

_RECORD, _GENESIS = "baton/audit-record/v1", "baton/audit-genesis/v1"


class Kind(StrEnum):
    """The kinds of records with a meaning for the ledger; it accepts others too."""

    HANDOFF = "handoff"
    """A receiver's answer to a handoff: status ACCEPTED or REJECTED. Its event id is the handoffId."""
    STREAM = "stream"
    """A receiver's answer to all chunks of a handoff, with their digest. Its event id is the stream's."""
    ROLLBACK = "rollback"
    """A task went back to the state before a handoff."""
    DECISION = "decision"
    """A person's decision about a handoff, with the person as actor and their reason."""
    COMPLETION = "completion"
    """The end of a task: its final output, and the cost including the last stage."""
    SUMMARY = "summary"
    """The cost of a model's summary of the conversation that the next handoff carries."""
    RELAY = "relay"
    """A handoff left for another company (EXPORTED), or one of another company started a run here (STARTED)."""
    ERASURE = "erasure"
    """A data subject's key was destroyed, which makes their data in the chain unreadable."""


FAILED = "FAILED"
"""The status of a completion if the agent failed."""


class AuditCost(CamelRecord):
    """The money and tokens of a task at a record; money in whole millionths of a US dollar.

    Attributes:
        spent_micro_usd: Spent by the task so far (`costSpentSoFarUSD`); the last record has the largest amount.
        remaining_micro_usd: The rest of the budget (`costBudgetRemainingUSD`); None without a budget.
        own_micro_usd: Spent by the record's agent alone in all executions of this attempt so far; None in a record
            that only passes the task's cost on.
        own_prompt_tokens: Prompt tokens of these.
        own_completion_tokens: Completion tokens of these.
        prompt_tokens: Tokens sent to models by the task so far.
        completion_tokens: Tokens in the models' answers so far.
    """

    spent_micro_usd: Count
    remaining_micro_usd: Annotated[int, Field(ge=-(2**53 - 1), le=2**53 - 1)] | None = None
    own_micro_usd: Count | None = None
    own_prompt_tokens: Count | None = None
    own_completion_tokens: Count | None = None
    prompt_tokens: Count = 0
    completion_tokens: Count = 0

    @classmethod
    def of(cls, tracking: CostTracking) -> Self:
        """Return the cost that a handoff states."""
        return cls(
            spent_micro_usd=tracking.spent_micro_usd,
            remaining_micro_usd=tracking.remaining_micro_usd if tracking.has_limit else None,
            prompt_tokens=tracking.token_spent.prompt,
            completion_tokens=tracking.token_spent.completion,
        )

    @property
    def spent(self) -> Spend:
        """What the task has cost so far."""
        return Spend(
            micro_usd=self.spent_micro_usd,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
        )

    @property
    def own(self) -> Spend | None:
        """What the record's agent alone has cost, if known."""
        if self.own_micro_usd is None:
            return None
        return Spend(
            micro_usd=self.own_micro_usd,
            prompt_tokens=self.own_prompt_tokens or 0,
            completion_tokens=self.own_completion_tokens or 0,
        )

    def after(self, spend: Spend) -> "AuditCost":
        """Return a task's cost plus one agent's own."""
        spent, remaining = self.spent + spend, self.remaining_micro_usd
        return self.model_copy(
            update={
                "spent_micro_usd": spent.micro_usd,
                "remaining_micro_usd": None if remaining is None else remaining - spend.micro_usd,
                "own_micro_usd": spend.micro_usd,
                "own_prompt_tokens": spend.prompt_tokens,
                "own_completion_tokens": spend.completion_tokens,
                "prompt_tokens": spent.prompt_tokens,
                "completion_tokens": spent.completion_tokens,
            }
        )


class _Event(CamelRecord):
    """The members that an entry and the header of its record share."""

    kind: Word
    task_id: Identifier
    event_id: Identifier
    attempt: Annotated[Count, Field(ge=1)] = 1
    execution: Annotated[Count, Field(ge=1)] = 1
    conflict: Digest | None = None
    status: Word
    timestamp: Instant
    from_agent: Identifier | None = None
    to_agent: Identifier | None = None
    reason: Identifier | None = None
    details: Annotated[str, StringConstraints(max_length=16_000)] | None = None
    actor: Identifier | None = None
    run_id: Identifier | None = None
    run_chain: Identifier | None = None
    cost: AuditCost | None = None

    @property
    def event_key(self) -> str:
        """The key that is unique in a task: kind, status, attempt, execution, conflict and event id."""
        members = {
            "kind": self.kind,
            "status": self.status,
            "attempt": self.attempt,
            "execution": self.execution,
            "eventId": self.event_id,
        }
        return event_key(members if self.conflict is None else members | {"conflict": self.conflict})


class AuditEntry(_Event):
    """An event of a task to put on record.

    Attributes:
        kind: The kind of event, usually one of `Kind`.
        task_id: The task, which has one chain.
        event_id: The id of the event, for a handoff and all that becomes of it the `handoffId`. An event is recorded
            once for each kind, status, attempt and execution, however often it is appended.
        attempt: The number of the attempt to hand over, from 1.
        execution: Which execution of the attempt it was, from 1: a stage runs again after a failure, and a person may
            be asked again.
        conflict: The digest of the message, of another message for an event that is already on record.
        status: The result, such as `"ACCEPTED"`.
        timestamp: When it happened, by the clock of its source; the order of the chain does not depend on it.
        from_agent: The sender's agent id.
        to_agent: The receiver's agent type.
        reason: The reason as a code, such as the code of a rejection.
        details: The reason in words: the findings. Never text from the message.
        actor: The person who decided, if any.
        run_id: The workflow and run in which it happened.
        run_chain: The first run of the chain that this run continues: as new, retried or reset.
        cost: Money and tokens so far; None if unknown.
        message: The whole message with its personal data redacted (`baton.ledger.entries`), as JSON or
            as canonical bytes.
    """

    message: dict[str, Any] | bytes = Field(default_factory=dict)

    def message_bytes(self) -> bytes:
        """Return the message in canonical form (RFC 8785); bytes are not checked beyond line breaks."""
        if not isinstance(self.message, bytes):
            return canonical_json(self.message)
        if b"\n" in self.message:
            raise ValueError("the message has line breaks, so it is not in canonical form: pass it as an object")
        return self.message


class AuditHeader(_Event):
    """A record's header, parsed from bytes that were verified.

    Attributes:
        format: `"baton.audit/2"`.
        ledger: The name of the ledger the record was written to.
        sequence: The record's place in its chain, from 1.
        previous_record_hash: The hash of the record before it, or of the chain's genesis.
        recorded_at: When the ledger wrote it; never earlier than the previous record.
        message_hash: The digest of the message's bytes.
        key_id: The key that signed the chain's head at this record; None if unsigned.
    """

    format: str
    ledger: Identifier
    sequence: Annotated[Count, Field(ge=1)]
    previous_record_hash: Digest
    recorded_at: Instant
    message_hash: Digest
    key_id: Identifier | None = None


@dataclass(frozen=True)
class ChainLink:
    """The end of a chain, which the next record continues."""

    ledger: str
    task_id: str
    sequence: int
    record_hash: bytes
    recorded_at: str = ""

    @classmethod
    def genesis(cls, ledger: str, task_id: str) -> "ChainLink":
        """Return the start of a task's chain; no record of another task or ledger continues it."""
        identity = to_json({"ledger": ledger, "taskId": task_id})  # for strings alone this is RFC 8785
        return cls(ledger, task_id, 0, hashlib.sha256(pae(_GENESIS, identity)).digest())


class Claims(NamedTuple):
    """The values of a record's header that its index row repeats; both must agree."""

    task_id: str
    sequence: int
    previous_hash: bytes
    event_key: str
    message_hash: bytes
    recorded_at: str
    key_id: str | None

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> "Claims":
        """Return the index values for a header with these members."""
        return cls(
            members["taskId"],
            members["sequence"],
            parse_digest(members["previousRecordHash"]),
            event_key(members),
            parse_digest(members["messageHash"]),
            members["recordedAt"],
            members.get("keyId"),
        )


@dataclass
class AuditRecord:
    """A record as it is stored: bytes, parsed on first use.

    Attributes:
        header: The header, canonical JSON.
        message: The message, canonical JSON.
        signature: The signature over the chain's head at this record; None for an unsigned one.
        position: Its number among all records of the ledger; 0 outside a ledger.
        claimed_hash: The hash according to the record's source, or None.
        claims: The values of the ledger's index row, or None without an index.
        absence: Why header and message are missing (both are empty then), or None.
        lost: Whether they are gone for good, and not only out of reach.
        parsed: The header's members, if already parsed.
        is_checked: Whether it was found flawless on its own, and its bytes left out (`baton.ledger.chain.condense`).
        hash: The record's hash: 32 bytes over the whole header. The claimed hash if the record is absent.
    """

    header: bytes
    message: bytes
    signature: bytes | None = None
    position: int = 0
    claimed_hash: bytes | None = None
    claims: Claims | None = None
    absence: str | None = None
    lost: bool = False
    parsed: dict[str, Any] | None = field(default=None, init=False, repr=False, compare=False)
    is_checked: bool = field(default=False, init=False, repr=False, compare=False)
    hash: bytes = field(init=False)

    def __post_init__(self) -> None:
        absent = self.absence is not None and self.claimed_hash is not None
        self.hash = self.claimed_hash if absent and self.claimed_hash else record_hash(self.header)

    @property
    def members(self) -> dict[str, Any]:
        """The members of the header, which must be in canonical form (`header_members`)."""
        if self.parsed is None:
            self.parsed = header_members(self.header)
        return self.parsed

    @property
    def leaf(self) -> bytes:
        """What checkpoints hash of the record: its hash and signature."""
        return self.hash if self.signature is None else self.hash + self.signature

    @cached_property
    def fields(self) -> AuditHeader:
        """The parsed header."""
        return AuditHeader.model_validate_json(self.header)

    @cached_property
    def body(self) -> Any:
        """The message, parsed strictly."""
        return loads_strict(self.message)

    def to_json_object(self) -> dict[str, Any]:
        """Return the header's members and, as `message`, the message."""
        return self.members | {"message": self.body}

    def signed(self, signature: bytes) -> "AuditRecord":
        """Return the record with a signature over the chain's head at this record."""
        record = replace(self, signature=signature)
        record.parsed = self.parsed
        return record

    @property
    def link(self) -> ChainLink:
        """The end of a chain with this as its last record."""
        members = self.members
        return ChainLink(members["ledger"], members["taskId"], members["sequence"], self.hash, members["recordedAt"])


def next_record(
    entry: AuditEntry,
    link: ChainLink,
    *,
    recorded_at: datetime,
    key_id: str | None,
    message: tuple[bytes, bytes] | None = None,
) -> AuditRecord:
    """Return the unsigned record of an event that continues its task's chain."""
    if entry.task_id != link.task_id:
        raise ValueError(f"an entry of task {entry.task_id!r} does not belong to the chain of {link.task_id!r}")
    if message is None:
        canonical = entry.message_bytes()
        message = canonical, sha256(canonical)
    header = entry.model_dump(mode="json", exclude_none=True, exclude={"message"})
    header |= {
        "format": FORMAT,
        "ledger": link.ledger,
        "sequence": link.sequence + 1,
        "previousRecordHash": format_digest(link.record_hash),
        "recordedAt": max(stamp(recorded_at), link.recorded_at),
        "messageHash": format_digest(message[1]),
    }
    if key_id is not None:
        header["keyId"] = key_id
    members = _sort_members(header)
    record = AuditRecord(to_json(members), message[0])
    record.parsed = members
    return record


def event_key(members: Mapping[str, Any]) -> str:
    """Return `AuditEntry.event_key` for the members of a header."""
    conflict = f".{members['conflict']}" if "conflict" in members else ""
    attempt = f"{members['attempt']}.{members['execution']}{conflict}"
    return f"{members['kind']}/{members['status']}/{attempt}/{members['eventId']}"  # last, as a sender chooses it


def record_hash(header: bytes) -> bytes:
    """Return the hash of the record with this header."""
    return hashlib.sha256(b"%s%d %s" % (_RECORD_PREFIX, len(header), header)).digest()


def header_members(header: bytes) -> dict[str, Any]:
    """Return the members of a header in canonical form, which every parser reads alike."""
    members = from_json(header, cache_strings="keys")
    # Types too: verification compares members and must not fail on a number in place of a string.
    if type(members) is not dict or _member_types(tuple(members)) != tuple(map(type, members.values())):
        raise ValueError("it is not the header of an audit record")
    cost = members.get("cost")
    if cost is not None and (not _is_cost_object(tuple(cost)) or {*map(type, cost.values())} != {int}):
        raise ValueError("its cost does not have the members of an audit record's cost")
    if to_json(members) != header:
        raise ValueError("it is not in canonical form (RFC 8785)")
    if members["format"] != FORMAT:
        raise ValueError(f"its format is {members['format']!r}; this version reads {FORMAT!r}")
    if not _STAMP.fullmatch(members["recordedAt"]):
        raise ValueError("its time of recording is not in UTC with microseconds")
    datetime.fromisoformat(members["recordedAt"])
    return members


def stamp(moment: datetime) -> str:
    """Return a time in UTC with microseconds: strings of one length that sort by time."""
    if moment.tzinfo is None:
        raise ValueError("the time has no UTC offset: use datetime.now(UTC)")
    return f"{moment.astimezone(UTC).isoformat(timespec='microseconds')[:26]}Z"  # without +00:00


def _sort_members(members: dict[str, Any]) -> dict[str, Any]:
    """Return a header's members in canonical order; with ASCII names and no fractions that suffices for RFC 8785."""
    ordered = {name: members[name] for name in sorted(members)}
    if (cost := ordered.get("cost")) is not None:
        ordered["cost"] = {name: cost[name] for name in sorted(cost)}
    return ordered


def _member_names(model: type[Record], *, required: bool = False) -> frozenset[str]:
    fields = model.model_fields.items()
    return frozenset(to_camel(name) for name, field in fields if field.is_required() or not required)


_HEADER, _HEADER_REQUIRED = (
    _member_names(AuditHeader),
    _member_names(AuditHeader, required=True) | {"attempt", "execution"},
)
_COST, _COST_REQUIRED = _member_names(AuditCost), frozenset({"spentMicroUsd", "promptTokens", "completionTokens"})
_TYPES: dict[str, type] = {"attempt": int, "execution": int, "sequence": int, "cost": dict}
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_RECORD_PREFIX = b"DSSEv1 %d %s " % (len(_RECORD), _RECORD.encode())


@lru_cache(maxsize=256)
def _member_types(names: tuple[str, ...]) -> tuple[type, ...] | None:
    """Return the types of these header members, or None if no header has these members in this order."""
    if list(names) != sorted(names) or not _HEADER_REQUIRED <= set(names) <= _HEADER:
        return None
    return tuple(_TYPES.get(name, str) for name in names)


@lru_cache(maxsize=64)
def _is_cost_object(names: tuple[str, ...]) -> bool:
    return list(names) == sorted(names) and _COST_REQUIRED <= set(names) <= _COST


RECORD = "baton.record"
"""The activity that writes an `AuditEntry` of a pipeline to the ledger."""
