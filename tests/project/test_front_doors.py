"""How even the front doors are: what `dir` lists, one shape for lists, one way to JSON, one module for a name."""

import ast
import inspect
import re
import tomllib
from collections.abc import AsyncIterator, Iterator
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import BaseModel

import baton
from baton.client import Operation

ROOT = Path(__file__).parents[2]
CLIENT: Any = import_module("baton.client")  # type checkers see no `__all__` in it
FACES: Any = import_module("baton.client.faces")
EXPORTS = {name: getattr(CLIENT, name) for name in CLIENT.__all__}
FIRST_PAGES = ("README.md", "docs/*.md", "examples/*.py", "baton/new/templates/*/**/*.jinja", "workflows/*.py")

# Settings that a program writes, a text of its own (`str(cursor)`), and two that act for agents outside.
NOT_READ = {
    *("Connection", "RunFilter", "LedgerOptions", "VaultOptions", "Cursor", "HandoffTools", "OutsideAgents"),
    *("Access", "Caller", "Offer", "Orders", "ServiceParts"),
}


def imported(text: str, module: str) -> Iterator[str]:
    """Yield the names that a text imports from a module."""
    for names in re.findall(rf"^\s*from {re.escape(module)} import (\([^)]*\)|[^\n]*)", text, re.MULTILINE):
        yield from re.findall(r"\w+", re.sub(r"#.*| as \w+", "", names))


def used_in(module: str, *patterns: str) -> set[str]:
    """Return the names that files of the checkout import from a module."""
    files = [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    return {name for path in files for name in imported(path.read_text(encoding="utf-8"), module)}


class TestBaseInstall:
    """What `pip install temporal-baton` brings without an extra."""

    def test_the_library_itself_imports_each_package(self) -> None:
        """What only a face, the embedded server or the project maker needs is in their extras."""
        faces_only = {"cli", "console", "devserver", "new"}
        files = [path for path in ROOT.glob("baton/**/*.py") if path.relative_to(ROOT).parts[1] not in faces_only]
        imports = [
            node
            for path in files
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = [node.module or "" for node in imports if isinstance(node, ast.ImportFrom)]
        names += [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
        homes = packages_distributions()
        packages = {canonicalize_name(home) for name in names for home in homes.get(name.partition(".")[0], ())}
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        required = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}

        assert required - packages == set()
        assert required & {"typer", "rich", "starlette", "uvicorn", "jinja2", "copier"} == set()


class TestBaton:
    """The front door itself."""

    def test_dir_lists_what_a_first_pipeline_needs(self) -> None:
        """Not the modules that were loaded meanwhile, nor the names for later; README and tutorial find theirs."""
        listed = {*dir(baton)} - {"__version__"}

        assert listed < {*baton.__all__}
        assert used_in("baton", "README.md", "docs/tutorial.md", "baton/new/templates/*/**/*.jinja") <= listed
        assert len(listed) <= 32

    def test_what_dir_lists_is_shown_to_readers(self) -> None:
        """A name that no page and no example needs is for later."""
        mentioned = {
            name
            for pattern in FIRST_PAGES
            for path in ROOT.glob(pattern)
            if path.is_file()
            for name in re.findall(r"\w+", path.read_text(encoding="utf-8"))
        }
        assert {*dir(baton)} - {"__version__"} - mentioned == set()


class TestClient:
    """What services call."""

    def test_its_page_lists_every_name_by_what_it_is_for(self) -> None:
        """The table of its docstring opens its page of the reference."""
        table = re.findall(r"(?m)^\| .* \|$", inspect.getdoc(CLIENT) or "")
        names = [name for row in table for name in re.findall(r"`(\w+)`", row)]

        assert sorted(names) == CLIENT.__all__

    def test_each_name_is_in_one_of_its_two_modules_and_the_faces_use_theirs(self) -> None:
        """A name of `faces` that neither command nor console imports is nobody's."""
        used = used_in("baton.client.faces", "baton/cli/**/*.py", "baton/console/**/*.py")

        assert {*CLIENT.__all__} & {*FACES.__all__} == set()
        assert {*FACES.__all__} == used

    def test_lists_are_async_iterators_with_an_optional_limit(self) -> None:
        """One shape for runs, questions, approvals and charges; `follow` ends when the run does."""
        functions = {name: value for name, value in EXPORTS.items() if inspect.isfunction(value)}
        returned = {name: get_origin(get_type_hints(value)["return"]) for name, value in functions.items()}
        lists = {name for name, value in functions.items() if inspect.isasyncgenfunction(value)} - {"follow"}
        limits = {name: inspect.signature(functions[name]).parameters["limit"] for name in lists}

        assert {name for name, kind in returned.items() if kind in (list, tuple, set)} == set()
        assert lists == {"list_runs", "inbox", "open_approvals", "read_charges"}
        assert {returned[name] for name in lists} == {AsyncIterator}
        assert {(limit.kind, limit.default) for limit in limits.values()} == {(inspect.Parameter.KEYWORD_ONLY, None)}

    def test_every_record_has_the_same_way_to_json(self) -> None:
        """What a program reads, it can hand on."""
        records: dict[str, Any] = {
            name: kind
            for name, kind in EXPORTS.items()
            if isinstance(kind, type)
            and (is_dataclass(kind) or issubclass(kind, BaseModel))
            and not issubclass(kind, Operation | Enum | Exception)
        }
        assert {name for name, kind in records.items() if not hasattr(kind, "to_json_object")} == NOT_READ
        assert len(records) > 30

    def test_no_face_spells_the_json_of_a_record_itself(self) -> None:
        """`--json` and the console's JSON are the record's own."""
        other = {"model_dump", "asdict", "to_jsonable_python"}
        found = {
            f"{path.relative_to(ROOT)}:{node.lineno}"
            for room in ("cli", "console")
            for path in (ROOT / "baton" / room).glob("**/*.py")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in other
        }
        assert found == set()
