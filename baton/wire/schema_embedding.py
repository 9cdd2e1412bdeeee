"""Inlines references in JSON Schemas: not all models and frameworks follow them, and schemas are embedded in others."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from baton.wire.schemas import MISSING, find_at

MAX_INLINED = 300
"""How many references `inline_refs` replaces; each may lead to many others."""

_DOCUMENT_KEYWORDS = ("$schema", "$id", "$defs", "definitions")
_DATA_KEYWORDS = ("const", "enum", "default", "examples")
_NAME_KEYWORDS = ("properties", "patternProperties", "dependentSchemas")


def inline_refs(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its internal references replaced by their targets.

    What is said beside a reference, such as a description, goes before what its target says. Recursive references are
    expanded twice and then replaced by a description; external references stay.
    """
    own_id = str(schema.get("$id", "")).removesuffix("#")
    inlined = 0

    def expand_member(name: str, value: Any, parents: tuple[str, ...]) -> Any:
        if name in _NAME_KEYWORDS and isinstance(value, Mapping):
            return {key: expand(member, parents) for key, member in value.items()}
        return value if name in _DATA_KEYWORDS else expand(value, parents)

    def expand(value: Any, parents: tuple[str, ...]) -> Any:
        nonlocal inlined
        if isinstance(value, list):
            return [expand(item, parents) for item in value]
        if not isinstance(value, Mapping) or ("$id" in value and value is not schema):
            return value
        siblings = {
            name: expand_member(name, member, parents)
            for name, member in value.items()
            if name not in _DOCUMENT_KEYWORDS
        }
        document, _, fragment = str(siblings.get("$ref", "elsewhere")).partition("#")
        pointer = unquote(fragment)
        target = find_at(schema, pointer) if document in ("", own_id) else MISSING
        if target is MISSING:
            return siblings
        del siblings["$ref"]
        name = pointer.rpartition("/")[2] or str(schema.get("title", "output"))
        if parents.count(pointer) > 1 or inlined >= MAX_INLINED:
            kind = {"type": target["type"]} if isinstance(target, Mapping) and "type" in target else {}
            return {"description": f"A {name!r} again.", **kind, **siblings}
        inlined += 1
        expanded = expand(target, (*parents, pointer))
        return {"title": name, **expanded, **siblings} if isinstance(expanded, dict) else expanded

    result: dict[str, Any] = expand(schema, ())
    return result
