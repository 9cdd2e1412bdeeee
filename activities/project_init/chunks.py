"""Cutting texts into pieces: Markdown by headings, Python by definitions, notebooks by cells, the rest by windows.

A chunk is a run of whole lines of one file, so whoever finds it can open the file there, and anyone can
prove later that the file still says so.
"""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt

from activities.project_init.parsing import UnreadableError, parse_python
from baton.wire.tokens import estimate_tokens

WINDOW = 60
"""Lines of a window over a text without known structure."""

OVERLAP = 10
"""Lines that a window repeats of the one before it, so that nothing is cut off from its context."""

LONGEST = 150
"""Lines from which on a section or definition is itself cut into windows."""

_LONGEST_TITLE = 300
_MOST_HEADINGS = 2000
_INLINE = MarkdownIt()
_BLOCKS = MarkdownIt().disable("inline")


@dataclass(frozen=True)
class Chunk:
    """A run of lines of one file.

    Attributes:
        path: The file.
        title: The headings above it or the definition that it is; the file's name for a window.
        start: First line, from 1.
        end: Last line, included.
        text: The lines themselves.
    """

    path: str
    title: str
    start: int
    end: int
    text: str

    @property
    def sha256(self) -> str:
        """Digest of the text as UTF-8."""
        return digest(self.text)

    @property
    def tokens(self) -> int:
        """Estimated tokens of the text."""
        return estimate_tokens(self.text)


def digest(text: str) -> str:
    """Return the SHA-256 of a text as UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def cut(path: str, text: str) -> list[Chunk]:
    r"""Return the chunks of a text, in order; every line that is not blank is in at least one of them.

    Of a Jupyter notebook only what somebody wrote: its cells' sources, and neither outputs nor pictures.

    Args:
        path: The file; its ending decides how it is cut.
        text: Its content with `\n` as line ends.

    Example:
        >>> parts = cut("a.md", "# Top\n\nHello.\n\n## Below\n\nMore.")
        >>> [(part.title, part.start, part.end) for part in parts]
        [('Top', 1, 3), ('Top > Below', 5, 7)]
    """
    lines = text.split("\n")
    ending = path.rpartition(".")[2].lower()
    if ending in ("md", "markdown"):
        ranges = _markdown_ranges(text, len(lines))
    elif ending in ("py", "pyi"):
        ranges = _python_ranges(text, len(lines))
    elif is_notebook(path) and (cells := _notebook_ranges(lines)):
        ranges = cells
    else:
        ranges = [(1, len(lines), "")]
    return [
        Chunk(path, title or path.rpartition("/")[2], start, end, "\n".join(lines[start - 1 : end]))
        for first, last, title in ranges
        for start, end in _windows(lines, first, last, whole=bool(title))
    ]


def is_notebook(path: str) -> bool:
    """Return whether a file is a Jupyter notebook."""
    return path.lower().endswith(".ipynb")


def _windows(lines: list[str], first: int, last: int, *, whole: bool) -> Iterator[tuple[int, int]]:
    """Yield a range without its blank edges, cut into windows where it is long."""
    while first <= last and not lines[first - 1].strip():
        first += 1
    while last >= first and not lines[last - 1].strip():
        last -= 1
    if first > last:
        return
    if whole and last - first < LONGEST:
        yield first, last
        return
    start = first
    while True:
        end = min(last, start + WINDOW - 1)
        yield start, end
        if end == last:
            return
        start = end + 1 - OVERLAP


def _markdown_ranges(text: str, count: int) -> list[tuple[int, int, str]]:
    """Return a range for each heading, up to the next one, titled by the headings it stands under.

    A text with thousands of headings was written by a machine, and is cut like any other.
    Only blocks are parsed, and of the inline text only headings: brackets by the ten thousand cost a parser of
    inline text the square of their number.
    """
    tokens = _BLOCKS.parse(text)
    if sum(token.type == "heading_open" for token in tokens) > _MOST_HEADINGS:
        return [(1, count, "")]
    headings: list[tuple[int, int, str]] = []
    for at, token in enumerate(tokens):
        if token.type == "heading_open" and token.map and token.level == 0:
            headings.append((token.map[0] + 1, int(token.tag[1]), _words(tokens[at + 1].content)))
    ranges: list[tuple[int, int, str]] = []
    if not headings or headings[0][0] > 1:
        ranges.append((1, headings[0][0] - 1 if headings else count, ""))
    above: list[tuple[int, str]] = []
    for at, (line, level, words) in enumerate(headings):
        above = [(depth, title) for depth, title in above if depth < level] + [(level, words)]
        end = headings[at + 1][0] - 1 if at + 1 < len(headings) else count
        ranges.append((line, end, " > ".join(title for _, title in above if title)))
    return ranges


def _words(heading: str) -> str:
    """Return a heading's text without its mark-up."""
    children = _INLINE.parseInline(heading[:_LONGEST_TITLE])[0].children or ()
    return " ".join("".join(each.content for each in children if not each.type.startswith("html")).split())


def _notebook_ranges(lines: list[str]) -> list[tuple[int, int, str]]:
    """Return the lines of each cell's source, which programs write one below the other; none if they are not so."""
    ranges: list[tuple[int, int, str]] = []
    first = cells = 0
    for number, line in enumerate(lines, 1):
        words = line.strip()
        if not first and words.startswith('"source":'):
            cells += 1
            if words == '"source": [':
                first = number + 1
            elif not words.startswith('"source": []'):
                ranges.append((number, number, f"cell {cells}"))
        elif first and words in ("]", "],"):
            ranges.append((first, number - 1, f"cell {cells}"))
            first = 0
    return ranges


def _python_ranges(text: str, count: int) -> list[tuple[int, int, str]]:
    """Return a range for each top-level definition and for what lies between; a long class is cut by methods."""
    try:
        body = parse_python(text).body
    except UnreadableError:
        return [(1, count, "")]
    return _fill(list(_definitions(body, "")), 1, count, "")


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[int, int, str, list[ast.stmt]]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            kind = "class" if isinstance(node, ast.ClassDef) else "def"
            inner = node.body if isinstance(node, ast.ClassDef) else []
            yield start, node.end_lineno or node.lineno, f"{kind} {prefix}{node.name}", inner


def _fill(
    found: list[tuple[int, int, str, list[ast.stmt]]], first: int, last: int, title: str
) -> list[tuple[int, int, str]]:
    """Return the definitions and, under ``title``, the lines before, between and after them."""
    ranges: list[tuple[int, int, str]] = []
    at = first
    for start, end, name, inner in found:
        if start > at:
            ranges.append((at, start - 1, title))
        if start < at:  # a second definition on the same line
            continue
        if inner and end - start >= LONGEST:
            prefix = name.partition(" ")[2] + "."
            ranges.extend(_fill(list(_definitions(inner, prefix)), start, end, name))
        else:
            ranges.append((start, end, name))
        at = end + 1
    if at <= last:
        ranges.append((at, last, title))
    return ranges
