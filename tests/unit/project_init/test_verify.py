"""Verification: each claim is proved, and each lie is caught."""

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from activities.project_init.files import survey
from activities.project_init.links import LinkChecker
from activities.project_init.records import Check, ProjectError, Verification
from activities.project_init.resolve import CommandResolver
from tests.unit.project_init.conftest import Run, run_stages, write_files
from tests.unit.project_init.projects import PROJECTS, PYTHON

Project = Callable[[Mapping[str, str | bytes]], Path]
RunOf = Callable[[Mapping[str, str | bytes]], Run]


TOOLS: Mapping[str, str | bytes] = {
    "Makefile": "test:\n",
    "sub/Makefile": "build:\n",
    "package.json": '{"scripts": {"lint": "x", "a b": "y"}}',
    "pyproject.toml": '[project]\nname = "app"\ndependencies = ["pytest", "ruff"]\n'
    '[project.scripts]\napp = "app:main"\n',
    "app/__main__.py": "",
    "part/setup.py": "",
    "part/inner/__main__.py": "",
    "part/src/outer/deep.py": "",
    "run.py": "",
    "tox.ini": "[testenv:lint]\n",
    "go/go.mod": "module x\n",
    "go/cmd/a/main.go": "package main\n",
    "compose.yaml": "services:\n",
    "Dockerfile": "FROM x\n",
    "bin/tool": "#!/bin/sh\n",
    "requirements.txt": "x\n",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the run over the Python project, made once; it is not to be changed."""
    folder = tmp_path_factory.mktemp("shop")
    return run_stages(write_files(folder / "project", PYTHON), folder / "out")


@pytest.fixture
def done(shop: Run, tmp_path: Path) -> Run:
    """Return a copy of that run, to lie in."""
    shutil.copytree(shop.out.parent, tmp_path / "copy")
    tree = replace(shop.tree, root=tmp_path / "copy/project")
    return replace(shop, tree=tree, out=tmp_path / "copy/out")


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> CommandResolver:
    """Return a resolver over a project of many tools."""
    return CommandResolver(survey(write_files(tmp_path_factory.mktemp("tools"), TOOLS)), lambda _: None)


def edit(place: Path, old: str, new: str) -> None:
    """Replace a text in a file, and fail if it is not there."""
    text = place.read_text("utf-8")
    assert old in text
    place.write_text(text.replace(old, new), "utf-8")


def failed(verdict: Verification) -> dict[str, str]:
    """Return the failed errors by name."""
    return {check.name: check.message for check in verdict.failures if check.severity == "error"}


class TestVerify:
    """The whole proof (S1-ex-d)."""

    @pytest.mark.parametrize("name", [*PROJECTS, "empty"])
    def test_holds_for_every_project(self, run: RunOf, name: str) -> None:
        """What the stages made is true, and the verdict crosses process borders."""
        verdict = run(PROJECTS.get(name, {})).verified()
        assert verdict, verdict.failures
        assert Verification.model_validate_json(verdict.model_dump_json()) == verdict
        assert len(verdict.checks) >= 15

    @pytest.mark.parametrize(
        ("lie", "check", "message"),
        [
            pytest.param(
                lambda done: (done.tree.root / "src/shop/cli.py").write_text("x\n"),
                "source is unchanged",
                "'src/shop/cli.py' has changed",
                id="a source file is edited",
            ),
            pytest.param(
                lambda done: (done.tree.root / "new.py").write_text("x\n"),
                "source is unchanged",
                "'new.py' is new",
                id="a source file is added",
            ),
            pytest.param(
                lambda done: (done.tree.root / "uv.lock").unlink(),
                "source is unchanged",
                "'uv.lock' is gone",
                id="a source file is removed",
            ),
            pytest.param(
                lambda done: (done.tree.root / "pyproject.toml").write_text("\n"),
                "evidence exists",
                "'pyproject.toml:14' is cited, but the file has 1 lines",
                id="cited lines are cut off",
            ),
            pytest.param(
                lambda done: edit(done.out / "PROJECT.md", "shop", "shed"),
                "PROJECT.md is as written",
                "its SHA-256 is",
                id="a document is edited",
            ),
            pytest.param(
                lambda done: (done.out / "AGENTS.md").unlink(),
                "AGENTS.md is as written",
                "it cannot be read (No such file or directory)",
                id="a document is removed",
            ),
            pytest.param(
                lambda done: edit(done.out / "PROJECT.md", "](ROADMAP.md)", "](PLAN.md)"),
                "links of PROJECT.md resolve",
                "'PLAN.md' leads to nothing",
                id="a link leads nowhere",
            ),
            pytest.param(
                lambda done: edit(done.out / "COMMANDS.md", "Makefile#L2)", "Makefile#L200)"),
                "links of COMMANDS.md resolve",
                "names a line that the file does not have",
                id="a link names a line that is not there",
            ),
            pytest.param(
                lambda done: edit(done.out / "COMMANDS.md", "\nmake test\n", "\nmake tests\n"),
                "commands of COMMANDS.md exist",
                "'make tests': make knows no 'tests' in the top folder",
                id="a command names no target",
            ),
            pytest.param(
                lambda done: edit(done.tree.root / "Makefile", "test: ##", "check: ##"),
                "commands of AGENTS.md exist",
                "make knows no 'test'",
                id="a target is renamed in the project",
            ),
            pytest.param(
                lambda done: (done.out / "knowledge.sqlite3").unlink(),
                "index is as built",
                "it cannot be read",
                id="the index is removed",
            ),
            pytest.param(
                lambda done: (done.out / "knowledge.sqlite3").write_bytes(b"x"),
                "index opens",
                "is no index",
                id="the index is overwritten",
            ),
        ],
    )
    def test_catches_each_lie(self, done: Run, lie: Callable[[Run], object], check: str, message: str) -> None:
        """One change is one failed check that says what was found."""
        lie(done)
        verdict = done.verified()
        assert not verdict.ready
        assert message in failed(verdict)[check]

    @pytest.mark.parametrize(
        ("statement", "check", "message"),
        [
            pytest.param(
                "UPDATE chunks SET text = 'x' WHERE path = 'src/shop/cli.py'",
                "index matches the files",
                "are not what the index holds",
                id="a chunk is edited",
            ),
            pytest.param(
                "UPDATE chunks SET start = start + 1 WHERE id = (SELECT max(id) FROM chunks)",
                "index matches the files",
                "are not what the index holds",
                id="a chunk is moved",
            ),
            pytest.param(
                "DELETE FROM chunks WHERE id = 3", "index matches the files", "built were", id="a chunk is lost"
            ),
            pytest.param(
                "DELETE FROM files WHERE path = 'ROADMAP.md'",
                "documents are indexed",
                "'ROADMAP.md' is not in it",
                id="a document is lost",
            ),
            pytest.param("DELETE FROM words", "index answers", "nothing answers", id="the words are lost"),
        ],
    )
    def test_catches_changes_in_the_index(self, done: Run, statement: str, check: str, message: str) -> None:
        """Whatever is changed inside shows, beside the digest of the file."""
        with closing(sqlite3.connect(done.out / done.index.path)) as connection:
            if statement == "DELETE FROM words":
                statement = "INSERT INTO words(words) VALUES ('delete-all')"
            connection.execute(statement)
            connection.commit()
        faults = failed(done.verified())
        assert message in faults[check]
        assert "index is as built" in faults

    def test_says_what_was_compared_by_size_alone(self, run: RunOf, tmp_path: Path) -> None:
        """A file that no one hashed is not called unchanged without saying so."""
        (tmp_path / "project").mkdir()
        with (tmp_path / "project/huge.bin").open("wb") as file:
            file.truncate(64 * 1024 * 1024)
        verdict = run({"a.py": "x = 1\n"}).verified()
        assert "1 of them compared by size alone" in verdict.checks[0].message

    def test_names_few_of_many_faults_and_counts_the_rest(self, run: RunOf) -> None:
        """A message stays readable when everything is wrong."""
        done = run({f"f{number}.py": "x\n" for number in range(9)})
        for path in done.tree.by_path:
            (done.tree.root / path).unlink()
        assert failed(done.verified())["source is unchanged"].endswith("; and 4 more")

    def test_a_project_that_is_gone_is_no_verdict(self, run: RunOf) -> None:
        """Without the folder nothing can be said, and that is raised."""
        done = run({})
        done.tree.root.rmdir()
        with pytest.raises(ProjectError, match="does not exist"):
            done.verified()

    def test_a_warning_does_not_make_a_project_unready(self) -> None:
        """Only errors count."""
        warning = Check(name="w", ok=False, severity="warning", message="x")
        assert Verification(checks=(warning,)).ready
        assert Verification(checks=(warning,)).failures == (warning,)


class TestLinkChecker:
    """Where links lead."""

    @pytest.mark.parametrize(
        ("target", "fault"),
        [
            pytest.param("b%20c.md", "", id="a name with a space"),
            pytest.param("#top-thing", "", id="a heading of the same page"),
            pytest.param("b%20c.md#two", "", id="a heading of another page"),
            pytest.param("b%20c.md#L2", "", id="a line"),
            pytest.param("sub", "", id="a folder"),
            pytest.param("https://example.org/x", "", id="another host is not followed"),
            pytest.param("mailto:a@b.c", "", id="an address is not followed"),
            pytest.param("gone.md", "'gone.md' leads to nothing", id="nothing"),
            pytest.param("#gone", "'#gone' names a heading that is not there", id="no such heading"),
            pytest.param("b%20c.md#L9", "'b%20c.md#L9' names a line that the file does not have", id="no such line"),
            pytest.param("sub#x", "'sub#x' names a heading that is not there", id="a folder has no headings"),
            pytest.param("a%00b", "'a%00b' leads to nothing", id="a null byte"),
        ],
    )
    def test_tells_what_is_wrong(self, tmp_path: Path, target: str, fault: str) -> None:
        """Files, headings and lines are looked up; other hosts are left alone."""
        (tmp_path / "sub").mkdir()
        (tmp_path / "a.md").write_text("# Top thing\n")
        (tmp_path / "b c.md").write_text("# One\n# Two")
        found = LinkChecker().fault(tmp_path / "a.md", target)
        assert found == fault


class TestCommandResolver:
    """Whether commands exist."""

    @pytest.mark.parametrize(
        "line",
        [
            "make test",
            "cd sub && make build",
            "npm run lint",
            "npm run 'a b'",
            "npm install",
            "python -m pytest",
            "python -m app",
            "python run.py",
            "python -m pip install -e .",
            "python -m pip install -r requirements.txt",
            "uv run python -m app",
            "uv run app",
            "app",
            "ruff check .",
            "tox -e lint",
            "cd part && python -m inner",
            "cd part && python -m outer.deep",
            "python part/inner",
            "cd go && go run ./cmd/a",
            "cd go && go test ./...",
            "docker compose up -d",
            "docker compose -f compose.yaml up -d",
            "docker build .",
            "bin/tool",
        ],
    )
    def test_resolves_what_the_project_declares(self, resolver: CommandResolver, line: str) -> None:
        """Targets, scripts, modules, files and declared tools."""
        assert resolver.resolve(line).fault == ""

    @pytest.mark.parametrize(
        ("line", "fault"),
        [
            ("make build", "make knows no 'build' in the top folder"),
            ("cd sub && make test", "make knows no 'test' in sub"),
            ("cd gone && make test", "there is no folder 'gone'"),
            ("npm run gone", "npm knows no script 'gone'"),
            ("yarn gone", "yarn knows no script 'gone'"),
            ("python -m gone", "there is no module 'gone'"),
            ("cd part && python -m part.inner", "there is no module 'part.inner'"),
            ("python gone.py", "there is no 'gone.py'"),
            ("python -c x", "python is called with '-c' alone"),
            ("uv run gone", "'gone' is neither a program of the project nor a tool that it declares"),
            ("mypy", "'mypy' is declared by no manifest"),
            ("cargo test", "'cargo' needs Cargo.toml in the top folder"),
            ("go test", "'go' needs go.mod in the top folder"),
            ("cd go && go run ./cmd/b", "there is no folder 'go/cmd/b'"),
            ("./gradlew test", "there is no 'gradlew' in the top folder"),
            ("docker compose -f gone.yaml up", "there is no 'gone.yaml' in the top folder"),
            ("docker build -f gone .", "there is no 'gone' in the top folder"),
            ("dotnet build", "there is no .NET project"),
            ("rm -rf /", "'rm' is neither a program of the project nor a tool that it declares"),
            ("make 'test", "it cannot be split into words"),
        ],
    )
    def test_says_why_another_does_not(self, resolver: CommandResolver, line: str, fault: str) -> None:
        """What is missing is named."""
        assert resolver.resolve(line).fault == fault

    def test_a_missing_program_is_no_fault(
        self, project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Another machine may have it; one in the project's own environment counts as installed."""
        monkeypatch.setenv("PATH", str(tmp_path))
        folder = project(TOOLS)
        (folder / ".venv/bin").mkdir(parents=True)
        (folder / ".venv/bin/ruff").touch(mode=0o755)
        resolver = CommandResolver(survey(folder), lambda _: None)
        assert resolver.resolve("make test").missing == ("make",)
        assert resolver.resolve("ruff check .").missing == ()
