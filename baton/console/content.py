"""Rendering of values and of untrusted text: Markdown, diffs, JSON, tables."""

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

from baton.client.faces import SOON
from baton.wire.json_values import as_json, find_excess
from baton.wire.money import format_cost, format_usd
from baton.wire.text import format_duration, format_rough_duration, format_time, format_until, quantity

MAX_CHARACTERS = 300_000
"""The length at which a text is cut; it is above the limit of what an approval may show."""
MAX_ROWS = 500

_MAX_MARKDOWN, _MAX_MARKUP = 60_000, 5_000  # characters; beyond these the parser can block the server for seconds
_MAX_MEMBERS, _MAX_COLUMNS, _MAX_DIFF_LINES = 20, 50, 20_000
_MAX_DEPTH = 20  # levels; deeper JSON is not indented
_SARIF = frozenset({"$schema", "version", "runs", "properties", "inlineExternalProperties"})
_IMAGE_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_MARKDOWN = frozenset({"md", "markdown", "notes", "report", "plan", "summary"})
_LINK = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?([/?#]|$)", re.IGNORECASE)  # no user name before the host
_HEADING_OFFSET = 3  # headings of untrusted text are this many levels lower


@dataclass(frozen=True)
class Content:
    """A value prepared for display."""

    form: str  # `markdown`, `diff`, `json`, `sarif`, `table`, `picture`, `text`, `members` or `binary`
    text: str = ""  # for the forms that are text
    markup: Markup | None = None  # for Markdown
    heads: list[str] = field(default_factory=list)  # for a table
    rows: list[list[str]] = field(default_factory=list)  # for a table, or lines of a diff with their kinds
    members: list[tuple[str, "Content"]] = field(default_factory=list)  # for an object
    cut: int = 0  # the number of omitted characters or rows
    media: str = ""  # for a picture: its media type


def make_content(data: bytes, *, type: str = "", path: str | None = None) -> Content:
    """Return bytes prepared for display. The type and the path are hints that the bytes must confirm."""
    picture = image_type(data)
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
    """Return a text prepared for display."""
    cut, text = max(0, len(text) - MAX_CHARACTERS), text[:MAX_CHARACTERS]
    if not cut and (value := _parse_json(text)) is not None:
        sarif = _sarif_table(value) if isinstance(value, dict) and value.keys() <= _SARIF and "runs" in value else None
        return sarif or (Content("json", json_text(value)) if isinstance(value, str) else value_content(value))
    if "csv" in hints or "tsv" in hints:
        return _csv_table(text, "\t" if "tsv" in hints else ",", cut)
    is_diff = {"diff", "patch"} & {*hints} or text.startswith(("diff --git ", "--- ", "@@ "))
    if is_diff and text.count("\n") <= _MAX_DIFF_LINES:
        return Content("diff", rows=[[_line_kind(line), line] for line in text.splitlines()], cut=cut)
    if _MARKDOWN & {*hints} and len(text) <= _MAX_MARKDOWN and sum(map(text.count, "[*_`<|")) <= _MAX_MARKUP:
        return Content("markdown", markup=markdown(text), cut=cut)
    return Content("text", text, cut=cut)


def value_content(value: Any) -> Content:
    """Return a JSON value prepared for display: a string as Markdown, a list of records as a table."""
    if isinstance(value, str):
        return text_content(value, "markdown")
    if isinstance(value, dict) and 0 < len(value) <= _MAX_MEMBERS:
        members = [(name, _member(member)) for name, member in value.items()]
        if any(content.form not in ("json", "text") for _, content in members):
            return Content("members", members=members)
    return _records_table(value) or Content("json", json_text(value))


def _member(value: Any) -> Content:
    """Return a member of an object; only a string of several lines is rendered as Markdown."""
    if isinstance(value, str) and "\n" in value:
        return text_content(value, "markdown")
    return _records_table(value) or Content("json", json_text(value))


def image_type(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes, or None. SVG is excluded, since it may hold scripts."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media for prefix, media in _IMAGE_TYPES.items() if data.startswith(prefix)), None)


@lru_cache(maxsize=64)
def markdown(text: str) -> Markup:
    """Render Markdown without its HTML and images, and with the host shown after each link."""
    tokens = [token for raw_token in _PARSER.parse(text) for token in _sanitize(raw_token)]
    return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))  # noqa: S704 - the parser escapes all text


def _sanitize(token: Token) -> Iterator[Token]:
    """Yield a token without attributes that affect the page; append its host to a link."""
    address = token.attrGet("href") if token.type == "link_open" else None
    start = token.attrs.get("start")
    token.attrs = {"start": start} if isinstance(start, int) else {}  # table alignment would become a style
    token.info = ""  # a code block's language would become a class
    token.content = visible(token.content)  # after entities were decoded
    if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
        token.tag = f"h{min(6, int(token.tag[1]) + _HEADING_OFFSET)}"
    if isinstance(address, str):
        token.attrs = {"href": address, "rel": "noopener noreferrer nofollow", "target": "_blank"}
        token.meta = {"host": urlsplit(address).netloc}
    if token.children:
        token.children = list(_sanitize_children(token.children))
    yield token


def _sanitize_children(tokens: list[Token]) -> Iterator[Token]:
    host = ""
    for token in tokens:
        yield from _sanitize(token)
        if token.type == "link_open":
            host = token.meta["host"]
        elif token.type == "link_close":
            yield Token("text", "", 0, content=visible(f" ({host})"))


def _is_link(address: str) -> bool:
    return bool(_LINK.match(address))


_PARSER = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable(["image", "reference"])
_PARSER.validateLink = _is_link  # type: ignore[method-assign, assignment]


def _parse_json(text: str) -> Any:
    """Parse JSON. Return None if parsing would lose something (duplicate keys, digits) or it is too deep."""
    try:
        value = json.loads(text, object_pairs_hook=_make_object, parse_float=_exact, parse_constant=_exact)
    except (ValueError, RecursionError):
        return None
    return value if find_excess(value, sys.maxsize) is None else None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("duplicate key")
    return value


def _exact(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or Decimal(text) != Decimal(repr(number)):
        raise ValueError("number cannot be represented exactly")
    return number


def _records_table(value: Any) -> Content | None:
    """Return a list of flat objects as a table, or None for any other value."""
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) and row for row in value):
        return None
    heads = list(dict.fromkeys(str(name) for row in value for name in row))
    if len(heads) > _MAX_COLUMNS or any(isinstance(cell, dict | list) for row in value for cell in row.values()):
        return None
    rows = [[_cell(row.get(name, "")) for name in heads] for row in value[:MAX_ROWS]]
    return Content("table", heads=heads, rows=rows, cut=len(value[MAX_ROWS:]))


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sarif_table(value: dict[str, Any]) -> Content | None:
    """Return the results of a SARIF log as a table, or None if it is not one."""
    rows: list[list[str]] = []
    try:
        for run in value["runs"]:
            for result in run.get("results", []):
                location = (result.get("locations") or [{}])[0].get("physicalLocation", {})
                line = location.get("region", {}).get("startLine", "")
                place = f"{location.get('artifactLocation', {}).get('uri', '')}{f':{line}' if line else ''}"
                level, rule = result.get("level", "warning"), result.get("ruleId", "")
                rows.append([str(level), str(rule), place, str(result.get("message", {}).get("text", ""))])
    except (AttributeError, TypeError, KeyError, IndexError):
        return None
    if not rows:
        return None
    return Content("sarif", heads=["Level", "Rule", "Where", "Finding"], rows=rows[:MAX_ROWS], cut=len(rows[MAX_ROWS:]))


def _csv_table(text: str, delimiter: str, cut: int) -> Content:
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return Content("text", text, cut=cut)
    width = max(map(len, rows), default=0)
    if not 0 < width <= _MAX_COLUMNS:
        return Content("text", text, cut=cut)
    heads, *body = [row + [""] * (width - len(row)) for row in rows[: MAX_ROWS + 1]]
    return Content("table", heads=heads, rows=body, cut=max(0, len(rows) - 1 - MAX_ROWS))


def _line_kind(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ")):
        return "head"
    return {"+": "plus", "-": "minus", "@": "at"}.get(line[:1], "")


_PLAIN_CONTROLS = "\n\t"
_JOINERS = "\u200c\u200d"  # scripts and emoji need them
_SPACES = ("Zl", "Zp")
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn")
_MAX_COMBINING_MARKS = 2
_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)")  # as `format_time` writes it
"""The number of combining marks allowed on a letter; more would leave their line."""


def visible(text: str) -> str:
    r"""Return ``text`` with control, format and bidi characters escaped.

    Example:
        >>> visible("pay\u202egnp.exe"), visible("a\x00b")
        ('pay\\u202egnp.exe', 'a\\u0000b')
    """
    if text.isascii() and text.isprintable():
        return text
    chars: list[str] = []
    mark_count = 0
    for char in text:
        category = unicodedata.category(char)
        mark_count = mark_count + 1 if category in ("Mn", "Me") else 0
        if mark_count > _MAX_COMBINING_MARKS:
            continue
        escaped = char not in _PLAIN_CONTROLS and char not in _JOINERS and category in (*_HIDDEN, *_SPACES)
        chars.append(json.dumps(char)[1:-1] if escaped else char)
    return "".join(chars)


def finalize(value: Any) -> Any:
    """Return a template's output for a value: `visible` text, an empty string for None, our markup unchanged."""
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def time_element(at: datetime | None) -> Markup:
    """Return a time as an element, which the script converts to the reader's zone."""
    if at is None:
        return Markup("")
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(timespec="milliseconds"), format_time(utc))


def deadline_element(at: datetime | None, now: datetime) -> Markup:
    """Return how long a deadline is away, with the time as its title; it stands out within the hour (`SOON`)."""
    if at is None:
        return Markup("")
    left, utc = at - now, at.astimezone(UTC)
    return Markup('<time class="until{}" datetime="{}" title="{}" data-left="{}">{}</time>').format(
        " soon" if left <= SOON else "",
        utc.isoformat(timespec="milliseconds"),
        format_time(utc),
        round(left.total_seconds()),
        format_until(left),
    )


def told(text: str) -> Markup:
    """Return a sentence with the times in it as elements, as `time_element` does."""

    def element(part: str) -> Markup:
        try:
            return time_element(datetime.strptime(part, "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC))
        except ValueError:
            return isolate(part)

    return Markup("").join(element(part) for part in _TIME.split(text))


def age_element(at: datetime | None, now: datetime) -> Markup:
    """Return how long ago ``at`` was, in the largest unit that fits, with the time as its title."""
    if at is None:
        return Markup("")
    age = format_rough_duration(max(timedelta(), now - at))
    utc = at.astimezone(UTC)
    return Markup('<time class="ago" datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), format_time(utc), age
    )


def number(value: int | None) -> str:
    """Return a number with thousands separators."""
    return "" if value is None else f"{value:,}"


def size(count: int | None) -> str:
    """Return a number of bytes in the largest unit that fits."""
    if count is None:
        return ""
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return quantity(count, "byte")


def json_text(value: Any) -> str:
    """Return a value as JSON, indented unless it is very deep."""
    try:
        jsonable = as_json(value)
    except ValueError:
        return "this JSON is nested too deeply to show"
    is_deep = find_excess(jsonable, sys.maxsize, _MAX_DEPTH) is not None
    return json.dumps(jsonable, ensure_ascii=False, indent=None if is_deep else 2)


def isolate(text: Any) -> Markup:
    """Return text in a `bdi` element, so that its direction does not affect its surroundings."""
    return Markup("<bdi>{}</bdi>").format(escape(visible(str(text))))


def artifact_command(workflow_id: str, artifact_id: str) -> str:
    """Return the command that prints an artifact."""
    return f"baton artifact cat {shlex.quote(workflow_id)} {shlex.quote(artifact_id)}"


FILTERS: Mapping[str, Any] = {
    "length": format_duration,
    "moment": time_element,
    "ago": age_element,
    "until": deadline_element,
    "told": told,
    "cost": format_cost,
    "dollars": format_usd,
    "number": number,
    "bytes": size,
    "json": json_text,
    "bdi": isolate,
    "quantity": quantity,
    "artifact_command": artifact_command,
}
"""The filters of the templates."""
