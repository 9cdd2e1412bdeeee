"""Projects in the shapes of the real ones in C, Perl and PHP: what is said of them is true."""

from collections.abc import Callable, Mapping

import pytest

from activities.project_init.commands import best_command
from activities.project_init.records import TechStack
from activities.project_init.roles import belongs_to_project, role_of
from tests.unit.project_init.conftest import Run

RunOf = Callable[[Mapping[str, str | bytes]], Run]
StackOf = Callable[[Mapping[str, str | bytes]], TechStack]

AUTOTOOLS = {
    "configure.ac": "AC_PREREQ([2.64])\nAC_INIT([jot],[1.6])\nPKG_CHECK_MODULES([ONIG], [oniguruma >= 6.9])\n",
    "Makefile.am": "bin_PROGRAMS = jot\nTESTS = tests/run\n",
    "src/main.c": "int main(void) { return 0; }\n",
    "tests/run": "#!/bin/sh\nexit 0\n",
}
PERL = {
    "Makefile.PL": "use 5.016;\nWriteMakefile(\n  NAME => 'Mojo',\n  PREREQ_PM => {'IO::Socket::IP' => '0.37',\n"
    "    'Sub::Util' => 0},\n  TEST_REQUIRES => {'Test::More' => '1.0'},\n);\n",
    "lib/Mojo.pm": "package Mojo;\n1;\n",
    "t/basic.t": "use Test::More;\n",
}
MESON = {
    "meson.build": "project('glow', 'c',\n  version : '2.1',\n  meson_version : '>=0.60',\n)\n"
    "dependency('zlib', version: '>=1.2')\ntest('unit', exe)\n",
    "main.c": "int main(void) { return 0; }\n",
}


def titles(found: Run) -> list[str]:
    """Return the titles of the roadmap."""
    return [item.title for item in found.documents.roadmap]


class TestBuildSystems:
    """Autotools, Meson and Perl say how a project is built, as any manifest does."""

    @pytest.mark.parametrize(
        ("files", "name", "test", "dependencies"),
        [
            pytest.param(
                AUTOTOOLS,
                "jot",
                "autoreconf -i && ./configure && make check",
                [("oniguruma", "6.9", "runtime")],
                id="autotools",
            ),
            pytest.param(
                PERL,
                "Mojo",
                "prove -lr t",
                [
                    ("IO::Socket::IP", ">=0.37", "runtime"),
                    ("Sub::Util", "", "runtime"),
                    ("Test::More", ">=1.0", "development"),
                ],
                id="Perl",
            ),
            pytest.param(MESON, "glow", "meson test -C build", [("zlib", ">=1.2", "runtime")], id="Meson"),
        ],
    )
    def test_are_read_and_their_commands_resolve(
        self, files: Mapping[str, str], name: str, test: str, dependencies: list[tuple[str, str, str]], run: RunOf
    ) -> None:
        """Name, libraries and the command for the tests are found, no manifest is asked for, and all verifies."""
        found = run(files)
        command = best_command(found.stack, "test")
        assert (found.stack.name, command.line if command else "") == (name, test)
        wanted = found.stack.manifests[0].dependencies
        assert [(each.name, each.requirement, each.group) for each in wanted] == dependencies
        assert not {"Add a manifest", "Say how the tests are run"} & set(titles(found))
        failures = found.verified().failures
        assert not [each.message for each in failures if each.severity == "error"]

    def test_a_makefile_is_no_missing_manifest(self, run: RunOf) -> None:
        """What a Makefile builds can be built, so nobody is told that it cannot be installed."""
        assert "Add a manifest" not in titles(run({"Makefile": "all:\n\tcc -o app app.c\n", "app.c": "int x;\n"}))

    def test_empty_lines_cost_one_look_each(self, stack_of: StackOf) -> None:
        """Some generators leave many."""
        stack = stack_of(
            {"cpanfile": "requires 'Moo';" + "\n" * 200_000 + "1;", "meson.build": "\n" * 200_000 + "x = 1"}
        )
        assert [each.name for manifest in stack.manifests for each in manifest.dependencies] == ["Moo"]

    def test_a_manifest_deep_inside_is_a_part(self, stack_of: StackOf) -> None:
        """A build file for one platform does not make the whole project that of another tool."""
        stack = stack_of({"a.c": "int x;\n", "contrib/buildsystems/CMakeLists.txt": "project(x)\n"})
        assert "A part of it is a CMake project: contrib/buildsystems/CMakeLists.txt with cmake" in stack.decisions


class TestMakeTargets:
    """What a make target is for."""

    def test_install_into_the_system_sets_nothing_up(self, stack_of: StackOf) -> None:
        """`make install` that copies programs is not offered as the way to set up a checkout."""
        stack = stack_of(
            {
                "Makefile": "all:\n\tcc a.c\n\ninstall:\n\tcd src && $(MAKE) $@\n",
                "docs/x.md": "x\n",
                "man/Makefile": "install: install-man\n\ninstall-man:\n\tinstall -m 644 a.1 $(DESTDIR)$(mandir)\n",
            }
        )
        assert best_command(stack, "install") is None
        assert [each.line for each in stack.commands if each.purpose == "build"] == ["make all"]

    def test_install_of_dependencies_sets_up(self, stack_of: StackOf) -> None:
        """A target that fetches what the project needs is the way to set it up."""
        stack = stack_of({"Makefile": "install:\n\tpip install -r requirements.txt\n"})
        command = best_command(stack, "install")
        assert command is not None
        assert command.line == "make install"


class TestRoles:
    """What plays which part in such projects."""

    @pytest.mark.parametrize(
        ("path", "role"),
        [
            pytest.param("t/t0000-basic.sh", "test", id="tests beside Perl's"),
            pytest.param("lib/Foo/x.t", "test", id="a Perl test"),
            pytest.param("app/t/models.py", "source", id="a package called t"),
            pytest.param("ltmain.sh", "generated", id="libtool"),
            pytest.param("build-aux/config.guess", "generated", id="autoconf"),
            pytest.param("deps/hiredis/read.c", "vendored", id="libraries in deps"),
            pytest.param("deps/auth/session.py", "source", id="a Python package called deps"),
            pytest.param("app/deps/x.go", "source", id="deps inside a package"),
        ],
    )
    def test_of_a_file(self, path: str, role: str) -> None:
        """The path alone tells."""
        assert role_of(path) == role

    def test_hidden_folders_do_not_speak_for_the_project(self) -> None:
        """The requirements of a spell checker in a hidden folder make no Python project."""
        assert not belongs_to_project(".codespell/requirements.txt")


class TestTrueStatements:
    """Where something cannot be known, nothing is claimed."""

    def test_imports_that_are_not_read_are_not_counted(self, run: RunOf) -> None:
        """In a language whose imports are not read, no number of imports is given, and none is called untested."""
        body = "<?php\n" + "$x = 1;\n" * 30
        found = run({"src/A.php": body, "tests/BTest.php": "<?php\nuse App\\A;\n"})
        assert "1 source module with 31 lines. What depends on what is not read in PHP." in found.page(
            "ARCHITECTURE.md"
        )
        assert "Test the modules that no test touches" not in titles(found)

    def test_keys_of_tests_are_no_urgent_risk(self, run: RunOf) -> None:
        """A certificate among the tests is to be looked at some day; one beside the sources now."""
        found = {item.title: item for item in run({"tests/certs/ca.key": "x", "deploy/ca.key": "x"}).documents.roadmap}
        assert found["Take files that may hold secrets out of the project"].evidence == ("deploy/ca.key",)
        assert found["Make sure that keys among the tests are good for tests alone"].priority == "P3"

    @pytest.mark.parametrize(
        "path", ["RELEASE-NOTES.txt", "docs/releases/1.0.txt", "00-RELEASENOTES", "doc/whatsnew.rst"]
    )
    def test_a_changelog_has_many_names(self, path: str, run: RunOf) -> None:
        """Release notes by any usual name are a changelog."""
        assert "Keep a changelog" not in titles(run({"a.py": "x = 1\n", path: "1.0\n"}))
