"""Shorthands for verification in tests."""

from datetime import datetime

from baton.keys.claims import HeadVerifier
from baton.ledger import proof
from baton.ledger.chain import ChainHead, Finding, Flaw, Verdict
from baton.ledger.proof import Checkpoint, Report, Scope, Trust
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
) -> Report:
    return proof.verify(records, Trust(verifier, anchors or []), Scope(LEDGER, TASK, expected_head))


def walked(
    records: list[AuditRecord],
    *,
    checkpoints: list[Checkpoint] | None = None,
    claimed: list[Checkpoint] | None = None,
    anchors: list[ChainHead] | None = None,
    verifier: HeadVerifier | None = KEYS,
) -> Report:
    return proof.verify(records, Trust(verifier, anchors or [], checkpoints or [], claimed or []), Scope(LEDGER))


def named(report: Report) -> tuple[Verdict, int | None, Flaw | None]:
    """Return the verdict, and the number and the flaw of the first record that is not proved."""
    return report.verdict, *((found.sequence, found.flaw) if (found := first(report)) else (None, None))


def flaw(report: Report) -> Flaw | None:
    return named(report)[2]


def reason(report: Report) -> str:
    found = first(report)
    return found.reason if found else ""


def first(report: Report) -> Finding | None:
    return report.findings[0] if report.findings else None


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
