"""What the console reads: a connection to Temporal, one to the ledger, and what was read, kept while it is true."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from temporalio.client import Client

from baton.client import (
    ArtifactStore,
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
    describe,
    list_runs,
    open_personal_data,
    read_handoffs,
    read_run,
    waits,
)
from baton.errors import BatonError

ReadT = TypeVar("ReadT")

_MOST_STEPS = 20_000
"""So many steps of runs are remembered in all; a run of one step counts as a hundred, for it is not only its steps."""
_AT_LEAST = 100
_MOST_HANDOFFS = 20
_FRESH_SECONDS = 0.2
_MOST_RUNS = 50


@dataclass(frozen=True)
class Places:
    """Where things beside the console are."""

    ui: str | None = None  # the address of the Temporal UI, to link to; None for no links
    namespace: str = "default"  # the namespace


@dataclass(frozen=True)
class Evidence:
    """The ledger, and what it is verified with."""

    open: Callable[[], Ledger]  # makes a ledger that is not opened yet
    name: str  # the ledger's name, which its anchors carry
    verifier: Any = None  # the public keys; None for none
    keys: Sequence[Mapping[str, Any]] = ()  # the same for a bundle to carry
    kept: Callable[[], tuple[Sequence[ChainHead], Sequence[Any]]] = lambda: ((), ())


class Shared:
    """What many look at is read once for all of them."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def read(self, key: Hashable, seconds: float, read: Callable[[], Coroutine[Any, Any, ReadT]]) -> ReadT:
        """Return what was read at most so many seconds ago, or is being read."""
        now = monotonic()
        self._kept = {one: kept for one, kept in self._kept.items() if kept[0] > now or not kept[1].done()}
        if key not in self._kept:
            self._kept[key] = (now + seconds, asyncio.create_task(read()))
        task: asyncio.Task[ReadT] = self._kept[key][1]
        return await asyncio.shield(task)


@dataclass
class Sources:
    """The connections and the caches that all pages share."""

    connect: Callable[[], Awaitable[Client]]  # makes a connected client
    artifacts: ArtifactStore | None = None  # the workers' artifact store
    places: Places = field(default_factory=Places)  # where things beside the console are
    evidence: Evidence | None = None  # the ledger; None where the console has none
    vault: Callable[[], Vault] | None = None  # makes a vault that is not opened yet; None where the console has none
    _client: Client | None = None
    _ledger: Ledger | None = None
    _opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runs: OrderedDict[tuple[str, str], tuple[int, RunRecord]] = field(default_factory=OrderedDict)
    _handoffs: OrderedDict[tuple[str, int], RunHandoffs] = field(default_factory=OrderedDict)
    shared: Shared = field(default_factory=Shared)

    async def client(self) -> Client:
        """Return the client; it is connected on first use, and renews its connection by itself."""
        async with self._turn:
            if self._client is None:
                self._client = await self.connect()
            return self._client

    async def ledger(self) -> Ledger:
        """Return the ledger; it is opened on first use."""
        async with self._turn:
            if self._ledger is None:
                if self.evidence is None:
                    raise BatonError("this console was started without a ledger; name one by --ledger")
                self._ledger = await self._opened.enter_async_context(self.evidence.open())
            return self._ledger

    async def close(self) -> None:
        """Close the ledger."""
        self._ledger = None
        await self._opened.aclose()

    async def run(self, workflow_id: str, run_id: str | None = None) -> RunRecord:
        """Return a run as its history has it now; a history is read once for each state of it."""
        client = await self.client()
        found = await describe(client, workflow_id, run_id)
        key, length = (workflow_id, found.run_id), found.info.history_length
        kept = self._runs.get(key)
        if kept is not None and kept[0] == length:
            self._runs.move_to_end(key)
            return kept[1]
        record = await self.shared.read(("run", *key, length), 0, lambda: read_run(client, *key))
        self._keep(key, record)
        return record

    async def waits(self, run: RunRecord) -> Waits | None:
        """Return what a run waits for; None if it has ended."""
        if run.status is not RunStatus.RUNNING:
            return None
        client = await self.client()
        return await self.shared.read(("waits", run.run_id, run.last_event), _FRESH_SECONDS, lambda: waits(client, run))

    async def handoffs(self, run: RunRecord) -> RunHandoffs:
        """Return the messages that a run has sent."""
        key = (run.run_id, run.last_event)
        if key not in self._handoffs:
            client = await self.client()
            self._handoffs[key] = await self.shared.read(
                ("handoffs", *key), 0, lambda: read_handoffs(client, run.workflow_id, run.run_id)
            )
            while len(self._handoffs) > _MOST_HANDOFFS:
                self._handoffs.popitem(last=False)
        return self._handoffs[key]

    async def artifact(self, sha256: str) -> bytes:
        """Return the bytes of an artifact, verified."""
        if self.artifacts is None:
            raise BatonError("this console was started without an artifact store; name one by --artifacts")
        return await self.artifacts.get(sha256)

    async def runs_of(self, task_id: str) -> list[RunRecord]:
        """Return the runs of a task that the server still has, children and forks too."""
        found = await list_runs(await self.client(), RunFilter(task=task_id, children=True), _MOST_RUNS)
        read = await asyncio.gather(*(self.run(one.workflow_id, one.run_id) for one in found), return_exceptions=True)
        return [one for one in read if isinstance(one, RunRecord)]

    async def trace(self, task_id: str, runs: Collection[RunRecord] = ()) -> Trace:
        """Return the records of a task with the report on their verification."""
        ledger, evidence = await self.ledger(), self.evidence
        assert evidence is not None  # noqa: S101 - else there is no ledger
        heads, checkpoints = evidence.kept()
        mine = [
            ChainHead.from_anchor(evidence.name, task_id, anchor)
            for run in runs
            if run.task_id == task_id
            for anchor in run.anchors
        ]
        return await ledger.trace(
            task_id, verifier=evidence.verifier, anchors=[*heads, *mine], checkpoints=[*checkpoints]
        )

    async def records_of(self, run: RunRecord, handoffs: Collection[str]) -> list[AuditRecord]:
        """Return what the ledger has of some handoffs of a run: their verdicts; nothing without a ledger."""
        task_id, wanted = run.task_id, {one for one in handoffs if one}
        if self.evidence is None or task_id is None or not wanted:
            return []
        trace = await self.trace(task_id)
        return [record for record in trace.linked if any(record.fields.event_id.startswith(one) for one in wanted)]

    async def disclosed(self, run: RunRecord, by: str, why: str) -> PersonalData:
        """Return the personal data of a run to a person, once that is on record."""
        if self.vault is None:
            raise BatonError("this console was started without a vault, so nothing was opened")
        ledger = await self.ledger()
        async with self.vault() as vault:
            return await open_personal_data(vault, ledger, run, by=by, why=why)

    def _keep(self, key: tuple[str, str], record: RunRecord) -> None:
        self._runs[key] = (record.last_event, record)
        self._runs.move_to_end(key)
        size = sum(max(_AT_LEAST, len(one.steps)) for _, one in self._runs.values())
        while size > _MOST_STEPS and len(self._runs) > 1:
            _, (_, gone) = self._runs.popitem(last=False)
            size -= max(_AT_LEAST, len(gone.steps))
