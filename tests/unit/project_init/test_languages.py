"""Languages by name, ending and first line; parts that files play."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.files import survey
from activities.project_init.languages import count_languages, kind_of, language_of
from activities.project_init.roles import belongs_to_project, is_lock_file, is_test_code, role_of


class TestLanguageOf:
    """The language of a file."""

    @pytest.mark.parametrize(
        ("path", "first_line", "language"),
        [
            pytest.param("a/B.PY", "", "Python", id="endings in capitals"),
            pytest.param("Makefile", "", "Makefile", id="a whole name"),
            pytest.param("rules.mk", "", "Makefile", id="a part of a Makefile"),
            pytest.param("Dockerfile.worker", "", "Dockerfile", id="a Dockerfile with a purpose"),
            pytest.param("Dockerfile.dockerignore", "", "Ignore list", id="the ignore list of a Dockerfile"),
            pytest.param("run", "#!/usr/bin/env -S python3 -u", "Python", id="env with options"),
            pytest.param("run", "#! /bin/bash -e", "Shell", id="a shell with options"),
            pytest.param("run", "#!/opt/x/node18", "JavaScript", id="an interpreter with a version"),
            pytest.param("run", "print(1)", None, id="nothing tells"),
            pytest.param(".py", "", None, id="a hidden file is no ending"),
        ],
    )
    def test_is_told_by_name_or_interpreter(self, path: str, first_line: str, language: str | None) -> None:
        """The name decides, and only where it is silent the first line."""
        assert language_of(path, first_line) == language

    def test_every_language_has_a_kind(self) -> None:
        """Programs are told from data and prose."""
        assert [kind_of(name) for name in ("Rust", "HTML", "YAML", "Markdown")] == [
            "programming",
            "markup",
            "data",
            "prose",
        ]


class TestCountLanguages:
    """How much of each there is."""

    def test_counts_files_bytes_and_lines(self, project: Callable[[Mapping[str, str | bytes]], Path]) -> None:
        """Programs come first, the longest before the others."""
        tree = survey(
            project({"a.md": "1\n2\n3\n", "b.py": "1\n", "c.go": "1\n2\n", "tool": "#!/bin/sh\n", "x.bin": b"\0"})
        )
        found = count_languages(tree, tree.listing.files, lambda _: None)
        assert [(each.name, each.files, each.bytes, each.lines) for each in found] == [
            ("Go", 1, 4, 2),
            ("Python", 1, 2, 1),
            ("Shell", 1, 10, 1),
            ("Markdown", 1, 6, 3),
        ]

    def test_how_programs_are_made_comes_after_them(self, project: Callable[[Mapping[str, str | bytes]], Path]) -> None:
        """However long a Makefile is, the project is not written in it."""
        tree = survey(project({"main.c": "1\n", "CMakeLists.txt": "1\n2\n3\n", "Makefile": "1\n2\n", "a.md": "1\n"}))
        found = count_languages(tree, tree.listing.files, lambda _: None)
        assert [each.name for each in found] == ["C", "CMake", "Makefile", "Markdown"]


class TestRoleOf:
    """The part a file plays."""

    @pytest.mark.parametrize(
        ("path", "role"),
        [
            ("src/app.py", "source"),
            ("app/example/main.py", "example"),
            ("src/main/java/org/example/App.java", "source"),
            ("src/test/java/org/example/AppTest.java", "test"),
            ("pkg/route_test.go", "test"),
            ("web/card.spec.tsx", "test"),
            ("tests/fixtures/app/package.json", "test"),
            ("third_party/zlib/z.c", "vendored"),
            ("web/app.min.js", "generated"),
            ("api/user_pb2.py", "generated"),
            ("uv.lock", "generated"),
            ("docs/index.md", "docs"),
            ("latest/app.py", "source"),
            ("contest.py", "source"),
        ],
    )
    def test_is_told_by_the_path(self, path: str, role: str) -> None:
        """Folders and names tell; words inside words do not."""
        assert role_of(path) == role

    def test_manifests_of_test_data_do_not_speak_for_the_project(self) -> None:
        """Only source and lock files count."""
        assert belongs_to_project("web/package.json")
        assert belongs_to_project("go.sum")
        assert not belongs_to_project("tests/data/package.json")
        assert not belongs_to_project("examples/a/Cargo.toml")

    def test_data_that_tests_read_is_no_test(self) -> None:
        """A fixture is not counted as a test."""
        assert is_test_code("tests/test_a.py")
        assert not is_test_code("tests/fixtures/test_a.py")
        assert is_lock_file("a/Cargo.lock")
