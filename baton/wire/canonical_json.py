r"""The canonical bytes of JSON (RFC 8785), several times faster where a quick writer writes the same bytes.

`rfc8785` takes 30 to 50 µs a kilobyte, which is most of what sealing a message costs. pydantic's own writer takes 1;
once the names are in order, what it writes differs from RFC 8785 in two things only:

1. *Numbers.* Both write the shortest digits that give the double back, but lay out very large and very small ones
   otherwise, and whole ones: 5.0 is 5 here. Whole doubles are made integers; where one is not between a thousandth
   and 2**53, all of it is written the slow way.
2. *The order of names*, by code point here and by UTF-16 unit in the RFC, which is the same unless a character
   beyond U+FFFF takes part: one of four bytes in UTF-8, the first of them F0 or above. Those go the slow way as well.

All else is equal: the escapes (`\b \f \n \r \t \" \\`, `\u00xx` in lower case, nothing more), no blanks, UTF-8.
`tests/unit/protocol/test_canonical_json.py` compares both ways on generated values.
"""

from typing import Any

import rfc8785
from pydantic_core import PydanticSerializationError, to_json

_EXACT = 2**53  # whole numbers below it are exact doubles, and written as they are
_LEAST = 1e-3  # fractions from here on are written without an exponent
_FOUR_BYTES = bytes(range(0xF0, 0x100))


class _OddError(Exception):
    """A value of which the two writers may write different bytes."""


def canonical_json(value: dict[str, Any] | list[Any]) -> bytes:
    r"""Return the canonical form (RFC 8785) of an object or a list.

    Args:
        value: JSON as Python, such as `loads_strict` returns.

    Returns:
        UTF-8.

    Raises:
        rfc8785.CanonicalizationError: It holds what is no JSON, or a number that JSON cannot carry exactly.

    Example:
        >>> canonical_json({"b": [1e-05, "é"], "a": 0.08})
        b'{"a":0.08,"b":[0.00001,"\xc3\xa9"]}'
    """
    try:
        data = to_json(_in_order(value))
    except (_OddError, TypeError, PydanticSerializationError):
        return rfc8785.dumps(value)
    return data if len(data.translate(None, _FOUR_BYTES)) == len(data) else rfc8785.dumps(value)


def _in_order(value: Any) -> Any:
    """Return a value with its names in order, and its whole doubles as integers.

    Raises:
        _OddError: It holds something else than the plainest JSON.
    """
    kind = type(value)
    if kind is dict:
        names = sorted(value)  # which refuses texts among other kinds of names
        if names and type(names[0]) is not str:
            raise _OddError
        # Most are texts, which are not worth a call.
        return {name: inner if type(inner := value[name]) is str else _in_order(inner) for name in names}
    if kind is list:
        return [inner if type(inner) is str else _in_order(inner) for inner in value]
    if kind is float:
        if value.is_integer() and -_EXACT < value < _EXACT:
            return int(value)
        if not _LEAST <= abs(value) < _EXACT:
            raise _OddError
    elif kind is int:
        if not -_EXACT < value < _EXACT:
            raise _OddError
    elif kind is not str and kind is not bool and value is not None:
        raise _OddError
    return value
