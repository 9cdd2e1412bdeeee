"""Evidence outside the ledger: checkpoints, anchor files that keep them, and bundles of records.

Verification skips the signatures under a signed checkpoint. So a checkpoint is signed only after each signature under
it was verified, and continues only a checkpoint whose own signature is good.

An anchor file keeps heads, and a ledger's newest checkpoint, apart from the ledger. Put it where the ledger's database
cannot write: another machine, another owner. As a witness it takes a checkpoint only if the records since the one it
has lead to it; records before that are compared by `baton audit verify --all`.

A bundle is an evidence file (`baton.ledger.evidence`), compressed with Zstandard or plain. Verifying it needs only
public keys: no database, no Temporal, no network.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from baton.artifacts.store import sync_folder
from baton.keys.claims import HeadSigner, HeadVerifier, SignatureCheck
from baton.ledger.chain import ChainHead, Finding, Flaw, Verdict, check_ends
from baton.ledger.evidence import (
    BUNDLE,
    Manifest,
    index_digest,
    index_line,
    pack,
    record_lines,
    verify_evidence,
)
from baton.ledger.proof import EMPTY_DIGEST, Checkpoint, Report, Scope, Trust, Verification, fold, verify
from baton.ledger.records import (
    AuditRecord,
    EvidenceError,
    LedgerConflictError,
    LedgerContinuityError,
    LedgerError,
    LedgerUnavailableError,
    stamp,
)
from baton.ledger.store_database import BEFORE_ALL, Connection, DamagedRowError, Database, Row, hashes
from baton.ledger.store_reader import Reader
from baton.ledger.store_schema import (
    CHECKPOINT_COLUMNS,
    newest_checkpoint,
    proved_checkpoints,
    to_checkpoint,
    to_end,
)
from baton.wire.base64url import from_base64url
from baton.wire.json_values import format_digest, parse_digest
from baton.wire.text import quantity
from baton.wire.zstandard import zstd

if sys.platform != "win32":
    import fcntl

Clock = Callable[[], datetime]


class AnchorFile:
    """A file of heads, and of the newest checkpoint of a ledger, one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def heads(self) -> list[ChainHead]:
        """Return every head, the oldest first."""
        return [anchor for anchor in self._read() if isinstance(anchor, ChainHead)]

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoint, if there is one; a file that was put together from others can have several."""
        return [anchor for anchor in self._read() if isinstance(anchor, Checkpoint)]

    def add_heads(self, heads: Sequence[ChainHead]) -> None:
        """Add heads durably."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while (lock := self._try_lock(deadline)) is None:
            time.sleep(_RETRY_SECONDS)
        with lock:
            self._write([*self.heads(), *heads, *self.checkpoints()])

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Lock the file against other processes: a checkpoint is compared and kept in one step."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while (lock := self._try_lock(deadline)) is None:  # noqa: ASYNC110 - another process has it
            await asyncio.sleep(_RETRY_SECONDS)
        with lock:
            yield

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint durably in place of earlier ones, in a locked file."""
        self._write([*self.heads(), checkpoint])

    def _read(self) -> list[ChainHead | Checkpoint]:
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable_error(error) from error
        anchors = []
        for number, line in enumerate(lines, 1):
            anchor = _parse_anchor(line)
            if anchor is None:
                raise LedgerError(f"line {number} of {str(self.path)!r} is not an anchor; the file was changed")
            anchors.append(anchor)
        return anchors

    def _write(self, anchors: Sequence[ChainHead | Checkpoint]) -> None:
        """Replace the file's content, all or nothing."""
        path = self.path.resolve()  # keep a symbolic link
        temporary = path.with_name(f".new-{path.name}")
        try:
            try:
                with open(temporary, "wb") as file:
                    file.writelines(map(_anchor_line, anchors))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:  # once it is replaced, the next writer's has this name
                temporary.unlink(missing_ok=True)
                raise
            sync_folder(path.parent)
        except OSError as error:
            raise self._unusable_error(error) from error

    def _try_lock(self, deadline: float) -> IO[bytes] | None:
        """Return the file, locked until it is closed; None while another process has it."""
        if time.monotonic() > deadline:
            raise LedgerUnavailableError(
                f"another process keeps the anchor file {str(self.path)!r} locked for {_LOCK_SECONDS:.0f} s"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if sys.platform == "win32":
                return open(os.devnull, "rb")
            file = open(self.path, "ab")  # noqa: SIM115 - the caller closes it
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    return file
            except (BlockingIOError, FileNotFoundError):
                pass
            except BaseException:
                file.close()
                raise
        except OSError as error:
            raise self._unusable_error(error) from error
        file.close()  # locked by another process, which may have replaced it
        return None

    def _unusable_error(self, error: OSError) -> LedgerUnavailableError:
        return LedgerUnavailableError(f"cannot use the anchor file {str(self.path)!r}: {error.strerror or error}")


_LOCK_SECONDS = 30.0
_RETRY_SECONDS = 0.01


def _anchor_line(anchor: ChainHead | Checkpoint) -> bytes:
    name = "head" if isinstance(anchor, ChainHead) else "checkpoint"
    return json.dumps({name: anchor.model_dump(mode="json", exclude_none=True)}, separators=(",", ":")).encode() + b"\n"


def _parse_anchor(line: bytes) -> ChainHead | Checkpoint | None:
    """Return the anchor in a line, or None if it is not valid."""
    try:
        members = json.loads(line)
        if "head" in members:
            return ChainHead.model_validate(members["head"])
        return Checkpoint.model_validate(members["checkpoint"])
    except (ValueError, TypeError, KeyError):
        return None


_FROM = f"SELECT {CHECKPOINT_COLUMNS} FROM handoff_audit_checkpoint"  # noqa: S608 - our own names
_ALL = f"{_FROM} ORDER BY size"
_UP_TO = f"{_FROM} WHERE size <= ? ORDER BY size DESC LIMIT 1"
_ADD = f"INSERT INTO handoff_audit_checkpoint ({CHECKPOINT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_INDEX = (
    "SELECT position, task_id, sequence, record_hash, recorded_at, key_id, signature FROM handoff_audit "
    "WHERE position >= ? AND position <= ? ORDER BY position"
)


@dataclass(frozen=True)
class _Growth:
    """The ledger's newest checkpoint, the records since then, and the state of the ledger after them."""

    newest: Checkpoint | None
    rows: Sequence[Row]
    size: int
    position: int
    last_hash: bytes
    digest: bytes


class Checkpoints:
    """The checkpoints of one ledger."""

    def __init__(self, reader: Reader, database: Database, name: str, signer: HeadSigner | None, clock: Clock) -> None:
        self._reader = reader
        self._database = database
        self._name = name
        self._signer = signer
        self._clock = clock

    async def make(self, witness: AnchorFile | None = None, *, unsigned: bool = False) -> Checkpoint:
        """Make a checkpoint of all records, or return the newest one if it covers them."""
        if witness is None:
            return await self._make(None, unsigned=unsigned)
        async with witness.locked():
            return await self._make(witness, unsigned=unsigned)

    async def compare(self, witness: AnchorFile | None = None) -> None:
        """Raise an error unless the ledger continues its own newest checkpoint and that of a witness."""
        await self._grow(await self._read_kept(witness), witness)

    async def _make(self, witness: AnchorFile | None, *, unsigned: bool) -> Checkpoint:
        kept = await self._read_kept(witness)
        growth = await self._grow(kept, witness)
        newest = growth.newest
        dated = [checkpoint for checkpoint in (newest, kept) if checkpoint is not None]
        if self._signer is not None:
            if newest is not None:
                self._check_newest(newest, self._signer, kept)
            await asyncio.to_thread(self._check_signatures, growth.rows, self._signer, dated, unsigned=unsigned)
        checkpoint = newest
        if checkpoint is None or growth.rows:
            checkpoint = Checkpoint(
                ledger=self._name,
                size=growth.size,
                position=growth.position,
                last_hash=format_digest(growth.last_hash),
                digest=format_digest(growth.digest),
                at=stamp(self._clock()),
            ).signed(self._signer)
        if witness is not None and (kept is None or kept.size != checkpoint.size):
            await asyncio.to_thread(witness.keep, checkpoint)
        return checkpoint if checkpoint == newest else await self._store(checkpoint)

    async def _store(self, checkpoint: Checkpoint) -> Checkpoint:
        """Add a checkpoint to the ledger, and return it, or the one that another process made first."""
        signature = None if checkpoint.signature is None else from_base64url(checkpoint.signature)
        hashes = parse_digest(checkpoint.last_hash), parse_digest(checkpoint.digest)
        row = (checkpoint.size, checkpoint.position, *hashes, checkpoint.at, checkpoint.key_id, signature)
        try:
            await self._database.write(lambda connection: connection.rows(_ADD, *row))
        except LedgerConflictError:
            first = await self._read_up_to(checkpoint.size)
            if first is None or first.size != checkpoint.size:
                raise
            return first
        return checkpoint

    async def _grow(self, kept: Checkpoint | None, witness: AnchorFile | None) -> _Growth:
        """Read the records since the newest checkpoint that both the ledger and its witness have."""
        newest = await self._database.read(lambda connection: newest_checkpoint(connection, self._name))
        if kept is not None and kept.ledger != self._name:
            raise LedgerContinuityError(
                f"the ledger {self._name!r} does not continue the checkpoint in {_place(witness)}, which is of the "
                f"ledger {kept.ledger!r}; name another witness"
            )
        start = newest if newest is None or kept is None else await self._read_up_to(min(newest.size, kept.size))
        end = await self._reader.end()
        first = BEFORE_ALL + 1 if start is None or not start.size else start.position
        rows = await self._database.read(lambda connection: connection.rows(_INDEX, first, end))
        return await asyncio.to_thread(self._fold, start, newest, kept, rows, witness)

    def _fold(
        self,
        start: Checkpoint | None,
        newest: Checkpoint | None,
        kept: Checkpoint | None,
        rows: Sequence[Row],
        witness: AnchorFile | None,
    ) -> _Growth:
        """Fold the records since ``start``, and compare them with the checkpoints that follow it."""
        size, position, last_hash, digest = 0, 0, EMPTY_DIGEST, EMPTY_DIGEST
        if start is not None and start.size:
            size, position, digest = start.size, start.position, parse_digest(start.digest)
            last_hash = parse_digest(start.last_hash)
            if not rows or (rows[0]["position"], rows[0]["record_hash"]) != (position, last_hash):
                raise self._gap_error(start, None)
            rows = rows[1:]
        due = [(newest, None), (kept, witness)]
        new: list[Row] = []
        self._compare(due, size, digest)
        for row in rows:
            size, position, last_hash = size + 1, row["position"], row["record_hash"]
            digest = fold(digest, _leaf(row))
            if newest is None or size > newest.size:
                new.append(row)
            self._compare(due, size, digest)
        for checkpoint, source in due:
            if checkpoint is not None and checkpoint.size > size:
                raise self._gap_error(checkpoint, source)
        return _Growth(newest, new, size, position, last_hash, digest)

    def _compare(self, due: Sequence[tuple[Checkpoint | None, AnchorFile | None]], size: int, digest: bytes) -> None:
        for checkpoint, source in due:
            if checkpoint is not None and checkpoint.size == size and parse_digest(checkpoint.digest) != digest:
                raise self._gap_error(checkpoint, source)

    def _gap_error(self, checkpoint: Checkpoint, witness: AnchorFile | None) -> LedgerContinuityError:
        remedy = "restore the ledger with all of its files"
        if witness is not None:
            remedy += (
                "; where it begins anew on purpose, put that file away as evidence, or name another (BATON_WITNESS)"
            )
        return LedgerContinuityError(
            f"the ledger {self._name!r} at {self._database.where!r} does not continue the checkpoint at "
            f"{quantity(checkpoint.size, 'record')} of {checkpoint.at} in {_place(witness)}: records were removed or "
            f"changed, or this is another ledger; {remedy}"
        )

    async def all(self) -> list[Checkpoint]:
        """Return every readable checkpoint, unverified, the oldest first."""
        return (await self.read_all())[0]

    async def read_all(self) -> tuple[list[Checkpoint], list[Finding]]:
        """Return every readable checkpoint, and a finding for each row that is not."""
        checkpoints, damaged = [], []
        for row in await self._database.read(lambda connection: connection.rows(_ALL)):
            try:
                checkpoints.append(to_checkpoint(self._name, row))
            except DamagedRowError:
                reason = f"the ledger's row of the checkpoint at {str(row['size'])[:20]} records is damaged"
                damaged.append(Finding(flaw=Flaw.CHECKPOINT, reason=reason))
        return checkpoints, damaged

    async def dating(self, verifier: HeadVerifier | None) -> list[Checkpoint]:
        """Return the newest checkpoint in the ledger if it is proved."""
        return await self._database.read(lambda connection: proved_checkpoints(connection, self._name, verifier))

    async def matches(self, checkpoint: Checkpoint) -> bool:
        """Return whether the ledger has the records that a checkpoint covers."""

        def work(connection: Connection) -> bool:
            size, digest = 0, EMPTY_DIGEST
            for row in connection.rows(_INDEX, BEFORE_ALL + 1, checkpoint.position):
                size, digest = size + 1, fold(digest, _leaf(row))
            return (size, format_digest(digest)) == (checkpoint.size, checkpoint.digest)

        try:
            return await self._database.read(work)
        except DamagedRowError:
            return False

    async def _read_up_to(self, size: int) -> Checkpoint | None:
        """Return the newest checkpoint in the ledger of at most this size."""
        rows = await self._database.read(lambda connection: connection.rows(_UP_TO, size))
        return to_checkpoint(self._name, rows[0]) if rows else None

    async def _read_kept(self, witness: AnchorFile | None) -> Checkpoint | None:
        kept = await asyncio.to_thread(witness.checkpoints) if witness is not None else []
        return max(kept, key=lambda checkpoint: checkpoint.size, default=None)

    def _check_newest(self, newest: Checkpoint, verifier: HeadVerifier, kept: Checkpoint | None) -> None:
        """Raise an error unless the ledger's newest checkpoint is signed, so that another may continue it."""
        check = newest.check(verifier, kept.made_at if kept is not None and kept.size < newest.size else None)
        if check is not SignatureCheck.GOOD:
            raise LedgerError(
                f"the ledger's checkpoint at {newest.size} records was changed (its signature does not count: "
                f"{check}), so no checkpoint can follow it: run `baton audit verify --all`"
            )

    def _check_signatures(
        self, records: Sequence[Row], verifier: HeadVerifier, dated: Sequence[Checkpoint], *, unsigned: bool
    ) -> None:
        """Raise an error if a record lacks a valid signature; ``unsigned`` allows records without one."""
        ends = [to_end(self._name, row, dated) for row in records]
        for finding in check_ends(ends, verifier):
            if finding is None or (unsigned and finding.flaw is Flaw.UNSIGNED):
                continue
            remedy = "; use --unsigned to cover it anyway" if finding.flaw is Flaw.UNSIGNED else ""
            raise LedgerError(
                f"record {finding.sequence} of task {finding.task_id!r} is not proved ({finding.reason}), and a "
                f"checkpoint would cover it: run `baton audit verify`{remedy}"
            )


def _place(witness: AnchorFile | None) -> str:
    return "its own table" if witness is None else f"the witness {str(witness.path)!r}"


def _leaf(row: Row) -> bytes:
    """Return `AuditRecord.leaf` for a row of the index."""
    record_hash, signature = hashes(row)
    return record_hash + (signature or b"")


MAX_LINE_BYTES = 64 * 1024 * 1024
"""The maximum length of a line; it limits the memory that a hostile file takes."""
MAX_RATIO = 1_000
"""How many times its size a bundle may unpack to, beyond a line; it limits the time that a hostile file takes."""
_RECORD_BYTES, _RECORD_LINES = 32, 3  # a record's hash does not compress
_OTHER_LINES = 10_000  # more than a block has

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_SIZE = 64 * 1024  # fits into a processor's cache


def verify_bundle(
    path: Path,
    *,
    verifier: HeadVerifier | None = None,
    ledger: str | None = None,
    anchors: Iterable[ChainHead] = (),
    checkpoints: Iterable[Checkpoint] = (),
) -> Report:
    """Verify that a bundle is complete and genuine, offline and with public keys only."""
    with bundle_lines(path) as lines:
        return verify_evidence(lines, Trust(verifier, anchors, [*checkpoints]), ledger)


@contextlib.contextmanager
def bundle_lines(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a bundle and yield its lines, without their line breaks."""
    try:
        with open(path, "rb") as file:
            yield _read_lines(file)
    except OSError as error:
        raise LedgerUnavailableError(f"cannot read the bundle {str(path)!r}: {error.strerror or error}") from error


def _read_lines(file: IO[bytes]) -> Iterator[bytes]:
    plain = file.read(len(_MAGIC)) != _MAGIC
    file_size = file.seek(0, os.SEEK_END)
    room = file_size * MAX_RATIO + MAX_LINE_BYTES
    lines_left = file_size // _RECORD_BYTES * _RECORD_LINES + _OTHER_LINES
    file.seek(0)
    reader: Any = file if plain else zstd.ZstdFile(file)
    pieces, size = list[bytes](), 0  # the pieces of one line, which can be long
    try:
        while block := reader.read(_BLOCK_SIZE):
            room -= len(block)
            if room < 0:
                raise EvidenceError(f"it unpacks to more than {MAX_RATIO:,} times its size")
            piece, *lines = block.split(b"\n")
            pieces.append(piece)
            size += len(piece)
            lines_left -= len(lines)
            if lines_left < 0:
                raise EvidenceError("it unpacks to more records than a file of its size can hold")
            if lines:
                yield b"".join(pieces)
                yield from lines[:-1]
                pieces, size = [lines[-1]], len(lines[-1])
            if size > MAX_LINE_BYTES:
                raise EvidenceError(f"a line is longer than {MAX_LINE_BYTES} bytes")
    except (zstd.ZstdError, EOFError) as error:
        raise EvidenceError(f"its compression is damaged or truncated: {error}") from error
    if size:
        raise EvidenceError("its last line is truncated")


@contextlib.contextmanager
def new_bundle(path: Path) -> Iterator[zstd.ZstdFile]:
    """Yield a compressing file, and move it to ``path`` when it is complete."""
    temporary = path.with_name(f".new-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "wb") as file:
                with zstd.ZstdFile(file, "wb", level=9) as bundle:
                    yield bundle
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerUnavailableError(f"cannot write the bundle {str(path)!r}: {error.strerror or error}") from error


@dataclass(frozen=True)
class Exporter:
    """Exports bundles of one ledger."""

    reader: Reader
    checkpoints: Checkpoints
    name: str
    signer: HeadSigner | None
    clock: Clock

    async def export_tasks(
        self, path: Path, task_ids: Sequence[str], keys: Sequence[Mapping[str, Any]], verifier: HeadVerifier | None
    ) -> Manifest:
        """Write the chains of these tasks."""
        dating = await self.checkpoints.dating(verifier)
        records: list[AuditRecord] = []
        heads = []
        for task_id in dict.fromkeys(task_ids):
            chain = await self.reader.task(task_id)
            report = verify(chain, Trust(verifier, claimed=dating), Scope(self.name, task_id))
            refuse_export(self.name, task_id, report, len(chain))
            heads.append(ChainHead.of(chain[-1]))
            records += chain
        records.sort(key=lambda record: record.position)
        manifest = self._manifest(
            [index_line(record.hash, record.position, record.signature) for record in records],
            heads=heads,
            keys=keys,
        )
        await asyncio.to_thread(_write_bundle, path, manifest, self.signer, records)
        return manifest

    async def export_all(
        self, path: Path, keys: Sequence[Mapping[str, Any]], verifier: HeadVerifier | None
    ) -> Manifest:
        """Write the whole ledger, with its newest checkpoint."""
        end = await self.reader.end()
        claimed, damaged = await self.checkpoints.read_all()
        verification = Verification(Trust(verifier, claimed=claimed), Scope(self.name), damaged)
        manifest = self._manifest(await self.reader.index_lines(end), keys=keys, checkpoints=claimed[-1:])
        with new_bundle(path) as bundle:
            bundle.writelines(pack(manifest, [], self.signer))
            async for page in self.reader.pages(end):
                await asyncio.to_thread(bundle.write, b"".join(map(record_lines, page)))
                await asyncio.to_thread(verification.feed, page)
            _refuse_invalid(verification.report())
        return manifest

    def _manifest(self, lines: Sequence[bytes], *, keys: Sequence[Mapping[str, Any]], **fields: Any) -> Manifest:
        return Manifest(
            format=BUNDLE,
            ledger=self.name,
            created_at=self.clock(),
            records=len(lines),
            index=index_digest(lines),
            keys=tuple(dict(key) for key in keys),
            **fields,
        )


def refuse_export(ledger: str, task_id: str, report: Report, records: int) -> None:
    """Raise an error if a task has no records to export, or invalid ones."""
    if not records:
        raise LedgerError(f"the ledger {ledger!r} has no records of task {task_id!r}; check the id")
    _refuse_invalid(report)


def _refuse_invalid(report: Report) -> None:
    """Raise an error if the records to export are invalid."""
    if report.verdict is Verdict.INVALID:
        reasons = "; ".join(map(str, report.findings[:5]))
        raise LedgerError(f"invalid records are not exported as evidence: {reasons}")


def _write_bundle(path: Path, manifest: Manifest, signer: HeadSigner | None, records: Sequence[AuditRecord]) -> None:
    with new_bundle(path) as bundle:
        bundle.writelines(pack(manifest, records, signer))
