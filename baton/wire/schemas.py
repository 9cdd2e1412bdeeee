"""Versioned JSON Schemas (draft 2020-12), generated from the records.

A version is `major.minor`. A minor only adds optional members, so a receiver reads its own major from two minors back
to one ahead. Unknown members are kept.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def published_document(kind: type[BaseModel], name: str, version: str) -> dict[str, Any]:
    """Return the JSON Schema of a record; an optional member may be absent but not null."""
    body = kind.model_json_schema(mode="validation", schema_generator=_WithoutNulls)
    return {"$schema": GenerateJsonSchema.schema_dialect, "$id": f"urn:baton:schema:{name}:{version}", **body}


def parse_version(version: str) -> tuple[int, int]:
    """Return the major and minor number."""
    match = re.fullmatch(r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})", version)
    if not match:
        raise ValueError(f"{version[:20]!r} is not a schema version; write it as 2.0")
    return int(match[1]), int(match[2])


@lru_cache(maxsize=256)
def version_mismatch(version: str, own: str) -> str | None:
    """Return why a receiver cannot read messages of a version, or None if it can (EAAPL-MAG006 §11, §14.3)."""
    (major, _), (own_major, _) = parse_version(version), parse_version(own)
    if major == own_major:  # a minor only adds optional members
        return None
    return f"schema version {version!r} is not readable here; send {own_major}.0 or a later minor"


class PublishedSchema(GenerateJsonSchema):
    """Generates schemas with descriptions from the records' docstrings and without titles of members."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave members without titles."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Describe a record and its members by its docstring."""
        document = self.bare_schema(schema)
        kind = schema["cls"]
        doc = inspect.cleandoc(kind.__doc__ or "")  # Python 3.13 strips the indent, 3.11 does not
        document["description"] = doc.partition("\n")[0]
        for name, text in _ATTRIBUTE.findall(doc.partition("Attributes:\n")[2]):
            if name in kind.model_fields:
                alias = _wire_name(name, kind.model_fields[name])
                document["properties"][alias]["description"] = " ".join(text.split())
        return document

    def bare_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return a record's schema without descriptions."""
        return super().model_schema(schema)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Describe an enum by the first line of its docstring."""
        summary = inspect.cleandoc(schema["cls"].__doc__ or "")
        return {**super().enum_schema(schema), "description": summary.partition("\n")[0]}


class _WithoutNulls(PublishedSchema):
    """Generates the schemas of messages between agents, without nulls for optional members."""

    def bare_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return a record's schema without descriptions and nulls."""
        document = super().bare_schema(schema)
        for name, field in schema["cls"].model_fields.items():
            member = document["properties"][_wire_name(name, field)]
            if not field.is_required():
                if field.default is None:
                    del member["default"]
                if "anyOf" in member:
                    member |= next(choice for choice in member.pop("anyOf") if choice != {"type": "null"})
        return document


def _wire_name(name: str, field: FieldInfo) -> str:
    return field.alias or name


Path = Sequence[str | int]
"""The location of a value: member names and list indexes, outermost first."""


def format_pointer(path: Path) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def parse_pointer(pointer: str) -> list[str]:
    """Return the member names and list indexes of a JSON pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


MISSING = object()
"""What `find_at` returns where there is nothing."""
_INDEX = re.compile("0|[1-9][0-9]{0,8}")


def find_at(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer names; `MISSING` if there is nothing.

    Example:
        >>> find_at({"items": [{"id": 7}]}, "/items/0/id"), find_at([], "/0") is MISSING
        (7, True)
    """
    if pointer[:1] not in ("", "/"):
        return MISSING
    for name in parse_pointer(pointer):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return MISSING
    return value
