"""A candidate that is another revision of the code runs from a worktree, which is gone afterwards."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from temporalio.client import Client

from baton import BatonPlugin, WorkerParts, open_store
from baton.cli.lab_revisions import serving
from baton.devserver import DevServer
from baton.lab import LabError, LabOptions, Lane, report, run_lab
from tests.lab.test_lab_judging import make_cohort

APP = """
from baton.agents import AgentAnswer, agent_stage


class Decider:
    name, lab_overrides = "decide", frozenset()

    async def run(self, work):
        return AgentAnswer(patch={{"decision_log": ["{verdict}, because"]}})


decide = agent_stage(Decider())
"""


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, and return what it prints."""
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, verdict: str) -> None:
    """Commit an app that decides so."""
    (folder / "app.py").write_text(APP.format(verdict=verdict))
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", verdict)


@pytest.fixture
def repository(server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository of two revisions, with the settings of its workers."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    commit(repository, "Approve")
    commit(repository, "Deny")
    monkeypatch.chdir(repository)
    for name, value in {"TEMPORAL_ADDRESS": server.address, "BATON_SAFEGUARDS": "off"}.items():
        monkeypatch.setenv(name, value)
    return repository


async def test_two_revisions_are_told_apart(server: DevServer, repository: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    plugin = BatonPlugin(WorkerParts(artifacts=open_store(store)), safeguards="off")
    client = await Client.connect(server.address, plugins=[plugin])
    lanes = [(Lane(name="old"), "HEAD~1"), (Lane(name="new"), "HEAD")]
    async with serving(lanes, "app.py", store) as served:
        options = LabOptions(repeat=3, task_queue=served[0].task_queue)
        cohort = make_cohort(1)
        results = await run_lab(client, cohort, served, options)
    old, new = report(cohort, results)[1:]
    assert (len(old.differing()), len(new.differing())) == (0, 1)
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    with pytest.raises(LabError, match="rev-parse"):
        async with serving([(Lane(name="none"), "v9")], "app.py", store):
            pass


async def test_a_lab_run_ends_with_its_worker(repository: Path, tmp_path: Path) -> None:
    """The worker has nothing to serve and ends, so the lab run does not wait for it, nor for the other one."""
    lanes = [(Lane(name="old"), "HEAD~1"), (Lane(name="new"), "HEAD")]
    with pytest.raises(LabError, match=r"exit code 2"):
        async with serving(lanes, "missing.py", str(tmp_path / "store")):
            await asyncio.wait_for(asyncio.Event().wait(), 60)
    assert len(git(repository, "worktree", "list").splitlines()) == 1
