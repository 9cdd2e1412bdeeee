"""Detection: what is said of small projects, each finding with its evidence."""

from collections.abc import Callable
from pathlib import Path

import pytest

from activities.project_init.detect import best_command, detect, find_purpose
from activities.project_init.files import survey
from activities.project_init.records import TechStack
from tests.shipped.project_init.conftest import Files
from tests.shipped.project_init.projects import GO, NODE, PROJECTS, PYTHON, RUST

StackOf = Callable[[Files], TechStack]


def lines(stack: TechStack, purpose: str) -> list[str]:
    return [command.line for command in stack.commands if command.purpose == purpose]


class TestDetect:
    def test_a_python_project(self, stack_of: StackOf) -> None:
        """Names, versions, commands and rules, all with evidence (S1-ex-a)."""
        stack = stack_of(PYTHON)
        assert (stack.name, stack.description) == ("shop", "A small shop.")
        assert lines(stack, "install") == ["uv sync"]
        assert lines(stack, "test") == ["make test", "uv run python -m pytest"]
        assert lines(stack, "run") == ["uv run shop"]
        assert stack.license == "MIT"
        assert "Tests: `make test` (declared, Makefile:2)" in stack.decisions
        assert "Python >=3.11 (pyproject.toml)" in stack.constraints
        assert stack.open_questions == ()

    def test_other_projects(self, stack_of: StackOf) -> None:
        """Node with pnpm, Rust with tests inside its sources, Go without indirect modules."""
        node, rust, go = stack_of(NODE), stack_of(RUST), stack_of(GO)
        assert [command.line for command in node.commands] == [
            "pnpm install",
            "pnpm run dev",
            "pnpm run test",
            "pnpm run lint",
            "pnpm run build",
            "cd packages/ui && pnpm run build",
        ]
        assert "Node >=20 (package.json)" in node.constraints
        assert rust.tests == ("src/count.rs",)
        assert lines(rust, "test") == ["cargo test"]
        assert lines(go, "test") == ["go test ./..."]
        assert [dependency.name for dependency in go.manifests[0].dependencies] == [
            "github.com/gin-gonic/gin",
            "go.uber.org/zap",
        ]

    def test_an_empty_project(self, stack_of: StackOf) -> None:
        """No findings, only the first questions (S1-ex-a)."""
        stack = stack_of({})
        assert stack.summary == ("Project directory is uninitialized, no source files found",)
        assert stack.decisions == ("Confirmed project is empty",)
        assert len(stack.open_questions) == 3

    def test_the_summary_is_short_and_everything_is_json(self, project: Callable[[Files], Path]) -> None:
        """At most 8 sentences are true now, and the same folder gives the same findings (S1-fields-d)."""
        for name, files in PROJECTS.items():
            folder = project(files)
            stack = detect(survey(folder))
            assert 1 <= len(stack.summary) <= 8, name
            assert TechStack.model_validate_json(stack.model_dump_json()) == stack == detect(survey(folder)), name

    def test_open_questions(self, stack_of: StackOf) -> None:
        """Each thing that is missing or contradictory becomes one question."""
        table: list[tuple[Files, str]] = [
            ({"a.py": "x"}, "No licence file or manifest entry"),
            ({"a.py": "x"}, "No test files were found"),
            ({"a.py": "x"}, "No workflows were found"),
            ({"a.py": "x"}, "No README was found"),
            ({"a.py": "x"}, "No manifest that is read here"),
            ({"a.rb": "x", "tests/a_test.rb": "x"}, "no command was found"),
            ({"pyproject.toml": "[project\n"}, "pyproject.toml cannot be read"),
            ({"package.json": '{"scripts": {"a": "b"}, "bin": 3, "dependencies": [1]}\n]'}, "package.json cannot be"),
            ({"package.json": '{"license": "ISC"}'}, "no file has the text"),
        ]
        for files, question in table:
            assert any(question in item for item in stack_of(files).open_questions), question


MONOREPO = {
    "package.json": """{
  "name": "yard",
  "private": true,
  "description": "Tools for the yard",
  "workspaces": ["packages/*"],
  "scripts": {
    "check": "tsc --noEmit",
    "test:types": "tsc -p tests",
    "verify": "eslint . && tsc"
  },
  "eslintConfig": {"rules": {"test": "off"}},
  "devDependencies": {
    "vue-tsc": "^2",
    "vue": "^3",
    "typescript": "^5"
  }
}
""",
    "packages/rake/package.json": """{
  "name": "@yard/rake",
  "description": "A rake",
  "license": "ISC",
  "scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"},
  "dependencies": {"@yard/hoe": "1"}
}
""",
    "packages/hoe/package.json": '{"name": "@yard/hoe", "description": "A hoe"}\n',
    "packages/hoe/src/hoe.test.ts": "test('hoe', () => {});\n",
}


class TestMonorepo:
    def test_a_type_check_is_no_test(self, stack_of: StackOf) -> None:
        """Nor is a linter or a placeholder; what is not known is asked."""
        stack = stack_of(MONOREPO)
        assert lines(stack, "test") == []
        assert lines(stack, "lint") == ["npm run check", "npm run test:types", "npm run verify"]
        assert "There are tests, and no command was found that runs them: which is it?" in stack.open_questions
        runs = {**MONOREPO, "package.json": MONOREPO["package.json"].replace("tsc --noEmit", "tsc && vitest run")}
        assert lines(stack_of(runs), "test") == ["npm run check"]

    def test_it_is_described_as_a_whole_and_its_packages_are_named(self, stack_of: StackOf) -> None:
        """Not by one of its packages, also where it says nothing of itself."""
        stack = stack_of(MONOREPO)
        assert (stack.name, stack.description, stack.license) == ("yard", "Tools for the yard", "")
        assert "2 packages: @yard/hoe, @yard/rake" in stack.summary
        silent = stack_of({**MONOREPO, "package.json": '{"private": true}'})
        assert (silent.description, "@yard" in silent.name) == ("", False)

    def test_lines_are_those_of_the_whole_name(self, stack_of: StackOf) -> None:
        """Not of a longer one, and not of another part of the file."""
        stack = stack_of(MONOREPO)
        found = {item.name: item.evidence.line for manifest in stack.manifests for item in manifest.dependencies}
        assert (found["vue"], found["vue-tsc"], found["typescript"]) == (14, 13, 15)
        python = '[project]\nname = "a"\ndescription = "not httpx"\ndependencies = [\n  "httpx-sse",\n  "httpx",\n]\n'
        [manifest] = stack_of({"pyproject.toml": python}).manifests
        assert [(item.name, item.evidence.line) for item in manifest.dependencies] == [("httpx-sse", 5), ("httpx", 6)]

    def test_pants_and_documents_alone(self, stack_of: StackOf) -> None:
        """The tool that is configured runs the tests; prose needs none."""
        pants = stack_of({"pants.toml": "", "requirements.txt": "a\n", "test_a.py": "def test_a(): ...\n"})
        assert (lines(pants, "test"), lines(pants, "install")) == (["pants test ::"], [])
        assert not any("tests" in question for question in stack_of({"README.md": "# Terms\n"}).open_questions)
        named = stack_of({"pants.toml": "", "requirements.txt": "a\n", "python-default.lock": "{}\n"})
        assert any("lock files: python-default.lock" in line for line in named.summary)

    def test_what_no_rule_can_know_is_not_said(self, stack_of: StackOf) -> None:
        """A licence in prose, a manifest of another kind, a check that is no check, a benchmark's package."""
        stack = stack_of(
            {
                "README.md": "Free under CC BY 4.0.\n",
                "setup.py": "from setuptools import setup\n",
                "Makefile": "twine-check:\n\ttwine check dist/*\nwatch:\n\tentr make\n",
                "bench/package.json": '{"name": "jsx"}',
            }
        )
        assert (lines(stack, "lint"), lines(stack, "run"), stack.packages) == ([], [], [])
        assert "Licence: no file or manifest names it" in stack.summary
        assert not any("There is no" in question for question in stack.open_questions)


class TestCommands:
    def test_names_tell_their_purpose(self) -> None:
        """The first word that means something decides."""
        table = {"test:unit": "test", "lint-fix": "lint", "build": "build", "docker-build": "build", "zzz": "other"}
        assert {name: find_purpose(name) for name in table} == table

    def test_names_are_quoted_and_what_cannot_be_typed_is_left_out(self, stack_of: StackOf) -> None:
        """A name from a file cannot add a command of its own."""
        stack = stack_of({"package.json": '{"scripts": {"a; rm -rf ~": "x", "b\\nrm": "y"}}'})
        assert [command.line for command in stack.commands if command.origin == "declared"] == ["npm run 'a; rm -rf ~'"]

    def test_the_best_command_is_declared_and_at_the_top(self, stack_of: StackOf) -> None:
        """A makefile's file targets, patterns and variables are not commands."""
        stack = stack_of(
            {
                "sub/Makefile": "test:\n",
                "Makefile": "unit-test:\ntest:\nX := 1\n%.o: %.c\nfile:\n",
                "file": "",
                "go.mod": "module x\n",
            }
        )
        best = best_command(stack, "test")
        assert best is not None
        assert (best.line, str(best.evidence)) == ("make test", "Makefile:2")
        assert lines(stack, "other") == []

    @pytest.mark.parametrize(
        ("files", "line"),
        [
            ({"poetry.lock": "", "pyproject.toml": '[project]\nname = "a"\n'}, "poetry install"),
            ({"requirements.txt": "a\n"}, "python -m pip install -r requirements.txt"),
            ({"package.json": "{}"}, "npm install"),
            ({"package.json": "{}", "bun.lock": ""}, "bun install"),
            ({"test_a.py": "def test_a(): ...\n"}, "python -m pytest"),
        ],
    )
    def test_tools_and_their_customs(self, stack_of: StackOf, files: Files, line: str) -> None:
        """The command that a user of the tool would type is among those found."""
        assert line in [command.line for command in stack_of(files).commands]
