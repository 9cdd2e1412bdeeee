"""The ledger: the append-only audit store, and all that is asked of it (EAAPL-MAG006 §6.2, §8.2, §10.3)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from baton.artifacts.store import ArtifactStore
from baton.ledger.chain import ChainHead, ChainReport, HeadSigner, HeadVerifier, SignatureCheck, Verdict
from baton.ledger.entries import RedactionPolicy, TaskCost, Trace, in_clear, may_be_in_clear
from baton.ledger.evidence import Manifest
from baton.ledger.proof import Checkpoint, LedgerReport, LedgerWalk, verify_chain
from baton.ledger.records import (
    AuditEntry,
    AuditRecord,
    LedgerConflictError,
    LedgerError,
    LedgerKeysError,
    stamp,
)
from baton.ledger.store_database import Database
from baton.ledger.store_evidence import AnchorFile, Checkpoints, Exporter
from baton.ledger.store_reader import (
    SEGMENT_RECORDS,
    ColdTier,
    FlawedRecordsError,
    Mover,
    Reader,
    Segment,
    moved_through,
    without_flawed,
)
from baton.ledger.store_schema import (
    NEWEST_SIGNED,
    VERSION,
    bind_name,
    check_heads,
    check_name,
    check_revision,
    check_writable,
    migrate,
    name_of,
    open_database,
    revision,
)
from baton.ledger.store_writer import Appended, Prepared, Writer
from baton.wire.json_values import loads_strict

HOT = timedelta(days=30)
"""How long records stay in the hot tier (§9)."""
_KEYS_SEEN = 100
"""The keys of so many of the newest signed records are looked at when a writer opens the ledger."""
_log = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class LedgerOptions:
    """What a ledger is opened with.

    Attributes:
        name: The ledger's name, for example that of the deployment. Every record carries it, so that no
            record of a test passes for one of production; a ledger keeps the name it got first.
        signer: The key that signs heads and checkpoints, with the public keys of its keyring; None leaves them
            unsigned, which `verify` reports. A writer only extends chains whose end these keys signed.
        artifacts: The artifact store of the cold tier; None where there is none.
        policy: Which members of a message hold personal data, which are refused in clear.
        clock: Gives the time of recording.
        create: Make a file that is not there, and its tables; an auditor sets this to False.
    """

    name: str = "baton"
    signer: HeadSigner | None = None
    artifacts: ArtifactStore | None = None
    policy: RedactionPolicy = field(default_factory=RedactionPolicy)
    clock: Callable[[], datetime] = _now
    create: bool = True


class Ledger:
    """An audit ledger: one hash chain for each task, written before the receiver begins.

    Use it as an asynchronous context manager, on one event loop; any number of processes may use one ledger.
    A file and its tables are made when it is opened. The tables of a Postgres database are made by its owner.

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
        self._database: Database = open_database(where, create=options.create)
        self.where = self._database.where
        self._reader = Reader(self._database, ColdTier(options.artifacts))
        self._writer = Writer(self._database, options.name, options.signer, options.clock)
        self._checkpoints = Checkpoints(self._database, options.name, options.signer, options.clock)
        self._exporter = Exporter(self._reader, self._checkpoints, options.name, options.signer, options.clock)

    async def __aenter__(self) -> Self:
        makes = self._database.dialect == "sqlite" and self._options.create
        try:
            found = await revision(self._database)
            if makes and found is None:
                await migrate(self._database)
                found = VERSION
            check_revision(found, self._database)
            name = await self._database.read(name_of)
            if self._options.create:  # also finds out a ledger that can only be read
                name = await self._database.write(lambda connection: bind_name(connection, self.name))
            check_name(name, self.name, self.where)
            if self._options.signer is not None:
                await self._check_keys(self._options.signer)
        except BaseException:
            await self._database.close()
            raise
        return self

    async def _check_keys(self, signer: HeadSigner) -> None:
        """Make sure that this writer's keyring is the one that signed the newest records."""
        rows = await self._database.read(lambda connection: connection.rows(NEWEST_SIGNED, _KEYS_SEEN))
        checks = check_heads(self.name, rows, signer)
        if rows and all(check is SignatureCheck.UNKNOWN_KEY for check in checks):
            raise LedgerKeysError(
                f"the ledger at {self.where!r} was signed with other keys than this process has: its last record by "
                f"the key {rows[0]['key_id']!r}, and the keyring here signs with {signer.key_id!r} and does not know "
                "it; give every worker the deployment's keyring (BATON_KEYS)"
            )

    async def __aexit__(self, *_: object) -> None:
        await self._writer.finish()
        await self._database.close()

    async def append(self, entry: AuditEntry, *, after: ChainHead | None = None) -> ChainHead:
        """Put an event on record, durably, and return the head of its chain right after it.

        Keep the head outside the ledger: it is the anchor that shows later whether the chain was cut or
        rewritten. Appending the same event again, which a retry does, gives the same head and writes nothing.

        Args:
            entry: The event.
            after: A head that the caller knows: the chain must still have it.

        Raises:
            LedgerUnavailableError: It was not recorded, as far as anybody can tell. Do not continue; try again.
            LedgerConflictError: The same event is on record with another message.
            LedgerError: The message holds personal data in clear, or the chain no longer has ``after``.
            rfc8785.CanonicalizationError: The message is not JSON that everybody reads alike.
        """
        return (await self.append_once(entry, after=after)).head

    async def append_once(self, entry: AuditEntry, *, after: ChainHead | None = None) -> Appended:
        """Put an event on record as `append` does; say besides whether it was there before."""
        self._refuse_personal_data(entry)
        return (await self._writer.append([Prepared.of(entry)], after))[0]

    async def append_all(self, entries: Sequence[AuditEntry], *, after: ChainHead | None = None) -> list[ChainHead]:
        """Put several events on record, all of them or none; see `append`."""
        for entry in entries:
            self._refuse_personal_data(entry)
        appended = await self._writer.append([Prepared.of(entry) for entry in entries], after) if entries else []
        return [one.head for one in appended]

    async def trace(
        self,
        task_id: str,
        *,
        verifier: HeadVerifier | None = None,
        expected_head: ChainHead | None = None,
        anchors: Iterable[ChainHead] = (),
        checkpoints: Iterable[Checkpoint] = (),
    ) -> Trace:
        """Return everything that happened to a task, in order, and whether its chain is whole (§8.2).

        One query, whichever tiers the records are in. What is verified is `verify_chain`'s list.

        Args:
            task_id: The task; one that the ledger has nothing of gives an empty, unverified trace.
            verifier: The public keys.
            expected_head: The head that the chain must end with.
            anchors: Heads that were kept outside; those of other tasks are not used.
            checkpoints: Checkpoints that were kept outside. Reading what the newest covers takes about a second for
                each million records.

        Raises:
            LedgerUnavailableError: The database cannot be reached.
        """
        records = await self._reader.task(task_id)
        covered = await self._checkpoints.covered(task_id, checkpoints)
        report = verify_chain(
            records,
            ledger=self.name,
            task_id=task_id,
            verifier=verifier,
            expected_head=expected_head,
            anchors=anchors,
            compared_through=covered or 0,
        )
        if covered is None:
            why = "the ledger's first records are not those of a checkpoint that was kept outside: verify all of it"
            report = report.model_copy(update={"verdict": Verdict.INVALID, "reason": report.reason or why})
        return Trace(task_id, tuple(records), report)

    async def verify(
        self,
        task_id: str,
        *,
        verifier: HeadVerifier | None = None,
        expected_head: ChainHead | None = None,
        anchors: Iterable[ChainHead] = (),
        checkpoints: Iterable[Checkpoint] = (),
    ) -> ChainReport:
        """Return whether a task's chain is whole; the arguments are those of `trace`."""
        found = await self.trace(
            task_id, verifier=verifier, expected_head=expected_head, anchors=anchors, checkpoints=checkpoints
        )
        return found.report

    async def verify_all(
        self,
        *,
        verifier: HeadVerifier | None = None,
        anchors: Iterable[ChainHead] = (),
        checkpoints: Iterable[Checkpoint] = (),
    ) -> LedgerReport:
        """Return whether the whole ledger is, every chain of it; see `LedgerWalk` for what that proves.

        Args:
            verifier: The public keys.
            anchors: Heads that were kept outside; a task with only an anchor left is found missing.
            checkpoints: Checkpoints that were kept outside.
        """
        claimed, damaged = await self._checkpoints.all_there_are()
        walk = LedgerWalk(
            self.name, verifier=verifier, anchors=anchors, checkpoints=checkpoints, claimed=claimed, reasons=damaged
        )
        async for page in self._reader.pages(await self._reader.end()):
            await asyncio.to_thread(walk.feed_all, page)
        return await asyncio.to_thread(walk.finish)

    async def head(self, task_id: str) -> ChainHead | None:
        """Return the head of a task's chain as the ledger has it now, unverified; None without records."""
        return await self._database.read(lambda connection: self._writer.head(connection, task_id))

    async def task_cost(self, task_id: str) -> TaskCost:
        """Return what a task has cost and who spent it, from its records (§6.2).

        Only records that hang together from the first count; whether they are proved, `verify` tells.
        """
        return (await self.trace(task_id)).cost

    async def newest(self, count: int) -> list[AuditRecord]:
        """Return the last records, so many at most, the oldest of them first; nothing is verified."""
        return await self._reader.newest(count)

    async def check_writable(self) -> None:
        """Make sure that this role, on this server, can add to the ledger; nothing is added.

        Raises:
            LedgerError: It cannot, and why.
        """
        await self._database.write(check_writable)

    async def checkpoint(
        self, witness: AnchorFile | None = None, *, unsigned: bool = False, whole: bool = True
    ) -> Checkpoint:
        """Make a signed checkpoint of the whole ledger, and have a witness keep it.

        Make one regularly, and keep it outside the ledger: it shows that a whole chain is gone, and `verify_all`
        does not verify the signatures under it again. Each of them is verified here.

        Args:
            witness: Where it is kept; it has it before the ledger does, which gets none that the witness refused.
            unsigned: Cover records that claim no signature as well.
            whole: Verify the whole ledger first; otherwise only the signatures since the last checkpoint.

        Raises:
            LedgerError: The witness knows a checkpoint that this one does not continue, a record is not proved, or the
                ledger is invalid.
        """
        if whole and (await self.verify_all(verifier=self._options.signer)).verdict is Verdict.INVALID:
            raise LedgerError(
                f"the ledger {self.name!r} is invalid, so no checkpoint vouches for it: see `baton audit verify --all`"
            )
        return await self._checkpoints.make(await self._reader.end(), witness, unsigned=unsigned)

    @contextlib.asynccontextmanager
    async def witnessed(self, witness: AnchorFile, *, every: float = 60.0) -> AsyncIterator[None]:
        """Have a witness keep a checkpoint of what is recorded, regularly while the context is open and at its end.

        What fails is logged, and tried again the next time.

        Args:
            witness: The file; keep it where the database's owner cannot write.
            every: After how many seconds.
        """
        seen = await self._reader.end()

        async def keep() -> None:
            nonlocal seen
            try:
                end = await self._reader.end()
                if end != seen or not await asyncio.to_thread(witness.checkpoints):
                    await self.checkpoint(witness, whole=False)
                    seen = end
            except Exception as error:  # also a keyring whose key to sign with is gone: it may come back
                _log.warning("the witness %s has no checkpoint of the newest records: %s", witness.path, error)

        async def keep_on() -> None:
            while True:
                await asyncio.sleep(every)
                await keep()

        task = asyncio.create_task(keep_on())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await keep()

    async def checkpoints(self) -> list[Checkpoint]:
        """Return every checkpoint in the ledger, the oldest first; their signatures are not checked."""
        return await self._checkpoints.all()

    async def move_to_cold(
        self, older_than: timedelta = HOT, *, segment_records: int = SEGMENT_RECORDS
    ) -> list[Segment]:
        """Move old records to the cold tier, and end a move that broke off; traces read them as before (§9).

        Several processes may do it at once: each record is moved by one of them.

        Args:
            older_than: Records of at least this age are moved.
            segment_records: How many a segment takes at most.

        Returns:
            The segments that this call made.

        Raises:
            FlawedRecordsError: Records are flawed; they stay where they are, and all others were moved.
            LedgerError: There is no artifact store, or this role may not.
            ArtifactError: The artifact store failed; what was not yet moved stays where it is.
        """
        if self._options.artifacts is None:
            raise LedgerError(f"the ledger {self.name!r} was opened without an artifact store to move records to")
        mover = Mover(self._database, self.name, self._options.artifacts)
        await mover.finish()
        limit = stamp(self._options.clock() - older_than)
        end, after = await self._reader.end(), await moved_through(self._database)
        moved: list[Segment] = []
        flawed: list[str] = []
        while page := await self._reader.page(after, end, segment_records):
            # One that a clock stamped with a later time is at least as old as what came after it.
            old = page[: max((at for at, record in enumerate(page, 1) if _recorded_at(record) <= limit), default=0)]
            if not old:
                break
            try:
                for run in without_flawed(old, flawed):
                    moved.append(await mover.move(run))
                after = old[-1].position
            except LedgerConflictError:
                await mover.finish()  # another process moves as well, and was quicker with these
                found = await moved_through(self._database)
                if found <= after:
                    raise
                after = found
        if flawed:
            raise FlawedRecordsError(moved, flawed)
        return moved

    async def export(
        self,
        path: Path,
        task_ids: Sequence[str] | None = None,
        *,
        keys: Sequence[Mapping[str, Any]] = (),
        verifier: HeadVerifier | None = None,
    ) -> Manifest:
        """Write an evidence bundle: records, heads, checkpoint, proofs and public keys in one file.

        `verify_bundle` checks it without the ledger.

        Args:
            path: The file.
            task_ids: The tasks; None for the whole ledger.
            keys: The public keys as JWKs, for the reader's convenience; no trust rests on them.
            verifier: The public keys that the records are verified with first; by default those of the signer.

        Raises:
            LedgerError: The ledger has nothing of a task, what was to be exported is invalid, or the file can't be
                written.
        """
        verifier = verifier or self._options.signer
        if task_ids is None:
            return await self._exporter.everything(path, keys, verifier)
        return await self._exporter.tasks(path, task_ids, keys, verifier)

    def _refuse_personal_data(self, entry: AuditEntry) -> None:
        """Make sure that nothing is recorded for ever that may have to be erased."""
        message = entry.message
        if isinstance(message, bytes):
            if not may_be_in_clear(message, self._options.policy):
                return
            message = loads_strict(message)
        found = in_clear(message, self._options.policy)
        if found:
            raise LedgerError(
                f"the event {entry.event_key!r} holds personal data in clear at {', '.join(found[:5])}: redact the "
                "message first (baton.ledger.entries), since the ledger forgets nothing"
            )


def _recorded_at(record: AuditRecord) -> str:
    return record.claims.recorded_at if record.claims else ""
