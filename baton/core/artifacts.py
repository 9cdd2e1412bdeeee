"""References to artifacts: the baton's description of work products outside it.

The baton carries ids and hashes, never content, so it stays small. The bytes are in an artifact store
(`baton.artifacts.store`), under their hash.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError

from baton.errors import ArtifactCorruptError, ArtifactNotFoundError
from baton.wire.names import ARTIFACT_LOST
from baton.wire.records import ByteCount, CompactRecord, Name, Sha256Hex

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_LOST_TYPES = frozenset({ArtifactNotFoundError.__name__, ArtifactCorruptError.__name__, ARTIFACT_LOST})
_UNREADABLE_INPUT = "Failed decoding arguments"  # of the SDK
_LOST = re.compile(r"(?:no )?artifact '([0-9a-f]{64})'")


def find_lost(kind: str | None, message: str) -> str | None:
    """Return the hash of the artifact that a store's error reports as gone or damaged; None for any other error.

    Args:
        kind: The error's class, or in a history its type.
        message: Its text. In a history it is all that is left of an error that the SDK wraps.
    """
    match = _LOST.match(message) if kind in _LOST_TYPES else None
    return match[1] if match else None


def find_confirmed_loss(failure: Iterable[tuple[str | None, str]]) -> str | None:
    """Return the hash of the artifact whose loss to its worker's store failed a stage; None for any other failure.

    A stage's own error may also report a lost artifact, of whichever store the stage looked in.

    Args:
        failure: The types and texts of a failure and its causes.
    """
    (kind, message), *causes = failure
    if kind == ARTIFACT_LOST:
        return find_lost(kind, message)
    if message != _UNREADABLE_INPUT:
        return None
    return next((lost for lost in (find_lost(*cause) for cause in causes) if lost), None)


def normalize_path(path: str) -> str:
    """Return a path or glob for comparison: with slashes, without `.` and empty parts."""
    if _URL.match(path):
        return path
    slashed = path.replace("\\", "/")
    parts: list[str] = []
    for part in slashed.split("/"):
        if part == ".." and parts and parts[-1] != ".." and not set(parts[-1]) & set("*?["):
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    normalized = "/" * slashed.startswith("/") + "/".join(parts) + "/" * (slashed.endswith("/") and bool(parts))
    return normalized or path


PathText = Annotated[str, AfterValidator(normalize_path)]
"""A normalized path, the same on every system."""


class ArtifactRef(CompactRecord):
    """A light reference to an immutable artifact.

    A new version of an artifact needs a new id: the same id with another hash is refused.

    Attributes:
        id: Its id, for example `"art-001"`; unique in a pipeline.
        type: The kind of work product: `"plan"`, `"diff"`, `"report"`, …
        hash: SHA-256 of the bytes, 64 hexadecimal digits.
        size: Length in bytes, or None if unknown.
        path: The file or module that it belongs to; `work_scope` selects artifacts by it.
        summary: One line about its content.

    Example:
        >>> ref = ArtifactRef(id="art-001", type="plan", hash="a3f8" * 16, size=1200)
        >>> ref.short_hash
        'a3f8a3f8a3f8'
    """

    id: Name
    type: Name
    hash: Sha256Hex
    size: ByteCount | None = None
    path: PathText | None = None
    summary: str | None = None

    @property
    def short_hash(self) -> str:
        """The first 12 digits of the hash, for display."""
        return self.hash[:12]


def find_artifacts(value: Any) -> Iterator[ArtifactRef]:
    """Yield the references to artifacts anywhere in a JSON value."""
    if isinstance(value, list):
        for item in value:
            yield from find_artifacts(item)
    elif isinstance(value, dict):
        if {"id", "type", "hash"} <= value.keys() <= ArtifactRef.model_fields.keys():
            try:
                yield ArtifactRef.model_validate(value)
                return
            except ValidationError:  # it only looks like one
                pass
        yield from find_artifacts([*value.values()])
