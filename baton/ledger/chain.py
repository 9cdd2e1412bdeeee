"""Hash chains, their heads and anchors, and the verification of one chain.

A hash chain alone shows neither that its end was cut off nor that all of it was rewritten. So each append returns a
**head**, which the ledger signs. The caller stores it elsewhere (in the run's history) as an **anchor**. Records that
were neither anchored nor signed are reported as unverified, not as valid.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic_core import to_json

from baton.keys.claims import Claim, HeadVerifier, SignatureCheck
from baton.ledger.records import AuditRecord, ChainLink, Claims, event_key
from baton.wire.base64url import to_base64url
from baton.wire.json_values import format_digest, pae, parse_digest
from baton.wire.records import CamelRecord, Count, Digest

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
        return ChainEnd.of(record).head

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


class ChainEnd(NamedTuple):
    """The end of a chain and its signature, as its record or the record's row in the index states them.

    Attributes:
        after: The record is not older than this, whatever it says itself.
    """

    link: ChainLink
    key_id: str | None
    signature: bytes | None
    after: datetime | None = None

    @classmethod
    def of(cls, record: AuditRecord) -> "ChainEnd":
        """Return the end of the chain whose last record is ``record``."""
        return cls(record.link, record.members.get("keyId"), record.signature)

    @property
    def head(self) -> ChainHead:
        """The head of the chain."""
        link, signature = self.link, self.signature
        return ChainHead(
            ledger=link.ledger,
            task_id=link.task_id,
            sequence=link.sequence,
            record_hash=format_digest(link.record_hash),
            key_id=self.key_id,
            signature=None if signature is None else to_base64url(signature),
        )

    @property
    def claim(self) -> Claim:
        """The signature, to be checked; without one it is bad."""
        at, statement = datetime.fromisoformat(self.link.recorded_at), head_statement(self.link, self.key_id)
        return Claim(self.key_id or "", statement, self.signature or b"", max(at, self.after or at))


def head_statement(link: ChainLink, key_id: str | None) -> bytes:
    """Return the bytes that the signature of a chain's end covers."""
    members = {
        "keyId": key_id,
        "ledger": link.ledger,
        "recordHash": format_digest(link.record_hash),
        "sequence": link.sequence,
        "taskId": link.task_id,
    }
    return pae(_HEAD, to_json(members))  # sorted and without fractions this is RFC 8785


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
    """What is wrong with a record, its chain, or the evidence about it."""

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
    CHECKPOINT = "checkpoint"
    FILE = "file"


UNPROVED = frozenset({Flaw.UNSIGNED, Flaw.MISSING, Flaw.EMPTY})
"""The flaws that contradict nothing: a proof is missing."""
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


class Finding(CamelRecord):
    """A flaw of the first bad or unproved record of a chain, or of a ledger or file itself.

    Attributes:
        flaw: The flaw.
        reason: The flaw in words.
        task_id: The chain's task; None for a flaw of the ledger or the file.
        sequence: The record's number in its chain, or None.
    """

    flaw: Flaw
    reason: str
    task_id: str | None = None
    sequence: int | None = None

    @property
    def verdict(self) -> Verdict:
        """What the flaw means for its chain or ledger."""
        return Verdict.UNVERIFIED if self.flaw in UNPROVED else Verdict.INVALID

    def __str__(self) -> str:
        return (
            self.reason if self.task_id is None else f"record {self.sequence} of task {self.task_id!r}: {self.reason}"
        )


@dataclass(slots=True, eq=False)  # a whole ledger is verified with one of these for each task
class ChainWalk:
    """One chain during verification, record by record; it keeps hashes, not records."""

    ledger: str
    task_id: str
    anchors: Mapping[int, bytes]
    end: ChainEnd = field(init=False)
    events: set[bytes] = field(default_factory=set)
    anchored_through: int = 0  # the last record that matches an anchor or an external checkpoint
    compared_at: datetime | None = None  # when that checkpoint was made; None for an anchor
    checkpointed_through: int = 0  # the last record that a checkpoint proves
    signed_through: int = 0  # the last record whose signature was verified
    has_signatures: bool = False
    first_unsigned: int = 0  # the first record without a signature that nothing else proves
    recalled: int = 0  # the last record that an earlier verification proved

    def __post_init__(self) -> None:
        self.end = ChainEnd(ChainLink.genesis(self.ledger, self.task_id), None, None)

    @property
    def sequence(self) -> int:
        """The number of records so far."""
        return self.end.link.sequence

    def step(self, record: AuditRecord) -> Finding | None:
        """Advance to ``record``, or return its flaw and stay."""
        sequence = self.sequence + 1
        if (finding := find_flaw(record, self.task_id, sequence)) is not None:
            return finding
        members = record.members
        key = record.claims.event_key if record.claims else event_key(members)
        event = hashlib.sha256(key.encode(errors="surrogatepass")).digest()[:_EVENT_BYTES]
        flaw = self._find_flaw(record, members, sequence) or (Flaw.REPEATED if event in self.events else None)
        if flaw is not None:
            return self.finding(flaw, sequence, _REASONS[flaw])
        self.events.add(event)
        if sequence in self.anchors:
            self.anchored_through, self.compared_at = sequence, None
        elif record.signature is None and not self.first_unsigned:
            self.first_unsigned = sequence
        self.has_signatures = self.has_signatures or record.signature is not None
        self.end = ChainEnd.of(record)
        return None

    def _find_flaw(self, record: AuditRecord, members: Mapping[str, Any], sequence: int) -> Flaw | None:
        """Return the first flaw of an unchanged record as the next record of this chain."""
        if members["taskId"] != self.task_id or members["ledger"] != self.ledger:
            return Flaw.PLACE
        if members["sequence"] != sequence:
            return Flaw.SEQUENCE
        if members["previousRecordHash"] != "sha256:" + self.end.link.record_hash.hex():
            return Flaw.LINK
        if members["recordedAt"] < self.end.link.recorded_at:
            return Flaw.TIME
        if self.anchors and self.anchors.get(sequence, record.hash) != record.hash:
            return Flaw.ANCHOR
        return None

    def finding(self, flaw: Flaw, sequence: int, reason: str) -> Finding:
        """Return a finding about a record of this chain."""
        return Finding(flaw=flaw, reason=reason, task_id=self.task_id, sequence=sequence)

    def mark_covered(self, made_at: datetime | None, *, outside: bool) -> None:
        """Mark the records so far as covered by a checkpoint; ``outside`` if it is stored outside the ledger."""
        self.checkpointed_through, self.first_unsigned = self.sequence, 0
        if outside and self.anchored_through < self.sequence:
            self.anchored_through, self.compared_at = self.sequence, made_at

    def finish(self, keys: HeadVerifier | None) -> Finding | None:
        """Return the flaw of the chain's end, or the first unproved record."""
        last = max(self.anchors, default=0)
        if last > self.sequence:
            ending = f"ends after {self.sequence}: its end was cut off" if self.sequence else "has no records"
            reason = f"an anchor covers {last} records, but the chain {ending}"
            return self.finding(Flaw.TRUNCATED, self.sequence + 1, reason)
        if not self.sequence:
            return self.finding(Flaw.EMPTY, 1, "there are no records, and no anchor covers any")
        proved = max(self.signed_through, self.checkpointed_through, self.anchored_through)
        if proved < self.sequence:
            remedy = "give the public keys" if keys is None else "give an anchor that covers them"
            return self.finding(Flaw.UNSIGNED, proved + 1, f"nothing proves the records from here on; {remedy}")
        if keys is not None and self.has_signatures and self.first_unsigned:
            reason = "it is unsigned, but others of its task are signed: a writer without a key may have added it"
            return self.finding(Flaw.UNSIGNED, self.first_unsigned, reason)
        return None


def check_ends(ends: Sequence[ChainEnd], keys: HeadVerifier) -> list[Finding | None]:
    """Return for each end of a chain why no signature proves it, or None if one does."""
    claims = [end.claim for end in ends]
    return [_end_finding(*checked) for checked in zip(ends, claims, keys.check(claims), strict=True)]


def _end_finding(end: ChainEnd, claim: Claim, check: SignatureCheck) -> Finding | None:
    task_id, sequence = end.link.task_id, end.link.sequence
    if check is SignatureCheck.GOOD:
        return None
    if end.key_id is None and end.signature is None:
        return Finding(flaw=Flaw.UNSIGNED, reason="it is unsigned", task_id=task_id, sequence=sequence)
    reason = f"its signature by the key {end.key_id!r} does not count: {check.value}"
    if check is SignatureCheck.UNKNOWN_KEY:
        reason += " (are your keys, BATON_KEYS, those of this deployment? After a rotation, get the public keys again)"
    elif check is SignatureCheck.RETIRED_KEY:
        reason += f" (its time, or that of the last checkpoint before it, is {claim.at.isoformat()})"
    flaw = Flaw.SIGNATURE if check is SignatureCheck.BAD else Flaw.KEY
    return Finding(flaw=flaw, reason=reason, task_id=task_id, sequence=sequence)


def find_flaw(record: AuditRecord, task_id: str | None = None, sequence: int | None = None) -> Finding | None:
    """Return the flaw of a record on its own, regardless of its chain."""
    if record.is_checked:
        return None
    try:
        if record.absence is not None:
            flaw, reason = Flaw.GONE if record.lost else Flaw.MISSING, record.absence
        elif (own := _find_own_flaw(record, record.members)) is not None:
            flaw, reason = own, _REASONS[own]
        else:
            return None
    except ValueError as error:
        flaw, reason = Flaw.HEADER, f"its header cannot be read: {error}"
    return Finding(flaw=flaw, reason=reason, task_id=task_id, sequence=sequence)


def condense(record: AuditRecord) -> AuditRecord:
    """Return a record without its bytes once they are checked, with what its chain needs; a flawed one unchanged."""
    if record.claims is None or find_flaw(record) is not None:
        return record
    members = record.members
    condensed = AuditRecord(b"", b"", record.signature, record.position, record.claimed_hash, record.claims)
    condensed.hash, condensed.is_checked = record.hash, True
    condensed.parsed = {name: members[name] for name in _CHAIN_MEMBERS if name in members}
    return condensed


_CHAIN_MEMBERS = ("keyId", "ledger", "previousRecordHash", "recordedAt", "sequence", "taskId")


def _find_own_flaw(record: AuditRecord, members: Mapping[str, Any]) -> Flaw | None:
    if members["messageHash"] != "sha256:" + hashlib.sha256(record.message).hexdigest():
        return Flaw.MESSAGE
    if record.claimed_hash is not None and record.claimed_hash != record.hash:
        return Flaw.INDEX
    if record.claims is not None and record.claims != Claims.of(members):
        return Flaw.INDEX
    if (record.signature is None) is not ("keyId" not in members):
        return Flaw.SIGNATURE if record.signature is None else Flaw.KEY
    return None


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
