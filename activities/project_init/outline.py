"""A reader of the plain part of YAML: nested keys, lists, scalars and blocks, each with its line.

Compose files and CI definitions are written in that part. Anchors, tags and multi-line flow collections are
not followed; what cannot be read is passed over, so the outline may know less than the file, never more.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

_KEY = re.compile(r"""("(?:[^"\\]|\\.)*+"|'[^']*+'|[^\s#'"\[\]{}&*!|>%@`-][^:#]*?|[\w./-]+?)\s*:(?=\s|$)""")
_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?\s*(#.*)?$")
_QUOTED = re.compile(r""""((?:[^"\\]|\\.)*+)"?|'((?:[^']|'')*+)'?""")
_MAXIMUM_DEPTH = 40
_LONGEST_LINE = 2000


@dataclass(frozen=True)
class Node:
    """One scalar of a YAML text.

    Attributes:
        path: The keys above it; the items of a list count as "0", "1", …
        value: The scalar without quotes; the lines of a block joined by line ends.
        line: Where it starts, from 1.
    """

    path: tuple[str, ...]
    value: str
    line: int


def outline(text: str) -> list[Node]:
    """Return every scalar of the first document in a YAML text, in order.

    Keys without a value give a node with the value "".

    Example:
        >>> [(node.path, node.value) for node in outline("image: 'postgres:16'  # main")]
        [(('image',), 'postgres:16')]
    """
    return list(_nodes(text.expandtabs(2).split("\n")))


def _nodes(lines: list[str]) -> Iterator[Node]:
    levels: list[tuple[int, str]] = []  # the indent and name of each key or item above the present line
    items: dict[tuple[tuple[str, ...], int], int] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        content = line.strip()
        if not content or content.startswith(("#", "%")) or len(content) > _LONGEST_LINE:
            continue
        if content in ("---", "..."):
            if levels:
                return
            continue
        indent = len(line) - len(line.lstrip())
        rest = content
        while rest == "-" or rest.startswith("- "):
            _close(levels, indent, item=True)
            above = tuple(name for _, name in levels)
            index = items.get((above, indent), 0)
            items[above, indent] = index + 1
            levels.append((indent, str(index)))
            inner = rest[1:].lstrip()
            indent += len(rest) - len(inner)
            rest = inner
        if len(levels) > _MAXIMUM_DEPTH:
            continue
        found = _KEY.match(rest)
        if found is None:
            if rest and levels and _BLOCK.match(rest):
                block, after = _block(lines, number, levels[-1][0])
                yield Node(tuple(name for _, name in levels), block, number)
                number = after
            elif rest and levels:
                yield from _scalars(tuple(name for _, name in levels), rest, number)
            continue
        _close(levels, indent, item=False)
        levels.append((indent, _unquoted(found[1])))
        path = tuple(name for _, name in levels)
        value = rest[found.end() :].strip()
        if _BLOCK.match(value):
            block, after = _block(lines, number, indent)
            yield Node(path, block, number)
            number = after
        else:
            yield from _scalars(path, value, number)


def _close(levels: list[tuple[int, str]], indent: int, *, item: bool) -> None:
    """Leave the levels that the present line does not belong to; a list may stand as deep as its key."""
    while levels and (levels[-1][0] > indent or (levels[-1][0] == indent and not (item and _is_key(levels)))):
        levels.pop()


def _is_key(levels: list[tuple[int, str]]) -> bool:
    return not levels[-1][1].isdigit()


def _block(lines: list[str], start: int, indent: int) -> tuple[str, int]:
    end = start
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
        end += 1
    return textwrap.dedent("\n".join(line.rstrip() for line in lines[start:end])).strip(), end


def _scalars(path: tuple[str, ...], value: str, line: int) -> Iterator[Node]:
    if value.startswith("[") and value.rstrip().endswith("]"):
        for index, part in enumerate(each for each in value.strip()[1:-1].split(",") if each.strip()):
            yield Node((*path, str(index)), _unquoted(part), line)
    else:
        yield Node(path, _unquoted(value), line)


def _unquoted(value: str) -> str:
    value = value.strip()
    if value.startswith("#"):
        return ""
    quoted = _QUOTED.match(value)
    if quoted:
        return re.sub(r'\\(["\\/])', r"\1", quoted[1]) if value[0] == '"' else quoted[2].replace("''", "'")
    return re.split(r"\s#", value, maxsplit=1)[0].strip()
