"""A newcomer's first pipeline: the README's own files, in a new folder, against the built wheel."""

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from baton.agents import Notes
from baton.devserver import DevServer
from tests.chat_server import Reply, chat_server, responses_text
from tests.wheels import ROOT, Installed, run

TEXT = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
WRITES = ("Handoffs are where batons fall.", "Lead with the risk: readers skim")
EDITS = ("Batons fall in handoffs.", "Name the batons first: they are the subject")
BLOCK = re.compile(r"^```(?:python|ini)\n# (?P<name>\w+\.(?:py|ini))\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def newcomer(wheel: Installed, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, str]]:
    """Return a folder with the README's files, the `bin` of an environment with the wheel, and its variables."""
    folder = tmp_path_factory.mktemp("newcomer")
    for block in BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8")):
        (folder / block["name"]).write_text(block["text"], encoding="utf-8")
    return folder, wheel.programs, {**wheel.variables}


def answer(text: str, decided: str) -> dict[str, Any]:
    """Return a model's answer with its notes, as the provider sends it."""
    response: dict[str, Any] = responses_text(f"{text}\n\n{Notes(decided=[decided]).render()}")[-1]["response"]
    return {**response, "model": "gpt-5-mini"}


def promised(text: str) -> str:
    """Return what is printed, whatever the times, costs and widths of columns."""
    took = re.sub(r"\d+ min \d+ s|\d[\d.,:]* m?s\b", "0 s", text)
    return " ".join(re.sub(r"\$?\d[\d.,:]*", "0", took).split())


@asynccontextmanager
async def process(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str], stdout: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program, and kill it at the end of the block."""
    started = await asyncio.create_subprocess_exec(*command, cwd=folder, env=variables, stdout=stdout)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def line_of(started: asyncio.subprocess.Process) -> str:
    """Return the next line that a program prints; empty at its end."""
    assert started.stdout is not None
    return (await started.stdout.readline()).decode()


def test_the_readme_has_all_files_of_a_first_pipeline(newcomer: tuple[Path, Path, dict[str, str]]) -> None:
    """The README alone has a pipeline of agents, one with a stage of its own, and a service."""
    folder, _, _ = newcomer
    names = {path.name for path in folder.iterdir()}
    assert names == {"article.py", "notes.py", "start.py"}


def test_baton_comes_from_the_wheel(newcomer: tuple[Path, Path, dict[str, str]]) -> None:
    """The newcomer imports the wheel, without the checkout's own pipelines."""
    folder, bin_folder, variables = newcomer
    where = run([bin_folder / "python", "-c", "import baton; print(baton.__file__)"], folder, variables)
    assert str(bin_folder.parent) in where
    absent = "import importlib.util as u; print([u.find_spec(n) for n in ('workflows', 'activities', 'benchmarks')])"
    assert run([bin_folder / "python", "-c", absent], folder, variables).strip() == "[None, None, None]"


def test_the_skills_tests_pass(newcomer: tuple[Path, Path, dict[str, str]], tmp_path: Path) -> None:
    """The test kit is in the wheel: real server, scripts, replay; and pytest prints no warning."""
    _, _, variables = newcomer
    for block in BLOCK.finditer((ROOT / "docs" / "skill.md").read_text(encoding="utf-8")):
        (tmp_path / block["name"]).write_text(block["text"], encoding="utf-8")  # of two versions, the last
    # LangSmith's plugin is of this checkout's environment, which is lent; Python 3.14 warns about it.
    plain = "python -m pytest -q -p no:cacheprovider -p no:langsmith_plugin 2>&1"
    printed = run(["sh", "-c", plain], tmp_path, variables)
    assert "6 passed" in printed
    assert "Warning" not in printed


def test_the_readmes_files_pass_a_strict_type_checker(newcomer: tuple[Path, Path, dict[str, str]]) -> None:
    """The README's files are typed, and pass a strict type checker with the wheel's types."""
    folder, bin_folder, variables = newcomer
    files = sorted(path.name for path in folder.glob("*.py"))
    run([bin_folder / "python", "-m", "mypy", "--strict", *files], folder, variables)


def test_the_readmes_file_runs_by_itself(newcomer: tuple[Path, Path, dict[str, str]]) -> None:
    """The first command of the README prints the result, from the wheel alone."""
    folder, bin_folder, variables = newcomer
    printed = run([bin_folder / "python", "notes.py"], folder, variables)

    assert printed.strip() == "['feat: log in with OAuth2']"


async def test_the_first_screen_is_true(newcomer: tuple[Path, Path, dict[str, str]], server: DevServer) -> None:
    """A worker is killed while an agent writes; another continues, and the terminal prints what the README shows."""
    folder, programs, variables = newcomer
    watched, listed = (promised(text) for text in TEXT.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    command: list[str | Path] = [programs / "python", "-m", "baton.worker", "article.py"]
    replies: list[Reply | dict[str, Any]] = [Reply(answer("", ""), slow=True), answer(*WRITES), answer(*EDITS)]
    with chat_server(*replies) as provider:
        own = {"TEMPORAL_ADDRESS": server.address, "OPENAI_API_KEY": "unused", "OPENAI_BASE_URL": provider.base}
        variables = {**variables, **own, "COLUMNS": "120"}

        async def baton(*words: str) -> str:
            return await asyncio.to_thread(run, [programs / "baton", *words], folder, variables)

        async with process(command, folder, variables):
            await baton("run", "article", "--id", "relay", "--goal", "Say why relay teams train handoffs")
            await asyncio.to_thread(provider.streaming.wait)
        async with (
            process(command, folder, variables),
            process([programs / "baton", "watch", "relay"], folder, variables, stdout=PIPE) as watch,
        ):
            printed = ""
            while "waits for a decision" not in printed:
                printed += await line_of(watch)
            history = await baton("history", "relay")
            await baton("approve", "relay", "--yes", "--why", "Short and true")
            while line := await line_of(watch):
                printed += line

    assert promised(printed).startswith(watched)
    assert listed in promised(history)
    assert "editor: approved by" in printed
    assert provider.left == []


async def test_worker_service_and_command_line_work_together(
    newcomer: tuple[Path, Path, dict[str, str]], server: DevServer
) -> None:
    """The README's worker runs the pipeline that its service starts, and `baton history` shows it (S2-how-1…4)."""
    folder, bin_folder, variables = newcomer
    variables = {**variables, "TEMPORAL_ADDRESS": server.address}
    async with process([bin_folder / "python", "-m", "baton.worker", "notes.py"], folder, variables):
        printed = await asyncio.to_thread(run, [bin_folder / "python", "start.py"], folder, variables)
    assert printed.strip() == "['Chores are left out']"
    history = json.loads(
        await asyncio.to_thread(run, [bin_folder / "baton", "history", "notes-1.2", "--json"], folder, variables)
    )
    assert "collect" in json.dumps(history)
