"""Unified diffs: read them, apply them to a text, and say which lines they add.

Reading is strict: a hunk must have as many lines as its header says. Applying is strict too: every line that a
hunk keeps or takes away must stand exactly where the hunk says, so that no line of a review is off by one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from baton.errors import BatonError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPED = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_NOWHERE = "/dev/null"
_BYTE_ORDER_MARK = "\ufeff"  # which no text has that is read as such
_MNEMONIC = re.compile(r'diff --git "?([ciow])/.* "?(?!\1)[ciow]/')
"""Commit, index, object, work tree: what stands for `a/` and `b/` with `diff.mnemonicPrefix`, never one for both."""
_COMBINED = ("diff --cc ", "diff --combined ")
_SUBMODULE = re.compile(
    r"Submodule .+ (?:[0-9a-f]{7,64}\.{2,3}[0-9a-f]{7,64}(?::| \()|contains (?:modified|untracked) content$)"
)
"""How git tells of a submodule's change under `--submodule=log` or `=diff`, instead of by a diff of its commit."""


class DiffError(BatonError):
    """A text is no unified diff, or does not fit the text it is applied to; the message names the line."""


@dataclass(frozen=True)
class Hunk:
    """One place of a file that changes.

    Attributes:
        old_start: The first line in the old text, from 1; where it has none, the line before.
        new_start: The first line in the new text, likewise.
        lines: Each with its sign in front: `" "` kept, `"-"` taken away, `"+"` added.
    """

    old_start: int
    new_start: int
    lines: tuple[str, ...]

    @property
    def old(self) -> list[str]:
        """The lines of the old text."""
        return [line[1:] for line in self.lines if line[0] in " -"]

    @property
    def new(self) -> list[str]:
        """The lines of the new text."""
        return [line[1:] for line in self.lines if line[0] in " +"]


@dataclass(frozen=True)
class FileDiff:
    """What a diff does to one file.

    Attributes:
        old: The file's path before; None where it is new.
        new: The file's path after; None where it is deleted.
        hunks: What changes in it, from top to bottom; none for a mere renaming.
        binary: Whether it is a binary file, whose change is not shown.
    """

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...] = ()
    binary: bool = False

    @property
    def path(self) -> str:
        """The path to name it by."""
        return self.new or self.old or ""

    @property
    def added(self) -> list[tuple[int, str]]:
        """Number and text of every line that is added."""
        return [(number, text) for sign, number, text in self._numbered() if sign == "+"]

    @property
    def removed(self) -> list[str]:
        """The text of every line that is taken away."""
        return [line[1:] for hunk in self.hunks for line in hunk.lines if line[0] == "-"]

    def _numbered(self) -> Iterator[tuple[str, int, str]]:
        for hunk in self.hunks:
            number = hunk.new_start if hunk.new else hunk.new_start + 1
            for line in hunk.lines:
                yield line[0], number, line[1:]
                number += line[0] in " +"


def parse_diff(text: str) -> tuple[FileDiff, ...]:
    r"""Read a unified diff, as `git diff`, `git format-patch` and `diff -u` write it.

    Args:
        text: The diff; a mail's header or a commit message around it is passed over.

    Returns:
        What it does to each file, in its order.

    Raises:
        DiffError: It has no changes, is a merge's combined diff, tells of a submodule in words, a hunk is cut off, or a
            path leads out of the project.

    Example:
        >>> [one] = parse_diff("--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n import os\n+import re\n")
        >>> one.path, one.added
        ('x.py', [(2, 'import re')])
    """
    files = tuple(_Reader(text).files())
    if not files:
        how = (
            "make it anew with `git diff --no-color`"
            if "\x1b[" in text
            else "give a unified diff, as `git diff` writes it"
        )
        raise DiffError(f"there is no change in this diff; {how}")
    return files


def apply_diff(diff: FileDiff, text: str) -> str:
    r"""Return a text with a diff applied; whether its last line ends with a newline stays as it is.

    Raises:
        DiffError: A line that it keeps or takes away is not there.

    Example:
        >>> [one] = parse_diff("--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n import os\n+import re\n")
        >>> apply_diff(one, "import os\n")
        'import os\nimport re\n'
    """
    lines = text.split("\n")
    done: list[str] = []
    at = 0
    for hunk in diff.hunks:
        old = hunk.old
        start = hunk.old_start - 1 if old else hunk.old_start
        if start < at or lines[start : start + len(old)] != old:
            raise DiffError(f"{diff.path}:{start + 1}: the diff does not fit this text; make it anew against it")
        done += [*lines[at:start], *hunk.new]
        at = start + len(old)
    return "\n".join([*done, *lines[at:]])


def reverse_diff(diff: FileDiff) -> FileDiff:
    r"""Return the diff that leads back.

    Example:
        >>> [one] = parse_diff("--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n import os\n+import re\n")
        >>> apply_diff(reverse_diff(one), "import os\nimport re\n")
        'import os\n'
    """
    signs = {" ": " ", "+": "-", "-": "+"}
    hunks = (
        Hunk(hunk.new_start, hunk.old_start, tuple(signs[line[0]] + line[1:] for line in hunk.lines))
        for hunk in diff.hunks
    )
    return FileDiff(diff.new, diff.old, tuple(hunks), diff.binary)


def is_applied(diff: FileDiff, text: str) -> bool:
    """Return whether a text is what a diff leads to, as far as its hunks show."""
    lines = text.split("\n")
    for hunk in diff.hunks:
        start = hunk.new_start - 1 if hunk.new else hunk.new_start
        if lines[start : start + len(hunk.new)] != hunk.new:
            return False
    return True


class _Reader:
    """Goes through the lines of a diff once."""

    def __init__(self, text: str) -> None:
        self._lines = text.replace("\r\n", "\n").split("\n")
        self._at = 0

    def files(self) -> Iterator[FileDiff]:
        """Yield what happens to each file."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                found = self._git_entry()
                if found is not None:
                    yield found
            elif line.startswith("--- ") and self._next().startswith("+++ "):
                old, new = self._names()
                yield FileDiff(old, new, tuple(self._hunks()))
            elif line.startswith(_COMBINED):
                raise DiffError(
                    f"line {self._at + 1}: a merge's combined diff is no patch; "
                    "give the merge as one, as `git diff MERGE^1 MERGE` writes it"
                )
            elif _SUBMODULE.match(line):
                raise DiffError(
                    f"line {self._at + 1}: a submodule's change is told in words, which are no patch; "
                    "make the diff anew with `git diff --submodule=short`"
                )
            else:
                self._at += 1

    def _git_entry(self) -> FileDiff | None:
        """Read what follows `diff --git`: extended headers, then names and hunks, if there are any."""
        prefixes = ("c/", "i/", "o/", "w/") if _MNEMONIC.match(self._lines[self._at]) else ("a/", "b/")
        old, new, binary = *_paths_of_header(self._lines[self._at], prefixes), False
        self._at += 1
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("--- ") and self._next().startswith("+++ "):
                old, new = self._names(prefixes)
                return FileDiff(old, new, tuple(self._hunks()))
            if line.startswith("diff --git ") or not _is_extended_header(line):
                break
            old = None if line.startswith("new file mode") else _after(line, "rename from ", "copy from ") or old
            new = None if line.startswith("deleted file mode") else _after(line, "rename to ", "copy to ") or new
            binary = binary or line.startswith(("Binary files ", "GIT binary patch"))
            self._at += 1
        return FileDiff(old, new, binary=binary) if old or new else None

    def _names(self, prefixes: tuple[str, ...] = ("a/", "b/")) -> tuple[str | None, str | None]:
        old, new = (_path(line[4:], prefixes) for line in self._lines[self._at : self._at + 2])
        self._at += 2
        return old, new

    def _next(self) -> str:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""

    def _hunks(self) -> Iterator[Hunk]:
        while self._at < len(self._lines) and (found := _HUNK.match(self._lines[self._at])):
            old_start, old_count, new_start, new_count = (int(one) if one else 1 for one in found.groups())
            first = self._at = self._at + 1
            lines: list[str] = []
            while old_count > 0 or new_count > 0:
                line = self._lines[self._at] if self._at < len(self._lines) else "@"
                sign = line[:1] or " "  # some programs strip the blank of an empty line that is kept
                if sign not in " +-":
                    raise DiffError(f"line {first}: this hunk of the diff is cut off; give the whole diff")
                lines.append(sign + (line[1:].removeprefix(_BYTE_ORDER_MARK) if old_start < 2 else line[1:]))
                old_count -= sign in " -"
                new_count -= sign in " +"
                # "\\ No newline at end of file", in any language: of the old text in the middle of a hunk, too
                self._at += 2 if self._next().startswith("\\") else 1
            yield Hunk(old_start, new_start, tuple(lines))


def _is_extended_header(line: str) -> bool:
    starts = ("old mode", "new mode", "deleted file", "new file", "rename ", "copy ", "similarity ", "dissimilarity ")
    return line.startswith((*starts, "index ", "Binary files ", "GIT binary patch"))


def _after(line: str, *starts: str) -> str | None:
    return next((_checked(_unquoted(line[len(start) :])) for start in starts if line.startswith(start)), None)


def _paths_of_header(line: str, prefixes: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Return both paths of `diff --git a/x b/x`, where they are the same; the rest is told by other headers."""
    rest = line.removeprefix("diff --git ")
    half = len(rest) // 2
    old, new = _unquoted(rest[:half]), _unquoted(rest[half + 1 :])
    if old == new:  # `diff.noprefix`
        return _checked(old), _checked(new)
    same = old[2:] == new[2:] and old[:2] != new[:2] and {old[:2], new[:2]} <= set(prefixes)
    return (_checked(old[2:]), _checked(new[2:])) if same else (None, None)


def _path(field: str, prefixes: tuple[str, ...]) -> str | None:
    """Return the path of a `---` or `+++` line without its prefix; None for a file that is not there."""
    # A name with blanks ends at a tab, and may end in blanks.
    name = _unquoted(field if field.startswith('"') else field.split("\t")[0] if "\t" in field else field.rstrip())
    if name == _NOWHERE:
        return None
    return _checked(name[2:] if name.startswith(prefixes) else name)


def _unquoted(name: str) -> str:
    if not (name.startswith('"') and name.rstrip().endswith('"')):
        return name
    raw = _ESCAPED.sub(
        lambda found: bytes([_ESCAPES[found[1]] if found[1] in _ESCAPES else int(found[1], 8) & 255]),
        name.rstrip()[1:-1].encode(),
    )
    return raw.decode("utf-8", "backslashreplace")


def _checked(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or ".git" in parts or "\0" in path:
        raise DiffError(f"the diff names {path!r}, which is no place inside the project; take it out")
    return path
