"""A JSON Schema inside of another one: what it refers to in itself is found from its new place as well."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import unquote

MOST_SPELLED_OUT = 1_000
"""How many definitions `spelled_out` repeats in full; each may be wanted many times by one that is itself."""

_DEFINITIONS = ("$defs", "definitions")
_OF_A_DOCUMENT = ("$schema", "$id", *_DEFINITIONS)
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")  # so that no reference to it has to be escaped
_DATA = ("const", "enum", "default", "examples")
_BY_NAME = ("properties", "patternProperties", "dependentSchemas", *_DEFINITIONS)


def embedded(schema: Mapping[str, Any], taken: Iterable[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a schema without what only a whole document has, and the definitions that it refers to."""
    moving = _Moving(schema, taken)
    return moving.whole(), moving.definitions()


class _Moving:
    """One schema on its way into another."""

    def __init__(self, schema: Mapping[str, Any], taken: Iterable[str]) -> None:
        self._schema = schema
        self._itself = str(schema.get("$id", "")).removesuffix("#")
        self._taken = set(taken)
        self._names: dict[str, str] = {}  # of definitions, by the pointer to what they are of
        self._wanted: list[str] = []
        for kind in _DEFINITIONS:
            for name in schema.get(kind, {}):
                self._name(f"/{kind}/{name.replace('~', '~0').replace('/', '~1')}", name)

    def whole(self) -> dict[str, Any]:
        """Return the schema itself, with references as they are in its new place."""
        return {name: self._member(name, one) for name, one in self._schema.items() if name not in _OF_A_DOCUMENT}

    def definitions(self) -> dict[str, Any]:
        """Return the definitions; moving one may find that another is needed."""
        found: dict[str, Any] = {}
        for pointer in self._wanted:
            found[self._names[pointer]] = self._moved(self._at(pointer)) if pointer else self.whole()
        return found

    def _moved(self, value: Any) -> Any:
        """Return a subschema, or a list of them, with references as they are in its new place."""
        if isinstance(value, list):
            return [self._moved(one) for one in value]
        if not isinstance(value, Mapping) or "$id" in value:
            return deepcopy(value)
        return {name: self._member(name, one) for name, one in value.items()}

    def _member(self, name: str, value: Any) -> Any:
        """Return what a keyword of a schema has."""
        if name in ("$ref", "$dynamicRef") and isinstance(value, str):
            return self._reference(value)
        if name in _BY_NAME and isinstance(value, Mapping):
            return {key: self._moved(one) for key, one in value.items()}
        return deepcopy(value) if name in _DATA else self._moved(value)

    def _reference(self, given: str) -> str:
        """Return a reference to what the given one refers to; one that leads nowhere in the schema is left alone."""
        document, _, fragment = given.partition("#")
        pointer = unquote(fragment)
        if document not in ("", self._itself) or (pointer and self._at(pointer) is None):
            return given if document != self._itself else f"#{fragment}"
        last = pointer.rpartition("/")[2]
        return f"#/$defs/{self._name(pointer, last or str(self._schema.get('title') or 'output'))}"

    def _name(self, pointer: str, wish: str) -> str:
        """Return the name of the definition for what stands at a pointer."""
        if pointer not in self._names:
            plain = _NOT_IN_A_NAME.sub("_", wish)
            name, number = plain, 2
            while name in self._taken:
                name, number = f"{plain}_{number}", number + 1
            self._taken.add(name)
            self._names[pointer] = name
            self._wanted.append(pointer)
        return self._names[pointer]

    def _at(self, pointer: str) -> Any:
        """Return what stands at a JSON pointer, or None."""
        if not pointer.startswith("/"):
            return None
        found: Any = self._schema
        for part in pointer[1:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, Mapping) and name in found:
                found = found[name]
            else:
                return None
        return found


def spelled_out(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references, for a framework that does not follow all of them."""
    definitions = schema.get("$defs", {})
    leads = {name: {*_references(one)} for name, one in definitions.items()}
    while (further := {name: to.union(*(leads.get(one, ()) for one in to)) for name, to in leads.items()}) != leads:
        leads = further
    recursive = {name for name, to in leads.items() if name in to}
    seen: Counter[str] = Counter()

    def spelled(value: Any) -> Any:
        if isinstance(value, list):
            return [spelled(one) for one in value]
        if not isinstance(value, Mapping):
            return value
        name = str(value.get("$ref", "")).removeprefix("#/$defs/")
        if name not in definitions:
            return {key: spelled(one) for key, one in value.items() if key != "$defs" or value is not schema}
        beside = {key: spelled(one) for key, one in value.items() if key not in ("$ref", "$defs")}
        target = definitions[name]
        if seen[name] and (name in recursive or seen.total() >= MOST_SPELLED_OUT):
            return {"description": f"A {name!r} again.", **{k: v for k, v in target.items() if k == "type"}, **beside}
        seen[name] += 1
        return {"title": name, **beside, **spelled(target)}

    made: dict[str, Any] = spelled(schema)
    return made


def _references(value: Any) -> Iterable[str]:
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(value, list):
        for one in value:
            yield from _references(one)
    elif isinstance(value, Mapping):
        if str(given := value.get("$ref", "")).startswith("#/$defs/"):
            yield given.removeprefix("#/$defs/")
        for one in value.values():
            yield from _references(one)
