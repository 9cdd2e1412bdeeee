"""Shapes that the real projects have and small examples have not: what is said first of a project is true."""

from collections.abc import Callable, Mapping

import pytest

from activities.project_init.commands import best_command
from activities.project_init.pages.material import introduction
from activities.project_init.records import TechStack
from tests.unit.project_init.conftest import Run

RunOf = Callable[[Mapping[str, str | bytes]], Run]
StackOf = Callable[[Mapping[str, str | bytes]], TechStack]


class TestBuiltWith:
    """The technologies that a project is said to be built with."""

    def test_are_those_that_it_ships_with(self, stack_of: StackOf) -> None:
        """A framework that only tests use, and the project's own extras, are none; a compiler's language is one."""
        stack = stack_of(
            {
                "pyproject.toml": "[project]\nname = 'Requests'\ndependencies = ['starlette>=1']\n"
                "[project.optional-dependencies]\nall = ['requests[tls]', 'uvicorn>=1']\n"
                "[dependency-groups]\ntests = ['flask>=3']\n",
                "web/package.json": '{"devDependencies": {"typescript": "^5", "react": "^19"}}',
            }
        )
        assert "Built with Starlette, TypeScript, Uvicorn" in stack.summary
        assert {"Flask", "React"} <= {each.name for each in stack.technologies}

    def test_one_component_is_not_the_framework(self, stack_of: StackOf) -> None:
        """A command line on one of Symfony's components is no Symfony application."""
        stack = stack_of({"composer.json": '{"name": "a/b", "require": {"symfony/console": "^6"}}', "a.php": "<?php\n"})
        assert "Built with Symfony Console" in stack.summary

    def test_tells_how_many_services_it_does_not_name(self, stack_of: StackOf) -> None:
        """A list that was cut in silence would be taken for all there is."""
        services = "".join(f"  s{number}:\n    image: acme/s{number}\n" for number in range(10))
        stack = stack_of({"compose.yaml": f"services:\n{services}"})
        assert "Services in compose files: s0, s1, s2, s3, s4, s5, s6, s7 and 2 more" in stack.summary


class TestCommands:
    """The command that is named first."""

    def test_is_one_of_the_main_language(self, stack_of: StackOf) -> None:
        """A Python project with some JavaScript is set up and tested with Python's tools."""
        stack = stack_of(
            {
                "package.json": '{"name": "Pages", "scripts": {"test": "grunt test"}}',
                "pyproject.toml": "[project]\nname = 'pages'\n",
                "tox.ini": "[tox]\nenvlist = py3, black\n[testenv]\ncommands = python runtests.py\n"
                "[testenv:black]\ncommands = black --check .\n",
                "pages.py": "x = 1\n" * 50,
                "tests/test_x.js": "x\n",
            }
        )
        found = {purpose: best_command(stack, purpose) for purpose in ("install", "test", "lint")}
        assert {purpose: each.line for purpose, each in found.items() if each} == {
            "install": "python -m pip install -e .",
            "test": "tox -e py3",
            "lint": "tox -e black",
        }

    def test_is_no_part_of_a_matrix(self, stack_of: StackOf) -> None:
        """Environments of tox for one interpreter, for reports and for the pages are not what tests a project."""
        stack = stack_of(
            {
                "tox.ini": "[tox]\nenv_list = pypy3-tests, py311-tests, docs-tests, coverage-report, extra-deps\n",
                "pyproject.toml": "[project]\nname = 'pages'\n[dependency-groups]\ntests = ['pytest']\n",
                "pages.py": "x = 1\n",
            }
        )
        found = {purpose: best_command(stack, purpose) for purpose in ("install", "test")}
        assert {purpose: each.line for purpose, each in found.items() if each} == {
            "install": "python -m pip install -e .",
            "test": "python -m pytest",
        }

    def test_of_python_are_those_of_all_its_manifests(self, stack_of: StackOf) -> None:
        """A `setup.py` that leaves all to `setup.cfg` is installed, and its programs can be started."""
        stack = stack_of(
            {
                "pyproject.toml": "[tool.black]\n",
                "setup.py": "from setuptools import setup\n\nif __name__ == '__main__':\n    setup()\n",
                "setup.cfg": "[metadata]\nname = pages\n"
                "[options.entry_points]\nconsole_scripts =\n    pages = pages:main\n",
                "pages.py": "def main(): ...\n",
            }
        )
        assert [each.line for each in stack.commands if each.purpose in ("install", "run", "build")] == [
            "python -m pip install -e .",
            "pages",
            "python -m build",
        ]

    def test_of_autotools_are_there_beside_what_it_generates(self, stack_of: StackOf) -> None:
        """A GNUmakefile beside a template says nothing of how to build; a plain template may have a check."""
        stack = stack_of(
            {
                "configure.ac": "AC_INIT([GNU Hello World], [1.0])\n",
                "configure": "",
                "GNUmakefile": "abort:\n\texit 1\n",
                "Makefile.in": "check: all\n\t./runtests\n",
                "tests/greeting-1": "#! /bin/sh\nexit 0\n",
            }
        )
        assert stack.name == "Hello World"
        assert "1 test file, run with `./configure && make check`" in stack.summary
        assert "./configure && make" in [each.line for each in stack.commands]

    def test_of_php_are_its_programs_and_its_test_runner(self, run: RunOf) -> None:
        """Programs that `composer.json` names can be started, and Symfony's bridge to PHPUnit runs tests."""
        found = run(
            {
                "composer.json": '{"name": "a/b", "bin": ["bin/b"], "require-dev": {"symfony/phpunit-bridge": "^6"}}',
                "bin/b": "#!/usr/bin/env php\n<?php\n",
                "tests/BTest.php": "<?php\n",
            }
        )
        assert [each.line for each in found.stack.commands if each.purpose in ("run", "test")] == [
            "php bin/b",
            "vendor/bin/simple-phpunit",
        ]
        assert not [each.message for each in found.verified().failures if each.severity == "error"]


class TestIntroduction:
    """The sentence of the README that introduces the project."""

    @pytest.mark.parametrize(
        ("files", "words"),
        [
            pytest.param(
                {
                    "README-VIM.md": "How to use it in an editor, at length.\n",
                    "README.md": "It finds files by parts of names.\n",
                },
                "It finds files by parts of names.",
                id="the README itself before its companions",
            ),
            pytest.param(
                {"README.md": "[Website](x) | [Configuration](y) | [Rules](z)\n\nIt reports patterns found in code.\n"},
                "It reports patterns found in code.",
                id="no row of links",
            ),
            pytest.param(
                {"README.rst": "Twig, the templates of PHP\n=====\n\nTwig is a template language for PHP.\n"},
                "Twig is a template language for PHP.",
                id="no heading with a line under it",
            ),
        ],
    )
    def test_is_a_sentence(self, files: Mapping[str, str], words: str, run: RunOf) -> None:
        """Other READMEs, rows of links and underlined headings are passed over."""
        assert introduction(run(files).tree)[0] == words


class TestLanguages:
    """Endings that several kinds of files share."""

    def test_a_page_with_an_ending_of_d_is_no_program(self, stack_of: StackOf) -> None:
        """Only what looks like a module of that language counts for it."""
        stack = stack_of({"docs/append.d": "Short: a\nLong: append\n", "a.d": "module a;\nvoid main() {}\n"})
        assert [(each.name, each.files) for each in stack.languages] == [("D", 1)]
