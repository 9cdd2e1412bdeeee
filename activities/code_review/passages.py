"""Which lines of a text are under review: passages, as first and last line from 1."""

import difflib
import re
from collections.abc import Iterable

_MOST_COMPARED = 5_000  # lines
_CODED = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
_SLOW = ("punycode", "idna")  # and they hide no line: what they encode is no ASCII

Passages = tuple[tuple[int, int], ...]


def passages_between(old: str | None, new: str) -> Passages:
    """Return which lines of a text are new or changed; a place where lines were only removed has none.

    Of a large file of which much changed, those are the lines that the old text has nowhere: the time that a
    comparison takes grows with the square of what changed.
    """
    if old is None:
        return ((1, len(_lines(new))),)
    before, after = _lines(old), _lines(new)
    if _differing(before, after) > _MOST_COMPARED:
        known = set(before)
        return passages_of(number for number, line in enumerate(after, 1) if line not in known)
    matcher = difflib.SequenceMatcher(None, before, after)
    return tuple((low + 1, high) for tag, _, _, low, high in matcher.get_opcodes() if tag in ("replace", "insert"))


def _differing(before: list[str], after: list[str]) -> int:
    """Return how many lines of the longer text lie between what both begin with and what both end with."""
    shorter = min(len(before), len(after))
    head = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    tail = next((n for n in range(shorter - head) if before[-1 - n] != after[-1 - n]), shorter - head)
    return max(len(before), len(after)) - head - tail


def _lines(text: str) -> list[str]:
    """Return the lines of a text; the line end after the last one begins no further line."""
    return text.removesuffix("\n").split("\n")


def passages_of(numbers: Iterable[int]) -> Passages:
    """Return line numbers, in order, as passages.

    Example:
        >>> passages_of([2, 3, 7])
        ((2, 3), (7, 7))
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def hides_lines(text: str) -> bool:
    """Return whether Python reads other lines than everybody else, by the encoding that the text says it is in.

    With `coding: utf-7` a comment can hold the end of its line and a program after it.
    """
    named = next((found[1] for line in text.split("\n", 2)[:2] if (found := _CODED.match(line))), "utf-8")
    if named.lower() in _SLOW:
        return False
    try:
        return text.encode("utf-8", "replace").decode(named).count("\n") != text.count("\n")
    except (LookupError, ValueError):  # what Python cannot read, it does not run
        return False
