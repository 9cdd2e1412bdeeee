"""How a project's code hangs together: its modules, what imports what, cycles, long functions, open notes.

Python is read through its syntax tree; JavaScript, TypeScript, Go, Java and Rust through their import lines.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field

from activities.project_init.files import SourceTree
from activities.project_init.imports import (
    Crates,
    Imports,
    PythonModules,
    ScriptPackage,
    go_imports,
    java_classes,
    java_imports,
    python_imports,
    rust_imports,
    script_imports,
)
from activities.project_init.languages import kind_of, language_of_file
from activities.project_init.listing import Progress
from activities.project_init.parsing import UnreadableError, parse_python, string
from activities.project_init.records import SourceFile, TechStack
from activities.project_init.roles import Role, holds_rust_tests, role_of

LONG_FUNCTION = 80
"""Lines from which on a Python function counts as long."""

_MOST_MODULES = 5000
IMPORTS_READ = ("Python", "JavaScript", "TypeScript", "Vue", "Svelte", "Go", "Java", "Kotlin", "Scala", "Rust")
"""Languages whose imports are read; of the others nothing is known about what depends on what."""

_NOTE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?:\([^)]{0,60}\))?[:\s-]*(.{0,200})")
_NOTE_START = re.compile(r"(?:[#/*;%!-]|<!--)[\s@*-]{0,80}$")
_HASH = re.compile("#")
_COMMENT_STARTS = {
    **dict.fromkeys(("Python", "Shell", "Ruby", "Perl", "R", "Elixir", "Makefile", "Dockerfile", "CMake"), _HASH),
    "HCL": re.compile("#|//"),
    "PHP": re.compile(r"#|//|/\*|^\s*\*"),
    "SQL": re.compile(r"--|/\*"),
    "Lua": re.compile("--"),
    "Haskell": re.compile(r"--|\{-"),
    "Erlang": re.compile("%"),
    "Clojure": re.compile(";"),
}
_USUAL_COMMENT_START = re.compile(r"//|/\*|^\s*\*|<!--")


@dataclass(frozen=True)
class LongFunction:
    """A function that is longer than `LONG_FUNCTION` lines."""

    path: str
    line: int
    name: str
    lines: int


@dataclass(frozen=True)
class Note:
    """A TODO, FIXME, XXX or HACK comment."""

    path: str
    line: int
    word: str
    text: str


@dataclass
class Module:
    """One file of code.

    Attributes:
        path: The file.
        language: What it is written in.
        role: Its part in the project.
        lines: Its length.
        about: First line of its module docstring, for Python.
        imports: What it imports.
        importers: Files of the project that import it.
        documented: Public definitions with a docstring, and all public definitions; Python only.
        has_own_tests: Whether tests stand in the file itself, as in Rust.
        problem: Why it could not be parsed, or "".
    """

    path: str
    language: str
    role: Role
    lines: int
    about: str = ""
    imports: Imports = field(default_factory=Imports)
    importers: set[str] = field(default_factory=set)
    documented: tuple[int, int] = (0, 0)
    has_own_tests: bool = False
    problem: str = ""


@dataclass
class Structure:
    """The modules of a project by path, and what was seen while reading them.

    Attributes:
        modules: In the listing's order.
        long_functions: Longest first.
        notes: In the listing's order.
        unread: Files of code that a limit kept from being read.
    """

    modules: dict[str, Module] = field(default_factory=dict)
    long_functions: list[LongFunction] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    unread: int = 0


def read_structure(tree: SourceTree, stack: TechStack, progress: Progress) -> Structure:
    """Read every file of code once and connect them by their imports.

    Args:
        tree: The surveyed project.
        stack: What was detected; its manifests tell where packages and modules are rooted.
        progress: Called every hundred files; raising from it stops the work.
    """
    structure = Structure()
    readers = _Readers(tree, stack)
    for file in tree.listing.files:
        language = language_of_file(tree, file)
        if language is None or kind_of(language) != "programming" or role_of(file.path) in ("generated", "vendored"):
            continue
        if len(structure.modules) >= _MOST_MODULES or (text := tree.text(file.path)) is None:
            structure.unread += 1
            continue
        if len(structure.modules) % 100 == 0:
            progress(f"structure: {len(structure.modules)} modules")
        module = readers.read(file, language, text, structure)
        structure.modules[file.path] = module
        structure.notes.extend(find_notes(file.path, text, language))
    _connect(structure)
    structure.long_functions.sort(key=lambda each: (-each.lines, each.path, each.line))
    return structure


class _Readers:
    """Reads one file at a time, knowing the names that the whole project can be imported by."""

    def __init__(self, tree: SourceTree, stack: TechStack) -> None:
        paths = list(tree.by_path)
        manifests = tuple(each.path for each in stack.manifests if each.ecosystem == "python")
        self._tree = tree
        self._python = PythonModules(paths, manifests, tree.listing.name)
        self._classes = java_classes(paths)
        self._scripts = {
            each.name: ScriptPackage(
                each.path.rpartition("/")[0],
                tuple(entry.target for entry in each.entry_points if entry.kind == "library entry"),
            )
            for each in stack.manifests
            if each.ecosystem == "node" and each.name
        }
        rust = [each for each in stack.manifests if each.ecosystem == "rust"]
        self._crates = Crates(
            {each.name.replace("-", "_"): each.path.rpartition("/")[0] for each in rust if each.name},
            frozenset(wanted.name.replace("-", "_") for each in rust for wanted in each.dependencies),
        )
        self._go = {each.name: each.path.rpartition("/")[0] for each in stack.manifests if each.ecosystem == "go"}

    def read(self, file: SourceFile, language: str, text: str, structure: Structure) -> Module:
        module = Module(file.path, language, role_of(file.path), file.lines)
        if language == "Python":
            self._read_python(module, text, structure)
        elif language in ("JavaScript", "TypeScript", "Vue", "Svelte"):
            module.imports = script_imports(file.path, text, self._tree, self._scripts)
        elif language == "Go":
            module.imports = go_imports(file.path, text, self._tree, self._go)
        elif language in ("Java", "Kotlin", "Scala"):
            module.imports = java_imports(file.path, text, self._classes)
        elif language == "Rust":
            module.imports = rust_imports(file.path, text, self._tree, self._crates)
            module.has_own_tests = holds_rust_tests(text)
        return module

    def _read_python(self, module: Module, text: str, structure: Structure) -> None:
        try:
            parsed = parse_python(text)
        except UnreadableError as error:
            module.problem = str(error)
            return
        module.about = string((ast.get_docstring(parsed) or "").strip().split("\n")[0])
        module.imports = python_imports(module.path, parsed, self._python)
        module.has_own_tests = ">>> " in text
        public = with_docstring = 0
        for node in ast.walk(parsed):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not node.name.startswith("_"):
                    public += 1
                    with_docstring += ast.get_docstring(node) is not None
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if not isinstance(node, ast.ClassDef) and length > LONG_FUNCTION:
                    structure.long_functions.append(LongFunction(module.path, node.lineno, node.name, length))
        module.documented = (with_docstring, public)


def find_notes(path: str, text: str, language: str) -> list[Note]:
    """Return the TODO, FIXME, XXX and HACK comments of a text.

    In Python comments are told from strings exactly; elsewhere the word must stand behind something that
    starts a comment in the language.

    Example:
        >>> [(note.line, note.word, note.text) for note in find_notes("a.py", "x = 1  # TODO: name it", "Python")]
        [(1, 'TODO', 'name it')]
    """
    if not any(word in text for word in ("TODO", "FIXME", "XXX", "HACK")):
        return []
    start = _COMMENT_STARTS.get(language, _USUAL_COMMENT_START)
    comments = _python_comments(text) if language == "Python" else list(enumerate(text.split("\n"), 1))
    notes: list[Note] = []
    for number, line in comments:
        found = _NOTE.search(line[:1000])
        if found and start.search(line[: found.start()]) and _is_note(line, found):
            words = " ".join(found[2].split()).removesuffix("*/").removesuffix("-->").strip()
            notes.append(Note(path, number, found[1], words))
    return notes


def _is_note(line: str, found: re.Match[str]) -> bool:
    """Return whether the word opens the comment or is marked as a note; `XXX` in a sentence stands for anything."""
    return line[found.end(1) : found.end(1) + 1] in (":", "(") or bool(_NOTE_START.search(line[: found.start()]))


def _python_comments(text: str) -> list[tuple[int, str]]:
    comments: list[tuple[int, str]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments.append((token.start[0], token.string))
    except (tokenize.TokenError, SyntaxError):
        pass  # what came before the fault counts
    return comments


def _connect(structure: Structure) -> None:
    for module in structure.modules.values():
        for target in module.imports.inside:
            if target in structure.modules:
                structure.modules[target].importers.add(module.path)


def cycles(structure: Structure) -> list[list[str]]:
    """Return the groups of files that import each other in a circle, each sorted, the largest first.

    These are the strongly connected components of the import graph (Tarjan, written without recursion).
    Only source files and what they import at their start count. A package's `__init__.py` imports its own
    parts and is imported with each of them, which is no circle worth naming, so it is left out.
    """
    graph = {
        path: sorted(module.imports.at_start)
        for path, module in structure.modules.items()
        if module.role == "source" and not path.endswith("__init__.py")
    }
    found = [sorted(group) for group in _components(graph) if len(group) > 1]
    return sorted(found, key=lambda group: (-len(group), group))


def _components(graph: dict[str, list[str]]) -> Iterable[list[str]]:
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for start in graph:
        if start in order:
            continue
        work = [(start, iter(graph[start]))]
        order[start] = lowest[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        while work:
            here, targets = work[-1]
            for target in targets:
                if target not in graph:
                    continue
                if target not in order:
                    order[target] = lowest[target] = len(order)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in on_stack:
                    lowest[here] = min(lowest[here], order[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[here])
                if lowest[here] == order[here]:
                    cut = stack.index(here)
                    group = stack[cut:]
                    del stack[cut:]
                    on_stack -= set(group)
                    yield group
