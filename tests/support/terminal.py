"""Programs on a terminal of their own: what they write to it, and what a person types there."""

import asyncio
import codecs
import os
import select
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

PATIENCE_SECONDS = 180


class Screen:
    """A terminal with a program on it, and all that was written to it so far."""

    def __init__(self, fd: int, process: Process) -> None:
        self.written = ""
        self.process = process
        self._fd: int | None = fd
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._seen = 0

    async def until(self, text: str) -> str:
        """Return what was written since the last call, up to a text."""
        while (at := self.written.find(text, self._seen)) < 0:
            assert await self._more(), f"{text!r} was never written, but: {self.written[self._seen :]}"
        before, self._seen = self._seen, at + len(text)
        return self.written[before : self._seen]

    async def code(self) -> int:
        """Return the exit code, once the terminal is closed."""
        while self._fd is not None and await self._more():
            pass
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    async def _more(self) -> bool:
        """Read the next output; return False if the terminal is closed."""
        data = await asyncio.to_thread(self._read)
        self.written += self._decoder.decode(data)
        return bool(data)

    def _read(self) -> bytes:
        assert self._fd is not None
        ready, _, _ = select.select([self._fd], [], [], PATIENCE_SECONDS)
        assert ready, f"nothing more was written after: {self.written[self._seen :]}"
        try:
            return os.read(self._fd, 65536)
        except OSError:  # how Linux says it
            return b""

    def type(self, text: str) -> None:
        """Type something."""
        assert self._fd is not None
        os.write(self._fd, text.encode())

    def close(self) -> None:
        """Close the terminal, with the program on it or not."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@asynccontextmanager
async def on_a_terminal(*command: str, folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Screen]:
    """Run a program on a terminal of its own; it is killed if it still runs when the block ends."""
    master, slave = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    screen = Screen(master, process)
    try:
        yield screen
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        screen.close()
