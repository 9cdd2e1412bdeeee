"""Reports that a pipeline writes into a folder: Markdown in which quoted words cannot become mark-up, whole files."""

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from baton.errors import BatonError


def plain(text: str, longest: int = 400) -> str:
    r"""Return a text on one line, cut to a length, with everything escaped that Markdown could read as mark-up.

    Example:
        >>> plain("[pay](http://x) <b>")
        '\\[pay\\](http\\://x) \\<b>'
    """
    words = " ".join(text.split())
    cut = words if len(words) <= longest else f"{words[:longest]}…"
    return re.sub(r"([\\`*_{}\[\]<#|~!]|:(?=//))", r"\\\1", cut)


def code(text: str) -> str:
    """Return a text as code, in which nothing is mark-up."""
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', '/')}`"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *rows))


def bullets(lines: Iterable[str]) -> str:
    """Return a list; its items are Markdown."""
    return "\n".join(f"- {line}" for line in lines)


def page(*parts: str) -> str:
    """Return the parts that are not empty, a blank line between them."""
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
            with tempfile.NamedTemporaryFile(dir=out, delete=False) as file:
                file.write(content.encode())
            Path(file.name).chmod(0o644)
            os.replace(file.name, out / name)
    except OSError as fault:
        raise error(f"the output folder {str(out)!r} cannot be written ({fault.strerror})") from None
