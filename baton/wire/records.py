"""What every wire record has in common, and the kinds of values in one, alike in Python and in JSON Schema.

A format such as `uuid` or `date-time` is only a remark in draft 2020-12, so every kind publishes a pattern. The
patterns use nothing that a linear-time matcher lacks: a hostile text cannot slow a receiver down.

Versions of agents follow semver.org, ranges of them the syntax that npm made common: `>=1.5.0`, `^1.4`, `~2.1.0`,
`1.x`, `>=1.2 <3`, `1.0 - 1.9`, alternatives by `||`. A comma between two comparisons means the same as a blank.
"""

import re
from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global one by a slow one
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache, lru_cache
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
from semantic_version import NpmSpec, Version

from baton.wire.json_values import loads_strict

# Spelled out, because `\s` means one set of characters in Python and another one in ECMA-262.
_SOMETHING = r"[^\t\n\v\f\r\x1c-\x20\x85\xa0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
_YEAR = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_TIME = (
    rf"^{_YEAR}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
_COLLECTIONS = frozenset({"list", "dict", "tuple", "set", "frozenset"})
_NO_SCHEMAS = frozenset({"default", "expected", "metadata", "serialization"})  # members that hold a team's own values
_something = re.compile(_SOMETHING)
_time = re.compile(_TIME)


def has_text(text: str) -> bool:
    """Return whether a text says something: whether there is more to it than blanks and invisible characters."""
    return _something.search(text) is not None


def _says_something(text: str) -> str:
    """Refuse a text of blanks and invisible characters."""
    if not has_text(text):
        raise ValueError("it must say something; found an empty or blank text")
    return text


def _integral(value: Any) -> Any:
    """Return 2 for 2.0, which is the same number in JSON; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _rfc3339(value: Any) -> Any:
    """Read a time as RFC 3339 spells it, and no other spelling that pydantic knows; not a text: as it is."""
    if not isinstance(value, str):
        return value
    if not _time.fullmatch(value):
        raise ValueError("a time is written as in RFC 3339, with its offset: 2026-11-21T10:00:00Z")
    return datetime.fromisoformat(value)


Statement = Annotated[str, AfterValidator(_says_something), WithJsonSchema({"type": "string", "pattern": _SOMETHING})]
"""A text that says something: not empty, and not of blanks and invisible characters only."""

Sha256Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal, whole: 64 digits. Only display shortens it."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""A short identifier that people read: 1 to 200 characters."""

Integer = Annotated[int, BeforeValidator(_integral)]
"""A whole number; JSON knows no difference between 2 and 2.0."""

ByteCount = Annotated[int, Field(ge=0, le=2**53 - 1), BeforeValidator(_integral)]
"""A length in bytes, at most 2**53 - 1: the largest whole number that every JSON reader takes exactly."""

Minutes = Annotated[int, Field(ge=1, le=366 * 24 * 60), BeforeValidator(_integral)]
"""A length of time in whole minutes: at least one, at most a year."""

Timestamp = Annotated[
    AwareDatetime,
    BeforeValidator(_rfc3339),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _TIME}),
]
"""A time with its offset from UTC, on the wire as in RFC 3339; kept to the microsecond."""


def _stop_at_first_fault(schema: Any) -> None:
    """Have every list and object in a core schema report its first fault only."""
    if isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str) and kind in _COLLECTIONS:
            schema["fail_fast"] = True
        for name, inner in schema.items():
            if name not in _NO_SCHEMAS:
                _stop_at_first_fault(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            _stop_at_first_fault(inner)


class Record(BaseModel):
    """A frozen record that crosses the wire as JSON."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", ser_json_bytes="base64", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema by which a record is read."""
        schema = handler(source)
        _stop_at_first_fault(schema)
        return schema


class CompactRecord(Record):
    """A record whose JSON leaves out members at their default, to keep workflow history small."""

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
    """Return the default of each member that has one; made once, because every record on the wire asks for it."""
    fields = kind.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}


_NUMBER = "(0|[1-9][0-9]{0,8})"
_PART = "(0|[1-9][0-9]{0,8}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_PRERELEASE = rf"(-{_PART}(\.{_PART})*)"
_BUILD = r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)"
_BARE = rf"{_NUMBER}(\.{_NUMBER}(\.{_NUMBER}{_PRERELEASE}?|\.[xX*])?|\.[xX*](\.[xX*])?)?"
_ANY = r"((>=|=) *)?[xX*](\.[xX*]){0,2}"
_BLOCK = rf"({_ANY}|((>=|<=|>|<|=|\^|~) *)?{_BARE})"
_GROUP = rf"({_BARE} - {_BARE}|{_BLOCK}(( *, *| +){_BLOCK})*)"

VERSION = rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}{_PRERELEASE}?{_BUILD}?$"
"""The pattern of a version, for JSON Schema and Python alike."""
RANGE = rf"^{_GROUP}( *\|\| *{_GROUP})*$"
"""The pattern of a range of versions, for JSON Schema and Python alike."""
MAX_LENGTH = 200
"""How many characters a version or a range may have."""

_version, _range = re.compile(VERSION), re.compile(RANGE)
_BLANKS_AFTER_SIGN = re.compile(r"([<>=^~]) +")


@lru_cache(maxsize=1024)
def satisfies(version: str, wanted: str) -> bool:
    """Return whether a version lies in a range."""
    return _parsed_version(version) in _parsed_range(wanted)


def newest_first(versions: Iterable[str]) -> list[str]:
    """Return versions in order of their precedence, the newest first."""
    return sorted(versions, key=_parsed_version, reverse=True)


@lru_cache(maxsize=1024)
def _parsed_version(text: str) -> Version:
    if len(text) > MAX_LENGTH or not _version.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not a version; write it as 1.6.0 or 2.0.0-rc.1 (semver.org)")
    return Version(text)


@lru_cache(maxsize=1024)
def _parsed_range(text: str) -> NpmSpec:
    if len(text) > MAX_LENGTH or not _range.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not a range of versions; write it as >=1.5.0, ^1.4 or >=1.2 <3")
    return NpmSpec(" ".join(_BLANKS_AFTER_SIGN.sub(r"\1", text.replace(",", " ")).split()))


_HEX = "[0-9a-f]"
_UUID4 = rf"^{_HEX}{{8}}-{_HEX}{{4}}-4{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}$"
# Version 00 ends after the flags, later ones may be longer (W3C Trace Context §3.2.4); ff is not a version.
_TRACE_IDS = rf"{_HEX}{{32}}-{_HEX}{{16}}-{_HEX}{{2}}"
_TRACE = rf"^(00-{_TRACE_IDS}|(0[1-9a-f]|[1-9a-e]{_HEX}|f[0-9a-e])-{_TRACE_IDS}(-[!-~]{{0,256}})?)$"
_TRACE_NOT_ZERO = rf"^{_HEX}{{2}}-0*[1-9a-f]{_HEX}*-0*[1-9a-f]{_HEX}*-"
_trace, _trace_not_zero = re.compile(_TRACE), re.compile(_TRACE_NOT_ZERO)


def _traceparent(text: str) -> str:
    """Refuse what is not a traceparent, and one whose trace id or parent id is all zeros."""
    if not (_trace.fullmatch(text) and _trace_not_zero.match(text)):
        raise ValueError("a traceparent is 00-<32 hex>-<16 hex>-<2 hex>, its ids not all zeros (W3C Trace Context)")
    return text


def _refuse_null(value: Any) -> Any:
    """Refuse null."""
    if value is None:
        raise ValueError("null is not allowed; leave the member out")
    return value


def _each_once(names: list[str]) -> list[str]:
    """Refuse a list in which a name appears twice."""
    if len(set(names)) != len(names):
        raise ValueError("a name appears twice; name each once")
    return names


NOT_NULL = BeforeValidator(_refuse_null)
"""Marks an optional member: it has one way of not being there, and that is absence."""

SchemaVersion = Annotated[str, StringConstraints(pattern=r"^2\.(0|[1-9][0-9]{0,3})$"), Field(examples=["2.0"])]
"""The version of the schema that a message follows: this major, any minor."""

Uuid4 = Annotated[str, StringConstraints(pattern=_UUID4), Field(examples=["7c9e6679-7425-40de-944b-e07fc1f90ae7"])]
"""A random UUID in lower case, as RFC 9562 writes it, so that equal ids are equal texts."""

Instant = Annotated[
    Timestamp,
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _TIME, "examples": ["2026-06-12T09:30:00Z"]}),
]
"""A time with its offset from UTC, as in RFC 3339; kept to the microsecond."""

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$"), Field(examples=["sha256:" + "0f" * 32])]
"""`sha256:` and 64 hexadecimal digits."""

AgentVersion = Annotated[str, StringConstraints(pattern=VERSION, max_length=MAX_LENGTH), Field(examples=["2.1.0"])]
"""A version by semver.org."""

VersionRange = Annotated[str, StringConstraints(pattern=RANGE, max_length=MAX_LENGTH), Field(examples=[">=1.5.0"])]
"""A range of versions, as `baton.wire.records.satisfies` reads it."""

KeyValue = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*: *[^ ]"),
    Field(examples=["maxResponseTokens:2000"]),
]
"""A constraint of the form `key:value`, for example `"maxResponseTokens:2000"`."""

Traceparent = Annotated[
    str,
    AfterValidator(_traceparent),
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
"""An algorithm and what it made of the message: `"hmac-sha256:…"`."""

Receivers = Annotated[
    list[Name], Field(min_length=1, json_schema_extra={"uniqueItems": True}), AfterValidator(_each_once)
]
"""Names of receivers, at least one and each once."""

Count = ByteCount
"""How many: a whole number from 0, exact for every reader of JSON, as a length in bytes is."""

Share = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""


class CamelRecord(Record):
    """A frozen, closed record: camelCase in JSON, snake_case in Python."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_alias=True, validate_by_name=True, serialize_by_alias=True
    )

    @classmethod
    def from_json_object(cls, members: Mapping[str, Any]) -> Self:
        """Return the record that a JSON object from the wire describes."""
        return cls.model_validate(members, by_alias=True, by_name=False)


class OpenRecord(CamelRecord):
    """A frozen record of the handoff protocol: camelCase on the wire, and open to what later minors add."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def from_json(cls, raw: bytes | str) -> Self:
        """Return the record that a JSON text from the wire describes."""
        return cls.from_json_object(loads_strict(raw))

    def to_json_object(self) -> dict[str, Any]:
        """Return the record as a JSON object: every member that was set, the unknown ones included."""
        return self.model_dump(mode="json", exclude_unset=True)
