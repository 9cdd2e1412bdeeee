"""The rig of a run: servers, worker processes and clients, started on demand and stopped at the end."""

import asyncio
import contextlib
import os
import re
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from baton.devserver import DevServer, DevServerOptions
from baton.devserver.processes import bound_to_parent
from benchmarks.worker import connect

_ROOT = Path(__file__).parents[1]
_STOP_SECONDS = 10.0
_EXECUTION_TIMEOUT = timedelta(minutes=3)  # a pipeline whose worker died ends too


class Crew:
    """A worker process and its client.

    Attributes:
        client: A client as the services of the worker's role use it.
        queue: The worker's task queue.
        worker: The worker's process.
        server: The server of both.
    """

    def __init__(self, client: Client, queue: str, worker: asyncio.subprocess.Process, server: DevServer) -> None:
        self.client = client
        self.queue = queue
        self.worker = worker
        self.server = server

    async def start(self, workflow: str, argument: Any) -> WorkflowHandle[Any, Any]:
        """Start a pipeline by the name of its workflow, under a fresh id.

        Raises:
            RuntimeError: The worker has ended, and nobody would run the pipeline.
        """
        if self.worker.returncode is not None:
            raise RuntimeError(f"the worker of {self.queue!r} ended with code {self.worker.returncode}; see above")
        return await self.client.start_workflow(
            workflow, argument, id=f"bench-{uuid4().hex}", task_queue=self.queue, execution_timeout=_EXECUTION_TIMEOUT
        )

    def cpu_seconds(self) -> tuple[float, float] | None:
        """Return the processor time of worker and server, or None if the system does not report it."""
        if sys.platform != "linux":
            return None
        return process_seconds(self.worker.pid), process_seconds(self.server.process.pid)


class Rig:
    """Everything that a run starts, as an asynchronous context manager.

    A server's state is in a file in a folder of its own, which is removed in the end. The servers are the
    embedded one as it is shipped and, under the name `stock`, the same program with its own settings.

    Attributes:
        folder: That folder; keys, ledgers and artifacts of the workers are in there as well.
    """

    def __init__(self) -> None:
        self._held = contextlib.AsyncExitStack()
        self._servers: dict[str, DevServer] = {}
        self._crews: dict[tuple[str, str, str], Crew] = {}
        self.folder = Path()

    async def __aenter__(self) -> Self:
        """Make the folder."""
        folder = tempfile.TemporaryDirectory(prefix="baton-bench-", ignore_cleanup_errors=True)
        self.folder = Path(self._held.enter_context(folder))
        print(f"works in {self.folder}", file=sys.stderr, flush=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the workers, then the servers."""
        await self._held.aclose()

    async def crew(self, role: str, *, server: str = "shipped", settings: str = "shipped") -> Crew:
        """Return a worker of ``role`` with its client.

        Args:
            role: One of `benchmarks.worker.ROLES`.
            server: `"shipped"` or `"stock"` server settings.
            settings: `"shipped"` or `"stock"` worker settings.
        """
        key = (role, server, settings)
        if key not in self._crews:
            running = await self.server(server)
            queue = f"bench-{role}-{settings}"
            arguments = [role, settings, running.address, queue, str(self.folder)]
            process = await asyncio.create_subprocess_exec(
                *bound_to_parent([sys.executable, "-m", "benchmarks.worker", *arguments]),
                cwd=_ROOT,
                env=production_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            self._held.push_async_callback(stop, process)
            self._crews[key] = Crew(await connect(role, running.address, self.folder), queue, process, running)
        return self._crews[key]

    async def server(self, name: str = "shipped") -> DevServer:
        """Return a server: the shipped one, or under the name `stock` the same program with its own settings."""
        if name not in self._servers:
            database = self.folder / f"{name}.db"
            options = DevServerOptions(database=database, ui_port=None, tuned=name == "shipped")
            self._servers[name] = await self._held.enter_async_context(DevServer(options))
        return self._servers[name]


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ask a worker to end, and kill it if it does not."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def production_environment() -> dict[str, str]:
    """Return the environment of a production process, where Python caches bytecode.

    Otherwise a worker compiles a workflow's file for each run, because the sandbox loads it each time.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def process_seconds(pid: int, *, waited: bool = False) -> float:
    """Return the seconds of processor time that a process has used, with its children that ended if ``waited``."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if waited else 13])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Return the memory that a process holds, in MB; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
        return int(match[1]) / 1_000 if match else 0.0
    return 0.0
