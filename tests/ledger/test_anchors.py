"""The anchor file: a witness that only sees a ledger grow (security.md 2.3, 2.4 P5, 2.5 T3, T5)."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from baton.ledger.chain import ChainHead
from baton.ledger.proof import Checkpoint, consistency_proof, leaf_hash, root_of
from baton.ledger.records import LedgerError, LedgerUnavailableError, stamp
from baton.ledger.store_evidence import AnchorFile
from baton.wire.json_values import format_digest
from tests.ledger.material import LEDGER, NOW, chain

if sys.platform != "win32":
    import resource

LEAVES = [leaf_hash(bytes([number])) for number in range(9)]


def checkpoint(size: int, leaves: list[bytes] = LEAVES, ledger: str = LEDGER) -> Checkpoint:
    """Return the checkpoint of a ledger of this size."""
    return Checkpoint(ledger=ledger, size=size, root=format_digest(root_of(leaves[:size])), at=stamp(NOW))


def proof(old: int, new: int, leaves: list[bytes] = LEAVES) -> list[bytes]:
    """Return the proof that the ledger only grew."""
    return consistency_proof(leaves[:new], old)


@pytest.fixture
def file(tmp_path: Path) -> AnchorFile:
    """Return an anchor file in a folder that does not exist."""
    return AnchorFile(tmp_path / "elsewhere" / "anchors.jsonl")


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """Limit the size of this process's files, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def heads(count: int) -> list[ChainHead]:
    return [ChainHead.of(record) for record in chain(count)]


class TestAddHeads:
    def test_anchors_are_read_back_in_order(self, file: AnchorFile) -> None:
        """Heads and checkpoints share the file."""
        file.add_heads(heads(3))
        file.add_checkpoint(checkpoint(1))
        file.add_heads(heads(1))

        assert file.heads() == [*heads(3), *heads(1)]
        assert file.checkpoints() == [checkpoint(1)]

    def test_a_missing_file_is_empty(self, file: AnchorFile) -> None:
        """Nothing was kept yet."""
        assert (file.heads(), file.checkpoints()) == ([], [])

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit to the size of a file")
    def test_a_full_disk_is_an_error(self, file: AnchorFile) -> None:
        """No new anchor is stored, and the earlier ones stay (F13)."""
        file.add_heads(heads(1))
        content = file.path.read_bytes()

        with no_room_beyond(len(content) + 40), pytest.raises(LedgerUnavailableError, match="File too large"):
            file.add_heads(heads(2))

        assert file.path.read_bytes() == content

    def test_the_next_writer_removes_a_truncated_line(self, file: AnchorFile) -> None:
        """Its writer died before the append returned, so nobody relies on it (T5)."""
        file.add_heads(heads(2))
        content = file.path.read_bytes()
        for cut in range(1, len(content.splitlines(keepends=True)[-1])):
            file.path.write_bytes(content[:-cut])
            assert file.heads() == heads(2 if cut == 1 else 1)  # the line is whole, only its break is not there
            file.add_heads(heads(3)[2:])
            assert file.heads()[-1] == heads(3)[2]
            assert len(file.heads()) == (3 if cut == 1 else 2)

    def test_a_changed_line_is_an_error(self, file: AnchorFile) -> None:
        """It is not skipped: an attacker wants anchors to disappear (T5)."""
        file.add_heads(heads(3))
        lines = file.path.read_bytes().splitlines(keepends=True)
        for spoilt in (b"\n", b"{}\n", b'{"head": {}}\n', b"[1]\n", lines[1][:-5] + b"\n"):
            file.path.write_bytes(b"".join([lines[0], spoilt, lines[2]]))
            with pytest.raises(LedgerError, match="line 2 of"):
                file.heads()

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such lock")
    def test_concurrent_writers_wait_for_each_other(self, file: AnchorFile) -> None:
        """No line is lost or mixed with another."""
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda head: AnchorFile(file.path).add_heads([head]), heads(40)))

        assert sorted(file.heads(), key=lambda head: head.sequence) == heads(40)


class TestAddCheckpoint:
    def test_checkpoints_of_a_growing_ledger_are_accepted(self, file: AnchorFile) -> None:
        """Each has the proof from the last one."""
        for old, new in ((0, 2), (2, 3), (3, 9)):
            file.add_checkpoint(checkpoint(new), proof(old, new))

        assert [kept.size for kept in file.checkpoints()] == [2, 3, 9]

    def test_a_repeated_checkpoint_is_stored_once(self, file: AnchorFile) -> None:
        file.add_checkpoint(checkpoint(3))
        file.add_checkpoint(checkpoint(3))

        assert len(file.checkpoints()) == 1

    @pytest.mark.parametrize(
        ("new", "given"),
        [
            pytest.param(checkpoint(4), [], id="smaller than before"),
            pytest.param(checkpoint(5, [leaf_hash(b"x"), *LEAVES[1:]]), [], id="another one of the same size: a fork"),
            pytest.param(checkpoint(9), [], id="larger, without proof"),
            pytest.param(checkpoint(9), proof(4, 9), id="larger, with the proof of another size"),
            pytest.param(
                checkpoint(9, [leaf_hash(b"x"), *LEAVES[1:]]),
                proof(5, 9, [leaf_hash(b"x"), *LEAVES[1:]]),
                id="larger, with an old record changed",
            ),
            pytest.param(checkpoint(9, ledger="test"), proof(5, 9), id="of another ledger"),
        ],
    )
    def test_any_other_checkpoint_is_refused(self, file: AnchorFile, new: Checkpoint, given: list[bytes]) -> None:
        """Rollbacks, forks and rewritten beginnings are refused (P4, P5, T3)."""
        file.add_checkpoint(checkpoint(5), proof(0, 5))

        with pytest.raises(LedgerError, match="does not continue"):
            file.add_checkpoint(new, given)
        assert file.checkpoints() == [checkpoint(5)]
