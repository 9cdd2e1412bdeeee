"""Checkpoints, and the verification of a task's chain, a whole ledger or a bundle.

A checkpoint is a running hash over a ledger's records in their order: who has one computes the next from the records
since then alone. It dates what follows it: a record behind a checkpoint is not older than that checkpoint, whatever it
says itself, so who has an old key cannot add to the past.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import rfc8785
from pydantic import ValidationError

from baton.errors import HandoffError
from baton.keys.claims import Claim, HeadSigner, HeadVerifier, SignatureCheck
from baton.ledger.chain import (
    UNPROVED,
    ChainEnd,
    ChainHead,
    ChainWalk,
    Finding,
    Flaw,
    Verdict,
    anchors_by_task,
    check_ends,
)
from baton.ledger.records import AuditRecord, EvidenceError
from baton.wire.base64url import from_base64url, to_base64url
from baton.wire.json_values import format_digest, pae, parse_digest
from baton.wire.records import CamelRecord, Count, Digest, Instant
from baton.wire.text import quantity

EMPTY_DIGEST = hashlib.sha256(b"baton/ledger-digest/v1").digest()
"""The digest of a ledger without records."""


def fold(digest: bytes, leaf: bytes) -> bytes:
    """Return the digest of a ledger whose next record has this leaf (`AuditRecord.leaf`)."""
    return hashlib.sha256(digest + leaf).digest()


_CHECKPOINT = "baton/ledger-checkpoint/v1"
_VERIFIED = "baton/ledger-verified/v1"
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


class Verified(Checkpoint):
    """How far a ledger was verified, signed by who verified it; no checkpoint of the ledger's own keys passes for one.

    `at` is when the verification began: the records behind it were added later.
    """

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        return pae(_VERIFIED, rfc8785.dumps(self.model_dump(mode="json", exclude={"signature"})))


def newest_of(checkpoints: Iterable[Checkpoint], ledger: str) -> Checkpoint | None:
    """Return the checkpoint of a ledger that covers the most records, or None."""
    own = [checkpoint for checkpoint in checkpoints if checkpoint.ledger == ledger]
    return max(own, key=lambda checkpoint: checkpoint.size, default=None)


def latest(moment: datetime, other: datetime | None) -> datetime:
    """Return the later of two times."""
    return moment if other is None else max(moment, other)


@dataclass(frozen=True)
class Trust:
    """What a verifier believes.

    Attributes:
        keys: The public keys; without them no signature counts.
        anchors: Heads that were kept outside the ledger.
        checkpoints: Checkpoints that were kept outside it. Records of one task alone cannot be compared with them: the
            caller has done that.
        claimed: The ledger's own checkpoints, which count only if they are signed. Of one task they only date the
            records behind them: the caller has checked their signatures.
    """

    keys: HeadVerifier | None = None
    anchors: Iterable[ChainHead] = ()
    checkpoints: Sequence[Checkpoint] = ()
    claimed: Sequence[Checkpoint] = ()


@dataclass(frozen=True)
class Scope:
    """What is verified: all records of a ledger in its order, or the chain of one task.

    The records of a task are also parsed: a record that was forged without a key can fit into the chain and still
    contain what no ledger writes.

    Attributes:
        ledger: The ledger's name.
        task_id: The task, or None for the whole ledger.
        expected_head: The head that the task's chain must end with.
    """

    ledger: str
    task_id: str | None = None
    expected_head: ChainHead | None = None


class Report(CamelRecord):
    """The result of verifying a task's chain, a whole ledger or a bundle; true only if it is valid.

    Attributes:
        verdict: The verdict.
        ledger: The ledger's name.
        task_id: The task that was verified alone, or None.
        records: The number of records.
        verified_before: How many of them an earlier verification proved, which were not read again.
        verified_at: When that was; None if all were read.
        linked: How many of them form unbroken chains from their first.
        tasks: The number of chains that were read.
        digest: The running hash over all records.
        checkpointed_through: How many records of the ledger, from the first, a checkpoint covers.
        compared_at: When the newest external checkpoint was made that matches and no anchor outdoes; None without
            one. Records that were added since then and cut off again go unnoticed.
        findings: The first `MAX_REPORTED` flaws: those of the ledger or file itself, then for each chain that is not
            proved its first bad or unproved record, the worst first.
        flaws: How many flaws there are.
        unanchored: How many chains have an end that no anchor or external checkpoint covers.
        head: The head of the task's chain as far as it is unbroken; None if it is empty.
        signed_through: The last record of the task that a verified signature covers; 0 for none.
        anchored_through: The last record of the task that matches an anchor or an external checkpoint; a cut after it
            goes unnoticed.
        created_at: When the bundle was made, according to its manifest.
        signed_by: The key whose signature over the bundle's manifest is good, or None.
        task_ids: The first `MAX_REPORTED` tasks of the bundle, in the order of their first records.
    """

    verdict: Verdict
    ledger: str
    task_id: str | None = None
    records: int
    verified_before: Count = 0
    verified_at: Instant | None = None
    linked: int
    tasks: int
    digest: Digest
    checkpointed_through: int = 0
    compared_at: Instant | None = None
    findings: tuple[Finding, ...] = ()
    flaws: int = 0
    unanchored: int = 0
    head: ChainHead | None = None
    signed_through: int = 0
    anchored_through: int = 0
    created_at: Instant | None = None
    signed_by: str | None = None
    task_ids: tuple[str, ...] = ()

    def to_json_object(self) -> dict[str, Any]:
        """Return the report as a JSON object without absent members."""
        return self.model_dump(mode="json", exclude_none=True)

    def __bool__(self) -> bool:
        return self.verdict is Verdict.VALID


def verify(records: Iterable[AuditRecord], trust: Trust, scope: Scope, findings: Iterable[Finding] = ()) -> Report:
    """Verify that these records are complete, unchanged and in order.

    Args:
        records: The records, from a table or a file.
        trust: What proves them.
        scope: What they are.
        findings: What was found already about their source.

    Raises:
        ValueError: The expected head is not of this task or ledger.
    """
    verification = Verification(trust, scope, findings)
    verification.feed(records)
    return verification.report()


class Verification:
    """`verify` in progress, for records that arrive in pages.

    With ``start`` it begins after the records that were verified before: they are not read again, but each chain that
    new records continue is verified from its first record (`recall`).
    """

    def __init__(
        self, trust: Trust, scope: Scope, findings: Iterable[Finding] = (), *, start: Verified | None = None
    ) -> None:
        expected = scope.expected_head
        if expected is not None and (expected.ledger, expected.task_id) != (scope.ledger, scope.task_id):
            raise ValueError(
                f"the expected head is of the task {expected.task_id!r}, not {scope.task_id!r} in {scope.ledger!r}"
            )
        self.size = 0
        self._trust = trust
        self._scope = scope
        heads = [*trust.anchors, *([expected] if expected else [])]
        self._anchors = anchors_by_task([head for head in heads if scope.task_id in (None, head.task_id)], scope.ledger)
        self._walks: dict[str, ChainWalk] = {}
        self._flawed: dict[str, Finding] = {}
        self._pending: list[tuple[ChainWalk, ChainEnd]] = []  # signatures to be verified
        self._findings = list(findings)  # about the ledger or file itself
        self._after: datetime | None = None  # the next records are not older than this
        self._checkpointed_through = 0  # so many records, from the first, match a checkpoint
        self._signed_through = 0  # the maker of a signed checkpoint verified the signatures up to here
        self._uncovered: set[ChainWalk] = set()  # the chains of the records since the last checkpoint
        self._digest = EMPTY_DIGEST
        self._checkpoints: dict[int, list[tuple[Checkpoint, bool]]] = {}  # by size; whether each was kept outside
        self._compared_at: datetime | None = None  # when the newest one was made that was kept outside and matches
        self.last = (0, EMPTY_DIGEST)  # position and hash of the last record
        self._start = start
        if start is not None:
            self.size = self._checkpointed_through = start.size
            self.last = (start.position, parse_digest(start.last_hash))
            self._digest, self._after = parse_digest(start.digest), start.made_at
        if scope.task_id is None:
            candidates = [(checkpoint, True) for checkpoint in trust.checkpoints]
            candidates += [(checkpoint, False) for checkpoint in trust.claimed]
            candidates = [(checkpoint, outside) for checkpoint, outside in candidates if checkpoint.size >= self.size]
            self._add_checkpoints(sorted(candidates, key=lambda pair: pair[0].size))

    @property
    def task_ids(self) -> list[str]:
        """The tasks of all records so far."""
        return [task_id for task_id, walk in self._walks.items() if walk.sequence]

    def ends_with(self, head: ChainHead) -> bool:
        """Return whether the task's chain now ends with this head."""
        walk = self._walks.get(head.task_id)
        return walk is not None and walk.end.head.anchor == head.anchor

    @property
    def anchored_tasks(self) -> list[str]:
        """The tasks that have anchors and no record that was read."""
        return [task_id for task_id in self._anchors if task_id not in self._walks]

    def is_new(self, task_id: str) -> bool:
        """Return whether no record of a task was read yet."""
        return task_id not in self._walks

    def recall(self, records: Iterable[AuditRecord]) -> None:
        """Read the records of chains before the start; a changed or missing one is a flaw of its chain."""
        for record in records:
            task_id = record.claims.task_id if record.claims else ""
            walk = self._get_walk(task_id)
            if task_id not in self._flawed and (finding := walk.step(record)) is not None:
                self._flawed[task_id] = finding
            walk.recalled = walk.sequence
            walk.mark_covered(None, outside=False)

    def add(self, reason: str, flaw: Flaw = Flaw.FILE) -> None:
        """Add a flaw of the ledger or file itself."""
        self._findings.append(Finding(flaw=flaw, reason=reason))

    def feed(self, records: Iterable[AuditRecord]) -> None:
        """Verify the next records; a file that ends too early is a flaw of it."""
        try:
            for record in records:
                self._digest, self.last = fold(self._digest, record.leaf), (record.position, record.hash)
                self.size += 1
                self._step(record)
                if self.size in self._checkpoints:
                    self._compare_checkpoints()
        except EvidenceError as error:
            self.add(str(error))

    def report(self) -> Report:
        """Return the report on the records so far."""
        self._check_pending()
        task_id = self._scope.task_id
        for anchored in self._anchors.keys() if task_id is None else {task_id}:
            self._get_walk(anchored)
        walks = self._walks.values()
        flawed = {walk: finding for walk in walks if (finding := self._get_finding(walk)) is not None}
        # Of a hostile file every record may be unreadable: what else is wrong with it comes first.
        findings = sorted([*self._findings, *self._find_missing()], key=lambda finding: finding.flaw is Flaw.HEADER)
        findings += sorted(flawed.values(), key=lambda finding: finding.flaw in UNPROVED)
        unanchored = sum(walk.anchored_through < walk.sequence for walk in walks)
        if any(finding.verdict is Verdict.INVALID for finding in findings):
            verdict = Verdict.INVALID
        elif findings or not self.size:
            verdict = Verdict.UNVERIFIED
        else:
            verdict = Verdict.UNANCHORED if unanchored else Verdict.VALID
        before = self._start.size if self._start else 0
        linked = before + sum(max(0, _count_linked(walk, flawed.get(walk)) - walk.recalled) for walk in walks)
        report = Report(
            verdict=verdict,
            ledger=self._scope.ledger,
            task_id=task_id,
            records=self.size,
            verified_before=before,
            verified_at=self._start.made_at if self._start else None,
            linked=linked,
            tasks=len(walks),
            digest=format_digest(self._digest),
            checkpointed_through=self._checkpointed_through,
            compared_at=self._compared_at,
            findings=tuple(findings[:MAX_REPORTED]),
            flaws=len(findings),
            unanchored=unanchored,
        )
        if task_id is None:
            return report
        walk = self._walks[task_id]
        chain = {
            "head": walk.end.head if 0 < linked == walk.sequence else None,
            "signed_through": min(walk.signed_through, linked),
            "anchored_through": min(walk.anchored_through, linked),
            "compared_at": walk.compared_at,
        }
        return report.model_copy(update=chain)

    def _find_missing(self) -> list[Finding]:
        """Return the checkpoints that cover more records than there are."""
        return [
            Finding(
                flaw=Flaw.CHECKPOINT,
                reason=f"a checkpoint covers {size} records, but there are {self.size}: {size - self.size} or more "
                "are gone",
            )
            for size in sorted(size for size in self._checkpoints if size > self.size)
        ]

    def _get_finding(self, walk: ChainWalk) -> Finding | None:
        finding = self._flawed.get(walk.task_id) or walk.finish(self._trust.keys)
        if finding is not None and finding.flaw is Flaw.UNSIGNED and self._checkpointed_through < self._signed_through:
            return None  # a checkpoint that does not match is reported already; signatures under it were skipped
        expected = self._scope.expected_head
        if finding is None and expected is not None and walk.sequence > expected.sequence:
            extra = walk.sequence - expected.sequence
            reason = f"{quantity(extra, 'record')} {'follows' if extra == 1 else 'follow'} the expected head"
            return walk.finding(Flaw.EXTRA, expected.sequence + 1, reason)
        return finding

    def _step(self, record: AuditRecord) -> None:
        task_id = self._scope.task_id
        if task_id is None:
            try:
                task_id = record.claims.task_id if record.claims else str(record.members["taskId"])
            except ValueError as error:
                if len(self._findings) < MAX_REPORTED:
                    self.add(f"record {self.size} cannot be read: {record.absence or error}", Flaw.HEADER)
                return
        walk = self._get_walk(task_id)
        if task_id in self._flawed:
            return
        finding = walk.step(record)
        if finding is not None:
            self._flawed[task_id] = finding
            return
        if self._scope.task_id is not None:
            self._date_and_parse(walk, record)
        if self._checkpoints:
            self._uncovered.add(walk)
        if self._trust.keys is not None and self.size > self._signed_through and walk.end.signature is not None:
            self._pending.append((walk, walk.end._replace(after=self._after)))
            if len(self._pending) == _SIGNATURE_BATCH:
                self._check_pending()

    def _date_and_parse(self, walk: ChainWalk, record: AuditRecord) -> None:
        """Compare a task's record with checkpoints by its position, and parse it."""
        checkpoints = [*self._trust.checkpoints, *self._trust.claimed]
        dates = [checkpoint.made_at for checkpoint in checkpoints if checkpoint.position < record.position]
        self._after = max((date for date in dates if date is not None), default=None)
        for checkpoint in self._trust.checkpoints:
            if record.position <= checkpoint.position:
                walk.mark_covered(checkpoint.made_at, outside=True)
        if (flaw := _find_unreadable_part(record)) is not None:
            self._flawed[walk.task_id] = walk.finding(flaw, walk.sequence, _UNREADABLE_REASONS[flaw])

    def _check_pending(self) -> None:
        """Verify the pending signatures; a chain's flaw is its first bad record."""
        if self._trust.keys is None or not self._pending:
            return
        findings = check_ends([end for _, end in self._pending], self._trust.keys)
        for (walk, end), finding in zip(self._pending, findings, strict=True):
            sequence, known = end.link.sequence, self._flawed.get(walk.task_id)
            if finding is None:
                walk.signed_through = max(walk.signed_through, sequence)
            elif known is None or known.sequence is None or known.sequence > sequence:
                self._flawed[walk.task_id] = finding
        self._pending.clear()

    def _get_walk(self, task_id: str) -> ChainWalk:
        walk = self._walks.get(task_id)
        if walk is None:
            walk = self._walks[task_id] = ChainWalk(self._scope.ledger, task_id, self._anchors.get(task_id, {}))
        return walk

    def _add_checkpoints(self, candidates: Iterable[tuple[Checkpoint, bool]]) -> None:
        """Store the checkpoints, in the order of their sizes, that the records must match."""
        size, dates = 0, list[datetime]()  # of the last checkpoint, and of those of smaller sizes
        for checkpoint, outside in candidates:
            if checkpoint.size > size:
                size, dates = checkpoint.size, [*dates, *self._dates_at(size)]
            if self._may_count(checkpoint, max(dates, default=None), outside=outside):
                self._checkpoints.setdefault(checkpoint.size, []).append((checkpoint, outside))
        if self.size in self._checkpoints:  # the empty one, or one that ends with what was verified before
            self._compare_checkpoints()

    def _may_count(self, checkpoint: Checkpoint, after: datetime | None, *, outside: bool) -> bool:
        """Return whether the records have to match a checkpoint, and report one that should not be there."""
        if checkpoint.ledger != self._scope.ledger:
            if not outside:
                self.add(
                    f"a checkpoint is of the ledger {checkpoint.ledger!r}, not of {self._scope.ledger!r}",
                    Flaw.CHECKPOINT,
                )
            return False
        if self._trust.keys is None or (checkpoint.signature is None and outside):
            return outside
        check = checkpoint.check(self._trust.keys, after)
        if check is not SignatureCheck.GOOD:
            self.add(
                f"the signature of the checkpoint at {checkpoint.size} records, by the key "
                f"{checkpoint.key_id!r}, does not count: {check.value}",
                Flaw.CHECKPOINT,
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
            self.add(
                f"the first {size} records are not those of the checkpoint at {size}: between record "
                f"{self._checkpointed_through + 1} and {size} one was changed, removed, added or moved",
                Flaw.CHECKPOINT,
            )
            return
        self._checkpointed_through = size
        self._after = max([*self._dates_at(size), *([self._after] if self._after else [])], default=None)
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


def _count_linked(walk: ChainWalk, finding: Finding | None) -> int:
    """Return how many records of a chain, from the first, are unbroken."""
    if finding is None or finding.verdict is not Verdict.INVALID or finding.sequence is None:
        return walk.sequence
    return min(walk.sequence, finding.sequence - 1)
