"""The proofs: that one chain is whole, and that a ledger is, each as a numbered list of obligations.

`verify_chain` takes the records of a task. `LedgerWalk` takes those of all tasks, in the order in which the
ledger took them, and needs one signature for all that a **checkpoint** covers: the signed root of the tree
(RFC 6962) over the first n records. So it also shows that a task's whole chain is gone.

Neither can show what was never recorded, whether a record tells the truth, or anything against somebody who
has the signing key and every anchor.
"""

from collections.abc import Iterable
from datetime import datetime

import rfc8785

from baton.ledger.chain import (
    ChainHead,
    ChainReport,
    ChainWalk,
    Finding,
    Flaw,
    HeadSigner,
    HeadVerifier,
    SignatureCheck,
    Verdict,
    anchors_by_task,
    from_base64url,
    to_base64url,
)
from baton.ledger.merkle import Frontier
from baton.ledger.records import AuditRecord, CamelRecord, event_key
from baton.wire.counting import counted
from baton.wire.hashing import digest_of, hash_of
from baton.wire.pae import pae
from baton.wire.values import Count, Digest

_CHECKPOINT = "baton/ledger-checkpoint/v1"
_DOUBTS = frozenset({Flaw.UNSIGNED, Flaw.MISSING, Flaw.EMPTY})
MOST_REPORTED = 100
"""How many flawed chains a report on a ledger lists; it counts them all."""


class Checkpoint(CamelRecord):
    """The signed state of a whole ledger: how many records it had, and the root of the tree over them.

    Attributes:
        ledger: The ledger's name.
        size: How many records.
        root: The root of the RFC 6962 tree whose leaves hold their hashes, in the ledger's order.
        at: When it was made, as `baton.ledger.records.stamp` writes it.
        key_id: The key that signed, or None.
        signature: Base64url without padding, or None.
    """

    ledger: str
    size: Count
    root: Digest
    at: str
    key_id: str | None = None
    signature: str | None = None

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        members = self.model_dump(mode="json", exclude={"signature"})
        return pae(_CHECKPOINT, rfc8785.dumps(members))

    def signed(self, signer: HeadSigner | None) -> "Checkpoint":
        """Return the checkpoint with a signature; without a signer it is as it was."""
        if signer is None:
            return self
        named = self.model_copy(update={"key_id": signer.key_id})
        return named.model_copy(update={"signature": to_base64url(signer.sign(named.statement))})

    def check(self, verifier: HeadVerifier) -> SignatureCheck:
        """Return what its signature is worth; an unsigned one has a bad signature."""
        try:
            signature = from_base64url(self.signature or "")
            at = datetime.fromisoformat(self.at)
        except ValueError:
            return SignatureCheck.BAD
        return verifier.check(self.key_id or "", self.statement, signature, at)


def verify_chain(
    records: Iterable[AuditRecord],
    *,
    ledger: str,
    task_id: str,
    verifier: HeadVerifier | None = None,
    expected_head: ChainHead | None = None,
    anchors: Iterable[ChainHead] = (),
    every_signature: bool = True,
) -> ChainReport:
    """Return whether these records are a task's whole chain, unchanged and in order, or which is the first bad one.

    The obligations, for each record in turn:

    1. Its header is in the one canonical form, of a known format.
    2. Its message is the one that the header names by hash.
    3. It belongs to this task and this ledger; 4. has the next number; 5. names the hash of the record before
       it, the first one the chain's genesis; 6. is not older than that one.
    7. The ledger's index says the same of it; 8. no anchor knows another record of its number.
    9. Its event is not on record already (C-25).
    10. Its signature, if it has one, counts.

    Then for the chain: 11. the last record is proved, by its signature or by an anchor, and to who has the keys no
    record after a signed one lacks its own; 12. no anchor knows a later one; 13. the expected head is the last one.

    Args:
        records: The chain, in order.
        ledger: The name of the ledger, which the verifier knows and does not read from the records.
        task_id: The task.
        verifier: The public keys; without them only anchors prove anything.
        expected_head: The head that the chain must end with: nothing less, nothing more.
        anchors: Heads that were kept outside the ledger; those of other tasks are left out.
        every_signature: Check the last signature only if False: it covers all before it just as well.

    Raises:
        ValueError: The expected head is of another task or ledger.
    """
    if expected_head is not None and (expected_head.ledger, expected_head.task_id) != (ledger, task_id):
        raise ValueError(f"the expected head is of the task {expected_head.task_id!r}, not {task_id!r} in {ledger!r}")
    outside = [*anchors, *([expected_head] if expected_head else [])]
    walk = ChainWalk(ledger, task_id, anchors_by_task(outside, ledger).get(task_id))
    events: set[str] = set()
    signed = 0
    for record in records:
        finding = walk.step(record)  # 1.-8.
        if finding is None:
            event = event_key(record.members)
            if event in events:  # 9.
                finding = Finding(Flaw.REPEATED, walk.sequence, "its event is on record already")
            events.add(event)
        if finding is None and verifier is not None and every_signature and record.signature is not None:
            finding = walk.check_signature(verifier)  # 10.
            signed = walk.sequence if finding is None else signed
        if finding is not None:
            return report(walk, finding, signed)
    finding, signed = _ending(walk, verifier, signed)  # 11.-12.
    if finding is None and expected_head is not None and walk.sequence > expected_head.sequence:  # 13.
        extra = walk.sequence - expected_head.sequence
        reason = f"{counted(extra, 'record')} {'follows' if extra == 1 else 'follow'} the head that was expected"
        finding = Finding(Flaw.EXTRA, expected_head.sequence + 1, reason)
    return report(walk, finding, signed)


def report(walk: ChainWalk, finding: Finding | None, signed: int) -> ChainReport:
    """Return the report on a chain that was walked as far as ``walk``, with the first bad record, if any."""
    verdict = Verdict.VALID if finding is None else Verdict.UNVERIFIED if finding.flaw in _DOUBTS else Verdict.INVALID
    return ChainReport(
        verdict=verdict,
        ledger=walk.ledger,
        task_id=walk.task_id,
        records=walk.sequence,
        sequence=finding.sequence if finding else None,
        flaw=finding.flaw if finding else None,
        reason=finding.reason if finding else None,
        head=walk.head,
        signed_through=signed,
        anchored_through=walk.anchored,
        completed=walk.completed,
    )


def _ending(walk: ChainWalk, verifier: HeadVerifier | None, signed: int) -> tuple[Finding | None, int]:
    """Return what is wrong with the end of a chain, or unproved about it, and the last record a signature proves."""
    finding = walk.missing_anchor()
    if finding is not None:
        return finding, signed
    if not walk.sequence:
        return Finding(Flaw.EMPTY, 1, "there are no records, and no anchor that knows of any"), signed
    if verifier is not None and walk.signature is not None and signed < walk.sequence:
        finding = walk.check_signature(verifier)
        if finding is not None:
            return finding, signed
        signed = walk.sequence
    proved = max(signed, walk.anchored)
    if proved < walk.sequence:
        remedy = "give the public keys" if verifier is None else "give an anchor that covers them"
        return Finding(Flaw.UNSIGNED, proved + 1, f"nothing proves the records from here on; {remedy}"), signed
    return walk.missing_signature() if verifier is not None else None, signed


class LedgerReport(CamelRecord):
    """What the verification of a whole ledger, or of a bundle, found; true only if it is valid.

    Attributes:
        verdict: The verdict.
        ledger: The ledger's name.
        records: How many records there are.
        tasks: How many chains there are.
        root: The root of the tree over all of them.
        checkpointed_through: How many records, from the first, a checkpoint covers.
        flawed: The chains that are not valid, the first `MOST_REPORTED` of them.
        flaws: How many chains are not valid.
        reasons: What is wrong with the ledger itself, the first `MOST_REPORTED` findings.
    """

    verdict: Verdict
    ledger: str
    records: int
    tasks: int
    root: Digest
    checkpointed_through: int = 0
    flawed: tuple[ChainReport, ...] = ()
    flaws: int = 0
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict is Verdict.VALID


class LedgerWalk:
    """A ledger on its way through verification: `feed` it every record in the ledger's order, then `finish`.

    Beyond what `verify_chain` proves of each chain (obligations 1-8 and 10-12; that no event is on record
    twice is left to it), it proves that

    1. the records up to each checkpoint are those that the checkpoint was made of, in that order;
    2. no checkpoint knows more records than there are; 3. no anchor knows a chain that is not there.

    Args:
        ledger: The ledger's name.
        verifier: The public keys, if there are any.
        anchors: Heads that were kept outside the ledger.
        checkpoints: Checkpoints that were kept outside the ledger; each counts as it is, because of where it
            was, but a signature on it must be good.
        claimed: Checkpoints that come from the ledger itself; these count by their signatures only.
        reasons: What is known to be wrong with the ledger already.
    """

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
        self.tree = Frontier()
        self._verifier = verifier
        self._anchors = anchors_by_task(anchors, ledger)
        self._walks: dict[str, ChainWalk] = {}
        self._flawed: dict[str, ChainReport] = {}
        self._reasons = list(reasons)
        self._covered = 0
        self._roots: dict[int, set[bytes]] = {}
        for checkpoint in checkpoints:
            self._expect(checkpoint, trusted=True)
        for checkpoint in claimed:
            self._expect(checkpoint, trusted=False)

    @property
    def task_ids(self) -> list[str]:
        """The tasks of the records that were fed."""
        return [task_id for task_id, walk in self._walks.items() if walk.sequence]

    def chain(self, task_id: str) -> ChainWalk | None:
        """Return how far the chain of a task was walked, or None if nothing of it was fed."""
        return self._walks.get(task_id)

    def feed(self, record: AuditRecord) -> ChainWalk | None:
        """Go on to the next record of the ledger.

        Returns:
            The walk of its chain, now at this record; None if the record, or one before it, is flawed.
        """
        self.tree.append(record.hash)
        if self.tree.size in self._roots:
            self._compare_root()
        try:
            task_id = record.claims.task_id if record.claims else record.members["taskId"]
        except ValueError as error:
            self._reasons.append(f"record {self.tree.size} cannot be read: {record.absence or error}")
            return None
        walk = self._walk_of(task_id)
        if task_id in self._flawed:
            return None
        finding = walk.step(record)
        if finding is not None:
            self._flawed[task_id] = report(walk, finding, 0)
            return None
        walk.rank = self.tree.size
        return walk

    def finish(self) -> LedgerReport:
        """Return the report, once every record was fed."""
        for size in sorted(size for size in self._roots if size > self.tree.size):
            gone = size - self.tree.size
            self._reasons.append(
                f"a checkpoint knows {size} records, and there are {self.tree.size}: {gone} or more are gone"
            )
        for task_id in self._anchors.keys() - self._walks.keys():
            self._walk_of(task_id)
        for task_id, walk in self._walks.items():
            if task_id not in self._flawed and (finding := self._end_of(walk)) is not None:
                self._flawed[task_id] = report(walk, finding, 0)
        flawed = [*self._flawed.values()]
        invalid = self._reasons or any(one.verdict is Verdict.INVALID for one in flawed)
        doubtful = flawed or not self.tree.size
        return LedgerReport(
            verdict=Verdict.INVALID if invalid else Verdict.UNVERIFIED if doubtful else Verdict.VALID,
            ledger=self.ledger,
            records=self.tree.size,
            tasks=len(self._walks),
            root=digest_of(self.tree.root),
            checkpointed_through=self._covered,
            flawed=tuple(sorted(flawed, key=lambda one: one.verdict is not Verdict.INVALID)[:MOST_REPORTED]),
            flaws=len(flawed),
            reasons=tuple(self._reasons[:MOST_REPORTED]),
        )

    def _walk_of(self, task_id: str) -> ChainWalk:
        walk = self._walks.get(task_id)
        if walk is None:
            walk = self._walks[task_id] = ChainWalk(self.ledger, task_id, self._anchors.get(task_id))
        return walk

    def _end_of(self, walk: ChainWalk) -> Finding | None:
        """Return what is wrong with the end of a chain; one that a checkpoint covers needs no signature of its own."""
        covered = walk.sequence > 0 and walk.rank <= self._covered
        return _ending(walk, None if covered else self._verifier, walk.sequence if covered else 0)[0]

    def _expect(self, checkpoint: Checkpoint, *, trusted: bool) -> None:
        """Remember the root that the tree must have when it has the checkpoint's size."""
        if checkpoint.ledger != self.ledger:
            self._reasons.append(f"a checkpoint is of the ledger {checkpoint.ledger!r}, not of {self.ledger!r}")
            return
        if self._verifier is None or (trusted and checkpoint.signature is None):
            counts = trusted
        else:
            check = checkpoint.check(self._verifier)
            counts = check is SignatureCheck.GOOD
            if not counts:
                self._reasons.append(
                    f"the signature of the checkpoint at {checkpoint.size} records, by the key "
                    f"{checkpoint.key_id!r}, does not count: {check.value}"
                )
        if counts:
            self._roots.setdefault(checkpoint.size, set()).add(hash_of(checkpoint.root))
            if checkpoint.size == 0:
                self._compare_root()

    def _compare_root(self) -> None:
        """Compare the tree with the checkpoints of its size; a contradiction among them is one with the tree."""
        size = self.tree.size
        if self._roots[size] == {self.tree.root}:
            self._covered = size
            return
        self._reasons.append(
            f"the first {size} records are not those of the checkpoint at {size}: between {self._covered + 1} and "
            f"{size} one was changed, removed, added or moved"
        )
