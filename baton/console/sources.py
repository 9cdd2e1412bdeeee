"""What the console reads: a connection to Temporal, one to the ledger, and what was read, kept while it is true."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

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

_MOST_STEPS = 20_000
"""So many steps of runs are remembered in all; a run of one step counts as ten."""
_AT_LEAST = 10
_MOST_HANDOFFS = 20
_MOST_RUNS = 50


@dataclass(frozen=True)
class Places:
    """Where things beside the console are.

    Attributes:
        ui: The address of the Temporal UI, to link to; None for no links.
        namespace: The namespace.
    """

    ui: str | None = None
    namespace: str = "default"


@dataclass(frozen=True)
class Evidence:
    """The ledger, and what it is verified with.

    Attributes:
        open: Makes a ledger that is not opened yet.
        name: The ledger's name, which its anchors carry.
        verifier: The public keys; None for none.
        keys: The same for a bundle to carry.
        kept: Returns the heads and checkpoints that were kept outside the ledger.
    """

    open: Callable[[], Ledger]
    name: str
    verifier: Any = None
    keys: Sequence[Mapping[str, Any]] = ()
    kept: Callable[[], tuple[Sequence[ChainHead], Sequence[Any]]] = lambda: ((), ())


@dataclass
class Sources:
    """The connections and the caches that all pages share.

    Attributes:
        connect: Makes a connected client.
        artifacts: The workers' artifact store.
        places: Where things beside the console are.
        evidence: The ledger; None where the console has none.
        vault: Makes a vault that is not opened yet; None where the console has none.
    """

    connect: Callable[[], Awaitable[Client]]
    artifacts: ArtifactStore | None = None
    places: Places = field(default_factory=Places)
    evidence: Evidence | None = None
    vault: Callable[[], Vault] | None = None
    _client: Client | None = None
    _ledger: Ledger | None = None
    _opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runs: OrderedDict[tuple[str, str], tuple[int, RunRecord]] = field(default_factory=OrderedDict)
    _handoffs: OrderedDict[tuple[str, int], RunHandoffs] = field(default_factory=OrderedDict)
    _reading: dict[tuple[str, str, int], asyncio.Task[RunRecord]] = field(default_factory=dict)

    async def client(self) -> Client:
        """Return the client; it is connected on first use, and renews its connection by itself.

        Raises:
            ServerError: The server has never been reached, and is not now.
        """
        async with self._turn:
            if self._client is None:
                self._client = await self.connect()
            return self._client

    async def ledger(self) -> Ledger:
        """Return the ledger; it is opened on first use.

        Raises:
            BatonError: The console has no ledger, or it cannot be opened.
        """
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
        """Return a run as its history has it now; a history is read once for each state of it.

        Raises:
            HistoryError: The workflow is not a pipeline.
            temporalio.service.RPCError: There is no such run, or the server cannot be asked.
        """
        client = await self.client()
        found = await describe(client, workflow_id, run_id)
        key, length = (workflow_id, found.run_id), found.info.history_length
        kept = self._runs.get(key)
        if kept is not None and kept[0] == length:
            self._runs.move_to_end(key)
            return kept[1]
        task = self._reading.get((*key, length))
        if task is None:
            task = asyncio.create_task(read_run(client, *key))
            self._reading[*key, length] = task
            task.add_done_callback(lambda _: self._reading.pop((*key, length), None))
        record = await asyncio.shield(task)
        self._keep(key, record)
        return record

    async def waits(self, run: RunRecord) -> Waits | None:
        """Return what a run waits for; None if it has ended."""
        return await waits(await self.client(), run) if run.status is RunStatus.RUNNING else None

    async def handoffs(self, run: RunRecord) -> RunHandoffs:
        """Return the messages that a run has sent."""
        key = (run.run_id, run.last_event)
        if key not in self._handoffs:
            self._handoffs[key] = await read_handoffs(await self.client(), run.workflow_id, run.run_id)
            while len(self._handoffs) > _MOST_HANDOFFS:
                self._handoffs.popitem(last=False)
        return self._handoffs[key]

    async def artifact(self, sha256: str) -> bytes:
        """Return the bytes of an artifact, verified.

        Raises:
            ArtifactError: The store does not have them, or they are damaged.
        """
        if self.artifacts is None:
            raise BatonError("this console was started without an artifact store; name one by --artifacts")
        return await self.artifacts.get(sha256)

    async def runs_of(self, task_id: str) -> list[RunRecord]:
        """Return the runs of a task that the server still has, children and forks too."""
        found = await list_runs(await self.client(), RunFilter(task=task_id, children=True), _MOST_RUNS)
        read = await asyncio.gather(*(self.run(one.workflow_id, one.run_id) for one in found), return_exceptions=True)
        return [one for one in read if isinstance(one, RunRecord)]

    async def trace(self, task_id: str, runs: Collection[RunRecord] = ()) -> Trace:
        """Return the records of a task with the report on their verification.

        Args:
            task_id: The task.
            runs: Runs of the task: the heads in their histories show whether records were cut off.

        Raises:
            LedgerError: The ledger cannot be read.
        """
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
        """Return the personal data of a run to a person, once that is on record.

        Raises:
            BatonError: It cannot be recorded or opened, so it was not.
        """
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
