"""The embedded Temporal server: the real server as a tuned child process that ends with the program."""

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from baton.devserver.processes import ChildLock, bound_to_parent, find_temporal, held_port
from baton.errors import ServerError
from baton.wire.names import SEARCH_ATTRIBUTES

HOST = "127.0.0.1"
"""The only address the server listens on."""

TUNED: Mapping[str, object] = {
    # Polls per second of the server's internal queues: 20 by default, so each hop waits up to 50 ms. No hop waits for
    # visibility, whose updates are batched at the default rate.
    "history.transferProcessorMaxPollRPS": 2000,
    "history.timerProcessorMaxPollRPS": 2000,
    "history.outboundProcessorMaxPollRPS": 2000,
    # Timers and retry delays are rounded up to a second by default.
    "history.timerProcessorMaxTimeShift": "1ms",
    # By default a second continue-as-new waits until a second has passed.
    "history.workflowIdReuseMinimalInterval": "0s",
    # Clients that wait for a result poll again after 20 seconds by default; a busy server may miss a notification.
    "history.longPollExpirationInterval": "5s",
}
"""The server settings of `DevServerOptions.tuned`."""

_TUNED_MEMORY: Mapping[str, str] = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""The environment of a tuned server with a file: it collects garbage less often while it has less than 2 GiB."""

_DEFAULTS: Mapping[str, object] = {
    "frontend.enableServerVersionCheck": False,  # it calls an external host
    "frontend.WorkflowPauseEnabled": True,  # operators may pause a run
}
_PRAGMAS = ("journal_mode=wal", "synchronous=normal")
_OWNER_ONLY = 0o077  # umask: the database has all payloads
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LOCK_SECONDS = 3.0  # a server takes about one second to stop
_POLL_SECONDS = 0.02
_SETTLE_SECONDS = 3.0  # from its first answer to the line below; usually half a second
_SERVES_LINE = r"^(?:Temporal )?Server: +\S+:%d$"
_PORT_IN_USE = "address already in use"
_STACK_TRACE = "\ngoroutine "
_MAX_TAIL_LENGTH = 2000


@dataclass(frozen=True, kw_only=True)
class DevServerOptions:
    """The options of a development server.

    Attributes:
        database: The file of its state, or None for memory. Only one server may use a file.
        port: The gRPC port, or 0 for a free one.
        ui_port: The web UI's port, 0 for a free one, or None for no UI.
        namespace: The namespace to create; `default` always exists.
        search_attributes: The types of the search attributes to create, by name; by default those of pipelines.
        tuned: Whether to use the settings of `TUNED`, and for a database file SQLite's write-ahead log: a killed
            server loses nothing, a power cut may lose the last moments. A server with a file may also use 200 MB more
            memory, which saves processor time (`GOGC` and `GOMEMLIMIT` in the environment take precedence).
        settings: Additional server settings (dynamic configuration) by name; they override the tuned settings.
        codec_endpoint: The URL of a codec server for the UI to call (`baton.codec.server`).
        log: The file to append the server's output to; by default the database's name with `.log` added, or without
            a database a temporary file.
        log_level: The level of that output.
        temporal: The `temporal` program to run; by default the result of `find_temporal`.
    """

    database: Path | None = None
    port: int = 0
    ui_port: int | None = 0
    namespace: str = "default"
    search_attributes: Mapping[str, str] = field(default_factory=lambda: SEARCH_ATTRIBUTES)
    tuned: bool = True
    settings: Mapping[str, object] = field(default_factory=dict)
    codec_endpoint: str | None = None
    log: Path | None = None
    log_level: Literal["debug", "info", "warn", "error", "never"] = "warn"
    temporal: str | None = None

    @property
    def log_file(self) -> Path | None:
        """The file of the server's output, or None for a temporary file."""
        if self.log is None and self.database is not None:
            return self.database.with_name(f"{self.database.name}.log")
        return self.log

    def arguments(self, port: int, ui_port: int | None) -> list[str]:
        """Return the command line arguments."""
        arguments = ["server", "start-dev", "--ip", HOST, "--port", str(port), "--log-level", self.log_level]
        arguments += ["--headless"] if ui_port is None else ["--ui-ip", HOST, "--ui-port", str(ui_port)]
        if self.namespace != "default":
            arguments += ["--namespace", self.namespace]
        if self.codec_endpoint is not None:
            arguments += ["--ui-codec-endpoint", self.codec_endpoint]
        if self.database is not None:
            arguments += ["--db-filename", str(self.database)]
            for pragma in _PRAGMAS if self.tuned else ():
                arguments += ["--sqlite-pragma", pragma]
        for name, kind in self.search_attributes.items():
            arguments += ["--search-attribute", f"{name}={kind}"]
        for name, value in {**_DEFAULTS, **(TUNED if self.tuned else {}), **self.settings}.items():
            arguments += ["--dynamic-config-value", f"{name}={json.dumps(value)}"]
        return arguments


class DevServer:
    """A `temporal server start-dev` process: it serves once `start` returns and has ended once `stop` returns."""

    def __init__(self, options: DevServerOptions | None = None) -> None:
        self.options = options or DevServerOptions()
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._ui_port: int | None = None

    @property
    def address(self) -> str:
        """The address for Temporal clients."""
        self._require_process()
        return f"{HOST}:{self._port}"

    @property
    def ui_url(self) -> str | None:
        """The web UI's URL, or None if there is none."""
        self._require_process()
        return None if self._ui_port is None else f"http://{HOST}:{self._ui_port}"

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The server's process."""
        return self._require_process()

    async def start(self) -> Self:
        """Start the server and return once it serves, with its namespace and search attributes."""
        if self._process is not None:
            raise RuntimeError(f"the server was already started, at {self.address!r}; make another DevServer")
        program = find_temporal(self.options.temporal)
        lock = await self._lock_database()
        # The process inherits both; this program needs them only until it serves.
        with lock, self._open_log() as log:
            for may_retry in (True, True, False):
                output = _Output(log, os.fstat(log.fileno()).st_size)
                with contextlib.ExitStack() as ports:
                    self._port, self._ui_port = _reserve_ports(self.options.port, self.options.ui_port, ports)
                    try:
                        self._process = await self._launch(program, log, lock)
                        await self._wait_until_serving(self._process, output)
                        break
                    except BaseException as error:
                        await self._end_process(grace=0)
                        # Another process may have taken an inner port, or one of these if none can be held.
                        if not (may_retry and isinstance(error, ServerError) and _PORT_IN_USE in output.text()):
                            raise
        return self

    async def stop(self) -> None:
        """Stop the server: ask it to end, and kill it after ten seconds, or at once if this is cancelled."""
        await self._end_process(grace=0 if self.options.database is None else _STOP_SECONDS)

    async def __aenter__(self) -> Self:
        """Start the server."""
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        await self.stop()

    def _require_process(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the server was not started; use it as an 'async with' context, or await start()")
        return self._process

    async def _lock_database(self) -> ChildLock:
        database = self.options.database
        if database is None:
            return ChildLock()
        lock_file = database.with_name(f"{database.name}.lock")
        with _make_folder(lock_file):
            return await ChildLock.take(lock_file, _LOCK_SECONDS)

    def _open_log(self) -> IO[bytes]:
        file = self.options.log_file
        if file is None:
            # Windows cannot delete a file that the server still has open.
            return tempfile.NamedTemporaryFile(delete=sys.platform != "win32")
        with _make_folder(file):
            return file.open("a+b")

    async def _launch(self, program: Path, log: IO[bytes], lock: ChildLock) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *bound_to_parent([str(program), *self.options.arguments(self._port, self._ui_port)]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self._environment(),
            pass_fds=lock.descriptors,
            start_new_session=True,
            umask=_OWNER_ONLY,
        )
        lock.describe(f"the server at {HOST}:{self._port} (process {process.pid})")
        return process

    def _environment(self) -> dict[str, str]:
        """Return the environment without the CLI's own settings, which may name another server."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
        # An in-memory server would hold its state several times over.
        memory = _TUNED_MEMORY if self.options.tuned and self.options.database is not None else {}
        return {**memory, **inherited}

    async def _wait_until_serving(self, process: asyncio.subprocess.Process, output: "_Output") -> None:
        """Wait until the server answers and has its search attributes."""
        ready, exited = asyncio.create_task(self._wait_for_services(output)), asyncio.create_task(process.wait())
        try:
            await asyncio.wait((ready, exited), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and process.returncode is None:
                return ready.result()
        finally:
            ready.cancel()
            exited.cancel()
            await asyncio.gather(ready, exited, return_exceptions=True)
        if process.returncode is None:
            problem = f"does not serve at {self.address!r} after {_START_SECONDS:.0f} seconds"
        else:
            problem = f"ended with code {process.returncode} before it served"
        raise ServerError(f"the Temporal server {problem}; its last output:\n{log_tail(output.text())}")

    async def _wait_for_services(self, output: "_Output") -> None:
        """Wait for an answer, and for the line that the process writes once all its services have started."""
        while not await self._is_answering():  # noqa: ASYNC110 - a server gives no event
            await asyncio.sleep(_POLL_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while not re.search(_SERVES_LINE % self._port, output.text(), re.MULTILINE):  # noqa: ASYNC110 - nor a log
                    await asyncio.sleep(_POLL_SECONDS)

    async def _is_answering(self) -> bool:
        request = ListSearchAttributesRequest(namespace=self.options.namespace)
        try:
            client = await Client.connect(self.address, namespace=self.options.namespace)
            response = await client.operator_service.list_search_attributes(request)
        except (RuntimeError, RPCError):  # not listening yet; no namespace yet
            return False
        return set(self.options.search_attributes) <= set(response.custom_attributes)

    async def _end_process(self, grace: float) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        try:
            if grace:
                process.terminate()
                async with asyncio.timeout(grace):
                    await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@contextlib.contextmanager
def _make_folder(file: Path) -> Iterator[None]:
    """Make the folder of ``file``; an OSError in the block becomes a `ServerError`."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ServerError(f"{str(file)!r} cannot be opened: {reason}; choose another database or log") from error


def log_tail(output: str) -> str:
    """Return the end of a server's output; after a crash, the lines before the stack trace."""
    return output.partition(_STACK_TRACE)[0][-_MAX_TAIL_LENGTH:].strip() or "(nothing)"


@dataclass(frozen=True)
class _Output:
    """The output of a server in its log."""

    log: IO[bytes]
    begin: int

    def text(self) -> str:
        """Return the whole output; a separate file handle leaves the writer's position alone."""
        with open(self.log.name, "rb") as log:
            log.seek(self.begin)
            return log.read().decode(errors="replace")


def _reserve_ports(port: int, ui_port: int | None, stack: contextlib.ExitStack) -> tuple[int, int | None]:
    """Replace each 0 by a free port, and check that the other ports are free."""
    return _reserve_port(port, stack, "port"), None if ui_port is None else _reserve_port(ui_port, stack, "ui_port")


def _reserve_port(port: int, stack: contextlib.ExitStack, setting: str) -> int:
    try:
        return stack.enter_context(held_port(port, host=HOST))
    except OSError as error:
        raise ServerError(
            f"port {port} of {HOST} is taken: {error.strerror or error}; choose another, or 0 for a free one, by "
            f"`{setting}` (--{setting.replace('_', '-')} of a command)"
        ) from error
