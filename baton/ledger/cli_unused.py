"""What was given to `baton audit verify` and says nothing of what is verified: that it counted must not be thought."""

from collections.abc import Iterable
from pathlib import Path

from baton.ledger.chain import ChainHead, ChainReport
from baton.ledger.cli_sources import Anchors
from baton.ledger.evidence import EvidenceReport
from baton.ledger.proof import LedgerReport


def unused_anchors(report: ChainReport | LedgerReport, file: Path, kept: Anchors, ledger: str) -> list[str]:
    """Return what of an anchor file says nothing of a report's records, a sentence each."""
    if not kept.heads and not kept.checkpoints:
        return [f"{file} holds neither heads nor checkpoints"]
    if isinstance(report, ChainReport):
        if any(head.ledger == ledger and head.task_id == report.task_id for head in kept.heads):
            return []
        if any(checkpoint.ledger == ledger for checkpoint in kept.checkpoints):
            return []
        return [f"{file} holds neither a head of task {report.task_id!r} nor a checkpoint, of the ledger {ledger!r}"]
    unused = [*(report.unused or ())] if isinstance(report, EvidenceReport) else []
    for what, kinds in (("heads", kept.heads), ("checkpoints", kept.checkpoints)):
        others = sorted({one.ledger for one in kinds} - {report.ledger})
        unused += [f"{what} of the ledger {other!r} say nothing of {report.ledger!r}" for other in others]
    return list(dict.fromkeys(unused))


def unused_run(run: str, heads: Iterable[ChainHead]) -> list[str]:
    """Return that the history of a run has nothing to compare with; nothing where it has."""
    if any(True for _ in heads):
        return []
    why = "its workers have no safeguards, or no stage of it has ended yet"
    return [f"the history of {run!r} holds no heads, so --run compares nothing: {why}"]
