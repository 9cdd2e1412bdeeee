"""What a new version of a published schema may change, proved and not guessed (EAAPL-MAG006 §14.3).

A minor version accepts whatever the one before accepted. A major version removes only members that were marked
`deprecated` in the version before, and comes with a migration.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
from jsonschema_rs.canonical import Containment

from baton.wire.schemas import parse_version


def covers(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether it is proved that whatever the old schema accepts the new one accepts as well."""
    answer = jsonschema_rs.canonicalize(_closed(new)).covers(jsonschema_rs.canonicalize(_closed(old)))
    return answer is Containment.YES


def faults(
    version: str, new: Mapping[str, Any], last: str, old: Mapping[str, Any], *, migrates: bool = False
) -> list[str]:
    """Return what a new version changes and its number does not allow: the code of the rule, and the member."""
    (major, minor), (last_major, last_minor) = parse_version(version), parse_version(last)
    was, now = dict(_members(old)), dict(_members(new))
    gone = [path for path in was if path not in now]
    narrower = [path for path in was if path in now and was[path] != now[path] and not covers(now[path], was[path])]
    if (major, minor) == (last_major, last_minor + 1):
        required = sorted(_required(new) - _required(old))
        found = [f"gone: {one}" for one in gone] + [f"required: {one}" for one in required]
        found += [f"narrower: {one}" for one in narrower]
        return found or ([] if covers(new, old) else ["not proved"])
    if (major, minor) == (last_major + 1, 0):
        announced = {path for path, node in was.items() if node.get("deprecated")}
        ended = [path for path in (*gone, *narrower) if not any(_within(path, one) for one in announced)]
        found = [f"not announced: {one}" for one in ended]
        return found if migrates else [*found, "no migration"]
    return ["number"]


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}/")


def _members(schema: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every member's path and its own rules; what is in it is a member of its own."""
    for path, node, _ in _walk(schema):
        apart = {"title", "description", "default", "examples", "$ref", "properties", "required", "items"}
        yield path, {key: value for key, value in node.items() if key not in apart | {"additionalProperties"}}


def _required(schema: Mapping[str, Any]) -> set[str]:
    return {path for path, _, required in _walk(schema) if required}


def _walk(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    definitions = schema.get("$defs", {})

    def walk(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
        inner = [(name, one, name in node.get("required", ())) for name, one in node.get("properties", {}).items()]
        if isinstance(items := node.get("items"), Mapping):
            inner.append(("*", items, False))
        for name, one, required in inner:
            whole = {**definitions.get(one.get("$ref", "").removeprefix("#/$defs/"), {}), **one}
            yield f"{path}{name}", whole, required
            yield from walk(whole, f"{path}{name}/")

    yield from walk(schema, "")


def _closed(schema: Any) -> Any:
    """Return a schema that refuses members it does not name: an open one takes anything under a later name."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if made.get("additionalProperties") is True and "properties" in made:
        made["additionalProperties"] = False
    return made
