"""The console's connections to Temporal, the ledger and the vault, with caches of what was read."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from temporalio.client import Client
from temporalio.service import RPCError

from baton.client import (
    AuditRecord,
    ChainHead,
    Ledger,
    PersonalData,
    ReadTranscript,
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
from baton.client.faces import (
    ArtifactStore,
    describe,
    open_transcripts,
    parse_anchors,
    read_transcripts,
    server_error,
    server_now,
)
from baton.errors import BatonError, ServerError
from baton.wire.store_clock import now_utc

ReadT = TypeVar("ReadT")

_MAX_CACHED_STEPS = 20_000
"""The maximum number of steps in cached runs; a short run counts as `_MIN_RUN_COST` steps."""
_MIN_RUN_COST = 100
_MAX_HANDOFFS = 20
_MAX_MADE = 20
_CACHE_SECONDS = 0.2
_MAX_RUNS = 50
_MAX_READS = 8


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
    lab: Path | None = None  # the folder of cohorts
    _client: Client | None = None
    _ledger: Ledger | None = None
    _opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runs: OrderedDict[tuple[str, str], tuple[int, RunRecord]] = field(default_factory=OrderedDict)
    _handoffs: OrderedDict[tuple[str, int], RunHandoffs] = field(default_factory=OrderedDict)
    _made: OrderedDict[Hashable, tuple[Hashable, Any]] = field(default_factory=OrderedDict)
    _skew: timedelta = timedelta(0)
    shared: SingleFlight = field(default_factory=SingleFlight)
    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_READS))  # of many reads at once

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

    def server_error(self, error: RPCError) -> ServerError:
        """Return why the server cannot be asked, and what to do."""
        client = self._client
        address = client.service_client.config.target_host if client else "?"
        return server_error(error, address, client.namespace if client else "?")

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
        self._keep_run(key, record)
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

    async def transcripts(self, hashes: Sequence[str]) -> list[ReadTranscript]:
        """Return the transcripts of a stage's attempts, as far as they are kept and not sealed."""
        return [] if self.artifacts is None else await read_transcripts(self.artifacts, hashes)

    async def open_transcripts(self, run: RunRecord, hashes: Sequence[str], by: str, why: str) -> list[ReadTranscript]:
        """Record who opens sealed transcripts of a run and why, then return them."""
        if self.vault is None or self.artifacts is None:
            raise BatonError("this console was started without a vault or an artifact store, so nothing was opened")
        ledger = await self.ledger()
        async with self.vault() as vault:
            return await open_transcripts(self.artifacts, hashes, vault, ledger, run, by=by, why=why)

    async def disclose(self, run: RunRecord, by: str, why: str) -> PersonalData:
        """Record who opens a run's personal data and why, then return it."""
        if self.vault is None:
            raise BatonError("this console was started without a vault, so nothing was opened")
        ledger = await self.ledger()
        async with self.vault() as vault:
            return await open_personal_data(vault, ledger, run, by=by, why=why)

    def keep(self, key: Hashable, version: Hashable, make: Callable[[], ReadT]) -> ReadT:
        """Return what was made for a key, unless its version is another; the newest are kept."""
        known = self._made.pop(key, None)
        made: ReadT = make() if known is None or known[0] != version else known[1]
        self._made[key] = version, made
        while len(self._made) > _MAX_MADE:
            self._made.popitem(last=False)
        return made

    def _keep_run(self, key: tuple[str, str], record: RunRecord) -> None:
        self._runs[key] = (record.last_event, record)
        self._runs.move_to_end(key)
        size = sum(max(_MIN_RUN_COST, len(cached_run.steps)) for _, cached_run in self._runs.values())
        while size > _MAX_CACHED_STEPS and len(self._runs) > 1:
            _, (_, dropped) = self._runs.popitem(last=False)
            size -= max(_MIN_RUN_COST, len(dropped.steps))
