"""Detection as a whole: what is said of small projects of each kind, and the commands that follow."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.commands import all_checks, best_command, purpose_of
from activities.project_init.detect import detect
from activities.project_init.files import survey
from activities.project_init.records import Evidence, TechStack
from tests.unit.project_init.projects import GO, JAVA, MIT, NODE, PROJECTS, PYTHON, RUST

StackOf = Callable[[Mapping[str, str | bytes]], TechStack]


def lines(stack: TechStack, purpose: str) -> list[str]:
    """Return the command lines for a purpose."""
    return [each.line for each in stack.commands if each.purpose == purpose]


class TestDetect:
    """The findings."""

    def test_python(self, stack_of: StackOf) -> None:
        """A Python service: names, versions, commands, services, all with evidence (S1-ex-a)."""
        stack = stack_of(PYTHON)
        assert (stack.name, stack.description) == ("shop", "A small shop.")
        found = {each.name: (each.version, str(each.evidence)) for each in stack.technologies}
        assert found["FastAPI"] == (">=0.110", "pyproject.toml:12")
        assert found["db"] == ("postgres:16, ports 5432:5432", "compose.yaml:3")
        assert found["GitHub Actions"] == ("", ".github/workflows/ci.yml")
        assert lines(stack, "install") == ["uv sync"]
        assert lines(stack, "run") == ["uv run shop", "docker compose up -d"]
        assert lines(stack, "test") == ["make test", "uv run python -m pytest"]
        assert lines(stack, "lint") == ["uv run ruff check .", "uv run mypy"]
        assert [each.spdx for each in stack.licenses] == ["MIT", "MIT"]
        assert "Tests are run with `make test` (declared, Makefile:2)" in stack.decisions
        assert "Lines have at most 100 characters (Ruff) (pyproject.toml:27)" in stack.constraints
        assert stack.open_questions == ()

    def test_node(self, stack_of: StackOf) -> None:
        """The lock file decides the package manager, for packages of a workspace too; hooks are no commands."""
        stack = stack_of(NODE)
        assert [each.line for each in stack.commands] == [
            "pnpm install --frozen-lockfile",
            "pnpm run dev",
            "pnpm run test",
            "pnpm run lint",
            "pnpm run build",
            "cd packages/ui && pnpm run build",
        ]
        assert "Node.js >=20 (package.json:8)" in stack.constraints

    def test_rust(self, stack_of: StackOf) -> None:
        """Tests inside sources count; two licence texts that the manifest offers as a choice are no question."""
        stack = stack_of(RUST)
        assert lines(stack, "run") == ["cargo run", "cargo run --bin report"]
        assert "1 test file, run with `cargo test`" in stack.summary
        assert "Licence is MIT OR Apache-2.0, declared in Cargo.toml:5" in stack.decisions
        assert not any("licence" in question for question in stack.open_questions)

    def test_rust_tests_of_an_async_runtime_are_tests(self, stack_of: StackOf) -> None:
        """A project with no others was told to have none, and to write some."""
        stack = stack_of({"src/lib.rs": "#[tokio::test]\nasync fn works() {}\n"})
        assert any(each.startswith("1 test file") for each in stack.summary)

    def test_go(self, stack_of: StackOf) -> None:
        """Main packages are found, indirect modules are not named."""
        stack = stack_of(GO)
        assert lines(stack, "run") == ["go run ./cmd/ferry"]
        assert lines(stack, "test") == ["go test ./..."]
        assert {each.name for each in stack.technologies} == {"Gin", "zap"}

    def test_java(self, stack_of: StackOf) -> None:
        """The wrapper is used where it is there, and versions from a parent are not made up."""
        stack = stack_of(JAVA)
        assert lines(stack, "test") == ["./mvnw -B test"]
        assert lines(stack, "run") == ["./mvnw spring-boot:run"]
        assert "Java 21 (pom.xml:12)" in stack.constraints

    def test_an_empty_project(self, stack_of: StackOf) -> None:
        """Nothing is claimed, and the questions are those that come first (S1-ex-a)."""
        stack = stack_of({})
        assert stack.summary == ("Project directory is uninitialized, no source files found",)
        assert stack.decisions == ("Confirmed project is empty: the folder holds nothing",)
        assert len(stack.open_questions) == 3

    @pytest.mark.parametrize("name", [*PROJECTS, "empty"])
    def test_summary_is_short_and_everything_is_json(self, stack_of: StackOf, name: str) -> None:
        """At most 8 sentences are true now, and the whole result crosses process borders (S1-fields-d)."""
        stack = stack_of(PROJECTS.get(name, {}))
        assert 1 <= len(stack.summary) <= 8
        assert TechStack.model_validate_json(stack.model_dump_json()) == stack

    def test_is_the_same_every_time(self, project: Callable[[Mapping[str, str | bytes]], Path]) -> None:
        """The same folder gives the same findings."""
        folder = project(PYTHON)
        assert detect(survey(folder)) == detect(survey(folder))

    def test_progress_can_stop_it(self, project: Callable[[Mapping[str, str | bytes]], Path]) -> None:
        """Raising from the callback ends the work."""

        def stop(_: str) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):
            detect(survey(project(PYTHON)), stop)


class TestOpenQuestions:
    """What only a person can answer."""

    @pytest.mark.parametrize(
        ("files", "question"),
        [
            pytest.param({"a.py": "x"}, "No licence is stated", id="no licence"),
            pytest.param({"a.py": "x"}, "There are no tests", id="no tests"),
            pytest.param({"a.py": "x"}, "There is no continuous integration", id="no CI"),
            pytest.param({"a.py": "x"}, "There is no README", id="no README"),
            pytest.param({"a.py": "x"}, "There is no manifest", id="no manifest"),
            pytest.param({"a.rb": "x", "tests/a_test.rb": "x"}, "no command is known", id="tests without a command"),
            pytest.param(
                {"package.json": '{"dependencies": {"a": "1"}}'}, "No lock file pins the Node", id="no lock file"
            ),
            pytest.param({"go.mod": "x"}, "go.mod could not be read (no module line)", id="a broken manifest"),
            pytest.param({".env": "x"}, ".env may hold secrets", id="a secret"),
            pytest.param(
                {"LICENSE": MIT, "COPYING": "Mozilla Public License Version 2.0"}, "Several licence", id="two texts"
            ),
            pytest.param({"LICENSE": "on Sundays"}, "no licence known here", id="an unknown text"),
            pytest.param(
                {"LICENSE": MIT, "package.json": '{"license": "ISC"}'},
                "package.json:1 declares ISC, but the licence text is MIT",
                id="a contradiction",
            ),
            pytest.param(
                {"package.json": '{"license": "ISC"}'}, "there is no licence text", id="a name without a text"
            ),
        ],
    )
    def test_are_asked(self, stack_of: StackOf, files: Mapping[str, str | bytes], question: str) -> None:
        """Each missing or contradictory thing becomes one question that stands alone."""
        assert any(question in each for each in stack_of(files).open_questions)


class TestCommands:
    """How to install, run, test and build."""

    @pytest.mark.parametrize(
        ("name", "purpose"),
        [("test:unit", "test"), ("lint-fix", "lint"), ("build", "build"), ("docker-build", "build"), ("zzz", "other")],
    )
    def test_a_name_tells_its_purpose(self, name: str, purpose: str) -> None:
        """The first word decides, then any other."""
        assert purpose_of(name) == purpose

    def test_names_are_quoted_and_untypeable_ones_are_counted(self, stack_of: StackOf) -> None:
        """A name from a file cannot add a command of its own, and none vanishes silently."""
        stack = stack_of({"package.json": '{"scripts": {"a; rm -rf ~": "x", "b\\nrm": "y"}}', "w b/package.json": "{}"})
        assert "npm run 'a; rm -rf ~'" in [each.line for each in stack.commands]
        assert not any("\n" in each.line for each in stack.commands)
        assert any(each.startswith("There are more commands than are listed (1)") for each in stack.open_questions)

    def test_python_without_a_manifest_still_has_customs(self, stack_of: StackOf) -> None:
        """Loose scripts and tests can be run."""
        stack = stack_of({"app.py": 'if __name__ == "__main__":\n    pass\n', "test_app.py": "import unittest\n"})
        assert [each.line for each in stack.commands] == ["python app.py", "python -m unittest discover"]

    def test_python_tests_that_are_functions_need_pytest(self, stack_of: StackOf) -> None:
        """`unittest` runs none of them, and up to Python 3.11 calls that a success."""
        stack = stack_of({"sums.py": "", "test_sums.py": "def test_total():\n    assert True\n"})
        assert lines(stack, "test") == ["python -m pytest"]

    def test_a_manifest_below_another_is_built_with_it(self, stack_of: StackOf) -> None:
        """Members of a workspace get no commands of their own by custom; other ecosystems do."""
        stack = stack_of({"Cargo.toml": "", "a/Cargo.toml": "", "web/package.json": "{}"})
        assert lines(stack, "install") == ["cargo fetch", "cd web && npm install"]

    def test_a_program_is_called_from_where_it_is_imported(self, stack_of: StackOf) -> None:
        """In a monorepo that is its own part, and no other part is told to call it."""
        main = 'if __name__ == "__main__":\n    pass\n'
        stack = stack_of(
            {
                "services/user-api/pyproject.toml": '[project]\nname = "user-api"\n',
                "services/user-api/app/__main__.py": main,
                "services/user-api/tool.py": main,
                "services/billing/setup.py": "",
                "services/billing/src/billing/__main__.py": main,
                "services/billing/jobs-2/__main__.py": main,
                "go.mod": "module x\n",
                "cmd/a/main.go": "package main\n\nfunc main() {\n}\n",
                "sub/go.mod": "module y\n",
                "sub/cmd/b/main.go": "package main\n\nfunc main() {\n}\n",
            }
        )
        assert sorted(lines(stack, "run")) == [
            "cd services/billing && python -m billing",
            "cd services/billing && python jobs-2",
            "cd services/user-api && python -m app",
            "cd services/user-api && python tool.py",
            "cd sub && go run ./cmd/b",
            "go run ./cmd/a",
        ]

    def test_the_best_command_is_declared_and_at_the_top(self, stack_of: StackOf) -> None:
        """Of several, a person is told the one that the project itself names first."""
        stack = stack_of({"sub/Makefile": "test:\n", "Makefile": "unit-test:\ntest:\nlint:\n", "go.mod": "module x\n"})
        best = best_command(stack, "test")
        assert best is not None
        assert (best.line, best.evidence) == ("make test", Evidence(path="Makefile", line=2))
        assert [each.line for each in all_checks(stack)] == ["gofmt -w .", "make lint", "make test"]

    @pytest.mark.parametrize(
        ("others", "built"),
        [
            pytest.param({}, "dotnet build", id="a solution alone"),
            pytest.param({"Tools.csproj": "<Project/>"}, "dotnet build Shop.sln", id="a project beside it"),
        ],
    )
    def test_a_dotnet_solution_is_built_and_tested_as_a_whole(
        self, stack_of: StackOf, others: Mapping[str, str], built: str
    ) -> None:
        """With its tests, which are projects below `tests`; `dotnet` refuses to choose between two files."""
        stack = stack_of(
            {
                "Shop.sln": "Microsoft Visual Studio Solution File, Format Version 12.00\n",
                "src/App/App.csproj": '<Project Sdk="Microsoft.NET.Sdk.Web"/>',
                "src/App/Program.cs": "WebApplication.CreateBuilder(args).Build().Run();\n",
                "tests/App.Tests/App.Tests.csproj": '<Project Sdk="Microsoft.NET.Sdk"/>',
                "tests/App.Tests/AppTests.cs": "public class AppTests { [Fact] public void Runs() {} }\n",
                **others,
            }
        )
        assert {each.purpose: each.line for each in stack.commands} == {
            "install": built.replace("build", "restore"),
            "build": built,
            "test": built.replace("build", "test"),
            "run": "dotnet run --project src/App/App.csproj",
        }

    @pytest.mark.parametrize(
        ("files", "line"),
        [
            pytest.param({"poetry.lock": "", "pyproject.toml": ""}, "poetry install", id="poetry"),
            pytest.param({"Pipfile": ""}, "pipenv install --dev", id="pipenv"),
            pytest.param({"requirements.txt": "a\n"}, "python -m pip install -r requirements.txt", id="requirements"),
            pytest.param({"package.json": "{}", "package-lock.json": ""}, "npm ci", id="npm with a lock"),
            pytest.param({"package.json": '{"packageManager": "yarn@4"}'}, "yarn install", id="a declared manager"),
            pytest.param({"build.gradle": "", "gradlew": ""}, "./gradlew test", id="gradle wrapper"),
            pytest.param({"Gemfile": "gem 'rspec'\n"}, "bundle exec rspec", id="rspec"),
            pytest.param({"composer.json": '{"scripts": {"qa": "x"}}'}, "composer run qa", id="composer"),
            pytest.param({"App.csproj": "<Project/>"}, "dotnet build", id="dotnet"),
            pytest.param({"mix.exs": ""}, "mix deps.get", id="mix"),
            pytest.param({"pubspec.yaml": "name: a\n"}, "dart pub get", id="dart"),
            pytest.param({"CMakeLists.txt": "enable_testing()\n"}, "ctest --test-dir build", id="cmake"),
            pytest.param({"tox.ini": "[testenv:lint]\n"}, "tox -e lint", id="tox"),
            pytest.param({"deploy/Dockerfile": "FROM x\n"}, "docker build -f deploy/Dockerfile .", id="docker"),
        ],
    )
    def test_each_tool_has_its_custom(self, stack_of: StackOf, files: Mapping[str, str | bytes], line: str) -> None:
        """The command that a user of the tool would type is among those given."""
        assert line in [each.line for each in stack_of(files).commands]
