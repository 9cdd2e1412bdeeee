"""Where programs start, beyond what manifests declare: main modules, main functions, scripts."""

import re
from collections.abc import Callable, Iterable, Iterator

from activities.project_init.calls import go_main, python_main
from activities.project_init.conventions import in_folder
from activities.project_init.files import SourceTree
from activities.project_init.languages import language_of_file
from activities.project_init.listing import Progress
from activities.project_init.records import EntryPoint, Evidence, Manifest, SourceFile
from activities.project_init.roles import role_of

_MOST = 200
_PYTHON_MAIN = re.compile(r"^if\s+__name__\s*==\s*[\"']__main__[\"']\s*:", re.MULTILINE)
_GO_MAIN = re.compile(r"^func\s+main\s*\(\s*\)", re.MULTILINE)
_RUST_MAIN = re.compile(r"^(?:pub\s+)?(?:async\s+)?fn\s+main\s*\(", re.MULTILINE)
_JAVA_MAIN = re.compile(
    r"\bstatic\s+(?:public\s+)?void\s+main\s*\(\s*(?:final\s+)?String\b|^fun\s+main\s*\(", re.MULTILINE
)
_C_MAIN = re.compile(r"^(?:int|void|auto)\s+main\s*\(", re.MULTILINE)
_SCRIPT_FOLDERS = ("bin", "scripts", "script", "tools", "hack", ".ci", "ci")


def _python(path: str, text: str) -> tuple[str, str, int] | None:
    found = _PYTHON_MAIN.search(text)
    return ("script", f"python {path}", _line(text, found)) if found else None


def _go(path: str, text: str) -> tuple[str, str, int] | None:
    found = _GO_MAIN.search(text) if re.search(r"^package\s+main\b", text, re.MULTILINE) else None
    return ("binary", path, _line(text, found)) if found else None


def _rust(path: str, text: str) -> tuple[str, str, int] | None:
    found = _RUST_MAIN.search(text) if path.endswith("main.rs") or "/bin/" in path else None
    return ("binary", path, _line(text, found)) if found else None


def _jvm(path: str, text: str) -> tuple[str, str, int] | None:
    found = _JAVA_MAIN.search(text)
    return ("main class", path, _line(text, found)) if found else None


def _c(path: str, text: str) -> tuple[str, str, int] | None:
    found = _C_MAIN.search(text)
    return ("binary", path, _line(text, found)) if found else None


_FINDERS: dict[str, Callable[[str, str], tuple[str, str, int] | None]] = {
    "Python": _python,
    "Go": _go,
    "Rust": _rust,
    "Java": _jvm,
    "Kotlin": _jvm,
    "Scala": _jvm,
    "C": _c,
    "C++": _c,
}


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def find_entry_points(
    tree: SourceTree, manifests: Iterable[Manifest], progress: Progress
) -> tuple[tuple[EntryPoint, ...], int]:
    """Return where programs start: what manifests declare first, then what the sources show.

    Tests and examples are passed over.

    Returns:
        The entry points, and how many more there are than are kept.
    """
    found = [entry for manifest in manifests for entry in manifest.entry_points]
    for number, file in enumerate(tree.listing.files):
        if number % 250 == 0:
            progress(f"entry points: {number} files")
        if file.kind == "text" and role_of(file.path) == "source":
            found.extend(_in_file(tree, file))
    return tuple(found[:_MOST]), max(0, len(found) - _MOST)


def _in_file(tree: SourceTree, file: SourceFile) -> Iterator[EntryPoint]:
    language = language_of_file(tree, file)
    finder = _FINDERS.get(language or "")
    folder, _, name = file.path.rpartition("/")
    if name == "__main__.py":
        shown = (folder or tree.listing.name).removeprefix("src/")
        target = in_folder(*python_main(tree, folder)) if folder else f"python -m {shown}"
        yield EntryPoint(name=shown, kind="main module", target=target, evidence=Evidence(path=file.path))
        return
    if language == "Python" and (f"{folder}/__init__.py" if folder else "__init__.py") in tree.by_path:
        return  # a module of a package is imported; what it does when run alone is a demonstration
    text = tree.text(file.path) if finder else None
    start = finder(file.path, text) if finder and text is not None else None
    if start is not None:
        kind, target, line = start
        target = in_folder(*go_main(tree, folder)) if language == "Go" else target
        home = folder.removesuffix("src").rstrip("/") or tree.listing.name
        shown = home if name in ("main.go", "main.rs") else file.path
        yield EntryPoint(name=shown, kind=kind, target=target, evidence=Evidence(path=file.path, line=line))
    elif language == "Shell" and folder.rpartition("/")[2] in _SCRIPT_FOLDERS:
        yield EntryPoint(name=file.path, kind="script", target=file.path, evidence=Evidence(path=file.path))
