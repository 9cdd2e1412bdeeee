"""The ledger's records, what a pipeline has put on record, and the errors of the ledger.

An `AuditRecord` is one link of a task's hash chain, as bytes that are made once and never made again.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

from baton.errors import BatonError
from baton.wire.json_values import canonical_json, format_digest, loads_strict, pae, parse_digest, sha256
from baton.wire.records import CamelRecord, Count, Digest, Instant, Record


class LedgerError(BatonError):
    """The ledger did not do what was asked; a handoff whose record is refused must not be executed."""


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be reached, read or written right now; appending again later is safe."""


class LedgerConflictError(LedgerError):
    """The same event is already on record with another message; appending again will not help."""


class LedgerSchemaError(LedgerError):
    """The tables of a ledger are not those that this version of Baton works with."""


class LedgerKeysError(LedgerError):
    """The keyring of this process knows none of the keys that signed the newest records of the ledger."""


class EvidenceError(LedgerError):
    """A bundle or a cold segment cannot be read: torn, of an unknown format, or of another ledger."""


FORMAT = "baton.audit/1"
"""The member `format` of every header; another layout would be another number."""

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name of something: 1 to 255 characters, none of them a control character."""
Word = Annotated[str, StringConstraints(max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$")]
"""A code such as `"handoff"` or `"ACCEPTED"`."""

_RECORD, _GENESIS = "baton/audit-record/v1", "baton/audit-genesis/v1"


class Kind(StrEnum):
    """What a record is about; the ledger takes other words too, and gives a meaning to these."""

    HANDOFF = "handoff"
    """A receiver's answer to a handoff: status ACCEPTED or REJECTED. Its event id is the handoffId."""
    ROLLBACK = "rollback"
    """A task went back to the state before a handoff."""
    DECISION = "decision"
    """What a person decided about a handoff; the actor is the person, the reason is theirs."""
    COMPLETION = "completion"
    """The end of a task: its final output, and the cost with the last stage in it."""
    SUMMARY = "summary"
    """A model was paid for a summary of the conversation that the next handoff carries."""
    ERASURE = "erasure"
    """The key of a data subject was destroyed, so some of the chain's texts can't be read any more."""


FAILED = "FAILED"
"""How the status of a completion begins whose agent failed; `_` and the number of the attempt follow."""


class AuditCost(CamelRecord):
    """The money and tokens of a task as a record saw them, in whole millionths of a US dollar.

    Attributes:
        spent_micro_usd: Spent by the task so far (`costSpentSoFarUSD`), so the last record's is the largest.
        remaining_micro_usd: What the budget still held (`costBudgetRemainingUSD`); None without a budget.
        own_micro_usd: What the agent of the record alone spent, if that is known.
        own_prompt_tokens: Of the tokens sent to models, its own.
        own_completion_tokens: Of the tokens that models answered with, its own.
        prompt_tokens: Tokens sent to models by the task so far.
        completion_tokens: Tokens that models answered with so far.
    """

    spent_micro_usd: Count
    remaining_micro_usd: Annotated[int, Field(ge=-(2**53 - 1), le=2**53 - 1)] | None = None
    own_micro_usd: Count | None = None
    own_prompt_tokens: Count | None = None
    own_completion_tokens: Count | None = None
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class _Event(CamelRecord):
    """What an entry and the header of its record have in common."""

    kind: Word
    task_id: Identifier
    event_id: Identifier
    attempt: Annotated[Count, Field(ge=1)] = 1
    status: Word
    timestamp: Instant
    from_agent: Identifier | None = None
    to_agent: Identifier | None = None
    reason: Identifier | None = None
    details: Annotated[str, StringConstraints(max_length=16_000)] | None = None
    actor: Identifier | None = None
    run_id: Identifier | None = None
    cost: AuditCost | None = None

    @property
    def event_key(self) -> str:
        """What happens once in a task: the event id, its attempt, its status and its kind."""
        return f"{self.kind}/{self.status}/{self.attempt}/{self.event_id}"


class AuditEntry(_Event):
    """What somebody wants on record: an event of a task, before it has a place in the chain.

    Attributes:
        kind: What it is about, mostly one of `Kind`.
        task_id: The task, which has one chain.
        event_id: The id of the event: of a handoff its `handoffId`. An event is recorded once for each
            attempt, status and kind, however often it is appended.
        attempt: The number of the attempt, from 1.
        status: What became of it, such as `"ACCEPTED"`.
        timestamp: When it happened, by the clock of its source; the chain's order does not rest on it.
        from_agent: The sender's agent id.
        to_agent: The receiver's agent type.
        reason: Why, as a code: of a rejection its code.
        details: Why, in words: the findings. Never a text from the message.
        actor: The person who decided, if one did.
        run_id: The workflow and run in which it happened.
        cost: Money and tokens so far; None where none are known.
        message: The whole message, its personal data redacted (`baton.ledger.entries`), as JSON or
            as the canonical bytes of it.
    """

    message: dict[str, Any] | bytes = Field(default_factory=dict)

    def message_bytes(self) -> bytes:
        """Return the message in canonical form (RFC 8785); bytes are taken for that as they are."""
        if not isinstance(self.message, bytes):
            return canonical_json(self.message)
        if b"\n" in self.message:
            raise ValueError("the message has line breaks, so it is not in canonical form: give it as an object")
        return self.message


class AuditHeader(_Event):
    """A record's header, parsed from bytes that were verified.

    Attributes:
        format: `"baton.audit/1"`.
        ledger: The name of the ledger the record was written to.
        sequence: The record's place in its chain, from 1.
        previous_record_hash: The hash of the record before it, or of the chain's genesis.
        recorded_at: When the ledger wrote it; never before the record before it.
        message_hash: The digest of the message's bytes.
        key_id: The key that signed the chain's head at this record; None for an unsigned one.
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
    """The end of a chain: what the next record joins to."""

    ledger: str
    task_id: str
    sequence: int
    record_hash: bytes
    recorded_at: str = ""

    @classmethod
    def genesis(cls, ledger: str, task_id: str) -> "ChainLink":
        """Return the beginning of a task's chain: no record of another task or ledger joins to it."""
        names = to_json({"ledger": ledger, "taskId": task_id})  # of texts alone, this is RFC 8785
        return cls(ledger, task_id, 0, hashlib.sha256(pae(_GENESIS, names)).digest())


class Claims(NamedTuple):
    """What the index beside a stored record says of it; each of it must be what the header says."""

    task_id: str
    sequence: int
    previous_hash: bytes
    event_key: str
    message_hash: bytes
    recorded_at: str
    key_id: str | None

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> "Claims":
        """Return what the index has to say of a record whose header has these members."""
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
        position: Its number in the order in which the ledger took all records; 0 outside a ledger.
        claimed_hash: The hash that the source of the record says it has, or None.
        claims: What the ledger's index says of it, or None without an index.
        absence: Why header and message are not at hand, both empty then; None if they are.
        lost: Whether they are gone, and not only out of reach.
        parsed: The header's members, where they are known already.
        hash: The record's hash: 32 bytes over the whole header; of an absent record what is claimed.
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
    hash: bytes = field(init=False)

    def __post_init__(self) -> None:
        absent = self.absence is not None and self.claimed_hash is not None
        self.hash = self.claimed_hash if absent and self.claimed_hash else record_hash(self.header)

    @property
    def members(self) -> dict[str, Any]:
        """The header's members, of a header in canonical form (`header_members`)."""
        if self.parsed is None:
            self.parsed = header_members(self.header)
        return self.parsed

    @property
    def leaf(self) -> bytes:
        """What a checkpoint's tree holds of the record: its hash and its signature, so that neither can change."""
        return self.hash if self.signature is None else self.hash + self.signature

    @cached_property
    def fields(self) -> AuditHeader:
        """What the header says."""
        return AuditHeader.model_validate_json(self.header)

    @cached_property
    def body(self) -> Any:
        """The message, read strictly: no two readers can disagree about it."""
        return loads_strict(self.message)

    def signed(self, signature: bytes) -> "AuditRecord":
        """Return the record with a signature over the chain's head at it."""
        record = replace(self, signature=signature)
        record.parsed = self.parsed
        return record

    @property
    def link(self) -> ChainLink:
        """The end of the chain once this is its last record."""
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
    """Return the record of an event, joined to the end of its task's chain; not yet signed."""
    if entry.task_id != link.task_id:
        raise ValueError(f"an entry of task {entry.task_id!r} does not belong into the chain of {link.task_id!r}")
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
    members = _in_order(header)
    record = AuditRecord(to_json(members), message[0])
    record.parsed = members
    return record


def event_key(members: Mapping[str, Any]) -> str:
    """Return what happens once in a task, of a header's members (as `AuditEntry.event_key` does of an entry)."""
    return f"{members['kind']}/{members['status']}/{members['attempt']}/{members['eventId']}"


def record_hash(header: bytes) -> bytes:
    """Return the hash of the record with this header."""
    return hashlib.sha256(b"%s%d %s" % (_RECORD_PREFIX, len(header), header)).digest()


def header_members(header: bytes) -> dict[str, Any]:
    """Return the members of a header that is in canonical form, so that no other reader reads another one."""
    members = from_json(header, cache_strings="keys")
    # Types too: verification compares members, and must not stumble over a number where a text should be.
    if type(members) is not dict or _types(tuple(members)) != tuple(map(type, members.values())):
        raise ValueError("it is not the header of an audit record")
    cost = members.get("cost")
    if cost is not None and (not _is_cost(tuple(cost)) or {*map(type, cost.values())} != {int}):
        raise ValueError("its cost has other members than an audit record's")
    if to_json(members) != header:
        raise ValueError("it is not in canonical form (RFC 8785)")
    if members["format"] != FORMAT:
        raise ValueError(f"its format is {members['format']!r}; this version reads {FORMAT!r}")
    if not _STAMP.fullmatch(members["recordedAt"]):
        raise ValueError("its time of recording is not in UTC with microseconds")
    datetime.fromisoformat(members["recordedAt"])
    return members


def stamp(moment: datetime) -> str:
    """Return a time in UTC with microseconds: texts of one length, whose order is the order of times."""
    if moment.tzinfo is None:
        raise ValueError("a time on record needs its offset from UTC: use datetime.now(UTC)")
    return f"{moment.astimezone(UTC).isoformat(timespec='microseconds')[:26]}Z"  # without +00:00


def _in_order(members: dict[str, Any]) -> dict[str, Any]:
    """Return a header's members in canonical order: it has no fractions, and only names in ASCII, so that is enough."""
    ordered = {name: members[name] for name in sorted(members)}
    if (cost := ordered.get("cost")) is not None:
        ordered["cost"] = {name: cost[name] for name in sorted(cost)}
    return ordered


def _aliases(model: type[Record], *, required: bool = False) -> frozenset[str]:
    fields = model.model_fields.items()
    return frozenset(to_camel(name) for name, field in fields if field.is_required() or not required)


_HEADER, _HEADER_REQUIRED = _aliases(AuditHeader), _aliases(AuditHeader, required=True) | {"attempt"}
_COST, _COST_REQUIRED = _aliases(AuditCost), frozenset({"spentMicroUsd", "promptTokens", "completionTokens"})
_TYPES: dict[str, type] = {"attempt": int, "sequence": int, "cost": dict}
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_RECORD_PREFIX = b"DSSEv1 %d %s " % (len(_RECORD), _RECORD.encode())


@lru_cache(maxsize=256)
def _types(names: tuple[str, ...]) -> tuple[type, ...] | None:
    """Return the types that a header with these members has, or None if no header has them, in this order."""
    if list(names) != sorted(names) or not _HEADER_REQUIRED <= set(names) <= _HEADER:
        return None
    return tuple(_TYPES.get(name, str) for name in names)


@lru_cache(maxsize=64)
def _is_cost(names: tuple[str, ...]) -> bool:
    return list(names) == sorted(names) and _COST_REQUIRED <= set(names) <= _COST


RECORD = "baton.record"
"""The activity that writes an `AuditEntry` of a pipeline to the ledger."""
