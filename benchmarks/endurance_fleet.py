"""What has troubles: worker processes whose ledgers are on a small disk, a Postgres server, and the memory of all."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from baton.devserver.processes import bound_to_parent
from benchmarks.rig import production_environment, resident_mb, stop

_ROOT = Path(__file__).parents[1]
_PIPELINES = Path(__file__).with_name("workflows") / "endured.py"
_FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
"""The library of Debian's package libfaketime, with which a process has another time."""
_POLL_SECONDS = 0.1
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Disk:
    """A small file system in memory for the ledgers.

    Attributes:
        folder: Its folder.
        is_mounted: Whether it is a file system of its own: only root may mount one.
    """

    folder: Path
    is_mounted: bool

    def fill(self) -> None:
        """Leave no byte."""
        with (self.folder / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):  # no space is left for so many
                    while filler.write(bytes(size)) == size:
                        pass

    def free(self) -> None:
        """Give the space back."""
        (self.folder / "filler").unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Disk]:
    """Mount the file system on a folder."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    mounted = _succeeds(command)
    try:
        yield Disk(folder, mounted)
    finally:
        if mounted:
            _succeeds(["umount", "-l", str(folder)])


def _succeeds(command: list[str]) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


def shifted_clock(seconds: int) -> dict[str, str] | None:
    """Return the variables of a process whose clock is off by so much; None without libfaketime."""
    if not _FAKETIME:
        return None
    sign = "+" if seconds >= 0 else "-"
    return {
        "LD_PRELOAD": str(_FAKETIME[0]),
        "FAKETIME": f"{sign}{abs(seconds)}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


@dataclass(frozen=True)
class Death:
    """When a worker was killed, by the clock that no trouble moves.

    Attributes:
        process: Its process id.
        at: `time.monotonic()`.
    """

    process: int
    at: float


class Fleet:
    """Worker processes by name, each as `python -m baton.worker` makes one.

    Args:
        logs: The folder of their output.
        settings: The variables of each, by name.

    Attributes:
        deaths: Who was killed.
        memory: Megabytes over time of each process, by its name and how often it had been started.
    """

    def __init__(self, logs: Path, settings: Mapping[str, Mapping[str, str]]) -> None:
        self._logs = logs
        self._settings = settings
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._starts: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self.deaths: list[Death] = []
        self.memory: dict[str, list[tuple[float, float]]] = {}

    @property
    def names(self) -> list[str]:
        """The workers' names."""
        return [*self._settings]

    def process_id(self, name: str) -> int:
        """Return the process id of a worker."""
        return self._processes[name].pid

    def watch(self, name: str, process: int) -> None:
        """Measure the memory of another process too."""
        self._others[name] = process

    async def start(self, name: str, extra: Mapping[str, str] | None = None) -> None:
        """Start a worker, and return once it works."""
        self._starts[name] = self._starts.get(name, 0) + 1
        folder = Path(self._settings[name]["BATON_ARTIFACTS"]).parent
        folder.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name.replace(' ', '-')}-{self._starts[name]}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *bound_to_parent([sys.executable, "-m", "baton.worker", str(_PIPELINES)]),
                cwd=folder,
                env={**production_environment(), "PYTHONPATH": str(_ROOT), **self._settings[name], **(extra or {})},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes[name] = process
        async with asyncio.timeout(_START_SECONDS):
            while "working for task queue" not in log.read_text(encoding="utf-8", errors="replace"):
                if process.returncode is not None:
                    raise RuntimeError(f"the worker {name!r} ended with code {process.returncode}; see {log}")
                await asyncio.sleep(_POLL_SECONDS)

    async def kill(self, name: str) -> None:
        """Kill a worker, as the kernel does."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):  # it ended by itself, which `ended` has told
            process.kill()
        self.deaths.append(Death(process.pid, time.monotonic()))
        await process.wait()

    async def replace(self, name: str, extra: Mapping[str, str] | None = None) -> None:
        """Stop a worker as a deployment does, and start it with other variables."""
        await stop(self._processes.pop(name))
        await self.start(name, extra)

    def ended(self) -> list[str]:
        """Return the workers that ended by themselves."""
        return [name for name, process in self._processes.items() if process.returncode is not None]

    async def measure_memory(self, every: float) -> None:
        """Note the memory of every process again and again."""
        while True:
            now = time.monotonic()
            running = {f"{name}, start {self._starts[name]}": worker.pid for name, worker in self._processes.items()}
            for name, process in (running | self._others).items():
                if megabytes := resident_mb(process):
                    self.memory.setdefault(name, []).append((now, megabytes))
            await asyncio.sleep(every)

    async def close(self) -> None:
        """Stop all workers."""
        await asyncio.gather(*(stop(process) for process in self._processes.values()))
