"""JSON Schemas (draft 2020-12): made of the records, and numbered.

A version is `major.minor`. A minor only adds optional members, so a receiver reads its own major from two minors back
to one ahead; members that it does not know are kept.
"""

import inspect
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

MINORS_BACK, MINORS_AHEAD = 2, 1
"""A receiver reads messages of its own major, from so many minors back to so many ahead (EAAPL-MAG006 §11, §14.3)."""

_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def published_document(kind: type[BaseModel], name: str, version: str) -> dict[str, Any]:
    """Return the JSON Schema of a record, in which an optional member is absent and never null."""
    body = kind.model_json_schema(mode="validation", schema_generator=_WithoutNulls)
    return {"$schema": GenerateJsonSchema.schema_dialect, "$id": f"urn:baton:schema:{name}:{version}", **body}


def parse_version(version: str) -> tuple[int, int]:
    """Return the major and minor number of a schema version."""
    found = re.fullmatch(r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})", version)
    if not found:
        raise ValueError(f"{version[:20]!r} is not a schema version; write it as 2.0")
    return int(found[1]), int(found[2])


@lru_cache(maxsize=256)
def version_mismatch(version: str, own: str) -> str | None:
    """Return why a receiver does not read messages of a version, or None if it does."""
    (major, minor), (own_major, own_minor) = parse_version(version), parse_version(own)
    oldest, newest = max(0, own_minor - MINORS_BACK), own_minor + MINORS_AHEAD
    if major == own_major and oldest <= minor <= newest:
        return None
    return f"schema version {version!r} is not readable here; send {own_major}.{oldest} to {own_major}.{newest}"


class PublishedSchema(GenerateJsonSchema):
    """Writes schemas for readers: what the docstrings say of a record and its members, and no titles of members."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave members without titles; their names say it."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Describe a record and its members in the words of its docstring."""
        made = self.bare_schema(schema)
        kind = schema["cls"]
        doc = inspect.cleandoc(kind.__doc__ or "")  # Python 3.13 strips the indent, 3.11 does not
        made["description"] = doc.partition("\n")[0]
        for name, text in _ATTRIBUTE.findall(doc.partition("Attributes:\n")[2]):
            if name in kind.model_fields:
                made["properties"][_on_wire(name, kind.model_fields[name])]["description"] = " ".join(text.split())
        return made

    def bare_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return a record's schema before its docstring is looked at."""
        return super().model_schema(schema)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Describe an enum by the first line of its docstring."""
        summary = inspect.cleandoc(schema["cls"].__doc__ or "")
        return {**super().enum_schema(schema), "description": summary.partition("\n")[0]}


class _WithoutNulls(PublishedSchema):
    """Writes the schemas of messages between agents."""

    def bare_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return a record's schema without the nulls of optional members."""
        made = super().bare_schema(schema)
        for name, field in schema["cls"].model_fields.items():
            member = made["properties"][_on_wire(name, field)]
            if not field.is_required():
                if field.default is None:
                    del member["default"]
                if "anyOf" in member:
                    member |= next(choice for choice in member.pop("anyOf") if choice != {"type": "null"})
        return made


def _on_wire(name: str, field: FieldInfo) -> str:
    return field.alias or name


Path = Sequence[str | int]
"""Where a value stands: names of members and positions in lists, from the outside in."""


def format_pointer(path: Path) -> str:
    """Return a place as a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def parse_pointer(pointer: str) -> list[str]:
    """Return the names of members, and positions, in a JSON pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
