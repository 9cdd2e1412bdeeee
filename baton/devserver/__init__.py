"""The embedded Temporal server: the real one, started beside the program, tuned, and never left behind."""

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
    # How often a second the server looks for work: 20 by default, so each hop waits up to 50 ms. No hop waits for what
    # lists and searches show, which is written for many runs at once that way.
    "history.transferProcessorMaxPollRPS": 2000,
    "history.timerProcessorMaxPollRPS": 2000,
    "history.outboundProcessorMaxPollRPS": 2000,
    # Timers and retry delays are rounded up to a second by default.
    "history.timerProcessorMaxTimeShift": "1ms",
    # Continue-as-new twice within a second waits for that second to pass by default.
    "history.workflowIdReuseMinimalInterval": "0s",
    # Who waits for a result asks again after 20 seconds by default; a busy server may not have told that it is there.
    "history.longPollExpirationInterval": "5s",
}
"""The server settings that `DevServerOptions.tuned` stands for."""

_TUNED_MEMORY: Mapping[str, str] = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""Environment of a tuned server with a file: it clears its memory less often, as long as it has less than 2 GiB."""

_USUAL: Mapping[str, object] = {
    "frontend.enableServerVersionCheck": False,  # else it asks a host outside
    "frontend.WorkflowPauseEnabled": True,  # operators may pause a run
}
_PRAGMAS = ("journal_mode=wal", "synchronous=normal")
_OWNERS_ONLY = 0o077  # as umask: what it keeps is all that its workflows said
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LOCK_SECONDS = 3.0  # a server that is just stopping needs about one
_POLL_SECONDS = 0.02
_SETTLE_SECONDS = 3.0  # from its first answer to the line below; half a second is usual
_SAYS_IT_SERVES = r"^(?:Temporal )?Server: +\S+:%d$"
_TAKEN = "address already in use"
_TRACE = "\ngoroutine "
_TAIL_CHARACTERS = 2000


@dataclass(frozen=True, kw_only=True)
class DevServerOptions:
    """What a development server is started with.

    Attributes:
        database: The file its state is kept in, or None for memory. Only one server may use a file.
        port: The gRPC port, or 0 for a free one.
        ui_port: The web UI's port, 0 for a free one, or None for no UI.
        namespace: The namespace to have; `default` is always there.
        search_attributes: Keyword search attributes to have, by default those that pipelines set; a namespace
            may have ten.
        tuned: Whether to use the settings of `TUNED`, and for a database file SQLite's write-ahead log, which
            survives a killed server whole; a power cut may take its last moments. A server with a file may also take
            some 200 MB of memory more, which saves it processor time (`GOGC` and `GOMEMLIMIT` of one's own win).
        settings: More server settings (dynamic configuration) by name; they win over the tuned ones.
        codec_endpoint: The URL of a codec server for the UI to call (`baton.codec.server`).
        log: The file to append the server's output to; by default it is beside the database, named like
            it with `.log` added, and with no database it is kept only until the server stops.
        log_level: How much the server writes there.
        temporal: The `temporal` program to run; by default the one that `find_temporal` finds.
    """

    database: Path | None = None
    port: int = 0
    ui_port: int | None = 0
    namespace: str = "default"
    search_attributes: tuple[str, ...] = SEARCH_ATTRIBUTES
    tuned: bool = True
    settings: Mapping[str, object] = field(default_factory=dict)
    codec_endpoint: str | None = None
    log: Path | None = None
    log_level: Literal["debug", "info", "warn", "error", "never"] = "warn"
    temporal: str | None = None

    @property
    def log_file(self) -> Path | None:
        """Where the server's output goes, or None for a file that ends with the server."""
        if self.log is None and self.database is not None:
            return self.database.with_name(f"{self.database.name}.log")
        return self.log

    def arguments(self, port: int, ui_port: int | None) -> list[str]:
        """Return the command line after the program's name."""
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
        for name in self.search_attributes:
            arguments += ["--search-attribute", f"{name}=Keyword"]
        for name, value in {**_USUAL, **(TUNED if self.tuned else {}), **self.settings}.items():
            arguments += ["--dynamic-config-value", f"{name}={json.dumps(value)}"]
        return arguments


class DevServer:
    """One `temporal server start-dev` process: it serves when `start` returns and is gone after `stop`."""

    def __init__(self, options: DevServerOptions | None = None) -> None:
        self.options = options or DevServerOptions()
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._ui_port: int | None = None

    @property
    def address(self) -> str:
        """What a Temporal client connects to."""
        self._started()
        return f"{HOST}:{self._port}"

    @property
    def ui_url(self) -> str | None:
        """The web UI's URL, or None if there is none."""
        self._started()
        return None if self._ui_port is None else f"http://{HOST}:{self._ui_port}"

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The server's process."""
        return self._started()

    async def start(self) -> Self:
        """Start the server and return once it serves, with its namespace and search attributes."""
        if self._process is not None:
            raise RuntimeError(f"the server was started already, at {self.address!r}; make another DevServer")
        program = find_temporal(self.options.temporal)
        lock = await self._lock_database()
        # The process inherits both and keeps them; this program needs them only until it serves.
        with lock, self._open_log() as log:
            for again in (True, True, False):
                output = _Output(log, os.fstat(log.fileno()).st_size)
                with contextlib.ExitStack() as held:
                    self._port, self._ui_port = _ports(self.options.port, self.options.ui_port, held)
                    try:
                        self._process = await self._launch(program, log, lock)
                        await self._serving(self._process, output)
                        break
                    except BaseException as error:
                        await self._end(grace=0)
                        # Somebody else may take an inner port, or one of these where none can be held.
                        if not (again and isinstance(error, ServerError) and _TAKEN in output.text()):
                            raise
        return self

    async def stop(self) -> None:
        """Stop the server: ask it to end, and kill it after ten seconds, or at once if this is cancelled."""
        await self._end(grace=0 if self.options.database is None else _STOP_SECONDS)

    async def __aenter__(self) -> Self:
        """Start the server."""
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        await self.stop()

    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the server was not started; use it as an 'async with' context, or await start()")
        return self._process

    async def _lock_database(self) -> ChildLock:
        database = self.options.database
        if database is None:
            return ChildLock()
        lock_file = database.with_name(f"{database.name}.lock")
        with _folder_of(lock_file):
            return await ChildLock.take(lock_file, _LOCK_SECONDS)

    def _open_log(self) -> IO[bytes]:
        file = self.options.log_file
        if file is None:
            # Windows deletes no file that the server still has open, and Temporal writes little.
            return tempfile.NamedTemporaryFile(delete=sys.platform != "win32")
        with _folder_of(file):
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
            umask=_OWNERS_ONLY,
        )
        lock.describe(f"the server at {HOST}:{self._port} (process {process.pid})")
        return process

    def _environment(self) -> dict[str, str]:
        """Return the environment, without the CLI's own settings: a profile with another address is not meant here."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
        # One in memory holds all its state there, several times over if it were let.
        more = _TUNED_MEMORY if self.options.tuned and self.options.database is not None else {}
        return {**more, **own}

    async def _serving(self, process: asyncio.subprocess.Process, output: "_Output") -> None:
        """Wait until the server answers and has what was asked of it."""
        answering, ending = asyncio.create_task(self._until_it_serves(output)), asyncio.create_task(process.wait())
        try:
            await asyncio.wait((answering, ending), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if answering.done() and process.returncode is None:
                return answering.result()
        finally:
            answering.cancel()
            ending.cancel()
            await asyncio.gather(answering, ending, return_exceptions=True)
        if process.returncode is None:
            what = f"does not serve at {self.address!r} after {_START_SECONDS:.0f} seconds"
        else:
            what = f"ended with code {process.returncode} before it served"
        raise ServerError(f"the Temporal server {what}; its last output:\n{last_words(output.text())}")

    async def _until_it_serves(self, output: "_Output") -> None:
        """Wait for an answer, and for the line that the process writes once all its services have begun."""
        while not await self._answers():  # noqa: ASYNC110 - a server gives no event
            await asyncio.sleep(_POLL_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while not re.search(_SAYS_IT_SERVES % self._port, output.text(), re.MULTILINE):  # noqa: ASYNC110 - nor a log
                    await asyncio.sleep(_POLL_SECONDS)

    async def _answers(self) -> bool:
        request = ListSearchAttributesRequest(namespace=self.options.namespace)
        try:
            client = await Client.connect(self.address, namespace=self.options.namespace)
            answer = await client.operator_service.list_search_attributes(request)
        except (RuntimeError, RPCError):  # not listening yet; no namespace yet
            return False
        return set(self.options.search_attributes) <= set(answer.custom_attributes)

    async def _end(self, grace: float) -> None:
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
def _folder_of(file: Path) -> Iterator[None]:
    """Make the folder of ``file``, and say what is wrong if the file can't be opened in it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ServerError(f"{str(file)!r} cannot be opened: {reason}; choose another database or log") from error


def last_words(output: str) -> str:
    """Return the end of a server's output that tells people something: if it crashed, what stands above the trace."""
    return output.partition(_TRACE)[0][-_TAIL_CHARACTERS:].strip() or "(nothing)"


@dataclass(frozen=True)
class _Output:
    """What a server has written to its log."""

    log: IO[bytes]
    begin: int

    def text(self) -> str:
        """Return all of it, without moving the writer's place."""
        with open(self.log.name, "rb") as log:
            log.seek(self.begin)
            return log.read().decode(errors="replace")


def _ports(port: int, ui_port: int | None, held: contextlib.ExitStack) -> tuple[int, int | None]:
    """Return the ports with each 0 replaced by a free one, and make sure that the others are free."""
    return _free(port, held, "port"), None if ui_port is None else _free(ui_port, held, "ui_port")


def _free(port: int, held: contextlib.ExitStack, setting: str) -> int:
    """Return ``port``, or any free one for 0."""
    try:
        return held.enter_context(held_port(port, host=HOST))
    except OSError as error:
        raise ServerError(
            f"port {port} of {HOST} is taken: {error.strerror or error}; choose another, or 0 for a free one, by "
            f"`{setting}` (--{setting.replace('_', '-')} of a command)"
        ) from error
