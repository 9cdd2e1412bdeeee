"""How code hangs together: imports of each language, circles, notes, areas."""

import ast
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.areas import find_areas
from activities.project_init.detect import detect
from activities.project_init.files import survey
from activities.project_init.imports import (
    Crates,
    PythonModules,
    java_classes,
    python_imports,
    rust_imports,
    script_imports,
)
from activities.project_init.structure import Structure, cycles, find_notes, read_structure


@pytest.fixture
def structure_of(
    project: Callable[[Mapping[str, str | bytes]], Path],
) -> Callable[[Mapping[str, str | bytes]], Structure]:
    """Return a function that writes a project and reads its structure."""

    def read(files: Mapping[str, str | bytes]) -> Structure:
        tree = survey(project(files))
        return read_structure(tree, detect(tree), lambda _: None)

    return read


StructureOf = Callable[[Mapping[str, str | bytes]], Structure]


class TestPythonModules:
    """The names by which files can be imported."""

    @pytest.mark.parametrize(
        ("paths", "name", "path"),
        [
            pytest.param(["src/app/cli.py", "src/app/__init__.py"], "app.cli", "src/app/cli.py", id="src"),
            pytest.param(["app/cli.py"], "app.cli", "app/cli.py", id="a folder without __init__"),
            pytest.param(["lib/py/app/__init__.py"], "app", "lib/py/app/__init__.py", id="above the topmost package"),
            pytest.param(["a-b/c.py"], "a-b.c", None, id="no name can have a dash"),
            pytest.param(["a.py", "src/a.py"], "a", "a.py", id="the less deep of two"),
        ],
    )
    def test_are_found_from_the_usual_roots(self, paths: list[str], name: str, path: str | None) -> None:
        """Top, `src`, and the folder above a chain of packages."""
        assert PythonModules(paths).path_of(name) == path

    def test_requirements_make_no_place_to_import_from_of_a_package(self) -> None:
        """The package's `langgraph.py` is not what `import langgraph` means; beside plain files it is."""
        paths, requirements = ["peers/__init__.py", "peers/langgraph.py"], ("peers/requirements.txt",)
        assert PythonModules(paths, requirements).path_of("langgraph") is None
        assert PythonModules(paths[1:], requirements).path_of("langgraph") == "peers/langgraph.py"

    def test_know_the_package_that_the_folder_itself_is(self) -> None:
        """An installed package can be analysed alone, under its own name."""
        modules = PythonModules(["__init__.py", "text.py"], (), "rich")
        assert (modules.path_of("rich.text"), modules.path_of("rich")) == ("text.py", "__init__.py")


class TestPythonImports:
    """What a file imports, through its syntax tree."""

    FILES = ("app/__init__.py", "app/a.py", "app/b.py", "app/sub/__init__.py", "app/sub/c.py")

    @pytest.mark.parametrize(
        ("code", "inside"),
        [
            ("import app.b", {"app/b.py"}),
            ("from app import b", {"app/b.py"}),
            ("from app.b import name", {"app/b.py"}),
            ("from . import b", {"app/b.py"}),
            ("from .b import name", {"app/b.py"}),
            ("from .sub import c", {"app/sub/c.py"}),
            ("from .sub.c import x", {"app/sub/c.py"}),
            ("from app import missing", {"app/__init__.py"}),
            ("from . import missing", {"app/__init__.py"}),
            ("import app.a", set[str]()),
            ("from .... import x", set[str]()),
        ],
    )
    def test_lead_to_files(self, code: str, inside: set[str]) -> None:
        """Absolute and relative imports find the module, or the package that would define the name."""
        assert python_imports("app/a.py", ast.parse(code), PythonModules(list(self.FILES))).inside == inside

    def test_tell_what_is_imported_at_the_start(self) -> None:
        """Functions, type checkers and the main block wait; the standard library is not outside."""
        code = (
            "import os, numpy.linalg\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import app.b\n"
            "try:\n    import app\nexcept ImportError:\n    pass\ndef f():\n    import app.sub.c\n"
            "if __name__ == '__main__':\n    import app.sub\n"
        )
        found = python_imports("app/a.py", ast.parse(code), PythonModules(list(self.FILES)))
        assert found.at_start == {"app/__init__.py"}
        assert found.inside == {"app/__init__.py", "app/b.py", "app/sub/c.py", "app/sub/__init__.py"}
        assert found.outside == {"numpy"}


class TestOtherImports:
    """What files of other languages import, by their import lines."""

    def test_javascript(self, project: Callable[[Mapping[str, str | bytes]], Path]) -> None:
        """Relative paths and `@/` lead inside, with the ending that is there; Node's own modules are no packages."""
        tree = survey(project(dict.fromkeys(["src/a.ts", "src/b/index.tsx", "src/c.ts", "d.vue", "src/e.js"], "")))
        code = (
            "import { x } from './b';\nimport './c.js'\nexport * from \"../d\";\nconst e = require('@/e');\n"
            "import y from '@scope/pkg/deep'; import('lodash/fp'); import fs from 'fs'; import 'node:path'\n"
            "import z from './gone'"
        )
        found = script_imports("src/a.ts", code, tree, {})
        assert found.inside == {"src/b/index.tsx", "src/c.ts", "d.vue", "src/e.js"}
        assert found.outside == {"@scope/pkg", "lodash"}

    def test_javascript_of_a_monorepo(self, structure_of: StructureOf) -> None:
        """A package of the project leads inside by its name, though what its manifest names is still to be built."""
        code = (
            "import { Button } from '@acme/ui'\nimport x from '@acme/ui/icons'\nimport y from 'tools'\nimport 'react'\n"
        )
        files = {
            "package.json": '{"name": "acme", "workspaces": ["apps/*", "packages/*"]}',
            "apps/web/package.json": '{"name": "@acme/web", "dependencies": {"@acme/ui": "workspace:*"}}',
            "apps/web/page.tsx": code,
            "packages/ui/package.json": '{"name": "@acme/ui", "main": "dist/index.js"}',
            "packages/ui/src/index.ts": "export {}\n",
            "packages/ui/src/icons.tsx": "export {}\n",
            "packages/tools/package.json": '{"name": "tools", "main": "./lib/start.js"}',
            "packages/tools/lib/start.js": "module.exports = {}\n",
            "examples/react/package.json": '{"name": "react"}',
        }
        found = structure_of(files).modules["apps/web/page.tsx"].imports
        assert found.inside == {"packages/ui/src/index.ts", "packages/ui/src/icons.tsx", "packages/tools/lib/start.js"}
        assert found.outside == {"react"}

    def test_rust(self, project: Callable[[Mapping[str, str | bytes]], Path]) -> None:
        """Declared modules and used paths."""
        tree = survey(project(dict.fromkeys(["src/main.rs", "src/a.rs", "src/b/mod.rs", "src/b/c.rs"], "")))
        assert rust_imports("src/main.rs", "mod a;\npub mod b;\nuse crate::b::c::X;", tree, Crates()).inside == {
            "src/a.rs",
            "src/b/mod.rs",
            "src/b/c.rs",
        }

    def test_rust_crates(self, structure_of: StructureOf) -> None:
        """Those of the workspace lead inside, declared ones outside; a module of the file and a comment are neither."""
        files = {
            "Cargo.toml": '[workspace]\nmembers = ["crates/*"]\n[workspace.dependencies]\nserde_json = "1"\n',
            "crates/tally-core/Cargo.toml": '[package]\nname = "tally-core"\n[dependencies]\nserde_json = "1"\n',
            "crates/tally-core/src/lib.rs": "pub mod count;\n",
            "crates/tally-core/src/count.rs": "pub fn go(text: &str) { serde_json::from_str(text); }\n",
            "crates/app/Cargo.toml": '[package]\nname = "app"\n[dependencies]\ntokio = "1"\nlog = "0.4"\n'
            'tally-core = { path = "../tally-core" }\n',
            "crates/app/src/main.rs": "// log::info\nuse std::fs;\nuse tally_core::count::{go, stop};\n"
            "use tally_core::Total;\nuse Colour::*;\n#[tokio::main]\nasync fn main() {}\n",
        }
        modules = structure_of(files).modules
        main = modules["crates/app/src/main.rs"].imports
        assert main.inside == {"crates/tally-core/src/count.rs", "crates/tally-core/src/lib.rs"}
        assert main.outside == {"tokio"}
        assert modules["crates/tally-core/src/count.rs"].imports.outside == {"serde_json"}

    def test_java(self) -> None:
        """Qualified names follow the folders below the source root."""
        assert java_classes(["app/src/main/java/org/x/A.java", "src/B.java", "README.md"]) == {
            "org.x.A": "app/src/main/java/org/x/A.java",
            "B": "src/B.java",
        }

    def test_go_and_java_connect(self, structure_of: StructureOf) -> None:
        """An import of a package of the project leads to its folder, one of a class to its file."""
        structure = structure_of(
            {
                "go.mod": "module x.org/a\n",
                "main.go": 'package main\nimport (\n\t"fmt"\n\tr "x.org/a/route"\n\t"y.org/b/c/d"\n)\n',
                "route/r.go": "package route\n",
                "src/main/java/x/A.java": "import x.y.B;\nimport java.util.List;\n",
                "src/main/java/x/y/B.java": "",
            }
        )
        assert structure.modules["main.go"].imports.inside == {"route"}
        assert structure.modules["main.go"].imports.outside == {"y.org/b/c"}
        assert structure.modules["src/main/java/x/y/B.java"].importers == {"src/main/java/x/A.java"}


class TestReadStructure:
    """The modules as a whole."""

    def test_reads_docstrings_lengths_and_faults(self, structure_of: StructureOf) -> None:
        """A file that cannot be parsed is a finding; a long function is measured with its lines."""
        structure = structure_of(
            {
                "a.py": '"""First line.\n\nMore."""\n\n\ndef long():\n' + "    x = 1\n" * 90 + "class C:\n    pass\n",
                "b.py": "def (",
                "gen_pb2.py": "x = 1\n",
                "t/test_a.py": "import a\n",
            }
        )
        assert structure.modules["a.py"].about == "First line."
        assert structure.modules["a.py"].documented == (0, 2)
        assert structure.modules["a.py"].importers == {"t/test_a.py"}
        assert structure.modules["b.py"].problem.startswith("not Python")
        assert "gen_pb2.py" not in structure.modules
        assert [(each.name, each.line, each.lines) for each in structure.long_functions] == [("long", 6, 91)]


class TestFindNotes:
    """TODO and its kin."""

    @pytest.mark.parametrize(
        ("text", "language", "notes"),
        [
            pytest.param("x = 1  # TODO: a\n", "Python", [(1, "TODO", "a")], id="a Python comment"),
            pytest.param('x = "# TODO: a"\n', "Python", [], id="a Python string is no comment"),
            pytest.param("# FIXME(ann): b\nx = (", "Python", [(1, "FIXME", "b")], id="before a syntax error"),
            pytest.param("// HACK b */\n", "Go", [(1, "HACK", "b")], id="slashes"),
            pytest.param(" * XXX c\n", "Java", [(1, "XXX", "c")], id="a line of a block"),
            pytest.param("-- TODO d\n", "SQL", [(1, "TODO", "d")], id="dashes"),
            pytest.param('let x = "TODO";\n', "Rust", [], id="no comment"),
            pytest.param("# TODOS\n", "Shell", [], id="another word"),
            pytest.param("/* using help XXX, we init it */\n", "C", [], id="a placeholder in a sentence"),
            pytest.param("/* 'HTTP/1.? XXX' or */\n", "C", [], id="a placeholder in a quotation"),
            pytest.param("x(); // see below, TODO: e\n", "C", [(1, "TODO", "e")], id="later, but marked"),
        ],
    )
    def test_are_found_in_comments_alone(self, text: str, language: str, notes: list[tuple[int, str, str]]) -> None:
        """The word must stand in a comment of the language."""
        assert [(each.line, each.word, each.text) for each in find_notes("x", text, language)] == notes


class TestCycles:
    """Files that import each other."""

    def test_are_found_whole_and_apart(self, structure_of: StructureOf) -> None:
        """Each circle is one group; a file that only leads into one is in none."""
        structure = structure_of(
            {
                "a.py": "import b",
                "b.py": "import c",
                "c.py": "import a\nimport x",
                "d.py": "import a",
                "x.py": "import y",
                "y.py": "import x",
            }
        )
        assert cycles(structure) == [["a.py", "b.py", "c.py"], ["x.py", "y.py"]]

    def test_late_imports_and_packages_of_their_own_parts_are_none(self, structure_of: StructureOf) -> None:
        """Only what happens when a file is imported counts."""
        structure = structure_of(
            {
                "p/__init__.py": "from p import a",
                "p/a.py": "import p\nimport p.b",
                "p/b.py": "def f():\n    import p.a\n",
            }
        )
        assert cycles(structure) == []

    def test_a_chain_of_thousands_needs_no_recursion(self, structure_of: StructureOf) -> None:
        """Depth costs memory, not the stack."""
        files = {f"m{number}.py": f"import m{(number + 1) % 1500}" for number in range(1500)}
        assert [len(group) for group in cycles(structure_of(files))] == [1500]


class TestFindAreas:
    """Folders as parts."""

    def test_large_folders_are_cut_again(self, structure_of: StructureOf) -> None:
        """A project that is one package is shown by its subpackages, with the imports between them."""
        files = {f"src/app/core/m{number}.py": "" for number in range(6)}
        files |= {f"src/app/web/m{number}.py": f"from app.core import m{number}" for number in range(6)}
        areas = find_areas(structure_of({**files, "setup.py": "", "tests/test_a.py": "import app.core.m1"}))
        assert areas.files == {"": 1, "src/app/core": 6, "src/app/web": 6}
        assert areas.edges == {("src/app/web", "src/app/core"): 6}
