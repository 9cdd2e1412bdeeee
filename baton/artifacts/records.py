"""References to artifacts: what the baton says of a work product that lives outside it.

The baton carries ids and hashes, never content: agents know what exists, and the record
stays small. The bytes are in an artifact store (`baton.artifacts.store`), under their hash.
"""

import re
from typing import Annotated

from pydantic import AfterValidator

from baton.wire.records import ByteCount, CompactRecord, Name, Sha256Hex

DEFAULT_STORE = ".baton/artifacts"
"""Where a deployment's artifacts are, unless `BATON_ARTIFACTS` names another folder or a bucket."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def path_form(path: str) -> str:
    """Return a path or glob in the one form that it is compared in: with slashes, without `.` and empty parts."""
    if _URL.match(path):
        return path
    slashed = path.replace("\\", "/")
    parts: list[str] = []
    for part in slashed.split("/"):
        if part == ".." and parts and parts[-1] != ".." and not set(parts[-1]) & set("*?["):
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    form = "/" * slashed.startswith("/") + "/".join(parts) + "/" * (slashed.endswith("/") and bool(parts))
    return form or path


PathText = Annotated[str, AfterValidator(path_form)]
"""A path, kept as `path_form` writes it, the same on every system."""


class ArtifactRef(CompactRecord):
    """A light reference to an immutable artifact.

    A new version of an artifact is a new id: the same id with another hash is refused everywhere.

    Attributes:
        id: What stages call it, for example `"art-001"`; unique in one pipeline.
        type: What kind of work product it is: `"plan"`, `"diff"`, `"report"`, …
        hash: SHA-256 of the bytes, 64 hexadecimal digits.
        size: Length in bytes, or None where it is not known.
        path: The file or module it belongs to; `work_scope` selects artifacts by it.
        summary: One line on what is in it.

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
        """The first 12 digits of the hash, for people to read."""
        return self.hash[:12]
