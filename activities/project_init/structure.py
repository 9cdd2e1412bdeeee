"""How a project's Python hangs together: what imports what, import circles, long functions, open notes.

Of other languages the files and their lengths are known, and their TODO comments.
"""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from activities.languages import language_of
from activities.project_init.files import Progress, SourceTree, role_of

LONG_FUNCTION = 80
"""Lines from which on a function counts as long."""

_MOST_MODULES = 5_000
_NOTE = re.compile(r"(?:#|//|/\*|--|<!--)\s*(TODO|FIXME|XXX|HACK)\b[:(]?\s*(.{0,120})")


@dataclass
class Module:
    """One file of code."""

    path: str
    language: str
    lines: int
    about: str = ""
    imports: set[str] = field(default_factory=set)
    importers: set[str] = field(default_factory=set)
    undocumented: int = 0
    problem: str = ""


@dataclass
class Structure:
    """The modules of a project by path, and what was seen in them as `path:line text`."""

    modules: dict[str, Module] = field(default_factory=dict)
    long_functions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def source(self) -> list[Module]:
        """The modules that are neither tests nor examples."""
        return [each for each in self.modules.values() if role_of(each.path) == "source"]

    def circles(self) -> list[list[str]]:
        """Return import circles among the source modules, at most ten; breaking one may show another."""
        graph = {one.path: {*one.imports} for one in self.source if not one.path.endswith("__init__.py")}
        graph = {path: targets & graph.keys() for path, targets in graph.items()}
        found: list[list[str]] = []
        while len(found) < 10:
            try:
                TopologicalSorter({path: sorted(graph[path]) for path in sorted(graph)}).prepare()
                break
            except CycleError as error:
                circle: list[str] = error.args[1][:-1]
                found.append(sorted(circle))
                for path in circle:
                    graph[path] -= {*circle}
        return found

    def between_folders(self) -> Counter[tuple[str, str]]:
        """Return how often source modules of one folder import modules of another."""
        edges = Counter[tuple[str, str]]()
        for module in self.source:
            for target in module.imports:
                ends = module.path.rpartition("/")[0], target.rpartition("/")[0]
                if ends[0] != ends[1]:
                    edges[ends] += 1
        return edges

    def untested(self, tests: tuple[str, ...]) -> list[Module]:
        """Return the Python modules that no test imports, by itself or through others, the longest first."""
        waiting, touched = [path for path in tests if path in self.modules], set[str]()
        while waiting:
            targets = self.modules[waiting.pop()].imports - touched
            touched |= targets
            waiting += [path for path in targets if path in self.modules]
        found = [one for one in self.source if one.language == "Python" and one.path not in touched and one.lines > 15]
        return sorted(found, key=lambda one: (-one.lines, one.path)) if touched else []


def read_structure(tree: SourceTree, progress: Progress | None = None) -> Structure:
    """Read every file of code once and connect the Python modules by their imports."""
    report, structure = progress or (lambda _: None), Structure()
    code = [
        (file, found[0])
        for file in tree.listing.files
        if file.kind == "text"
        and (found := language_of(file.path)) is not None
        and found[1] == "programming"
        and role_of(file.path) not in ("generated", "vendored")
    ]
    names = _importable([file.path for file, language in code if language == "Python"])
    for number, (file, language) in enumerate(code[:_MOST_MODULES]):
        if number % 100 == 0:
            report(f"structure: {number} of {len(code)} modules")
        text = tree.text(file.path)
        if text is None:
            continue
        module = structure.modules[file.path] = Module(file.path, language, file.lines)
        for line, words in enumerate(text.split("\n"), 1):
            if note := _NOTE.search(words[:1000]):
                structure.notes.append(f"{file.path}:{line} {note[1]}: {note[2].strip()}")
        if language == "Python":
            _read_python(module, text, names, structure)
    for module in structure.modules.values():
        for target in module.imports & structure.modules.keys():
            structure.modules[target].importers.add(module.path)
    return structure


def parse_python(text: str) -> ast.Module:
    """Return the syntax tree of a Python text.

    Raises:
        ValueError: It is not Python, or nested too deeply.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError("nested too deeply") from None


def _importable(paths: list[str]) -> dict[str, str]:
    """Return the Python files by the names that they can be imported by: from the top, or from below `src`."""
    names: dict[str, str] = {}
    for path in paths:
        stem = path.removesuffix(".pyi").removesuffix(".py").removesuffix("/__init__")
        names.setdefault(stem.replace("/", "."), path)
        if "src/" in f"/{stem}".rpartition("/")[0] + "/":
            names.setdefault(stem.rpartition("src/")[2].replace("/", "."), path)
    return names


def _read_python(module: Module, text: str, names: dict[str, str], structure: Structure) -> None:
    try:
        parsed = parse_python(text)
    except ValueError as error:
        module.problem = str(error)
        return
    module.about = (ast.get_docstring(parsed) or "").strip().split("\n")[0]
    module.imports = {names[name] for name in _imported(module.path, parsed) if name in names} - {module.path}
    for node in ast.walk(parsed):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            module.undocumented += not node.name.startswith("_") and ast.get_docstring(node) is None
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if not isinstance(node, ast.ClassDef) and length > LONG_FUNCTION and role_of(module.path) == "source":
                structure.long_functions.append(f"{module.path}:{node.lineno} {node.name} ({length} lines)")


def _imported(path: str, parsed: ast.Module) -> Iterator[str]:
    """Yield every name that a module may import: modules, and what is imported from them."""
    package = path.split("/")[:-1]
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
