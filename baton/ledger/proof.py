"""Checkpoints, and the verification of a task's chain, a whole ledger or a bundle.

A checkpoint is a running hash over a ledger's records in their order: who has one computes the next from the records
since then alone. It dates what follows it: a record behind a checkpoint is not older than that checkpoint, whatever it
says itself, so who has an old key cannot add to the past.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

import rfc8785
from pydantic import ValidationError

from baton.errors import HandoffError
from baton.keys.claims import Claim, HeadSigner, HeadVerifier, SignatureCheck
from baton.ledger.chain import (
    ChainHead,
    ChainReport,
    ChainWalk,
    Finding,
    Flaw,
    Verdict,
    anchors_by_task,
    signature_finding,
)
from baton.ledger.records import AuditRecord
from baton.wire.base64url import from_base64url, to_base64url
from baton.wire.json_values import format_digest, pae
from baton.wire.records import CamelRecord, Count, Digest, Instant
from baton.wire.text import quantity

EMPTY_DIGEST = hashlib.sha256(b"baton/ledger-digest/v1").digest()
"""The digest of a ledger without records."""


def fold(digest: bytes, leaf: bytes) -> bytes:
    """Return the digest of a ledger whose next record has this leaf (`AuditRecord.leaf`)."""
    return hashlib.sha256(digest + leaf).digest()


_CHECKPOINT = "baton/ledger-checkpoint/v1"
_UNPROVED = frozenset({Flaw.UNSIGNED, Flaw.MISSING, Flaw.EMPTY})
MAX_REPORTED = 100
"""How many flawed chains and reasons a report on a ledger lists at most; it counts all chains."""
_SIGNATURE_BATCH = 2_048
"""How many signatures are verified at a time."""


class Checkpoint(CamelRecord):
    """The signed state of a whole ledger: its size and the digest of its records.

    Attributes:
        ledger: The ledger's name.
        size: The number of records.
        position: The position of the last record; 0 without records.
        last_hash: The hash of the last record; `EMPTY_DIGEST` without records.
        digest: The running hash over the records in the ledger's order.
        at: When it was made, in the format of `baton.ledger.records.stamp`.
        key_id: The key that signed, or None.
        signature: Base64url without padding, or None.
    """

    ledger: str
    size: Count
    position: Count
    last_hash: Digest
    digest: Digest
    at: str
    key_id: str | None = None
    signature: str | None = None

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        members = self.model_dump(mode="json", exclude={"signature"})
        return pae(_CHECKPOINT, rfc8785.dumps(members))

    def signed(self, signer: HeadSigner | None) -> "Checkpoint":
        """Return the checkpoint with a signature, or unchanged without a signer."""
        if signer is None:
            return self
        keyed = self.model_copy(update={"key_id": signer.key_id})
        return keyed.model_copy(update={"signature": to_base64url(signer.sign(keyed.statement))})

    def check(self, verifier: HeadVerifier, after: datetime | None = None) -> SignatureCheck:
        """Check the signature of a checkpoint that follows one of the time ``after``; a missing one is bad."""
        made_at = self.made_at
        try:
            signature = from_base64url(self.signature or "")
        except ValueError:
            return SignatureCheck.BAD
        if made_at is None:
            return SignatureCheck.BAD
        return verifier.check([Claim(self.key_id or "", self.statement, signature, latest(made_at, after))])[0]

    @property
    def made_at(self) -> datetime | None:
        """When it was made; None if `at` is not a time."""
        try:
            made_at = datetime.fromisoformat(self.at)
        except ValueError:
            return None
        return None if made_at.tzinfo is None else made_at


def newest_of(checkpoints: Iterable[Checkpoint], ledger: str) -> Checkpoint | None:
    """Return the checkpoint of a ledger that covers the most records, or None."""
    own = [checkpoint for checkpoint in checkpoints if checkpoint.ledger == ledger]
    return max(own, key=lambda checkpoint: checkpoint.size, default=None)


def latest(moment: datetime, other: datetime | None) -> datetime:
    """Return the later of two times."""
    return moment if other is None else max(moment, other)


def verify_chain(
    records: Iterable[AuditRecord],
    *,
    ledger: str,
    task_id: str,
    verifier: HeadVerifier | None = None,
    expected_head: ChainHead | None = None,
    anchors: Iterable[ChainHead] = (),
    compared: Checkpoint | None = None,
    checkpoints: Sequence[Checkpoint] = (),
) -> ChainReport:
    """Verify that these records are a task's complete chain, unchanged and in order; report the first bad record.

    Unlike `LedgerWalk` it also parses each record: a record that was forged without a key can fit into the chain and
    still contain what no ledger writes. The ledger's records are those that ``compared``, a checkpoint from outside,
    covers; the records behind any of the ``checkpoints`` are not older than it.
    """
    if expected_head is not None and (expected_head.ledger, expected_head.task_id) != (ledger, task_id):
        raise ValueError(f"the expected head is of the task {expected_head.task_id!r}, not {task_id!r} in {ledger!r}")
    outside = [*anchors, *([expected_head] if expected_head else [])]
    walk = LedgerWalk(ledger, verifier=verifier, anchors=[head for head in outside if head.task_id == task_id])
    for record in records:
        dates = [checkpoint.made_at for checkpoint in checkpoints if checkpoint.position < record.position]
        walk.after = max((date for date in dates if date is not None), default=None)
        chain = walk.feed(record, task_id)
        if chain is None:
            continue
        if compared is not None and record.position <= compared.position:
            chain.mark_covered(compared.made_at, outside=True)
        if (flaw := _find_unreadable_part(record)) is not None:
            walk.mark_flawed(chain, flaw)
    report = walk.chain_report(task_id)
    extra = 0 if expected_head is None else report.records - expected_head.sequence
    if expected_head is None or extra <= 0 or report.verdict not in (Verdict.VALID, Verdict.UNANCHORED):
        return report
    reason = f"{quantity(extra, 'record')} {'follows' if extra == 1 else 'follow'} the expected head"
    changes = {"flaw": Flaw.EXTRA, "sequence": expected_head.sequence + 1, "reason": reason}
    return report.model_copy(update={"verdict": Verdict.INVALID} | changes)


class LedgerReport(CamelRecord):
    """The result of verifying a whole ledger or a bundle; true only if it is valid.

    Attributes:
        verdict: The verdict.
        ledger: The ledger's name.
        records: The number of records.
        tasks: The number of chains.
        digest: The running hash over all records.
        checkpointed_through: How many records, from the first, a checkpoint covers.
        compared_at: When the newest checkpoint was made that was kept outside and matches; None without one. What
            was added since then and cut off again goes unnoticed.
        flawed: The first `MAX_REPORTED` chains that are not proved.
        flaws: How many chains are not proved.
        unanchored: How many chains have an end that no anchor or external checkpoint covers.
        reasons: The first `MAX_REPORTED` flaws of the ledger itself.
    """

    verdict: Verdict
    ledger: str
    records: int
    tasks: int
    digest: Digest
    checkpointed_through: int = 0
    compared_at: Instant | None = None
    flawed: tuple[ChainReport, ...] = ()
    flaws: int = 0
    unanchored: int = 0
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict is Verdict.VALID


class LedgerWalk:
    """A ledger during verification; the ``claimed`` checkpoints are its own, which count only if signed."""

    def __init__(
        self,
        ledger: str,
        *,
        verifier: HeadVerifier | None = None,
        anchors: Iterable[ChainHead] = (),
        checkpoints: Iterable[Checkpoint] = (),
        claimed: Iterable[Checkpoint] = (),
        reasons: Iterable[str] = (),
    ) -> None:
        self.ledger = ledger
        self.size = 0
        self.after: datetime | None = None  # the next records are not older than this
        self._verifier = verifier
        self._anchors = anchors_by_task(anchors, ledger)
        self._walks: dict[str, ChainWalk] = {}
        self._flawed: dict[str, Finding] = {}
        self._pending: list[tuple[ChainWalk, int, Claim]] = []  # signatures to be verified
        self._reasons = list(reasons)
        self._checkpointed_through = 0  # so many records, from the first, match a checkpoint
        self._signed_through = 0  # the maker of a signed checkpoint verified the signatures up to here
        self._uncovered: set[ChainWalk] = set()  # the chains of the records since the last checkpoint
        self._digest = EMPTY_DIGEST
        self._checkpoints: dict[int, list[tuple[Checkpoint, bool]]] = {}  # by size; whether each was kept outside
        self._compared_at: datetime | None = None  # when the newest one was made that was kept outside and matches
        candidates = [(checkpoint, True) for checkpoint in checkpoints]
        candidates += [(checkpoint, False) for checkpoint in claimed]
        self._add_checkpoints(sorted(candidates, key=lambda pair: pair[0].size))

    @property
    def task_ids(self) -> list[str]:
        """The tasks of all records so far."""
        return [task_id for task_id, walk in self._walks.items() if walk.sequence]

    def chain(self, task_id: str) -> ChainWalk | None:
        """Return the state of a task's chain, or None before its first record."""
        return self._walks.get(task_id)

    def feed(self, record: AuditRecord, task_id: str | None = None) -> ChainWalk | None:
        """Verify the next record of the ledger; return its chain, or None if the record or its chain is flawed."""
        self._digest = fold(self._digest, record.leaf)
        self.size += 1
        walk = self._step(record, task_id)
        if self.size in self._checkpoints:
            self._compare_checkpoints()
        return walk

    def mark_flawed(self, chain: ChainWalk, flaw: Flaw) -> None:
        """Mark the chain's current record as its first bad one."""
        self._flawed[chain.task_id] = Finding(flaw, chain.sequence, _UNREADABLE_REASONS[flaw])

    def feed_all(self, records: Iterable[AuditRecord]) -> None:
        """Verify the next records of the ledger."""
        for record in records:
            self.feed(record)

    def finish(self) -> LedgerReport:
        """Return the report after the last record."""
        for size in sorted(size for size in self._checkpoints if size > self.size):
            missing = size - self.size
            self._reasons.append(
                f"a checkpoint covers {size} records, but there are {self.size}: {missing} or more are gone"
            )
        for task_id in self._anchors.keys() - self._walks.keys():
            self._get_walk(task_id)
        self._check_pending()
        findings = [
            (walk, finding) for walk in self._walks.values() if (finding := self._get_finding(walk)) is not None
        ]
        findings.sort(key=lambda pair: pair[1].flaw in _UNPROVED)
        unanchored = sum(walk.anchored_through < walk.sequence for walk in self._walks.values())
        if self._reasons or (findings and findings[0][1].flaw not in _UNPROVED):
            verdict = Verdict.INVALID
        elif findings or not self.size:
            verdict = Verdict.UNVERIFIED
        else:
            verdict = Verdict.UNANCHORED if unanchored else Verdict.VALID
        return LedgerReport(
            verdict=verdict,
            ledger=self.ledger,
            records=self.size,
            tasks=len(self._walks),
            digest=format_digest(self._digest),
            checkpointed_through=self._checkpointed_through,
            compared_at=self._compared_at,
            flawed=tuple(_make_report(walk, finding) for walk, finding in findings[:MAX_REPORTED]),
            flaws=len(findings),
            unanchored=unanchored,
            reasons=tuple(self._reasons[:MAX_REPORTED]),
        )

    def chain_report(self, task_id: str) -> ChainReport:
        """Return the report on one chain after the last record."""
        self._check_pending()
        walk = self._get_walk(task_id)
        return _make_report(walk, self._get_finding(walk))

    def _get_finding(self, walk: ChainWalk) -> Finding | None:
        finding = self._flawed.get(walk.task_id) or walk.end(self._verifier)
        if finding is not None and finding.flaw is Flaw.UNSIGNED and self._checkpointed_through < self._signed_through:
            return None  # the reasons already report a checkpoint that does not match; signatures under it were skipped
        return finding

    def _step(self, record: AuditRecord, task_id: str | None) -> ChainWalk | None:
        if task_id is None:
            try:
                task_id = record.claims.task_id if record.claims else str(record.members["taskId"])
            except ValueError as error:
                if len(self._reasons) < MAX_REPORTED:
                    self._reasons.append(f"record {self.size} cannot be read: {record.absence or error}")
                return None
        walk = self._get_walk(task_id)
        if task_id in self._flawed:
            return None
        finding = walk.step(record)
        if finding is not None:
            self._flawed[task_id] = finding
            return None
        if self._checkpoints:
            self._uncovered.add(walk)
        claim = walk.claim if self._verifier is not None and self.size > self._signed_through else None
        if claim is not None:
            claim = claim._replace(at=latest(claim.at, self.after))
            self._pending.append((walk, walk.sequence, claim))
            if len(self._pending) == _SIGNATURE_BATCH:
                self._check_pending()
        return walk

    def _check_pending(self) -> None:
        """Verify the pending signatures; a chain's flaw is its first bad record."""
        if self._verifier is None or not self._pending:
            return
        checks = self._verifier.check([claim for _, _, claim in self._pending])
        for (walk, sequence, claim), check in zip(self._pending, checks, strict=True):
            finding = signature_finding(claim, sequence, check)
            if finding is None:
                walk.signed_through = max(walk.signed_through, sequence)
            elif walk.task_id not in self._flawed or self._flawed[walk.task_id].sequence > sequence:
                self._flawed[walk.task_id] = finding
        self._pending.clear()

    def _get_walk(self, task_id: str) -> ChainWalk:
        walk = self._walks.get(task_id)
        if walk is None:
            walk = self._walks[task_id] = ChainWalk(self.ledger, task_id, self._anchors.get(task_id, {}))
        return walk

    def _add_checkpoints(self, candidates: Iterable[tuple[Checkpoint, bool]]) -> None:
        """Store the checkpoints, in the order of their sizes, that the records must match."""
        size, dates = 0, list[datetime]()  # of the last checkpoint, and of those of smaller sizes
        for checkpoint, outside in candidates:
            if checkpoint.size > size:
                size, dates = checkpoint.size, [*dates, *self._dates_at(size)]
            if self._may_count(checkpoint, max(dates, default=None), outside=outside):
                self._checkpoints.setdefault(checkpoint.size, []).append((checkpoint, outside))
        if 0 in self._checkpoints:
            self._compare_checkpoints()

    def _may_count(self, checkpoint: Checkpoint, after: datetime | None, *, outside: bool) -> bool:
        """Return whether the records have to match a checkpoint, and report one that should not be there."""
        if checkpoint.ledger != self.ledger:
            if not outside:
                self._reasons.append(f"a checkpoint is of the ledger {checkpoint.ledger!r}, not of {self.ledger!r}")
            return False
        if self._verifier is None or (checkpoint.signature is None and outside):
            return outside
        check = checkpoint.check(self._verifier, after)
        if check is not SignatureCheck.GOOD:
            self._reasons.append(
                f"the signature of the checkpoint at {checkpoint.size} records, by the key "
                f"{checkpoint.key_id!r}, does not count: {check.value}"
            )
            return False
        self._signed_through = max(self._signed_through, checkpoint.size)
        return True

    def _dates_at(self, size: int) -> list[datetime]:
        """Return when the stored checkpoints of a size were made."""
        dates = [checkpoint.made_at for checkpoint, _ in self._checkpoints.get(size, ())]
        return [date for date in dates if date is not None]

    def _compare_checkpoints(self) -> None:
        """Compare the records so far with the checkpoints of their number; all of them must match."""
        size, digest = self.size, format_digest(self._digest)
        if any(checkpoint.digest != digest for checkpoint, _ in self._checkpoints[size]):
            self._reasons.append(
                f"the first {size} records are not those of the checkpoint at {size}: between record "
                f"{self._checkpointed_through + 1} and {size} one was changed, removed, added or moved"
            )
            return
        self._checkpointed_through = size
        self.after = max([*self._dates_at(size), *([self.after] if self.after else [])], default=None)
        outside = [checkpoint.made_at for checkpoint, outside in self._checkpoints[size] if outside]
        compared_at = max((date for date in outside if date is not None), default=None)
        self._compared_at = compared_at or self._compared_at
        for walk in self._uncovered:
            walk.mark_covered(compared_at, outside=bool(outside))
        self._uncovered.clear()


_UNREADABLE_REASONS = {
    Flaw.HEADER: "its header is not valid",
    Flaw.MESSAGE: "its message is not strict JSON, so parsers could disagree about it",
}


def _find_unreadable_part(record: AuditRecord) -> Flaw | None:
    """Return the part of an unchanged record that cannot be parsed, or None."""
    flaw = Flaw.HEADER
    try:
        _ = record.fields
        flaw = Flaw.MESSAGE
        _ = record.body
    except (ValidationError, HandoffError):
        return flaw
    return None


def _make_report(walk: ChainWalk, finding: Finding | None) -> ChainReport:
    """Return the report on a chain with its first bad record, if any."""
    records = walk.sequence
    if finding is None:
        verdict = Verdict.VALID if walk.anchored_through == walk.sequence else Verdict.UNANCHORED
    elif finding.flaw in _UNPROVED:
        verdict = Verdict.UNVERIFIED
    else:
        verdict, records = Verdict.INVALID, min(walk.sequence, finding.sequence - 1)
    return ChainReport(
        verdict=verdict,
        ledger=walk.ledger,
        task_id=walk.task_id,
        records=records,
        sequence=finding.sequence if finding else None,
        flaw=finding.flaw if finding else None,
        reason=finding.reason if finding else None,
        head=walk.head if records == walk.sequence else None,
        signed_through=min(walk.signed_through, records),
        anchored_through=min(walk.anchored_through, records),
        compared_at=walk.compared_at,
    )
