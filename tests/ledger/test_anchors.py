"""The anchor file: a witness that only sees a ledger grow (security.md 2.3, 2.4 P5, 2.5 T3, T5)."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from baton.ledger.chain import ChainHead
from baton.ledger.proof import Checkpoint
from baton.ledger.records import LedgerError, LedgerUnavailableError, stamp
from baton.ledger.store_evidence import AnchorFile
from baton.wire.json_values import format_digest
from tests.ledger.material import LEDGER, NOW, chain

if sys.platform != "win32":
    import resource


def checkpoint(size: int) -> Checkpoint:
    """Return the checkpoint of a ledger of this size."""
    digest = format_digest(bytes([size]) * 32)
    return Checkpoint(ledger=LEDGER, size=size, position=size, last_hash=digest, digest=digest, at=stamp(NOW))


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
        file.keep(checkpoint(1))
        file.add_heads(heads(1))
        file.keep(checkpoint(2))

        assert file.heads() == [*heads(3), *heads(1)]
        assert file.checkpoints() == [checkpoint(2)], "the newest is enough: it covers what the others cover"
        assert [kept.name for kept in file.path.parent.iterdir()] == [file.path.name]

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
        assert [kept.name for kept in file.path.parent.iterdir()] == [file.path.name]

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
