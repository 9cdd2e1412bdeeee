"""Writing Markdown that stays what it is whatever a file is called or holds, and reading it back.

Everything that comes from the project passes through `text`, `code` or `link`; a name with a pipe, a
backtick, a line end or a tag in it is shown, and starts nothing.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from urllib.parse import quote

_SPECIAL = re.compile(r"[\\`*\[\]<|~$]|(?<![^\W_])_+|_+(?![^\W_])|&(?=#|\w+;)")
_BLOCK_START = re.compile(r"^(\d+)(?=[.)])|^(?=[-+=#>])")
_CODE_WORDS = re.compile(r"(?<!`)`{1,2}(?!`)([^`]+)(?<!`)`{1,2}(?!`)")
_BARE_PIPE = re.compile(r"(?<!\\)\|")
_SPACES = re.compile(r"\s+")
LONGEST = 160
"""Characters after which a quoted text is cut, with an ellipsis."""


def visible(value: str, longest: int = LONGEST) -> str:
    """Return ``value`` on one line, control and direction characters spelt out, cut at ``longest``.

    Example:
        >>> visible("two" + chr(10) + "lines"), visible(chr(0x202E) + "evil").replace(chr(92), "!")
        ('two lines', '!u202eevil')
    """
    line = _SPACES.sub(" ", value).strip()
    shown = "".join(_shown(character) for character in line[: longest + 1])
    return shown if len(line) <= longest else shown[: longest - 1].rstrip() + "…"


def _shown(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    unsafe = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return f"\\u{ord(character):04x}" if unsafe else character


def text(value: str, longest: int = LONGEST) -> str:
    """Return ``value`` as plain Markdown text on one line: no mark-up, no tag, no table border.

    Example:
        >>> text("1. [x] <b> snake_case").replace(chr(92), "!")
        '1!. ![x!] !<b> snake_case'
    """
    return _BLOCK_START.sub(r"\g<0>\\", _SPECIAL.sub(_escaped, visible(value, longest)))


def _escaped(found: re.Match[str]) -> str:
    return "".join("\\" + each for each in found[0])


def code(value: str, longest: int = LONGEST) -> str:
    """Return ``value`` as a code span.

    Example:
        >>> code("a`b")
        '`` a`b ``'
    """
    shown = visible(value, longest) or " "
    runs = [len(run) for run in re.findall(r"`+", shown)]
    fence = "`" * (max(runs, default=0) + 1)
    return f"{fence} {shown} {fence}" if runs else f"{fence}{shown}{fence}"


def prose(value: str, longest: int = LONGEST) -> str:
    """Return a sentence as Markdown text; what stands between backticks in it becomes a code span.

    Example:
        >>> prose("run `make *` <now>").replace(chr(92), "!")
        'run `make *` !<now>'
    """
    parts = _CODE_WORDS.split(visible(value, longest))
    shown = [code(part) if at % 2 else _SPECIAL.sub(_escaped, part) for at, part in enumerate(parts)]
    return _BLOCK_START.sub(r"\g<0>\\", "".join(shown))


def link(label: str, path: str, anchor: str = "") -> str:
    """Return a link whose label is shown as code.

    Args:
        label: What is shown.
        path: A relative path with forward slashes.
        anchor: The place in that file, without `#`.

    Example:
        >>> link("my file", "../a b.md", "x")
        '[`my file`](../a%20b.md#x)'
    """
    target = quote(path, safe="/-._~") + (f"#{quote(anchor, safe='-._~')}" if anchor else "")
    return f"[{code(label)}]({target})"


def slug(heading: str) -> str:
    """Return the anchor that a heading's text gets: lower case, words joined by hyphens, as forges do it.

    Example:
        >>> slug("How to build & test")
        'how-to-build--test'
    """
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are Markdown already, on one line each. Bare pipes in them are escaped."""
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(_BARE_PIPE.sub(r"\\|", cell) or " " for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def bullets(items: Iterable[str]) -> str:
    """Return a list; the items are Markdown already, on one line each."""
    return "\n".join(f"- {item}" for item in items)


def fence(lines: Iterable[str], language: str) -> str:
    """Return a block of code that no line of it can end."""
    content = ["".join(_shown(each) for each in line.expandtabs(4).rstrip()[:2000]) for line in lines]
    longest = max((len(run) for line in content for run in re.findall(r"`+", line)), default=0)
    marks = "`" * max(3, longest + 1)
    return "\n".join([f"{marks}{language}", *content, marks])


def page(*parts: str) -> str:
    """Return a document: its parts, the empty ones left out, with a blank line between them."""
    return "\n\n".join(part for part in parts if part) + "\n"


def some(items: Sequence[str], most: int, what: str) -> list[str]:
    """Return at most ``most`` items and, where there are more, a last one that says so.

    Example:
        >>> some(["a", "b", "c"], 2, "files")
        ['a', 'b', '… and 1 more files']
    """
    if len(items) <= most:
        return list(items)
    return [*items[:most], f"… and {len(items) - most} more {what}"]
