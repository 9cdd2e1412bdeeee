"""The output folder: guarded, written atomically, and where the stages leave their results for each other.

A stage may run on another worker than the one before it, so results travel as JSON files in the output folder.
"""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from activities.project_init.files import SourceTree
from activities.project_init.records import (
    Documents,
    KnowledgeIndex,
    Listing,
    ProjectError,
    TechStack,
    Verification,
    WrittenFile,
)
from baton.wire.records import Record

STATE = ".project_init"
"""The folder with the saved results; it marks the output folder as ours."""

_FILES: dict[type[Record], tuple[str, str]] = {
    Listing: ("files.json", "detect-tech-stack"),
    TechStack: ("stack.json", "detect-tech-stack"),
    Documents: ("documents.json", "generate-docs"),
    KnowledgeIndex: ("index.json", "build-knowledge"),
    Verification: ("verification.json", "verify-ready"),
}

RecordT = TypeVar("RecordT", bound=Record)


def prepare_output(source: Path, out: Path) -> Path:
    """Create the output folder, unless writing there could touch somebody else's files.

    Raises:
        ProjectError: ``out`` is the project or in it, is a file, holds other files, or cannot be created.
    """
    top, place = source.resolve(), out.resolve()
    if place == top:
        raise ProjectError(f"the output folder {str(out)!r} is the project itself; choose another folder")
    if place.is_relative_to(top) and ".baton" not in place.relative_to(top).parts:
        raise ProjectError(
            f"the output folder {str(out)!r} is inside the project; choose one outside it, or below a folder '.baton'"
        )
    try:
        if place.is_dir() and not (place / STATE).is_dir() and any(place.iterdir()):
            raise ProjectError(f"the output folder {str(out)!r} holds other files; choose an empty one")
        (place / STATE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProjectError(f"the output folder {str(out)!r} cannot be used ({error.strerror})") from error
    return place


def write_bytes(out: Path, path: str, content: bytes) -> WrittenFile:
    """Write a file of the output folder; readers see the old one or the whole new one."""
    place = out / path
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".writing-", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # results are for everyone who may enter the folder
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return WrittenFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def save(out: Path, result: Record) -> None:
    """Save a stage's result in the output folder."""
    name, _ = _FILES[type(result)]
    write_bytes(out, f"{STATE}/{name}", (result.model_dump_json(indent=1) + "\n").encode())


def load(out: Path, kind: type[RecordT]) -> RecordT:
    """Load what an earlier stage saved.

    Raises:
        ProjectError: It is not there, or is damaged.
    """
    name, stage = _FILES[kind]
    place = out / STATE / name
    try:
        return kind.model_validate_json(place.read_bytes())
    except OSError as error:
        why = f"{str(place)!r} cannot be read ({error.strerror})"
        raise ProjectError(f"{why}; run stage {stage} first") from error
    except ValidationError as error:
        raise ProjectError(
            f"{str(place)!r} is damaged ({error.error_count()} faults); run stage {stage} again"
        ) from None


def load_tree(out: Path, root: Path) -> SourceTree:
    """Return the saved listing over the project's folder as it is on this machine."""
    return SourceTree(root.resolve(), load(out, Listing))
