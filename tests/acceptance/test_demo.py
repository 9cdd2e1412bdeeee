"""`make demo`, as a person without a terminal runs it: it ends by itself, and its state stays readable."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import Client

from baton.client import RunStatus, read_run
from baton.devserver import DevServer, DevServerOptions
from baton.plugin import BatonPlugin

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of this checkout, so that the demo's state is its own."""
    copy = tmp_path_factory.mktemp("checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(sys.prefix)  # the set-up's programs, which the documents name
    return copy


async def test_the_demo_kills_its_worker_and_still_completes(checkout: Path) -> None:
    """The four stages run on real input, the killed one again, and the closed run is read with no worker.

    Proves S1-ex-a, S1-ex-b, S1-ex-c, S1-ex-d and S1-ex-e: each stage takes over from those before it.
    The machine's own connection is another one, by TLS, which is no matter of the demo's.
    """
    elsewhere = {"TEMPORAL_NAMESPACE": "ours", "TEMPORAL_API_KEY": "key", "TEMPORAL_CONFIG_FILE": "/none/temporal.toml"}
    variables = {**os.environ, **elsewhere, "PYTHONPATH": str(checkout)}
    ended = subprocess.run(  # noqa: ASYNC221 - nothing else goes on meanwhile
        [sys.executable, "demo.py"],
        cwd=checkout,
        env=variables,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "killed the worker (SIGKILL) while build-knowledge ran in it" in ended.stdout
    workers = dict(re.findall(r"^ +(\S+) +worker (\d+), run \d", ended.stdout, re.MULTILINE))
    assert workers["detect-tech-stack"] == workers["generate-docs"] != workers["verify-ready"]
    assert re.search(r"build-knowledge +worker \d+, run [2-9]: .*so it ran again", ended.stdout)
    assert ended.stdout.count("Indexed sources and generated documents together") == 1  # each change is shown once
    assert processes_of(checkout) == []

    [output] = (checkout / ".baton" / "demo").iterdir()
    assert {path.name for path in output.iterdir() if path.is_file()} >= {
        "PROJECT.md",
        "ROADMAP.md",
        "knowledge.sqlite3",
    }
    database = checkout / ".baton" / "dev" / "temporal.db"
    async with DevServer(DevServerOptions(database=database, ui_port=None)) as server:
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        run = await read_run(client, output.name)
    assert run.status is RunStatus.COMPLETED
    assert [step.name for step in run.steps] == [
        "detect-tech-stack",
        "generate-docs",
        "build-knowledge",
        "verify-ready",
    ]
    # On a machine without a program that the documentation names, such as docker, that is a warning.
    assert run.baton.decision_log[-1].startswith(("All verification checks passed", "All required checks passed"))
    assert all(entry.patch.get("decision_log") for entry, _ in run.history)


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that run in or from a folder."""
    if not Path("/proc/self/cmdline").exists():
        listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        return [line for line in listed if str(folder) in line]
    listed = []  # a bare machine has no ps
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            listed.append(command.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in listed if str(folder) in line]
