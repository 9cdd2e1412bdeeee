"""Technologies, licences, services, task runners, CI, entry points, rules: what detection is put together from."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.entrypoints import find_entry_points
from activities.project_init.files import SourceTree, survey
from activities.project_init.house_rules import find_rules
from activities.project_init.licenses import UNRECOGNISED, find_licenses, is_license_file, names_license, recognise
from activities.project_init.manifests.node import read_package_json
from activities.project_init.records import Manifest
from activities.project_init.runners import ci_files, find_ci, find_tasks
from activities.project_init.services import find_images, find_services, kind_of_image
from activities.project_init.technologies import known_as, technologies_of


@pytest.fixture
def tree_of(project: Callable[[Mapping[str, str | bytes]], Path]) -> Callable[[Mapping[str, str | bytes]], SourceTree]:
    """Return a function that writes a project and surveys it."""
    return lambda files: survey(project(files))


TreeOf = Callable[[Mapping[str, str | bytes]], SourceTree]


class TestTechnologies:
    """Packages worth naming."""

    @pytest.mark.parametrize(
        ("ecosystem", "package", "name"),
        [
            ("python", "psycopg2_binary", "psycopg2"),
            ("python", "Django", "Django"),
            ("python", "opentelemetry-sdk", "OpenTelemetry"),
            ("python", "langchain-core", "LangChain"),
            ("node", "@nestjs/core", "NestJS"),
            ("go", "github.com/labstack/echo/v4", "Echo"),
            ("jvm", "org.springframework.boot:spring-boot-starter", "Spring Boot"),
            ("dotnet", "Microsoft.AspNetCore.Components.Web", "Blazor"),
            ("dotnet", "Microsoft.AspNetCore.Authentication", "ASP.NET"),
            ("rust", "django", None),
        ],
    )
    def test_are_known_by_ecosystem_and_name(self, ecosystem: str, package: str, name: str | None) -> None:
        """The same word in another ecosystem is another package; spelling variants are one."""
        known = known_as(ecosystem, package)
        assert (known[0] if known else None) == name

    def test_the_package_itself_is_better_evidence_than_its_plugins(self) -> None:
        """A family is named by its main package where that is asked for."""
        text = '{"devDependencies": {\n"@testing-library/dom": "1",\n"jest": "2"}, "dependencies": {\n"react": "3"}}'
        found = technologies_of([read_package_json("package.json", text)])
        assert [(each.name, each.version, each.evidence.line) for each in found] == [
            ("Jest", "2", 3),
            ("Testing Library", "", 2),
            ("React", "3", 4),
        ]


class TestLicenses:
    """Licence texts, words and tags."""

    @pytest.mark.parametrize(
        ("text", "spdx"),
        [
            ("Permission is hereby granted, free of charge, to any person obtaining a copy ...", "MIT-0"),
            ("Apache License\n   Version 2.0, January 2004", "Apache-2.0"),
            ("GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007", "GPL-3.0"),
            ("GNU LESSER GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n gnu general public license", "LGPL-3.0"),
            ("GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3", "AGPL-3.0"),
            (
                "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n13. GNU Affero General Public License\n"
                "... consider using the GNU Lesser General Public License instead",
                "GPL-3.0",
            ),
            (
                "Mozilla Public License Version 2.0\n1.12. the GNU General Public License, Version 2.0, the GNU Lesser "
                "General Public License, Version 2.1, the GNU Affero General Public License, Version 3.0",
                "MPL-2.0",
            ),
            ("GNU LIBRARY GENERAL PUBLIC LICENSE\nVersion 2, June 1991\nthe GNU General Public License", "LGPL-2.0"),
            (
                "Redistribution and use in source and binary forms\nThe documentation is licensed under Creative "
                "Commons Attribution-ShareAlike 4.0 International",
                "BSD-2-Clause",
            ),
            ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
            (
                "Redistribution and use in source and binary forms ... may be used to endorse or promote products "
                "derived from this software",
                "BSD-3-Clause",
            ),
            ("This is free and unencumbered software released into the public domain.", "Unlicense"),
            ("You may use this on Sundays.", UNRECOGNISED),
            ("", UNRECOGNISED),
        ],
    )
    def test_a_text_is_recognised_by_its_own_sentences(self, text: str, spdx: str) -> None:
        """Case, line ends and punctuation do not count; a text that is none is not guessed."""
        assert recognise(text) == spdx

    def test_names_tell_licence_texts_from_code(self) -> None:
        """At the top or in LICENSES; a module of that name is code."""
        assert all(is_license_file(path) for path in ("LICENSE", "LICENCE.txt", "COPYING", "LICENSES/MIT.txt"))
        assert not any(is_license_file(path) for path in ("license.py", "pkg/LICENSE", "licensed.md"))

    @pytest.mark.parametrize(
        ("declared", "spdx", "same"),
        [
            ("MIT License", "MIT", True),
            ("MIT OR Apache-2.0", "Apache-2.0", True),
            ("BSD", "BSD-3-Clause", True),
            ("GPL-3.0-or-later", "GPL-3.0", True),
            ("GPL-2.0", "GPL-3.0", False),
            ("Proprietary", "MIT", False),
        ],
    )
    def test_authors_words_are_matched_with_identifiers(self, declared: str, spdx: str, same: bool) -> None:
        """Words and version numbers are compared, not spellings."""
        assert names_license(declared, spdx) is same

    def test_finds_texts_declarations_and_tags(self, tree_of: TreeOf) -> None:
        """Each way of naming is told apart, with its first evidence and how often it occurs."""
        tree = tree_of(
            {
                "LICENSE": "Apache License Version 2.0, January 2004",
                "a.py": "#!/usr/bin/python\n# SPDX-License-Identifier: MIT\n",
                "b.c": "/* SPDX-License-Identifier: MIT */\n",
                "c.py": "# SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0\n",
                "d.md": "SPDX-License-Identifier: ISC\n",
            }
        )
        manifest = Manifest(path="p.toml", ecosystem="python", license="Apache-2.0", license_line=4)
        found = find_licenses(tree, [manifest], lambda _: None)
        assert [(each.source, each.spdx, each.files, str(each.evidence)) for each in found] == [
            ("text", "Apache-2.0", 1, "LICENSE"),
            ("manifest", "Apache-2.0", 1, "p.toml:4"),
            ("header", "MIT", 2, "a.py:2"),
            ("header", "GPL-2.0-only WITH Classpath-exception-2.0", 1, "c.py:1"),
        ]


class TestServices:
    """Compose files and images."""

    @pytest.mark.parametrize(
        ("image", "kind"),
        [
            ("postgres", "database service"),
            ("docker.io/library/mongo:7", "database service"),
            ("registry.example.org:5000/redis@sha256:00", "database service"),
            ("temporalio/server:1.32", "workflow engine service"),
            ("acme/indexer", "service"),
        ],
    )
    def test_an_image_tells_what_it_is_for(self, image: str, kind: str) -> None:
        """Registry, tag and digest do not count; words count whole."""
        assert kind_of_image(image) == kind

    def test_reads_services_of_compose_files(self, tree_of: TreeOf) -> None:
        """Image, ports and line; a service built here is ours."""
        text = 'services:\n  db:\n    image: "postgres:16"\n    ports:\n    - 5432:5432\n  app:\n    build: .\nnets:\n'
        found = find_services(tree_of({"compose.yaml": text, "examples/compose.yaml": text}))
        assert [(each.name, each.category, each.version, str(each.evidence)) for each in found] == [
            ("db", "database service", "postgres:16, ports 5432:5432", "compose.yaml:3"),
            ("app", "own service", "built here", "compose.yaml:6"),
        ]

    def test_reads_images_and_commands_of_container_files(self, tree_of: TreeOf) -> None:
        """Stages built on each other are no base images; continued lines are one instruction."""
        text = 'FROM --platform=$X python:3 AS base\nRUN a \\\n  && b\nFROM base\n# note\nENTRYPOINT ["x"]\nCMD y z\n'
        bases, starts = find_images(tree_of({"Dockerfile": text, "Dockerfile.dockerignore": "FROM z\n"}))
        assert [(each.name, each.evidence.line) for each in bases] == [("python:3", 1)]
        assert [(each.kind, each.target, each.evidence.line) for each in starts] == [
            ("container entry point", '["x"]', 6),
            ("container command", "y z", 7),
        ]

    def test_reads_container_files_as_their_builder_does(self, tree_of: TreeOf) -> None:
        """What continues a line belongs to no word, the last line may be continued, and scripts are no instructions."""
        text = "FROM \\\n  a:1\nRUN <<A python <<-'B'\nFROM x\nA\nCMD no\n\tB\nRUN echo $((1<<2))\n"
        text += "ENTRYPOINT serve\\\n  # note\n --fast \\\n"
        bases, starts = find_images(tree_of({"Dockerfile": text}))
        assert [(each.name, each.evidence.line) for each in bases] == [("a:1", 1)]
        assert [(each.target, each.evidence.line) for each in starts] == [("serve --fast", 9)]


class TestFindTasks:
    """Task runners, read as text."""

    def test_reads_make(self, tree_of: TreeOf) -> None:
        """Targets that a person types: no files, patterns, variables or computed names."""
        text = (
            "X := 1\nY ::= 2\n.PHONY: all a.b\nall: test lint ## everything\n\t@echo hi\n\n# Checks the style\n"
            "lint test:\n\truff\na.b:\nout.o: out.c\n%.o: %.c\n$(X): y\nall: again\n"
        )
        tasks = find_tasks(tree_of({"Makefile": text}))["make"][""]
        assert [(each.name, each.about, each.body, each.evidence.line) for each in tasks] == [
            ("all", "everything", "echo hi", 4),
            ("lint", "Checks the style", "ruff", 8),
            ("test", "Checks the style", "ruff", 8),
            ("a.b", "", "", 10),
        ]

    def test_reads_the_other_runners(self, tree_of: TreeOf) -> None:
        """Just, Task, tox and nox; each by the folder it runs in."""
        tree = tree_of(
            {
                "justfile": "set shell := ['sh']\n# Run it\nrun arg='x': build\n  go run .\nbuild:\n  go build\n",
                "Taskfile.yml": "tasks:\n  test:\n    desc: Run tests\n    cmds:\n      - go test\n  fmt: gofmt\n",
                "tox.ini": "[tox]\nenvlist = py{310,311}, lint\n[testenv:lint]\ncommands = ruff check\n",
                "sub/noxfile.py": 'import nox\n\n@nox.session(name="tests")\ndef t(s):\n    """Run them."""\n',
            }
        )
        tasks = find_tasks(tree)
        found = {
            runner: [(each.name, each.body, each.about) for scripts in folders.values() for each in scripts]
            for runner, folders in tasks.items()
        }
        assert found == {
            "just": [("run", "go run .", "Run it"), ("build", "go build", "")],
            "task": [("test", "go test", "Run tests"), ("fmt", "gofmt", "")],
            "tox": [("lint", "ruff check", "")],
            "nox": [("tests", "", "Run them.")],
        }
        assert list(tasks["nox"]) == ["sub"]

    def test_broken_files_have_no_tasks(self, tree_of: TreeOf) -> None:
        """What cannot be read declares nothing."""
        assert find_tasks(tree_of({"tox.ini": "x", "noxfile.py": "def (", "tox.toml": "=", "Makefile": "\0"})) == {}


class TestFindCi:
    """What continuous integration runs."""

    def test_reads_steps_of_several_services(self, tree_of: TreeOf) -> None:
        """Commands come as written, each once, under their job."""
        tree = tree_of(
            {
                ".github/workflows/a.yml": "jobs:\n  test:\n    steps:\n    - run: make test\n    - run: make test\n",
                ".gitlab-ci.yml": "lint:\n  script:\n    - ruff check\n    - mypy\n",
                ".ci/run": "#!/bin/sh\n",
            }
        )
        assert [(each.name, each.body, str(each.evidence)) for each in find_ci(tree)] == [
            ("lint", "ruff check", ".gitlab-ci.yml:3"),
            ("lint", "mypy", ".gitlab-ci.yml:4"),
            ("test", "make test", ".github/workflows/a.yml:4"),
        ]
        assert ".ci/run" in ci_files(tree)


class TestFindEntryPoints:
    """Where programs start."""

    def test_finds_them_in_sources(self, tree_of: TreeOf) -> None:
        """Main modules, functions and scripts; modules of a package that demonstrate themselves are none."""
        main = 'if __name__ == "__main__":\n    pass\n'
        tree = tree_of(
            {
                "src/app/__init__.py": "",
                "src/app/__main__.py": "",
                "src/app/demo.py": main,
                "serve.py": "import x\n" + main,
                "cmd/a/main.go": "package main\n\nfunc main() {\n}\n",
                "lib/main.go": "package lib\n\nfunc main() {\n}\n",
                "bin/setup": "#!/bin/bash\n",
                "main.c": "int main(void) { return 0; }\n",
                "tests/run.py": main,
            }
        )
        found, left = find_entry_points(tree, [], lambda _: None)
        assert [(each.name, each.kind, str(each.evidence)) for each in found] == [
            ("main.c", "binary", "main.c:1"),
            ("serve.py", "script", "serve.py:2"),
            ("bin/setup", "script", "bin/setup"),
            ("cmd/a", "binary", "cmd/a/main.go:3"),
            ("app", "main module", "src/app/__main__.py"),
        ]
        assert left == 0

    def test_a_name_with_a_space_can_be_typed(self, tree_of: TreeOf) -> None:
        """What starts a script is a line for the shell."""
        tree = tree_of({"my tool.py": 'if __name__ == "__main__":\n    pass\n'})
        found, _ = find_entry_points(tree, [], lambda _: None)
        assert [each.target for each in found] == ["python 'my tool.py'"]


class TestFindRules:
    """Rules that tool settings state."""

    def test_reads_settings_with_their_lines(self, tree_of: TreeOf) -> None:
        """Each rule is a sentence with its place."""
        tree = tree_of(
            {
                "pyproject.toml": "[tool.black]\nline-length = 88\n[tool.coverage.report]\nfail_under = 90\n",
                ".editorconfig": "[*.md]\nindent_style = tab\n[*]\nindent_style = space\nindent_size = 2\n",
                "tsconfig.json": '{"compilerOptions": {"strict": true}}',
                ".prettierrc": '{"printWidth": 90}',
                "rustfmt.toml": "max_width = 99\n",
                "ruff.toml": "line-length = [",
                ".pre-commit-config.yaml": "repos:\n- hooks:\n  - id: ruff\n  - id: mypy\n",
            }
        )
        runtime = Manifest(path="pyproject.toml", ecosystem="python", runtime="Python >=3.11", runtime_line=1)
        assert [f"{rule} ({evidence})" for rule, evidence in find_rules(tree, (runtime,))] == [
            "Python >=3.11 (pyproject.toml:1)",
            "Lines have at most 88 characters (Black) (pyproject.toml:2)",
            "Coverage stays at 90% or above (pyproject.toml:4)",
            "TypeScript is strict (tsconfig.json:1)",
            "Lines have at most 90 characters (Prettier) (.prettierrc:1)",
            "Indentation is 2 spaces (.editorconfig:4)",
            "Lines have at most 99 characters (rustfmt) (rustfmt.toml:1)",
            "pre-commit hooks must pass: ruff, mypy (.pre-commit-config.yaml)",
        ]
