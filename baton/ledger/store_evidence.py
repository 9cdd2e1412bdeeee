"""Evidence outside the ledger: checkpoints (RFC 6962), anchor files that store them, and bundles of records.

Verification skips the signatures under a signed checkpoint. So a checkpoint is signed only after each signature under
it was verified, and continues only a checkpoint whose own signature is good.

An anchor file stores heads and checkpoints apart from the ledger. Put it where the ledger's database cannot write:
another machine, another owner, an append-only disk. Like the witness of a transparency log, it accepts a checkpoint
only with the proof that the ledger only grew since the last one.

A bundle is an evidence file (`baton.ledger.evidence`), compressed with Zstandard or plain. Verifying it needs only
public keys: no database, no Temporal, no network.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from baton.ledger.chain import (
    ChainHead,
    ChainReport,
    HeadSigner,
    HeadVerifier,
    SignatureCheck,
    Verdict,
    from_base64url,
    to_base64url,
)
from baton.ledger.evidence import (
    BUNDLE,
    EvidenceReport,
    InclusionProof,
    Manifest,
    index_digest,
    index_line,
    pack,
    record_lines,
    verify_evidence,
)
from baton.ledger.proof import (
    HASH_BYTES,
    Checkpoint,
    Frontier,
    LedgerReport,
    LedgerWalk,
    consistency_proof,
    inclusion_proofs,
    leaf_hash,
    verify_chain,
    verify_consistency,
)
from baton.ledger.records import (
    AuditRecord,
    EvidenceError,
    LedgerConflictError,
    LedgerError,
    LedgerUnavailableError,
    stamp,
)
from baton.ledger.store_database import BEFORE_ALL, Connection, DamagedRowError, Database, Row, hashes
from baton.ledger.store_reader import Reader
from baton.ledger.store_schema import check_heads
from baton.wire.json_values import format_digest, parse_digest
from baton.wire.zstandard import zstd

if sys.platform != "win32":
    import fcntl


class AnchorFile:
    """An append-only file of heads and checkpoints, one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def heads(self) -> list[ChainHead]:
        """Return every head, the oldest first."""
        return [ChainHead.model_validate(line["head"]) for line in self._read_lines() if "head" in line]

    def checkpoints(self) -> list[Checkpoint]:
        """Return every checkpoint, the oldest first."""
        return [Checkpoint.model_validate(line["checkpoint"]) for line in self._read_lines() if "checkpoint" in line]

    def add_heads(self, heads: Sequence[ChainHead]) -> None:
        """Append heads durably."""
        with self._open_locked() as file:
            self._append(file, [{"head": head.model_dump(mode="json", exclude_none=True)} for head in heads])

    def add_checkpoint(self, checkpoint: Checkpoint, proof: Sequence[bytes] = ()) -> None:
        """Append a checkpoint durably, if the proof shows that the ledger only grew since the last one."""
        with self._open_locked() as file:
            checkpoints = self.checkpoints()
            if checkpoints and not _continues(checkpoints[-1], checkpoint, proof):
                raise LedgerError(
                    f"the checkpoint of {checkpoint.ledger!r} at {checkpoint.size} records does not continue the one "
                    f"at {checkpoints[-1].size} in {str(self.path)!r}: earlier records were removed or changed"
                )
            if not checkpoints or checkpoints[-1].size != checkpoint.size:
                self._append(file, [{"checkpoint": checkpoint.model_dump(mode="json", exclude_none=True)}])

    def _read_lines(self) -> list[dict[str, Any]]:
        anchors = []
        for number, line in enumerate(self._read().splitlines(), 1):
            members = _parse_anchor(line)
            if members is None:
                raise LedgerError(f"line {number} of {str(self.path)!r} is not an anchor; the file was changed")
            anchors.append(members)
        return anchors

    def _read(self) -> bytes:
        """Return the complete lines, without a truncated last one, whose append never returned."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._unusable_error(error) from error
        end = data.rfind(b"\n") + 1
        return data[:end] if _parse_anchor(data[end:]) is None else data + b"\n"

    @contextlib.contextmanager
    def _open_locked(self) -> Iterator[IO[bytes]]:
        """Lock and open the file, and remove or complete the last line of an interrupted append."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a+b", buffering=0) as file:
                if sys.platform != "win32":
                    fcntl.flock(file, fcntl.LOCK_EX)
                content = self._read()
                size = file.seek(0, os.SEEK_END)
                if size >= len(content):
                    file.truncate(len(content))
                else:
                    file.write(b"\n")
                yield file
        except OSError as error:
            raise self._unusable_error(error) from error

    def _append(self, file: IO[bytes], lines: Sequence[dict[str, Any]]) -> None:
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        start = file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[file.write(data) or 0 :]
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(start)
            raise

    def _unusable_error(self, error: OSError) -> LedgerUnavailableError:
        return LedgerUnavailableError(f"cannot use the anchor file {str(self.path)!r}: {error.strerror or error}")


def _parse_anchor(line: bytes) -> dict[str, Any] | None:
    """Return the members of an anchor's line, or None if it is not valid."""
    try:
        members = json.loads(line)
        if "head" in members:
            ChainHead.model_validate(members["head"])
        else:
            Checkpoint.model_validate(members["checkpoint"])
    except (ValueError, TypeError, KeyError):
        return None
    return dict(members)


def _continues(old: Checkpoint, new: Checkpoint, proof: Sequence[bytes]) -> bool:
    if old.ledger != new.ledger:
        return False
    return verify_consistency(old.size, parse_digest(old.root), new.size, parse_digest(new.root), proof)


_COLUMNS = "size, position, root, peaks, at, key_id, signature"
_ALL = f"SELECT {_COLUMNS} FROM handoff_audit_checkpoint ORDER BY size"  # noqa: S608 - our own names
_NEWEST = f"{_ALL} DESC LIMIT 1"
_OF_SIZE = f"SELECT {_COLUMNS} FROM handoff_audit_checkpoint WHERE size = ?"  # noqa: S608
_ADD = f"INSERT INTO handoff_audit_checkpoint ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_INDEX = (
    "SELECT task_id, sequence, record_hash, recorded_at, key_id, signature FROM handoff_audit "
    "WHERE position >= ? AND position <= ? ORDER BY position"
)
_RANKS = "SELECT position, task_id, record_hash, signature FROM handoff_audit ORDER BY position LIMIT ?"


@dataclass(frozen=True)
class _NewCheckpoint:
    """A checkpoint, and its row, or None if the table already has it."""

    checkpoint: Checkpoint
    row: tuple[Any, ...] | None


class Checkpoints:
    """The checkpoints of one ledger."""

    def __init__(self, database: Database, name: str, signer: HeadSigner | None, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._name = name
        self._signer = signer
        self._clock = clock

    async def make(self, end: int, witness: AnchorFile | None = None, *, unsigned: bool = False) -> Checkpoint:
        """Make a checkpoint of all records up to ``end``, or return the newest one if it covers them."""
        new = await self._make_next(end, unsigned=unsigned)
        checkpoint = new.checkpoint
        if witness is not None:
            witnessed = await asyncio.to_thread(witness.checkpoints)
            old_size = witnessed[-1].size if witnessed else 0
            proof = await self._prove_consistency(old_size, checkpoint) if old_size <= checkpoint.size else []
            await asyncio.to_thread(witness.add_checkpoint, checkpoint, proof)
        if new.row is not None:
            row = new.row
            try:
                await self._database.write(lambda connection: connection.rows(_ADD, *row))
            except LedgerConflictError:  # another process made it first
                return await self._get_by_size(checkpoint.size)
        return checkpoint

    async def _make_next(self, end: int, *, unsigned: bool) -> _NewCheckpoint:
        newest = await self._database.read(lambda connection: connection.rows(_NEWEST))
        tree, after = self._restore_frontier(newest[0]) if newest else (Frontier(), BEFORE_ALL)
        if newest and after >= end:
            return _NewCheckpoint(self._to_checkpoint(newest[0]), None)
        records = await self._database.read(lambda connection: connection.rows(_INDEX, after + 1, end))
        if self._signer is not None:
            await asyncio.to_thread(self._check_signatures, records, self._signer, unsigned=unsigned)
        for row in records:
            tree.append(_leaf(row))
        checkpoint = Checkpoint(
            ledger=self._name, size=tree.size, root=format_digest(tree.root), at=stamp(self._clock())
        )
        checkpoint = checkpoint.signed(self._signer)
        signature = None if checkpoint.signature is None else from_base64url(checkpoint.signature)
        return _NewCheckpoint(
            checkpoint,
            (checkpoint.size, end, tree.root, b"".join(tree.peaks), checkpoint.at, checkpoint.key_id, signature),
        )

    async def all(self) -> list[Checkpoint]:
        """Return every readable checkpoint, unverified, the oldest first."""
        return (await self.read_all())[0]

    async def read_all(self) -> tuple[list[Checkpoint], list[str]]:
        """Return every readable checkpoint, and a reason for each row that is not."""
        checkpoints, damaged = [], []
        for row in await self._database.read(lambda connection: connection.rows(_ALL)):
            try:
                checkpoints.append(self._to_checkpoint(row))
            except (ValueError, TypeError, AttributeError):  # SQLite keeps whatever is put into a column
                damaged.append(f"the ledger's row of the checkpoint at {str(row['size'])[:20]} records is damaged")
        return checkpoints, damaged

    async def _prove_consistency(self, old_size: int, checkpoint: Checkpoint) -> list[bytes]:
        """Return the proof that the checkpoint extends the ledger of ``old_size`` records."""
        leaves = await self._database.read(lambda connection: _read_leaves(connection, checkpoint.size))
        return consistency_proof([leaf_hash(leaf) for _, _, leaf in leaves], old_size)

    async def count_covered(self, task_id: str, checkpoints: Iterable[Checkpoint]) -> int | None:
        """Return how many records of a task the newest checkpoint covers; None if it does not match the ledger."""
        own = [checkpoint for checkpoint in checkpoints if checkpoint.ledger == self._name]
        newest = max(own, key=lambda checkpoint: checkpoint.size, default=None)
        if newest is None or newest.size == 0:
            return 0
        try:
            leaves = await self._database.read(lambda connection: _read_leaves(connection, newest.size))
        except DamagedRowError:
            return None
        if len(leaves) < newest.size or format_digest(Frontier.of(leaf for _, _, leaf in leaves).root) != newest.root:
            return None
        return sum(task == task_id for _, task, _ in leaves)

    async def prove_inclusion(self, records: Iterable[AuditRecord], checkpoint: Checkpoint) -> list[InclusionProof]:
        """Return the inclusion proof for the last record of each task that the checkpoint covers."""
        leaves = await self._database.read(lambda connection: _read_leaves(connection, checkpoint.size))
        index_of = {position: index for index, (position, _, _) in enumerate(leaves)}
        last_records = {record.members["taskId"]: record for record in records if record.position in index_of}
        indexes = [index_of[record.position] for record in last_records.values()]
        proofs = inclusion_proofs([leaf_hash(leaf) for _, _, leaf in leaves], indexes)
        return [
            InclusionProof(
                task_id=task_id,
                sequence=record.members["sequence"],
                index=index,
                size=checkpoint.size,
                path=tuple(format_digest(node) for node in proof),
            )
            for (task_id, record), index, proof in zip(last_records.items(), indexes, proofs, strict=True)
        ]

    def _restore_frontier(self, newest: Row) -> tuple[Frontier, int]:
        """Return the tree of the newest checkpoint, and the position of its last record."""
        peaks = newest["peaks"]
        try:
            tree = Frontier(
                newest["size"], [peaks[offset : offset + HASH_BYTES] for offset in range(0, len(peaks), HASH_BYTES)]
            )
            checkpoint = self._to_checkpoint(newest)
            check = checkpoint.check(self._signer) if self._signer is not None else SignatureCheck.GOOD
            problem = f"its signature does not count: {check}" if check is not SignatureCheck.GOOD else None
            if problem is None and format_digest(tree.root) != checkpoint.root:
                problem = "its tree has another root"
            if not isinstance(newest["position"], int):
                problem = "its position is not a number"
        except (ValueError, TypeError, AttributeError) as error:  # SQLite keeps whatever is put into a column
            problem = str(error)
        if problem is not None:
            raise LedgerError(
                f"the ledger's checkpoint at {newest['size']} records was changed ({problem}), so no checkpoint can "
                "follow it: run `baton audit verify --all`"
            )
        return tree, newest["position"]

    def _check_signatures(self, records: Sequence[Row], verifier: HeadVerifier, *, unsigned: bool) -> None:
        """Raise an error if a record lacks a valid signature; ``unsigned`` allows records without one."""
        signed_rows = []
        for row in records:
            if row["key_id"] is not None or row["signature"] is not None:
                signed_rows.append(row)
            elif not unsigned:
                raise _unproved_error(row, "unsigned", "; use --unsigned to cover it anyway")
        for row, check in zip(signed_rows, check_heads(self._name, signed_rows, verifier), strict=True):
            if check is not SignatureCheck.GOOD:
                raise _unproved_error(row, f"its signature by the key {row['key_id']!r} does not count: {check}", "")

    async def _get_by_size(self, size: int) -> Checkpoint:
        rows = await self._database.read(lambda connection: connection.rows(_OF_SIZE, size))
        if not rows:
            raise LedgerError(f"the ledger refused a checkpoint at {size} records but has none of this size")
        return self._to_checkpoint(rows[0])

    def _to_checkpoint(self, row: Row) -> Checkpoint:
        return Checkpoint(
            ledger=self._name,
            size=row["size"],
            root=format_digest(row["root"]),
            at=row["at"],
            key_id=row["key_id"],
            signature=None if row["signature"] is None else to_base64url(row["signature"]),
        )


def _unproved_error(row: Row, problem: str, remedy: str) -> LedgerError:
    return LedgerError(
        f"record {row['sequence']} of task {row['task_id']!r} is not proved ({problem}), and a checkpoint would cover "
        f"it: run `baton audit verify`{remedy}"
    )


def _leaf(row: Row) -> bytes:
    """Return `AuditRecord.leaf` for a row of the index."""
    record_hash, signature = hashes(row)
    return record_hash + (signature or b"")


def _read_leaves(connection: Connection, size: int) -> list[tuple[int, str, bytes]]:
    """Return the position, task and leaf of each of the first ``size`` records."""
    return [(row["position"], row["task_id"], _leaf(row)) for row in connection.rows(_RANKS, size)]


MAX_LINE_BYTES = 64 * 1024 * 1024
"""The maximum length of a line; it limits the memory that a hostile file takes."""

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_SIZE = 64 * 1024  # fits into a processor's cache


def verify_bundle(
    path: Path,
    *,
    verifier: HeadVerifier | None = None,
    ledger: str | None = None,
    anchors: Iterable[ChainHead] = (),
    checkpoints: Iterable[Checkpoint] = (),
) -> EvidenceReport:
    """Verify that a bundle is complete and genuine, offline and with public keys only."""
    with bundle_lines(path) as lines:
        return verify_evidence(lines, verifier=verifier, ledger=ledger, anchors=anchors, checkpoints=checkpoints)


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
    file.seek(0)
    reader: Any = file if plain else zstd.ZstdFile(file)
    pieces, size = list[bytes](), 0  # the pieces of one line, which can be long
    try:
        while block := reader.read(_BLOCK_SIZE):
            piece, *lines = block.split(b"\n")
            pieces.append(piece)
            size += len(piece)
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
    clock: Callable[[], datetime]

    async def export_tasks(
        self, path: Path, task_ids: Sequence[str], keys: Sequence[Mapping[str, Any]], verifier: HeadVerifier | None
    ) -> Manifest:
        """Write the chains of these tasks, with proofs that the newest checkpoint covers them."""
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
        proofs = await self.checkpoints.prove_inclusion(records, newest[0]) if newest else []
        manifest = self._manifest(
            [index_line(record.hash, record.position, record.signature) for record in records],
            heads=heads,
            keys=keys,
            checkpoints=newest,
            proofs=proofs,
        )
        await asyncio.to_thread(_write_bundle, path, manifest, self.signer, records)
        return manifest

    async def export_all(
        self, path: Path, keys: Sequence[Mapping[str, Any]], verifier: HeadVerifier | None
    ) -> Manifest:
        """Write the whole ledger, with its newest checkpoint."""
        end = await self.reader.end()
        claimed, damaged = await self.checkpoints.read_all()
        walk = LedgerWalk(self.name, verifier=verifier, claimed=claimed, reasons=damaged)
        manifest = self._manifest(
            await self.reader.index_lines(end), keys=keys, checkpoints=(await self.checkpoints.all())[-1:]
        )
        with new_bundle(path) as bundle:
            bundle.writelines(pack(manifest, [], self.signer))
            async for page in self.reader.pages(end):
                await asyncio.to_thread(bundle.write, b"".join(map(record_lines, page)))
                await asyncio.to_thread(walk.feed_all, page)
            _refuse_invalid(walk.finish())
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


def _refuse_invalid(report: ChainReport | LedgerReport) -> None:
    """Raise an error if the records to export are invalid."""
    if report.verdict is not Verdict.INVALID:
        return
    flawed = [report] if isinstance(report, ChainReport) else report.flawed
    reasons = [] if isinstance(report, ChainReport) else [*report.reasons]
    reasons += [f"record {chain.sequence} of task {chain.task_id!r}: {chain.reason}" for chain in flawed]
    raise LedgerError(f"invalid records are not exported as evidence: {'; '.join(reasons[:5])}")


def _write_bundle(path: Path, manifest: Manifest, signer: HeadSigner | None, records: Sequence[AuditRecord]) -> None:
    with new_bundle(path) as bundle:
        bundle.writelines(pack(manifest, records, signer))
