"""What a new version of a published schema may change, as a proof (EAAPL-MAG006 §14.3).

A minor version accepts whatever the one before accepted. A major version removes only members that were marked
`deprecated` in the version before, and comes with a migration.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
from jsonschema_rs.canonical import Containment

from baton.wire.schemas import parse_version


def covers(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether the new schema provably accepts everything that the old one accepts."""
    answer = jsonschema_rs.canonicalize(_closed(new)).covers(jsonschema_rs.canonicalize(_closed(old)))
    return answer is Containment.YES


def faults(
    version: str, new: Mapping[str, Any], last: str, old: Mapping[str, Any], *, migrates: bool = False
) -> list[str]:
    """Return the changes that a new version's number does not allow: the code of the rule, and the member."""
    (major, minor), (last_major, last_minor) = parse_version(version), parse_version(last)
    was, now = dict(_members(old)), dict(_members(new))
    gone = [path for path in was if path not in now]
    narrower = [path for path in was if path in now and was[path] != now[path] and not covers(now[path], was[path])]
    if (major, minor) == (last_major, last_minor + 1):
        required = sorted(_required(new) - _required(old))
        faults = [f"gone: {path}" for path in gone] + [f"required: {name}" for name in required]
        faults += [f"narrower: {path}" for path in narrower]
        return faults or ([] if covers(new, old) else ["not proved"])
    if (major, minor) == (last_major + 1, 0):
        announced = {path for path, node in was.items() if node.get("deprecated")}
        ended = [path for path in (*gone, *narrower) if not any(_within(path, prefix) for prefix in announced)]
        faults = [f"not announced: {path}" for path in ended]
        return faults if migrates else [*faults, "no migration"]
    return ["number"]


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}/")


def _members(schema: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every member's path and rules, nested members included."""
    for path, node, _ in _walk(schema):
        apart = {"title", "description", "default", "examples", "$ref", "properties", "required", "items"}
        yield path, {key: value for key, value in node.items() if key not in apart | {"additionalProperties"}}


def _required(schema: Mapping[str, Any]) -> set[str]:
    return {path for path, _, required in _walk(schema) if required}


def _walk(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    definitions = schema.get("$defs", {})

    def walk(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
        inner = [
            (name, member, name in node.get("required", ())) for name, member in node.get("properties", {}).items()
        ]
        if isinstance(items := node.get("items"), Mapping):
            inner.append(("*", items, False))
        for name, member, required in inner:
            resolved = {**definitions.get(member.get("$ref", "").removeprefix("#/$defs/"), {}), **member}
            yield f"{path}{name}", resolved, required
            yield from walk(resolved, f"{path}{name}/")

    yield from walk(schema, "")


def _closed(schema: Any) -> Any:
    """Return a schema that refuses unknown members, because an open one accepts anything under a later name."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if closed.get("additionalProperties") is True and "properties" in closed:
        closed["additionalProperties"] = False
    return closed
