"""Hash chains, their heads and anchors, and the verification of one chain.

A hash chain alone shows neither that its end was cut off nor that all of it was rewritten. So each append returns a
**head**, which the ledger signs. The caller stores it elsewhere (in the run's history) as an **anchor**. Records that
were neither anchored nor signed are reported as unverified, not as valid.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic_core import to_json

from baton.keys.claims import Claim, HeadVerifier, SignatureCheck
from baton.ledger.records import AuditRecord, ChainLink, Claims, event_key
from baton.wire.base64url import to_base64url
from baton.wire.json_values import format_digest, pae, parse_digest
from baton.wire.records import CamelRecord, Count, Digest, Instant

CANCELED = "CANCELED"
"""The status of a roll-back with the cost of a canceled stage."""
STAGE_FAILED = "STAGE_FAILED"
"""The status of a roll-back after which the pipeline's code goes on, or ends with the failure."""
_HEAD = "baton/audit-head/v1"
_EVENT_BYTES = 16  # of the digests that tell events apart, one for each record


class ChainHead(CamelRecord):
    """The end of a task's chain after an append; it proves later whether the chain was cut or rewritten.

    Attributes:
        ledger: The ledger's name.
        task_id: The task.
        sequence: The number of records in the chain.
        record_hash: The hash of the last record.
        key_id: The key that signed, or None.
        signature: Base64url without padding, or None.
    """

    ledger: str
    task_id: str
    sequence: Count
    record_hash: Digest
    key_id: str | None = None
    signature: str | None = None

    @classmethod
    def of(cls, record: AuditRecord) -> "ChainHead":
        """Return the head of the chain whose last record is ``record``."""
        link = record.link
        return cls.at(
            link.ledger, link.task_id, link.sequence, record.hash, record.members.get("keyId"), record.signature
        )

    @classmethod
    def at(
        cls, ledger: str, task_id: str, sequence: int, record_hash: bytes, key_id: str | None, signature: bytes | None
    ) -> "ChainHead":
        """Return a head from raw bytes."""
        return cls(
            ledger=ledger,
            task_id=task_id,
            sequence=sequence,
            record_hash=format_digest(record_hash),
            key_id=key_id,
            signature=None if signature is None else to_base64url(signature),
        )

    @classmethod
    def from_anchor(cls, ledger: str, task_id: str, anchor: str) -> "ChainHead":
        """Parse an `anchor`; ``ledger`` is used if it names no ledger."""
        location, _, name = anchor.partition("@")
        sequence, _, digest = location.partition(":")
        return cls(ledger=name or ledger, task_id=task_id, sequence=int(sequence), record_hash=digest)

    @property
    def anchor(self) -> str:
        """The short form for a workflow's history: sequence, hash and ledger name."""
        return f"{self.sequence}:{self.record_hash}@{self.ledger}"

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        return head_statement(self.ledger, self.task_id, self.sequence, parse_digest(self.record_hash), self.key_id)


class Verdict(StrEnum):
    """The result of verifying a chain, a whole ledger or a bundle."""

    VALID = "valid"
    """A signature or an anchor proves every record, and each chain's end matches an anchor or checkpoint.

    A checkpoint shows nothing about what was added after it and cut off again: see `compared_at`.
    """
    UNANCHORED = "valid, completeness not checked"
    """Every record is proved, but no anchor or checkpoint shows whether later records were cut off."""
    UNVERIFIED = "unverified"
    """No contradiction and no proof: no key was given, or the end is unsigned."""
    INVALID = "invalid"
    """A record was changed, removed, added, moved or forged; the first bad record is named."""


class Flaw(StrEnum):
    """The flaw of a chain's first bad record."""

    HEADER = "header"
    MESSAGE = "message"
    PLACE = "place"
    SEQUENCE = "sequence"
    LINK = "link"
    TIME = "time"
    REPEATED = "repeated"
    INDEX = "index"
    SIGNATURE = "signature"
    KEY = "key"
    ANCHOR = "anchor"
    TRUNCATED = "truncated"
    EXTRA = "extra"
    GONE = "gone"
    MISSING = "missing"
    UNSIGNED = "unsigned"
    EMPTY = "empty"


_REASONS = {
    Flaw.MESSAGE: "its message is not the one that was recorded",
    Flaw.PLACE: "it was recorded for another task or in another ledger",
    Flaw.SEQUENCE: "it has another number than its place in the chain: a record was removed, added or moved",
    Flaw.LINK: "it does not continue the record before it: one of the two was changed",
    Flaw.TIME: "it claims to be older than the record before it",
    Flaw.INDEX: "the ledger's index contradicts the record",
    Flaw.ANCHOR: "an anchor has another record with this number",
    Flaw.REPEATED: "its event is already on record",
    Flaw.SIGNATURE: "its header names a key, but its signature was removed",
    Flaw.KEY: "it has a signature, but names no key",
}


@dataclass(frozen=True)
class Finding:
    """A flaw, the number of the bad record, and the reason in words."""

    flaw: Flaw
    sequence: int
    reason: str


class ChainReport(CamelRecord):
    """The result of verifying one chain; true only if it is valid.

    Attributes:
        verdict: The verdict.
        ledger: The ledger's name.
        task_id: The task.
        records: How many records, from the first, form an unbroken chain.
        sequence: The first bad or unproved record, or None.
        flaw: The flaw of that record.
        reason: The flaw in words.
        head: The head of the unbroken chain; None if it is empty.
        signed_through: The last record that a verified signature covers; 0 for none.
        anchored_through: The last record that matches an anchor or an external checkpoint; a cut after it
            goes unnoticed.
        compared_at: When the external checkpoint was made that covers the last of these; None if an anchor does.
            Records that were added since then and cut off again go unnoticed.
    """

    verdict: Verdict
    ledger: str
    task_id: str
    records: int
    sequence: int | None = None
    flaw: Flaw | None = None
    reason: str | None = None
    head: ChainHead | None = None
    signed_through: int = 0
    anchored_through: int = 0
    compared_at: Instant | None = None

    def __bool__(self) -> bool:
        return self.verdict is Verdict.VALID


@dataclass(slots=True, eq=False)  # a whole ledger is verified with one of these for each task
class ChainWalk:
    """One chain during verification, record by record; it keeps hashes, not records."""

    ledger: str
    task_id: str
    anchors: Mapping[int, bytes]
    sequence: int = 0
    hash: bytes = field(init=False)
    recorded_at: str = ""
    signature: bytes | None = None
    key_id: str | None = None
    events: set[bytes] = field(default_factory=set)
    anchored_through: int = 0  # the last record that matches an anchor or an external checkpoint
    compared_at: datetime | None = None  # when that checkpoint was made; None for an anchor
    checkpointed_through: int = 0  # the last record that a checkpoint proves
    signed_through: int = 0  # the last record whose signature was verified
    has_signatures: bool = False
    first_unsigned: int = 0  # the first record without a signature that nothing else proves

    def __post_init__(self) -> None:
        self.hash = ChainLink.genesis(self.ledger, self.task_id).record_hash

    def step(self, record: AuditRecord) -> Finding | None:
        """Advance to ``record``, or return its flaw and stay."""
        sequence = self.sequence + 1
        if record.absence is not None:
            return Finding(Flaw.GONE if record.lost else Flaw.MISSING, sequence, record.absence)
        try:
            members = record.members
        except ValueError as error:
            return Finding(Flaw.HEADER, sequence, f"its header cannot be read: {error}")
        event = hashlib.sha256(event_key(members).encode(errors="surrogatepass")).digest()[:_EVENT_BYTES]
        flaw = self._find_flaw(record, members, sequence) or (Flaw.REPEATED if event in self.events else None)
        if flaw is not None:
            return Finding(flaw, sequence, _REASONS[flaw])
        self.events.add(event)
        if sequence in self.anchors:
            self.anchored_through, self.compared_at = sequence, None
        elif record.signature is None and not self.first_unsigned:
            self.first_unsigned = sequence
        self.has_signatures = self.has_signatures or record.signature is not None
        self.sequence, self.hash, self.recorded_at = sequence, record.hash, members["recordedAt"]
        self.signature, self.key_id = record.signature, members.get("keyId")
        return None

    def _find_flaw(self, record: AuditRecord, members: Mapping[str, Any], sequence: int) -> Flaw | None:
        """Return the record's first flaw as the next record of this chain."""
        if (flaw := find_record_flaw(record, members)) is not None:
            return flaw
        if members["taskId"] != self.task_id or members["ledger"] != self.ledger:
            return Flaw.PLACE
        if members["sequence"] != sequence:
            return Flaw.SEQUENCE
        if members["previousRecordHash"] != "sha256:" + self.hash.hex():
            return Flaw.LINK
        if members["recordedAt"] < self.recorded_at:
            return Flaw.TIME
        if self.anchors and self.anchors.get(sequence, record.hash) != record.hash:
            return Flaw.ANCHOR
        return None

    def mark_covered(self, made_at: datetime | None, *, outside: bool) -> None:
        """Mark the records so far as covered by a checkpoint; ``outside`` if it is stored outside the ledger."""
        self.checkpointed_through, self.first_unsigned = self.sequence, 0
        if outside and self.anchored_through < self.sequence:
            self.anchored_through, self.compared_at = self.sequence, made_at

    @property
    def claim(self) -> Claim | None:
        """The signature of the current record, to be checked; None if unsigned."""
        if self.signature is None or self.key_id is None:
            return None
        statement = head_statement(self.ledger, self.task_id, self.sequence, self.hash, self.key_id)
        return Claim(self.key_id, statement, self.signature, datetime.fromisoformat(self.recorded_at))

    def end(self, verifier: HeadVerifier | None) -> Finding | None:
        """Return the flaw of the chain's end, or the first unproved record."""
        last = max(self.anchors, default=0)
        if last > self.sequence:
            ending = f"ends after {self.sequence}: its end was cut off" if self.sequence else "has none: all are gone"
            reason = f"an anchor covers {last} records, but the chain {ending}"
            return Finding(Flaw.TRUNCATED, self.sequence + 1, reason)
        if not self.sequence:
            return Finding(Flaw.EMPTY, 1, "there are no records, and no anchor covers any")
        proved = max(self.signed_through, self.checkpointed_through, self.anchored_through)
        if proved < self.sequence:
            remedy = "give the public keys" if verifier is None else "give an anchor that covers them"
            return Finding(Flaw.UNSIGNED, proved + 1, f"nothing proves the records from here on; {remedy}")
        if verifier is not None and self.has_signatures and self.first_unsigned:
            reason = "it is unsigned, but others of its task are signed: a writer without a key may have added it"
            return Finding(Flaw.UNSIGNED, self.first_unsigned, reason)
        return None

    @property
    def head(self) -> ChainHead | None:
        """The head of the chain so far."""
        if not self.sequence:
            return None
        return ChainHead.at(self.ledger, self.task_id, self.sequence, self.hash, self.key_id, self.signature)


def signature_finding(claim: Claim, sequence: int, check: SignatureCheck) -> Finding | None:
    """Return the finding for a record's signature, or None if it is good."""
    if check is SignatureCheck.GOOD:
        return None
    reason = f"its signature by the key {claim.key_id!r} does not count: {check.value}"
    if check is SignatureCheck.UNKNOWN_KEY:
        reason += " (are your keys, BATON_KEYS, those of this deployment? After a rotation, get the public keys again)"
    elif check is SignatureCheck.RETIRED_KEY:
        reason += f" (its time, or that of the last checkpoint before it, is {claim.at.isoformat()})"
    return Finding(Flaw.SIGNATURE if check is SignatureCheck.BAD else Flaw.KEY, sequence, reason)


def find_record_flaw(record: AuditRecord, members: Mapping[str, Any]) -> Flaw | None:
    """Return the flaw of a record on its own, regardless of its chain."""
    if members["messageHash"] != "sha256:" + hashlib.sha256(record.message).hexdigest():
        return Flaw.MESSAGE
    if record.claimed_hash is not None and record.claimed_hash != record.hash:
        return Flaw.INDEX
    if record.claims is not None and record.claims != Claims.of(members):
        return Flaw.INDEX
    if (record.signature is None) is not ("keyId" not in members):
        return Flaw.SIGNATURE if record.signature is None else Flaw.KEY
    return None


def head_statement(ledger: str, task_id: str, sequence: int, record_hash: bytes, key_id: str | None) -> bytes:
    """Return the bytes that a head's signature covers."""
    members = {
        "keyId": key_id,
        "ledger": ledger,
        "recordHash": format_digest(record_hash),
        "sequence": sequence,
        "taskId": task_id,
    }
    return pae(_HEAD, to_json(members))  # sorted and without fractions this is RFC 8785


def anchors_by_task(anchors: Iterable[ChainHead], ledger: str) -> dict[str, dict[int, bytes]]:
    """Return the record hashes of heads by task and sequence, without heads of other ledgers."""
    hashes: dict[str, dict[int, bytes]] = {}
    for head in anchors:
        if head.ledger == ledger and head.sequence:
            task_hashes = hashes.setdefault(head.task_id, {})
            record_hash = parse_digest(head.record_hash)
            # Heads that contradict each other match no record.
            agree = task_hashes.get(head.sequence, record_hash) == record_hash
            task_hashes[head.sequence] = record_hash if agree else b""
    return hashes
