"""The worker processes of the peers, and of Baton's pipelines of agents, as crews that `benchmarks.load` can drive."""

import asyncio
import contextlib
import itertools
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from temporalio.client import Client

from baton.devserver import DevServer
from baton.devserver.processes import bound_to_parent
from benchmarks.peers.environment import peers_python
from benchmarks.peers.job import AGENTS, ANSWERS
from benchmarks.rig import Crew, Rig, production_environment, stop
from benchmarks.samples import patch, small, to_json
from benchmarks.worker import connect

_ROOT = Path(__file__).parents[2]
_LONGEST_LINE = 1 << 20
_SILENT = {"OPENAI_AGENTS_DISABLE_TRACING": "true", "LANGSMITH_TRACING": "false"}


def scripts(make: Callable[[], dict[str, Any]] = small) -> list[dict[str, list[str]]]:
    """Return what the agents' models answer, in the agents' order, to a state as ``make`` returns it.

    Example:
        >>> [len(answer["current_state"]) for answer in scripts()]
        [2, 2, 2, 2]
    """
    return [patch(seq, len(make()["current_state"])) for seq in range(1, len(AGENTS) + 1)]


class PipedCrew(Crew):
    """A peer that works in one process, without a server: jobs go through its standard input.

    It is driven like the others, a job at a time from the process that measures, which costs it next to nothing.
    """

    def __init__(self, client: Client, worker: Process, server: DevServer) -> None:
        super().__init__(client, "", worker, server)
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())

    async def start(self, workflow: str, argument: Any) -> Any:
        """Give the process a job; the result of what is returned is the state in the end.

        Raises:
            RuntimeError: The process has ended.
        """
        if self._reading.done() or self.worker.stdin is None:
            raise RuntimeError(f"the process of {workflow} ended with code {self.worker.returncode}; see above")
        number = next(self._ids)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self.worker.stdin.write(to_json({"id": number, "state": argument}).encode() + b"\n")
        return _Job(self._waiting[number])

    async def _read(self) -> None:
        """Hand out results as they come; whoever still waits when the process ends is told so."""
        assert self.worker.stdout is not None
        while line := await self.worker.stdout.readline():
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set_result(answer["state"])
        for waiting in self._waiting.values():
            waiting.set_exception(RuntimeError("the process ended before the job was done; see above"))


class _Job:
    """A job that a process was given."""

    def __init__(self, done: asyncio.Future[Any]) -> None:
        self._done = done

    async def result(self) -> Any:
        """Wait for the state in the end."""
        return await self._done


class Crews:
    """The crews of a comparison, as an asynchronous context manager that ends their processes.

    Args:
        rig: Its server is the one that all sides with a server use.
        make: Returns the state that the jobs begin with.
    """

    def __init__(self, rig: Rig, make: Callable[[], dict[str, Any]] = small) -> None:
        self._rig = rig
        self._make = make
        self._held = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Write down what the scripted models answer."""
        self._answers = self._rig.folder / "answers.json"
        self._answers.write_text(to_json(scripts(self._make)), encoding="utf-8")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes."""
        await self._held.aclose()

    async def peer(self, name: str, server: str) -> Crew:
        """Return the crew of one of `benchmarks.peers.worker.PEERS`.

        Args:
            name: Which.
            server: `"stock"` for Temporal's development server as it is, `"shipped"` for the one that Baton ships.
        """
        like = await self._rig.crew("raw" if server == "stock" else "protocol", server=server)
        python = await asyncio.to_thread(peers_python)
        queue = f"bench-peer-{name}"
        worker = await self._process(python, "worker", name, like.server.address, queue)
        return Crew(await Client.connect(like.server.address), queue, worker, like.server)

    async def piped(self, name: str) -> Crew:
        """Return the crew of a peer that works in one process, without a server."""
        like = await self._rig.crew("protocol")
        python = await asyncio.to_thread(peers_python)
        worker = await self._process(python, "worker", name, "-", "-", stdin=PIPE)
        return PipedCrew(like.client, worker, like.server)

    async def ours(self, role: str) -> Crew:
        """Return a crew of Baton's, of one of `benchmarks.peers.ours_worker.ROLES`."""
        like = await self._rig.crew("protocol")
        queue = f"bench-{role}"
        worker = await self._process(Path(sys.executable), "ours_worker", role, like.server.address, queue)
        return Crew(await connect(role, like.server.address, self._rig.folder), queue, worker, like.server)

    async def _process(self, python: Path, module: str, *given: str, stdin: int = DEVNULL) -> Process:
        command = [str(python), "-m", f"benchmarks.peers.{module}", *given, str(self._rig.folder)]
        process = await asyncio.create_subprocess_exec(
            *bound_to_parent(command),
            cwd=_ROOT,
            env={**production_environment(), **_SILENT, ANSWERS: str(self._answers)},
            stdin=stdin,
            stdout=PIPE if stdin == PIPE else None,
            limit=_LONGEST_LINE,
            start_new_session=True,
        )
        self._held.push_async_callback(stop, process)
        return process
