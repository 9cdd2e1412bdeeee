r"""JSON read so that no two readers can disagree about it; every received message enters through here.

A signature is made over one reading of a message. A reader that takes the first of two members of the same
name, rounds a large number or mends half a character reads another message under the same signature, so all
of that is refused (`security.md`: RFC 8785 input rules).
"""

import json
import math
from collections import Counter
from typing import Any

import rfc8785
from pydantic_core import SchemaValidator, core_schema, from_json, to_json

from baton.handoff.errors import MalformedMessageError
from baton.wire.bounds import MOST_DEPTH, excess

_EXACT_DIGITS = 15  # of so many digits every whole number is a double
_LONGEST_NUMBER = 800  # the longest double written out in full has 767 significant digits
_MOST_VALUES = 100_000
_UNSURE = object()
_long_number = SchemaValidator(
    core_schema.str_schema(pattern=r"[\[:,]-?[0-9]{16}", regex_engine="rust-regex")
).isinstance_python


def loads_strict(raw: bytes | str) -> Any:
    r"""Return the value of a JSON text, or refuse what readers read differently.

    Whole numbers of 2**53 and beyond are taken only in the spelling that RFC 8785 gives to a double, and
    become one; so a canonical text always reads back, and no other number passes for it.

    Args:
        raw: The text, UTF-8 if bytes, without a byte order mark.

    Returns:
        Dicts, lists, strings, ints below 2**53, finite floats, booleans and None. Their canonical form
        (RFC 8785) exists, and reading it gives the same value.

    Raises:
        MalformedMessageError: The text is not JSON; a member appears twice; a number is NaN, infinite or
            not exactly representable; a string holds half a surrogate pair; or the nesting is deeper than
            `MOST_DEPTH`. The message names the place, never the content.

    Example:
        >>> loads_strict(b'{"costSpentSoFarUSD": 0.08, "tokenSpent": {"prompt": 4200}}')
        {'costSpentSoFarUSD': 0.08, 'tokenSpent': {'prompt': 4200}}
        >>> loads_strict('{"approved": false, "approved": true}')
        Traceback (most recent call last):
        baton.handoff.errors.MalformedMessageError: the member 'approved' appears twice; send it once
    """
    brackets = raw.count(b"{") + raw.count(b"[") if isinstance(raw, bytes) else raw.count("{") + raw.count("[")
    if brackets > _MOST_VALUES:
        raise MalformedMessageError(f"it has {brackets:,} objects and lists; at most {_MOST_VALUES:,} are read")
    if isinstance(raw, bytes) and (quick := _read_quickly(raw)) is not _UNSURE:
        return quick
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise MalformedMessageError(f"not UTF-8 at byte {error.start}; encode JSON as UTF-8") from None
    except json.JSONDecodeError as error:
        raise MalformedMessageError(f"not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise MalformedMessageError(f"it is nested more than {MOST_DEPTH} deep; flatten it") from None
    if (found := excess(value, _MOST_VALUES)) is not None:
        raise MalformedMessageError(str(found))
    # Only an escape spells half a pair: as bytes it would not be UTF-8.
    if "\\ud" in text or "\\uD" in text or isinstance(raw, str):
        _refuse_half_characters(value)
    return value


def holds_long_number(text: str) -> bool:
    """Return whether a JSON text may hold a number of more digits than are always exact.

    Example:
        >>> holds_long_number("1234567890123456"), holds_long_number('["1234567890123456"]')
        (True, False)
    """
    return _long_number(f":{text}")  # a pattern for the beginning as well would take twice as long


def _read_quickly(raw: bytes) -> Any:
    """Return the value of a compact text in half the time, or `_UNSURE` if it takes the other way to be sure.

    The quick reader takes the last of two members of one name, rounds, and reads NaN. But what it lost of the text
    is not there when the value is written again: if that gives the same bytes, there was one member of each name,
    and each number is the shortest spelling of its double. That leaves whole numbers that no double holds, and depth.
    """
    try:
        value = from_json(raw, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return _UNSURE
    if to_json(value) != raw or holds_long_number(raw.decode()):
        return _UNSURE
    brackets = raw.count(b"{") + raw.count(b"[")
    unbounded = brackets > MOST_DEPTH or brackets + raw.count(b",") > _MOST_VALUES
    if unbounded and (found := excess(value, _MOST_VALUES)) is not None:
        raise MalformedMessageError(str(found))
    return value


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object, unless a member appears twice."""
    found = dict(members)
    if len(found) != len(members):
        times = Counter(name for name, _ in members)
        twice = next(name for name, count in times.items() if count > 1)
        raise MalformedMessageError(f"the member {twice[:60]!r} appears twice; send it once")
    return found


def _integer(literal: str) -> int | float:
    """Return a whole number that every reader of JSON holds exactly."""
    if len(literal) <= _EXACT_DIGITS:
        return int(literal)
    value = _float(literal)
    if abs(value) < 2**53 and int(value) == int(literal):
        return int(value)
    if rfc8785.dumps(value) == literal.encode():
        return value
    raise MalformedMessageError(f"a whole number of {len(literal)} digits is not exact in JSON; send it as a string")


def _float(literal: str) -> float:
    """Return a number with a fraction or an exponent, or a long one, as the double that it stands for."""
    if len(literal) > _LONGEST_NUMBER:
        raise MalformedMessageError(f"a number of {len(literal)} characters; send it as a string")
    value = float(literal)
    if math.isinf(value):
        raise MalformedMessageError("a number is larger than a double holds; send it as a string")
    return value


def _constant(name: str) -> float:
    """Refuse what Python reads beyond JSON."""
    raise MalformedMessageError(f"{name} is no JSON; leave the member out or send null")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)


def _refuse_half_characters(value: Any) -> None:
    """Refuse a string, or a name, that holds one half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise MalformedMessageError("a string holds half a surrogate pair; send whole characters") from None
