"""The Merkle tree of RFC 6962: one hash for a whole ledger, short proofs that a record or an older tree is in it.

A leaf is hashed with another prefix than a node, so no inner node passes for a record. The verifiers follow
RFC 9162 §2.1.3.2 and §2.1.4.2 and check the length of every hash first: without that, an empty one is accepted.
"""

import hashlib
from collections.abc import Iterable, Sequence

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
