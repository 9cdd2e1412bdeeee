"""Programs run within their limits, see nothing of the worker's keys, and leave nothing behind."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.workbench.programs import ProgramError, Ran, environment_for, run_program


async def run(code: str, folder: Path, **options: object) -> Ran:
    """Run a little Python program."""
    terms: dict[str, object] = {"seconds": 30, "environment": environment_for(), **options}
    return await run_program([sys.executable, "-c", code], folder=folder, **terms)  # type: ignore[arg-type]


class TestRunProgram:
    """One program at a time."""

    async def test_returns_output_errors_and_code(self, tmp_path: Path) -> None:
        """Both streams, apart; the program reads what it is given."""
        ran = await run("import sys; print(input()); print('e', file=sys.stderr); sys.exit(3)", tmp_path, given=b"hi\n")
        assert (ran.code, ran.output, ran.errors, ran.dropped) == (3, b"hi\n", b"e\n", 0)

    async def test_keeps_the_beginning_and_the_end_of_a_long_output(self, tmp_path: Path) -> None:
        """A program cannot fill the worker's memory; what is left out is counted."""
        ran = await run("print('a' * 500_000 + 'z' * 500_000, end='')", tmp_path, most_bytes=1_000)
        assert ran.output.startswith(b"a" * 500 + b"\n[")
        assert ran.output.endswith(b"]\n" + b"z" * 500)
        assert ran.dropped == 999_000

    async def test_stops_what_takes_too_long_with_all_it_started(
        self, tmp_path: Path, let_pass: Callable[[float], None]
    ) -> None:
        """Also a child that ignores SIGTERM and holds the output open."""
        place = tmp_path / "pid"
        os.mkfifo(place)
        child = "import os,signal,time; signal.signal(15, signal.SIG_IGN); "
        child += f"open({str(place)!r},'w').write(str(os.getpid())); time.sleep(600)"
        code = f"import subprocess,sys,time; subprocess.Popen([sys.executable,'-c',{child!r}]); time.sleep(600)"
        running = asyncio.ensure_future(run(code, tmp_path))
        process = int(await asyncio.to_thread(place.read_text))
        let_pass(30)
        assert (await running).code is None
        with pytest.raises(ProcessLookupError):
            await _gone(process)

    async def test_leaves_nothing_behind_that_a_finished_program_started(self, tmp_path: Path) -> None:
        """A server that a test forgot to stop does not run on."""
        child = "import time; time.sleep(600)"
        code = f"import subprocess,sys; print(subprocess.Popen([sys.executable,'-c',{child!r}]).pid)"
        ran = await run(code, tmp_path)
        assert ran.code == 0
        with pytest.raises(ProcessLookupError):
            await _gone(int(ran.output))

    async def test_ends_with_the_call(self, tmp_path: Path) -> None:
        """A stage that is cancelled has stopped its program when it returns."""
        place = tmp_path / "pid"
        os.mkfifo(place)
        code = f"import os,time; open({str(place)!r},'w').write(str(os.getpid())); time.sleep(600)"
        running = asyncio.ensure_future(run(code, tmp_path))
        process = int(await asyncio.to_thread(place.read_text))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(ProcessLookupError):
            await _gone(process)

    async def test_hands_no_key_of_the_worker_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is not asked for by name is not there."""
        monkeypatch.setenv("BATON_LLM_KEY", "sk-secret")
        monkeypatch.setenv("PROJECT_TOKEN", "t")
        environment = environment_for(["PROJECT_TOKEN"], {"PYTHONPATH": "src"})
        ran = await run("import os; print(sorted(os.environ))", tmp_path, environment=environment)
        assert b"BATON_LLM_KEY" not in ran.output
        assert b"PROJECT_TOKEN" in ran.output
        assert b"PYTHONPATH" in ran.output

    async def test_runs_a_program_of_the_folder(self, tmp_path: Path) -> None:
        """A relative path is one from the folder, not from where the worker runs."""
        (tmp_path / "hi.sh").write_text("#!/bin/sh\necho $PWD\n")
        (tmp_path / "hi.sh").chmod(0o755)
        ran = await run_program(["./hi.sh"], folder=tmp_path, seconds=10, environment=environment_for())
        assert ran.output.decode().strip() == str(tmp_path)

    async def test_names_a_program_that_is_not_there(self, tmp_path: Path) -> None:
        """And says what to do."""
        with pytest.raises(ProgramError, match="no program 'no-such-program' on this worker; install it"):
            await run_program(["no-such-program"], folder=tmp_path, seconds=10, environment=environment_for())


async def _gone(process: int) -> None:
    """Ask for a process until it is no more; the init process may take a moment to bury it."""
    for _ in range(500):
        os.kill(process, 0)
        if await asyncio.to_thread(_is_unburied, process):
            raise ProcessLookupError
        await asyncio.sleep(0.01)


def _is_unburied(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.is_file() and state.read_text().rpartition(")")[2].split()[0] == "Z"
