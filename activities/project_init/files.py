"""The files of a project, with hashes and reading limits, and the guarded output folder.

Omitted files are counted and named. Stages may run on different workers, so results travel as JSON files in the output
folder.
"""

import hashlib
import io
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from identify.identify import is_text
from pydantic import ValidationError

from activities.pages import write_atomically
from activities.project_init.records import (
    Documents,
    KnowledgeIndex,
    LeftOut,
    Listing,
    ProjectError,
    SourceFile,
    TechStack,
    Verification,
    WrittenFile,
)
from activities.source_files import decode_text, list_files, open_regular_file
from baton.wire.records import Record

Progress = Callable[[str], None]
"""Called regularly with a progress message; an exception from it cancels the work."""

Role = Literal["source", "test", "docs", "example", "generated", "vendored"]

_MIB = 1024 * 1024
_SECRET = re.compile(
    r"""(?ix) \.env(\.(?!example$|sample$|template$|dist$|defaults?$)[\w.-]+)?
      | .*\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk) | id_(rsa|dsa|ecdsa|ed25519)
      | \.(npmrc|pypirc|netrc|pgpass|htpasswd|git-credentials) | credentials(\.(json|ya?ml|ini))?
      | secrets?\.(json|ya?ml|ini|toml|env) | .*\.tfstate(\.backup)? | service[-_]account.*\.json"""
)
_TEST_FILE = re.compile(
    r"(test_.*|.*_tests?|conftest|tests)\.pyi?|.*_test\.(go|dart|exs|cc|cpp|c|rs|rb)|.*_spec\.(rb|lua)"
    r"|.*\.(test|spec|cy|e2e)\.(js|jsx|ts|tsx|mjs|cjs|vue|svelte)|.*(Test|Tests|Spec)\.(java|kt|scala|cs|php|swift)"
)
_GENERATED = re.compile(
    r".*\.min\.(js|css)|.*\.(map|snap|lock|sum)|.*_pb2(_grpc)?\.pyi?|.*\.pb\.(go|cc|h)|.*[._]generated\.\w+"
    r"|package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|pylock\.toml"
)
_TEST_FOLDERS = "test tests __tests__ spec specs e2e cypress testdata test-data fixtures snapshots"
_EXAMPLE_FOLDERS = "example examples sample samples demo demos bench benches benchmark benchmarks"
_ROLES: dict[Role, frozenset[str]] = {
    "vendored": frozenset(("vendor", "third_party", "_vendor", "node_modules", "site-packages")),
    "test": frozenset(_TEST_FOLDERS.split()),
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


class Omissions:
    """Counts omitted files by reason, with a few examples."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._examples = defaultdict[str, list[str]](list)

    def add(self, reason: str, path: str) -> None:
        """Count an omitted path."""
        self._counts[reason] += 1
        if len(self._examples[reason]) < 5:
            self._examples[reason].append(path)

    def result(self) -> tuple[LeftOut, ...]:
        """Return the omissions by reason."""
        return tuple(
            LeftOut(reason=reason, count=count, examples=tuple(self._examples[reason]))
            for reason, count in sorted(self._counts.items())
        )


def survey(root: Path, *, limits: Limits | None = None, progress: Progress | None = None) -> SourceTree:
    """List a project's files with hash, kind and length."""
    limits, report = limits or Limits(), progress or (lambda _: None)
    top, omissions = _resolve_root(root), Omissions()
    paths, by_git = list_files(top, omissions.add)
    ordered = sorted(paths, key=lambda path: (path.count("/"), path))
    for path in ordered[limits.files :]:
        omissions.add(f"over the limit of {limits.files} files", path)
    files = []
    for number, path in enumerate(ordered[: limits.files]):
        if number % 250 == 0:
            report(f"reading: {number} of {len(ordered)} files")
        file = _read_file(top / path, path, limits.hash_bytes, omissions)
        if file is not None:
            if file.kind == "text" and file.size > limits.text_bytes:
                omissions.add(f"content not used: text over the limit of {limits.text_bytes:,} bytes", path)
            files.append(file)
    method: Literal["checkout", "folder"] = "checkout" if by_git else "folder"
    name = os.fsencode(top.name).decode("utf-8", "backslashreplace") or "root"
    return SourceTree(top, Listing(name=name, method=method, files=tuple(files), left_out=omissions.result()), limits)


def may_hold_secrets(path: str) -> bool:
    """Return whether a file may hold keys or passwords, by its name; such content is never quoted."""
    return _SECRET.fullmatch(PurePosixPath(path).name) is not None


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
    if _TEST_FILE.fullmatch(name):
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


STATE = ".project_init"
"""The folder with the saved results; it identifies the output folder of this pipeline."""

_RESULT_FILES: dict[type[Record], tuple[str, str]] = {
    Listing: ("files.json", "detect-tech-stack"),
    TechStack: ("stack.json", "detect-tech-stack"),
    Documents: ("documents.json", "generate-docs"),
    KnowledgeIndex: ("index.json", "build-knowledge"),
    Verification: ("verification.json", "verify-ready"),
}

RecordT = TypeVar("RecordT", bound=Record)


def prepare_output(source: Path, out: Path) -> Path:
    """Create the output folder; raise `ProjectError` if it could hold other files."""
    top, output = source.resolve(), out.resolve()
    if output == top:
        raise ProjectError(f"the output folder {str(out)!r} is the project itself; choose another folder")
    if output.is_relative_to(top) and ".baton" not in output.relative_to(top).parts:
        raise ProjectError(
            f"the output folder {str(out)!r} is inside the project; choose one outside it, or below a folder '.baton'"
        )
    try:
        if output.is_dir() and not (output / STATE).is_dir() and any(output.iterdir()):
            raise ProjectError(f"the output folder {str(out)!r} holds other files; choose an empty one")
        (output / STATE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProjectError(f"the output folder {str(out)!r} cannot be used ({error.strerror})") from error
    return output


def write_bytes(out: Path, path: str, content: bytes) -> WrittenFile:
    """Write a file of the output folder."""
    full_path = out / path
    full_path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(full_path, content)
    return WrittenFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def save(out: Path, result: Record) -> None:
    """Save a stage's result in the output folder."""
    name, _ = _RESULT_FILES[type(result)]
    write_bytes(out, f"{STATE}/{name}", (result.model_dump_json(indent=1) + "\n").encode())


def load(out: Path, result_type: type[RecordT]) -> RecordT:
    """Load the result of an earlier stage."""
    name, stage = _RESULT_FILES[result_type]
    path = out / STATE / name
    try:
        return result_type.model_validate_json(path.read_bytes())
    except OSError as error:
        message = f"{str(path)!r} cannot be read ({error.strerror})"
        raise ProjectError(f"{message}; run stage {stage} first") from error
    except ValidationError as error:
        raise ProjectError(
            f"{str(path)!r} is damaged ({error.error_count()} faults); run stage {stage} again"
        ) from None


def load_tree(out: Path, root: Path) -> SourceTree:
    """Return the saved listing with the project's folder on this machine."""
    return SourceTree(root.resolve(), load(out, Listing))
