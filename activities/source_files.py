"""List, classify and safely read the files of an untrusted folder.

Git lists the files, also in a folder that is not a checkout, so `.gitignore` files count. No link is followed, no pipe
or device is opened, no hook or filter of the checkout is started, and nothing is written.
"""

import io
import os
import re
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from identify.identify import parse_shebang, tags_from_filename, tags_from_interpreter

from baton.errors import BatonError

LeaveOut = Callable[[str, str], None]
"""Called with the reason and the path of each omitted file."""

_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_GIT_SECONDS = 60
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.excludesFile=")
GIT_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
"""What keeps git from reading the user's settings, and from fetching."""
_UNTRACKED = ("--others", "--exclude-standard")
_IGNORED = ("ls-files", "-z", "--ignored", "--directory", *_UNTRACKED)
_BATON_FOLDER = ".baton"
_VERSION_CONTROL = frozenset((".git", ".hg", ".svn", ".jj"))
# Outside a checkout, git cannot tell what was installed or built.
_SKIPPED = """
node_modules bower_components .venv venv .yarn .pnpm-store site-packages __pycache__ .mypy_cache .pytest_cache
.ruff_cache .hypothesis .cache .gradle .terraform .tox .nox .eggs .next .nuxt htmlcov .idea .vs
/build /dist /target /out /obj /_build /coverage /vendor
"""


def list_files(root: Path, leave_out: LeaveOut) -> tuple[list[str], bool]:
    """Return the paths of a folder's own files, and whether it is a git checkout."""
    listed = git(root, "ls-files", "-z", "--cached", *_UNTRACKED)
    if listed is not None and git(root, "check-ignore", "-q", ".") is None:
        return _select_own(root, listed, git(root, *_IGNORED) or b"", leave_out), True
    with tempfile.TemporaryDirectory() as folder:
        if git(root, "init", "--quiet", "--template=", folder) is None:
            raise BatonError(
                "git is not installed on this worker; install it, so that the project's files can be listed"
            )
        options = (f"--git-dir={folder}/.git", f"--work-tree={root}")
        skipped = "".join(f"{name}/\n" for name in _SKIPPED.split())
        Path(folder, ".git", "info").mkdir(exist_ok=True)
        Path(folder, ".git", "info", "exclude").write_text(skipped, encoding="utf-8")
        listed, ignored = git(root, *options, "ls-files", "-z", *_UNTRACKED), git(root, *options, *_IGNORED)
    if listed is None:
        raise BatonError(f"git cannot list the files of {str(root)!r}; check its permissions")
    return _select_own(root, listed, ignored or b"", leave_out), False


def decode_text(content: bytes) -> str:
    r"""Decode UTF-8, or UTF-16 with a byte order mark; line ends become `\n`, invalid bytes U+FFFD."""
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    return content.decode(encoding, "replace").replace("\r\n", "\n").replace("\r", "\n")


def open_regular_file(path: Path) -> io.BufferedReader:
    """Open a regular file; raise OSError for a link, pipe or device."""
    descriptor = os.open(path, _OPEN)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file")
    return os.fdopen(descriptor, "rb")


def git(root: Path, *arguments: str) -> bytes | None:
    """Return git's output, or None if it is missing or fails. Hooks and the user's settings are disabled."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), **GIT_ENVIRONMENT}
    command = [*_GIT, "-C", str(root), *arguments]
    try:
        result = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def _select_own(root: Path, listed: bytes, ignored: bytes, leave_out: LeaveOut) -> list[str]:
    for raw in filter(None, ignored.split(b"\0")):
        path = raw.decode("utf-8", "backslashreplace")
        if not {*path.split("/")} & {_BATON_FOLDER, *_VERSION_CONTROL}:
            leave_out("ignored, installed or built", path)

    @cache
    def is_usable(folder: str) -> bool:
        names = folder.split("/") if folder else []
        if {_BATON_FOLDER, *_VERSION_CONTROL} & {*names}:
            return False
        if (root / folder).resolve() != root / folder:
            leave_out("symbolic link, not followed", folder)
            return False
        return True

    paths = []
    for raw in sorted(set(filter(None, listed.split(b"\0")))):
        path = raw.decode("utf-8", "backslashreplace")
        if raw != path.encode():
            leave_out("name is not UTF-8", path)
        elif path.endswith("/") or ((root / path).is_dir() and not (root / path).is_symlink()):
            leave_out("nested git repository", path)
        elif is_usable(path.rpartition("/")[0]):
            paths.append(path)
    return paths


_SECRET = re.compile(
    r"""(?ix) \.env(\.(?!example$|sample$|template$|dist$|defaults?$)[\w.-]+)?
      | .*\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk) | id_(rsa|dsa|ecdsa|ed25519)
      | \.(npmrc|pypirc|netrc|pgpass|htpasswd|git-credentials) | credentials(\.(json|ya?ml|ini))?
      | secrets?\.(json|ya?ml|ini|toml|env) | .*\.tfstate(\.backup)? | service[-_]account.*\.json"""
)
_TEST_FILE = re.compile(
    r"(test_.*|.*_tests?|conftest|tests?)\.pyi?|.*_test\.(go|dart|exs|cc|cpp|c|rs|rb)|.*_spec\.(rb|lua)"
    r"|.*[.](tests?|specs?|cy|e2e)\.(js|jsx|ts|tsx|mjs|cjs|vue|svelte)"
    r"|.*(Test|Tests|Spec)\.(java|kt|scala|cs|php|swift)"
)
TEST_FOLDERS = frozenset(
    ("test", "tests", "__tests__", "spec", "specs", "e2e", "cypress", "testdata", "test-data", "fixtures", "snapshots")
)


def may_hold_secrets(path: str) -> bool:
    """Return whether a file may hold keys or passwords, by its name; such content is never quoted."""
    return _SECRET.fullmatch(PurePosixPath(path).name) is not None


def is_test_file(path: str) -> bool:
    """Return whether a path is that of a test file or of its data."""
    *folders, name = path.split("/")
    return bool(TEST_FOLDERS & {*folders}) or _TEST_FILE.fullmatch(name) is not None


LanguageKind = Literal["programming", "markup", "data", "prose"]

_LANGUAGES: dict[str, tuple[str, Any]] = {
    tag: (name, kind)
    for kind, names in tomllib.loads(files("activities").joinpath("languages.toml").read_text("utf-8")).items()
    for name, tags in names.items()
    for tag in tags.split()
}


@lru_cache(maxsize=100_000)
def language_of(path: str, start: bytes = b"") -> tuple[str, LanguageKind] | None:
    """Return the language of a file and its kind, or None."""
    tags = tags_from_filename(PurePosixPath(path).name)
    if not tags and start.startswith(b"#!") and (words := parse_shebang(io.BytesIO(start))):
        tags = tags_from_interpreter(PurePosixPath(words[0]).name)
    return next((_LANGUAGES[tag] for tag in _LANGUAGES if tag in tags), None)
