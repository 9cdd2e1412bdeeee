"""How a record becomes the JSON Schema (draft 2020-12) of one of its released versions.

The records of this release are the newest version; a member that came later than a version is left out of its
document, so every document that was ever published can be made again, and the tests see that none has changed.
"""

import inspect
import json
import re
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from baton.handoff.records import Since

_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_REFERENCE = re.compile(r'"\$ref": "#/\$defs/(\w+)"')


def released_document(kind: type[BaseModel], name: str, version: str) -> dict[str, Any]:
    """Return the JSON Schema of a record as of a version.

    Args:
        kind: The record; members that came later than `major.0` are marked with `Since`.
        name: The name in the document's `$id`.
        version: The version, of the record's own major.

    Returns:
        A JSON object with its `$schema` and `$id`; it refers to nothing outside itself.

    Example:
        >>> from baton.handoff.records import Handoff
        >>> first, second = (released_document(Handoff, "handoff", version) for version in ("2.1", "2.2"))
        >>> "initial" in first["properties"], "initial" in second["properties"]
        (False, True)
    """
    major, minor = parsed(version)
    body = kind.model_json_schema(mode="validation", schema_generator=_published(major))
    made = _as_of(body, minor)
    while unused := made.get("$defs", {}).keys() - set(_REFERENCE.findall(json.dumps(made))):
        for one in unused:
            del made["$defs"][one]
    return {"$schema": GenerateJsonSchema.schema_dialect, "$id": f"urn:baton:schema:{name}:{version}", **made}


def parsed(version: str) -> tuple[int, int]:
    """Return the major and minor number of a schema version.

    Args:
        version: `major.minor`.

    Returns:
        Both numbers.

    Raises:
        ValueError: It is written otherwise.

    Example:
        >>> parsed("2.1")
        (2, 1)
    """
    found = re.fullmatch(r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})", version)
    if not found:
        raise ValueError(f"{version[:20]!r} is no schema version; write it as 2.0")
    return int(found[1]), int(found[2])


def minor_of(field: FieldInfo) -> int:
    """Return the minor version with which a member came.

    Example:
        >>> from baton.handoff.records import Handoff
        >>> minor_of(Handoff.model_fields["task_id"]), minor_of(Handoff.model_fields["initial"])
        (0, 2)
    """
    return next((mark.minor for mark in field.metadata if isinstance(mark, Since)), 0)


def on_wire(name: str, field: FieldInfo) -> str:
    """Return a member's name on the wire.

    Example:
        >>> from baton.handoff.records import Handoff
        >>> on_wire("task_id", Handoff.model_fields["task_id"])
        'taskId'
    """
    return field.alias or name


def _as_of(node: Any, minor: int) -> Any:
    """Return a schema without the members that came after a minor version."""
    if isinstance(node, list):
        return [_as_of(one, minor) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: _as_of(value, minor) for key, value in node.items()}
    if isinstance(members := made.get("properties"), dict):
        made["properties"] = {
            name: member for name, member in members.items() if parsed(member.get("since", "0.0"))[1] <= minor
        }
    return made


class Published(GenerateJsonSchema):
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
                made["properties"][on_wire(name, kind.model_fields[name])]["description"] = " ".join(text.split())
        return made

    def bare_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return a record's schema before its docstring is looked at."""
        return super().model_schema(schema)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Describe an enum by the first line of its docstring."""
        told = inspect.cleandoc(schema["cls"].__doc__ or "")
        return {**super().enum_schema(schema), "description": told.partition("\n")[0]}


def _published(major: int) -> type[GenerateJsonSchema]:
    """Return a writer of schemas that say since when a member is there; an optional one is absent, and not null."""

    class Versioned(Published):
        """Writes the schemas of one major version."""

        def bare_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
            """Return a record's schema without the nulls of optional members."""
            made = super().bare_schema(schema)
            for name, field in schema["cls"].model_fields.items():
                member = made["properties"][on_wire(name, field)]
                if not field.is_required():
                    if field.default is None:
                        del member["default"]
                    if "anyOf" in member:
                        member |= next(choice for choice in member.pop("anyOf") if choice != {"type": "null"})
                if minor_of(field):
                    member["since"] = f"{major}.{minor_of(field)}"
            return made

    return Versioned
