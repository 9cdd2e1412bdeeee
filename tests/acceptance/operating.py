"""An operator at a terminal: calls the installed `baton` as a process, and starts workers beside it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.processes import working
from tests.support.terminal import PATIENCE_SECONDS, Screen, on_a_terminal

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("baton")
WORKER = Path(__file__).with_name("operated_worker.py")


@dataclass(frozen=True)
class Operator:
    """Calls `baton` in a folder with an environment.

    Attributes:
        folder: The working directory.
        variables: What the environment says beside the usual.
    """

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment, without the tests' own servers and users."""
        usual = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "BATON_"))}
        defaults = {
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "BATON_USER": "ann",
            "BATON_ARTIFACTS": str(self.folder / "artifacts"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
        }
        return {**usual, **defaults, **self.variables}

    async def __call__(self, *words: str, code: int = 0) -> str:
        output, _ = await self.both(*words, code=code)
        return output

    async def both(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Call the command, check its exit code, and return its output and its error output."""
        async with self.started(*words) as process:
            async with asyncio.timeout(PATIENCE_SECONDS):
                output, beside = await process.communicate()
        assert process.returncode == code, f"baton {' '.join(words)} ended with {process.returncode}: {beside.decode()}"
        return output.decode(), beside.decode()

    async def json(self, *words: str, code: int = 0) -> Any:
        """Call the command with --json, and return the parsed output."""
        return json.loads(await self(*words, "--json", code=code))

    async def refused(self, *words: str, code: int = 1) -> str:
        """Call a command that must fail without output, and return its error output."""
        output, beside = await self.both(*words, code=code)
        assert output == ""
        return beside

    def at_a_terminal(self, *words: str) -> AbstractAsyncContextManager[Screen]:
        """Run the command on a terminal for the block."""
        environment = {**self.environment, "TERM": "xterm-256color"}
        return on_a_terminal(str(PROGRAM), *words, folder=self.folder, environment=environment)

    async def on_a_terminal(self, *words: str) -> str:
        """Call the command on a terminal, and return all its output."""
        async with self.at_a_terminal(*words) as screen:
            assert await screen.code() == 0
        return screen.written

    async def terminated_on_a_terminal(self, *words: str, once: str) -> tuple[int, str]:
        """Call the command on a terminal, send SIGTERM once a text appears, and return the output and exit code."""
        async with self.at_a_terminal(*words) as screen:
            await screen.until(once)
            screen.process.send_signal(signal.SIGTERM)
            return await screen.code(), screen.written

    async def hung_up(self, *words: str, once: str) -> int:
        """Call the command on a terminal, close it once a text appears, and return the exit code."""
        async with self.at_a_terminal(*words) as screen:
            await screen.until(once)
            screen.close()
            screen.process.send_signal(signal.SIGHUP)  # as the kernel does to the terminal's own session
            return await screen.code()

    @asynccontextmanager
    async def started(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the command in the background for the block."""
        process = await asyncio.create_subprocess_exec(
            str(PROGRAM),
            *words,
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.communicate()

    @asynccontextmanager
    async def worker(self, queue: str = "baton") -> AsyncIterator[None]:
        """Run a worker process for a task queue during the block."""
        environment = {**self.environment, "BATON_TASK_QUEUE": queue}
        async with working(str(WORKER), once="working", environment=environment) as process:
            yield
            if process.returncode is None:
                process.terminate()
            await process.communicate()

    async def until(self, run: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Follow a run until a news item matches a condition, and return it."""
        async with self.started("watch", run, "--json") as process:
            return await heard(process, true)

    async def until_asked(self, run: str) -> None:
        """Follow a run until it waits for a decision."""
        await self.until(run, lambda news: news["what"] == "step_started" and news["kind"] == "approval")


async def heard(process: asyncio.subprocess.Process, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first JSON line of a process that matches a condition."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for line in process.stdout:
            news: dict[str, Any] = json.loads(line)
            if true(news):
                return news
    raise AssertionError("it ended before that was so")
