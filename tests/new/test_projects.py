"""Projects of `baton new`, made by the wheel in an empty folder: they work at once, and after each change."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from baton.devserver import DevServer
from tests.wheels import Installed, run

PYTEST = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin")
TEMPLATES = {"minimal": "summary", "agents": "article", "review": "release"}
OUTPUTS = {
    "minimal": "A relay team trains the handoff at full speed.",
    "agents": "Runners hand over at full speed, in 30 metres.",
}


@pytest.fixture(scope="module", params=list(TEMPLATES))
def project(request: pytest.FixtureRequest, wheel: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project of each template."""
    folder = tmp_path_factory.mktemp(request.param)
    wheel.run(["baton", "new", "Relay-Team", "--template", request.param], folder)
    return folder / "Relay-Team"


def template(project: Path) -> str:
    """Return the template that a project was made from."""
    return project.parent.name.rstrip("0123456789")


class TestNew:
    """A new project."""

    def test_it_has_everything_that_a_project_needs(self, project: Path) -> None:
        """Pipeline, stages, worker, service, tests, a history and a cassette, image, CI, agent instructions."""
        package = project / "relay_team"
        required = (
            "pyproject.toml README.md AGENTS.md worker.py service.py Dockerfile compose.yaml .github/workflows/ci.yml"
        )

        assert [name for name in required.split() if not (project / name).is_file()] == []
        assert (package / "pipelines" / f"{TEMPLATES[template(project)]}.py").is_file()
        assert len([*(package / "stages").glob("[a-z]*.py")]) >= 2
        assert len([*(project / "tests" / "histories").glob("*.json")]) == 1
        assert len([*(project / "tests" / "cassettes").rglob("*.json")]) == 1
        assert len([*(project / "tests").glob("*.py")]) == 1

    def test_its_tests_pass_at_once(self, project: Path, wheel: Installed) -> None:
        """Without key or server, with the cassette and the history."""
        printed = wheel.run(PYTEST, project)

        assert "passed" in printed
        assert "warning" not in printed

    def test_its_ci_checks_pass(self, project: Path, wheel: Installed) -> None:
        """Ruff, mypy, the tests, and the replay; also for files of `baton add`."""
        wheel.run(["baton", "add", "stage", "translate"], project)
        wheel.run(["baton", "add", "pipeline", "digest"], project)
        workflow = yaml.safe_load((project / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
        steps = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
        assert steps.pop(0) == 'python -m pip install --editable ".[dev]"'  # here the packages are there
        for step in steps:
            line = step.replace(
                "python -m pytest", shlex.join([*PYTEST, "tests/test_translate.py", "tests/test_digest.py"])
            )
            run(["sh", "-c", re.sub("^mypy", "python -m mypy", line)], project, wheel.variables)
        run(["ruff", "format", "--check", "--no-cache"], project, wheel.variables)
        printed = wheel.run(["baton", "add", "stage", "translate"], project, code=1)
        assert printed == ""

    def test_it_imports_from_the_public_modules_only(self, project: Path) -> None:
        """Moves inside the library must not break a project."""
        lines = [line for path in project.rglob("*.py") for line in path.read_text(encoding="utf-8").splitlines()]
        modules = {line.split()[1] for line in lines if line.startswith(("from baton", "import baton"))}

        assert modules <= {"baton", "baton.agents", "baton.client", "baton.testing"}

    def test_its_pipeline_runs_without_a_server(self, project: Path, wheel: Installed) -> None:
        """`python -m PACKAGE`; only a pipeline that asks a person does not end by itself."""
        if template(project) in OUTPUTS:
            assert wheel.run(["python", "-m", "relay_team"], project).strip() == OUTPUTS[template(project)]

    def test_the_command_runs_its_pipeline_here(self, project: Path, wheel: Installed) -> None:
        """`baton run NAME --here` uses the project's worker, and prints the output."""
        if template(project) == "agents":
            command = ["baton", "run", TEMPLATES[template(project)], "--here", "--goal", "Try it", "--json"]
            *_, end = map(json.loads, wheel.run(command, project).splitlines())
            assert (end["what"], end["text"], end["output"]) == ("run_ended", "COMPLETED", OUTPUTS["agents"])


async def test_worker_and_service_of_a_project_work_together(
    wheel: Installed, server: DevServer, tmp_path: Path
) -> None:
    """`worker.py` serves the package, and `service.py` starts a run and prints its result."""
    wheel.run(["baton", "new", "relay", "--template", "minimal"], tmp_path)
    project, variables = tmp_path / "relay", {**wheel.variables, "TEMPORAL_ADDRESS": server.address}
    worker = await asyncio.create_subprocess_exec(wheel.programs / "python", "worker.py", cwd=project, env=variables)
    try:
        printed = await asyncio.to_thread(run, [wheel.programs / "python", "service.py"], project, variables)
    finally:
        worker.kill()
        await worker.wait()

    assert printed.strip() == OUTPUTS["minimal"]


class TestNames:
    """Names and folders that a project cannot have."""

    @pytest.mark.parametrize("name", ["1st", "a b", "json", "baton", "../up", "class", "-x"])
    def test_a_name_that_is_not_a_package_name_is_refused(self, name: str, wheel: Installed, tmp_path: Path) -> None:
        """Nothing is made."""
        wheel.run(["baton", "new", "--", name], tmp_path, code=2)

        assert [*tmp_path.iterdir()] == []

    def test_a_folder_that_is_not_empty_is_left_alone(self, wheel: Installed, tmp_path: Path) -> None:
        """It may be a person's work."""
        (tmp_path / "relay").mkdir()
        (tmp_path / "relay" / "mine.txt").touch()
        wheel.run(["baton", "new", "relay"], tmp_path, code=1)

        assert [path.name for path in (tmp_path / "relay").iterdir()] == ["mine.txt"]

    def test_only_a_project_is_extended_or_upgraded(self, wheel: Installed, tmp_path: Path) -> None:
        """In any other folder the commands fail."""
        wheel.run(["baton", "add", "stage", "x"], tmp_path, code=1)
        wheel.run(["baton", "new", "--upgrade"], tmp_path, code=1)
        wheel.run(["baton", "new"], tmp_path, code=2)


def git(project: Path, *words: str) -> str:
    """Run git as a user does."""
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    return subprocess.run(["git", *who, *words], cwd=project, capture_output=True, text=True, check=True).stdout


def edit(file: Path, old_project: str, new: str) -> None:
    """Replace a text in a file."""
    text = file.read_text(encoding="utf-8")
    assert old_project in text
    file.write_text(text.replace(old_project, new), encoding="utf-8")


class TestUpgrade:
    """A project of an older version, with changes of its own."""

    @pytest.fixture
    def newer_template(self, wheel: Installed) -> Iterator[Path]:
        """Yield the template of a later version in the wheel: changed lines, a new file, a removed file."""
        templates = wheel.packages / "baton" / "new" / "templates"
        later = templates / "999.1.0"
        shutil.copytree(templates / "0.1.0", later)
        edit(later / "copier.yml", 'default: "0.1.0"', 'default: "999.1.0"')
        edit(later / "project" / "worker.py.jinja", '"""The worker: ', '"""The worker of {{ name }}: ')
        (later / "project" / "NEW.md.jinja").write_text("New in {{ name }}.\n", encoding="utf-8")
        (later / "project" / ".dockerignore.jinja").unlink()
        yield later
        shutil.rmtree(later)

    @pytest.fixture
    def old_project(self, wheel: Installed, tmp_path: Path) -> Path:
        """Return a project of the current version with committed changes of its own."""
        wheel.run(["baton", "new", "relay", "--template", "minimal"], tmp_path)
        project = tmp_path / "relay"
        edit(project / "relay" / "stages" / "collect.py", '"hand" in note', '"speed" in note')
        edit(project / "worker.py", "if __name__", "# ours\nif __name__")
        git(project, "add", "--all")
        git(project, "commit", "--quiet", "--message", "ours")
        return project

    def test_both_sides_changes_are_merged(self, old_project: Path, newer_template: Path, wheel: Installed) -> None:
        """A three-way merge of the template's and the team's changes, also within one file; nothing else changes."""
        wheel.run(["baton", "new", "--upgrade"], old_project)
        worker = (old_project / "worker.py").read_text(encoding="utf-8")

        assert '"""The worker of relay: ' in worker
        assert "# ours" in worker
        assert '"speed" in note' in (old_project / "relay" / "stages" / "collect.py").read_text(encoding="utf-8")
        assert (old_project / "NEW.md").read_text(encoding="utf-8") == "New in relay.\n"
        assert not (old_project / ".dockerignore").exists()
        assert '_commit: "999.1.0"' in (old_project / ".copier-answers.yml").read_text(encoding="utf-8")
        assert {line[3:] for line in git(old_project, "status", "--porcelain").splitlines()} == {
            ".copier-answers.yml",
            ".dockerignore",
            "NEW.md",
            "pyproject.toml",
            "worker.py",
        }
        assert "temporal-baton[agents]>=999.1.0" in (old_project / "pyproject.toml").read_text(encoding="utf-8")
        assert not (old_project / ".baton" / "templates").exists()

    def test_conflicts_are_marked_and_reported(self, old_project: Path, newer_template: Path, wheel: Installed) -> None:
        """The exit code shows that something is left to resolve, and git knows the file."""
        edit(old_project / "worker.py", '"""The worker: ', '"""Our worker: ')
        git(old_project, "commit", "--quiet", "--all", "--message", "ours too")
        printed = wheel.run(["baton", "new", "--upgrade", "--json"], old_project, code=1)

        assert '"worker.py"' in printed
        assert "<<<<<<<" in (old_project / "worker.py").read_text(encoding="utf-8")
        assert "UU worker.py" in git(old_project, "status", "--porcelain")

    def test_uncommitted_changes_are_safe(self, old_project: Path, newer_template: Path, wheel: Installed) -> None:
        """They could not be told apart from those of the upgrade."""
        edit(old_project / "worker.py", "# ours", "# mine")
        wheel.run(["baton", "new", "--upgrade"], old_project, code=1)

        assert git(old_project, "status", "--porcelain").split() == ["M", "worker.py"]

    def test_a_current_project_stays_as_it_is(self, old_project: Path, wheel: Installed) -> None:
        """There is nothing to upgrade."""
        wheel.run(["baton", "new", "--upgrade"], old_project)

        assert git(old_project, "status", "--porcelain") == ""

    def test_every_template_has_its_version(self) -> None:
        """A project is identified by it; the folder's name and the template must agree."""
        for folder in (Path(__file__).parents[2] / "baton" / "new" / "templates").iterdir():
            assert f'default: "{folder.name}"' in (folder / "copier.yml").read_text(encoding="utf-8")


class TestExamples:
    """What `baton new --example` writes, out of the wheel."""

    def test_each_is_listed_and_can_be_written(self, wheel: Installed, tmp_path: Path) -> None:
        """With the modules that it imports; a file that is there already is kept."""
        listed = json.loads(wheel.run(["baton", "new", "--examples", "--json"], tmp_path))["examples"]
        for name in listed:
            (tmp_path / name).mkdir()
            wheel.run(["baton", "new", "--example", name], tmp_path / name)

        assert {"article", "openai_agent", "langgraph_agent", "chat_endpoint", "program", "mcp_tools"} <= listed.keys()
        assert [sentence for sentence in listed.values() if len(sentence) < 10] == []
        assert {path.name for path in (tmp_path / "web_service").iterdir()} == {"web_service.py", "summary.py"}
        (tmp_path / "hello" / "hello.py").write_text("kept", encoding="utf-8")
        assert "exists already" in wheel.refused(["baton", "new", "--example", "hello"], tmp_path / "hello")
        assert (tmp_path / "hello" / "hello.py").read_text(encoding="utf-8") == "kept"
