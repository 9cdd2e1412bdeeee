"""Evidence outside the ledger: checkpoints of all of it (RFC 6962), the file that keeps them, and bundles of records.

The signatures of records under a signed checkpoint are not verified again. So a checkpoint is signed only if each
signature under it was verified, and continues only a checkpoint whose own signature is good.

An anchor file keeps heads and checkpoints apart from the ledger, so that both cannot be reset unseen. Put it where
the ledger's database cannot write: another machine, another owner, a disk that only appends. It follows the rule of a
transparency log's witness: a new checkpoint is taken only with the proof that the ledger only grew since the last one.

A bundle is an evidence file (`baton.ledger.evidence`), compressed with Zstandard; uncompressed ones are read as well.
Verifying one needs nothing but public keys: no database, no Temporal, no network.
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
    """A file of heads and checkpoints, a line of JSON each, that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def heads(self) -> list[ChainHead]:
        """Return every head, the oldest first."""
        return [ChainHead.model_validate(line["head"]) for line in self._lines() if "head" in line]

    def checkpoints(self) -> list[Checkpoint]:
        """Return every checkpoint, the oldest first."""
        return [Checkpoint.model_validate(line["checkpoint"]) for line in self._lines() if "checkpoint" in line]

    def add_heads(self, heads: Sequence[ChainHead]) -> None:
        """Add heads; they are on the disk when this returns."""
        with self._opened() as file:
            self._append(file, [{"head": head.model_dump(mode="json", exclude_none=True)} for head in heads])

    def add_checkpoint(self, checkpoint: Checkpoint, proof: Sequence[bytes] = ()) -> None:
        """Add a checkpoint, if the ledger only grew since the last one; it is on the disk when this returns."""
        with self._opened() as file:
            known = self.checkpoints()
            if known and not _continues(known[-1], checkpoint, proof):
                raise LedgerError(
                    f"the checkpoint of {checkpoint.ledger!r} at {checkpoint.size} records does not continue the one "
                    f"at {known[-1].size} in {str(self.path)!r}: records that were there are gone or others"
                )
            if not known or known[-1].size != checkpoint.size:
                self._append(file, [{"checkpoint": checkpoint.model_dump(mode="json", exclude_none=True)}])

    def _lines(self) -> list[dict[str, Any]]:
        found = []
        for number, line in enumerate(self._read().splitlines(), 1):
            members = _parsed(line)
            if members is None:
                raise LedgerError(f"line {number} of {str(self.path)!r} is not an anchor; the file was changed")
            found.append(members)
        return found

    def _read(self) -> bytes:
        """Return the whole lines. A torn last one is left out: its writer died before it was told anything."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._unusable(error) from error
        end = data.rfind(b"\n") + 1
        return data[:end] if _parsed(data[end:]) is None else data + b"\n"

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        """Open the file for this process alone, with the line that an earlier writer left torn removed."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a+b", buffering=0) as file:
                if sys.platform != "win32":
                    fcntl.flock(file, fcntl.LOCK_EX)
                whole = self._read()
                size = file.seek(0, os.SEEK_END)
                if size >= len(whole):
                    file.truncate(len(whole))
                else:
                    file.write(b"\n")
                yield file
        except OSError as error:
            raise self._unusable(error) from error

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

    def _unusable(self, error: OSError) -> LedgerUnavailableError:
        return LedgerUnavailableError(f"cannot use the anchor file {str(self.path)!r}: {error.strerror or error}")


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the members of a line that is an anchor, or None."""
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
class _Made:
    """A checkpoint, and its row for the table; None if the table has it."""

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
        """Return a checkpoint of all records up to the position ``end``; the newest one if none came after it."""
        found = await self._next(end, unsigned=unsigned)
        made = found.checkpoint
        if witness is not None:
            known = await asyncio.to_thread(witness.checkpoints)
            old_size = known[-1].size if known else 0
            proof = await self._consistency(old_size, made) if old_size <= made.size else []
            await asyncio.to_thread(witness.add_checkpoint, made, proof)
        if found.row is not None:
            row = found.row
            try:
                await self._database.write(lambda connection: connection.rows(_ADD, *row))
            except LedgerConflictError:  # somebody made the same one meanwhile
                return await self._of_size(made.size)
        return made

    async def _next(self, end: int, *, unsigned: bool) -> _Made:
        """Return the checkpoint of all records up to a position, which the ledger does not have yet."""
        newest = await self._database.read(lambda connection: connection.rows(_NEWEST))
        tree, after = self._frontier(newest[0]) if newest else (Frontier(), BEFORE_ALL)
        if newest and after >= end:
            return _Made(self._checkpoint(newest[0]), None)
        records = await self._database.read(lambda connection: connection.rows(_INDEX, after + 1, end))
        if self._signer is not None:
            await asyncio.to_thread(self._check_signatures, records, self._signer, unsigned=unsigned)
        for row in records:
            tree.append(_leaf(row))
        made = Checkpoint(ledger=self._name, size=tree.size, root=format_digest(tree.root), at=stamp(self._clock()))
        made = made.signed(self._signer)
        signature = None if made.signature is None else from_base64url(made.signature)
        return _Made(made, (made.size, end, tree.root, b"".join(tree.peaks), made.at, made.key_id, signature))

    async def all(self) -> list[Checkpoint]:
        """Return every checkpoint that was made, the oldest first; their signatures are not checked."""
        return (await self.all_there_are())[0]

    async def all_there_are(self) -> tuple[list[Checkpoint], list[str]]:
        """Return every checkpoint as `all` does, and what is wrong with rows that are not."""
        whole, damaged = [], []
        for row in await self._database.read(lambda connection: connection.rows(_ALL)):
            try:
                whole.append(self._checkpoint(row))
            except (ValueError, TypeError, AttributeError):  # SQLite keeps whatever is put into a column
                damaged.append(f"a checkpoint in the ledger, at {str(row['size'])[:20]} records, is none any more")
        return whole, damaged

    async def _consistency(self, old_size: int, checkpoint: Checkpoint) -> list[bytes]:
        """Return the proof that the ledger of ``old_size`` records is the beginning of the one at a checkpoint."""
        ranks = await self._database.read(lambda connection: _ranks(connection, checkpoint.size))
        return consistency_proof([leaf_hash(leaf) for _, _, leaf in ranks], old_size)

    async def covered(self, task_id: str, checkpoints: Iterable[Checkpoint]) -> int | None:
        """Return how many records of a task the newest checkpoint covers; None if it is of other records."""
        own = [one for one in checkpoints if one.ledger == self._name]
        newest = max(own, key=lambda one: one.size, default=None)
        if newest is None or newest.size == 0:
            return 0
        try:
            ranks = await self._database.read(lambda connection: _ranks(connection, newest.size))
        except DamagedRowError:
            return None
        if len(ranks) < newest.size or format_digest(Frontier.of(leaf for _, _, leaf in ranks).root) != newest.root:
            return None
        return sum(task == task_id for _, task, _ in ranks)

    async def inclusions(self, records: Iterable[AuditRecord], checkpoint: Checkpoint) -> list[InclusionProof]:
        """Return the proof, for the last record of each task that a checkpoint covers, that it stands there."""
        ranks = await self._database.read(lambda connection: _ranks(connection, checkpoint.size))
        index_of = {position: index for index, (position, _, _) in enumerate(ranks)}
        last = {record.members["taskId"]: record for record in records if record.position in index_of}
        indexes = [index_of[record.position] for record in last.values()]
        proofs = inclusion_proofs([leaf_hash(leaf) for _, _, leaf in ranks], indexes)
        return [
            InclusionProof(
                task_id=task_id,
                sequence=record.members["sequence"],
                index=index,
                size=checkpoint.size,
                path=tuple(format_digest(node) for node in proof),
            )
            for (task_id, record), index, proof in zip(last.items(), indexes, proofs, strict=True)
        ]

    def _frontier(self, newest: Row) -> tuple[Frontier, int]:
        """Return the tree that the newest checkpoint is of, to continue from, and the position it ends at."""
        peaks = newest["peaks"]
        try:
            tree = Frontier(newest["size"], [peaks[at : at + HASH_BYTES] for at in range(0, len(peaks), HASH_BYTES)])
            checkpoint = self._checkpoint(newest)
            check = checkpoint.check(self._signer) if self._signer is not None else SignatureCheck.GOOD
            why = f"its signature is worth: {check}" if check is not SignatureCheck.GOOD else None
            if why is None and format_digest(tree.root) != checkpoint.root:
                why = "its tree has another root"
            if not isinstance(newest["position"], int):
                why = "its position is not a number"
        except (ValueError, TypeError, AttributeError) as error:  # SQLite keeps whatever is put into a column
            why = str(error)
        if why is not None:
            raise LedgerError(
                f"the checkpoint at {newest['size']} records in the ledger is not as it was made ({why}), so none can "
                "follow it: look into it with `baton audit verify --all`"
            )
        return tree, newest["position"]

    def _check_signatures(self, records: Sequence[Row], verifier: HeadVerifier, *, unsigned: bool) -> None:
        """Make sure that each of these records has a signature that counts."""
        claiming = []
        for row in records:
            if row["key_id"] is not None or row["signature"] is not None:
                claiming.append(row)
            elif not unsigned:
                raise _not_proved(row, "unsigned", "; make a checkpoint with --unsigned to cover it all the same")
        for row, check in zip(claiming, check_heads(self._name, claiming, verifier), strict=True):
            if check is not SignatureCheck.GOOD:
                raise _not_proved(row, f"its signature by the key {row['key_id']!r} does not count: {check}", "")

    async def _of_size(self, size: int) -> Checkpoint:
        found = await self._database.read(lambda connection: connection.rows(_OF_SIZE, size))
        if not found:
            raise LedgerError(f"a checkpoint at {size} records was refused, and there is not another one")
        return self._checkpoint(found[0])

    def _checkpoint(self, row: Row) -> Checkpoint:
        return Checkpoint(
            ledger=self._name,
            size=row["size"],
            root=format_digest(row["root"]),
            at=row["at"],
            key_id=row["key_id"],
            signature=None if row["signature"] is None else to_base64url(row["signature"]),
        )


def _not_proved(row: Row, why: str, remedy: str) -> LedgerError:
    return LedgerError(
        f"record {row['sequence']} of task {row['task_id']!r} is not proved ({why}), and a checkpoint would vouch for "
        f"it: look into it with `baton audit verify`{remedy}"
    )


def _leaf(row: Row) -> bytes:
    """Return what the tree holds of a row of the index, as `AuditRecord.leaf`."""
    record_hash, signature = hashes(row)
    return record_hash + (signature or b"")


def _ranks(connection: Connection, size: int) -> list[tuple[int, str, bytes]]:
    """Return the position, task and leaf of each of the first ``size`` records."""
    return [(row["position"], row["task_id"], _leaf(row)) for row in connection.rows(_RANKS, size)]


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


@contextlib.contextmanager
def new_bundle(path: Path) -> Iterator[zstd.ZstdFile]:
    """Give a file that compresses what is written to it, and move it to its place once it is whole."""
    new = path.with_name(f".new-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(new, "wb") as file:
                with zstd.ZstdFile(file, "wb", level=9) as bundle:
                    yield bundle
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerUnavailableError(f"cannot write the bundle {str(path)!r}: {error.strerror or error}") from error


@dataclass(frozen=True)
class Exporter:
    """Writes bundles of one ledger."""

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
        with new_bundle(path) as bundle:
            bundle.writelines(pack(manifest, [], self.signer))
            async for page in self.reader.pages(end):
                await asyncio.to_thread(bundle.write, b"".join(map(record_lines, page)))
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
    with new_bundle(path) as bundle:
        bundle.writelines(pack(manifest, records, signer))
