"""Material of the ledger's tests: real Ed25519 keys, chains made without a ledger, and messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from baton.core.verdict import HandoffStatus
from baton.keys.claims import Claim, HeadSigner, SignatureCheck
from baton.ledger.chain import ChainHead, head_statement
from baton.ledger.records import AuditCost, AuditEntry, AuditRecord, ChainLink, Claims, Kind, next_record

LEDGER, TASK = "baton", "5f0c1a52-7a3c-4a29-9c31-3a8f0b7a2b11"
NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


class Key:
    """An Ed25519 key that signs heads."""

    def __init__(self, key_id: str, *earlier: "Key") -> None:
        self.key_id = key_id
        self.private = Ed25519PrivateKey.generate()
        self.earlier = earlier

    def sign(self, statement: bytes) -> bytes:
        return self.private.sign(statement)

    def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
        """Check signatures by this key, or by an earlier one of its keyring."""
        return PublicKeys.of(self, *self.earlier).check(claims)


@dataclass
class PublicKeys:
    """Public keys by id, with the time after which each may not have signed."""

    keys: dict[str, Ed25519PublicKey] = field(default_factory=dict)
    retired: dict[str, datetime] = field(default_factory=dict)

    @classmethod
    def of(cls, *keys: Key, retired: dict[str, datetime] | None = None) -> "PublicKeys":
        return cls({key.key_id: key.private.public_key() for key in keys}, retired or {})

    def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
        return [self._check(claim) for claim in claims]

    def _check(self, claim: Claim) -> SignatureCheck:
        if claim.key_id not in self.keys:
            return SignatureCheck.UNKNOWN_KEY
        try:
            self.keys[claim.key_id].verify(claim.signature, claim.statement)
        except InvalidSignature:
            return SignatureCheck.BAD
        late = claim.at > self.retired.get(claim.key_id, claim.at)
        return SignatureCheck.RETIRED_KEY if late else SignatureCheck.GOOD


KEY = Key("ed-2026-11")
KEYS = PublicKeys.of(KEY)


def message(number: int = 0, **members: Any) -> dict[str, Any]:
    return {
        "handoffId": f"handoff-{number}",
        "fromAgent": {"agentId": f"agent-{number}"},
        "toAgent": {"agentType": f"agent-{number + 1}"},
        "currentState": {"clauses": [number]},
        "costTracking": {
            "costSpentSoFarUSD": (number + 1) / 100,
            "costBudgetRemainingUSD": (40 - number - 1) / 100,
            "tokenSpent": {"prompt": 1000 * (number + 1), "completion": 100 * (number + 1)},
        },
    } | members


def entry(number: int = 0, *, task_id: str = TASK, **members: Any) -> AuditEntry:
    about: dict[str, Any] = {
        "kind": Kind.HANDOFF,
        "task_id": task_id,
        "event_id": f"handoff-{number}",
        "status": HandoffStatus.ACCEPTED,
        "timestamp": NOW,
        "from_agent": f"agent-{number}",
        "to_agent": f"agent-{number + 1}",
        "cost": AuditCost(spent_micro_usd=10_000 * (number + 1), remaining_micro_usd=400_000 - 10_000 * (number + 1)),
        "message": {"number": number},
    }
    return AuditEntry(**(about | members))


def joined(
    event: AuditEntry, link: ChainLink, signer: HeadSigner | None = KEY, recorded_at: datetime = NOW
) -> AuditRecord:
    """Return the signed record of an entry at the end of a chain."""
    key_id = signer.key_id if signer else None
    record = next_record(event, link, recorded_at=recorded_at, key_id=key_id)
    if signer is None:
        return replace(record, claimed_hash=record.hash, claims=Claims.of(record.members))
    statement = head_statement(record.link, key_id)
    return replace(record, signature=signer.sign(statement), claimed_hash=record.hash, claims=Claims.of(record.members))


def chain(
    length: int = 5,
    *,
    task_id: str = TASK,
    ledger: str = LEDGER,
    signer: HeadSigner | None = KEY,
    entries: Sequence[AuditEntry] | None = None,
) -> list[AuditRecord]:
    """Return a chain with a second between its records."""
    link, records = ChainLink.genesis(ledger, task_id), []
    if entries is None:
        entries = [entry(number, task_id=task_id) for number in range(length)]
    for number, event in enumerate(entries):
        record = joined(event, link, signer, NOW + timedelta(seconds=number))
        records.append(record)
        link = record.link
    return records


def bare(records: Iterable[AuditRecord]) -> list[AuditRecord]:
    """Return records without index values, as for a reader who has only the bytes."""
    return [AuditRecord(record.header, record.message, record.signature, record.position) for record in records]


def head(records: Sequence[AuditRecord]) -> ChainHead:
    return ChainHead.of(records[-1])


def completion_entry(
    output: dict[str, Any], *, agent: str | None = None, cost: AuditCost | None = None, task_id: str = TASK
) -> AuditEntry:
    """Return the completion entry of the last agent, with its cost."""
    return AuditEntry(
        kind=Kind.COMPLETION,
        task_id=task_id,
        event_id="the last handoff",
        status="RETURNED",
        timestamp=NOW,
        from_agent=agent,
        cost=cost,
        message=output,
    )
