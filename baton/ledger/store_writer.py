"""Appending records: each event once, each chain without forks, many records in one durable transaction.

During a transaction further appends wait in a queue, and the next transaction takes them together: under load one
flush serves many records. A failed append can be retried: an event that is already on record returns its first head.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from baton.keys.claims import HeadSigner
from baton.ledger.chain import ChainEnd, ChainHead, check_ends, head_statement
from baton.ledger.records import (
    AuditEntry,
    AuditRecord,
    ChainLink,
    LedgerConflictError,
    LedgerError,
    LedgerUnavailableError,
    next_record,
)
from baton.ledger.store_database import Connection, Database, Row, scalar
from baton.ledger.store_schema import HASH_AT, StoredRecord, insert, proved_checkpoints, to_end
from baton.wire.json_values import format_digest, parse_digest, sha256

MAX_BATCH = 256
"""The maximum number of appends in a transaction."""
MAX_CACHED_ENDS = 4_096
"""The maximum number of chain ends that a writer caches."""
_KEYS_PER_QUERY = 500

_COLUMNS = "position, task_id, event_key, sequence, record_hash, recorded_at, message_hash, key_id, signature"
_LAST = f"SELECT {_COLUMNS} FROM handoff_audit WHERE task_id = ? ORDER BY sequence DESC LIMIT 1"  # noqa: S608
# SQLite joins in this order, so that it looks up each pair; for pairs in an IN it would go through the whole table.
_SAME = f"""SELECT {_COLUMNS} FROM (VALUES {{}}) AS asked CROSS JOIN handoff_audit
WHERE task_id = column1 AND event_key = column2"""  # noqa: S608 - our own names


@dataclass(frozen=True)
class Prepared:
    """An entry with the canonical bytes of its message, made before the transaction."""

    entry: AuditEntry
    message: bytes
    message_hash: bytes

    @classmethod
    def of(cls, entry: AuditEntry) -> "Prepared":
        """Serialize the entry's message."""
        message = entry.message_bytes()
        return cls(entry, message, sha256(message))


class Appended(NamedTuple):
    """The head of the chain at an appended event, and whether the event was already on record."""

    head: ChainHead
    already_recorded: bool


@dataclass(frozen=True)
class _Call:
    """An append in the queue."""

    entries: Sequence[Prepared]
    after: ChainHead | None
    done: "asyncio.Future[list[Appended]]"


@dataclass
class _Plan:
    """The records that a transaction will write, and the state of their chains."""

    links: dict[str, ChainLink] = field(default_factory=dict)  # the ends of chains, by task
    refused: dict[str, str] = field(default_factory=dict)  # why a chain must not be extended, by task
    heads: dict[tuple[str, str], tuple[bytes, ChainHead]] = field(default_factory=dict)
    records: list[AuditRecord] = field(default_factory=list)

    def merge(self, other: "_Plan") -> None:
        """Add what a call changed in a copy of this plan."""
        self.links |= other.links
        self.heads |= other.heads
        self.records += other.records


class _Outcome(NamedTuple):
    """The result of a transaction: the heads or the error for each call, and the new ends of chains."""

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
        self._ends: dict[str, ChainLink] = {}  # the ends of the chains that this writer extended, by task

    async def append(self, entries: Sequence[Prepared], after: ChainHead | None = None) -> list[Appended]:
        """Append entries durably, and return the head of its chain for each."""
        call = _Call(entries, after, asyncio.get_running_loop().create_future())
        self._queue.append(call)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await call.done

    async def finish(self) -> None:
        """Wait until the queue is empty."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        while self._queue:
            calls = [self._queue.popleft()]
            while self._queue and sum(len(call.entries) for call in calls) < MAX_BATCH:
                calls.append(self._queue.popleft())
            await self._commit(calls)

    async def _commit(self, calls: Sequence[_Call]) -> None:
        """Write calls in one transaction; if it is refused, each in its own."""
        try:
            written = await self._database.write(lambda connection: self._write(connection, calls))
        except Exception as error:  # passed on to the callers
            if self._forget_ends(calls) and isinstance(error, LedgerConflictError):
                await self._commit(calls)
            elif len(calls) > 1 and not isinstance(error, LedgerUnavailableError):
                for call in calls:
                    await self._commit([call])
            else:
                _resolve_calls(calls, [error for _ in calls])
            return
        self._remember_ends(written.ends)
        _resolve_calls(calls, written.outcomes)

    def _remember_ends(self, ends: Mapping[str, ChainLink]) -> None:
        for task_id, end in ends.items():
            self._ends.pop(task_id, None)  # insert it as the newest
            self._ends[task_id] = end
        while len(self._ends) > MAX_CACHED_ENDS:
            del self._ends[next(iter(self._ends))]

    def _forget_ends(self, calls: Sequence[_Call]) -> bool:
        """Drop the ends of these calls' chains from the cache; return whether any was there."""
        ends = [self._ends.pop(prepared.entry.task_id, None) for call in calls for prepared in call.entries]
        return any(ends)

    def _write(self, connection: Connection, calls: Sequence[_Call]) -> _Outcome:
        entries = [prepared.entry for call in calls for prepared in call.entries]
        self._database.hold_tasks(connection, sorted({entry.task_id for entry in entries}))
        plan = self._load_plan(connection, entries)
        outcomes: list[list[Appended] | LedgerError] = []
        for call in calls:
            added = _Plan(dict(plan.links), plan.refused, dict(plan.heads))
            try:
                outcomes.append(self._plan_call(connection, call, added))
                plan.merge(added)
            except LedgerError as error:
                outcomes.append(error)
        if plan.records:
            insert(connection, [StoredRecord.of(record) for record in plan.records])
        ends = {task_id: link for task_id, link in plan.links.items() if task_id not in plan.refused}
        return _Outcome(outcomes, ends)

    def _plan_call(self, connection: Connection, call: _Call, plan: _Plan) -> list[Appended]:
        """Add the records of a call to the plan, and return the heads."""
        if call.after is not None:
            self._check_known_head(connection, call.after)
        heads = []
        for prepared in call.entries:
            entry = prepared.entry
            if (problem := plan.refused.get(entry.task_id)) is not None:
                raise LedgerUnavailableError(f"nothing was recorded for task {entry.task_id!r}: {problem}")
            key = (entry.task_id, entry.event_key)
            already_recorded = key in plan.heads
            if not already_recorded:
                plan.heads[key] = (prepared.message_hash, self._plan_record(prepared, plan))
            message_hash, head = plan.heads[key]
            if message_hash != prepared.message_hash:
                raise LedgerConflictError(
                    f"the event {entry.event_key!r} of task {entry.task_id!r} is already on record with the message "
                    f"{format_digest(message_hash)!r}, not {format_digest(prepared.message_hash)!r}; "
                    "use another attempt number"
                )
            heads.append(Appended(head, already_recorded))
        return heads

    def _plan_record(self, prepared: Prepared, plan: _Plan) -> ChainHead:
        """Add an entry's record to the plan, and return the signed head."""
        entry, message = prepared.entry, (prepared.message, prepared.message_hash)
        link = plan.links[entry.task_id]
        key_id = self._signer.key_id if self._signer else None
        record = next_record(entry, link, recorded_at=self._clock(), key_id=key_id, message=message)
        if self._signer:
            statement = head_statement(record.link, key_id)
            record = record.signed(self._signer.sign(statement))
        plan.links[entry.task_id] = record.link
        plan.records.append(record)
        return ChainHead.of(record)

    def _load_plan(self, connection: Connection, entries: Sequence[AuditEntry]) -> _Plan:
        """Return a plan with the ends of the entries' chains, and with those events that are already on record."""
        plan = _Plan({entry.task_id: end for entry in entries if (end := self._ends.get(entry.task_id)) is not None})
        entries = [entry for entry in entries if entry.task_id not in plan.links]
        keys = sorted({(entry.task_id, entry.event_key) for entry in entries})
        known: list[Row] = []
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            batch = keys[start : start + _KEYS_PER_QUERY]
            pairs = ", ".join(["(?, ?)"] * len(batch))
            known += connection.rows(_SAME.format(pairs), *itertools.chain.from_iterable(batch))
        task_ids = {entry.task_id for entry in entries}
        last = [row for task_id in task_ids for row in connection.rows(_LAST, task_id)]
        dated = proved_checkpoints(connection, self._name, self._signer) if last else []
        ends = [to_end(self._name, row, dated) for row in (*known, *last)]
        for row, known_end in zip(known, ends, strict=False):
            plan.heads[row["task_id"], row["event_key"]] = (row["message_hash"], known_end.head)
        plan.links |= {task_id: ChainLink.genesis(self._name, task_id) for task_id in task_ids}
        plan.links |= {end.link.task_id: end.link for end in ends[len(known) :]}
        plan.refused = self._find_untrusted(ends) if ends else {}
        return plan

    def _find_untrusted(self, ends: Sequence[ChainEnd]) -> dict[str, str]:
        """Return, by task, why a record cannot be trusted as the end of its chain or as the answer to an append."""
        if self._signer is None:
            return {
                end.link.task_id: (
                    f"its record {end.link.sequence} is signed by the key {end.key_id!r}, and this writer has no "
                    "keys: give it the deployment's keyring (BATON_KEYS)"
                )
                for end in ends
                if end.signature is not None or end.key_id is not None
            }
        _ = self._signer.key_id  # raises an error for a keyring without a signing key
        return {
            finding.task_id: f"its record {finding.sequence} is not proved by the keys of this writer: "
            f"{finding.reason}; give it the deployment's keyring (BATON_KEYS), or find out who wrote that record: "
            "`baton audit verify`"
            for finding in check_ends(ends, self._signer)
            if finding is not None and finding.task_id is not None
        }

    def _check_known_head(self, connection: Connection, head: ChainHead) -> None:
        """Raise an error if the chain no longer has the caller's record."""
        current_hash = scalar(connection, HASH_AT, head.task_id, head.sequence)
        if head.ledger != self._name or (head.sequence and current_hash != parse_digest(head.record_hash)):
            raise LedgerError(
                f"the chain of task {head.task_id!r} in the ledger {self._name!r} no longer has the record "
                f"{head.anchor!r} of {head.ledger!r}: verify it before adding to it"
            )

    def head(self, connection: Connection, task_id: str) -> ChainHead | None:
        """Return the unverified head of a task's chain, or None without records."""
        newest = connection.rows(_LAST, task_id)
        return to_end(self._name, newest[0]).head if newest else None


def _resolve_calls(calls: Sequence[_Call], outcomes: Sequence[list[Appended] | Exception]) -> None:
    """Give the callers their results."""
    for call, outcome in zip(calls, outcomes, strict=True):
        if call.done.done():  # the caller was cancelled
            continue
        if isinstance(outcome, Exception):
            call.done.set_exception(outcome)
        else:
            call.done.set_result(outcome)
