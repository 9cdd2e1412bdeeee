"""Run a program within limits: of time, of output, of what it may see of the worker; and leave nothing behind.

A worker's environment holds keys: of the ledger, of a model, of the server. A program that is started here is
given the few variables that programs need, and those that are asked for by name.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from baton.devserver.processes import group_bound_to_parent
from baton.errors import BatonError

_USUAL = ("PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TERM", "USER", "LOGNAME", "SHELL")
_BLOCK = 65_536
_GRACE = 2.0  # seconds that a program has between SIGTERM and SIGKILL
_LAST_WORDS = 1.0  # seconds that its output may still take to arrive once it has ended


class ProgramError(BatonError):
    """A program cannot be started, or said more than can be used; the message says what to do."""


@dataclass(frozen=True)
class Ran:
    """How a program ended.

    Attributes:
        code: Its exit code, negative for a signal; None where it was stopped for taking too long.
        output: What it wrote to standard output.
        errors: What it wrote to standard error; empty where both were asked for as one.
        dropped: How many bytes of them were left out of the middle, for the limit.
        seconds: How long it ran.
    """

    code: int | None
    output: bytes
    errors: bytes
    dropped: int
    seconds: float


@dataclass
class _Kept:
    """The beginning and the end of a stream, within a limit of bytes.

    Attributes:
        most: The limit.
        head: The first bytes, at most half of the limit.
        tail: The last bytes, at most the other half.
        dropped: How many between them were left out.
    """

    most: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, block: bytes) -> None:
        """Take what was read."""
        room = self.most // 2 - len(self.head)
        self.head += block[: max(room, 0)]
        self.tail += block[max(room, 0) :]
        over = len(self.tail) - (self.most - self.most // 2)
        if over > 0:
            del self.tail[:over]
            self.dropped += over

    def result(self) -> bytes:
        """Return what was kept, with a line that says how much was left out."""
        between = f"\n[… {self.dropped:,} bytes left out …]\n".encode() if self.dropped else b""
        return bytes(self.head) + between + bytes(self.tail)


def environment_for(names: Sequence[str] = (), further: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a program: what programs need, and what was asked for; no keys of the worker.

    Args:
        names: Variables to hand on as well, where they are set.
        further: Variables to set.

    Example:
        >>> sorted(environment_for(further={"PYTHONPATH": "src"}).keys() - {*_USUAL})
        ['PYTHONPATH']
    """
    handed = {name: os.environ[name] for name in (*_USUAL, *names) if name in os.environ}
    return {**handed, **(further or {})}


async def run_program(
    command: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str],
    given: bytes = b"",
    most_bytes: int = 4_000_000,
    together: bool = False,
    bound: bool = True,
) -> Ran:
    """Run a program to its end, or until its time is over.

    It runs in a session of its own, and when it ends, is stopped, or this call is cancelled, whatever it started
    in that session ends too.

    Args:
        command: The program and its arguments; no shell reads them.
        folder: Where it runs.
        seconds: How long it may take.
        environment: The whole of its environment; see `environment_for`.
        given: Its standard input.
        most_bytes: How much of each stream is kept; of more, the beginning and the end.
        together: Keep standard error in its place between the lines of standard output.
        bound: End it and what it started with the worker, on Linux, even if the worker is killed; needless for what
            takes a moment.

    Raises:
        ProgramError: There is no such program, or it cannot be started.

    Example:
        >>> ran = asyncio.run(
        ...     run_program(["printf", "hi"], folder=Path("."), seconds=10, environment=environment_for())
        ... )
        >>> ran.code, ran.output
        (0, b'hi')
    """
    program = _found(command[0], folder, environment)
    began = time.monotonic()
    output, errors = _Kept(most_bytes), _Kept(most_bytes)
    async with AsyncExitStack() as open_ends:
        # Pipes of our own: a process counts as ended when it has, whoever still holds its output open.
        written, said = await _pipe(output, open_ends), await _pipe(errors, open_ends)
        try:
            process = await asyncio.create_subprocess_exec(
                *(group_bound_to_parent([program, *command[1:]]) if bound else [program, *command[1:]]),
                cwd=folder,
                env=dict(environment),
                stdin=_input(given, open_ends),
                stdout=written.end,
                stderr=asyncio.subprocess.STDOUT if together else said.end,
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramError(f"the program {command[0]!r} cannot be started ({error.strerror})") from error
        finally:
            os.close(written.end)
            os.close(said.end)
        reading = [written.reading, said.reading]
        try:
            code = await _ended(process, seconds)
            await asyncio.wait(reading, timeout=_LAST_WORDS)
        finally:
            _signal_session(process, signal.SIGKILL)
            await asyncio.shield(process.wait())
            await asyncio.wait(reading, timeout=_LAST_WORDS)  # the session is dead, so its pipes are closed
    dropped = output.dropped + errors.dropped
    return Ran(code, output.result(), errors.result(), dropped, time.monotonic() - began)


def make_writable(folder: Path) -> None:
    """Let the owner write in every folder below one, for programs leave some in which nobody may (Go's modules)."""
    for place, names, _ in os.walk(folder):
        for inner in (Path(place, name) for name in names):
            if not inner.is_symlink() and not os.access(inner, os.R_OK | os.W_OK | os.X_OK):
                with contextlib.suppress(OSError):  # another user's: whoever needs it away is told by what fails then
                    inner.chmod(0o700)


def remove_tree(folder: Path) -> None:
    """Take a folder away, if it is there, also where programs left folders in it in which nobody may write.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> remove_tree(folder)
        >>> folder.exists()
        False
    """
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        make_writable(folder)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class _Pipe:
    """A pipe that is read until nobody writes to it any more.

    Attributes:
        end: The descriptor to write to.
        reading: The reading.
    """

    end: int
    reading: asyncio.Task[None]


async def _pipe(kept: _Kept, open_ends: AsyncExitStack) -> _Pipe:
    """Return a pipe whose content is kept; the reading ends with the stack."""
    source, end = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    file = os.fdopen(source, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    reading = asyncio.ensure_future(_read(reader, kept))
    open_ends.callback(transport.close)
    open_ends.callback(reading.cancel)
    return _Pipe(end, reading)


def _input(given: bytes, open_ends: AsyncExitStack) -> int:
    """Return a descriptor from which what is given can be read."""
    if not given:
        return asyncio.subprocess.DEVNULL
    file = open_ends.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    file.write(given)
    file.seek(0)
    return file.fileno()


def _found(name: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Return where a program is: by its path from the folder it runs in, or by the search path it is given."""
    place = folder / name if "/" in name else None
    found = shutil.which(place or name, path=environment.get("PATH"))
    if found is None:
        raise ProgramError(f"there is no program {name!r} on this worker; install it, or name another one")
    return str(Path(found).absolute())


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> int | None:
    """Wait for the end; after the time ask for it, and return None."""
    try:
        return await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        _signal_session(process, signal.SIGTERM)
        await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=_GRACE)
        return None


async def _read(stream: asyncio.StreamReader, kept: _Kept) -> None:
    """Read a stream to its end."""
    while block := await stream.read(_BLOCK):
        kept.add(block)


def _signal_session(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to everything in the program's session that is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing of it is left
        os.killpg(process.pid, number)
