"""JSON that others write, bounded and read so that no two readers disagree; and canonical JSON (RFC 8785) of our own.

A signature is made over one reading of a message. A reader that takes the first of two members of one name, rounds a
large number or repairs half a character reads another message under the same signature, so all of that is refused.
"""

import hashlib
import json
import math
from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global one by a slow one
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import rfc8785
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, SchemaValidator, core_schema, from_json, to_json

from baton.errors import MalformedMessageError

MAX_VALUES = 10_000
"""The most JSON values in a patch, and in a baton; a baton is meant to have about a hundred."""
MAX_MESSAGE_VALUES = 50_000
"""The most JSON values in a message between agents, and in the output of a stage."""
MAX_DEPTH = 64
"""How deep objects and lists may be nested; real messages stay below ten."""

_NESTS = (dict, list, tuple)


class Excess(NamedTuple):
    """Where a value exceeds a bound, and how."""

    path: tuple[str | int, ...]
    text: str

    def __str__(self) -> str:
        """Return a sentence that names the place."""
        return f"{'.'.join(map(str, self.path))[:200]}: {self.text}" if self.path else self.text


def find_excess(value: Any, most: int = MAX_VALUES, deepest: int = MAX_DEPTH) -> Excess | None:
    """Return where a JSON value holds too many values or is nested too deep, or None."""
    count, depth = 0, 0
    level = [value] if isinstance(value, _NESTS) else []
    while level and depth < deepest:
        inner: list[Any] = []
        for container in level:
            count += len(container)
            if count > most:
                text = f"has {len(container):,} entries; at most {most:,} JSON values are allowed in all; "
                return Excess(_path_of(value, container), text + "put content into an artifact")
            if container:
                inner += [one for one in _entries(container) if isinstance(one, _NESTS)]
        level, depth = inner, depth + 1
    return Excess(_path_of(value, level[0])[:1], f"is nested more than {deepest} deep; flatten it") if level else None


def _entries(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _path_of(value: Any, wanted: Any) -> tuple[str | int, ...]:
    """Return the path to a container within a value, found level by level as `excess` did."""
    level: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while level:
        inner = []
        for path, container in level:
            if container is wanted:
                return path
            members = container.items() if isinstance(container, dict) else enumerate(container)
            inner += [((*path, name), one) for name, one in members if isinstance(one, _NESTS)]
        level = inner
    return ()


_EXACT = 2**53  # whole numbers below it are exact doubles
_EXACT_DIGITS = 15  # of so many digits every whole number is a double
_LONGEST_NUMBER = 800  # the longest double written out in full has 767 significant digits
_MOST_VALUES = 100_000
_UNSURE = object()
_long_number = SchemaValidator(
    core_schema.str_schema(pattern=r"[\[:,]-?[0-9]{16}", regex_engine="rust-regex")
).isinstance_python


def count_containers(raw: bytes, most: int) -> int:
    """Return how many objects and lists a JSON text has at most, those within its texts left out."""
    count = raw.count(b"{") + raw.count(b"[")
    if count > most:
        plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
        if plain.count(b'"') <= 4 * most:  # of more texts than values are allowed, none is looked at
            outside = b"".join(plain.split(b'"')[::2])
            count = outside.count(b"{") + outside.count(b"[")
    return count


def loads_strict(raw: bytes | str) -> Any:
    """Return the value of a JSON text, or refuse what readers read differently."""
    count = count_containers(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw, _MOST_VALUES)
    if count > _MOST_VALUES:
        raise MalformedMessageError(f"it has {count:,} objects and lists; at most {_MOST_VALUES:,} are read")
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
        raise MalformedMessageError(f"it is nested more than {MAX_DEPTH} deep; flatten it") from None
    if (found := find_excess(value, _MOST_VALUES)) is not None:
        raise MalformedMessageError(str(found))
    # Only an escape spells half a pair: as bytes it would not be UTF-8.
    if "\\ud" in text or "\\uD" in text or isinstance(raw, str):
        _refuse_half_characters(value)
    return value


def has_long_number(text: str) -> bool:
    """Return whether a JSON text may hold a number of more digits than are always exact."""
    return _long_number(f":{text}")  # a pattern for the beginning as well would take twice as long


def _read_quickly(raw: bytes) -> Any:
    """Return the value of a compact text in half the time, or `_UNSURE` if it takes the other way to be sure."""
    try:
        value = from_json(raw, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return _UNSURE
    if to_json(value) != raw or has_long_number(raw.decode()):
        return _UNSURE
    brackets = raw.count(b"{") + raw.count(b"[")
    unbounded = brackets > MAX_DEPTH or brackets + raw.count(b",") > _MOST_VALUES
    if unbounded and (found := find_excess(value, _MOST_VALUES)) is not None:
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


if TYPE_CHECKING:
    Json: TypeAlias = Any
else:
    Json = JsonValue
"""JSON that a team hands over or reads: pydantic checks it as `JsonValue`. To type checkers it is `Any`, because they
do not let one index a `JsonValue`, nor pass a `dict[str, list[str]]` as one; only the team knows its own JSON."""


KIND_NAMES = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
"""What each kind of JSON value is called in a sentence, by its name in JSON Schema."""


def find_unwritable(value: Any, at: str = "", *, exact: bool = True) -> list[str]:
    """Return what a value holds that JSON cannot carry, or that its readers would read differently (RFC 7493)."""
    try:
        raw = to_json(value)
    except PydanticSerializationError:
        return list(_faults(value, at, exact))
    return list(_faults(value, at, exact)) if exact and has_long_number(raw.decode()) else []


def _faults(value: Any, at: str, exact: bool) -> Iterator[str]:
    """Yield what `unwritable` returns."""
    if isinstance(value, str):
        if has_lone_surrogate(value):
            yield f"{at}: a text holds half a surrogate pair; write whole characters"
    elif isinstance(value, dict):
        for name, inner in value.items():
            if has_lone_surrogate(name):
                yield f"{at or 'a member'}: a name holds half a surrogate pair; write whole characters"
            else:
                yield from _faults(inner, f"{at}.{name}" if at else name, exact)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _faults(inner, f"{at}.{place}" if at else str(place), exact)
    elif exact and type(value) is int and not -_EXACT < value < _EXACT:
        yield f"{at}: a whole number of 2**53 or beyond is not exact in JSON; send it as a string"


def json_spellings(text: str) -> set[str]:
    """Return how a text may stand in a text or within a string of JSON, without the blanks around it."""
    bare = text.strip()
    told = [json.dumps(bare, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return {bare, *told, *(one.replace("/", "\\/") for one in told)}


def repair(value: Any) -> Any:
    """Return a value whose texts hold whole characters only; for what is on record as it was said, and not stated."""
    try:
        to_json(value)
    except PydanticSerializationError:
        return _repaired(value)
    return value


def _repaired(value: Any) -> Any:
    """Return what `repaired` returns."""
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, dict):
        return {repair_text(name): _repaired(inner) for name, inner in value.items()}
    return [_repaired(inner) for inner in value] if isinstance(value, list) else value


def repair_text(text: str) -> str:
    """Return the text with halves of surrogate pairs, which JSON can spell, made whole or replaced."""
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if has_lone_surrogate(text) else text
    )


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text holds half a surrogate pair, which no file and no message can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def json_kind(value: Any) -> str:
    """Return what kind of JSON value something is, in words."""
    if isinstance(value, bool):
        return KIND_NAMES["boolean"]
    kinds = {str: "string", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}
    return KIND_NAMES[kinds.get(type(value), "object")]


def digest(value: Any) -> str:
    """Return `sha256:<hex>` over the canonical JSON (RFC 8785) of ``value``."""
    return "sha256:" + hashlib.sha256(rfc8785.dumps(value)).hexdigest()


_LEAST = 1e-3  # fractions from here on are written without an exponent
_FOUR_BYTES = bytes(range(0xF0, 0x100))


class _OddError(Exception):
    """A value that the two writers may write as different bytes."""


def canonical_json(value: dict[str, Any] | list[Any]) -> bytes:
    """Return the canonical form (RFC 8785) of an object or a list."""
    try:
        data = to_json(_in_order(value))
    except (_OddError, TypeError, PydanticSerializationError):
        return rfc8785.dumps(value)
    return data if len(data.translate(None, _FOUR_BYTES)) == len(data) else rfc8785.dumps(value)


def _in_order(value: Any) -> Any:
    """Return a value with its names in order, and its whole doubles as integers."""
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


def pae(purpose: str, body: bytes) -> bytes:
    """Return ``body`` bound to a purpose: the pre-authentication encoding of DSSE v1."""
    name = purpose.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(body), body)


def sha256(data: bytes) -> bytes:
    """Return the SHA-256 of a message."""
    return hashlib.sha256(data).digest()


def format_digest(hashed: bytes) -> str:
    """Return a SHA-256 as the documents spell it: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashed.hex()


def parse_digest(digest: str) -> bytes:
    """Return the 32 bytes that a digest spells; no bytes if it spells none."""
    algorithm, _, digits = digest.partition(":")
    return bytes.fromhex(digits) if algorithm == "sha256" and len(digits) == 64 else b""
