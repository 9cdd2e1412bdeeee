"""How values read on a page: times, lengths, money, numbers, and text of agents with nothing invisible in it."""

import json
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from markupsafe import Markup, escape
from pydantic_core import to_jsonable_python

from baton.wire.text import quantity

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


def length(seconds: float | timedelta | None) -> str:
    """Return a length of time in a few signs."""
    if seconds is None:
        return ""
    number = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if number < 1:
        return f"{max(0.0, number) * 1000:.0f} ms"
    if number < 59.95:
        return f"{number:.1f} s"
    minutes, rest = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def between(began: datetime | None, ended: datetime | None) -> timedelta | None:
    """Return the time from one moment to another, or None where either is not known."""
    return ended - began if began and ended else None


def moment(at: datetime | None) -> Markup:
    """Return a time in UTC as an element that a browser may show in its own zone."""
    if at is None:
        return Markup("")
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(timespec="milliseconds"), stamp(utc))


def stamp(at: datetime) -> str:
    """Return a time in UTC as text."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(at: datetime | None) -> Markup:
    """Return how long ago something was, in the largest unit that fits, with the time itself as its title."""
    if at is None:
        return Markup("")
    since = max(timedelta(), datetime.now(UTC) - at)
    for unit, size in (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1))):
        if since >= 2 * size or (unit == "min" and since >= size):
            told = f"{since // size} {unit}"
            break
    else:
        told = f"{since.seconds} s"
    utc = at.astimezone(UTC)
    return Markup('<time class="ago" datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), stamp(utc), told
    )


def dollars(micro_usd: int | None) -> str:
    """Return an amount of money: to a cent from one cent on."""
    if micro_usd is None:
        return ""
    places = 2 if abs(micro_usd) >= 10_000 or not micro_usd else 5
    return f"${Decimal(micro_usd).scaleb(-6).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,}"


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
    """Return a value as indented JSON."""
    return json.dumps(to_jsonable_python(value), ensure_ascii=False, indent=2)


def isolated(text: str) -> Markup:
    """Return text whose direction is its own, so that it does not turn what stands beside it."""
    return Markup("<bdi>{}</bdi>").format(escape(visible(text)))


FILTERS: Mapping[str, Any] = {
    "length": length,
    "moment": moment,
    "ago": ago,
    "dollars": dollars,
    "number": number,
    "bytes": size,
    "json": json_text,
    "bdi": isolated,
    "quantity": quantity,
}
"""What templates may call."""
