"""Strict, bounded reading of untrusted JSON, and canonical JSON (RFC 8785).

A signature covers one reading of a message. A reader that takes the first of two members with the same name, rounds a
large number or repairs half a character reads another message under the same signature, so all of these are refused.
"""

import hashlib
import json
import math
from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global one by a slow one
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import rfc8785
from pydantic import JsonValue
from pydantic_core import (
    PydanticSerializationError,
    SchemaValidator,
    core_schema,
    from_json,
    to_json,
    to_jsonable_python,
)

from baton.errors import MalformedMessageError

MAX_VALUES = 10_000
"""The most JSON values in a patch or a baton; a typical baton has about a hundred."""
MAX_MESSAGE_VALUES = 50_000
"""The most JSON values in a message between agents or in the output of a stage."""
MAX_DEPTH = 64
"""The deepest nesting of objects and lists; real messages stay below ten."""

_CONTAINERS = (dict, list, tuple)


class Excess(NamedTuple):
    """Where a value exceeds a bound, and how."""

    path: tuple[str | int, ...]
    text: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))[:200]}: {self.text}" if self.path else self.text


def find_excess(value: Any, max_values: int = MAX_VALUES, max_depth: int = MAX_DEPTH) -> Excess | None:
    """Return where a JSON value holds too many values or is nested too deep, or None."""
    count, depth = 0, 0
    level = [value] if isinstance(value, _CONTAINERS) else []
    while level and depth < max_depth:
        next_level: list[Any] = []
        for container in level:
            count += len(container)
            if count > max_values:
                text = f"has {len(container):,} entries; at most {max_values:,} JSON values are allowed in all; "
                return Excess(_find_path(value, container), text + "put content into an artifact")
            if container:
                values = container.values() if isinstance(container, dict) else container
                next_level += [member for member in values if isinstance(member, _CONTAINERS)]
        level, depth = next_level, depth + 1
    if not level:
        return None
    return Excess(_find_path(value, level[0])[:1], f"is nested more than {max_depth} deep; flatten it")


def _find_path(value: Any, target: Any) -> tuple[str | int, ...]:
    level: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while level:
        next_level = []
        for path, container in level:
            if container is target:
                return path
            members = container.items() if isinstance(container, dict) else enumerate(container)
            next_level += [((*path, key), member) for key, member in members if isinstance(member, _CONTAINERS)]
        level = next_level
    return ()


_EXACT_LIMIT = 2**53  # integers below it are exact doubles
_EXACT_DIGITS = 15  # every integer of up to 15 digits is an exact double
_MAX_NUMBER_LENGTH = 800  # the longest double written out in full has 767 significant digits
_MAX_VALUES = 100_000
_UNSURE = object()
_long_number = SchemaValidator(
    core_schema.str_schema(pattern=r"[\[:,]-?[0-9]{16}", regex_engine="rust-regex")
).isinstance_python


def count_containers(raw: bytes, limit: int) -> int:
    """Return an upper bound of the objects and lists in a JSON text; brackets inside strings are not counted."""
    count = raw.count(b"{") + raw.count(b"[")
    if count > limit:
        unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
        if unescaped.count(b'"') <= 4 * limit:  # with more strings than values are allowed, the text is refused anyway
            outside = b"".join(unescaped.split(b'"')[::2])
            count = outside.count(b"{") + outside.count(b"[")
    return count


def loads_strict(raw: bytes | str) -> Any:
    """Parse a JSON text; refuse what JSON readers read differently."""
    count = count_containers(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw, _MAX_VALUES)
    if count > _MAX_VALUES:
        raise MalformedMessageError(f"it has {count:,} objects and lists; at most {_MAX_VALUES:,} are read")
    if isinstance(raw, bytes) and (parsed := _load_compact(raw)) is not _UNSURE:
        return parsed
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise MalformedMessageError(f"not UTF-8 at byte {error.start}; encode JSON as UTF-8") from None
    except json.JSONDecodeError as error:
        raise MalformedMessageError(f"not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise MalformedMessageError(f"it is nested more than {MAX_DEPTH} deep; flatten it") from None
    if (excess := find_excess(value, _MAX_VALUES)) is not None:
        raise MalformedMessageError(str(excess))
    # In bytes only an escape can spell a lone surrogate: anything else would not be UTF-8.
    if "\\ud" in text or "\\uD" in text or isinstance(raw, str):
        _refuse_lone_surrogates(value)
    return value


def has_long_number(text: str) -> bool:
    """Return whether a JSON text may hold a number with more than 15 digits."""
    return _long_number(f":{text}")  # the colon saves an alternative for the start, which doubles the time


def _load_compact(raw: bytes) -> Any:
    """Parse compact JSON in half the time, or return `_UNSURE` if only the strict decoder can tell."""
    try:
        value = from_json(raw, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return _UNSURE
    if to_json(value) != raw or has_long_number(raw.decode()):
        return _UNSURE
    brackets = raw.count(b"{") + raw.count(b"[")
    may_exceed = brackets > MAX_DEPTH or brackets + raw.count(b",") > _MAX_VALUES
    if may_exceed and (excess := find_excess(value, _MAX_VALUES)) is not None:
        raise MalformedMessageError(str(excess))
    return value


def _parse_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(members)
    if len(parsed) != len(members):
        counts = Counter(name for name, _ in members)
        duplicate = next(name for name, count in counts.items() if count > 1)
        raise MalformedMessageError(f"the member {duplicate[:60]!r} appears twice; send it once")
    return parsed


def _parse_integer(literal: str) -> int | float:
    """Return an integer that every JSON reader holds exactly."""
    if len(literal) <= _EXACT_DIGITS:
        return int(literal)
    value = _parse_float(literal)
    if abs(value) < _EXACT_LIMIT and int(value) == int(literal):
        return int(value)
    if rfc8785.dumps(value) == literal.encode():
        return value
    raise MalformedMessageError(f"a whole number of {len(literal)} digits is not exact in JSON; send it as a string")


def _parse_float(literal: str) -> float:
    if len(literal) > _MAX_NUMBER_LENGTH:
        raise MalformedMessageError(f"a number of {len(literal)} characters; send it as a string")
    value = float(literal)
    if math.isinf(value):
        raise MalformedMessageError("a number is larger than a double holds; send it as a string")
    return value


def _refuse_constant(name: str) -> float:
    raise MalformedMessageError(f"{name} is not JSON; leave the member out or send null")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_parse_object,
    parse_int=_parse_integer,
    parse_float=_parse_float,
    parse_constant=_refuse_constant,
)


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise MalformedMessageError("a string holds half a surrogate pair; send whole characters") from None


if TYPE_CHECKING:
    Json: TypeAlias = Any
else:
    Json = JsonValue
"""JSON that the user's code passes or reads. pydantic checks it as `JsonValue`; to type checkers it is `Any`, because
they reject indexing a `JsonValue` and passing a `dict[str, list[str]]` as one."""


def find_unwritable(value: Any, path: str = "", *, exact: bool = True) -> list[str]:
    """Return the parts of a value that JSON cannot carry, or that JSON readers read differently (RFC 7493)."""
    try:
        raw = to_json(value)
    except PydanticSerializationError:
        return list(_walk_unwritable(value, path, exact))
    return list(_walk_unwritable(value, path, exact)) if exact and has_long_number(raw.decode()) else []


def _walk_unwritable(value: Any, path: str, exact: bool) -> Iterator[str]:
    if isinstance(value, str):
        if has_lone_surrogate(value):
            yield f"{path}: a text holds half a surrogate pair; write whole characters"
    elif isinstance(value, dict):
        for name, member in value.items():
            if has_lone_surrogate(name):
                yield f"{path or 'a member'}: a name holds half a surrogate pair; write whole characters"
            else:
                yield from _walk_unwritable(member, f"{path}.{name}" if path else name, exact)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _walk_unwritable(member, f"{path}.{index}" if path else str(index), exact)
    elif exact and type(value) is int and not -_EXACT_LIMIT < value < _EXACT_LIMIT:
        yield f"{path}: a whole number of 2**53 or beyond is not exact in JSON; send it as a string"


def json_spellings(text: str) -> set[str]:
    """Return the stripped text as plain text and as JSON string contents, in each way JSON may escape it."""
    bare = text.strip()
    escaped = [json.dumps(bare, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return {bare, *escaped, *(spelling.replace("/", "\\/") for spelling in escaped)}


def repair(value: Any) -> Any:
    """Return a JSON value with lone surrogates in its strings replaced."""
    try:
        to_json(value)
    except PydanticSerializationError:
        return _repair_value(value)
    return value


def _repair_value(value: Any) -> Any:
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, dict):
        return {repair_text(name): _repair_value(member) for name, member in value.items()}
    return [_repair_value(member) for member in value] if isinstance(value, list) else value


def repair_text(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced; JSON can spell both."""
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if has_lone_surrogate(text) else text
    )


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text holds a lone surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class JsonFields:
    """A dataclass that other programs read as JSON, by its fields."""

    def to_json_object(self) -> dict[str, Any]:
        """Return its fields as JSON."""
        names: dict[str, Any] = self.__dataclass_fields__  # type: ignore[attr-defined]
        return {name: as_json(getattr(self, name)) for name in names}


def as_json(value: Any) -> Any:
    """Return a value as JSON; a record in it as its `to_json_object` says.

    Example:
        >>> from datetime import UTC, datetime
        >>> as_json([{"at": datetime(2026, 11, 21, tzinfo=UTC)}])
        [{'at': '2026-11-21T00:00:00Z'}]
    """
    if hasattr(value, "to_json_object"):
        return value.to_json_object()
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if isinstance(value, dict):
        return {to_jsonable_python(name): as_json(member) for name, member in value.items()}
    return to_jsonable_python(value)


def digest(value: Any) -> str:
    """Return `sha256:<hex>` over the canonical JSON (RFC 8785) of ``value``."""
    return "sha256:" + hashlib.sha256(rfc8785.dumps(value)).hexdigest()


_MIN_PLAIN_FRACTION = 1e-3  # fractions from here on are written without an exponent
_FOUR_BYTE_LEADS = bytes(range(0xF0, 0x100))


class _OddValueError(Exception):
    """pydantic and rfc8785 may write this value as different bytes."""


def canonical_json(value: dict[str, Any] | list[Any]) -> bytes:
    """Return the canonical form (RFC 8785) of an object or a list."""
    try:
        data = to_json(_normalize(value))
    except (_OddValueError, TypeError, PydanticSerializationError):
        return rfc8785.dumps(value)
    return data if len(data.translate(None, _FOUR_BYTE_LEADS)) == len(data) else rfc8785.dumps(value)


def _normalize(value: Any) -> Any:
    """Return a value with its members sorted and its whole doubles as integers."""
    kind = type(value)
    if kind is dict:
        names = sorted(value)  # raises TypeError for names of mixed types
        if names and type(names[0]) is not str:
            raise _OddValueError
        # Most members are strings: skipping the call for them saves time.
        return {name: member if type(member := value[name]) is str else _normalize(member) for name in names}
    if kind is list:
        return [member if type(member) is str else _normalize(member) for member in value]
    if kind is float:
        if value.is_integer() and -_EXACT_LIMIT < value < _EXACT_LIMIT:
            return int(value)
        if not _MIN_PLAIN_FRACTION <= abs(value) < _EXACT_LIMIT:
            raise _OddValueError
    elif kind is int:
        if not -_EXACT_LIMIT < value < _EXACT_LIMIT:
            raise _OddValueError
    elif kind is not str and kind is not bool and value is not None:
        raise _OddValueError
    return value


def pae(purpose: str, body: bytes) -> bytes:
    """Return the pre-authentication encoding of DSSE v1, which binds ``body`` to a purpose."""
    name = purpose.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(body), body)


def sha256(data: bytes) -> bytes:
    """Return the SHA-256 of the data."""
    return hashlib.sha256(data).digest()


def format_digest(hashed: bytes) -> str:
    """Return a SHA-256 as `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashed.hex()


def parse_digest(digest: str) -> bytes:
    """Return the 32 bytes of a `sha256:` digest, or no bytes if it is not one."""
    algorithm, _, digits = digest.partition(":")
    return bytes.fromhex(digits) if algorithm == "sha256" and len(digits) == 64 else b""


def narrow_integers(value: Any) -> Any:
    """Return JSON whose every number came as a float, as protobuf's do, with whole numbers as integers.

    Example:
        >>> narrow_integers({"pages": [3.0, 0.5]})
        {'pages': [3, 0.5]}
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: narrow_integers(item) for name, item in value.items()}
    return [narrow_integers(item) for item in value] if isinstance(value, list) else value
