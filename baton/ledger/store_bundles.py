"""Evidence bundles as files: what they are written with, and read with.

A bundle is an evidence file (`baton.ledger.evidence`), compressed with Zstandard; uncompressed ones are read
as well. Verifying one needs nothing but public keys: no database, no Temporal, no network.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from baton.ledger.chain import ChainHead, HeadVerifier
from baton.ledger.errors import EvidenceError, LedgerUnavailableError
from baton.ledger.evidence import EvidenceReport, verify_evidence
from baton.ledger.proof import Checkpoint
from baton.wire.zstandard import zstd

LONGEST_LINE = 64 * 1024 * 1024
"""The longest line that is read: whatever a hostile file holds, no more memory is taken."""

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK = 64 * 1024  # small enough to stay in the cache of a processor


def verify_bundle(
    path: Path,
    *,
    verifier: HeadVerifier | None = None,
    ledger: str | None = None,
    anchors: Iterable[ChainHead] = (),
    checkpoints: Iterable[Checkpoint] = (),
) -> EvidenceReport:
    """Return whether a bundle is whole and genuine, offline and by public keys only."""
    with bundle_lines(path) as lines:
        return verify_evidence(lines, verifier=verifier, ledger=ledger, anchors=anchors, checkpoints=checkpoints)


@contextlib.contextmanager
def bundle_lines(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a bundle and give its lines, without their line breaks."""
    try:
        with open(path, "rb") as file:
            yield _lines(file)
    except OSError as error:
        raise LedgerUnavailableError(f"cannot read the bundle {str(path)!r}: {error.strerror or error}") from error


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    plain = file.read(len(_MAGIC)) != _MAGIC
    file.seek(0)
    reader: Any = file if plain else zstd.ZstdFile(file)
    begun, size = list[bytes](), 0  # the pieces of a line: joined at its end alone, for it may be long
    try:
        while block := reader.read(_BLOCK):
            piece, *lines = block.split(b"\n")
            begun.append(piece)
            size += len(piece)
            if lines:
                yield b"".join(begun)
                yield from lines[:-1]
                begun, size = [lines[-1]], len(lines[-1])
            if size > LONGEST_LINE:
                raise EvidenceError(f"it has a line of more than {LONGEST_LINE} bytes")
    except (zstd.ZstdError, EOFError) as error:
        raise EvidenceError(f"its compression is damaged or torn: {error}") from error
    if size:
        raise EvidenceError("its last line is torn")


class BundleWriter:
    """Writes a bundle beside its place, and moves it there when it is whole; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(f".new-{path.name}")

    def __enter__(self) -> "BundleWriter":
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._new, "wb")  # closed by __exit__
        except OSError as error:
            raise self._unwritable(error) from error
        self._compressor = zstd.ZstdCompressor(9)
        return self

    def write(self, lines: Iterable[bytes]) -> None:
        """Write lines."""
        try:
            self._file.write(self._compressor.compress(b"".join(lines)))
        except OSError as error:
            raise self._unwritable(error) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._file.write(self._compressor.flush())
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                os.replace(self._new, self._path)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            self._new.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> LedgerUnavailableError:
        return LedgerUnavailableError(f"cannot write the bundle {str(self._path)!r}: {error.strerror or error}")
