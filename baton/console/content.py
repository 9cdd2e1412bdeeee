"""What agents wrote, made readable and harmless: Markdown, diffs, JSON, SARIF, tables, pictures, text."""

import csv
import io
import json
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from baton.console.words import json_text, visible

MOST_CHARACTERS = 200_000
"""So much of a text is shown; the whole can be downloaded."""
MOST_ROWS = 500

_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_MARKDOWN = ("md", "markdown")
_DEEPER = 3  # levels by which headings of others stand below those of the page


@dataclass(frozen=True)
class Content:
    """Something readable.

    Attributes:
        form: `markdown`, `diff`, `json`, `sarif`, `table`, `picture`, `text` or `binary`.
        text: The text, of a form that is one.
        markup: The markup of Markdown.
        heads: The headings of a table.
        rows: The rows of a table, or lines of a diff, each with its kind.
        cut: How many characters or rows are left out.
        media: The type of a picture.
    """

    form: str
    text: str = ""
    markup: Markup | None = None
    heads: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    cut: int = 0
    media: str = ""


def content_of(data: bytes, *, type: str = "", path: str | None = None) -> Content:
    """Return some bytes as they are best read; what they are named is a hint that their content must bear out."""
    picture = picture_type(data)
    if picture:
        return Content("picture", media=picture)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Content("binary")
    if "\0" in text:
        return Content("binary")
    ending = (path or "").rpartition(".")[2].lower()
    return text_content(text, ending if ending.isalnum() else "", type.lower())


def text_content(text: str, *hints: str) -> Content:
    """Return a text as it is best read."""
    cut, text = max(0, len(text) - MOST_CHARACTERS), text[:MOST_CHARACTERS]
    if not cut and (value := _json(text)) is not None:
        table = _sarif(value) if isinstance(value, dict) and "runs" in value else None
        return table or Content("json", json_text(value))
    if "csv" in hints or "tsv" in hints:
        return _table(text, "\t" if "tsv" in hints else ",")
    if {"diff", "patch"} & {*hints} or text.startswith(("diff --git ", "--- ", "@@ ")):
        return Content("diff", rows=[[_kind(line), line] for line in text.splitlines()], cut=cut)
    if {*_MARKDOWN, "notes", "report", "plan", "summary", "markdown"} & {*hints}:
        return Content("markdown", markup=markdown(text), cut=cut)
    return Content("text", text, cut=cut)


def value_content(value: Any) -> Content:
    """Return a value of JSON as it is best read; a text alone is Markdown."""
    return text_content(value, "markdown") if isinstance(value, str) else Content("json", json_text(value))


def picture_type(data: bytes) -> str | None:
    """Return the type of a picture that a browser may show, by its first bytes; drawings that hold scripts are none."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _PICTURES.items() if data.startswith(begin)), None)


def markdown(text: str) -> Markup:
    """Return Markdown as markup: no HTML of its author's, no links and pictures, headings below those of the page."""
    tokens = _PARSER.parse(visible(text))
    for token in tokens:
        _tame(token)
    return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))  # noqa: S704 - the parser escapes all text


def _tame(token: Token) -> None:
    if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
        token.tag = f"h{min(6, int(token.tag[1]) + _DEEPER)}"
    token.attrs = {}  # alignment would be a style, the language of code a class


_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink", "reference"])


def _json(text: str) -> Any:
    """Return the object or list that a text is as JSON, else None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _sarif(value: dict[str, Any]) -> Content | None:
    """Return the results of a SARIF log as a table; None where it has not that form."""
    rows: list[list[str]] = []
    try:
        for run in value["runs"]:
            for one in run.get("results", []):
                where = (one.get("locations") or [{}])[0].get("physicalLocation", {})
                line = where.get("region", {}).get("startLine", "")
                place = f"{where.get('artifactLocation', {}).get('uri', '')}{f':{line}' if line else ''}"
                level, rule = one.get("level", "warning"), one.get("ruleId", "")
                rows.append([str(level), str(rule), place, str(one.get("message", {}).get("text", ""))])
    except (AttributeError, TypeError, KeyError, IndexError):
        return None
    return Content(
        "sarif", heads=["Level", "Rule", "Where", "Finding"], rows=rows[:MOST_ROWS], cut=len(rows[MOST_ROWS:])
    )


def _table(text: str, delimiter: str) -> Content:
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return Content("text", text)
    heads, body = (rows[0], rows[1:]) if rows else ([], [])
    width = len(heads)
    fitted = [(row + [""] * width)[:width] for row in body]
    return Content("table", heads=heads, rows=fitted[:MOST_ROWS], cut=len(fitted[MOST_ROWS:]))


def _kind(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ")):
        return "head"
    return {"+": "plus", "-": "minus", "@": "at"}.get(line[:1], "")
