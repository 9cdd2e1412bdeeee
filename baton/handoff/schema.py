"""The published JSON Schemas (draft 2020-12) of the handoff message, one for each version that was released.

A document is made of the records themselves and accepts exactly what they accept, given a validator that also
checks formats. Objects are open: a member that a version does not know is kept and not judged, except that the
names which a later minor defined mean there what they mean now. The documents themselves lie in `docs/schemas`.
"""

import copy
import json
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from baton.handoff.records import Handoff
from baton.wire.schema_documents import minor_of, on_wire, parsed, released_document

__all__ = [
    "AHEAD",
    "BACK",
    "CURRENT",
    "RELEASED",
    "handoff_schema",
    "least_version",
    "parsed",
    "published_text",
    "unreadable",
]

RELEASED = ("2.0", "2.1", "2.2")
"""Every version that was released, oldest first. 2.1 added keys and addresses, 2.2 what begins and links a chain."""
CURRENT = RELEASED[-1]
"""The version that this release of Baton speaks."""
BACK, AHEAD = 2, 1
"""A receiver reads messages of its own major, from so many minors back to so many ahead (S3-11-b)."""


def handoff_schema(version: str = CURRENT) -> dict[str, Any]:
    """Return the JSON Schema of the handoff message as of a version.

    Args:
        version: A released version, for example `"2.0"`.

    Returns:
        A new JSON object with its `$schema` and `$id`; it refers to nothing outside itself.

    Raises:
        ValueError: No such version was released.

    Example:
        >>> len(handoff_schema("2.0")["required"]), "keyId" in handoff_schema("2.0")["properties"]
        (18, False)
    """
    if version not in RELEASED:
        raise ValueError(f"there is no handoff schema {version!r}; released are {', '.join(RELEASED)}")
    return copy.deepcopy(_document(version))


def published_text(version: str = CURRENT) -> str:
    """Return the document that is published of a version: the text of `docs/schemas/handoff-<version>.json`.

    Args:
        version: A released version.

    Returns:
        The schema as indented JSON, ending in a line break.

    Raises:
        ValueError: No such version was released.
    """
    return json.dumps(handoff_schema(version), indent=2, ensure_ascii=False) + "\n"


@lru_cache(maxsize=256)
def unreadable(version: str, own: str = CURRENT) -> str | None:
    """Return why a receiver does not read messages of a version, or None if it does.

    It reads its own major, two minors back and one ahead: optional members are all that may differ there,
    and unknown ones are kept (S3-6.1-d, S3-11-b, S3-14.3-a).

    Args:
        version: What the message says in `schemaVersion`.
        own: The version that the receiver speaks.

    Returns:
        A sentence that names the readable versions, or None.

    Raises:
        ValueError: One of the two is no schema version.

    Example:
        >>> unreadable("2.3", own="2.2") is None
        True
        >>> unreadable("2.4", own="2.2")
        "schema version '2.4' is not readable here; send 2.0 to 2.3"
    """
    (major, minor), (own_major, own_minor) = parsed(version), parsed(own)
    oldest, newest = max(0, own_minor - BACK), own_minor + AHEAD
    if major == own_major and oldest <= minor <= newest:
        return None
    return f"schema version {version!r} is not readable here; send {own_major}.{oldest} to {own_major}.{newest}"


def least_version(members: Iterable[str]) -> str:
    """Return the lowest version that defines every one of a message's members which this release knows.

    A sender writes that one, so that a receiver as old as possible takes the message.

    Args:
        members: The names of the message's own members, as on the wire.

    Returns:
        A released version.

    Example:
        >>> least_version(["taskId"]), least_version(["taskId", "audience"])
        ('2.0', '2.1')
    """
    return f"2.{max((_minors().get(name, 0) for name in members), default=0)}"


@cache
def _document(version: str) -> dict[str, Any]:
    return released_document(Handoff, "handoff", version)


@cache
def _minors() -> dict[str, int]:
    """Return the minor version with which each top-level member came."""
    return {on_wire(name, field): minor_of(field) for name, field in Handoff.model_fields.items()}
