"""A worker as a child process: found, restarted when it ends or its code changes, ended with whatever it started.

A package names its pipelines in the entry point group `baton.pipelines`: each pipeline's type, and the module that runs
its worker, as `python -m MODULE` does. It may name the extras that they need, as `MODULE [EXTRA]`.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path

from baton.artifacts.store import LocalArtifactStore, open_store
from baton.cli.session import Session
from baton.devserver import DevServer, DevServerOptions
from baton.devserver.processes import bound_to_parent
from baton.errors import BatonError

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_HEALTHY_SECONDS = 60.0
_LOOKS_EVERY = 1.0
_GRACE_SECONDS = 20.0  # how long stages may take to finish, unless the environment says otherwise
_ENDING_SECONDS = 10.0  # that a worker may take beyond it


@dataclass(frozen=True)
class WorkerProgram:
    """What is run as the worker."""

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


@contextlib.asynccontextmanager
async def supervised(program: WorkerProgram, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Keep a worker running while the context is open."""
    task = asyncio.create_task(supervise(program, say))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


GROUP = "baton.pipelines"
_NEEDED = re.compile(r"""(?P<name>[A-Za-z0-9._-]+)[^;]*; *extra *== *['"](?P<extra>[^'"]+)['"]""")


def worker_module(pipeline: str) -> str:
    """Return the module that runs the worker of an installed pipeline, whose extras are installed, too."""
    known = _pipelines()
    if pipeline not in known:
        names = ", ".join(sorted(known))
        raise BatonError(f"no file and no pipeline of an installed package is named {pipeline!r}; pipelines: {names}")
    found = known[pipeline]
    for extra in found.extras:
        package = found.dist
        if package and (missing := _missing(package.requires or [], extra)):
            remedy = f"pip install '{package.name}[{extra}]'"
            raise BatonError(f"the pipeline {pipeline!r} needs {', '.join(missing)}: {remedy}")
    return found.module


def _pipelines() -> dict[str, EntryPoint]:
    """Return the pipelines of installed packages, by name."""
    return {found.name: found for found in entry_points(group=GROUP)}


def _missing(requirements: Sequence[str], extra: str) -> list[str]:
    """Return the packages of an extra that are not installed; one that is for some systems only is not looked for."""
    missing = []
    for one in requirements:
        needed = _NEEDED.fullmatch(one)
        if needed and needed["extra"] == extra and installed(needed["name"]) is None:
            missing.append(needed["name"])
    return missing


def installed(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _program(pipeline: str) -> Sequence[str]:
    """Return the worker's arguments for Python: that of an installed pipeline, else `./worker.py`."""
    if pipeline not in _pipelines() and (script := find_worker(None)):
        return (str(script),)
    return ("-m", worker_module(pipeline))


@contextlib.asynccontextmanager
async def local_server(session: Session, pipeline: str, task_queue: str) -> AsyncIterator[Session]:
    """Yield a session with a server of its own, in memory, where a worker has the pipeline; both end with the block."""
    program = _program(pipeline)
    async with contextlib.AsyncExitStack() as running:
        with session.progress("starting the server"):
            server = await running.enter_async_context(DevServer(DevServerOptions(ui_port=None)))
        environment = worker_environment(
            os.environ, address=server.address, namespace="default", artifacts=absolute_store(session.options.store)
        )
        quiet = {**environment, "BATON_TASK_QUEUE": task_queue, "BATON_LOG_LEVEL": "WARNING"}
        await running.enter_async_context(supervised(WorkerProgram(program, quiet), session.note))
        session.note(f"for commands in another terminal: export TEMPORAL_ADDRESS={server.address}")
        yield replace(session, options=replace(session.options, address=server.address, namespace="default"))
