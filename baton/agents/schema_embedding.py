"""JSON Schemas without references: models and frameworks do not follow all of them, and one may stand in another."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from baton.wire.schemas import parse_pointer

MOST_SPELLED_OUT = 300
"""How many references `spelled_out` repeats in full; each may lead to many others."""

_OF_A_DOCUMENT = ("$schema", "$id", "$defs", "definitions")
_DATA = ("const", "enum", "default", "examples")
_BY_NAME = ("properties", "patternProperties", "dependentSchemas")


def spelled_out(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with what it refers to in itself in the place of each reference.

    What leads back to itself is repeated twice and then named; a reference that leads elsewhere stays.
    """
    itself = str(schema.get("$id", "")).removesuffix("#")
    repeated = 0

    def member(name: str, value: Any, inside: tuple[str, ...]) -> Any:
        if name in _BY_NAME and isinstance(value, Mapping):
            return {key: spelled(one, inside) for key, one in value.items()}
        return value if name in _DATA else spelled(value, inside)

    def spelled(value: Any, inside: tuple[str, ...]) -> Any:
        nonlocal repeated
        if isinstance(value, list):
            return [spelled(one, inside) for one in value]
        if not isinstance(value, Mapping) or ("$id" in value and value is not schema):
            return value
        beside = {name: member(name, one, inside) for name, one in value.items() if name not in _OF_A_DOCUMENT}
        document, _, fragment = str(beside.get("$ref", "elsewhere")).partition("#")
        pointer = unquote(fragment)
        target = _at(schema, pointer) if document in ("", itself) else None
        if target is None:
            return beside
        del beside["$ref"]
        name = pointer.rpartition("/")[2] or str(schema.get("title", "output"))
        if inside.count(pointer) > 1 or repeated >= MOST_SPELLED_OUT:
            kind = {"type": target["type"]} if isinstance(target, Mapping) and "type" in target else {}
            return {"description": f"A {name!r} again.", **kind, **beside}
        repeated += 1
        made = spelled(target, (*inside, pointer))
        return {"title": name, **beside, **made} if isinstance(made, dict) else made

    whole: dict[str, Any] = spelled(schema, ())
    return whole


def _at(schema: Mapping[str, Any], pointer: str) -> Any:
    """Return what stands at a JSON pointer, or None."""
    found: Any = schema if pointer[:1] in ("", "/") else None
    for name in parse_pointer(pointer):
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            return None
    return found
