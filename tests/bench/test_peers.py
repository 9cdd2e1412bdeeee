"""The comparison with other agent layers: that all sides do the same job, and that the peers keep to their folder."""

import asyncio
import importlib.metadata
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from baton import Baton, BatonPatch, apply_patch
from benchmarks.peers.comparison import PEERS, extract_state
from benchmarks.peers.crews import PipedCrew, scripts
from benchmarks.peers.environment import REQUIREMENTS, peers_python
from benchmarks.peers.job import AGENTS, ANSWERS, Answer, State, answers, merge
from benchmarks.peers.worker import PEERS as MODULES
from benchmarks.report import GOALS
from benchmarks.samples import small, to_json

ROOT = Path(__file__).parents[2]


class TestJob:
    def test_all_sides_end_with_the_same_state(self) -> None:
        """All sides carry the same texts, and end with the same state."""
        state, baton = State(**small()), Baton.from_json_object(small())
        for script in scripts():
            state = merge(state, Answer.model_validate(script))
            baton = apply_patch(baton, BatonPatch.model_validate(script))

        assert state.model_dump() == baton.to_json_object()

    def test_each_agent_has_its_answer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The file has the answers in the agents' order."""
        (tmp_path / "answers.json").write_text(to_json(scripts()), encoding="utf-8")
        monkeypatch.setenv(ANSWERS, str(tmp_path / "answers.json"))
        answers.cache_clear()

        assert [answers()[name] for name in AGENTS] == scripts()
        answers.cache_clear()

    def test_the_state_is_found_in_either_result(self) -> None:
        """A peer returns the state, a pipeline a result with its baton."""
        assert extract_state({"goal": "x"}) == extract_state({"baton": {"goal": "x"}, "output": None})


class TestPeers:
    def test_each_has_a_figure_and_a_module(self) -> None:
        """No comparison is left out of the report, and each peer can be started."""
        assert PEERS.keys() <= GOALS.keys()
        assert {peer.module for peer in PEERS.values()} == MODULES.keys()
        assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in MODULES.values())

    def test_they_use_the_same_sdk_as_baton(self) -> None:
        """Otherwise the comparison would include differences between SDK releases."""
        pins = dict(line.split("==") for line in REQUIREMENTS.read_text().splitlines() if "==" in line)

        assert pins["temporalio"] == importlib.metadata.version("temporalio")


class TestPeersPython:
    def test_it_is_created_once_and_recreated_when_the_list_changes(self, tmp_path: Path) -> None:
        """It is a separate folder, which a second measurement reuses."""
        paths, folder = tmp_path / "requirements.txt", tmp_path / "peers"
        paths.write_text("# none\n")
        python = peers_python(folder, paths)
        created_at = (folder / "pyvenv.cfg").stat().st_mtime_ns
        assert peers_python(folder, paths) == python
        assert (folder / "pyvenv.cfg").stat().st_mtime_ns == created_at
        paths.write_text("# still none\n")
        peers_python(folder, paths)

        assert (folder / "pyvenv.cfg").stat().st_mtime_ns > created_at
        assert python.is_relative_to(folder)

    def test_a_failed_installation_has_the_installers_message(self, tmp_path: Path) -> None:
        """The incomplete folder is not used the next time."""
        paths, folder = tmp_path / "requirements.txt", tmp_path / "peers"
        paths.write_text("nowhere @ file:///nowhere/nowhere-1.0-py3-none-any.whl\n")

        for _ in range(2):
            with pytest.raises(RuntimeError, match="nowhere"):
                peers_python(folder, paths)


class TestPipedCrew:
    async def started(self, job: str) -> PipedCrew:
        """Return a crew whose process runs a job."""
        code = f"import asyncio\nfrom benchmarks.peers.pipes import take_jobs\n{job}\nasyncio.run(take_jobs(job))"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdin=PIPE, stdout=PIPE)
        nobody: Any = None
        return PipedCrew(nobody, process, nobody)

    async def test_jobs_run_at_the_same_time(self) -> None:
        """Each gets its own result, in whatever order they come."""
        crew = await self.started(
            "gate = asyncio.Event()\n"
            "async def job(state):\n"
            "    gate.set() if state['last'] else await gate.wait()\n"
            "    return {'was': state['n']}"
        )
        running = [await crew.start("job", {"n": number, "last": number == 2}) for number in range(3)]

        assert [await item.result() for item in running] == [{"was": 0}, {"was": 1}, {"was": 2}]
        assert crew.worker.stdin is not None
        crew.worker.stdin.close()
        assert await crew.worker.wait() == 0

    async def test_who_waits_for_a_process_that_ended_is_told_so(self) -> None:
        """Nobody waits for ever."""
        crew = await self.started("async def job(state): raise SystemExit(3)")
        running = await crew.start("job", {})

        with pytest.raises(RuntimeError, match="ended before the job was done"):
            await running.result()
        await crew.worker.wait()
        with pytest.raises(RuntimeError, match="ended with code"):
            await crew.start("job", {})
