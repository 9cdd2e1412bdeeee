"""The base classes and field types of wire records, with the same rules in Python and JSON Schema.

Draft 2020-12 does not enforce formats such as `uuid` or `date-time`, so each type publishes a pattern. A linear-time
matcher can match all patterns: a hostile text cannot slow a receiver down.
"""

import re
from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global one by a slow one
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    StringConstraints,
    WithJsonSchema,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from baton.wire.json_values import loads_strict
from baton.wire.versions import MAX_LENGTH, RANGE, VERSION


def parse_instant(value: object) -> datetime | None:
    """Parse a time with an offset and return it in UTC, or None if the value is not one."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def format_instant(at: datetime) -> str:
    """Return a time as messages have it."""
    return at.isoformat().replace("+00:00", "Z")


# Spelled out, because `\s` differs between Python and ECMA-262.
_VISIBLE = r"[^\t\n\v\f\r\x1c-\x20\x85\xa0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
_YEAR = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_TIME = (
    rf"^{_YEAR}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
_COLLECTIONS = frozenset({"list", "dict", "tuple", "set", "frozenset"})
_NOT_SCHEMAS = frozenset({"default", "expected", "metadata", "serialization"})  # members that hold user values
_visible = re.compile(_VISIBLE)
_time = re.compile(_TIME)


def has_text(text: str) -> bool:
    """Return whether a text has more than blanks and invisible characters."""
    return _visible.search(text) is not None


def _require_text(text: str) -> str:
    if not has_text(text):
        raise ValueError("it must say something; found an empty or blank text")
    return text


def _convert_integral(value: Any) -> Any:
    """Return 2 for 2.0, which is the same number in JSON, and other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse_timestamp(value: Any) -> Any:
    """Parse RFC 3339 only; pydantic would accept other spellings."""
    if not isinstance(value, str):
        return value
    if not _time.fullmatch(value):
        raise ValueError("a time is written as in RFC 3339, with its offset: 2026-11-21T10:00:00Z")
    return datetime.fromisoformat(value)


Statement = Annotated[str, AfterValidator(_require_text), WithJsonSchema({"type": "string", "pattern": _VISIBLE})]
"""A text with more than blanks and invisible characters."""

Sha256Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in 64 lower-case hexadecimal digits."""

MAX_NAME_LENGTH = 200
"""The longest `Name`, in characters."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
"""A short identifier that people read: 1 to 200 characters."""

Address = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
"""A name of Temporal's, such as a workflow id: 1 to 1,000 characters."""

Integer = Annotated[int, BeforeValidator(_convert_integral)]
"""An integer; JSON does not distinguish 2 from 2.0."""

ByteCount = Annotated[int, Field(ge=0, le=2**53 - 1), BeforeValidator(_convert_integral)]
"""A length in bytes, at most 2**53 - 1, the largest integer that every JSON reader holds exactly."""

Place = Annotated[int, Field(ge=1), BeforeValidator(_convert_integral)]
"""A place in a list, from 1."""

Urgency = Annotated[int, Field(ge=1, le=5), BeforeValidator(_convert_integral)]
"""Which goes first, from 1 (first) to 5 (last)."""

Minutes = Annotated[int, Field(ge=1, le=366 * 24 * 60), BeforeValidator(_convert_integral)]
"""A duration in whole minutes, from one minute to one year."""

Timestamp = Annotated[
    AwareDatetime,
    BeforeValidator(_parse_timestamp),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _TIME}),
]
"""An RFC 3339 time with its UTC offset, precise to the microsecond."""


def _enable_fail_fast(schema: Any) -> None:
    """Make every collection in a core schema report only its first fault."""
    if isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str) and kind in _COLLECTIONS:
            schema["fail_fast"] = True
        for name, member in schema.items():
            if name not in _NOT_SCHEMAS:
                _enable_fail_fast(member)
    elif isinstance(schema, list | tuple):
        for member in schema:
            _enable_fail_fast(member)


class Record(BaseModel):
    """A frozen record that crosses the wire as JSON."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", ser_json_bytes="base64", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _enable_fail_fast(schema)
        return schema

    def to_json_object(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return self.model_dump(mode="json")


class CompactRecord(Record):
    """A record whose JSON omits members at their default, to keep workflow history small."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values = self.__dict__
        members: dict[str, Any] = handler(self)
        for name, default in _defaults(type(self)).items():
            if values[name] == default:
                members.pop(name, None)
        return members


@cache
def _defaults(kind: type[BaseModel]) -> dict[str, Any]:
    fields = kind.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}


_HEX = "[0-9a-f]"
_UUID4 = rf"^{_HEX}{{8}}-{_HEX}{{4}}-4{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}$"
# Version 00 ends after the flags, later ones may be longer (W3C Trace Context §3.2.4); ff is not a version.
_TRACE_IDS = rf"{_HEX}{{32}}-{_HEX}{{16}}-{_HEX}{{2}}"
_TRACE = rf"^(00-{_TRACE_IDS}|(0[1-9a-f]|[1-9a-e]{_HEX}|f[0-9a-e])-{_TRACE_IDS}(-[!-~]{{0,256}})?)$"
_TRACE_NOT_ZERO = rf"^{_HEX}{{2}}-0*[1-9a-f]{_HEX}*-0*[1-9a-f]{_HEX}*-"
_trace, _trace_not_zero = re.compile(_TRACE), re.compile(_TRACE_NOT_ZERO)


def _check_traceparent(text: str) -> str:
    if not (_trace.fullmatch(text) and _trace_not_zero.match(text)):
        raise ValueError("a traceparent is 00-<32 hex>-<16 hex>-<2 hex>, its ids not all zeros (W3C Trace Context)")
    return text


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise ValueError("null is not allowed; leave the member out")
    return value


def _refuse_duplicates(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise ValueError("a name appears twice; name each once")
    return names


NOT_NULL = BeforeValidator(_refuse_null)
"""Marks an optional member that may be absent but not null."""

SchemaVersion = Annotated[str, StringConstraints(pattern=r"^2\.(0|[1-9][0-9]{0,3})$"), Field(examples=["2.0"])]
"""The schema version of a message: major 2, any minor."""

Uuid4 = Annotated[str, StringConstraints(pattern=_UUID4), Field(examples=["7c9e6679-7425-40de-944b-e07fc1f90ae7"])]
"""A random UUID (RFC 9562) in lower case, so that equal ids are equal texts."""

Instant = Annotated[
    Timestamp,
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _TIME, "examples": ["2026-06-12T09:30:00Z"]}),
]
"""A `Timestamp` whose JSON Schema has an example."""

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$"), Field(examples=["sha256:" + "0f" * 32])]
"""`sha256:` and 64 hexadecimal digits."""

AgentVersion = Annotated[str, StringConstraints(pattern=VERSION, max_length=MAX_LENGTH), Field(examples=["2.1.0"])]
"""A semver.org version."""

VersionRange = Annotated[str, StringConstraints(pattern=RANGE, max_length=MAX_LENGTH), Field(examples=[">=1.5.0"])]
"""A version range in npm's syntax."""

KeyValue = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*: *[^ ]"),
    Field(examples=["maxResponseTokens:2000"]),
]
"""A constraint of the form `key:value`, for example `"maxResponseTokens:2000"`."""

Traceparent = Annotated[
    str,
    AfterValidator(_check_traceparent),
    WithJsonSchema(
        {
            "type": "string",
            "allOf": [{"pattern": _TRACE}, {"pattern": _TRACE_NOT_ZERO}],
            "examples": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
        }
    ),
]
"""A W3C trace context header."""

Signature = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*:[0-9A-Za-z+/_=-]+$"),
    Field(examples=["hmac-sha256:" + "0f" * 32]),
]
"""An algorithm and its signature: `"hmac-sha256:…"`."""

Receivers = Annotated[
    list[Name], Field(min_length=1, json_schema_extra={"uniqueItems": True}), AfterValidator(_refuse_duplicates)
]
"""Names of receivers, at least one, without duplicates."""

Positive = Place
"""An integer from 1."""

Count = ByteCount
"""An integer from 0 to 2**53 - 1, which every JSON reader holds exactly."""

Share = Annotated[float, Field(ge=0, le=1)]
"""A fraction from 0 to 1."""


class CamelRecord(Record):
    """A frozen, closed record: camelCase in JSON, snake_case in Python."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_alias=True, validate_by_name=True, serialize_by_alias=True
    )

    @classmethod
    def from_json_object(cls, members: Mapping[str, Any]) -> Self:
        """Parse a JSON object from the wire."""
        return cls.model_validate(members, by_alias=True, by_name=False)


class OpenRecord(CamelRecord):
    """A frozen record of the handoff protocol: camelCase on the wire, and open to members of later minors."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def from_json(cls, raw: bytes | str) -> Self:
        """Parse a JSON text from the wire."""
        return cls.from_json_object(loads_strict(raw))

    def to_json_object(self) -> dict[str, Any]:
        """Return the record as a JSON object: all members that were set, including unknown ones."""
        return self.model_dump(mode="json", exclude_unset=True)
