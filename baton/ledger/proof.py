"""The one verification of audit records: of a task's chain, a whole ledger, a bundle, and what a checkpoint covers.

A checkpoint is the root of a Merkle tree (RFC 6962): one hash for a whole ledger, with short proofs that a record or
an older tree is in it. A leaf is hashed with another prefix than a node, so no inner node passes for a record. The
verifiers follow RFC 9162 §2.1.3.2 and §2.1.4.2 and check the length of every hash first: without that, an empty one
is accepted.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

import rfc8785
from pydantic import ValidationError

from baton.errors import HandoffError
from baton.ledger.chain import (
    ChainHead,
    ChainReport,
    ChainWalk,
    Claim,
    Finding,
    Flaw,
    HeadSigner,
    HeadVerifier,
    SignatureCheck,
    Verdict,
    anchors_by_task,
    from_base64url,
    signature_finding,
    to_base64url,
)
from baton.ledger.records import AuditRecord
from baton.wire.json_values import format_digest, pae, parse_digest
from baton.wire.records import CamelRecord, Count, Digest
from baton.wire.text import quantity

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()
"""The root of a tree without leaves."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf that holds ``data`` (RFC 6962 §2.1)."""
    return hashlib.sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node over its two children (RFC 6962 §2.1)."""
    return hashlib.sha256(b"\1" + left + right).digest()


class Frontier:
    """The right edge of a growing tree: enough to add leaves and to tell the root, in 32 bytes per level."""

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)
        if len(self.peaks) != size.bit_count() or not _hashes(self.peaks):
            raise ValueError(
                f"a tree of {size} leaves has {size.bit_count()} peaks of {HASH_BYTES} bytes; "
                f"got {[len(peak) for peak in self.peaks]}"
            )

    @classmethod
    def of(cls, data: Iterable[bytes]) -> "Frontier":
        """Return the frontier of the tree whose leaves hold ``data``."""
        tree = cls()
        for one in data:
            tree.append(one)
        return tree

    def append(self, data: bytes) -> None:
        """Add a leaf that holds ``data``."""
        sha256, size = hashlib.sha256, self.size
        node = sha256(b"\0" + data).digest()  # `leaf_hash` and `node_hash`, written out: a ledger has many leaves
        while size & 1:
            node = sha256(b"\1" + self.peaks.pop() + node).digest()
            size >>= 1
        self.peaks.append(node)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The root of the tree as it is now."""
        if not self.peaks:
            return EMPTY_ROOT
        node = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            node = node_hash(peak, node)
        return node


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root of the tree with these leaf hashes (RFC 6962 §2.1)."""
    level = list(leaves)
    while len(level) > 1:
        level = _parents(level)
    return level[0] if level else EMPTY_ROOT


def inclusion_proofs(leaves: Sequence[bytes], indexes: Sequence[int]) -> list[list[bytes]]:
    """Return, for each index, the proof that the leaf there is in the tree with these leaf hashes (RFC 6962 §2.1.1)."""
    if any(not 0 <= index < len(leaves) for index in indexes):
        raise IndexError(f"a tree of {len(leaves)} leaves has the indexes 0 to {len(leaves) - 1}; got {indexes!r}")
    level, places = list(leaves), list(indexes)
    proofs: list[list[bytes]] = [[] for _ in places]
    while len(level) > 1:
        for proof, place in zip(proofs, places, strict=True):
            if place ^ 1 < len(level):
                proof.append(level[place ^ 1])
        level, places = _parents(level), [place >> 1 for place in places]
    return proofs


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Return whether ``proof`` leads from a leaf hash at ``index`` to the root of a tree of ``size`` leaves."""
    if not 0 <= index < size or not _hashes([leaf, root, *proof]):
        return False
    node, place, last = leaf, index, size - 1
    for other in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            node = node_hash(other, node)
            place, last = _up_to_a_right_child(place, last)
        else:
            node = node_hash(node, other)
        place, last = place >> 1, last >> 1
    return last == 0 and node == root


def consistency_proof(leaves: Sequence[bytes], old_size: int) -> list[bytes]:
    """Return the proof that the tree of the first ``old_size`` leaves is the beginning of the tree of all."""
    if not 0 <= old_size <= len(leaves):
        raise ValueError(f"a tree of {len(leaves)} leaves never had {old_size}")
    return _subproof(leaves, old_size, whole=True) if old_size else []


def verify_consistency(old_size: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether ``proof`` shows that a tree only grew from ``old_root`` to ``root``."""
    if old_size == size > 0:
        return old_root == root and not proof
    if not 0 <= old_size <= size or not _hashes([old_root, root, *proof]):
        return False
    if old_size == 0:
        return old_root == EMPTY_ROOT and not proof and (size > 0 or root == EMPTY_ROOT)
    path = [old_root, *proof] if old_size.bit_count() == 1 else list(proof)
    if not path:
        return False
    place, last = old_size - 1, size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = path[0]
    for other in path[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old, new = node_hash(other, old), node_hash(other, new)
            place, last = _up_to_a_right_child(place, last)
        else:
            new = node_hash(new, other)
        place, last = place >> 1, last >> 1
    return last == 0 and old == old_root and new == root


def _up_to_a_right_child(place: int, last: int) -> tuple[int, int]:
    """Climb past the levels at which the node has no sibling and is promoted as it is."""
    while place and not place & 1:
        place, last = place >> 1, last >> 1
    return place, last


def _parents(level: list[bytes]) -> list[bytes]:
    """Return the next level up; a last node without a sibling is promoted as it is."""
    parents = [node_hash(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
    return [*parents, level[-1]] if len(level) % 2 else parents


def _subproof(leaves: Sequence[bytes], old_size: int, whole: bool) -> list[bytes]:
    """Return SUBPROOF of RFC 6962 §2.1.2; ``whole`` while the subtree is what the old tree's holder knows."""
    if old_size == len(leaves):
        return [] if whole else [root_of(leaves)]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = leaves[:split], leaves[split:]
    if old_size <= split:
        return [*_subproof(left, old_size, whole), root_of(right)]
    return [*_subproof(right, old_size - split, False), root_of(left)]


def _hashes(values: Iterable[bytes]) -> bool:
    return all(len(value) == HASH_BYTES for value in values)


_CHECKPOINT = "baton/ledger-checkpoint/v1"
_DOUBTS = frozenset({Flaw.UNSIGNED, Flaw.MISSING, Flaw.EMPTY})
MOST_REPORTED = 100
"""How many flawed chains a report on a ledger lists; it counts them all."""
_BATCH = 2_048
"""How many signatures are verified at a time."""


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
        return verifier.check([Claim(self.key_id or "", self.statement, signature, at)])[0]


def verify_chain(
    records: Iterable[AuditRecord],
    *,
    ledger: str,
    task_id: str,
    verifier: HeadVerifier | None = None,
    expected_head: ChainHead | None = None,
    anchors: Iterable[ChainHead] = (),
    compared_through: int = 0,
) -> ChainReport:
    """Return whether these records are a task's whole chain, unchanged and in order, or which is the first bad one.

    Unlike a `LedgerWalk` it reads each record too: one that was forged without a key may hang together with the others
    and hold what no writer records.
    """
    if expected_head is not None and (expected_head.ledger, expected_head.task_id) != (ledger, task_id):
        raise ValueError(f"the expected head is of the task {expected_head.task_id!r}, not {task_id!r} in {ledger!r}")
    outside = [*anchors, *([expected_head] if expected_head else [])]
    walk = LedgerWalk(ledger, verifier=verifier, anchors=[head for head in outside if head.task_id == task_id])
    for record in records:
        chain = walk.feed(record, task_id)
        if chain is None:
            continue
        if chain.sequence == compared_through:
            chain.covered(outside=True)
        if (unread := _unreadable(record)) is not None:
            walk.refuse(chain, unread)
    found = walk.chain_report(task_id)
    extra = 0 if expected_head is None else found.records - expected_head.sequence
    if expected_head is None or extra <= 0 or found.verdict not in (Verdict.VALID, Verdict.UNANCHORED):
        return found
    reason = f"{quantity(extra, 'record')} {'follows' if extra == 1 else 'follow'} the head that was expected"
    about = {"flaw": Flaw.EXTRA, "sequence": expected_head.sequence + 1, "reason": reason}
    return found.model_copy(update={"verdict": Verdict.INVALID} | about)


class LedgerReport(CamelRecord):
    """What the verification of a whole ledger, or of a bundle, found; true only if it is valid.

    Attributes:
        verdict: The verdict.
        ledger: The ledger's name.
        records: How many records there are.
        tasks: How many chains there are.
        root: The root of the tree over all of them.
        checkpointed_through: How many records, from the first, a checkpoint covers.
        flawed: The chains that are not proved, the first `MOST_REPORTED` of them.
        flaws: How many chains are not proved.
        unanchored: How many chains end with a record that was not compared with anything outside.
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
    unanchored: int = 0
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict is Verdict.VALID


class LedgerWalk:
    """A ledger during verification."""

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
        self._flawed: dict[str, Finding] = {}
        self._pending: list[tuple[ChainWalk, int, Claim]] = []  # signatures that are still to be verified
        self._reasons = list(reasons)
        self._covered = 0  # so many records, from the first, are those of a checkpoint
        self._vouched = 0  # up to here, signatures were verified by the maker of a signed checkpoint
        self._since: set[ChainWalk] = set()  # the chains of the records since the last checkpoint
        self._roots: dict[int, set[bytes]] = {}
        self._outside: set[int] = set()  # the sizes of checkpoints that were kept outside
        for checkpoint in checkpoints:
            self._expect(checkpoint, outside=True)
        for checkpoint in claimed:
            self._expect(checkpoint, outside=False)

    @property
    def task_ids(self) -> list[str]:
        """The tasks of the records that were fed."""
        return [task_id for task_id, walk in self._walks.items() if walk.sequence]

    def chain(self, task_id: str) -> ChainWalk | None:
        """Return how far the chain of a task was walked, or None if nothing of it was fed."""
        return self._walks.get(task_id)

    def feed(self, record: AuditRecord, task_id: str | None = None) -> ChainWalk | None:
        """Advance to the next record of the ledger."""
        self.tree.append(record.leaf)
        walk = self._step(record, task_id)
        if self.tree.size in self._roots:
            self._compare_root()
        return walk

    def refuse(self, chain: ChainWalk, flaw: Flaw) -> None:
        """Take the record that a chain was walked to for its first bad one."""
        self._flawed[chain.task_id] = Finding(flaw, chain.sequence, _UNREADABLE[flaw])

    def feed_all(self, records: Iterable[AuditRecord]) -> None:
        """Advance over several records."""
        for record in records:
            self.feed(record)

    def finish(self) -> LedgerReport:
        """Return the report, once every record was fed."""
        for size in sorted(size for size in self._roots if size > self.tree.size):
            gone = size - self.tree.size
            self._reasons.append(
                f"a checkpoint knows {size} records, and there are {self.tree.size}: {gone} or more are gone"
            )
        for task_id in self._anchors.keys() - self._walks.keys():
            self._walk_of(task_id)
        self._check_pending()
        found = [(walk, finding) for walk in self._walks.values() if (finding := self._finding(walk)) is not None]
        found.sort(key=lambda one: one[1].flaw in _DOUBTS)
        unanchored = sum(walk.anchored < walk.sequence for walk in self._walks.values())
        if self._reasons or (found and found[0][1].flaw not in _DOUBTS):
            verdict = Verdict.INVALID
        elif found or not self.tree.size:
            verdict = Verdict.UNVERIFIED
        else:
            verdict = Verdict.UNANCHORED if unanchored else Verdict.VALID
        return LedgerReport(
            verdict=verdict,
            ledger=self.ledger,
            records=self.tree.size,
            tasks=len(self._walks),
            root=format_digest(self.tree.root),
            checkpointed_through=self._covered,
            flawed=tuple(_report(walk, finding) for walk, finding in found[:MOST_REPORTED]),
            flaws=len(found),
            unanchored=unanchored,
            reasons=tuple(self._reasons[:MOST_REPORTED]),
        )

    def chain_report(self, task_id: str) -> ChainReport:
        """Return the report on one chain, once every record was fed."""
        self._check_pending()
        walk = self._walk_of(task_id)
        return _report(walk, self._finding(walk))

    def _finding(self, walk: ChainWalk) -> Finding | None:
        finding = self._flawed.get(walk.task_id) or walk.end(self._verifier)
        if finding is not None and finding.flaw is Flaw.UNSIGNED and self._covered < self._vouched:
            return None  # signatures under a checkpoint that does not fit were not verified, and the reasons say so
        return finding

    def _step(self, record: AuditRecord, task_id: str | None) -> ChainWalk | None:
        if task_id is None:
            try:
                task_id = record.claims.task_id if record.claims else str(record.members["taskId"])
            except ValueError as error:
                self._reasons.append(f"record {self.tree.size} cannot be read: {record.absence or error}")
                return None
        walk = self._walk_of(task_id)
        if task_id in self._flawed:
            return None
        finding = walk.step(record)
        if finding is not None:
            self._flawed[task_id] = finding
            return None
        if self._roots:
            self._since.add(walk)
        claim = walk.claim if self._verifier is not None and self.tree.size > self._vouched else None
        if claim is not None:
            self._pending.append((walk, walk.sequence, claim))
            if len(self._pending) == _BATCH:
                self._check_pending()
        return walk

    def _check_pending(self) -> None:
        """Verify the signatures that wait; of a chain the first bad record is its flaw."""
        if self._verifier is None or not self._pending:
            return
        checks = self._verifier.check([claim for _, _, claim in self._pending])
        for (walk, sequence, claim), check in zip(self._pending, checks, strict=True):
            finding = signature_finding(claim, sequence, check)
            if finding is None:
                walk.signed = max(walk.signed, sequence)
            elif walk.task_id not in self._flawed or self._flawed[walk.task_id].sequence > sequence:
                self._flawed[walk.task_id] = finding
        self._pending.clear()

    def _walk_of(self, task_id: str) -> ChainWalk:
        walk = self._walks.get(task_id)
        if walk is None:
            walk = self._walks[task_id] = ChainWalk(self.ledger, task_id, self._anchors.get(task_id, {}))
        return walk

    def _expect(self, checkpoint: Checkpoint, *, outside: bool) -> None:
        """Remember the root that the tree must have when it has the checkpoint's size."""
        if checkpoint.ledger != self.ledger:
            if not outside:
                self._reasons.append(f"a checkpoint is of the ledger {checkpoint.ledger!r}, not of {self.ledger!r}")
            return
        signed = False
        if self._verifier is not None and (checkpoint.signature is not None or not outside):
            check = checkpoint.check(self._verifier)
            signed = check is SignatureCheck.GOOD
            if not signed:
                self._reasons.append(
                    f"the signature of the checkpoint at {checkpoint.size} records, by the key "
                    f"{checkpoint.key_id!r}, does not count: {check.value}"
                )
                return
        if not (signed or outside):
            return
        self._roots.setdefault(checkpoint.size, set()).add(parse_digest(checkpoint.root))
        if signed:
            self._vouched = max(self._vouched, checkpoint.size)
        if outside:
            self._outside.add(checkpoint.size)
        if checkpoint.size == 0:
            self._compare_root()

    def _compare_root(self) -> None:
        """Compare the tree with the checkpoints of its size; a contradiction among them is one with the tree."""
        size = self.tree.size
        if self._roots[size] != {self.tree.root}:
            self._reasons.append(
                f"the first {size} records are not those of the checkpoint at {size}: between {self._covered + 1} and "
                f"{size} one was changed, removed, added or moved"
            )
            return
        self._covered = size
        for walk in self._since:
            walk.covered(outside=size in self._outside)
        self._since.clear()


_UNREADABLE = {
    Flaw.HEADER: "its header is not one that a ledger writes",
    Flaw.MESSAGE: "its message is not JSON that every reader reads alike",
}


def _unreadable(record: AuditRecord) -> Flaw | None:
    """Return which part of a record that is as it was written cannot be read."""
    flaw = Flaw.HEADER
    try:
        _ = record.fields
        flaw = Flaw.MESSAGE
        _ = record.body
    except (ValidationError, HandoffError):
        return flaw
    return None


def _report(walk: ChainWalk, finding: Finding | None) -> ChainReport:
    """Return the report on a chain as far as it was walked, with its first bad record, if any."""
    records = walk.sequence
    if finding is None:
        verdict = Verdict.VALID if walk.anchored == walk.sequence else Verdict.UNANCHORED
    elif finding.flaw in _DOUBTS:
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
        signed_through=min(walk.signed, records),
        anchored_through=min(walk.anchored, records),
    )
