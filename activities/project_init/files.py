"""The files of a project, with hashes and reading limits, and the guarded output folder."""

import hashlib
import io
import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

from identify.identify import is_text

from activities.pages import check_folder, write_atomically
from activities.project_init.records import LeftOut, Listing, ProjectError, SourceFile, WrittenFile
from activities.source_files import (
    TEST_FOLDERS,
    decode_text,
    is_test_file,
    list_files,
    may_hold_secrets,
    open_regular_file,
)

Role = Literal["source", "test", "docs", "example", "generated", "vendored"]

_MIB = 1024 * 1024
_GENERATED = re.compile(
    r".*\.min\.(js|css)|.*\.(map|snap|lock|sum)|.*_pb2(_grpc)?\.pyi?|.*\.pb\.(go|cc|h)|.*[._]generated\.\w+"
    r"|package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|pylock\.toml"
)
_EXAMPLE_FOLDERS = "example examples sample samples demo demos bench benches benchmark benchmarks"
_ROLES: dict[Role, frozenset[str]] = {
    "vendored": frozenset(("vendor", "third_party", "_vendor", "node_modules", "site-packages")),
    "test": TEST_FOLDERS,
    "example": frozenset(_EXAMPLE_FOLDERS.split()),
    "docs": frozenset(("doc", "docs", "documentation", "website")),
}


@dataclass(frozen=True)
class Limits:
    """The maximum number of files, and of bytes to read of a text and of a file."""

    files: int = 50_000
    text_bytes: int = 1 * _MIB
    hash_bytes: int = 32 * _MIB


@dataclass(frozen=True)
class SourceTree:
    """A project's folder and its listing; texts are read on demand."""

    root: Path
    listing: Listing
    limits: Limits = Limits()

    @cached_property
    def by_path(self) -> dict[str, SourceFile]:
        """The files by path, in the listing's order."""
        return {file.path: file for file in self.listing.files}

    def named(self, *names: str) -> list[str]:
        """Return the project's own files with one of these names, top-level files first."""
        return [path for path in self.by_path if PurePosixPath(path).name in names and speaks_for_project(path)]

    def text(self, path: str) -> str | None:
        r"""Return a listed file as text with `\n` line ends, or None if it is binary, too long, gone or secret."""
        file = self.by_path.get(path)
        if file is None or file.kind != "text" or file.size > self.limits.text_bytes or may_hold_secrets(path):
            return None
        content = self.head(path, self.limits.text_bytes)
        return None if content is None else decode_text(content)

    def head(self, path: str, limit: int) -> bytes | None:
        """Return the first bytes of a listed file, or None if it is unreadable."""
        try:
            with open_regular_file(self.root / path) as file:
                return file.read(limit) if path in self.by_path else None
        except OSError:
            return None


class Omissions(dict[str, list[str]]):
    """The omitted paths by reason."""

    def add(self, reason: str, path: str) -> None:
        """Record an omitted path."""
        self.setdefault(reason, []).append(path)

    def result(self) -> tuple[LeftOut, ...]:
        """Return the omissions by reason, each with a few examples."""
        return tuple(
            LeftOut(reason=reason, count=len(paths), examples=tuple(paths[:5]))
            for reason, paths in sorted(self.items())
        )


def survey(root: Path, limits: Limits = Limits()) -> SourceTree:
    """List a project's files with hash, kind and length."""
    top, omissions = _resolve_root(root), Omissions()
    paths, by_git = list_files(top, omissions.add)
    ordered = sorted(paths, key=lambda path: (path.count("/"), path))
    for path in ordered[limits.files :]:
        omissions.add(f"over the limit of {limits.files} files", path)
    files = []
    for path in ordered[: limits.files]:
        file = _read_file(top / path, path, limits.hash_bytes, omissions)
        if file is not None:
            if file.kind == "text" and file.size > limits.text_bytes:
                omissions.add(f"content not used: text over the limit of {limits.text_bytes:,} bytes", path)
            files.append(file)
    method: Literal["checkout", "folder"] = "checkout" if by_git else "folder"
    name = os.fsencode(top.name).decode("utf-8", "backslashreplace") or "root"
    return SourceTree(top, Listing(name=name, method=method, files=tuple(files), left_out=omissions.result()), limits)


@lru_cache(maxsize=100_000)
def find_role(path: str) -> Role:
    """Return the role of a file, by its path."""
    *folders, name = path.split("/")
    if "src" in folders:  # below `src`, `example` is a package name
        position = folders.index("src")
        folders = folders[:position] + [
            folder for folder in folders[position + 1 :] if folder in _ROLES["test"] | _ROLES["vendored"]
        ]
    if set(folders) & _ROLES["vendored"]:
        return "vendored"
    if _GENERATED.fullmatch(name):
        return "generated"
    if is_test_file(name):
        return "test"
    return next((role for role, names in _ROLES.items() if set(folders) & names), "source")


def speaks_for_project(path: str) -> bool:
    """Return whether a manifest describes the project, not its test data or an example."""
    hidden = any(folder.startswith(".") for folder in path.split("/")[:-1])
    return not hidden and find_role(path) in ("source", "generated")


def _resolve_root(root: Path) -> Path:
    try:
        top = root.resolve(strict=True)
        if not top.is_dir():
            raise ProjectError(f"{str(root)!r} is a file; name the folder that holds the project")
        os.scandir(top).close()
    except FileNotFoundError as error:
        raise ProjectError(f"{str(root)!r} does not exist; name the project's folder") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise ProjectError(f"{str(root)!r} cannot be read ({error}); check its permissions") from error
    return top


def _read_file(full_path: Path, path: str, limit: int, omissions: Omissions) -> SourceFile | None:
    """Read a file and return its entry in the listing, or None if it is not a regular file."""
    try:
        status = full_path.lstat()
        if not stat.S_ISREG(status.st_mode):
            link = stat.S_ISLNK(status.st_mode)
            omissions.add("symbolic link, not followed" if link else "not a regular file", path)
            return None
        if status.st_size > limit:
            omissions.add("listed by size only: over a limit of bytes to read", path)
            return SourceFile(path=path, size=status.st_size, kind="unread")
        with open_regular_file(full_path) as file:
            content = file.read(limit)
    except OSError as error:
        omissions.add(f"cannot be read ({error.strerror})", path)
        return None
    if may_hold_secrets(path):
        omissions.add("content not used: may hold secrets", path)
    if not (is_text(io.BytesIO(content[:_MIB])) or content[:2] in (b"\xff\xfe", b"\xfe\xff")):
        return SourceFile(path=path, size=len(content), kind="binary", sha256=hashlib.sha256(content).hexdigest())
    lines = len(content.splitlines())
    return SourceFile(
        path=path, size=len(content), kind="text", lines=lines, sha256=hashlib.sha256(content).hexdigest()
    )


KNOWLEDGE_FILE = "knowledge.sqlite3"
"""The index of stage build-knowledge, beside the documents."""
PAGES = ("PROJECT.md", "ARCHITECTURE.md", "COMMANDS.md", "ROADMAP.md", "AGENTS.md")
MARK = "<!-- written by baton project_init -->"
"""The first line of each page, which identifies this pipeline's own."""


def check_output(source: Path, out: Path) -> None:
    """Raise `ProjectError` if the output folder is in the project, or has files of these names that are not ours."""
    top, output = source.resolve(), out.resolve()
    if output.is_relative_to(top) and ".baton" not in output.relative_to(top).parts:
        raise ProjectError(
            f"the output folder {str(out)!r} is inside the project; choose one outside it, or below a folder '.baton'"
        )
    check_folder(output, {**dict.fromkeys(PAGES, MARK), KNOWLEDGE_FILE: "SQLite format 3"}, ProjectError)


def write_bytes(out: Path, path: str, content: bytes) -> WrittenFile:
    """Write a file of the output folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / path, content)
    except OSError as error:
        raise ProjectError(f"the output folder {str(out)!r} cannot be written ({error.strerror})") from error
    return WrittenFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())
