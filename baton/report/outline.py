"""The outline of a Markdown text: its top-level blocks and list items with the lines they stand on, and no more.

Text is taken from the source lines, never from a rendering, so that marks survive. Not read as Markdown are what can
hide or swallow the lines behind it: HTML, link definitions, and underlined headings.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

MOST_NESTING = 40
"""How deep lists and quotes may be nested; the lines behind what is deeper would not be read."""

_MARKER = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])")
_KINDS = {
    "heading_open": "heading",
    "hr": "rule",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
}

_MARKDOWN = MarkdownIt("commonmark", {"maxNesting": MOST_NESTING}).enable("table")
_MARKDOWN.disable(["html_block", "reference", "lheading", "inline"])


class NestedTooDeepError(ValueError):
    """A text is nested deeper than `MOST_NESTING`.

    Attributes:
        line: Where, from 1.
    """

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: nested deeper than {MOST_NESTING} levels; make it flatter")
        self.line = line


@dataclass(frozen=True)
class Item:
    """One item of a list.

    Attributes:
        start: Its first line, from 0.
        end: The line behind its last one.
        nested: The items of the lists in it.
    """

    start: int
    end: int
    nested: tuple["Item", ...] = ()


@dataclass(frozen=True)
class Block:
    """One block at the top level.

    Attributes:
        kind: `heading`, `rule`, `list`, `table`, `code` or `text`.
        start: Its first line, from 0.
        end: The line behind its last one.
        items: The items, if it is a list.
        content: What is inside, if it is code.
    """

    kind: str
    start: int
    end: int
    items: tuple[Item, ...] = ()
    content: str = ""


def outline(lines: Sequence[str]) -> list[Block]:
    r"""Return the blocks of a text in order.

    Args:
        lines: The lines, without line breaks.

    Raises:
        NestedTooDeepError: Lists or quotes are nested deeper than `MOST_NESTING`.

    Example:
        >>> [(block.kind, block.start, block.end) for block in outline(["# Plan", "- first", "", "```", "x", "```"])]
        [('heading', 0, 1), ('list', 1, 2), ('code', 3, 6)]
    """
    tokens = _MARKDOWN.parse("\n".join(lines))
    blocks = []
    for index, token in enumerate(tokens):
        if token.level >= MOST_NESTING - 2:
            raise NestedTooDeepError((token.map or [0])[0] + 1)
        if token.level or token.nesting < 0 or token.map is None:
            continue
        kind = _KINDS.get(token.type, "text")
        items = tuple(_items(tokens, index)) if kind == "list" else ()
        blocks.append(Block(kind, *_without_blank_end(lines, token.map), items, token.content))
    return blocks


def item_lines(lines: Sequence[str], item: Item, *, nested: bool = True) -> list[str]:
    """Return the lines of an item without its marker and indentation, with or without the lists in it."""
    marker = _MARKER.match(lines[item.start])
    width = marker.end() if marker else 0
    first = lines[item.start][width:]
    blanks = len(first) - len(first.lstrip(" \t"))
    offset = _columns(lines[item.start][:width]) + (blanks if 1 <= blanks <= 4 else 1)
    inner = set() if nested else {number for one in item.nested for number in range(one.start, one.end)}
    rest = [_dedented(lines[number], offset) for number in range(item.start + 1, item.end) if number not in inner]
    return [first.strip(" \t") if item.start not in inner else "", *rest]


def _items(tokens: Sequence[Token], opening: int) -> Iterator[Item]:
    """Yield the items of the list that a token opens."""
    level = tokens[opening].level
    at, begin = opening + 1, opening
    while tokens[at].level > level:
        token = tokens[at]
        if token.level == level + 1 and token.type == "list_item_open":
            begin = at
        elif token.level == level + 1 and token.type == "list_item_close":
            start, end = tokens[begin].map or (0, 0)
            lists = (
                n for n in range(begin, at) if tokens[n].level == level + 2 and tokens[n].type.endswith("list_open")
            )
            yield Item(start, end, tuple(one for n in lists for one in _items(tokens, n)))
        at += 1


def _without_blank_end(lines: Sequence[str], place: Sequence[int]) -> tuple[int, int]:
    """Return a range of lines without the blank ones at its end."""
    start, end = place
    while end > start + 1 and not lines[end - 1].strip(" \t"):
        end -= 1
    return start, end


def _columns(text: str) -> int:
    """Return how many columns a text takes; a tab goes to the next multiple of four."""
    return len(text.expandtabs(4))


def _dedented(line: str, columns: int) -> str:
    """Return a line without so many columns of blanks before it, or as many as there are."""
    taken, at = 0, 0
    while at < len(line) and taken < columns and line[at] in " \t":
        taken += 1 if line[at] == " " else 4 - taken % 4
        at += 1
    return line[at:]
