"""Chains and their heads: what a signature covers, what an anchor holds, and the proof that a chain is whole.

A hash chain alone shows neither that its end was cut off nor that all of it was written again. So each append
gives a **head**, which the ledger signs and the caller keeps somewhere else (in the run's history): an
**anchor**. What was never anchored and never signed is reported as such, not as valid.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from pydantic_core import to_json

from baton.ledger.records import AuditRecord, ChainLink, Claims, event_key
from baton.wire.json_values import format_digest, pae, parse_digest
from baton.wire.records import CamelRecord, Count, Digest

CANCELED = "CANCELED"
"""The status of a roll-back that tells what a stage had charged until nothing waited for it."""
_HEAD = "baton/audit-head/v1"


class ChainHead(CamelRecord):
    """The end of a task's chain after an append: its holder can tell later whether the chain still has it.

    Attributes:
        ledger: The ledger's name.
        task_id: The task.
        sequence: How many records the chain had.
        record_hash: The hash of the last of them.
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
        """Return the head of a chain that ends with ``record``."""
        link = record.link
        return cls.at(
            link.ledger, link.task_id, link.sequence, record.hash, record.members.get("keyId"), record.signature
        )

    @classmethod
    def at(
        cls, ledger: str, task_id: str, sequence: int, hashed: bytes, key_id: str | None, signature: bytes | None
    ) -> "ChainHead":
        """Return the head with this record hash and signature."""
        return cls(
            ledger=ledger,
            task_id=task_id,
            sequence=sequence,
            record_hash=format_digest(hashed),
            key_id=key_id,
            signature=None if signature is None else to_base64url(signature),
        )

    @classmethod
    def from_anchor(cls, ledger: str, task_id: str, anchor: str) -> "ChainHead":
        """Return the head that a short `anchor` stands for; of the ledger ``ledger`` if it names none."""
        place, _, name = anchor.partition("@")
        sequence, _, digest = place.partition(":")
        return cls(ledger=name or ledger, task_id=task_id, sequence=int(sequence), record_hash=digest)

    @property
    def anchor(self) -> str:
        """The head in a short text for a workflow's history: the sequence, the hash and the ledger's name."""
        return f"{self.sequence}:{self.record_hash}@{self.ledger}"

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        return head_statement(self.ledger, self.task_id, self.sequence, parse_digest(self.record_hash), self.key_id)


class SignatureCheck(StrEnum):
    """What a keyring says of a signature; only `GOOD` counts."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN_KEY = "unknown key"
    RETIRED_KEY = "key retired before the record"


class Claim(NamedTuple):
    """What a signature claims."""

    key_id: str
    statement: bytes
    signature: bytes
    at: datetime


class HeadVerifier(Protocol):
    """The public keys that heads and checkpoints are verified with, the retired ones among them."""

    def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
        """Return what each signature is worth, in order."""


class HeadSigner(HeadVerifier, Protocol):
    """A private key that signs heads and checkpoints with Ed25519, and the public keys of its keyring."""

    @property
    def key_id(self) -> str:
        """The id under which verifiers find the public key."""

    def sign(self, statement: bytes) -> bytes:
        """Return the signature over ``statement``."""


class Verdict(StrEnum):
    """The result of verifying a chain, a whole ledger or a bundle."""

    VALID = "valid"
    """Every record is proved, by a signature or an anchor, and each chain's end was compared with something outside."""
    UNANCHORED = "valid, completeness not checked"
    """Every record is proved; whether records behind them were cut off was not compared with anything outside."""
    UNVERIFIED = "unverified"
    """Nothing contradicts, but nothing proves it either: no key was given, or the end is unsigned."""
    INVALID = "invalid"
    """Something was changed, removed, added, moved or forged; the first bad record is named."""


class Flaw(StrEnum):
    """What is wrong with a chain, by its first bad record."""

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
    Flaw.SEQUENCE: "a record with another number stands in its place: one was removed, added or moved",
    Flaw.LINK: "it does not continue the record before it: one of the two is not the one that was recorded",
    Flaw.TIME: "it claims to be older than the record before it",
    Flaw.INDEX: "the ledger's index says something else than the record itself",
    Flaw.ANCHOR: "an anchor knows another record of this number",
    Flaw.REPEATED: "its event is on record already",
    Flaw.SIGNATURE: "its header names a key, and its signature was removed",
    Flaw.KEY: "it has a signature and names no key",
}


@dataclass(frozen=True)
class Finding:
    """One flaw: the record it was found at, and a sentence about it."""

    flaw: Flaw
    sequence: int
    reason: str


class ChainReport(CamelRecord):
    """What the verification of one chain found; true only if it is valid.

    Attributes:
        verdict: The verdict.
        ledger: The ledger's name.
        task_id: The task.
        records: How many records were proved to hang together, from the first.
        sequence: The first bad record, or the first one that nothing proves; None if there is none.
        flaw: What is wrong with it.
        reason: The same in words.
        head: The head of what hangs together; None of an empty chain.
        signed_through: The last record that a verified signature covers; 0 for none.
        anchored_through: The last record that was compared with an anchor or a checkpoint from outside: records
            cut off behind it would not be noticed.
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

    def __bool__(self) -> bool:
        return self.verdict is Verdict.VALID


@dataclass(slots=True, eq=False)  # a whole ledger is verified with one of these for each task
class ChainWalk:
    """One chain during verification, record by record; it keeps a few hashes and no records."""

    ledger: str
    task_id: str
    anchors: Mapping[int, bytes]
    sequence: int = 0
    hash: bytes = field(init=False)
    recorded_at: str = ""
    signature: bytes | None = None
    key_id: str | None = None
    events: set[int] = field(default_factory=set)
    anchored: int = 0  # the last record that was compared with something outside
    proved: int = 0  # the last record that a checkpoint proves
    signed: int = 0  # the last record whose signature was verified
    signs: bool = False  # whether any record has a signature
    unsigned: int = 0  # the first record without a signature that nothing else proves

    def __post_init__(self) -> None:
        self.hash = ChainLink.genesis(self.ledger, self.task_id).record_hash

    def step(self, record: AuditRecord) -> Finding | None:
        """Advance to ``record``; if something is wrong with it, return that and stay."""
        sequence = self.sequence + 1
        if record.absence is not None:
            return Finding(Flaw.GONE if record.lost else Flaw.MISSING, sequence, record.absence)
        try:
            members = record.members
        except ValueError as error:
            return Finding(Flaw.HEADER, sequence, f"its header cannot be read: {error}")
        event = hash(event_key(members))
        flaw = self._flaw(record, members, sequence) or (Flaw.REPEATED if event in self.events else None)
        if flaw is not None:
            return Finding(flaw, sequence, _REASONS[flaw])
        self.events.add(event)
        if sequence in self.anchors:
            self.anchored = sequence
        elif record.signature is None and not self.unsigned:
            self.unsigned = sequence
        self.signs = self.signs or record.signature is not None
        self.sequence, self.hash, self.recorded_at = sequence, record.hash, members["recordedAt"]
        self.signature, self.key_id = record.signature, members.get("keyId")
        return None

    def _flaw(self, record: AuditRecord, members: Mapping[str, Any], sequence: int) -> Flaw | None:
        """Return the first thing that is wrong with the record as the next one of this chain."""
        if (flaw := own_flaw(record, members)) is not None:
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

    def covered(self, *, outside: bool) -> None:
        """Note that a checkpoint covers the chain as far as it was walked, one that was kept outside or not."""
        self.proved, self.unsigned = self.sequence, 0
        if outside:
            self.anchored = self.sequence

    @property
    def claim(self) -> Claim | None:
        """What the signature of the current record claims; None without one."""
        if self.signature is None or self.key_id is None:
            return None
        statement = head_statement(self.ledger, self.task_id, self.sequence, self.hash, self.key_id)
        return Claim(self.key_id, statement, self.signature, datetime.fromisoformat(self.recorded_at))

    def end(self, verifier: HeadVerifier | None) -> Finding | None:
        """Return what is wrong with the chain's end, or not proved about the chain."""
        last = max(self.anchors, default=0)
        if last > self.sequence:
            found = f"ends after {self.sequence}: its end was cut off" if self.sequence else "has none: all is gone"
            reason = f"an anchor knows {last} records, and the chain {found}"
            return Finding(Flaw.TRUNCATED, self.sequence + 1, reason)
        if not self.sequence:
            return Finding(Flaw.EMPTY, 1, "there are no records, and no anchor that knows of any")
        proved = max(self.signed, self.proved, self.anchored)
        if proved < self.sequence:
            remedy = "give the public keys" if verifier is None else "give an anchor that covers them"
            return Finding(Flaw.UNSIGNED, proved + 1, f"nothing proves the records from here on; {remedy}")
        if verifier is not None and self.signs and self.unsigned:
            reason = "it is not signed, and others of its task are: who can write and has no key may have added it"
            return Finding(Flaw.UNSIGNED, self.unsigned, reason)
        return None

    @property
    def head(self) -> ChainHead | None:
        """The head of what was walked."""
        if not self.sequence:
            return None
        return ChainHead.at(self.ledger, self.task_id, self.sequence, self.hash, self.key_id, self.signature)


def signature_finding(claim: Claim, sequence: int, check: SignatureCheck) -> Finding | None:
    """Return what is wrong with a record's signature; None of a good one."""
    if check is SignatureCheck.GOOD:
        return None
    reason = f"its signature by the key {claim.key_id!r} does not count: {check.value}"
    if check is SignatureCheck.UNKNOWN_KEY:
        reason += " (if keys were rotated since you got yours, get the public keys again)"
    elif check is SignatureCheck.RETIRED_KEY:
        reason += f" (or the clock of who wrote it was ahead: it says {claim.at.isoformat()})"
    return Finding(Flaw.SIGNATURE if check is SignatureCheck.BAD else Flaw.KEY, sequence, reason)


def own_flaw(record: AuditRecord, members: Mapping[str, Any]) -> Flaw | None:
    """Return what is wrong with a record whose header has ``members``, whatever chain it is in."""
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
    """Return the bytes that the signature of a head is over."""
    members = {
        "keyId": key_id,
        "ledger": ledger,
        "recordHash": format_digest(record_hash),
        "sequence": sequence,
        "taskId": task_id,
    }
    return pae(_HEAD, to_json(members))  # in order and without fractions, this is RFC 8785


def anchors_by_task(anchors: Iterable[ChainHead], ledger: str) -> dict[str, dict[int, bytes]]:
    """Return the hashes that heads know, by task and sequence; heads of other ledgers are left out."""
    found: dict[str, dict[int, bytes]] = {}
    for head in anchors:
        if head.ledger == ledger and head.sequence:
            known = found.setdefault(head.task_id, {})
            wanted = parse_digest(head.record_hash)
            known[head.sequence] = wanted if known.get(head.sequence, wanted) == wanted else b""
    return found


def to_base64url(data: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Return the bytes of base64url without padding."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if to_base64url(data) != text:
        raise ValueError("it is not base64url without padding")
    return data
