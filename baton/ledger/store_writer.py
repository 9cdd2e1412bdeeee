"""Appending: each event once, each chain without forks, and all that waits in one durable transaction.

While one transaction is on its way to the disk, further appends wait in a queue, and the next one takes them all: under
load, one flush serves many records. An append that was refused, or whose answer was lost, is repeated: an event that
is on record already gives the head it gave the first time.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from baton.ledger.chain import ChainHead, HeadSigner, SignatureCheck, head_statement
from baton.ledger.records import (
    AuditEntry,
    AuditRecord,
    ChainLink,
    LedgerConflictError,
    LedgerError,
    LedgerUnavailableError,
    next_record,
)
from baton.ledger.store_database import Connection, DamagedRowError, Database, Row, hashes, scalar
from baton.ledger.store_schema import HASH_AT, StoredRecord, check_heads, insert
from baton.wire.json_values import format_digest, parse_digest, sha256

MOST_AT_ONCE = 256
"""How many appends share a transaction at most."""
MOST_ENDS = 4_096
"""Of so many tasks a writer remembers where their chains end."""
_KEYS_AT_ONCE = 500

_COLUMNS = "task_id, event_key, sequence, record_hash, recorded_at, message_hash, key_id, signature"
_LAST = f"SELECT {_COLUMNS} FROM handoff_audit WHERE task_id = ? ORDER BY sequence DESC LIMIT 1"  # noqa: S608
_SAME = f"SELECT {_COLUMNS} FROM handoff_audit WHERE (task_id, event_key) IN (VALUES "  # noqa: S608 - our own names


@dataclass(frozen=True)
class Prepared:
    """An entry with the bytes of its message, made before the transaction begins."""

    entry: AuditEntry
    message: bytes
    message_hash: bytes

    @classmethod
    def of(cls, entry: AuditEntry) -> "Prepared":
        """Return the entry with its message in canonical form."""
        message = entry.message_bytes()
        return cls(entry, message, sha256(message))


class Appended(NamedTuple):
    """What an append gave: the head of the chain right after the event, and whether it was on record before."""

    head: ChainHead
    again: bool


@dataclass(frozen=True)
class _Call:
    """An append in the queue."""

    entries: Sequence[Prepared]
    after: ChainHead | None
    done: "asyncio.Future[list[Appended]]"


@dataclass
class _Plan:
    """What a transaction is about to write."""

    links: dict[str, ChainLink] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # of tasks, why nothing is added to their chains
    heads: dict[tuple[str, str], tuple[bytes, ChainHead]] = field(default_factory=dict)
    records: list[AuditRecord] = field(default_factory=list)

    def merge(self, other: "_Plan") -> None:
        """Take over what a call added to a copy of this plan."""
        self.links |= other.links
        self.heads |= other.heads
        self.records += other.records


class _Written(NamedTuple):
    """What a transaction has written: for each call the heads, or why it is refused; and where chains end now."""

    outcomes: Sequence[list[Appended] | LedgerError]
    ends: Mapping[str, ChainLink]


class Writer:
    """Appends to one ledger, for one event loop."""

    def __init__(self, database: Database, name: str, signer: HeadSigner | None, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._name = name
        self._signer = signer
        self._clock = clock
        self._queue: deque[_Call] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ends: dict[str, ChainLink] = {}  # of the tasks that this writer wrote to, as it left them

    async def append(self, entries: Sequence[Prepared], after: ChainHead | None = None) -> list[Appended]:
        """Return the heads of the entries' chains right after each, once all of them are durable."""
        call = _Call(entries, after, asyncio.get_running_loop().create_future())
        self._queue.append(call)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await call.done

    async def finish(self) -> None:
        """Return once nothing waits any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        while self._queue:
            calls = [self._queue.popleft()]
            while self._queue and sum(len(call.entries) for call in calls) < MOST_AT_ONCE:
                calls.append(self._queue.popleft())
            await self._commit(calls)

    async def _commit(self, calls: Sequence[_Call]) -> None:
        """Write calls in one transaction; if the tables refuse it, each in one of its own."""
        try:
            written = await self._database.write(lambda connection: self._write(connection, calls))
        except Exception as error:  # whatever it is, the callers get it
            if self._forget(calls) and isinstance(error, LedgerConflictError):
                await self._commit(calls)
            elif len(calls) > 1 and not isinstance(error, LedgerUnavailableError):
                for call in calls:
                    await self._commit([call])
            else:
                _answer(calls, [error for _ in calls])
            return
        self._wrote(written.ends)
        _answer(calls, written.outcomes)

    def _wrote(self, ends: Mapping[str, ChainLink]) -> None:
        """Remember where chains end now."""
        for task_id, end in ends.items():
            self._ends.pop(task_id, None)  # so that it counts as the newest
            self._ends[task_id] = end
        while len(self._ends) > MOST_ENDS:
            del self._ends[next(iter(self._ends))]

    def _forget(self, calls: Sequence[_Call]) -> bool:
        """Forget where the chains of these calls end; return whether any was known."""
        known = [self._ends.pop(one.entry.task_id, None) for call in calls for one in call.entries]
        return any(known)

    def _write(self, connection: Connection, calls: Sequence[_Call]) -> _Written:
        """Write what the calls ask for."""
        entries = [one.entry for call in calls for one in call.entries]
        self._database.hold_tasks(connection, sorted({entry.task_id for entry in entries}))
        plan = self._known(connection, entries)
        outcomes: list[list[Appended] | LedgerError] = []
        for call in calls:
            added = _Plan(dict(plan.links), plan.refused, dict(plan.heads))
            try:
                outcomes.append(self._planned(connection, call, added))
                plan.merge(added)
            except LedgerError as error:
                outcomes.append(error)
        if plan.records:
            insert(connection, [StoredRecord.of(record) for record in plan.records])
        ends = {task_id: link for task_id, link in plan.links.items() if task_id not in plan.refused}
        return _Written(outcomes, ends)

    def _planned(self, connection: Connection, call: _Call, plan: _Plan) -> list[Appended]:
        """Add the records of a call to the plan; return the heads."""
        if call.after is not None:
            self._check_still_there(connection, call.after)
        heads = []
        for one in call.entries:
            if (why := plan.refused.get(one.entry.task_id)) is not None:
                raise LedgerUnavailableError(f"nothing was recorded for task {one.entry.task_id!r}: {why}")
            key = (one.entry.task_id, one.entry.event_key)
            again = key in plan.heads
            if not again:
                plan.heads[key] = (one.message_hash, self._joined(one, plan))
            message_hash, head = plan.heads[key]
            if message_hash != one.message_hash:
                raise LedgerConflictError(
                    f"the event {one.entry.event_key!r} of task {one.entry.task_id!r} is on record already, with the "
                    f"message {format_digest(message_hash)!r}, and not {format_digest(one.message_hash)!r}; "
                    "an event is recorded once: give another attempt another number"
                )
            heads.append(Appended(head, again))
        return heads

    def _joined(self, one: Prepared, plan: _Plan) -> ChainHead:
        """Join an entry to its chain, sign the head, and plan the record; return the head."""
        link = plan.links[one.entry.task_id]
        key_id = self._signer.key_id if self._signer else None
        record = next_record(
            one.entry, link, recorded_at=self._clock(), key_id=key_id, message=(one.message, one.message_hash)
        )
        if self._signer:
            statement = head_statement(link.ledger, link.task_id, link.sequence + 1, record.hash, key_id)
            record = record.signed(self._signer.sign(statement))
        plan.links[one.entry.task_id] = record.link
        plan.records.append(record)
        return ChainHead.of(record)

    def _known(self, connection: Connection, entries: Sequence[AuditEntry]) -> _Plan:
        """Return what the ledger has already: the ends of the entries' chains, and the events among them."""
        plan = _Plan({one.task_id: end for one in entries if (end := self._ends.get(one.task_id)) is not None})
        entries = [entry for entry in entries if entry.task_id not in plan.links]
        keys = sorted({(entry.task_id, entry.event_key) for entry in entries})
        rows: list[Row] = []
        for at in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[at : at + _KEYS_AT_ONCE]
            pairs = ", ".join(["(?, ?)"] * len(some))
            for row in connection.rows(f"{_SAME}{pairs})", *itertools.chain.from_iterable(some)):
                plan.heads[row["task_id"], row["event_key"]] = (row["message_hash"], self._head_of(row))
                rows.append(row)
        for task_id in {entry.task_id for entry in entries}:
            last = connection.rows(_LAST, task_id)
            for row in last:
                self._head_of(row)  # or no record can follow it
            rows += last
            plan.links[task_id] = (
                ChainLink(self._name, task_id, last[0]["sequence"], last[0]["record_hash"], last[0]["recorded_at"])
                if last
                else ChainLink.genesis(self._name, task_id)
            )
        plan.refused = self._not_ours(rows)
        return plan

    def _not_ours(self, rows: Sequence[Row]) -> dict[str, str]:
        """Return, by task, why a row that the chain would be extended after, or is answered with, cannot be trusted."""
        if self._signer is None:
            return {
                row["task_id"]: (
                    f"its record {row['sequence']} is signed by the key {row['key_id']!r}, and this writer has no "
                    "keys: give it the deployment's keyring (BATON_KEYS)"
                )
                for row in rows
                if row["signature"] is not None or row["key_id"] is not None
            }
        _ = self._signer.key_id  # a keyring without a key to sign with says so itself
        checks = check_heads(self._name, rows, self._signer)
        return {
            row["task_id"]: f"its record {row['sequence']} is not proved by the keys of this writer "
            f"(the signature by {row['key_id']!r}: {check}); give it the deployment's keyring (BATON_KEYS) if it has "
            "another one, or find out who wrote that record: `baton audit verify`"
            for row, check in zip(rows, checks, strict=True)
            if check is not SignatureCheck.GOOD
        }

    def _check_still_there(self, connection: Connection, head: ChainHead) -> None:
        """Make sure that the chain still has the record that the caller knows."""
        found = scalar(connection, HASH_AT, head.task_id, head.sequence)
        if head.ledger != self._name or (head.sequence and found != parse_digest(head.record_hash)):
            raise LedgerError(
                f"the chain of task {head.task_id!r} in the ledger {self._name!r} does not have the record "
                f"{head.anchor!r} of {head.ledger!r} any more: verify it before anything is added to it"
            )

    def head(self, connection: Connection, task_id: str) -> ChainHead | None:
        """Return the head of a task's chain as the index has it, or None without records."""
        last = connection.rows(_LAST, task_id)
        return self._head_of(last[0]) if last else None

    def _head_of(self, row: Row) -> ChainHead:
        """Return the head that a row of the index is."""
        task_id, sequence = row["task_id"], row["sequence"]
        try:
            record_hash, signature = hashes(row)
            datetime.fromisoformat(row["recorded_at"])
            return ChainHead.at(self._name, task_id, sequence, record_hash, row["key_id"], signature)
        except (DamagedRowError, ValueError, TypeError) as error:
            raise DamagedRowError(f"record {sequence!r} of task {task_id!r}") from error


def _answer(calls: Sequence[_Call], outcomes: Sequence[list[Appended] | Exception]) -> None:
    """Give the callers what became of their appends."""
    for call, outcome in zip(calls, outcomes, strict=True):
        if call.done.done():  # the caller was cancelled
            continue
        if isinstance(outcome, Exception):
            call.done.set_exception(outcome)
        else:
            call.done.set_result(outcome)
