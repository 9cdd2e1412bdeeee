"""The worker as a child process."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from baton.cli.supervision import WorkerProgram, find_worker, supervise, worker_environment
from baton.errors import BatonError

RUNS = """\
import os, pathlib, signal, subprocess, sys, time
log = pathlib.Path("log")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(log.write_text("asked to end") and 0))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("child.new").write_text(str(child.pid))
os.rename("child.new", "child")
while True: time.sleep(0.05)
"""
DIES = "import pathlib, sys\nwith open('runs', 'a') as log: log.write('x')\nsys.exit(7)\n"


@asynccontextmanager
async def supervised(
    folder: Path,
    text: str,
    said: list[str],
    environment: Mapping[str, str] = os.environ,
    watched: Path | None = None,
) -> AsyncIterator["asyncio.Task[None]"]:
    """Keep a worker running that is this program; stop it at the end, at the latest."""
    script = folder / "worker.py"
    script.write_text(f"import os\nos.chdir({str(folder)!r})\n{text}", encoding="utf-8")
    task = asyncio.create_task(supervise(WorkerProgram([str(script)], environment, watched), said.append))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so that another process brings about."""
    async with asyncio.timeout(180):
        while not true():  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.02)


def is_running(process: int) -> bool:
    """Return whether a process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class TestSupervise:
    async def test_a_stopped_worker_exits_gracefully_and_leaves_no_child(self, tmp_path: Path) -> None:
        """It gets SIGTERM first; children that it left behind are killed."""
        async with supervised(tmp_path, RUNS, []):
            await until((tmp_path / "child").exists)
            child = int((tmp_path / "child").read_text(encoding="utf-8"))

        assert (tmp_path / "log").read_text(encoding="utf-8") == "asked to end"
        await until(lambda: not is_running(child))

    async def test_a_worker_that_dies_is_restarted_with_a_message(self, tmp_path: Path) -> None:
        """The pause grows, so that a broken worker does not spin."""
        said: list[str] = []
        async with supervised(tmp_path, DIES, said):
            await until(lambda: len(said) == 2)

        assert said == [
            "the worker exited with code 7; restarting it in 1 s",
            "the worker exited with code 7; restarting it in 2 s",
        ]
        assert (tmp_path / "runs").read_text(encoding="utf-8") == "xx"

    async def test_a_worker_that_refuses_its_code_waits_for_other_code(self, tmp_path: Path) -> None:
        """What is wrong is said once, not at each restart."""
        said: list[str] = []
        (tmp_path / "code").mkdir()
        code = tmp_path / "code" / "flow.py"
        code.write_text("", encoding="utf-8")
        async with supervised(tmp_path, DIES.replace("7", "2"), said, watched=code):
            await until(lambda: len(said) == 1)
            code.write_text("# mended", encoding="utf-8")
            await until(lambda: len(said) == 2)

        assert said == ["the worker cannot use the code; it starts again when the code changes"] * 2

    async def test_a_worker_may_take_its_grace_period_to_exit(self, tmp_path: Path) -> None:
        """After that it is killed."""
        for grace, takes, left in (("-9.9", 600, False), ("60", 1, True)):  # a tenth of a second, more than a minute
            slow = RUNS.replace("lambda *_: sys", f"lambda *_: time.sleep({takes}) or sys")
            folder = tmp_path / grace
            folder.mkdir()
            environment = {**os.environ, "BATON_GRACE_SECONDS": grace}
            async with supervised(folder, slow, [], environment):
                await until((folder / "child").exists)
            assert (folder / "log").exists() is left


class TestWorkerEnvironment:
    def test_no_setting_of_another_connection_remains(self) -> None:
        """A production profile or key must not reach the development server."""
        inherited = {"PATH": "p", "TEMPORAL_PROFILE": "cluster", "TEMPORAL_API_KEY": "k", "TEMPORAL_TLS": "1"}

        environment = worker_environment(inherited, address="127.0.0.1:1", namespace="n", artifacts="a")

        assert environment == {
            "PATH": "p",
            "TEMPORAL_ADDRESS": "127.0.0.1:1",
            "TEMPORAL_NAMESPACE": "n",
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "BATON_ARTIFACTS": "a",
            "BATON_GRACE_SECONDS": "20",
            "PYTHONUNBUFFERED": "1",
        }


class TestFindWorker:
    def test_it_is_worker_py_by_default(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without that file no worker runs; a named file must exist."""
        monkeypatch.chdir(tmp_path)
        assert find_worker(None) is None

        (tmp_path / "worker.py").touch()
        assert find_worker(None) == tmp_path / "worker.py"
        with pytest.raises(BatonError, match=r"no worker program 'other\.py'"):
            find_worker(Path("other.py"))
