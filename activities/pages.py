"""Markdown reports in a folder: quoted text cannot become mark-up, and each file is written atomically."""

import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from baton.errors import BatonError

_SPECIAL = re.compile(r"[\\`*\[\]<|~$]|(?<![^\W_])_+|_+(?![^\W_])|&(?=#|\w+;)|:(?=//)")
BLOCK_START = re.compile(r"^(\d+)(?=[.)])|^(?=[-+=#>])")
MAX_LENGTH = 400
"""Quoted text is cut after this many characters."""


def visible(value: str, limit: int = MAX_LENGTH) -> str:
    """Return ``value`` on one line, control characters escaped, cut at ``limit`` characters."""
    line = " ".join(value[: 4 * limit].split())
    printable = "".join(escape_invisible(character) for character in line[: limit + 1])
    return printable if len(line) <= limit else printable[: limit - 1].rstrip() + "…"


def escape_invisible(character: str) -> str:
    """Escape a character that would be invisible."""
    unsafe = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return f"\\u{ord(character):04x}" if unsafe else character


def text(value: str, limit: int = MAX_LENGTH) -> str:
    """Return ``value`` as plain Markdown text on one line: no mark-up, no tag, no table border."""
    return BLOCK_START.sub(r"\g<0>\\", escape_markdown(visible(value, limit)))


def escape_markdown(value: str) -> str:
    """Escape what Markdown reads as inline mark-up."""
    return _SPECIAL.sub(lambda match: "".join(f"\\{character}" for character in match[0]), value)


def code(value: str, limit: int = MAX_LENGTH) -> str:
    """Return ``value`` as a code span."""
    content = visible(value, limit) or " "
    backtick_runs = [len(run) for run in re.findall(r"`+", content)]
    fence = "`" * (max(backtick_runs, default=0) + 1)
    return f"{fence} {content} {fence}" if backtick_runs else f"{fence}{content}{fence}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown cells; unescaped pipes in them are escaped."""
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) or " " for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def bullets(items: Iterable[str]) -> str:
    """Return a bullet list of Markdown items."""
    return "\n".join(f"- {item}" for item in items)


def page(*parts: str) -> str:
    """Join the non-empty parts with blank lines."""
    return "\n\n".join(part for part in parts if part) + "\n"


def check_folder(out: Path, marks: Mapping[str, str], error_type: type[BatonError]) -> None:
    """Raise ``error_type`` if a file of the folder exists without its mark, so was not written by this pipeline."""
    for name, mark in marks.items():
        path = out / name
        try:
            if path.exists() and mark not in path.read_bytes()[:400].decode("utf-8", "replace"):
                raise error_type(f"{str(path)!r} was not written by this pipeline; name another output folder")
        except OSError as error:
            raise error_type(f"the output folder {str(out)!r} cannot be used ({error.strerror})") from None


def write_folder(out: Path, contents: Mapping[str, str], error_type: type[BatonError]) -> None:
    """Write files into a folder, creating it if needed; each file is written atomically."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_atomically(out / name, content.encode())
    except OSError as error:
        raise error_type(f"the output folder {str(out)!r} cannot be written ({error.strerror})") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a world-readable file; readers see the old content or the new, never a part."""
    descriptor, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
