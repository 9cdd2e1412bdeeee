"""Reports that a pipeline writes into a folder: Markdown in which quoted words cannot become mark-up, whole files."""

import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from baton.errors import BatonError

_SPECIAL = re.compile(r"[\\`*\[\]<|~$]|(?<![^\W_])_+|_+(?![^\W_])|&(?=#|\w+;)|:(?=//)")
BLOCK_START = re.compile(r"^(\d+)(?=[.)])|^(?=[-+=#>])")
LONGEST = 400
"""Characters after which a quoted text is cut."""


def visible(value: str, longest: int = LONGEST) -> str:
    """Return ``value`` on one line, control characters escaped, cut at ``longest``."""
    line = " ".join(value[: 4 * longest].split())
    seen = "".join(shown(character) for character in line[: longest + 1])
    return seen if len(line) <= longest else seen[: longest - 1].rstrip() + "…"


def shown(character: str) -> str:
    """Return a character, escaped where it would be invisible."""
    unsafe = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return f"\\u{ord(character):04x}" if unsafe else character


def text(value: str, longest: int = LONGEST) -> str:
    """Return ``value`` as plain Markdown text on one line: no mark-up, no tag, no table border."""
    return BLOCK_START.sub(r"\g<0>\\", escaped(visible(value, longest)))


def escaped(value: str) -> str:
    """Return a text with everything escaped that Markdown reads as mark-up within a line."""
    return _SPECIAL.sub(lambda found: "".join("\\" + each for each in found[0]), value)


def code(value: str, longest: int = LONGEST) -> str:
    """Return ``value`` as a code span."""
    words = visible(value, longest) or " "
    runs = [len(run) for run in re.findall(r"`+", words)]
    marks = "`" * (max(runs, default=0) + 1)
    return f"{marks} {words} {marks}" if runs else f"{marks}{words}{marks}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already; bare pipes in them are escaped."""
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) or " " for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def bullets(items: Iterable[str]) -> str:
    """Return a list of items that are Markdown already."""
    return "\n".join(f"- {item}" for item in items)


def page(*parts: str) -> str:
    """Return a document: its parts without the empty ones, with a blank line between them."""
    return "\n\n".join(part for part in parts if part) + "\n"


def check_folder(out: Path, marks: Mapping[str, str], error: type[BatonError]) -> None:
    """Refuse a folder in which one of the files exists and was written by somebody else."""
    for name, mark in marks.items():
        place = out / name
        try:
            if place.exists() and mark not in place.read_bytes()[:400].decode("utf-8", "replace"):
                raise error(f"{str(place)!r} was not written by this pipeline; name another output folder")
        except OSError as fault:
            raise error(f"the output folder {str(out)!r} cannot be used ({fault.strerror})") from None


def write_folder(out: Path, contents: Mapping[str, str], error: type[BatonError]) -> None:
    """Write files into a folder, which is made; each whole or not at all. ``error`` is raised where that fails."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_whole(out / name, content.encode())
    except OSError as fault:
        raise error(f"the output folder {str(out)!r} cannot be written ({fault.strerror})") from None


def write_whole(place: Path, content: bytes) -> None:
    """Write a file that everyone may read; readers see the old one or the whole new one."""
    descriptor, temporary = tempfile.mkstemp(prefix=".writing-", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
