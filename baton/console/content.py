"""How values read on a page, and what agents wrote, made readable and harmless: Markdown, diffs, JSON, tables."""

import csv
import io
import json
import math
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from pydantic_core import to_jsonable_python

from baton.wire.json_values import find_excess
from baton.wire.money import format_usd
from baton.wire.text import format_duration, format_rough_duration, format_time, quantity

MOST_CHARACTERS = 300_000
"""So much of a text is shown, which is more than an approval may show; the whole can be downloaded."""
MOST_ROWS = 500

_MOST_MARKDOWN, _MOST_SIGNS = 60_000, 5_000  # beyond these the parser can take seconds, in which no one is served
_MOST_MEMBERS, _MOST_COLUMNS, _MOST_LINES = 20, 50, 20_000
_DEEPEST = 20  # levels of JSON that are indented: deeper ones would be mostly spaces
_SARIF = frozenset({"$schema", "version", "runs", "properties", "inlineExternalProperties"})
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_MARKDOWN = frozenset({"md", "markdown", "notes", "report", "plan", "summary"})
_LINK = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?([/?#]|$)", re.IGNORECASE)  # no name before the host
_DEEPER = 3  # levels by which headings of others stand below those of the page


@dataclass(frozen=True)
class Content:
    """Something readable."""

    form: str  # `markdown`, `diff`, `json`, `sarif`, `table`, `picture`, `text`, `members` or `binary`
    text: str = ""  # the text, of a form that is one
    markup: Markup | None = None  # the markup of Markdown
    heads: list[str] = field(default_factory=list)  # the headings of a table
    rows: list[list[str]] = field(default_factory=list)  # the rows of a table, or lines of a diff, each with its kind
    members: list[tuple[str, "Content"]] = field(default_factory=list)  # the members of an object, each by its name
    cut: int = 0  # how many characters or rows are left out
    media: str = ""  # the type of a picture


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
        sarif = _sarif(value) if isinstance(value, dict) and value.keys() <= _SARIF and "runs" in value else None
        return sarif or (Content("json", json_text(value)) if isinstance(value, str) else value_content(value))
    if "csv" in hints or "tsv" in hints:
        return _table(text, "\t" if "tsv" in hints else ",", cut)
    is_diff = {"diff", "patch"} & {*hints} or text.startswith(("diff --git ", "--- ", "@@ "))
    if is_diff and text.count("\n") <= _MOST_LINES:
        return Content("diff", rows=[[_kind(line), line] for line in text.splitlines()], cut=cut)
    if _MARKDOWN & {*hints} and len(text) <= _MOST_MARKDOWN and sum(map(text.count, "[*_`<|")) <= _MOST_SIGNS:
        return Content("markdown", markup=markdown(text), cut=cut)
    return Content("text", text, cut=cut)


def value_content(value: Any) -> Content:
    """Return a value of JSON as it is best read: a text alone is Markdown, like records are a table."""
    if isinstance(value, str):
        return text_content(value, "markdown")
    if isinstance(value, dict) and 0 < len(value) <= _MOST_MEMBERS:
        members = [(name, _member(one)) for name, one in value.items()]
        if any(one.form not in ("json", "text") for _, one in members):
            return Content("members", members=members)
    return _records(value) or Content("json", json_text(value))


def _member(value: Any) -> Content:
    """Return one member of an object; only a text of several lines is more than a value."""
    if isinstance(value, str) and "\n" in value:
        return text_content(value, "markdown")
    return _records(value) or Content("json", json_text(value))


def picture_type(data: bytes) -> str | None:
    """Return the type of a picture that a browser may show, by its first bytes; drawings that hold scripts are none."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _PICTURES.items() if data.startswith(begin)), None)


@lru_cache(maxsize=64)
def markdown(text: str) -> Markup:
    """Return Markdown as markup: no HTML and no pictures of its author's, links that say where they lead."""
    tokens = [token for one in _PARSER.parse(text) for token in _tamed(one)]
    return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))  # noqa: S704 - the parser escapes all text


def _tamed(token: Token) -> Iterator[Token]:
    """Yield a token without what could steer the page, and after a link the host that it leads to."""
    link = token.attrGet("href") if token.type == "link_open" else None
    start = token.attrs.get("start")
    token.attrs = {"start": start} if isinstance(start, int) else {}  # alignment would be a style
    token.info = ""  # the language of code would be a class
    token.content = visible(token.content)  # here, for entities are signs by now
    if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
        token.tag = f"h{min(6, int(token.tag[1]) + _DEEPER)}"
    if isinstance(link, str):
        token.attrs = {"href": link, "rel": "noopener noreferrer nofollow", "target": "_blank"}
        token.meta = {"host": urlsplit(link).netloc}
    if token.children:
        token.children = list(_with_hosts(token.children))
    yield token


def _with_hosts(tokens: list[Token]) -> Iterator[Token]:
    host = ""
    for token in tokens:
        yield from _tamed(token)
        if token.type == "link_open":
            host = token.meta["host"]
        elif token.type == "link_close":
            yield Token("text", "", 0, content=visible(f" ({host})"))


def _is_link(address: str) -> bool:
    """Return whether Markdown may link to an address."""
    return bool(_LINK.match(address))


_PARSER = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable(["image", "reference"])
_PARSER.validateLink = _is_link  # type: ignore[method-assign, assignment]


def _json(text: str) -> Any:
    """Return the value of a text of JSON; None where that would not be all that the text says, or is too deep."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=_exact, parse_constant=_exact)
    except (ValueError, RecursionError):
        return None
    return value if find_excess(value, sys.maxsize) is None else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a member stands there twice")
    return value


def _exact(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or Decimal(text) != Decimal(repr(number)):
        raise ValueError("another number would be shown")
    return number


def _records(value: Any) -> Content | None:
    """Return a list of flat objects as a table; None of anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) and row for row in value):
        return None
    heads = list(dict.fromkeys(str(name) for row in value for name in row))
    if len(heads) > _MOST_COLUMNS or any(isinstance(cell, dict | list) for row in value for cell in row.values()):
        return None
    rows = [[_cell(row.get(name, "")) for name in heads] for row in value[:MOST_ROWS]]
    return Content("table", heads=heads, rows=rows, cut=len(value[MOST_ROWS:]))


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


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
    if not rows:
        return None
    return Content(
        "sarif", heads=["Level", "Rule", "Where", "Finding"], rows=rows[:MOST_ROWS], cut=len(rows[MOST_ROWS:])
    )


def _table(text: str, delimiter: str, cut: int) -> Content:
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return Content("text", text, cut=cut)
    width = max(map(len, rows), default=0)
    if not 0 < width <= _MOST_COLUMNS:
        return Content("text", text, cut=cut)
    heads, *body = [row + [""] * (width - len(row)) for row in rows[: MOST_ROWS + 1]]
    return Content("table", heads=heads, rows=body, cut=max(0, len(rows) - 1 - MOST_ROWS))


def _kind(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ")):
        return "head"
    return {"+": "plus", "-": "minus", "@": "at"}.get(line[:1], "")


_KEPT = "\n\t"
_JOINERS = "\u200c\u200d"  # scripts and emoji need them
_SPACES = ("Zl", "Zp")
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn")
_MOST_MARKS = 2
"""So many marks may stand above one letter: more of them leave their line."""


def visible(text: str) -> str:
    r"""Return ``text`` so that each sign shows and none steers the page: controls and turns of direction are escaped.

    Example:
        >>> visible("pay\u202egnp.exe"), visible("a\x00b")
        ('pay\\u202egnp.exe', 'a\\u0000b')
    """
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for sign in text:
        kind = unicodedata.category(sign)
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        if marks > _MOST_MARKS:
            continue
        hidden = sign not in _KEPT and sign not in _JOINERS and kind in (*_HIDDEN, *_SPACES)
        shown.append(json.dumps(sign)[1:-1] if hidden else sign)
    return "".join(shown)


def shown(value: Any) -> Any:
    """Return what a template writes for a value: text made `visible`, nothing for None; markup of ours stays."""
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(at: datetime | None) -> Markup:
    """Return a time in UTC as an element that a browser may show in its own zone."""
    if at is None:
        return Markup("")
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(timespec="milliseconds"), format_time(utc))


def ago(at: datetime | None) -> Markup:
    """Return how long ago something was, in the largest unit that fits, with the time itself as its title."""
    if at is None:
        return Markup("")
    told = format_rough_duration(max(timedelta(), datetime.now(UTC) - at))
    utc = at.astimezone(UTC)
    return Markup('<time class="ago" datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), format_time(utc), told
    )


def number(value: int | None) -> str:
    """Return a number with its thousands apart."""
    return "" if value is None else f"{value:,}"


def size(count: int | None) -> str:
    """Return a number of bytes in the largest unit that fits."""
    if count is None:
        return ""
    for unit, one in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= one:
            return f"{count / one:.1f} {unit}"
    return quantity(count, "byte")


def json_text(value: Any) -> str:
    """Return a value as JSON, indented where it is not very deep."""
    try:
        plain = to_jsonable_python(value)
    except ValueError:
        return "this JSON is nested too deep to be shown"
    is_deep = find_excess(plain, sys.maxsize, _DEEPEST) is not None
    return json.dumps(plain, ensure_ascii=False, indent=None if is_deep else 2)


def isolated(text: Any) -> Markup:
    """Return text whose direction is its own, so that it does not turn what stands beside it."""
    return Markup("<bdi>{}</bdi>").format(escape(visible(str(text))))


def artifact_command(workflow_id: str, artifact_id: str) -> str:
    """Return the command that writes out an artifact."""
    return f"baton artifact cat {shlex.quote(workflow_id)} {shlex.quote(artifact_id)}"


FILTERS: Mapping[str, Any] = {
    "length": format_duration,
    "moment": moment,
    "ago": ago,
    "dollars": format_usd,
    "number": number,
    "bytes": size,
    "json": json_text,
    "bdi": isolated,
    "quantity": quantity,
    "artifact_command": artifact_command,
}
"""What templates may call."""
