"""Where programs start, beyond what manifests declare: main modules, main functions, scripts."""

import re
from collections.abc import Iterable, Iterator
from shlex import quote

from activities.project_init.calls import go_main, python_main
from activities.project_init.conventions import in_folder
from activities.project_init.files import SourceTree
from activities.project_init.languages import language_of_file
from activities.project_init.listing import Progress
from activities.project_init.parsing import line_of
from activities.project_init.records import EntryPoint, Evidence, Manifest, SourceFile
from activities.project_init.roles import role_of

_MOST = 200
_JAVA_MAIN = re.compile(
    r"\bstatic\s+(?:public\s+)?void\s+main\s*\(\s*(?:final\s+)?String\b|^fun\s+main\s*\(", re.MULTILINE
)
_C_MAIN = re.compile(r"^(?:int|void|auto)\s+main\s*\(", re.MULTILINE)
_STARTS: dict[str, tuple[str, re.Pattern[str]]] = {
    "Python": ("script", re.compile(r"^if\s+__name__\s*==\s*[\"']__main__[\"']\s*:", re.MULTILINE)),
    "Go": ("binary", re.compile(r"^func\s+main\s*\(\s*\)", re.MULTILINE)),
    "Rust": ("binary", re.compile(r"^(?:pub\s+)?(?:async\s+)?fn\s+main\s*\(", re.MULTILINE)),
    **dict.fromkeys(("Java", "Kotlin", "Scala"), ("main class", _JAVA_MAIN)),
    **dict.fromkeys(("C", "C++"), ("binary", _C_MAIN)),
}
"""By language: the kind of a program, and the line that it starts with."""

_GO_PROGRAM = re.compile(r"^package\s+main\b", re.MULTILINE)
_SCRIPT_FOLDERS = ("bin", "scripts", "script", "tools", "hack", ".ci", "ci")


def _start(language: str, path: str, text: str) -> tuple[str, int] | None:
    """Return the kind of program that starts in a file, and its line; None where none does."""
    if language == "Go" and not _GO_PROGRAM.search(text):
        return None
    if language == "Rust" and not (path.endswith("main.rs") or "/bin/" in path):
        return None
    kind, pattern = _STARTS[language]
    line = line_of(pattern.search(text))
    return None if line is None else (kind, line)


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
    folder, _, name = file.path.rpartition("/")
    if name == "__main__.py":
        shown = (folder or tree.listing.name).removeprefix("src/")
        target = in_folder(*python_main(tree, folder)) if folder else f"python -m {shown}"
        yield EntryPoint(name=shown, kind="main module", target=target, evidence=Evidence(path=file.path))
        return
    if language == "Python" and (f"{folder}/__init__.py" if folder else "__init__.py") in tree.by_path:
        return  # a module of a package is imported; what it does when run alone is a demonstration
    text = tree.text(file.path) if language in _STARTS else None
    start = _start(language, file.path, text) if language and text is not None else None
    if start is not None:
        kind, line = start
        target = f"python {quote(file.path)}" if language == "Python" else file.path
        target = in_folder(*go_main(tree, folder)) if language == "Go" else target
        home = folder.removesuffix("src").rstrip("/") or tree.listing.name
        shown = home if name in ("main.go", "main.rs") else file.path
        yield EntryPoint(name=shown, kind=kind, target=target, evidence=Evidence(path=file.path, line=line))
    elif language == "Shell" and folder.rpartition("/")[2] in _SCRIPT_FOLDERS:
        yield EntryPoint(name=file.path, kind="script", target=file.path, evidence=Evidence(path=file.path))
