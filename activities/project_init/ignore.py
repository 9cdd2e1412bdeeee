"""Which folders and files are never part of a project's own source, and the rules of `.gitignore`.

Git itself is asked where it can be (`listing`); these rules serve folders that are no checkout. Matching is
linear in the length of a name whatever the pattern, because patterns come from the project.
"""

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

_ALWAYS: dict[str, str] = {
    ".git": "version control",
    ".hg": "version control",
    ".svn": "version control",
    ".jj": "version control",
    ".baton": "Baton's own output",
    "node_modules": "installed packages",
    "bower_components": "installed packages",
    ".venv": "installed packages",
    ".pnpm-store": "installed packages",
    ".yarn": "installed packages",
    "site-packages": "installed packages",
    "__pycache__": "cache",
    ".mypy_cache": "cache",
    ".pytest_cache": "cache",
    ".ruff_cache": "cache",
    ".hypothesis": "cache",
    ".import_linter_cache": "cache",
    ".cache": "cache",
    ".gradle": "cache",
    ".parcel-cache": "cache",
    ".turbo": "cache",
    ".terraform": "cache",
    ".dart_tool": "cache",
    ".tox": "build output",
    ".nox": "build output",
    ".eggs": "build output",
    ".next": "build output",
    ".nuxt": "build output",
    ".svelte-kit": "build output",
    "htmlcov": "build output",
    ".idea": "editor settings",
    ".vs": "editor settings",
}
_OUTSIDE_GIT: dict[str, str] = {
    "build": "build output",
    "dist": "build output",
    "target": "build output",
    "out": "build output",
    "obj": "build output",
    "_build": "build output",
    "coverage": "build output",
    "venv": "installed packages",
    "vendor": "vendored packages",
}
"""Common words that may also name real source: git decides, and only where there is no git do we."""

_SECRET_NAME = re.compile(
    r"""(?ix) ^(
        \.env(\.(?!example$|sample$|template$|dist$|defaults?$)[\w.-]+)?
      | .*\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk)
      | id_(rsa|dsa|ecdsa|ed25519) | \.(npmrc|pypirc|netrc|pgpass|htpasswd|git-credentials)
      | credentials(\.(json|ya?ml|ini))? | secrets?\.(json|ya?ml|ini|toml|env) | .*\.tfstate(\.backup)?
      | service[-_]account.*\.json )$"""
)


def skipped_folder(name: str, children: Iterable[str] = (), *, in_git: bool) -> str | None:
    """Return why a folder is not part of the source, or None if it is.

    Args:
        name: The folder's own name.
        children: The names directly in it, where they are known; they reveal virtual environments and
            keep a package that happens to be called `build`.
        in_git: Whether git listed the files; then only names that never are source are skipped.

    Example:
        >>> skipped_folder("node_modules", in_git=True), skipped_folder("build", in_git=True)
        ('installed packages', None)
    """
    if name in _ALWAYS:
        return _ALWAYS[name]
    if name.endswith((".egg-info", ".dist-info")):
        return "build output"
    inside = set(children)
    if "pyvenv.cfg" in inside:
        return "installed packages"
    if in_git or "__init__.py" in inside:
        return None
    return _OUTSIDE_GIT.get(name)


def may_hold_secrets(path: str) -> bool:
    """Return whether a file's name says that it holds keys or passwords; such content is never quoted.

    The name alone decides: this does not look for secrets in other files.

    Example:
        >>> may_hold_secrets("deploy/.env"), may_hold_secrets(".env.example")
        (True, False)
    """
    return _SECRET_NAME.match(PurePosixPath(path).name) is not None


@dataclass(frozen=True)
class _Rule:
    """One line of a `.gitignore`; None among the segments stands for `**`."""

    segments: tuple[re.Pattern[str] | None, ...]
    negated: bool
    folders_only: bool

    def matches(self, parts: tuple[str, ...]) -> bool:
        """Follow every way to match at once, so that `**` and `*` cannot blow up."""
        reached = {0}
        for index, segment in enumerate(self.segments):
            if segment is None:
                least = min(reached) + (1 if index == len(self.segments) - 1 else 0)
                reached = set(range(least, len(parts) + 1))
            else:
                reached = {at + 1 for at in reached if at < len(parts) and segment.match(parts[at])}
            if not reached:
                return False
        return len(parts) in reached


@lru_cache(maxsize=4096)
def _segment(pattern: str) -> re.Pattern[str]:
    literal_escapes = re.sub(r"\\(.)", lambda found: f"[{found[1]}]", pattern)
    return re.compile(fnmatch.translate(literal_escapes))


def _parse(line: str) -> _Rule | None:
    line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not line or line.startswith("#") or len(line) > 500:
        return None
    negated = line.startswith("!")
    line = line[1:] if negated else line
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    anchored = "/" in line
    names = [name for name in line.split("/") if name]
    if not names:
        return None
    segments: list[re.Pattern[str] | None] = [] if anchored else [None]
    for name in names:
        try:
            segments.append(None if name == "**" else _segment(name))
        except re.error:  # an impossible class such as `[z-a]`: git matches nothing with it either
            return None
    return _Rule(tuple(segments), negated, folders_only)


class IgnoreRules:
    """The `.gitignore` files met on the way down a tree; the last rule that matches decides.

    As in git, a file cannot be included again when a folder above it is ignored: whoever walks the tree
    does not enter such folders. Not read: `core.excludesFile` and `.git/info/exclude`, which belong to a
    user or a checkout.

    Example:
        >>> rules = IgnoreRules().extended("", "*.log").extended("docs", "!keep.log")
        >>> [rules.ignores(name, is_folder=False) for name in ("a/b.log", "docs/keep.log", "keep.log")]
        [True, False, True]
    """

    def __init__(self, layers: tuple[tuple[int, tuple[_Rule, ...]], ...] = ()) -> None:
        self._layers = layers

    def extended(self, folder: str, text: str) -> "IgnoreRules":
        """Return these rules and those that ``text``, a `.gitignore` in ``folder``, adds below it."""
        depth = len(PurePosixPath(folder).parts)
        rules = tuple(rule for line in text.split("\n") if (rule := _parse(line)) is not None)
        return IgnoreRules((*self._layers, (depth, rules)))

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the file or folder at ``path`` (relative to the top) is ignored."""
        parts = PurePosixPath(path).parts
        for depth, rules in reversed(self._layers):
            for rule in reversed(rules):
                if (is_folder or not rule.folders_only) and rule.matches(parts[depth:]):
                    return not rule.negated
        return False
