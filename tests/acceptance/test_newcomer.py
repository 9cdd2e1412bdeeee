"""A newcomer's first pipeline: the README's own files, in a new folder, against the built wheel."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from baton.devserver import DevServer
from tests.wheels import ROOT, Installed, run

BLOCK = re.compile(r"^```(?:python|ini)\n# (?P<name>\w+\.(?:py|ini))\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def newcomer(wheel: Installed, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, str]]:
    """Return a folder with the README's files, the `bin` of an environment with the wheel, and its variables."""
    folder = tmp_path_factory.mktemp("newcomer")
    for block in BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8")):
        (folder / block["name"]).write_text(block["text"], encoding="utf-8")
    return folder, wheel.programs, {**wheel.variables}


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
    assert "2 passed" in printed
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


def test_the_readmes_agents_run(newcomer: tuple[Path, Path, dict[str, str]]) -> None:
    """The first program passes one agent's text to the next, and prints the README's output."""
    folder, bin_folder, variables = newcomer
    [promised] = re.findall(r"(?m)^```text\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)

    assert run([bin_folder / "python", "article.py"], folder, variables) == promised


async def test_worker_service_and_command_line_work_together(
    newcomer: tuple[Path, Path, dict[str, str]], server: DevServer
) -> None:
    """The README's worker runs the pipeline that its service starts, and `baton history` shows it (S2-how-1…4)."""
    folder, bin_folder, variables = newcomer
    variables = {**variables, "TEMPORAL_ADDRESS": server.address}
    worker = await asyncio.create_subprocess_exec(
        *(bin_folder / "python", "-m", "baton.worker", "notes.py"), cwd=folder, env=variables
    )
    try:
        printed = await asyncio.to_thread(run, [bin_folder / "python", "start.py"], folder, variables)
    finally:
        worker.kill()
        await worker.wait()
    assert printed.strip() == "['Chores are left out']"
    history = json.loads(
        await asyncio.to_thread(run, [bin_folder / "baton", "history", "notes-1.2", "--json"], folder, variables)
    )
    assert "collect" in json.dumps(history)
