"""Output of the commands: consoles, tables, JSON, and untrusted text made safe for a terminal."""

import codecs
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from baton.wire.text import format_rough_duration

_FILE_WIDTH = 120
_MIN_LEADING_WIDTH = 16
_UNLIMITED_WIDTH = 10_000
_ESCAPE_HANDLER = "baton-escape"
_WORD = re.compile(r"""( *)((?:'[^']*'|"[^"]*"|[^'" ])+)""")  # quoted parts are not broken


def make_console(*, error: bool = False) -> Console:
    """Return a console for stdout or stderr."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _FILE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def prepare_streams() -> None:
    """Make stdout and stderr exist and escape what they cannot encode."""
    codecs.register_error(_ESCAPE_HANDLER, _escape)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPE_HANDLER)
        elif stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - stays open until exit


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def json_text(value: Any, *, lines: bool = False) -> str:
    """Return a value or record as JSON, indented or on one line, with terminal control characters escaped."""
    value = import_module("baton.wire.json_values").as_json(value)  # help does without pydantic
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":") if lines else None, indent=None if lines else 2)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def printable(text: str) -> str:
    """Return ``text`` with tabs as spaces and control characters as U+FFFD."""
    return "".join(char if char.isprintable() or char == "\n" else _replace_control(char) for char in text)


def _replace_control(char: str) -> str:
    return " " if char == "\t" or unicodedata.category(char) == "Zs" else "\ufffd"


def plain(text: str, style: str = "") -> Text:
    """Return untrusted ``text`` on one line, without markup or escape sequences."""
    return Text(printable(text).replace("\n", "⏎"), style)


def block(text: str, style: str = "") -> Text:
    """Return untrusted ``text`` with its line breaks. The caller marks it as data."""
    return Text(printable(text), style)


def quoted(text: str, style: str = "") -> Text:
    """Return ``text`` with a bar before each line."""
    return block("\n".join(f"  │ {line}" for line in text.splitlines()), style)


def stack(*rows: RenderableType | None) -> Group:
    """Return the rows below each other, without those that are None."""
    return Group(*(row for row in rows if row is not None))


class Command:
    """A shell command that stays valid when copied from the terminal."""

    def __init__(self, text: str, style: str = "dim") -> None:
        self.plain = printable(text.replace("\n", "⏎"))
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the command, broken into lines if the page folds."""
        if options.overflow == "fold":
            yield from (Text(line, self._style) for line in break_command(self.plain, options.max_width))
        else:
            yield Text(self.plain, self._style, no_wrap=True, overflow="ignore")


class FoldedPage:
    """A page that folds at the terminal's edge, for a live display."""

    def __init__(self, page: RenderableType) -> None:
        self._page = page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the page."""
        yield from console.render(self._page, options.update(overflow="fold"))


def break_command(command: str, width: int) -> list[str]:
    """Break a command between words into lines that end in a backslash."""
    if cell_len(command) <= width:
        return [command]
    indent = " " * (len(command) - len(command.lstrip()) + 4)
    lines = [""]
    for spaces, word in _WORD.findall(command):
        line = f"{lines[-1]}{spaces}{word}"
        if lines[-1] and cell_len(line) > width - 2:
            lines.append(f"{indent}{word}")
        else:
            lines[-1] = line
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def make_table(*columns: str, right: Sequence[str] = (), whole: Sequence[str] = (), leading: int = 0) -> Table:
    """Return an empty table. Columns in ``whole`` are not wrapped; ``leading`` is the first column's width."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), show_header=any(columns))
    for index, heading in enumerate(columns):
        is_whole = heading in whole
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            no_wrap=is_whole,
            overflow="ellipsis" if is_whole else "fold",
            min_width=min(leading, _MIN_LEADING_WIDTH) if index == 0 else None,
        )
    return table


def make_grid() -> Table:
    """Return an empty grid of two columns: a sign and a text."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    return table


def fit_columns(table: Table, console: Console, keep: int) -> Table:
    """Drop trailing columns until the table fits the terminal, but never one of the first ``keep``."""
    unlimited = console.options.update(max_width=_UNLIMITED_WIDTH)
    while console.is_terminal and len(table.columns) > keep:
        if console.measure(table, options=unlimited).maximum <= console.width:
            break
        table.columns.pop()
    return table


def format_time(at: datetime | None, reference: datetime | None = None) -> str:
    """Return the local time, with the date unless ``reference`` is on the same day."""
    if at is None:
        return ""
    local = at.astimezone()
    same_day = reference is not None and local.date() == reference.astimezone().date()
    return f"{local:%H:%M:%S}" if same_day else f"{local:%Y-%m-%d %H:%M:%S}"


def format_age(at: datetime | None, now: datetime) -> str:
    """Return how long ago ``at`` was, in the largest unit that fits."""
    if at is None:
        return ""
    return "just now" if now - at < timedelta(seconds=2) else f"{format_rough_duration(now - at)} ago"


STATUS_STYLES = {
    "RUNNING": "cyan",
    "WAITING": "bold yellow",
    "PENDING_HANDOFF": "bold yellow",
    "SUSPENDED": "bold red",
    "PAUSED": "bold yellow",
    "COMPLETED": "green",
    "FAILED": "bold red",
    "TERMINATED": "red",
    "CANCELED": "red",
    "TIMED_OUT": "red",
    "CONTINUED_AS_NEW": "dim",
}
"""The colour of each status of a run."""
