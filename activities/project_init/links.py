"""Reading documents back: their links and anchors, and the commands they tell a reader to type."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from activities.project_init.files import count_line_ends
from activities.project_init.markdown import slug

_ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")
_LINE_ANCHOR = re.compile(r"L(\d+)")
_BLOCK = 1024 * 1024


def parse(markdown: str) -> list[Token]:
    """Return the tokens of a Markdown text, tables included."""
    return MarkdownIt("commonmark").enable("table").parse(markdown)


@dataclass(frozen=True)
class Link:
    """A link of a document: where it leads, and the line of the document that it stands on or near."""

    target: str
    line: int


def links_of(tokens: list[Token]) -> list[Link]:
    """Return every link and picture of a document, in order."""
    return [
        Link(str(target), (token.map[0] + 1) if token.map else 1)
        for token in tokens
        for child in token.children or ()
        if (target := child.attrGet("href") or child.attrGet("src")) is not None
    ]


def anchors_of(tokens: list[Token]) -> set[str]:
    """Return the anchors of a document's headings; a repeated one gets `-1`, `-2`, … as forges do it."""
    found: set[str] = set()
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            words = "".join(each.content for each in tokens[at + 1].children or ())
            name, count = slug(words), 0
            while (f"{name}-{count}" if count else name) in found:
                count += 1
            found.add(f"{name}-{count}" if count else name)
    return found


def commands_of(tokens: list[Token]) -> list[str]:
    """Return the commands of a document: the lines of `sh` blocks, and the cells under a heading `Command`."""
    found: list[str] = []
    for at, token in enumerate(tokens):
        if token.type == "fence" and token.info.strip() == "sh":
            found.extend(line for line in token.content.split("\n") if line.strip() and not line.startswith("#"))
        elif token.type == "table_open":
            found.extend(_command_cells(tokens[at:]))
    return found


def _command_cells(tokens: list[Token]) -> Iterator[str]:
    is_first, commands = False, False
    for token in tokens:
        if token.type == "table_close":
            return
        if token.type == "tr_open":
            is_first = True
        elif token.type == "inline" and is_first:
            is_first = False
            if token.content == "Command":
                commands = True
            elif commands:
                yield from (each.content for each in token.children or () if each.type == "code_inline")


class LinkChecker:
    """Tells whether relative links resolve; remembers what it has read.

    Links to other hosts are not followed. A line anchor (`#L12`) resolves if the file has that line, any
    other anchor if the document has a heading for it.
    """

    def __init__(self) -> None:
        self._anchors: dict[Path, set[str]] = {}
        self._lines: dict[Path, int] = {}

    def fault(self, document: Path, target: str) -> str:
        """Return what is wrong with a link of ``document``, or "" if it resolves or leads to another host."""
        if _ELSEWHERE.match(target):
            return ""
        path, _, anchor = target.partition("#")
        place = document.parent / unquote(path) if path else document
        try:
            if not place.exists():
                return f"{target!r} leads to nothing"
            return self._anchor_fault(place, unquote(anchor), target) if anchor else ""
        except (OSError, ValueError) as error:
            return f"{target!r} cannot be followed ({type(error).__name__})"

    def _anchor_fault(self, place: Path, anchor: str, target: str) -> str:
        line = _LINE_ANCHOR.fullmatch(anchor)
        if line and place.is_file():
            if place not in self._lines:
                self._lines[place] = _count_lines(place)
            missing = int(line[1]) > self._lines[place]
            return f"{target!r} names a line that the file does not have" if missing else ""
        if place not in self._anchors:
            self._anchors[place] = anchors_of(parse(place.read_text("utf-8", "replace"))) if place.is_file() else set()
        return "" if anchor in self._anchors[place] else f"{target!r} names a heading that is not there"


def _count_lines(place: Path) -> int:
    with place.open("rb") as file:
        return sum(count_line_ends(block) for block in iter(lambda: file.read(_BLOCK), b"")) + 1
