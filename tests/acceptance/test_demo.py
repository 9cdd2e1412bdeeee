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
    """Return a copy of this checkout, for the demo's state."""
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
    """The agents stream, a killed worker's stage is repeated, a person decides, and the audit verifies.

    The machine's own connection is another one, by TLS, which is no matter of the demo's.
    """
    elsewhere = {"TEMPORAL_NAMESPACE": "ours", "TEMPORAL_API_KEY": "key", "TEMPORAL_CONFIG_FILE": "/none/temporal.toml"}
    inherited = {name: value for name, value in os.environ.items() if name != "EXAMPLE_MODEL"}
    ended = subprocess.run(  # noqa: ASYNC221 - nothing else goes on meanwhile
        [sys.executable, "demo.py"],
        cwd=checkout,
        env={**inherited, **elsewhere, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    output = ended.stdout
    assert ended.returncode == 0, output + ended.stderr
    order = (
        "1 write: calls read_document",
        "1 write: done",
        "killed the worker",
        "2 edit: begins again",
        "2 edit: done",
    )
    place = 0
    for item in (*order, "baton approve", "approved by demo", "COMPLETED", "# What is new"):
        place = output.index(item, place)  # each behind the one before
    assert all(output.count(f"✓ {step}") == 1 for step in ("1 write", "2 edit", "3 editor"))  # each change once
    assert re.search(r"The editor saw \d+ tokens: .*input draft \(whole\)", output)
    assert re.search(r"It cost \$0\.\d+; \$0\.\d+ of the budget is left", output)
    assert output.count(": valid.") == 1
    assert str(checkout) not in output
    assert [line.split()[1] for line in output.splitlines()[-3:]] == ["dev", "explain", "new"]
    assert processes_of(checkout) == []

    name = output.splitlines()[-2].split()[2]
    database = checkout / ".baton" / "dev" / "temporal.db"
    async with DevServer(DevServerOptions(database=database, ui_port=None)) as server:
        client = await Client.connect(server.address, plugins=[BatonPlugin()])
        run = await read_run(client, name)
    assert run.status is RunStatus.COMPLETED
    assert [step.name for step in run.steps] == ["write", "edit", "editor"]
    headings = re.findall(r"(?m)^- \*\*([^*]+?)\.?\*\*", (checkout / "CHANGELOG.md").read_text(encoding="utf-8"))
    kept = re.findall(r"(?m)^- ([^:]+):", str(run.result.output if run.result else ""))
    assert len(kept) == 3
    assert {*kept} <= {*headings}


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes in a folder."""
    if not Path("/proc/self/cmdline").exists():
        listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        return [line for line in listed if str(folder) in line]
    listed = []  # a bare machine has no ps
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            listed.append(command.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in listed if str(folder) in line]
