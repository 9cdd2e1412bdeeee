"""Write Markdown with untrusted text, and read documents back.

All project content passes through `text`, `prose`, `code` or `link`, so that pipes, backticks, line ends and tags in it
are displayed and cannot become mark-up.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from activities.pages import BLOCK_START, code, escape_invisible, escape_markdown, visible

_CODE_WORDS = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_EXTERNAL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")


def prose(value: str, limit: int = 300) -> str:
    """Return a sentence as Markdown text; text between backticks becomes a code span."""
    parts = _CODE_WORDS.split(visible(value, limit))
    content = "".join(code(part) if index % 2 else escape_markdown(part) for index, part in enumerate(parts))
    return BLOCK_START.sub(r"\g<0>\\", content)


def link(label: str, path: str, anchor: str = "") -> str:
    """Return a link to a relative path, with its label as code."""
    target = quote(path, safe="/-._~") + (f"#{quote(anchor, safe='-._~')}" if anchor else "")
    return f"[{code(label)}]({target})"


def fence(lines: Iterable[str], language: str) -> str:
    """Return a fenced code block that no line can close early."""
    content = [
        "".join(escape_invisible(character) for character in line.expandtabs(4).rstrip()[:2000]) for line in lines
    ]
    longest = max((len(run) for line in content for run in re.findall(r"`+", line)), default=0)
    marks = "`" * max(3, longest + 1)
    return "\n".join([f"{marks}{language}", *content, marks])


def parse(markdown: str) -> list[Token]:
    """Parse Markdown with tables."""
    return MarkdownIt("commonmark").enable("table").parse(markdown)


def broken_links(document: Path) -> list[str]:
    """Return the broken relative links of a document; external links are not checked."""
    faults = []
    for token in parse(document.read_text("utf-8", "replace")):
        for child in token.children or ():
            target = str(child.attrGet("href") or "")
            if target and not _EXTERNAL.match(target) and not _resolves(document, target):
                faults.append(f"{target!r} does not exist")
    return faults


def _resolves(document: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    target_path = document.parent / unquote(path) if path else document
    if not target_path.exists():
        return False
    if not anchor or not target_path.is_file():
        return True
    line = re.fullmatch(r"L(\d+)", anchor)
    return line is not None and int(line[1]) <= target_path.read_text("utf-8", "replace").count("\n") + 1
