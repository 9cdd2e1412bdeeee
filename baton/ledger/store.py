"""The ledger: the append-only audit store (EAAPL-MAG006 §6.2, §8.2, §10.3)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from baton.artifacts.store import ArtifactStore
from baton.keys.claims import HeadSigner, HeadVerifier, SignatureCheck
from baton.ledger.attestations import attest
from baton.ledger.chain import ChainHead, Finding, Flaw, Verdict
from baton.ledger.entries import RedactionPolicy, TaskCost, Trace, in_clear, may_be_in_clear
from baton.ledger.evidence import Manifest
from baton.ledger.proof import Checkpoint, Report, Scope, Trust, Verification, Verified, newest_of, verify
from baton.ledger.records import (
    AuditEntry,
    AuditHeader,
    AuditRecord,
    LedgerConflictError,
    LedgerError,
    LedgerKeysError,
    stamp,
)
from baton.ledger.store_database import BEFORE_ALL, DamagedRowError, Database
from baton.ledger.store_evidence import AnchorFile, Checkpoints, Exporter, refuse_export
from baton.ledger.store_reader import (
    PAGE_SIZE,
    SEGMENT_RECORDS,
    ColdTier,
    FlawedRecordsError,
    Mover,
    Reader,
    Segment,
    moved_through,
    split_at_flawed,
)
from baton.ledger.store_schema import (
    ERASED_TASKS,
    NEWEST_SIGNED,
    VERSIONS,
    bind_name,
    check_name,
    check_revision,
    check_writable,
    migrate,
    name_of,
    open_database,
    revision,
    to_end,
)
from baton.ledger.store_verified import VerifiedFile, checked_pages
from baton.ledger.store_writer import Appended, Prepared, Writer
from baton.wire.json_values import format_digest, loads_strict, parse_digest

HOT_PERIOD = timedelta(days=30)
"""How long records stay in the hot tier (§9)."""
_CHECKED_SIGNATURES = 100
"""How many of the newest signatures a writer checks when it opens the ledger."""
_log = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class LedgerOptions:
    """Options of a ledger.

    Attributes:
        name: The ledger's name, such as the deployment's. Every record carries it, so no test record passes for a
            production record. A ledger keeps its first name.
        signer: The key that signs heads and checkpoints, with the public keys of its keyring; None leaves them
            unsigned, which `verify` reports. A writer only extends chains whose end these keys signed.
        artifacts: The artifact store of the cold tier, if any.
        policy: Which members of a message hold personal data; the ledger refuses these in clear.
        clock: Returns the time of recording.
        create: Create a missing file and its tables; an auditor sets this to False.
    """

    name: str = "baton"
    signer: HeadSigner | None = None
    artifacts: ArtifactStore | None = None
    policy: RedactionPolicy = field(default_factory=RedactionPolicy)
    clock: Callable[[], datetime] = _now
    create: bool = True


class Ledger:
    """An audit ledger: one hash chain for each task, written before the receiver starts.

    Use it as an asynchronous context manager, on one event loop; any number of processes may share one ledger.
    Opening a file creates it and its tables. The owner of a Postgres database creates its tables beforehand.

    Args:
        where: A file, or `postgresql://user:password@host/database`.
        options: See `LedgerOptions`.

    Raises:
        LedgerError: On entering: the ledger has another name, other tables, or cannot be reached.

    Example:
        >>> import tempfile
        >>> async def example() -> tuple[int, str]:
        ...     async with Ledger(Path(tempfile.mkdtemp()) / "ledger.db") as ledger:
        ...         entry = AuditEntry(kind="handoff", task_id="t-1", event_id="h-1", status="ACCEPTED",
        ...                            timestamp=datetime.now(UTC), message={"taskDescription": "Score the clauses"})
        ...         head = await ledger.append(entry)
        ...         report = await ledger.verify("t-1", expected_head=head)
        ...         return head.sequence, report.verdict.value
        >>> asyncio.run(example())
        (1, 'valid')
    """

    def __init__(self, where: str | Path, options: LedgerOptions | None = None) -> None:
        options = options or LedgerOptions()
        self.name = options.name
        self._options = options
        self._place = where
        self._database: Database = open_database(where, create=options.create)
        self.where = self._database.where
        self._reader = Reader(self._database, ColdTier(options.artifacts))
        self._writer = Writer(self._database, options.name, options.signer, options.clock)
        self._checkpoints = Checkpoints(self._reader, self._database, options.name, options.signer, options.clock)
        self._exporter = Exporter(self._reader, self._checkpoints, options.name, options.signer, options.clock)

    async def __aenter__(self) -> Self:
        creates_tables = self._database.dialect == "sqlite" and self._options.create
        try:
            tables_revision = await revision(self._database)
            if creates_tables and tables_revision is None:
                await migrate(self._database)
                tables_revision = VERSIONS[self._database.dialect]
            check_revision(tables_revision, self._database)
            name = await self._database.read(name_of)
            if self._options.create:  # a write also detects a read-only ledger
                name = await self._database.write(lambda connection: bind_name(connection, self.name))
            check_name(name, self.name, self.where)
            if self._options.signer is not None:
                await self._check_keys(self._options.signer)
        except BaseException:
            await self._database.close()
            raise
        return self

    async def _check_keys(self, signer: HeadSigner) -> None:
        """Raise an error if this writer's keyring signed none of the newest records."""
        rows = await self._database.read(lambda connection: connection.rows(NEWEST_SIGNED, _CHECKED_SIGNATURES))
        claims = []
        for row in rows:
            with contextlib.suppress(DamagedRowError):  # which verification reports
                claims.append(to_end(self.name, row).claim)
        if claims and all(check is SignatureCheck.UNKNOWN_KEY for check in signer.check(claims)):
            raise LedgerKeysError(
                f"the ledger at {self.where!r} was signed with keys that this process does not have: its last record "
                f"by the key {rows[0]['key_id']!r}, but this keyring signs with {signer.key_id!r}; give every worker "
                "the deployment's keyring (BATON_KEYS)"
            )

    async def __aexit__(self, *_: object) -> None:
        await self._writer.finish()
        await self._database.close()

    async def append(self, entry: AuditEntry, *, after: ChainHead | None = None) -> ChainHead:
        """Record an event durably and return the head of its chain.

        Keep the head outside the ledger: it is the anchor that shows later whether the chain was cut or
        rewritten. A retry with the same event returns the same head and writes nothing.

        Args:
            entry: The event.
            after: A head that the chain must still contain.

        Raises:
            LedgerUnavailableError: Probably not recorded. Do not continue; retry.
            LedgerConflictError: The same event is on record with another message.
            LedgerError: The message holds personal data in clear, or the chain no longer has ``after``.
            rfc8785.CanonicalizationError: The message has no canonical form (RFC 8785).
        """
        return (await self.append_once(entry, after=after)).head

    async def append_once(self, entry: AuditEntry, *, after: ChainHead | None = None) -> Appended:
        """Record an event like `append`, and return whether it was already on record."""
        self._refuse_personal_data(entry)
        return (await self._writer.append([Prepared.of(entry)], after))[0]

    async def append_all(self, entries: Sequence[AuditEntry], *, after: ChainHead | None = None) -> list[ChainHead]:
        """Record several events, all or none; see `append`."""
        for entry in entries:
            self._refuse_personal_data(entry)
        appended = await self._writer.append([Prepared.of(entry) for entry in entries], after) if entries else []
        return [result.head for result in appended]

    async def trace(
        self,
        task_id: str,
        *,
        verifier: HeadVerifier | None = None,
        expected_head: ChainHead | None = None,
        anchors: Iterable[ChainHead] = (),
        checkpoints: Iterable[Checkpoint] = (),
    ) -> Trace:
        """Return a task's records in order, from both tiers, and the report on them (§8.2).

        Args:
            task_id: The task; without records the trace is empty and unverified.
            verifier: The public keys.
            expected_head: The head that the chain must end with.
            anchors: Heads that were kept outside; those of other tasks are ignored.
            checkpoints: Checkpoints that were kept outside. Comparing the newest takes about a second per million
                records.

        Raises:
            LedgerUnavailableError: The database cannot be reached.
        """
        records = await self._reader.task(task_id)
        outside = newest_of(checkpoints, self.name)
        intact = outside is None or await self._checkpoints.matches(outside)
        dating = await self._checkpoints.dating(verifier)
        problem = "the ledger's first records do not match a checkpoint kept outside: verify the whole ledger"
        report = verify(
            records,
            Trust(
                verifier,
                anchors,
                [outside] if outside and intact else [],
                dating if outside is None or intact else [*dating, outside],
            ),
            Scope(self.name, task_id, expected_head),
            [] if intact else [Finding(flaw=Flaw.CHECKPOINT, reason=problem)],
        )
        return Trace(task_id, tuple(records), report)

    async def verify(
        self,
        task_id: str,
        *,
        verifier: HeadVerifier | None = None,
        expected_head: ChainHead | None = None,
        anchors: Iterable[ChainHead] = (),
        checkpoints: Iterable[Checkpoint] = (),
    ) -> Report:
        """Verify a task's chain; see `trace` for the arguments."""
        trace = await self.trace(
            task_id, verifier=verifier, expected_head=expected_head, anchors=anchors, checkpoints=checkpoints
        )
        return trace.report

    async def verify_all(
        self,
        *,
        verifier: HeadVerifier | None = None,
        anchors: Iterable[ChainHead] = (),
        checkpoints: Iterable[Checkpoint] = (),
        verified: VerifiedFile | None = None,
        new_only: bool = False,
        processes: int = 1,
    ) -> Report:
        """Verify every chain of the ledger.

        Args:
            verifier: The public keys.
            anchors: Heads that were kept outside; a task with an anchor but no records is reported missing.
            checkpoints: Checkpoints that were kept outside.
            verified: The file that says how far the ledger was verified. A verification without a flaw continues it.
            new_only: Verify what was added since then: the new records, and whole each chain that they continue or
                that an anchor names. What was changed before since then, `new_only=False` finds.
            processes: How many processes read and check records.

        Raises:
            LedgerError: The file was changed.
        """
        start = verified.read(self.name) if verified is not None and new_only else None
        began = stamp(self._options.clock())
        claimed, damaged = await self._checkpoints.read_all()
        trust = Trust(verifier, anchors, [*checkpoints], claimed)
        verification = Verification(trust, Scope(self.name), damaged, start=start)
        after, end = BEFORE_ALL, await self._reader.end()
        if start is not None:
            after = start.position
            if await self._reader.hash_at(after) != parse_digest(start.last_hash):
                verification.add(
                    f"the record {after} with which the last verification ended is gone or was changed", Flaw.CHECKPOINT
                )
        async for page in checked_pages(
            self._place, self._options.artifacts, self._reader, after=after, through=end, processes=processes
        ):
            if start is not None:
                tasks = {record.claims.task_id for record in page if record.claims}
                await self._recall(verification, [task for task in tasks if verification.is_new(task)], after)
            await asyncio.to_thread(verification.feed, page)
        if start is not None:
            await self._recall(verification, verification.anchored_tasks, after)
        report = await asyncio.to_thread(verification.report)
        if verified is not None and report.verdict in (Verdict.VALID, Verdict.UNANCHORED):
            position, last_hash = verification.last
            verified.keep(
                Verified(
                    ledger=self.name,
                    size=report.records,
                    position=position,
                    last_hash=format_digest(last_hash),
                    digest=report.digest,
                    at=began,
                )
            )
        return report

    async def _recall(self, verification: Verification, task_ids: Sequence[str], through: int) -> None:
        """Read the records of these tasks up to a position."""
        for start in range(0, len(task_ids), PAGE_SIZE):
            records = await self._reader.earlier(task_ids[start : start + PAGE_SIZE], through)
            await asyncio.to_thread(verification.recall, records)

    async def head(self, task_id: str) -> ChainHead | None:
        """Return the unverified head of a task's chain; None without records."""
        return await self._database.read(lambda connection: self._writer.head(connection, task_id))

    async def task_cost(self, task_id: str) -> TaskCost:
        """Return a task's cost by agent (§6.2).

        Only the records of the unbroken chain count; `verify` tells whether they are proved.
        """
        return (await self.trace(task_id)).cost

    async def acceptances(self, task_id: str, handoff_id: str) -> list[AuditHeader]:
        """Return the headers of a handoff's acceptances, of every attempt, unverified and in order."""
        return await self._reader.acceptances(task_id, handoff_id)

    async def erased_tasks(self) -> list[str]:
        """Return the tasks with a record of an erasure, unverified."""
        return await self._database.read(lambda connection: [row[0] for row in connection.rows(ERASED_TASKS)])

    async def newest(self, count: int) -> list[AuditRecord]:
        """Return the last ``count`` records, unverified, the oldest first."""
        return await self._reader.newest(count)

    async def rate(self, count: int) -> float | None:
        """Return how many records a second the newest ``count`` came in at; None if there are fewer."""
        return await self._reader.rate(count)

    async def check_writable(self) -> None:
        """Check that this process can append, without appending.

        Raises:
            LedgerError: It cannot.
        """
        await self._database.write(check_writable)

    async def checkpoint(
        self, witness: AnchorFile | None = None, *, unsigned: bool = False, whole: bool = True
    ) -> Checkpoint:
        """Make a signed checkpoint of the whole ledger and add it to a witness.

        Make one regularly and keep it outside the ledger: it reveals the loss of a whole chain, and saves
        `verify_all` the signatures that it covers, which are verified here.

        Args:
            witness: A file outside the ledger. It takes the checkpoint first; what it refuses is not stored.
            unsigned: Cover unsigned records too.
            whole: Verify the whole ledger first; otherwise only the signatures since the last checkpoint.

        Raises:
            LedgerError: The checkpoint does not continue the witness's last one, a record is not proved, or the
                ledger is invalid.
        """
        if whole and (await self.verify_all(verifier=self._options.signer)).verdict is Verdict.INVALID:
            raise LedgerError(
                f"the ledger {self.name!r} is invalid, so no checkpoint was made: see `baton audit verify --all`"
            )
        return await self._checkpoints.make(witness, unsigned=unsigned)

    async def compare(self, witness: AnchorFile | None = None) -> None:
        """Check that the ledger continues its own newest checkpoint and that of a witness.

        Raises:
            LedgerContinuityError: Records that a checkpoint covers are gone, or this is another ledger.
        """
        await self._checkpoints.compare(witness)

    @contextlib.asynccontextmanager
    async def witnessed(self, witness: AnchorFile, *, every: float = 60.0) -> AsyncIterator[None]:
        """Add checkpoints of new records to a witness, at an interval and at the end of the context.

        A failure is logged; the next interval retries.

        Args:
            witness: The file; keep it where the database's owner cannot write.
            every: The interval in seconds.

        Raises:
            LedgerContinuityError: On entering: the ledger does not continue the checkpoint of the witness.
        """
        await self.compare(witness)
        last_end: int | None = None

        async def save_checkpoint() -> None:
            nonlocal last_end
            try:
                end = await self._reader.end()
                if end != last_end or not await asyncio.to_thread(witness.checkpoints):
                    await self.checkpoint(witness, whole=False)
                    last_end = end
            except Exception as error:  # including a missing signing key, which can return
                _log.warning("the witness %s has no checkpoint of the newest records: %s", witness.path, error)

        async def save_regularly() -> None:
            while True:
                await asyncio.sleep(every)
                await save_checkpoint()

        task = asyncio.create_task(save_regularly())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await save_checkpoint()

    async def checkpoints(self) -> list[Checkpoint]:
        """Return every checkpoint in the ledger, unverified, the oldest first."""
        return await self._checkpoints.all()

    async def move_to_cold(
        self, older_than: timedelta = HOT_PERIOD, *, segment_records: int = SEGMENT_RECORDS
    ) -> list[Segment]:
        """Move old records to the cold tier, and finish an interrupted move; traces still include them (§9).

        Several processes can call it at once; each record is moved once.

        Args:
            older_than: The minimum age of records to move.
            segment_records: The maximum number of records in a segment.

        Returns:
            The segments that this call made.

        Raises:
            FlawedRecordsError: Flawed records were not moved; all others were.
            LedgerError: There is no artifact store, or this role lacks the right.
            ArtifactError: The artifact store failed; the rest was not moved.
        """
        if self._options.artifacts is None:
            raise LedgerError(f"the ledger {self.name!r} was opened without an artifact store to move records to")
        mover = Mover(self._database, self.name, self._options.artifacts)
        await mover.finish()
        limit = stamp(self._options.clock() - older_than)
        end, after = await self._reader.end(), await moved_through(self._database)
        moved: list[Segment] = []
        flawed: dict[int, str] = {}  # by position: after a conflict, a page is read again
        while page := await self._reader.page(after, end, segment_records):
            # Clocks can be ahead: a record is at least as old as the records after it.
            due = page[: max((n for n, record in enumerate(page, 1) if _recorded_at(record) <= limit), default=0)]
            if not due:
                break
            try:
                for batch in split_at_flawed(due, flawed):
                    moved.append(await mover.move(batch))
                after = due[-1].position
            except LedgerConflictError:
                await mover.finish()  # another process moved these first
                last_moved = await moved_through(self._database)
                if last_moved <= after:
                    raise
                after = last_moved
        await mover.clear(moved)
        if flawed:
            raise FlawedRecordsError(moved, list(flawed.values()))
        return moved

    async def export(
        self,
        path: Path,
        task_ids: Sequence[str] | None = None,
        *,
        keys: Sequence[Mapping[str, Any]] = (),
        verifier: HeadVerifier | None = None,
    ) -> Manifest:
        """Write an evidence bundle: records, heads, checkpoint and public keys in one file.

        `verify_bundle` checks it without the ledger.

        Args:
            path: The file.
            task_ids: The tasks; None for the whole ledger.
            keys: The public keys as JWKs, for information only.
            verifier: The public keys to verify the records with first; by default the signer's.

        Raises:
            LedgerError: A task has no records, the records are invalid, or the file can't be written.
        """
        verifier = verifier or self._options.signer
        if task_ids is None:
            return await self._exporter.export_all(path, keys, verifier)
        return await self._exporter.export_tasks(path, task_ids, keys, verifier)

    async def attest(self, task_ids: Sequence[str], *, verifier: HeadVerifier | None = None) -> list[bytes]:
        """Return the records of these tasks as in-toto attestations: a signed DSSE envelope each, a line of JSON.

        A statement has the record's header and no text of its message; its subjects are the artifacts in it. A branch
        that a stage offered gets a provenance too (SLSA's form).

        Args:
            task_ids: The tasks.
            verifier: The public keys to verify the records with first; by default the signer's.

        Raises:
            LedgerError: The ledger was opened without a signer, a task has no records, or they are invalid.
        """
        signer = self._options.signer
        if signer is None:
            raise LedgerError("attestations are signed, and there is no key to sign with; set BATON_KEYS")
        lines: list[bytes] = []
        for task_id in dict.fromkeys(task_ids):
            trace = await self.trace(task_id, verifier=verifier or signer)
            refuse_export(self.name, task_id, trace.report, len(trace.records))
            lines += await asyncio.to_thread(list, attest(trace.records, signer))
        return lines

    def _refuse_personal_data(self, entry: AuditEntry) -> None:
        message = entry.message
        if isinstance(message, bytes):
            if not may_be_in_clear(message, self._options.policy):
                return
            message = loads_strict(message)
        pointers = in_clear(message, self._options.policy)
        if pointers:
            raise LedgerError(
                f"the event {entry.event_key!r} holds personal data in clear at {', '.join(pointers[:5])}: redact the "
                "message first (baton.ledger.entries), because records cannot be erased"
            )


def _recorded_at(record: AuditRecord) -> str:
    return record.claims.recorded_at if record.claims else ""
