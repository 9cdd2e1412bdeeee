"""The files of a project: which they are, their hashes, reading within limits; and the guarded output folder.

What a limit leaves out is counted and named. A stage may run on another worker than the one before it, so results
travel as JSON files in the output folder.
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
"""Called now and then with a line on how far the work is; raising from it cancels the work."""

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
_ROLES: dict[Role, frozenset[str]] = {
    "vendored": frozenset(("vendor", "third_party", "_vendor", "node_modules", "site-packages")),
    "test": frozenset(_TEST_FOLDERS.split()),
    "example": frozenset(("example", "examples", "sample", "samples", "demo", "demos")),
    "docs": frozenset(("doc", "docs", "documentation", "website")),
}


@dataclass(frozen=True)
class Limits:
    """How many files are listed, and how many bytes of a text and of a file are read; the rest is counted."""

    files: int = 50_000
    text_bytes: int = 1 * _MIB
    hash_bytes: int = 32 * _MIB


@dataclass(frozen=True)
class SourceTree:
    """A project's folder and its listing; texts are read on request, from the folder as it is now."""

    root: Path
    listing: Listing
    limits: Limits = Limits()

    @cached_property
    def by_path(self) -> dict[str, SourceFile]:
        """Every file by its path, in the listing's order."""
        return {file.path: file for file in self.listing.files}

    def named(self, *names: str) -> list[str]:
        """Return the project's own files of one of these names, the least deep first."""
        return [path for path in self.by_path if PurePosixPath(path).name in names and is_own(path)]

    def text(self, path: str) -> str | None:
        r"""Return the text of a listed file, with `\n` as line ends; None if it is binary, too long, gone or secret."""
        file = self.by_path.get(path)
        if file is None or file.kind != "text" or file.size > self.limits.text_bytes or may_hold_secrets(path):
            return None
        content = self.head(path, self.limits.text_bytes)
        return None if content is None else decode_text(content)

    def head(self, path: str, most: int) -> bytes | None:
        """Return the first bytes of a listed file; None if it cannot be read any more."""
        try:
            with open_regular_file(self.root / path) as file:
                return file.read(most) if path in self.by_path else None
        except OSError:
            return None


class Omissions:
    """What was left out, counted by reason, with a few examples of each."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._examples = defaultdict[str, list[str]](list)

    def add(self, reason: str, path: str) -> None:
        """Count a path that is left out."""
        self._counts[reason] += 1
        if len(self._examples[reason]) < 5:
            self._examples[reason].append(path)

    def result(self) -> tuple[LeftOut, ...]:
        """Return everything that was left out, by reason."""
        return tuple(
            LeftOut(reason=reason, count=count, examples=tuple(self._examples[reason]))
            for reason, count in sorted(self._counts.items())
        )


def survey(root: Path, *, limits: Limits | None = None, progress: Progress | None = None) -> SourceTree:
    """List a project's files with the hash, kind and length of each."""
    limits, report = limits or Limits(), progress or (lambda _: None)
    top, omissions = _checked_root(root), Omissions()
    paths, by_git = list_files(top, omissions.add)
    found = sorted(paths, key=lambda path: (path.count("/"), path))
    for path in found[limits.files :]:
        omissions.add(f"over the limit of {limits.files} files", path)
    files = []
    for number, path in enumerate(found[: limits.files]):
        if number % 250 == 0:
            report(f"reading: {number} of {len(found)} files")
        file = _examined(top / path, path, limits.hash_bytes, omissions)
        if file is not None:
            if file.kind == "text" and file.size > limits.text_bytes:
                omissions.add(f"content not used: text over the limit of {limits.text_bytes:,} bytes", path)
            files.append(file)
    method: Literal["checkout", "folder"] = "checkout" if by_git else "folder"
    name = os.fsencode(top.name).decode("utf-8", "backslashreplace") or "root"
    return SourceTree(top, Listing(name=name, method=method, files=tuple(files), left_out=omissions.result()), limits)


def may_hold_secrets(path: str) -> bool:
    """Return whether a file's name says that it holds keys or passwords; such content is never quoted."""
    return _SECRET.fullmatch(PurePosixPath(path).name) is not None


@lru_cache(maxsize=100_000)
def role_of(path: str) -> Role:
    """Return what a file is for, judged by its path."""
    *folders, name = path.split("/")
    if "src" in folders:  # below it, `example` is the name of a package
        at = folders.index("src")
        folders = folders[:at] + [each for each in folders[at + 1 :] if each in _ROLES["test"] | _ROLES["vendored"]]
    if set(folders) & _ROLES["vendored"]:
        return "vendored"
    if _GENERATED.fullmatch(name):
        return "generated"
    if _TEST_FILE.fullmatch(name):
        return "test"
    return next((role for role, names in _ROLES.items() if set(folders) & names), "source")


def is_own(path: str) -> bool:
    """Return whether a manifest at a path speaks for the project, rather than for its test data or an example."""
    hidden = any(folder.startswith(".") for folder in path.split("/")[:-1])
    return not hidden and role_of(path) in ("source", "generated")


def _checked_root(root: Path) -> Path:
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


def _examined(place: Path, path: str, most: int, omissions: Omissions) -> SourceFile | None:
    """Return a file as it is listed, after reading it once; None if it is not a regular file."""
    try:
        found = place.lstat()
        if not stat.S_ISREG(found.st_mode):
            link = stat.S_ISLNK(found.st_mode)
            omissions.add("symbolic link, not followed" if link else "not a regular file", path)
            return None
        if found.st_size > most:
            omissions.add("listed by size only: over a limit of bytes to read", path)
            return SourceFile(path=path, size=found.st_size, kind="unread")
        with open_regular_file(place) as file:
            content = file.read(most)
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
"""The folder with the saved results; it marks the output folder as ours."""

_FILES: dict[type[Record], tuple[str, str]] = {
    Listing: ("files.json", "detect-tech-stack"),
    TechStack: ("stack.json", "detect-tech-stack"),
    Documents: ("documents.json", "generate-docs"),
    KnowledgeIndex: ("index.json", "build-knowledge"),
    Verification: ("verification.json", "verify-ready"),
}

RecordT = TypeVar("RecordT", bound=Record)


def prepare_output(source: Path, out: Path) -> Path:
    """Create the output folder, unless writing there could touch somebody else's files."""
    top, place = source.resolve(), out.resolve()
    if place == top:
        raise ProjectError(f"the output folder {str(out)!r} is the project itself; choose another folder")
    if place.is_relative_to(top) and ".baton" not in place.relative_to(top).parts:
        raise ProjectError(
            f"the output folder {str(out)!r} is inside the project; choose one outside it, or below a folder '.baton'"
        )
    try:
        if place.is_dir() and not (place / STATE).is_dir() and any(place.iterdir()):
            raise ProjectError(f"the output folder {str(out)!r} holds other files; choose an empty one")
        (place / STATE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProjectError(f"the output folder {str(out)!r} cannot be used ({error.strerror})") from error
    return place


def write_bytes(out: Path, path: str, content: bytes) -> WrittenFile:
    """Write a file of the output folder."""
    place = out / path
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, content)
    return WrittenFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def save(out: Path, result: Record) -> None:
    """Save a stage's result in the output folder."""
    name, _ = _FILES[type(result)]
    write_bytes(out, f"{STATE}/{name}", (result.model_dump_json(indent=1) + "\n").encode())


def load(out: Path, kind: type[RecordT]) -> RecordT:
    """Load what an earlier stage saved."""
    name, stage = _FILES[kind]
    place = out / STATE / name
    try:
        return kind.model_validate_json(place.read_bytes())
    except OSError as error:
        why = f"{str(place)!r} cannot be read ({error.strerror})"
        raise ProjectError(f"{why}; run stage {stage} first") from error
    except ValidationError as error:
        raise ProjectError(
            f"{str(place)!r} is damaged ({error.error_count()} faults); run stage {stage} again"
        ) from None


def load_tree(out: Path, root: Path) -> SourceTree:
    """Return the saved listing over the project's folder as it is on this machine."""
    return SourceTree(root.resolve(), load(out, Listing))
