"""`baton dev`: everything a pipeline needs, on this machine, until Ctrl-C; the worker runs as a child process."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from baton.artifacts.store import LocalArtifactStore, open_store
from baton.cli.output import make_table, plain
from baton.cli.session import KEYS_FOLDER, Session, command
from baton.codec.encryption import encryption_wanted
from baton.devserver import HOST, DevServer, DevServerOptions
from baton.devserver.processes import bound_to_parent, held_port
from baton.errors import BatonError, ServerError
from baton.keys.store_keyring import DEVELOPMENT_FILE, Keyring

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_HEALTHY_SECONDS = 60.0
_LOOKS_EVERY = 1.0
_GRACE_SECONDS = 20.0  # how long stages may take to finish, unless the environment says otherwise
_ENDING_SECONDS = 10.0  # that a worker may take beyond it


@dataclass(frozen=True)
class WorkerProgram:
    """What is run as the worker.

    Attributes:
        arguments: What Python is given: a program's path, or `-m` and a module, and its arguments.
        environment: Its whole environment.
        watched: The file or folder whose changed Python files make it start again; None for none.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    watched: Path | None = None

    @property
    def patience(self) -> float:
        """How many seconds it may take to end: what it gives its stages, and a little."""
        grace = _GRACE_SECONDS
        with contextlib.suppress(ValueError):  # which a worker refuses to begin with
            grace = float(self.environment.get("BATON_GRACE_SECONDS") or grace)
        return grace + _ENDING_SECONDS


def worker_environment(inherited: Mapping[str, str], *, address: str, namespace: str, artifacts: str) -> dict[str, str]:
    """Return the environment in which a worker finds this server, and no other."""
    others = {name: value for name, value in inherited.items() if not name.startswith("TEMPORAL_")}
    return {
        **others,
        "TEMPORAL_ADDRESS": address,
        "TEMPORAL_NAMESPACE": namespace,
        "TEMPORAL_CONFIG_FILE": os.devnull,
        "BATON_ARTIFACTS": artifacts,
        "BATON_GRACE_SECONDS": inherited.get("BATON_GRACE_SECONDS") or f"{_GRACE_SECONDS:g}",
        "PYTHONUNBUFFERED": "1",
    }


async def supervise(program: WorkerProgram, say: Callable[[str], None]) -> None:
    """Run a worker until this is cancelled; restart it when it ends (after a pause) or its code changes."""
    pause = _FIRST_PAUSE
    while True:
        began = time.monotonic()
        async with _running(program) as process:
            changed = await _changed_or_ended(program, process)
        if changed:
            say(f"{', '.join(changed)} changed; the worker was started again with the new code")
            continue
        code = process.returncode or 0
        if time.monotonic() - began > _HEALTHY_SECONDS:
            pause = _FIRST_PAUSE
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        say(f"the worker {how}; starting it again in {pause:.0f} s")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _changed_or_ended(program: WorkerProgram, process: asyncio.subprocess.Process) -> list[str]:
    """Wait until the worker ends or a file of its code changes; return the names of the files."""
    ended = asyncio.create_task(process.wait())
    before = code_files(program.watched)
    try:
        while not ended.done():
            await asyncio.wait((ended,), timeout=_LOOKS_EVERY)
            now = code_files(program.watched)
            if changed := sorted({path.name for path, _ in before.items() ^ now.items()}):
                return changed
    finally:
        ended.cancel()
    return []


def code_files(place: Path | None) -> dict[Path, int]:
    """Return the Python files of a package's folder, or a file and those beside it, with the time each was written."""
    if place is None:
        return {}
    found = place.rglob("*.py") if place.is_dir() else place.parent.glob("*.py")
    states: dict[Path, int] = {}
    for path in found:
        with contextlib.suppress(OSError):  # an editor may replace it just now
            states[path] = path.stat().st_mtime_ns
    return states


@contextlib.asynccontextmanager
async def _running(program: WorkerProgram) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the worker in a session of its own, so that a Ctrl-C reaches it through us alone."""
    process = await asyncio.create_subprocess_exec(
        *bound_to_parent([sys.executable, *program.arguments]),
        env=dict(program.environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await _end(process, program.patience)


async def _end(process: asyncio.subprocess.Process, patience: float) -> None:
    """Ask the worker to end, kill it if it takes too long, and with it whatever it started and left behind."""
    try:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        if sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def find_worker(given: Path | None) -> Path | None:
    """Return the worker program: the one that was given, `./worker.py` if there is one, or None."""
    if given is not None and not given.is_file():
        raise BatonError(f"there is no worker program {str(given)!r}; name another with --worker, or use --no-worker")
    script = given or Path("worker.py")
    return script.resolve() if script.is_file() else None


def absolute_store(where: str) -> str:
    """Return an artifact store so that a worker in another folder finds it: a folder by its whole path."""
    store = open_store(where)
    return str(store.root.absolute()) if isinstance(store, LocalArtifactStore) else where


try:
    from baton.codec.server import codecs_for, serve_codec
except ModuleNotFoundError as error:
    raise BatonError(f"`baton dev` needs {error.name}: pip install 'temporal-baton[dev-server]'") from error

DEFAULT_PORT = 7233
DEFAULT_UI_PORT = 8233
DATABASE = Path(".baton/dev/temporal.db")

_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass(frozen=True)
class _Setup:
    """What is to be started."""

    server: DevServerOptions
    worker: Sequence[str]
    code: Path | None
    artifacts: str
    keyring: Keyring | None


@command
async def dev(
    session: Session,
    code: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            show_default=False,
            help="A Python file or package: all its pipelines and stages are served, and reloaded when it changes.",
        ),
    ] = None,
    worker: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The worker program; ./worker.py by default, if there is one.")
    ] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Start no worker.")] = False,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep the state in memory only.")] = False,
    database: Annotated[Path, typer.Option(metavar="FILE", help="Where the state is kept.")] = DATABASE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The server's port; 0: a free one.")] = DEFAULT_PORT,
    ui_port: Annotated[int, typer.Option(min=0, max=65535, help="The UI's port; 0: a free one.")] = DEFAULT_UI_PORT,
) -> None:
    """Run a Temporal server with its UI and your worker, until Ctrl-C.

    With FILE, a worker serves all pipelines and stages of that file or package, and starts again when its code changes;
    runs that the new code does not fit are suspended until they fit. Without FILE, the worker is ./worker.py.

    The server listens on this machine only and keeps its state in .baton/dev, so runs resume where they were
    when it is started again. The UI shows compressed payloads through a codec server that is started beside
    it. With BATON_ENCRYPT=true, it decrypts for the UI what is encrypted with the keys of this machine, made in
    .baton/keys.toml if there are none: worker.py of a checkout then encrypts everything that the server stores, a
    worker of your own does by Safeguards(…, encrypt=True). The worker finds the server in its environment, and is
    started again when it dies. Ctrl-C or SIGTERM stops everything; a second one does not wait for stages in progress.
    """
    named = session.options.namespace or os.environ.get("TEMPORAL_NAMESPACE") or "default"
    options = DevServerOptions(database=None if ephemeral else database, port=port, ui_port=ui_port, namespace=named)
    keyring = Keyring.find_out(os.environ, KEYS_FOLDER) if encryption_wanted(os.environ) else None
    if code is not None and (worker is not None or no_worker):
        raise BatonError("FILE comes with a worker of its own; leave out --worker and --no-worker")
    program = () if no_worker else _program(code, worker)
    setup = _Setup(options, program, code, session.options.store, keyring)
    with _cancelled_by_signals(session) as stopped:
        try:
            await _serve(session, setup)
        except asyncio.CancelledError:
            if not stopped:
                raise
    _mention(session, "stopped")


def _program(code: Path | None, worker: Path | None) -> Sequence[str]:
    """Return the worker's arguments for Python; nothing without one."""
    if code is not None:
        return ("-m", "baton.worker", str(code.resolve()))
    script = find_worker(worker)
    return () if script is None else (str(script),)


async def _serve(session: Session, setup: _Setup) -> None:
    """Start everything, and run until this is cancelled or the server dies."""
    async with contextlib.AsyncExitStack() as running:
        # The codec server must know the UI's port, and be there before it; nor may it take that port itself.
        ui_port = setup.server.ui_port or running.enter_context(held_port(host=HOST))
        origins = [f"http://{name}:{ui_port}" for name in (HOST, "localhost")]
        endpoint = await running.enter_async_context(serve_codec(codecs_for(setup.keyring), origins=origins))
        with session.progress("starting the server"):
            server = DevServer(replace(setup.server, ui_port=ui_port, codec_endpoint=endpoint))
            await running.enter_async_context(server)
        _announce(session, setup, server)
        if setup.worker:
            environment = worker_environment(
                os.environ,
                address=server.address,
                namespace=setup.server.namespace,
                artifacts=absolute_store(setup.artifacts),
            )
            environment |= _keys_environment(setup)
            await running.enter_async_context(
                _supervised(WorkerProgram(setup.worker, environment, setup.code), session)
            )
        code = await server.process.wait()
        log = setup.server.log_file
        raise ServerError(f"the Temporal server ended by itself, with code {code}; its log: {log or 'none was kept'}")


@contextlib.asynccontextmanager
async def _supervised(program: WorkerProgram, session: Session) -> AsyncIterator[None]:
    """Keep a worker running while the context is open."""
    task = asyncio.create_task(supervise(program, session.note))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.contextmanager
def _cancelled_by_signals(session: Session) -> Iterator[list[int]]:
    """Cancel the task that runs at every signal that means "stop"; yields the list of those that came."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - a command runs in one
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()
        if len(came) == 1:
            _mention(session, "stopping; stages in progress may finish (Ctrl-C again: at once)")

    with contextlib.ExitStack() as handlers:
        for number in _STOPPING:
            with contextlib.suppress(NotImplementedError):  # on Windows Ctrl-C alone stops, the loop's own way
                loop.add_signal_handler(number, stop, number)
                handlers.callback(loop.remove_signal_handler, number)
        yield came


def _mention(session: Session, text: str) -> None:
    """Say how far it is with stopping, if there is still somebody to read it: a terminal that is closed hangs up."""
    with contextlib.suppress(OSError, SystemExit):  # the second is what rich makes of a pipe without a reader
        session.err.print(plain(text, "dim"))


def _announce(session: Session, setup: _Setup, server: DevServer) -> None:
    """Say where everything is, and how to stop it."""
    options = setup.server
    if session.json:
        ready = {
            "address": server.address,
            "ui": server.ui_url,
            "codec": server.options.codec_endpoint,
            "namespace": options.namespace,
            "database": str(options.database) if options.database else None,
            "worker": setup.worker[-1] if setup.worker else None,
            "encrypted": setup.keyring is not None,
            "pid": os.getpid(),
        }
        session.write_json_lines([ready])
        return
    state = f"state in {options.database}" if options.database else "state in memory only"
    table = make_table("", "")
    table.add_row("UI", plain(f"{server.ui_url}", "bold cyan"))
    table.add_row("server", plain(f"{server.address}, namespace {options.namespace!r}, {state}"))
    if setup.keyring is not None:
        whose = (
            f"this machine's keys, {KEYS_FOLDER / DEVELOPMENT_FILE}" if setup.keyring.is_development else "your keys"
        )
        table.add_row("payloads", plain(f"what is encrypted with {whose}, the UI decrypts"))
        table.add_row("", "worker.py of a checkout encrypts; one of your own by Safeguards(…, encrypt=True)")
        table.add_row("", "to start runs in another terminal, set BATON_ENCRYPT=true there too")
    table.add_row("codec", plain(f"{server.options.codec_endpoint}, for services and the temporal command"))
    table.add_row("worker", plain(setup.worker[-1] if setup.worker else _no_worker(server)))
    table.add_row("stop", "Ctrl-C")
    session.show(table)
    session.out.file.flush()


def _keys_environment(setup: _Setup) -> dict[str, str]:
    """Return what a worker must be told so that it finds the keys of this machine, wherever it runs."""
    if setup.keyring is None or not setup.keyring.is_development or os.environ.get("BATON_KEYS"):
        return {}
    return {"BATON_KEYS": str((KEYS_FOLDER / DEVELOPMENT_FILE).absolute())}


def _no_worker(server: DevServer) -> str:
    """Return how to run a worker by hand."""
    return f"none; start yours with TEMPORAL_ADDRESS={server.address}"
