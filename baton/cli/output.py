"""What the commands write: consoles, tables, JSON, and text of stages that a terminal may be trusted with."""

import codecs
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_jsonable_python
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from baton.wire.text import format_rough_duration

_WIDTH_OF_A_FILE = 120
_LEADING_AT_LEAST = 16
_ENDLESS = 10_000
_ESCAPED = "baton-escaped"
_WORD = re.compile(r"""( *)((?:'[^']*'|"[^"]*"|[^'" ])+)""")  # what is quoted is not broken


def make_console(*, error: bool = False) -> Console:
    """Return a console for the output, or for what is said beside it."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDTH_OF_A_FILE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def prepare_streams() -> None:
    """Set up the process's streams so that they take every text, and are there."""
    codecs.register_error(_ESCAPED, _escaped)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPED)
        elif stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it is open to the end


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return the escapes of what cannot be encoded, and where to continue."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def json_text(value: Any, *, lines: bool = False) -> str:
    """Return ``value``, records among it, as JSON: indented, or on one line; what could steer a terminal is escaped."""
    value = to_jsonable_python(value)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":") if lines else None, indent=None if lines else 2)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text)


def printable(text: str) -> str:
    """Return ``text`` with every sign that could steer a terminal made visible."""
    return "".join(sign if sign.isprintable() or sign == "\n" else _seen(sign) for sign in text)


def _seen(sign: str) -> str:
    return " " if sign == "\t" or unicodedata.category(sign) == "Zs" else "\ufffd"


def plain(text: str, style: str = "") -> Text:
    """Return ``text`` on one line for the terminal: no markup, no escape sequences, no line of its own."""
    return Text(printable(text).replace("\n", "⏎"), style)


def block(text: str, style: str = "") -> Text:
    """Return ``text`` for the terminal with its line breaks, where the page around it marks it as data."""
    return Text(printable(text), style)


def quoted(text: str, style: str = "") -> Text:
    """Return ``text``, which may have several lines, with a bar before each."""
    return block("\n".join(f"  │ {line}" for line in text.splitlines()), style)


def stack(*rows: RenderableType | None) -> Group:
    """Return the rows below each other; None stands for nothing."""
    return Group(*(row for row in rows if row is not None))


class Command:
    """A command to type, which can be copied as it stands there."""

    def __init__(self, text: str, style: str = "dim") -> None:
        self.plain = printable(text.replace("\n", "⏎"))
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield its lines."""
        if options.overflow == "fold":
            yield from (Text(line, self._style) for line in break_command(self.plain, options.max_width))
        else:
            yield Text(self.plain, self._style, no_wrap=True, overflow="ignore")


class FoldedPage:
    """A page no wider or longer than the terminal, because it is overwritten again and again."""

    def __init__(self, page: RenderableType) -> None:
        self._page = page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the page."""
        yield from console.render(self._page, options.update(overflow="fold"))


def break_command(command: str, width: int) -> list[str]:
    """Return a command in lines of some width, broken between words as a shell takes it."""
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
    """Return an empty table in the house's style."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), show_header=any(columns))
    for place, heading in enumerate(columns):
        is_whole = heading in whole
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            no_wrap=is_whole,
            overflow="ellipsis" if is_whole else "fold",
            min_width=min(leading, _LEADING_AT_LEAST) if place == 0 else None,
        )
    return table


def make_grid() -> Table:
    """Return an empty table of two columns: a sign, and a text that hangs beside it."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    return table


def fit_columns(table: Table, console: Console, keep: int) -> Table:
    """Leave out a table's last columns, down to the first ``keep``, where the terminal is too narrow."""
    endless = console.options.update(max_width=_ENDLESS)
    while console.is_terminal and len(table.columns) > keep:
        if console.measure(table, options=endless).maximum <= console.width:
            break
        table.columns.pop()
    return table


def format_time(at: datetime | None, beside: datetime | None = None) -> str:
    """Return a time of this machine's zone: the day too, where it is not the day of ``beside``."""
    if at is None:
        return ""
    local = at.astimezone()
    same_day = beside is not None and local.date() == beside.astimezone().date()
    return f"{local:%H:%M:%S}" if same_day else f"{local:%Y-%m-%d %H:%M:%S}"


def format_age(at: datetime | None, now: datetime) -> str:
    """Return how long ago something was, in the largest unit that fits."""
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
"""The colour of each status a run may have."""
