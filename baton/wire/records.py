"""What every wire record has in common: frozen, strict, closed; and the kinds of values they are made of.

A value here is accepted by the model exactly when the published JSON Schema (`baton.exchange.schemas`) accepts
it, so each kind carries its constraints in both languages.
"""

import re
from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global one by a slow one
from datetime import datetime
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import CoreSchema

# Spelled out, because `\s` means one set of characters in Python and another one in ECMA-262.
_SOMETHING = r"[^\t\n\v\f\r\x1c-\x20\x85\xa0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
_TIME = (
    r"^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
_COLLECTIONS = frozenset({"list", "dict", "tuple", "set", "frozenset"})
_NO_SCHEMAS = frozenset({"default", "expected", "metadata", "serialization"})  # members that hold a team's own values
_something = re.compile(_SOMETHING)
_time = re.compile(_TIME)


def says_something(text: str) -> bool:
    """Return whether a text says something: whether there is more to it than blanks and invisible characters."""
    return _something.search(text) is not None


def _says_something(text: str) -> str:
    """Refuse a text of blanks and invisible characters."""
    if not says_something(text):
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

Whole = Annotated[int, BeforeValidator(_integral)]
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
