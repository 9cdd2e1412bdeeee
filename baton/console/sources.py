"""What the console reads: one connection to Temporal, and what was read of runs, kept as long as it is true."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from temporalio.client import Client

from baton.client import RunRecord, RunStatus, Waits, describe, read_run, waits

_MOST_STEPS = 20_000
"""So many steps of runs are remembered in all; a run of one step counts as ten."""
_AT_LEAST = 10


@dataclass(frozen=True)
class Places:
    """Where things beside the console are.

    Attributes:
        ui: The address of the Temporal UI, to link to; None for no links.
        namespace: The namespace.
    """

    ui: str | None = None
    namespace: str = "default"


@dataclass
class Sources:
    """The connection and the caches that all pages share.

    Attributes:
        connect: Makes a connected client.
        places: Where things beside the console are.
    """

    connect: Callable[[], Awaitable[Client]]
    places: Places = field(default_factory=Places)
    _client: Client | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runs: OrderedDict[tuple[str, str], tuple[int, RunRecord]] = field(default_factory=OrderedDict)
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

    def _keep(self, key: tuple[str, str], record: RunRecord) -> None:
        self._runs[key] = (record.last_event, record)
        self._runs.move_to_end(key)
        size = sum(max(_AT_LEAST, len(one.steps)) for _, one in self._runs.values())
        while size > _MOST_STEPS and len(self._runs) > 1:
            _, (_, gone) = self._runs.popitem(last=False)
            size -= max(_AT_LEAST, len(gone.steps))
