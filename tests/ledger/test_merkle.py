"""The tree of RFC 6962, tested with published probes and against itself."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.ledger.proof import (
    EMPTY_ROOT,
    Frontier,
    consistency_proof,
    inclusion_proofs,
    leaf_hash,
    node_hash,
    root_of,
    verify_consistency,
    verify_inclusion,
)

PROBES = json.loads((Path(__file__).parents[1] / "data" / "merkle-rfc6962" / "probes.json").read_text())


def _bytes(text: str | None) -> bytes:
    return base64.b64decode(text or "")


def _leaves(size: int) -> list[bytes]:
    return [leaf_hash(bytes([number])) for number in range(size)]


class TestVerifyInclusion:
    def test_published_probes_are_answered_correctly(self) -> None:
        """Hostile proofs, including empty hashes, are refused; genuine ones pass (security.md 2.5 T7)."""
        for name, probe in PROBES["inclusion"].items():
            proof = [_bytes(node) for node in probe["proof"] or []]
            leaf, root = _bytes(probe["leafHash"]), _bytes(probe["root"])
            verified = verify_inclusion(leaf, probe["leafIdx"], probe["treeSize"], proof, root)

            assert verified is not probe["wantErr"], name

    @given(size=st.integers(1, 70), data=st.data())
    def test_every_leaf_of_every_tree_is_proved(self, size: int, data: st.DataObject) -> None:
        """The prover and the verifier agree for trees of any shape."""
        index = data.draw(st.integers(0, size - 1))
        leaves = _leaves(size)
        [proof] = inclusion_proofs(leaves, [index])

        assert verify_inclusion(leaves[index], index, size, proof, root_of(leaves))

    @given(size=st.integers(2, 40), data=st.data())
    def test_no_leaf_is_proved_at_another_index(self, size: int, data: st.DataObject) -> None:
        """A proof is invalid for another index."""
        index, other_index = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
        leaves = _leaves(size)
        [proof] = inclusion_proofs(leaves, [index])

        assert not verify_inclusion(leaves[index], other_index, size, proof, root_of(leaves))

    def test_a_missing_leaf_has_no_proof(self) -> None:
        """Asking for one is a mistake of the caller."""
        with pytest.raises(IndexError, match="indexes 0 to 2"):
            inclusion_proofs(_leaves(3), [3])


class TestVerifyConsistency:
    def test_published_probes_are_answered_correctly(self) -> None:
        """Hostile proofs are refused; genuine ones pass (security.md 2.5 T7)."""
        for name, probe in PROBES["consistency"].items():
            proof = [_bytes(node) for node in probe["proof"] or []]
            old, new = _bytes(probe["root1"]), _bytes(probe["root2"])

            assert verify_consistency(probe["size1"], old, probe["size2"], new, proof) is not probe["wantErr"], name

    @given(size=st.integers(0, 70), data=st.data())
    def test_every_prefix_of_every_tree_is_proved(self, size: int, data: st.DataObject) -> None:
        """The prover and the verifier agree for trees of any shape, including the empty one."""
        old = data.draw(st.integers(0, size))
        leaves = _leaves(size)

        assert verify_consistency(old, root_of(leaves[:old]), size, root_of(leaves), consistency_proof(leaves, old))

    def test_a_rewritten_tree_is_not_an_extension(self) -> None:
        """No proof hides a changed old leaf (P4)."""
        old, new = _leaves(5), [leaf_hash(b"forged"), *_leaves(8)[1:]]

        assert not verify_consistency(5, root_of(old), 8, root_of(new), consistency_proof(new, 5))

    def test_a_proof_for_a_larger_old_tree_is_an_error(self) -> None:
        """Asking for such a proof is a mistake of the caller."""
        with pytest.raises(ValueError, match="never had 4"):
            consistency_proof(_leaves(3), 4)


class TestFrontier:
    @given(size=st.integers(0, 70), split=st.integers(0, 70))
    def test_a_tree_continues_from_its_stored_peaks(self, size: int, split: int) -> None:
        """A checkpoint continues from the peaks of the previous one."""
        data = [bytes([number]) for number in range(size)]
        first = Frontier.of(data[:split])
        restored = Frontier(first.size, first.peaks)
        for leaf in data[split:]:
            restored.append(leaf)

        assert (restored.size, restored.root) == (size, root_of([leaf_hash(item) for item in data]))

    def test_the_empty_tree_has_the_root_of_the_rfc(self) -> None:
        """RFC 6962 §2.1: the hash of nothing."""
        assert Frontier().root == EMPTY_ROOT == root_of([])

    @pytest.mark.parametrize(
        ("size", "peaks"),
        [
            pytest.param(3, [b"x" * 32], id="a peak is missing"),
            pytest.param(1, [b"x" * 31], id="a peak is no hash"),
            pytest.param(0, [b"x" * 32], id="a peak of nothing"),
        ],
    )
    def test_inconsistent_peaks_are_refused(self, size: int, peaks: list[bytes]) -> None:
        """A damaged checkpoint in the database does not become a root."""
        with pytest.raises(ValueError, match="peaks of 32 bytes"):
            Frontier(size, peaks)

    def test_a_node_never_has_the_hash_of_a_leaf(self) -> None:
        """Two hashes cannot pass for a record."""
        assert node_hash(b"a" * 32, b"b" * 32) != leaf_hash(b"a" * 32 + b"b" * 32)
