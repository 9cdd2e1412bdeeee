"""JSON as Python that agents and stages return: what of it cannot be written so that all its readers read the same."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from baton.wire.strict_json import holds_long_number

if TYPE_CHECKING:
    Json: TypeAlias = Any
else:
    Json = JsonValue
"""JSON that a team hands over or reads: pydantic checks it as `JsonValue`. To type checkers it is `Any`, because they
let nobody index a `JsonValue`, nor pass a `dict[str, list[str]]` as one; only the team knows what its own JSON is."""

_EXACT = 2**53  # whole numbers below it are exact doubles

KINDS = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
"""What each kind of JSON value is called in a sentence, by its name in JSON Schema."""


def unwritable(value: Any, at: str = "", *, exact: bool = True) -> list[str]:
    r"""Return what a value holds that JSON cannot carry, or that its readers would read differently (RFC 7493).

    Args:
        value: JSON as Python.
        at: What the places that are named begin with.
        exact: Whole numbers of 2**53 and beyond count too: no signature can be made over them (RFC 8785).

    Returns:
        A sentence for each, which names the place and says what to do; nothing if the value is sound.

    Example:
        >>> unwritable({"ids": [2**60], "note": "whole"}, "output")
        ['output.ids.0: a whole number of 2**53 or beyond is not exact in JSON; send it as a string']
        >>> unwritable(["half \ud83d"], "current_state", exact=False)
        ['current_state.0: a text holds half a surrogate pair; write whole characters']
    """
    try:
        raw = to_json(value)
    except PydanticSerializationError:
        return list(_faults(value, at, exact))
    return list(_faults(value, at, exact)) if exact and holds_long_number(raw.decode()) else []


def _faults(value: Any, at: str, exact: bool) -> Iterator[str]:
    """Yield what `unwritable` returns."""
    if isinstance(value, str):
        if holds_half(value):
            yield f"{at}: a text holds half a surrogate pair; write whole characters"
    elif isinstance(value, dict):
        for name, inner in value.items():
            if holds_half(name):
                yield f"{at or 'a member'}: a name holds half a surrogate pair; write whole characters"
            else:
                yield from _faults(inner, f"{at}.{name}" if at else name, exact)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _faults(inner, f"{at}.{place}" if at else str(place), exact)
    elif exact and type(value) is int and not -_EXACT < value < _EXACT:
        yield f"{at}: a whole number of 2**53 or beyond is not exact in JSON; send it as a string"


def spellings(text: str) -> set[str]:
    r"""Return how a text may stand in a text or within a string of JSON, without the blanks around it.

    Example:
        >>> sorted(spellings("line 1\nä\n"))
        ['line 1\nä', 'line 1\\n\\u00e4', 'line 1\\nä']
        >>> sorted(spellings("a/b"))
        ['a/b', 'a\\/b']
    """
    bare = text.strip()
    told = [json.dumps(bare, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return {bare, *told, *(one.replace("/", "\\/") for one in told)}


def mended(value: Any) -> Any:
    r"""Return a value whose texts hold whole characters only; for what is on record as it was said, and not stated.

    Example:
        >>> ascii(mended(["done \ud83d"]))
        "['done \\ufffd']"
    """
    try:
        to_json(value)
    except PydanticSerializationError:
        return _mended(value)
    return value


def _mended(value: Any) -> Any:
    """Return what `mended` returns."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(name): _mended(inner) for name, inner in value.items()}
    return [_mended(inner) for inner in value] if isinstance(value, list) else value


def well_formed(text: str) -> str:
    """Return the text with halves of surrogate pairs, which JSON can spell, made whole or replaced.

    Example:
        >>> well_formed(chr(0xd83d) + chr(0xde00) + chr(0xd800))
        '😀\ufffd'
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if holds_half(text) else text


def holds_half(text: str) -> bool:
    """Return whether a text holds half a surrogate pair, which no file and no message can.

    Example:
        >>> holds_half("whole"), holds_half(chr(0xd83d))
        (False, True)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def json_kind(value: Any) -> str:
    """Return what kind of JSON value something is, in words.

    Example:
        >>> json_kind(True), json_kind(2.5), json_kind([])
        ('true or false', 'a number', 'a list')
    """
    if isinstance(value, bool):
        return KINDS["boolean"]
    kinds = {str: "string", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}
    return KINDS[kinds.get(type(value), "object")]
