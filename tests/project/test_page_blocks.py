"""Every block of README and docs runs unchanged, except for a short list of blocks that are only checked."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from temporalio.client import Client

from activities.compliance_review.policy import parse_policy
from baton import BatonPlugin
from baton.devserver import DevServer
from baton.exchange.records import Acknowledgement
from benchmarks.__main__ import main as benchmark
from tests.project.reading import PLACES, ROOT, Block, Reader, blocks, commands
from tests.project.test_pages import parse

JOURNEYS = [
    ("README", "guide", "console", "schedules", "ledger", "operations"),
    ("tutorial", "temporal", "life"),
    ("skill", "deploys"),
    ("testing",),
    ("a2a",),
    ("ag-ui",),
    ("agents",),
    ("approvals",),
    ("budget",),
    ("compliance",),
    ("contracts",),
    ("deployment",),
    ("eu-ai-act",),
    ("exchange",),
    ("handoffs",),
    ("lab",),
    ("orders",),
    ("mcp",),
    ("personal-data",),
    ("pipelines",),
    ("projects",),
    ("protocol",),
    ("security",),
    ("streaming",),
    ("troubleshooting",),
]
"""Pages that a reader follows one after the other, in one folder, on one server."""

DOCKER, CLOUD, POSTGRES, DRAWING = "needs Docker", "needs Temporal Cloud", "needs Postgres", "a drawing"
MODEL = "asks a real model; tests/acceptance/test_newcomer.py does all of it beside a server like the provider's"
NOT_RUN = {
    ("README", "pip install 'temporal-baton[dev-server"): MODEL,
    ("README", "baton run article"): MODEL,
    ("README", "16:22:28"): MODEL,
    ("README", "baton history relay"): MODEL,
    ("README", "✓  1  write"): MODEL,
    ("README", "baton approve relay"): MODEL,
    ("ag-ui", "async function chat"): "needs a browser; tests/doors/clients/browser has one",
    ("agents", "{"): "the settings of a coding agent; tests/cli/test_mcp.py is one",
    ("architecture", "shipped "): DRAWING,
    ("benchmarks", "python -m benchmarks"): "takes forty minutes",
    (
        "capacity",
        "python -m benchmarks.capacity",
    ): "tests/project/test_capacity.py runs the first; the second takes long",
    ("capacity", "export BATON_LEDGER"): POSTGRES,
    ("compliance", "name ="): "a part of a policy; the command above it reads a whole one",
    ("contracts", "output.price"): DRAWING,
    ("deployment", "cp deploy/.env.example"): DOCKER,
    ("deployment", "services:"): DOCKER,
    ("deployment", "kubectl create"): "needs Kubernetes",
    ("deployment", "readinessProbe:"): "needs Kubernetes",
    ("deployment", "export TEMPORAL_ADDRESS"): CLOUD,
    ("deployment", "@asynccontextmanager"): "a part of an example; tests/project/test_examples.py runs it",
    ("exchange", '{"handoffId"'): "a form; tests/exchange/test_outside_service.py fills it in",
    ("exchange", "const {"): "needs Node and a package of it",
    ("operations", "docker compose run"): DOCKER,
    ("operations", "CREATE ROLE"): POSTGRES,
    ("operations", "export BATON_LEDGER"): POSTGRES,
    ("operations", "baton inbox"): "a choice, each for its own fault; tests/cli/test_inbox.py has them all",
    ("operations", "POST /contracts"): DRAWING,
    ("operations", "docker compose stop"): DOCKER,
    ("operations", "docker compose build"): DOCKER,
    ("operations", "baton rollback"): "needs a restored service; tests/acceptance/test_restored_service.py has one",
}
"""Blocks that are not run, by their page and the beginning of their first line, with the reason."""


def reason(block: Block) -> str | None:
    """Return why a block is not run, if it is on the list."""
    reasons = (why for (page, begin), why in NOT_RUN.items() if page == block.page and block.text.startswith(begin))
    return next(reasons, None)


LISTED = [block for page in PLACES for block in blocks(page) if reason(block)]

PROJECT = {
    "project/sums.py": "def add(a, b):\n    return a - b\n",
    "project/test_sums.py": "from sums import add\n\n\ndef test_add():\n    assert add(1, 1) == 2\n",
    "project/Makefile": "test:\n\tpython -m pytest -q\n",
    "fix.diff": "--- a/sums.py\n+++ b/sums.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n"
    "-    return a - b\n+    return a + b\n",
    "contract.txt": (ROOT / "tests" / "data" / "contracts" / "nda.txt").read_text(encoding="utf-8"),
}
"""What is at `/path/to`: a project with a fault, its correction, a contract."""


@pytest.fixture
async def reader(tmp_path: Path, own_server: DevServer) -> AsyncIterator[Reader]:
    """Return a reader in a folder with links into the checkout, without the keys of any provider."""
    excluded = ("BATON_", "TEMPORAL_", "PYTEST", "CI")  # a reader is not CI, where nothing may be recorded
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(excluded)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
    own = {"PATH": path, "TEMPORAL_ADDRESS": own_server.address}
    # A free port, as for what takes it as an option; and a container may have no sandbox.
    own |= {"BATON_CODEC_PORT": "0", "BATON_DELIVERY_SANDBOX": "none"}
    folder, place = tmp_path / "reader", tmp_path / "place"
    folder.mkdir()
    (folder / "deploy").symlink_to(ROOT / "deploy")
    (folder / "tests").mkdir()
    (folder / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    client = await Client.connect(own_server.address, plugins=[BatonPlugin()])
    reader = Reader(folder, {**inherited, **own}, client, place)
    yield reader
    await reader.stop()


def make_project(place: Path) -> None:
    """Make what is at `/path/to`, under git."""
    for name, text in PROJECT.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    git = ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Add sums"]):
        subprocess.run([*git, *words], cwd=place / "project", check=True)


@pytest.mark.parametrize("pages", JOURNEYS, ids="-".join)
async def test_pages_can_be_followed(reader: Reader, pages: tuple[str, ...]) -> None:
    """Every file is written, every command succeeds, and prints what the page says that it prints."""
    make_project(reader.place)
    if "agents" in pages:  # no model is asked
        reader.variables["OPENAI_API_KEY"] = "unused"
    for page in pages:
        await reader.read(page, [block for block in blocks(page) if not reason(block)])


def test_every_block_is_run_or_on_the_list() -> None:
    """A page with blocks is on one journey, and the list names only blocks that there are."""
    run = {block.page for page in PLACES for block in blocks(page) if not reason(block)}

    assert sorted(page for pages in JOURNEYS for page in pages) == sorted(run)
    assert len(LISTED) == len(NOT_RUN)


def check_shell(block: Block) -> None:
    """Docker's commands name services of the compose file, and the benchmarks take their options."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    for line in commands(block):
        for named in re.findall(r"docker compose (?:start|stop|up)((?: [a-z][\w-]*)*)", line):
            assert {*named.split()} <= services.keys(), line
        for options in re.findall(r"docker compose (?:exec|run) ([^'<>|]*)", line):
            assert {*options.split()} & services.keys(), line
        words = shlex.split(line, comments=True)
        if words[:3] == ["python", "-m", "benchmarks"]:
            with pytest.raises(SystemExit) as ended:
                benchmark([*words[3:], "--help"])
            assert ended.value.code == 0, line


def check_json(block: Block) -> None:
    """What a coding agent starts is a command that there is; an answer has the members of one."""
    data = json.loads(block.text)
    if block.page == "agents":
        [server] = data["mcpServers"].values()
        assert server["command"] == "baton"
        parse(server["args"])
    else:
        data |= {"handoffId": str(uuid4()), "digest": f"sha256:{'0' * 64}"}
        assert Acknowledgement.model_validate_json(json.dumps(data)).accepted


def check_yaml(block: Block) -> None:
    """An override names services of the compose file; a probe runs a program of the image."""
    data = yaml.safe_load(block.text)
    if "services" in data:
        assert data["services"].keys() <= yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].keys()
    else:
        assert (ROOT / "deploy" / data["readinessProbe"]["exec"]["command"][1]).exists()


def check_toml(block: Block) -> None:
    """The policy is valid for the pipeline."""
    assert parse_policy(json.dumps(tomllib.loads(block.text), default=str), "policy.toml").rules


def check_sql(block: Block) -> None:
    """The roles are those that the next command grants their rights to."""
    page = PLACES[block.page].read_text(encoding="utf-8")
    for role in re.findall(r"CREATE ROLE (\w+)", block.text):
        assert re.search(rf"(?:--\w+ |postgresql://){role}\b", page), role


def check_js(block: Block) -> None:
    """It is JavaScript."""
    if node := shutil.which("node"):
        subprocess.run([node, "--check", "-"], input=block.text, text=True, check=True)


def check_python(block: Block) -> None:
    """It is a part of the example that the page names."""
    parts = [part.strip() for part in block.text.split("\n")]
    example = (ROOT / "examples" / "web_service.py").read_text(encoding="utf-8")
    assert [part for part in parts if part not in example] == []


CHECKS = {
    "python": check_python,
    "sh": check_shell,
    "json": check_json,
    "yaml": check_yaml,
    "toml": check_toml,
    "sql": check_sql,
    "js": check_js,
}


@pytest.mark.parametrize("block", LISTED, ids=lambda block: f"{block.page}: {block.text[:20]}")
def test_a_block_that_is_not_run_is_checked(block: Block) -> None:
    """Blocks that cannot run here are checked; `baton` commands are parsed in `test_pages.py`."""
    if block.kind in CHECKS:
        CHECKS[block.kind](block)
    else:
        assert reason(block) in (DRAWING, MODEL)
