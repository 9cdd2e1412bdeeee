"""The roadmap: which findings call for which work."""

from collections.abc import Callable, Mapping

import pytest

from activities.project_init.records import RoadmapItem
from tests.unit.project_init.conftest import Run
from tests.unit.project_init.projects import PYTHON

RunOf = Callable[[Mapping[str, str | bytes]], Run]


def titles(items: tuple[RoadmapItem, ...]) -> list[tuple[str, str]]:
    """Return priority and title of each item."""
    return [(item.priority, item.title) for item in items]


class TestDeriveRoadmap:
    """Items with priority, reason and evidence (S1-ex-b)."""

    def test_of_a_healthy_project_is_short(self, run: RunOf) -> None:
        """Only what was found is asked for, and each item shows where."""
        items = run(PYTHON).documents.roadmap
        assert titles(items) == [
            ("P2", "Say more in the README"),
            ("P2", "Settle FIXME, XXX and HACK comments"),
            ("P3", "Give a version to dependencies that have none"),
            ("P3", "Do or drop the TODO comments"),
            ("P3", "Keep a changelog"),
            ("P3", "Say how to contribute"),
        ]
        assert items[1].evidence == ("src/shop/payments.py:8 FIXME: handle declined cards",)

    @pytest.mark.parametrize(
        ("files", "priority", "title"),
        [
            pytest.param({"a.py": "x"}, "P1", "Write tests", id="no tests"),
            pytest.param({"a.py": "x"}, "P1", "Add a licence text", id="no licence at all"),
            pytest.param({"package.json": '{"license": "MIT"}'}, "P2", "Add a licence text", id="no licence text"),
            pytest.param({"a.py": "x"}, "P2", "Run the checks on every change", id="no CI"),
            pytest.param({"a.py": "x"}, "P1", "Write a README", id="no README"),
            pytest.param({"a.py": "x"}, "P1", "Add a manifest", id="no manifest"),
            pytest.param({"id_rsa": "x"}, "P1", "Take files that may hold secrets out of the project", id="a key"),
            pytest.param({"go.mod": ""}, "P1", "Repair manifests that cannot be read", id="a broken manifest"),
            pytest.param({"LICENSE": "?"}, "P3", "Name the licence by its SPDX identifier", id="unknown licence"),
            pytest.param(
                {"package.json": '{"dependencies": {"a": "1"}}'},
                "P2",
                "Pin the dependencies in a lock file",
                id="no lock file",
            ),
            pytest.param(
                {"package.json": '{"dependencies": {"a": "*"}}'},
                "P2",
                "Give a version to dependencies that have none",
                id="any version",
            ),
            pytest.param({"tests/a_test.rb": "x"}, "P1", "Say how the tests are run", id="tests without a command"),
            pytest.param({"a.py": "def ("}, "P1", "Repair files that cannot be parsed", id="a broken file"),
            pytest.param({"a.py": "import b", "b.py": "import a"}, "P2", "Break import circles", id="a circle"),
            pytest.param({"a.py": "def f():\n" + " x = 1\n" * 90}, "P3", "Cut long functions", id="a long function"),
            pytest.param({"a.go": "x\n" * 801}, "P3", "Split long files", id="a long file"),
            pytest.param(
                {"a.py": "".join(f"def f{number}(): ...\n" for number in range(12))},
                "P3",
                "Write docstrings",
                id="no docstrings",
            ),
        ],
    )
    def test_a_finding_becomes_an_item(
        self, run: RunOf, files: Mapping[str, str | bytes], priority: str, title: str
    ) -> None:
        """Each kind of finding has its item, with evidence."""
        items = run(files).documents.roadmap
        assert (priority, title) in titles(items)
        assert all(item.evidence and item.found >= len(item.evidence) for item in items)

    def test_packages_of_the_project_itself_need_no_version(self, run: RunOf) -> None:
        """What a monorepo's parts ask of each other is there; a package of others by that name elsewhere is not."""
        files = {
            "api/pyproject.toml": '[project]\nname = "api"\ndependencies = ["acme_shared", "fastapi", "ui"]\n',
            "shared/pyproject.toml": '[project]\nname = "acme-shared"\n',
            "web/package.json": '{"name": "web", "dependencies": {"ui": "*"}}',
            "ui/package.json": '{"name": "ui"}',
        }
        item = next(each for each in run(files).documents.roadmap if each.title.startswith("Give a version"))
        assert item.evidence == ("api/pyproject.toml:3 fastapi", "api/pyproject.toml:3 ui")

    def test_of_an_empty_project_says_where_to_begin(self, run: RunOf) -> None:
        """The first item is the goal."""
        assert run({}).documents.roadmap[0].title == "Say what is to be built"

    def test_is_sorted_by_priority_and_tells_how_much_there_is(self, run: RunOf) -> None:
        """Evidence is cut, its number is not."""
        items = run({"a.py": "# TODO: x\n" * 40}).documents.roadmap
        assert [item.priority for item in items] == sorted(item.priority for item in items)
        todo = next(item for item in items if item.title == "Do or drop the TODO comments")
        assert (len(todo.evidence), todo.found) == (15, 40)


def untested(run: RunOf, files: Mapping[str, str | bytes]) -> tuple[str, ...]:
    """Return the modules of a project that its roadmap calls untested."""
    items = run(files).documents.roadmap
    return next(each.evidence for each in items if each.title == "Test the modules that no test touches")


class TestUntestedModules:
    """What no test touches, by imports and names."""

    def test_a_module_is_touched_by_import_by_name_or_through_another(self, run: RunOf) -> None:
        """Only the one that no test reaches in any of these ways is named."""
        body = "x = 1\n" * 20
        files = {
            "app/__init__.py": "from app.exported import x\n",
            "app/exported.py": "from app import helped\n" + body,
            "app/helped.py": "from . import last\n" + body,
            "app/last.py": body,
            "app/imported.py": body,
            "app/named.py": body,
            "app/lonely.py": body,
            "app/short.py": "x = 1\n",
            "app/shown.py": '"""Doc.\n\n>>> 1\n1\n"""\n' + body,
            "tests/test_named.py": "import app\nimport app.imported\n",
            "pyproject.toml": '[project]\nname = "app"\ndependencies = ["pytest"]\n',
        }
        assert untested(run, files) == ("app/lonely.py (20 lines)",)

    def test_a_package_of_go_is_touched_through_the_packages_that_a_test_imports(self, run: RunOf) -> None:
        """An import of Go's names a folder, and all files in it import for one another."""
        body = "var x = 1\n" * 20
        files = {
            "go.mod": "module acme.example/app\n\ngo 1.22\n",
            "api/api.go": "package api\n\n" + body,
            "api/store.go": 'package api\n\nimport "acme.example/app/store"\n' + body,
            "store/store.go": "package store\n\n" + body,
            "lonely/lonely.go": "package lonely\n\n" + body,
            "e2e/e2e_test.go": 'package e2e\n\nimport "acme.example/app/api"\n\nfunc TestIt(t *testing.T) {}\n',
        }
        assert untested(run, files) == ("lonely/lonely.go (22 lines)",)

    def test_a_rust_module_with_tests_of_its_own_is_touched_however_they_are_marked(self, run: RunOf) -> None:
        """Those of async runtimes and of test crates count; a feature called so, or code kept from tests, does not."""
        body = "pub fn go() {}\n" * 20
        marks = (
            "#[test]",
            "#[tokio::test(start_paused = true)]",
            "#[rstest]",
            "#[test_case(1)]",
            "#![cfg(test)]",
            '#[cfg(all(feature = "x", test))]',
        )
        files = {f"src/own_{number}.rs": f"{mark}\n{body}" for number, mark in enumerate(marks)}
        files |= {"src/lonely_0.rs": f"#[cfg(not(test))]\n{body}", "build.rs": body}
        files["src/lonely_1.rs"] = f'#[cfg(feature = "test-utilities")]\n{body}'
        files["Cargo.toml"] = '[package]\nname = "app"\nversion = "1.0.0"\n'
        files["tests/works.rs"] = "#[test]\nfn works() {}\n"
        assert untested(run, files) == ("src/lonely_0.rs (21 lines)", "src/lonely_1.rs (21 lines)")
