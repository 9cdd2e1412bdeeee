"""Run a worker as a child process: restart it when it exits or its code changes, and stop it with its children.

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

from baton import open_store
from baton.cli.session import Session
from baton.client.faces import LocalArtifactStore
from baton.devserver import DevServer, DevServerOptions
from baton.devserver.processes import bound_to_parent
from baton.errors import BatonError
from baton.plugin import GRACE_SECONDS

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 30.0
_HEALTHY_SECONDS = 60.0
_POLL_SECONDS = 1.0
_REFUSED = 2  # how a worker exits that its settings or its code keep from starting
_EXIT_SECONDS = 10.0  # for a worker to exit after its grace


@dataclass(frozen=True)
class WorkerProgram:
    """The command line, environment, watched code and folder of a worker."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    watched: Path | None = None
    folder: Path | None = None

    @property
    def stop_timeout(self) -> float:
        """Seconds that the worker may take to exit: the grace of its stages, and some more."""
        grace = GRACE_SECONDS
        with contextlib.suppress(ValueError):  # the worker itself refuses to start with such a value
            grace = float(self.environment.get("BATON_GRACE_SECONDS") or grace)
        return grace + _EXIT_SECONDS


def worker_environment(inherited: Mapping[str, str], *, address: str, namespace: str, artifacts: str) -> dict[str, str]:
    """Return the environment of a worker that connects to this server only."""
    return {
        **{name: value for name, value in inherited.items() if not name.startswith("TEMPORAL_")},
        "TEMPORAL_ADDRESS": address,
        "TEMPORAL_NAMESPACE": namespace,
        "TEMPORAL_CONFIG_FILE": os.devnull,
        "BATON_ARTIFACTS": artifacts,
        "BATON_GRACE_SECONDS": inherited.get("BATON_GRACE_SECONDS") or f"{GRACE_SECONDS:g}",
        "PYTHONUNBUFFERED": "1",
    }


async def supervise(program: WorkerProgram, say: Callable[[str], None]) -> None:
    """Run a worker until cancelled; restart it when it exits (after a pause) or its code changes.

    A worker that its code keeps from starting is restarted when the code changes.
    """
    pause = _MIN_PAUSE_SECONDS
    while True:
        started = time.monotonic()
        initial = code_files(program.watched)
        async with worker_process(program) as process:
            changed_names = await _wait_for_change_or_exit(program, process, initial)
        if changed_names:
            say(f"{', '.join(changed_names)} changed; restarting the worker")
            continue
        code = process.returncode or 0
        if code == _REFUSED and program.watched is not None:
            say("the worker cannot use the code; it starts again when the code changes")
            await _wait_for_change(program, initial)
            continue
        if time.monotonic() - started > _HEALTHY_SECONDS:
            pause = _MIN_PAUSE_SECONDS
        reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        say(f"the worker {reason}; restarting it in {pause:.0f} s")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)


async def _wait_for_change(program: WorkerProgram, initial: Mapping[Path, int]) -> None:
    """Wait until a file of the watched code is not as it was."""
    while code_files(program.watched) == initial:  # noqa: ASYNC110 - nobody tells about files
        await asyncio.sleep(_POLL_SECONDS)


async def _wait_for_change_or_exit(
    program: WorkerProgram, process: asyncio.subprocess.Process, initial: Mapping[Path, int]
) -> list[str]:
    """Return the names of the changed files, or an empty list once the worker exits."""
    exited = asyncio.create_task(process.wait())
    try:
        while not exited.done():
            await asyncio.wait((exited,), timeout=_POLL_SECONDS)
            current = code_files(program.watched)
            if changed_names := sorted({path.name for path, _ in initial.items() ^ current.items()}):
                return changed_names
    finally:
        exited.cancel()
    return []


def code_files(watched: Path | None) -> dict[Path, int]:
    """Return the modification times of a package's Python files, or of a file and its neighbours."""
    if watched is None:
        return {}
    paths = watched.rglob("*.py") if watched.is_dir() else watched.parent.glob("*.py")
    times: dict[Path, int] = {}
    for path in paths:
        with contextlib.suppress(OSError):  # an editor may be replacing it
            times[path] = path.stat().st_mtime_ns
    return times


@contextlib.asynccontextmanager
async def worker_process(program: WorkerProgram) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the worker in its own session, so that Ctrl-C does not reach it directly."""
    process = await asyncio.create_subprocess_exec(
        *bound_to_parent([sys.executable, *program.arguments]),
        cwd=program.folder,
        env=dict(program.environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await _stop(process, program.stop_timeout)


async def _stop(process: asyncio.subprocess.Process, timeout: float) -> None:
    """Terminate the worker, kill it after the timeout, and kill the children that it left behind."""
    try:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        if sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def find_worker(script: Path | None) -> Path | None:
    """Return the path of ``script``, of `./worker.py` if it exists, or None."""
    if script is not None and not script.is_file():
        raise BatonError(f"there is no worker program {str(script)!r}; name another with --worker, or use --no-worker")
    script = script or Path("worker.py")
    return script.resolve() if script.is_file() else None


def absolute_store(location: str) -> str:
    """Return an artifact store's location, with an absolute path if it is a folder."""
    store = open_store(location)
    return str(store.root.absolute()) if isinstance(store, LocalArtifactStore) else location


@contextlib.asynccontextmanager
async def supervised(program: WorkerProgram, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Supervise a worker while the context is open."""
    task = asyncio.create_task(supervise(program, say))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


GROUP = "baton.pipelines"
_EXTRA_REQUIREMENT = re.compile(r"""(?P<name>[A-Za-z0-9._-]+)[^;]*; *extra *== *['"](?P<extra>[^'"]+)['"]""")


def worker_module(pipeline: str) -> str:
    """Return the module that runs an installed pipeline's worker.

    Raises:
        BatonError: No such pipeline is installed, or a package of its extras is missing.
    """
    pipelines = _installed_pipelines()
    if pipeline not in pipelines:
        names = ", ".join(sorted(pipelines))
        raise BatonError(f"there is no file or installed pipeline {pipeline!r}; installed pipelines: {names}")
    entry_point = pipelines[pipeline]
    for extra in entry_point.extras:
        package = entry_point.dist
        if package and (missing := _missing_packages(package.requires or [], extra)):
            remedy = f"pip install '{package.name}[{extra}]'"
            raise BatonError(f"pipeline {pipeline!r} needs {', '.join(missing)}: {remedy}")
    return entry_point.module


def _installed_pipelines() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}


def _missing_packages(requirements: Sequence[str], extra: str) -> list[str]:
    """Return the packages of an extra that are not installed, without those for some systems only."""
    matches = [_EXTRA_REQUIREMENT.fullmatch(requirement) for requirement in requirements]
    names = [match["name"] for match in matches if match and match["extra"] == extra]
    return [name for name in names if installed_version(name) is None]


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _worker_arguments(pipeline: str) -> Sequence[str]:
    """Return Python's arguments for an installed pipeline's worker, or for `./worker.py`."""
    if pipeline not in _installed_pipelines() and (script := find_worker(None)):
        return (str(script),)
    return ("-m", worker_module(pipeline))


@contextlib.asynccontextmanager
async def local_server(
    session: Session, pipeline: str, task_queue: str, *, verbose: bool = False
) -> AsyncIterator[Session]:
    """Yield a session on an in-memory server with a worker of the pipeline."""
    arguments = _worker_arguments(pipeline)
    async with contextlib.AsyncExitStack() as stack:
        with session.progress("starting the server"):
            server = await stack.enter_async_context(DevServer(DevServerOptions(ui_port=None)))
        environment = worker_environment(
            os.environ, address=server.address, namespace="default", artifacts=absolute_store(session.options.store)
        )
        environment |= {"BATON_TASK_QUEUE": task_queue, "BATON_LOG_LEVEL": "DEBUG" if verbose else "WARNING"}
        await stack.enter_async_context(supervised(WorkerProgram(arguments, environment), session.note))
        session.note(f"for commands in another terminal: export TEMPORAL_ADDRESS={server.address}")
        yield replace(session, options=replace(session.options, address=server.address, namespace="default"))
