"""Evidence bundles as files: exporting records of some tasks or of the whole ledger, reading and restoring them.

A bundle is an evidence file (`baton.ledger.evidence`), compressed with Zstandard; uncompressed ones are read
as well. Verifying one needs nothing but public keys: no database, no Temporal, no network.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from baton.ledger.chain import ChainHead, ChainReport, HeadSigner, HeadVerifier, Verdict
from baton.ledger.evidence import (
    BUNDLE,
    EvidenceFile,
    EvidenceReport,
    Manifest,
    index_digest,
    index_line,
    pack,
    record_lines,
    verify_evidence,
)
from baton.ledger.proof import Checkpoint, LedgerReport, LedgerWalk, verify_chain
from baton.ledger.records import AuditRecord, EvidenceError, LedgerConflictError, LedgerError, LedgerUnavailableError
from baton.ledger.store_checkpoints import Checkpoints
from baton.ledger.store_database import Connection, scalar
from baton.ledger.store_reader import Reader
from baton.ledger.store_schema import HASH_AT, StoredRecord, insert
from baton.wire.zstandard import zstd

LONGEST_LINE = 64 * 1024 * 1024
"""The longest line that is read: whatever a hostile file holds, no more memory is taken."""

_MAGIC = b"\x28\xb5\x2f\xfd"
_AT_ONCE = 500  # records that are restored at a time
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


@dataclass(frozen=True)
class Exporter:
    """Writes bundles of one ledger.

    Attributes:
        reader: Reads its records.
        checkpoints: Its checkpoints.
        name: Its name.
        signer: Who vouches for a bundle as a whole, or None.
        clock: Gives the time.
    """

    reader: Reader
    checkpoints: Checkpoints
    name: str
    signer: HeadSigner | None
    clock: Callable[[], datetime]

    async def tasks(
        self, path: Path, task_ids: Sequence[str], keys: Sequence[Mapping[str, Any]], verifier: HeadVerifier | None
    ) -> Manifest:
        """Write the whole chains of some tasks, with the proofs that they stand in the newest checkpoint."""
        records: list[AuditRecord] = []
        heads = []
        for task_id in dict.fromkeys(task_ids):
            chain = await self.reader.task(task_id)
            if not chain:
                raise LedgerError(f"the ledger {self.name!r} has no records of task {task_id!r}; check the id")
            _refuse_invalid(verify_chain(chain, ledger=self.name, task_id=task_id, verifier=verifier))
            heads.append(ChainHead.of(chain[-1]))
            records += chain
        records.sort(key=lambda record: record.position)
        newest = (await self.checkpoints.all())[-1:]
        proofs = await self.checkpoints.inclusions(records, newest[0]) if newest else []
        manifest = self._manifest(
            [index_line(one.hash, one.position, one.signature) for one in records],
            heads=heads,
            keys=keys,
            checkpoints=newest,
            proofs=proofs,
        )
        await asyncio.to_thread(_write, path, manifest, self.signer, records)
        return manifest

    async def everything(
        self, path: Path, keys: Sequence[Mapping[str, Any]], verifier: HeadVerifier | None
    ) -> Manifest:
        """Write the whole ledger, with its newest checkpoint."""
        end = await self.reader.end()
        claimed, damaged = await self.checkpoints.all_there_are()
        walk = LedgerWalk(self.name, verifier=verifier, claimed=claimed, reasons=damaged)
        manifest = self._manifest(
            await self.reader.index_lines(end), keys=keys, checkpoints=(await self.checkpoints.all())[-1:]
        )
        with BundleWriter(path) as bundle:
            bundle.write(pack(manifest, [], self.signer))
            async for page in self.reader.pages(end):
                await asyncio.to_thread(bundle.write, [record_lines(record) for record in page])
                await asyncio.to_thread(walk.feed_all, page)
            _refuse_invalid(walk.finish())
        return manifest

    def _manifest(self, lines: Sequence[bytes], *, keys: Sequence[Mapping[str, Any]], **about: Any) -> Manifest:
        return Manifest(
            format=BUNDLE,
            ledger=self.name,
            created_at=self.clock(),
            records=len(lines),
            index=index_digest(lines),
            keys=tuple(dict(key) for key in keys),
            **about,
        )


def _refuse_invalid(report: ChainReport | LedgerReport) -> None:
    """Make sure that no bundle vouches for records that verification calls invalid."""
    if report.verdict is not Verdict.INVALID:
        return
    flawed = [report] if isinstance(report, ChainReport) else report.flawed
    found = [] if isinstance(report, ChainReport) else [*report.reasons]
    found += [f"record {one.sequence} of task {one.task_id!r}: {one.reason}" for one in flawed]
    raise LedgerError(f"what is invalid is not exported as evidence: {'; '.join(found[:5])}")


def _write(path: Path, manifest: Manifest, signer: HeadSigner | None, records: Sequence[AuditRecord]) -> None:
    with BundleWriter(path) as bundle:
        bundle.write(pack(manifest, records, signer))


def restore(connection: Connection, path: Path) -> None:
    """Add the records of a verified bundle to a ledger, byte for byte; those it has already are left alone."""
    with bundle_lines(path) as lines:
        records = EvidenceFile.open(lines).records()
        while batch := list(itertools.islice(records, _AT_ONCE)):
            insert(connection, [StoredRecord.of(record) for record in batch if not _is_there(connection, record)])


def _is_there(connection: Connection, record: AuditRecord) -> bool:
    task_id, sequence = record.members["taskId"], record.members["sequence"]
    known = scalar(connection, HASH_AT, task_id, sequence)
    if known is not None and known != record.hash:
        raise LedgerConflictError(
            f"the ledger has another record {sequence} of task {task_id!r} than the bundle: verify both, "
            "and restore into an empty ledger"
        )
    return known is not None
