"""By what Python tests are run: a runner that finds none of them would call that a success."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.commands import best_command
from activities.project_init.records import TechStack
from tests.unit.project_init.conftest import write_files

StackOf = Callable[[Mapping[str, str | bytes]], TechStack]

CASE = "import unittest\n\nclass Sums(unittest.TestCase):\n    def test_total(self):\n        self.fail('found')\n"
FUNCTION = "def test_total():\n    assert True\n"
DJANGO = "from django.test import TestCase\n\nclass Sums(TestCase):\n    def test_total(self):\n        pass\n"


class TestPythonTests:
    """The command that runs them."""

    @pytest.mark.parametrize(
        ("files", "line"),
        [
            pytest.param(
                {"tests/test_a.py": "import pytest\nimport unittest\n" + CASE}, "python -m pytest", id="pytest"
            ),
            pytest.param({"test_a.py": "from unittest import mock\n" + FUNCTION}, "python -m pytest", id="functions"),
            pytest.param(
                {"a/test_a.py": "\n" * 400_000, "a/test_b.py": FUNCTION}, "python -m pytest", id="and many empty lines"
            ),
            pytest.param({"manage.py": "", "a/tests.py": DJANGO}, "python manage.py test", id="a Django project"),
            pytest.param({"a/__init__.py": "", "a/test_a.py": DJANGO}, "python -m pytest", id="a Django library"),
            pytest.param(
                {"m/uv.lock": "", "m/pyproject.toml": "", "m/t e/test_a.py": CASE, "m/tests/test_b.py": CASE},
                "cd m && uv run python -m unittest discover -s 't e' && uv run python -m unittest discover -s tests",
                id="in several folders, by the project's own environment",
            ),
        ],
    )
    def test_are_run_by_what_they_are_written_for(
        self, stack_of: StackOf, files: Mapping[str, str | bytes], line: str
    ) -> None:
        """What stands in the tests decides where no manifest names a runner."""
        found = best_command(stack_of(files), "test")
        assert found is not None
        assert found.line == line

    def test_are_what_shows_their_command_where_there_is_no_manifest(self, stack_of: StackOf) -> None:
        """And a program is what shows how it is started; the first file of the code shows neither."""
        program = "if __name__ == '__main__':\n    print('Hello')\n"
        found = stack_of({"calc.py": "", "main.py": program, "tests/test_calc.py": FUNCTION}).commands

        assert {one.line: (one.origin, str(one.evidence)) for one in found} == {
            "python main.py": ("conventional", "main.py"),
            "python -m pytest": ("conventional", "tests/test_calc.py"),
        }

    @pytest.mark.parametrize(
        "files",
        [
            pytest.param({"tests/test_a.py": CASE}, id="a folder that is no package"),
            pytest.param({"tests/unit/__init__.py": "", "tests/unit/test_a.py": CASE}, id="a package in such a folder"),
            pytest.param({"tests/__init__.py": "", "tests/test_a.py": CASE}, id="a package"),
            pytest.param({"sums_test.py": CASE}, id="another name"),
            pytest.param({"tests/__init__.py": "", "tests/sums_tests.py": CASE}, id="a third name"),
        ],
    )
    def test_are_found_by_unittest(self, stack_of: StackOf, tmp_path: Path, files: Mapping[str, str | bytes]) -> None:
        """The command that is given fails as the test does; up to Python 3.11 one that finds no test ends well."""
        found = best_command(stack_of({**files, "sums.py": ""}), "test")
        assert found is not None
        program, *words = found.line.replace("'", "").split()
        assert program == "python"
        folder = write_files(tmp_path / "run", files)
        ran = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 1
        assert "Ran 1 test " in ran.stderr

    def test_that_no_runner_finds_have_no_command(self, stack_of: StackOf) -> None:
        """A name that `unittest` does not look for is not passed off as tested."""
        assert best_command(stack_of({"tests/sums.py": CASE}), "test") is None
