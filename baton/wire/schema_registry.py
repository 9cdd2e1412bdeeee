"""The registry of schema releases: what a new release may change, and how older messages are read.

A minor release only adds optional members, and that is proved and not guessed: the proof that every message
valid before is valid after is asked for when the release is registered (S3-14.3-a). Members go in a major release
only, after at least one release in which they were marked `deprecated`, and it comes with an upcaster (S3-14.3-b, c).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from baton.handoff.errors import SchemaChangeError
from baton.handoff.records import INITIAL
from baton.handoff.schema import RELEASED, handoff_schema, parsed
from baton.wire.schema_reading import Member, members

Covers = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""`covers(new, old)`: whether it is proved that whatever the old schema accepts the new one accepts as well."""
Upcaster = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Turns a message of the release before into one of this release; it changes a copy."""

_REMARKS = {"title", "description", "since", "deprecated", "default", "examples"}
_APART = _REMARKS | {"$ref", "properties", "required", "items", "additionalProperties"}


@dataclass(frozen=True)
class Release:
    """One released version of a schema.

    Attributes:
        version: `major.minor`.
        schema: Its JSON Schema.
        upcast: How a message of the release before becomes one of this; None if nothing has to change.
    """

    version: str
    schema: Mapping[str, Any]
    upcast: Upcaster | None = None


class SchemaRegistry:
    """Releases of one schema, oldest first; immutable, a further release makes a new registry.

    Example:
        >>> handoff_schemas().versions
        ('2.0', '2.1', '2.2')
    """

    def __init__(self, releases: Sequence[Release]) -> None:
        self._releases = {release.version: release for release in releases}
        self._last = releases[-1]

    @property
    def versions(self) -> tuple[str, ...]:
        """Every released version, oldest first."""
        return tuple(self._releases)

    @property
    def current(self) -> str:
        """The newest version."""
        return self._last.version

    def schema(self, version: str) -> Mapping[str, Any]:
        """Return the JSON Schema of a version.

        Raises:
            ValueError: No such version was released.
        """
        return self._release(version).schema

    def with_release(self, release: Release, covers: Covers) -> "SchemaRegistry":
        """Return the registry with one more release, if it keeps what its number promises.

        Args:
            release: The new release; its number is the next minor, or the next major with minor 0.
            covers: The proof, for example `baton.handoff.store_schema.covers`.

        Returns:
            A new registry.

        Raises:
            SchemaChangeError: The release breaks a promise; every finding is named.
        """
        (major, minor), (last_major, last_minor) = parsed(release.version), parsed(self.current)
        if (major, minor) == (last_major, last_minor + 1):
            findings = _minor_findings(self._last.schema, release.schema, covers)
        elif (major, minor) == (last_major + 1, 0):
            findings = _major_findings(self._last, release, covers)
        else:
            findings = [f"after {self.current} comes {last_major}.{last_minor + 1} or {last_major + 1}.0"]
        if findings:
            raise SchemaChangeError(release.version, findings)
        return SchemaRegistry([*self._releases.values(), release])

    def upcast(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return a message as the current release would have written it.

        It is for reading only, after the signature was verified over the message as received. A message of a
        newer minor comes back as it is.

        Args:
            message: A valid message of a released version, or of a newer minor of the current major.

        Returns:
            A new JSON object.

        Raises:
            ValueError: The message's version was never released.

        Example:
            >>> old = {"schemaVersion": "2.1", "taskDescription": "INITIAL", "parentHandoffId": None}
            >>> handoff_schemas().upcast(old)["initial"]
            True
        """
        version = str(message.get("schemaVersion"))
        if parsed(version) > parsed(self.current) and parsed(version)[0] == parsed(self.current)[0]:
            return dict(message)
        self._release(version)
        made = dict(message)
        for release in self._releases.values():
            if parsed(release.version) > parsed(version):
                made = release.upcast(made) if release.upcast else made
                made["schemaVersion"] = release.version
        return made

    def deprecated(self, message: Mapping[str, Any]) -> list[str]:
        """Return the deprecated members that a message still uses; what a sender should be told of in time.

        Args:
            message: A message as a JSON object.

        Returns:
            Paths such as `toolCallHistory/*/inputHash`, in the order of the schema.
        """
        marked = [member.path for member in members(self._last.schema) if member.node.get("deprecated")]
        return [path for path in marked if _uses(message, path.split("/"))]

    def _release(self, version: str) -> Release:
        if version not in self._releases:
            raise ValueError(f"schema {version[:20]!r} was never released; released are {', '.join(self.versions)}")
        return self._releases[version]


@cache
def handoff_schemas() -> SchemaRegistry:
    """Return the registry of the handoff message's schema; that each release is compatible is proved in the tests."""
    upcasters: dict[str, Upcaster] = {"2.2": _with_explicit_start}
    return SchemaRegistry([Release(one, handoff_schema(one), upcasters.get(one)) for one in RELEASED])


def closed(schema: Any) -> Any:
    """Return a schema that refuses the members it does not name; compatibility is proved between such ones.

    An open schema takes anything under a name that a later release defines, so the proof would always fail.
    Agents may send members of their own, but not under the names that Baton defines, in any release.

    Args:
        schema: A JSON Schema, or a part of one.

    Returns:
        A new schema.

    Example:
        >>> closed({"type": "object", "properties": {}, "additionalProperties": True})["additionalProperties"]
        False
    """
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if made.get("additionalProperties") is True and "properties" in made:
        made["additionalProperties"] = False
    return made


def _with_explicit_start(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in which the word INITIAL, until 2.1 the only sign of a first handoff, is a member (C-16)."""
    begins = message.get("taskDescription") == INITIAL and message.get("parentHandoffId") is None
    return {**message, "initial": True} if begins else dict(message)


def _uses(value: Any, path: list[str]) -> bool:
    """Return whether a value has the member at a path."""
    if not path:
        return True
    if path[0] == "*":
        return isinstance(value, list) and any(_uses(one, path[1:]) for one in value)
    return isinstance(value, Mapping) and path[0] in value and _uses(value[path[0]], path[1:])


def _minor_findings(old: Mapping[str, Any], new: Mapping[str, Any], covers: Covers) -> list[str]:
    """Return why a minor release is none; the proof decides, the comparison explains."""
    if covers(closed(new), closed(old)):
        return []
    was, now = _by_path(old), _by_path(new)
    gone = [f"{path!r} is gone; mark it deprecated, and remove it in the next major" for path in was if path not in now]
    required = [
        f"{path!r} is required; make it optional, or release a major"
        for path, member in now.items()
        if member.required and not (path in was and was[path].required)
    ]
    narrower = [f"{path!r} takes less than before; release a major" for path in _changed(old, new, covers)]
    return gone + required + narrower or ["it is not proved that every message valid before is valid now"]


def _major_findings(last: Release, new: Release, covers: Covers) -> list[str]:
    """Return why a major release may not come yet: what was not announced, or cannot be migrated."""
    was, now = _by_path(last.schema), _by_path(new.schema)
    announced = {path for path, member in was.items() if member.node.get("deprecated")}
    lost = [path for path in was if path not in now] + _changed(last.schema, new.schema, covers)
    findings = [
        f"{path!r} was not marked deprecated in {last.version}; announce its end one release before"
        for path in lost
        if announced.isdisjoint(_upwards(path)) and set(lost).isdisjoint(_upwards(path)[1:])
    ]
    if new.upcast is None:
        findings.append(f"there is no upcaster; say how a message of {last.version} becomes one of {new.version}")
    return findings


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], covers: Covers) -> list[str]:
    """Return the paths of members that are still there but take less, or something else, than before."""
    now = _by_path(new)
    pairs = [(one.path, _own(one), _own(now[one.path])) for one in members(old) if one.path in now]
    return [path for path, before, after in pairs if before != after and not covers(after, before)]


def _by_path(schema: Mapping[str, Any]) -> dict[str, Member]:
    return {member.path: member for member in members(schema)}


def _own(member: Member) -> dict[str, Any]:
    """Return what a schema says of a member itself: no remarks, and nothing of what is in it."""
    return {key: value for key, value in member.node.items() if key not in _APART}


def _upwards(path: str) -> list[str]:
    """Return a path and the paths of everything it is in, innermost first."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]
