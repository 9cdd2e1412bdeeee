"""Shorthands for verification in tests."""

from datetime import datetime

from baton.keys.claims import HeadVerifier
from baton.ledger.chain import ChainHead, ChainReport, Verdict
from baton.ledger.proof import Checkpoint, LedgerReport, LedgerWalk, verify_chain
from baton.ledger.records import AuditRecord, stamp
from baton.wire.json_values import format_digest
from tests.ledger.material import KEY, KEYS, LEDGER, NOW, TASK, Key

VALID, UNANCHORED, UNVERIFIED, INVALID = Verdict.VALID, Verdict.UNANCHORED, Verdict.UNVERIFIED, Verdict.INVALID


def verify(
    records: list[AuditRecord],
    *,
    verifier: HeadVerifier | None = None,
    anchors: list[ChainHead] | None = None,
    expected_head: ChainHead | None = None,
) -> ChainReport:
    return verify_chain(
        records,
        ledger=LEDGER,
        task_id=TASK,
        verifier=verifier,
        anchors=anchors or [],
        expected_head=expected_head,
    )


def walked(
    records: list[AuditRecord],
    *,
    checkpoints: list[Checkpoint] | None = None,
    claimed: list[Checkpoint] | None = None,
    anchors: list[ChainHead] | None = None,
    verifier: HeadVerifier | None = KEYS,
) -> LedgerReport:
    walk = LedgerWalk(
        LEDGER, verifier=verifier, anchors=anchors or [], checkpoints=checkpoints or [], claimed=claimed or []
    )
    for record in records:
        walk.feed(record)
    return walk.finish()


def checkpoint_of(records: list[AuditRecord], key: Key | None = KEY, at: datetime = NOW) -> Checkpoint:
    """Return the checkpoint of a ledger with exactly these records."""
    checkpoint = Checkpoint(
        ledger=LEDGER,
        size=len(records),
        position=records[-1].position,
        last_hash=format_digest(records[-1].hash),
        digest=walked(records).digest,
        at=stamp(at),
    )
    return checkpoint.signed(key)
