"""Where an entry of a report points: the path, the lines and the remark in "`path:50-75` - what changed"."""

import re
from dataclasses import dataclass

from baton.report.escaping import without_code_span

_LINES = re.compile(r"(.+?):(L?[0-9]+(?:[-–]L?[0-9]+)?(?:, ?[0-9]+(?:[-–][0-9]+)?)*)")
_SPAN_FIRST = re.compile(r"(`+)(?!`)[^\n]*?(?<!`)\1(?!`)")
# It begins where blanks begin, so that a long run of them costs one look at each.
_SEPARATOR = re.compile(r"(?<![ \t])(?:[ \t]+[-—–][ \t]+|[ \t]*[—–][ \t]*)|:[ \t]+")


@dataclass(frozen=True)
class PathEntry:
    """What an entry says.

    Attributes:
        path: A file or a module; may be empty.
        lines: Which lines of it, or nothing.
        remark: What is said about it.
    """

    path: str
    lines: str
    remark: str


def path_entry(text: str) -> PathEntry:
    """Return what an entry such as "`src/auth.ts:50-75` - new flow" says; a hyphen or a dash separates (C-33).

    Example:
        >>> path_entry("`src/auth.ts:50-75` — new flow")
        PathEntry(path='src/auth.ts', lines='50-75', remark='new flow')
        >>> path_entry("plan.md")
        PathEntry(path='plan.md', lines='', remark='')
    """
    span = _SPAN_FIRST.match(text)
    if span:
        path, rest = without_code_span(span[0]), text[span.end() :]
        remark = rest.strip().lstrip("-—–:").strip()
    else:
        separator = _SEPARATOR.search(text)
        path = text[: separator.start()] if separator else text
        remark = text[separator.end() :].strip() if separator else ""
    numbered = _LINES.fullmatch(path.strip())
    return PathEntry(numbered[1], numbered[2], remark) if numbered else PathEntry(path.strip(), "", remark)
