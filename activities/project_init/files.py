"""The files of a project: which they are, what they are, their hashes, and reading them within limits.

Git is asked which files belong to a checkout; any other folder is walked, under its `.gitignore` files. No link is
followed, no pipe or device is opened, and nothing is written.
"""

import hashlib
import io
import os
import re
import stat
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

from identify.identify import is_text
from pathspec import GitIgnoreSpec

from activities.project_init.records import LeftOut, Listing, ProjectError, SourceFile

Progress = Callable[[str], None]
"""Called now and then with a line on how far the work is; raising from it cancels the work."""

Role = Literal["source", "test", "docs", "example", "generated", "vendored"]

_MIB = 1024 * 1024
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_GIT_SECONDS = 60
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.excludesFile=")
_GIT_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_OURS = ".baton"
_SKIPPED_NAMES = """
node_modules bower_components .venv .yarn .pnpm-store site-packages __pycache__ .mypy_cache .pytest_cache .ruff_cache
.hypothesis .import_linter_cache .cache .gradle .terraform .tox .nox .eggs .next .nuxt htmlcov .idea .vs
"""
_SKIPPED = frozenset(_SKIPPED_NAMES.split())
_SKIPPED_OUTSIDE_GIT = frozenset(("build", "dist", "target", "out", "obj", "_build", "coverage", "venv", "vendor"))
_VERSION_CONTROL = frozenset((".git", ".hg", ".svn", ".jj"))
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
    "vendored": frozenset(("vendor", "third_party", "_vendor", "_vendored")),
    "test": frozenset(_TEST_FOLDERS.split()),
    "example": frozenset(("example", "examples", "sample", "samples", "demo", "demos")),
    "docs": frozenset(("doc", "docs", "documentation", "website")),
}


@dataclass(frozen=True)
class Limits:
    """How much of a project is read; beyond it things are counted and named.

    Attributes:
        files: Most files in the list; the least deep come first.
        text_bytes: Longest text whose content is used.
        hash_bytes: Longest file that is hashed.
        total_bytes: Most bytes that are read in one survey.
    """

    files: int = 50_000
    text_bytes: int = 1 * _MIB
    hash_bytes: int = 32 * _MIB
    total_bytes: int = 1024 * _MIB


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
        r"""Return the text of a listed file, with `\n` as its line ends.

        Returns:
            The text; None if the file is binary, too long, gone, or may hold secrets by its name.
        """
        file = self.by_path.get(path)
        if file is None or file.kind != "text" or file.size > self.limits.text_bytes or may_hold_secrets(path):
            return None
        content = self.head(path, self.limits.text_bytes)
        return None if content is None else as_text(content)

    def head(self, path: str, most: int) -> bytes | None:
        """Return the first bytes of a listed file; None if it cannot be read any more."""
        try:
            with _opened(self.root / path) as file:
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
    """List a project's files with the hash, kind and length of each.

    Args:
        root: The project's folder; it is only read.
        limits: How much to read.
        progress: Called every few hundred files.

    Returns:
        The tree; for the same folder and limits, the same listing.

    Raises:
        ProjectError: ``root`` is missing, is not a folder, or cannot be read.
    """
    limits, report = limits or Limits(), progress or (lambda _: None)
    top, omissions = _checked_root(root), Omissions()
    listed = _listed_by_git(top, omissions)
    found = sorted(listed if listed is not None else _walk(top, omissions), key=lambda path: (path.count("/"), path))
    for path in found[limits.files :]:
        omissions.add(f"over the limit of {limits.files} files", path)
    files, left = [], limits.total_bytes
    for number, path in enumerate(found[: limits.files]):
        if number % 250 == 0:
            report(f"reading: {number} of {len(found)} files")
        file = _examined(top / path, path, min(limits.hash_bytes, left), omissions)
        if file is not None:
            left -= file.size if file.kind != "unread" else 0
            if file.kind == "text" and file.size > limits.text_bytes:
                omissions.add(f"content not used: text over the limit of {limits.text_bytes:,} bytes", path)
            files.append(file)
    method: Literal["git", "walk"] = "walk" if listed is None else "git"
    name = os.fsencode(top.name).decode("utf-8", "backslashreplace") or "root"
    return SourceTree(top, Listing(name=name, method=method, files=tuple(files), left_out=omissions.result()), limits)


def as_text(content: bytes) -> str:
    r"""Return bytes as text: UTF-8 or marked UTF-16, with `\n` as line ends and faults as U+FFFD.

    Example:
        >>> as_text(bytes([97, 13, 10, 98, 255])).split()
        ['a', 'b�']
    """
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    return content.decode(encoding, "replace").replace("\r\n", "\n").replace("\r", "\n")


def may_hold_secrets(path: str) -> bool:
    """Return whether a file's name says that it holds keys or passwords; such content is never quoted.

    Example:
        >>> may_hold_secrets("deploy/.env"), may_hold_secrets(".env.example")
        (True, False)
    """
    return _SECRET.fullmatch(PurePosixPath(path).name) is not None


@lru_cache(maxsize=100_000)
def role_of(path: str) -> Role:
    """Return what a file is for, judged by its path.

    Example:
        >>> [role_of(path) for path in ("src/app.py", "tests/test_app.py", "docs/guide.md", "web/app.min.js")]
        ['source', 'test', 'docs', 'generated']
    """
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


def _git(root: Path, *arguments: str) -> bytes | None:
    """Return what git answers; None if it is missing or refuses. Its hooks and the user's settings are off."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), **_GIT_ENVIRONMENT}
    command = [*_GIT, "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _listed_by_git(root: Path, omissions: Omissions) -> list[str] | None:
    """Return what git counts as the project's files; None if this is not a checkout, or is ignored by one."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None or _git(root, "check-ignore", "-q", ".") is not None:
        return None
    ignored = _git(root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory") or b""
    for raw in filter(None, ignored.split(b"\0")):
        path = raw.decode("utf-8", "backslashreplace")
        if not {*path.split("/")} & {_OURS, *_VERSION_CONTROL}:
            omissions.add("ignored by .gitignore", path)

    @cache
    def is_usable(folder: str) -> bool:
        names = folder.split("/") if folder else []
        if {_OURS, *_VERSION_CONTROL} & {*names}:
            return False
        if _SKIPPED & {*names}:
            omissions.add("installed packages, caches and build output", folder + "/")
            return False
        if (root / folder).resolve() != root / folder:
            omissions.add("symbolic link, not followed", folder)
            return False
        return True

    paths = []
    for raw in sorted(set(filter(None, listed.split(b"\0")))):
        path = raw.decode("utf-8", "backslashreplace")
        if raw != path.encode():
            omissions.add("name is not UTF-8", path)
        elif path.endswith("/"):
            omissions.add("nested git repository", path)
        elif is_usable(path.rpartition("/")[0]):
            paths.append(path)
    return paths


def _walk(root: Path, omissions: Omissions) -> Iterator[str]:
    """Yield the path of every file below a folder, under its `.gitignore` files."""
    waiting: list[tuple[str, tuple[tuple[str, GitIgnoreSpec], ...]]] = [("", ())]
    while waiting:
        folder, rules = waiting.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError as error:
            omissions.add(f"folder cannot be read ({error.strerror})", folder + "/")
            continue
        names = {entry.name for entry in entries}
        if "pyvenv.cfg" in names:
            omissions.add("installed packages, caches and build output", folder + "/")
            continue
        if ".gitignore" in names and (text := _text_of(root / folder / ".gitignore")):
            rules = (*rules, (folder, GitIgnoreSpec.from_lines(text.split("\n"))))
        for entry in entries:
            path = f"{folder}/{entry.name}".lstrip("/")
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in _VERSION_CONTROL or entry.name == _OURS:
                continue
            reason = _reason_to_skip(entry, path, rules, is_folder=is_folder)
            if reason is not None:
                omissions.add(reason, path + "/" * is_folder)
            elif is_folder:
                waiting.append((path, rules))
            else:
                yield path


def _reason_to_skip(
    entry: "os.DirEntry[str]", path: str, rules: tuple[tuple[str, GitIgnoreSpec], ...], *, is_folder: bool
) -> str | None:
    """Return why an entry of a folder is not part of the project, or None."""
    if entry.name.encode("utf-8", "replace") != os.fsencode(entry.name):
        return "name is not UTF-8"
    if entry.is_symlink():
        return "symbolic link, not followed"
    if is_folder and (entry.name in _SKIPPED or (entry.name in _SKIPPED_OUTSIDE_GIT and not _is_package(entry))):
        return "installed packages, caches and build output"
    for folder, spec in rules:
        if spec.match_file(path[len(folder) :].lstrip("/") + "/" * is_folder):
            return "ignored by .gitignore"
    return None


def _is_package(entry: "os.DirEntry[str]") -> bool:
    return os.path.exists(os.path.join(entry.path, "__init__.py"))


def _text_of(place: Path) -> str:
    try:
        with _opened(place) as file:
            return file.read(256 * 1024).decode("utf-8", "replace")
    except OSError:
        return ""


def _opened(place: Path) -> io.BufferedReader:
    """Open a regular file; a link, pipe or device in its place is refused."""
    descriptor = os.open(place, _OPEN)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file")
    return os.fdopen(descriptor, "rb")


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
        digest, size, lines, last, text = hashlib.sha256(), 0, 0, b"", True
        with _opened(place) as file:
            while (block := file.read(_MIB)) and size <= most:
                text = (is_text(io.BytesIO(block)) or block[:2] in (b"\xff\xfe", b"\xfe\xff")) if size == 0 else text
                digest.update(block)
                size += len(block)
                lines += block.count(b"\n") or block.count(b"\r")
                last = block[-1:]
    except OSError as error:
        omissions.add(f"cannot be read ({error.strerror})", path)
        return None
    if may_hold_secrets(path):
        omissions.add("content not used: may hold secrets", path)
    lines += last not in (b"", b"\n", b"\r")
    kind: Literal["text", "binary"] = "text" if text else "binary"
    return SourceFile(path=path, size=size, kind=kind, lines=lines if text else 0, sha256=digest.hexdigest())
