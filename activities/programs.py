"""Run a program with limits on time and output."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from baton.errors import BatonError

_BLOCK_BYTES = 65_536
_LAST_OUTPUT_SECONDS = 5.0


@dataclass(frozen=True)
class ProgramResult:
    """The result of a program; the code is None after a timeout."""

    code: int | None
    output: bytes
    errors: bytes
    dropped: int
    seconds: float


async def run_program(
    command: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    max_bytes: int = 4_000_000,
    merge_errors: bool = False,
) -> ProgramResult:
    """Run a program until it ends or times out, then kill every process of its session."""
    started = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=dict(environment),
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if merge_errors else asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise BatonError(f"the program {command[0]!r} cannot be started ({error.strerror}); install it") from error
    output_tail, errors_tail = _Tail(max_bytes), _Tail(max_bytes)
    work = asyncio.gather(
        _feed(process.stdin, stdin), output_tail.read(process.stdout), errors_tail.read(process.stderr), process.wait()
    )
    try:
        await asyncio.wait_for(asyncio.shield(work), seconds)
        code = process.returncode
    except TimeoutError:
        code = None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # no process is left
            process.kill() if sys.platform == "win32" else os.killpg(process.pid, signal.SIGKILL)
        # The output ends when all its processes have ended, unless one left an unconfined session.
        await asyncio.wait([work], timeout=_LAST_OUTPUT_SECONDS)
        work.cancel()
    dropped = output_tail.dropped + errors_tail.dropped
    return ProgramResult(code, output_tail.result(), errors_tail.result(), dropped, time.monotonic() - started)


@dataclass
class _Tail:
    most: int
    kept: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    async def read(self, stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (block := await stream.read(_BLOCK_BYTES)):
            self.kept += block
            excess = max(len(self.kept) - self.most, 0)
            del self.kept[:excess]
            self.dropped += excess

    def result(self) -> bytes:
        """Return the kept bytes, after a line with the number of dropped ones."""
        return (f"[{self.dropped:,} bytes left out]\n".encode() if self.dropped else b"") + bytes(self.kept)


async def _feed(stream: asyncio.StreamWriter | None, content: bytes) -> None:
    """Write standard input; the program may stop reading it."""
    if stream is not None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stream.write(content)
            await stream.drain()
        stream.close()
