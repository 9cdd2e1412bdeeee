"""The console's connections to Temporal, the ledger and the vault, with caches of what was read."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, TypeVar

from temporalio.client import Client

from baton.client import (
    AuditRecord,
    ChainHead,
    Ledger,
    PersonalData,
    RunFilter,
    RunHandoffs,
    RunRecord,
    RunStatus,
    Trace,
    Vault,
    Waits,
    list_runs,
    open_personal_data,
    read_handoffs,
    read_run,
    waits,
)
from baton.client.faces import ArtifactStore, describe, parse_anchors, server_now
from baton.errors import BatonError
from baton.wire.store_clock import now_utc

ReadT = TypeVar("ReadT")

_MAX_CACHED_STEPS = 20_000
"""The maximum number of steps in cached runs; a short run counts as `_MIN_RUN_COST` steps."""
_MIN_RUN_COST = 100
_MAX_HANDOFFS = 20
_CACHE_SECONDS = 0.2
_MAX_RUNS = 50


@dataclass(frozen=True)
class TemporalUi:
    """The location of the Temporal UI."""

    address: str | None = None  # None for no links
    namespace: str = "default"


@dataclass(frozen=True)
class Evidence:
    """The ledger, and the keys and anchors that verify it."""

    open: Callable[[], Ledger]  # returns a ledger that is not opened yet
    name: str  # the ledger's name, which is part of its anchors
    read_keys: Callable[[], tuple[Any, Sequence[Mapping[str, Any]]]] = lambda: (None, ())  # public keys, also as JWKs
    read_anchors: Callable[[], tuple[Sequence[ChainHead], Sequence[Any]]] = lambda: ((), ())


class SingleFlight:
    """Shares one read among all who need the same result."""

    def __init__(self) -> None:
        self._reads: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def read(self, key: Hashable, seconds: float, read: Callable[[], Coroutine[Any, Any, ReadT]]) -> ReadT:
        """Return the result of a read that is in progress, or at most ``seconds`` old."""
        now = monotonic()
        self._reads = {
            known: cached for known, cached in self._reads.items() if cached[0] > now or not cached[1].done()
        }
        if key not in self._reads:
            self._reads[key] = (now + seconds, asyncio.create_task(read()))
        task: asyncio.Task[ReadT] = self._reads[key][1]
        return await asyncio.shield(task)


@dataclass
class Sources:
    """The connections and the caches that all pages share."""

    connect: Callable[[], Awaitable[Client]]  # returns a connected client
    artifacts: ArtifactStore | None = None  # the workers' artifact store
    temporal_ui: TemporalUi = field(default_factory=TemporalUi)
    evidence: Evidence | None = None
    vault: Callable[[], Vault] | None = None  # returns a vault that is not opened yet
    _client: Client | None = None
    _ledger: Ledger | None = None
    _opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runs: OrderedDict[tuple[str, str], tuple[int, RunRecord]] = field(default_factory=OrderedDict)
    _handoffs: OrderedDict[tuple[str, int], RunHandoffs] = field(default_factory=OrderedDict)
    _skew: timedelta = timedelta(0)
    shared: SingleFlight = field(default_factory=SingleFlight)

    @property
    def now(self) -> datetime:
        """The current time by the server's clock, as far as it is known."""
        return now_utc() - self._skew

    async def client(self) -> Client:
        """Return the client, connected on first use."""
        async with self._lock:
            if self._client is None:
                self._client = await self.connect()
            self._skew = now_utc() - await server_now(self._client)
            return self._client

    async def ledger(self) -> Ledger:
        """Return the ledger, opened on first use."""
        async with self._lock:
            if self._ledger is None:
                if self.evidence is None:
                    raise BatonError("this console was started without a ledger; name one with --ledger")
                self._ledger = await self._opened.enter_async_context(self.evidence.open())
            return self._ledger

    async def close(self) -> None:
        """Close the ledger."""
        self._ledger = None
        await self._opened.aclose()

    async def run(self, workflow_id: str, run_id: str | None = None) -> RunRecord:
        """Read a run, or return it from the cache if its history has not grown."""
        client = await self.client()
        execution = await describe(client, workflow_id, run_id)
        key, length = (workflow_id, execution.run_id), execution.info.history_length
        cached = self._runs.get(key)
        if cached is not None and cached[0] == length:
            self._runs.move_to_end(key)
            return cached[1]
        record = await self.shared.read(("run", *key, length), 0, lambda: read_run(client, *key))
        self._keep(key, record)
        return record

    async def waits(self, run: RunRecord) -> Waits | None:
        """Return what a run waits for, or None if it has ended."""
        if run.status is not RunStatus.RUNNING:
            return None
        client = await self.client()
        return await self.shared.read(("waits", run.run_id, run.last_event), _CACHE_SECONDS, lambda: waits(client, run))

    async def handoffs(self, run: RunRecord) -> RunHandoffs:
        """Return the handoffs that a run has sent."""
        key = (run.run_id, run.last_event)
        if key not in self._handoffs:
            client = await self.client()
            self._handoffs[key] = await self.shared.read(
                ("handoffs", *key), 0, lambda: read_handoffs(client, run.workflow_id, run.run_id)
            )
            while len(self._handoffs) > _MAX_HANDOFFS:
                self._handoffs.popitem(last=False)
        return self._handoffs[key]

    async def artifact(self, sha256: str) -> bytes:
        """Return the verified bytes of an artifact."""
        if self.artifacts is None:
            raise BatonError("this console was started without an artifact store; name one with --artifacts")
        return await self.artifacts.get(sha256)

    async def task_runs(self, task_id: str) -> list[RunRecord]:
        """Return the task's runs that the server still has, including children and forks."""
        listed_runs = [
            run async for run in list_runs(await self.client(), RunFilter(task=task_id, children=True), limit=_MAX_RUNS)
        ]
        results = await asyncio.gather(
            *(self.run(listed.workflow_id, listed.run_id) for listed in listed_runs), return_exceptions=True
        )
        return [result for result in results if isinstance(result, RunRecord)]

    async def trace(self, task_id: str, runs: Collection[RunRecord] = ()) -> Trace:
        """Return the records of a task with their verification report."""
        ledger, evidence = await self.ledger(), self.evidence
        assert evidence is not None  # noqa: S101 - else there is no ledger
        heads, checkpoints = await asyncio.to_thread(evidence.read_anchors)
        verifier, _ = await asyncio.to_thread(evidence.read_keys)
        run_anchors = [
            head
            for run in runs
            if run.task_id == task_id
            for head in parse_anchors(evidence.name, task_id, run.anchors)
        ]
        return await ledger.trace(
            task_id, verifier=verifier, anchors=[*heads, *run_anchors], checkpoints=[*checkpoints]
        )

    async def handoff_records(self, run: RunRecord, handoffs: Collection[str]) -> list[AuditRecord]:
        """Return the ledger's records of some handoffs, or nothing without a ledger."""
        task_id, handoff_ids = run.task_id, tuple(handoff_id for handoff_id in handoffs if handoff_id)
        if self.evidence is None or task_id is None or not handoff_ids:
            return []
        trace = await self.trace(task_id)
        return [record for record in trace.linked if record.fields.event_id.startswith(handoff_ids)]

    async def disclose(self, run: RunRecord, by: str, why: str) -> PersonalData:
        """Record who opens a run's personal data and why, then return it."""
        if self.vault is None:
            raise BatonError("this console was started without a vault, so nothing was opened")
        ledger = await self.ledger()
        async with self.vault() as vault:
            return await open_personal_data(vault, ledger, run, by=by, why=why)

    def _keep(self, key: tuple[str, str], record: RunRecord) -> None:
        self._runs[key] = (record.last_event, record)
        self._runs.move_to_end(key)
        size = sum(max(_MIN_RUN_COST, len(cached_run.steps)) for _, cached_run in self._runs.values())
        while size > _MAX_CACHED_STEPS and len(self._runs) > 1:
            _, (_, dropped) = self._runs.popitem(last=False)
            size -= max(_MIN_RUN_COST, len(dropped.steps))
