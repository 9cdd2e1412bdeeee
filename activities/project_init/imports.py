"""Which files of a project import which: Python through its syntax tree, other languages line by line."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from activities.project_init.files import SourceTree

_JS_IMPORT = re.compile(
    r"""(?x) \bfrom\s*["']([^"'\n]{1,300})["'] | \bimport\s*\(?\s*["']([^"'\n]{1,300})["']
      | \brequire\s*\(\s*["']([^"'\n]{1,300})["']"""
)
_JS_ENDINGS = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".vue", ".svelte", ".json")
_HOLDS_STATEMENTS = (ast.stmt, ast.Module, ast.ExceptHandler, ast.match_case)
_DEEPEST_PATH = 12
_NODE_OWN_WORDS = """
assert async_hooks buffer child_process cluster console constants crypto dgram dns domain events fs http http2 https
inspector module net os path perf_hooks process punycode querystring readline repl stream string_decoder timers tls
tty url util v8 vm worker_threads zlib
"""
_NODE_OWN = frozenset(_NODE_OWN_WORDS.split())
_GO_BLOCK = re.compile(r"^import\s*(?:\(([^)]*)\)|(?:[\w.]+\s+)?\"([^\"\n]+)\")", re.MULTILINE)
_GO_PATH = re.compile(r"\"([^\"\n]+)\"")
_JAVA_IMPORT = re.compile(r"^[ \t]*import\s+(?:static\s+)?([\w.]+)", re.MULTILINE)
_RUST_MODULE = re.compile(r"^[ \t]*(?:pub(?:\([\w: ]+\))?\s+)?mod\s+(\w+)\s*;", re.MULTILINE)
_RUST_USE = re.compile(r"\b(?:crate|super|self)((?:::\w+)+)")
_RUST_CRATE = re.compile(r"\b(?:use|extern\s+crate)\s+(?:::)?(\w+)((?:::\w+)*)|(?<![\w:])(\w+)((?:::\w+)+)")
_RUST_COMMENT = re.compile(r"^[ \t]*//.*$", re.MULTILINE)


@dataclass
class Imports:
    """What one file imports: files of the project, and packages from outside it.

    Attributes:
        inside: Files of the project; for Go, folders.
        outside: Packages from outside, the language's own library left out.
        at_start: Those of `inside` that are imported as soon as the file is; the others wait for a function
            to be called, or serve a type checker alone.
    """

    inside: set[str] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)
    at_start: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Crates:
    """What the manifests of a Rust project say about crates, by the names that code calls them by.

    Attributes:
        own: The project's own crates, with the folder of their `Cargo.toml`.
        declared: The dependencies.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ScriptPackage:
    """A JavaScript package of the project.

    Attributes:
        folder: Where its `package.json` is, "" at the top.
        entries: The files that its name means, below that folder, as far as the manifest says.
    """

    folder: str
    entries: tuple[str, ...] = ()


class PythonModules:
    """The dotted names under which the Python files of a project can be imported.

    A folder is a place to import from if it is the top, `src`, holds a manifest and is no package itself, or
    holds the topmost package of a chain of packages. Where two files have the same name, the one less deep wins.

    Example:
        >>> modules = PythonModules(["src/app/__init__.py", "src/app/cli.py"])
        >>> modules.path_of("app.cli"), modules.path_of("json")
        ('src/app/cli.py', None)
    """

    def __init__(self, paths: list[str], manifests: tuple[str, ...] = (), root_package: str = "") -> None:
        known = set(paths)
        self._files = known
        beside = {path.rpartition("/")[0] for path in manifests}
        roots = {"", "src"} | {folder for folder in beside if f"{folder}/__init__.py" not in known}
        self._paths: dict[str, str] = {}
        for path in sorted(paths, key=lambda path: (path.count("/"), path)):
            if path.endswith((".py", ".pyi")):
                for root in roots | {_above_package(path, known)}:
                    name = _dotted(path, root)
                    if name:
                        self._paths.setdefault(name, path)
        if root_package.isidentifier() and "__init__.py" in known:
            for name, path in list(self._paths.items()):
                self._paths.setdefault(f"{root_package}.{name}", path)
            self._paths.setdefault(root_package, "__init__.py")

    def path_of(self, name: str) -> str | None:
        """Return the file of a module, or None where the project has none by that name."""
        return self._paths.get(name)

    def has_file(self, path: str) -> bool:
        """Return whether the project has this file."""
        return path in self._files

    def resolve(self, name: str) -> str | None:
        """Return the file of a module or of the closest package around it, or None."""
        while name:
            found = self._paths.get(name)
            if found is not None:
                return found
            name = name.rpartition(".")[0]
        return None


def _above_package(path: str, known: set[str]) -> str:
    folder = path.rpartition("/")[0]
    while folder and f"{folder}/__init__.py" in known:
        folder = folder.rpartition("/")[0]
    return folder


def _dotted(path: str, root: str) -> str:
    if root and not path.startswith(root + "/"):
        return ""
    inner = path[len(root) + 1 :] if root else path
    parts = inner.rpartition(".")[0].split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def python_imports(path: str, tree: ast.Module, modules: PythonModules) -> Imports:
    """Return what a Python file imports, lazily imported modules included; the standard library is left out."""
    found = Imports()
    for node in _imports_at_start(tree):
        _follow(node, path, modules, found)
    found.at_start = set(found.inside)
    for each in ast.walk(tree):
        if isinstance(each, ast.Import | ast.ImportFrom):
            _follow(each, path, modules, found)
    return found


def _imports_at_start(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and _waits(node.test):
            waiting.extend(node.orelse)
        elif isinstance(node, _HOLDS_STATEMENTS) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting.extend(ast.iter_child_nodes(node))


def _waits(condition: ast.expr) -> bool:
    """Return whether a block under this condition is for type checkers, or for the file run as a program."""
    names = {each.id for each in ast.walk(condition) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(condition) if isinstance(each, ast.Attribute)}
    return bool(names & {"TYPE_CHECKING", "__name__"})


def _follow(node: ast.Import | ast.ImportFrom, path: str, modules: PythonModules, found: Imports) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            _note(alias.name, path, modules, found)
        return
    base = _relative(path, node.level, node.module or "") if node.level else node.module or ""
    for alias in node.names:
        if node.level:
            target = _relative_file(base, alias.name, modules)
            found.inside |= {target} - {path} if target else set()
        else:
            exact = modules.path_of(f"{base}.{alias.name}")
            _note(f"{base}.{alias.name}" if exact else base, path, modules, found)


def _note(name: str, path: str, modules: PythonModules, found: Imports) -> None:
    target = modules.resolve(name)
    if target is not None:
        found.inside |= {target} - {path}
        return
    top = name.partition(".")[0]
    if top and top not in sys.stdlib_module_names:
        found.outside.add(top)


def _relative(path: str, level: int, module: str) -> str:
    """Return the folder-like path that a relative import means, without an ending."""
    folder = path.rpartition("/")[0]
    for _ in range(level - 1):
        folder = folder.rpartition("/")[0]
    inner = module.replace(".", "/")
    return f"{folder}/{inner}".strip("/") if inner else folder


def _relative_file(base: str, name: str, modules: PythonModules) -> str | None:
    prefix = base + "/" if base else ""
    for candidate in (f"{prefix}{name}.py", f"{prefix}{name}/__init__.py", f"{base}.py", f"{prefix}__init__.py"):
        if modules.has_file(candidate):
            return candidate
    return None


def script_imports(path: str, text: str, tree: SourceTree, packages: Mapping[str, ScriptPackage]) -> Imports:
    """Return what a JavaScript or TypeScript file imports.

    Relative paths, `@/` for `src/`, and the names of the project's own packages lead inside.

    Args:
        path: The file.
        text: Its content.
        tree: The project.
        packages: The project's own packages by name, as the workspaces of a monorepo have.
    """
    found = Imports()
    for match in _JS_IMPORT.finditer(text):
        name = match[1] or match[2] or match[3]
        if name.startswith((".", "@/")):
            base = _joined(path.rpartition("/")[0], name) if name[0] == "." else "src" + name[1:]
            target = _script_file(base, tree)
            found.inside |= {target} - {path} if target else set()
        elif not name.startswith(("node:", "/", "~", "#", "$")) and name.partition("/")[0] not in _NODE_OWN:
            parts = name.split("/")
            package = "/".join(parts[:2]) if name.startswith("@") else parts[0]
            if package in packages:
                target = _package_file(packages[package], name[len(package) + 1 :], tree)
                found.inside |= {target} - {path} if target else set()
            else:
                found.outside.add(package)
    return found


def _package_file(package: ScriptPackage, inner: str, tree: SourceTree) -> str | None:
    """Return the file that a package's name, or a path below it, means; what a build is to make, by its source."""
    entries = [inner, f"src/{inner}"] if inner else [*package.entries, "src/index", "index"]
    found = (_script_file(_joined(package.folder, entry), tree) for entry in entries)
    return next((each for each in found if each is not None), None)


def _joined(folder: str, name: str) -> str:
    parts = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _script_file(base: str, tree: SourceTree) -> str | None:
    stem = re.sub(r"\.[cm]?js$", "", base)
    candidates = [base, *(base + end for end in _JS_ENDINGS), *(f"{base}/index{end}" for end in _JS_ENDINGS)]
    candidates += [stem + end for end in _JS_ENDINGS[:2]]
    return next((each for each in candidates if each in tree.by_path), None)


def go_imports(path: str, text: str, tree: SourceTree, modules: dict[str, str]) -> Imports:
    """Return what a Go file imports; an imported package of the project is named by its folder.

    Args:
        path: The file.
        text: Its content.
        tree: The project.
        modules: Module path to the folder of its `go.mod`.
    """
    found = Imports()
    for block in _GO_BLOCK.finditer(text):
        for name in [block[2]] if block[2] else _GO_PATH.findall(block[1] or ""):
            home = next((each for each in modules if name == each or name.startswith(each + "/")), None)
            if home is not None:
                folder = _joined(modules[home], name[len(home) :])
                found.inside |= {folder} if folder in tree.folders and folder != path.rpartition("/")[0] else set()
            elif "." in name.partition("/")[0]:
                found.outside.add("/".join(name.split("/")[:3]))
    return found


def java_imports(path: str, text: str, classes: dict[str, str]) -> Imports:
    """Return which of the project's classes a Java, Kotlin or Scala file imports; `classes` maps names to files."""
    found = Imports()
    for match in _JAVA_IMPORT.finditer(text):
        name = match[1]
        target = classes.get(name) or classes.get(name.rpartition(".")[0])
        if target is not None:
            found.inside |= {target} - {path}
        elif not name.startswith(("java.", "javax.", "kotlin.", "scala.")):
            found.outside.add(".".join(name.split(".")[:3]))
    return found


def java_classes(paths: list[str]) -> dict[str, str]:
    """Return the qualified class names that source paths imply: what follows `java/`, `kotlin/` or `scala/`."""
    classes: dict[str, str] = {}
    for path in paths:
        found = re.search(r"(?:^|/)(?:java|kotlin|scala|src)/((?!main/|test/)[\w/]+)\.(?:java|kt|scala)$", path)
        if found:
            classes.setdefault(found[1].replace("/", "."), path)
    return classes


def rust_imports(path: str, text: str, tree: SourceTree, crates: Crates) -> Imports:
    """Return what a Rust file declares as modules and uses: files of its crate, the project's own crates, and others.

    A crate from outside is one that a manifest declares: the same words may name a module or a type.

    Args:
        path: The file.
        text: Its content.
        tree: The project.
        crates: What the manifests say.
    """
    found = Imports()
    folder, _, name = path.rpartition("/")
    own = folder if name in ("mod.rs", "lib.rs", "main.rs") else path.removesuffix(".rs")
    for match in _RUST_MODULE.finditer(text):
        found.inside |= set(_rust_files(own, [match[1]], tree))
    source, marker, _ = path.rpartition("src/")
    for match in _RUST_USE.finditer(text):
        base = source + marker.rstrip("/") if match[0].startswith("crate") else own.rpartition("/")[0]
        found.inside |= set(_rust_files(base, match[1].strip(":").split("::"), tree)) - {path}
    for match in _RUST_CRATE.finditer(_RUST_COMMENT.sub("", text)):
        crate, inner = match[1] or match[3], match[2] or match[4] or ""
        if crate in crates.own:
            base = _joined(crates.own[crate], "src")
            names = inner.strip(":").split("::") if inner else []
            target = next(_rust_files(base, names, tree), None) or next(_rust_files(base, ["lib"], tree), None)
            found.inside |= {target} - {path} if target else set()
        elif crate in crates.declared:
            found.outside.add(crate)
    return found


def _rust_files(base: str, names: list[str], tree: SourceTree) -> Iterator[str]:
    for count in range(min(len(names), _DEEPEST_PATH), 0, -1):
        stem = "/".join(filter(None, [base, *names[:count]]))
        for candidate in (f"{stem}.rs", f"{stem}/mod.rs"):
            if candidate in tree.by_path:
                yield candidate
                return
