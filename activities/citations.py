"""Citations: nothing is reported of a line that does not have the words that it is cited for."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Citation(NamedTuple):
    """Words, and the line in which they begin: its number from 1 in these lines. `place` is the text for readers."""

    place: str
    lines: Sequence[str]
    line: int
    words: str


def find_unproved(citations: Iterable[Citation]) -> list[str]:
    """Return the citations whose line does not exist or does not have the words, as messages.

    Words may continue in the lines below theirs. White space counts as one space.

    Example:
        >>> find_unproved([Citation("a.txt:1", ["A fixed-", "price offer"], 1, "fixed-price offer")])
        []
        >>> find_unproved([Citation("a.txt:2", ["A fixed-", "price offer"], 2, "fixed-price offer")])
        ["a.txt:2 does not have 'fixed-price offer'"]
    """
    return [
        f"{citation.place} does not have {citation.words[:40]!r}"
        for citation in citations
        if not _begins_in(citation.lines, citation.line - 1, " ".join(citation.words.split()))
    ]


def join_lines(lines: Iterable[str]) -> tuple[str, list[int]]:
    """Return lines as one text, a word that a line's end parted in one piece, and where each of them begins in it."""
    parts, starts, length = list[str](), list[int](), 0
    for line in lines:
        is_parted = parts and re.search(r"[a-z]-$", parts[-1]) and re.match(r"[a-z]", line)
        separator = " " if parts and not is_parted else ""
        starts.append(length + len(separator))
        parts.append(separator + line)
        length += len(parts[-1])
    return "".join(parts), starts


def _begins_in(lines: Sequence[str], first: int, words: str) -> bool:
    if not 0 <= first < len(lines) or words in lines[first]:
        return 0 <= first < len(lines)
    last, length = first + 1, 0
    while last < len(lines) and length < len(words):
        length, last = length + len(lines[last]), last + 1
    text, starts = join_lines(" ".join(line.split()) for line in lines[first:last])
    end = starts[1] if len(starts) > 1 else len(text)
    return 0 <= text.find(words) < max(end, 1)
