"""Merkle trees, checkpoints, and the verification of a task's chain, a whole ledger or a bundle.

A checkpoint is the root of a Merkle tree (RFC 6962): one hash for a whole ledger, with short proofs that a record or
an older tree is in it. Leaves and nodes are hashed with different prefixes, so no inner node passes for a record. The
verifiers follow RFC 9162 §2.1.3.2 and §2.1.4.2 and check the length of every hash first: otherwise they would accept
an empty hash.
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
    """Return the hash of an inner node (RFC 6962 §2.1)."""
    return hashlib.sha256(b"\1" + left + right).digest()


class Frontier:
    """The right edge of a growing tree, at most 32 bytes per level: it takes leaves and gives the root."""

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)
        if len(self.peaks) != size.bit_count() or not _are_hashes(self.peaks):
            raise ValueError(
                f"a tree of {size} leaves has {size.bit_count()} peaks of {HASH_BYTES} bytes; "
                f"got {[len(peak) for peak in self.peaks]}"
            )

    @classmethod
    def of(cls, leaves: Iterable[bytes]) -> "Frontier":
        """Return the frontier of a tree with this data in its leaves."""
        tree = cls()
        for leaf in leaves:
            tree.append(leaf)
        return tree

    def append(self, data: bytes) -> None:
        """Add a leaf that holds ``data``."""
        sha256, size = hashlib.sha256, self.size
        node = sha256(b"\0" + data).digest()  # `leaf_hash` and `node_hash` inlined for speed
        while size & 1:
            node = sha256(b"\1" + self.peaks.pop() + node).digest()
            size >>= 1
        self.peaks.append(node)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The current root of the tree."""
        if not self.peaks:
            return EMPTY_ROOT
        node = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            node = node_hash(peak, node)
        return node


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a tree from its leaf hashes (RFC 6962 §2.1)."""
    level = list(leaves)
    while len(level) > 1:
        level = _parent_level(level)
    return level[0] if level else EMPTY_ROOT


def inclusion_proofs(leaves: Sequence[bytes], indexes: Sequence[int]) -> list[list[bytes]]:
    """Return the proof for the leaf at each index that it is in the tree of these leaf hashes (RFC 6962 §2.1.1)."""
    if any(not 0 <= index < len(leaves) for index in indexes):
        raise IndexError(f"a tree of {len(leaves)} leaves has the indexes 0 to {len(leaves) - 1}; got {indexes!r}")
    level, positions = list(leaves), list(indexes)
    proofs: list[list[bytes]] = [[] for _ in positions]
    while len(level) > 1:
        for proof, position in zip(proofs, positions, strict=True):
            if position ^ 1 < len(level):
                proof.append(level[position ^ 1])
        level, positions = _parent_level(level), [position >> 1 for position in positions]
    return proofs


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Return whether ``proof`` shows that the leaf hash is at ``index`` of a tree with this size and root."""
    if not 0 <= index < size or not _are_hashes([leaf, root, *proof]):
        return False
    node, position, last = leaf, index, size - 1
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            node = node_hash(sibling, node)
            position, last = _skip_promoted(position, last)
        else:
            node = node_hash(node, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and node == root


def consistency_proof(leaves: Sequence[bytes], old_size: int) -> list[bytes]:
    """Return the proof that the tree of all leaves extends the tree of the first ``old_size`` leaves."""
    if not 0 <= old_size <= len(leaves):
        raise ValueError(f"a tree of {len(leaves)} leaves never had {old_size}")
    return _subproof(leaves, old_size, root_known=True) if old_size else []


def verify_consistency(old_size: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether ``proof`` shows that the tree of ``root`` extends the tree of ``old_root``."""
    if old_size == size > 0:
        return old_root == root and not proof
    if not 0 <= old_size <= size or not _are_hashes([old_root, root, *proof]):
        return False
    if old_size == 0:
        return old_root == EMPTY_ROOT and not proof and (size > 0 or root == EMPTY_ROOT)
    path = [old_root, *proof] if old_size.bit_count() == 1 else list(proof)
    if not path:
        return False
    position, last = old_size - 1, size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            position, last = _skip_promoted(position, last)
        else:
            new = node_hash(new, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and old == old_root and new == root


def _skip_promoted(position: int, last: int) -> tuple[int, int]:
    """Climb past the levels at which the node has no sibling and is promoted unchanged."""
    while position and not position & 1:
        position, last = position >> 1, last >> 1
    return position, last


def _parent_level(level: list[bytes]) -> list[bytes]:
    """Return the level above; a last node without a sibling is promoted unchanged."""
    parents = [node_hash(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
    return [*parents, level[-1]] if len(level) % 2 else parents


def _subproof(leaves: Sequence[bytes], old_size: int, root_known: bool) -> list[bytes]:
    """Return SUBPROOF of RFC 6962 §2.1.2; ``root_known`` is its b: the verifier knows the subtree's root."""
    if old_size == len(leaves):
        return [] if root_known else [root_of(leaves)]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = leaves[:split], leaves[split:]
    if old_size <= split:
        return [*_subproof(left, old_size, root_known), root_of(right)]
    return [*_subproof(right, old_size - split, False), root_of(left)]


def _are_hashes(values: Iterable[bytes]) -> bool:
    return all(len(value) == HASH_BYTES for value in values)


_CHECKPOINT = "baton/ledger-checkpoint/v1"
_UNPROVED = frozenset({Flaw.UNSIGNED, Flaw.MISSING, Flaw.EMPTY})
MAX_REPORTED = 100
"""How many flawed chains and reasons a report on a ledger lists at most; it counts all chains."""
_SIGNATURE_BATCH = 2_048
"""How many signatures are verified at a time."""


class Checkpoint(CamelRecord):
    """The signed state of a whole ledger: its size and the root of the tree over its records.

    Attributes:
        ledger: The ledger's name.
        size: The number of records.
        root: The root of the RFC 6962 tree over the records in the ledger's order.
        at: When it was made, in the format of `baton.ledger.records.stamp`.
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
        """Return the checkpoint with a signature, or unchanged without a signer."""
        if signer is None:
            return self
        keyed = self.model_copy(update={"key_id": signer.key_id})
        return keyed.model_copy(update={"signature": to_base64url(signer.sign(keyed.statement))})

    def check(self, verifier: HeadVerifier) -> SignatureCheck:
        """Check the signature; a missing one is bad."""
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
    """Verify that these records are a task's complete chain, unchanged and in order; report the first bad record.

    Unlike `LedgerWalk` it also parses each record: a record that was forged without a key can fit into the chain and
    still contain what no ledger writes.
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
            chain.mark_covered(outside=True)
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
        root: The root of the tree over all records.
        checkpointed_through: How many records, from the first, a checkpoint covers.
        flawed: The first `MAX_REPORTED` chains that are not proved.
        flaws: How many chains are not proved.
        unanchored: How many chains have an end that no anchor or external checkpoint covers.
        reasons: The first `MAX_REPORTED` flaws of the ledger itself.
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
        self.tree = Frontier()
        self._verifier = verifier
        self._anchors = anchors_by_task(anchors, ledger)
        self._walks: dict[str, ChainWalk] = {}
        self._flawed: dict[str, Finding] = {}
        self._pending: list[tuple[ChainWalk, int, Claim]] = []  # signatures to be verified
        self._reasons = list(reasons)
        self._checkpointed_through = 0  # so many records, from the first, match a checkpoint
        self._signed_through = 0  # the maker of a signed checkpoint verified the signatures up to here
        self._uncovered: set[ChainWalk] = set()  # the chains of the records since the last checkpoint
        self._roots: dict[int, set[bytes]] = {}  # by size of the tree
        self._external_sizes: set[int] = set()  # the sizes of checkpoints that were kept outside
        for checkpoint in checkpoints:
            self._add_checkpoint(checkpoint, outside=True)
        for checkpoint in claimed:
            self._add_checkpoint(checkpoint, outside=False)

    @property
    def task_ids(self) -> list[str]:
        """The tasks of all records so far."""
        return [task_id for task_id, walk in self._walks.items() if walk.sequence]

    def chain(self, task_id: str) -> ChainWalk | None:
        """Return the state of a task's chain, or None before its first record."""
        return self._walks.get(task_id)

    def feed(self, record: AuditRecord, task_id: str | None = None) -> ChainWalk | None:
        """Verify the next record of the ledger; return its chain, or None if the record or its chain is flawed."""
        self.tree.append(record.leaf)
        walk = self._step(record, task_id)
        if self.tree.size in self._roots:
            self._compare_root()
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
        for size in sorted(size for size in self._roots if size > self.tree.size):
            missing = size - self.tree.size
            self._reasons.append(
                f"a checkpoint covers {size} records, but there are {self.tree.size}: {missing} or more are gone"
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
        elif findings or not self.tree.size:
            verdict = Verdict.UNVERIFIED
        else:
            verdict = Verdict.UNANCHORED if unanchored else Verdict.VALID
        return LedgerReport(
            verdict=verdict,
            ledger=self.ledger,
            records=self.tree.size,
            tasks=len(self._walks),
            root=format_digest(self.tree.root),
            checkpointed_through=self._checkpointed_through,
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
                self._reasons.append(f"record {self.tree.size} cannot be read: {record.absence or error}")
                return None
        walk = self._get_walk(task_id)
        if task_id in self._flawed:
            return None
        finding = walk.step(record)
        if finding is not None:
            self._flawed[task_id] = finding
            return None
        if self._roots:
            self._uncovered.add(walk)
        claim = walk.claim if self._verifier is not None and self.tree.size > self._signed_through else None
        if claim is not None:
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

    def _add_checkpoint(self, checkpoint: Checkpoint, *, outside: bool) -> None:
        """Store the root that the tree must have at the checkpoint's size."""
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
            self._signed_through = max(self._signed_through, checkpoint.size)
        if outside:
            self._external_sizes.add(checkpoint.size)
        if checkpoint.size == 0:
            self._compare_root()

    def _compare_root(self) -> None:
        """Compare the tree with the checkpoints of its size; all of them must match."""
        size = self.tree.size
        if self._roots[size] != {self.tree.root}:
            self._reasons.append(
                f"the first {size} records are not those of the checkpoint at {size}: between record "
                f"{self._checkpointed_through + 1} and {size} one was changed, removed, added or moved"
            )
            return
        self._checkpointed_through = size
        for walk in self._uncovered:
            walk.mark_covered(outside=size in self._external_sizes)
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
    )
