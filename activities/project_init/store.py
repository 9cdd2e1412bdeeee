"""The output folder: guarded, written atomically, and the stages' results saved and loaded between them.

A stage may run on another worker than the one before it; the results travel as JSON files in the output
folder, so that only their digests need to be in the baton.
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

STATE_FOLDER = ".project_init"
"""Holds the saved results, and marks the output folder as ours."""

_STATE_FILES: dict[type[Record], tuple[str, str]] = {
    Listing: ("files.json", "survey the project"),
    TechStack: ("stack.json", "run stage detect-tech-stack"),
    Documents: ("documents.json", "run stage generate-docs"),
    KnowledgeIndex: ("index.json", "run stage build-knowledge"),
    Verification: ("verification.json", "run stage verify-ready"),
}

AnyRecord = TypeVar("AnyRecord", bound=Record)


def prepare_output(source: Path, out: Path) -> Path:
    """Create the output folder, unless writing there could touch something that is not ours.

    Args:
        source: The project that is read; it must stay as it is.
        out: Where results go. Inside the project only a place below a folder named `.baton` will do.

    Returns:
        The resolved output folder, which exists and is marked as ours.

    Raises:
        ProjectError: ``out`` is the project, lies in it, is a file, holds files of someone else, or
            cannot be created.
    """
    top, place = source.resolve(), out.resolve()
    if place == top:
        raise ProjectError(f"the output folder {str(out)!r} is the project itself; choose another folder")
    if place.is_relative_to(top) and ".baton" not in place.relative_to(top).parts:
        raise ProjectError(
            f"the output folder {str(out)!r} lies inside the project; choose one outside it, or one below "
            "a folder named '.baton'"
        )
    try:
        if place.is_dir() and not (place / STATE_FOLDER).is_dir() and any(place.iterdir()):
            raise ProjectError(
                f"the output folder {str(out)!r} holds files that are not from here; choose an empty one"
            )
        (place / STATE_FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProjectError(f"the output folder {str(out)!r} cannot be used ({error.strerror})") from error
    return place


def write_bytes(out: Path, path: str, content: bytes) -> WrittenFile:
    """Write a file of the output folder so that readers see the old one or the whole new one.

    Args:
        out: The output folder.
        path: Where in it, with forward slashes.
        content: The bytes.

    Returns:
        What was written.

    Raises:
        OSError: The disk refuses.
    """
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


def save(out: Path, result: Record) -> WrittenFile:
    """Save a stage's result in the output folder, under the name that its type has there.

    Raises:
        TypeError: Results of this type are not kept here.
    """
    name, _ = _state_file(type(result))
    return write_bytes(out, f"{STATE_FOLDER}/{name}", (result.model_dump_json(indent=1) + "\n").encode())


def load(out: Path, kind: type[AnyRecord]) -> AnyRecord:
    """Load what an earlier stage saved.

    Args:
        out: The output folder.
        kind: Which result: `Listing`, `TechStack`, `Documents`, `KnowledgeIndex` or `Verification`.

    Raises:
        ProjectError: It is not there, or is not what was saved.
        TypeError: Results of this type are not kept here.
    """
    name, remedy = _state_file(kind)
    place = out / STATE_FOLDER / name
    try:
        return kind.model_validate_json(place.read_bytes())
    except FileNotFoundError as error:
        raise ProjectError(f"there is no {name!r} in {str(out)!r} yet; {remedy} first") from error
    except OSError as error:
        raise ProjectError(f"{str(place)!r} cannot be read ({error.strerror}); {remedy} again") from error
    except ValidationError as error:
        raise ProjectError(f"{str(place)!r} is damaged ({error.error_count()} faults); {remedy} again") from None


def load_tree(out: Path, root: Path) -> SourceTree:
    """Return the tree of a saved listing, over the project's folder as it is on this machine.

    Raises:
        ProjectError: No listing was saved, or it is damaged.
    """
    return SourceTree(root.resolve(), load(out, Listing))


def _state_file(kind: type[Record]) -> tuple[str, str]:
    try:
        return _STATE_FILES[kind]
    except KeyError:
        known = ", ".join(sorted(each.__name__ for each in _STATE_FILES))
        raise TypeError(f"{kind.__name__} is no result of a stage; it must be one of {known}") from None
