"""Where the analysers work: the snapshot laid out in a folder of their own, and each run as a program of its own.

The files have numbered names and no configuration, so nothing in the reviewed source decides what is looked for.
"""

import asyncio
import importlib.metadata
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from activities.code_review.records import CodeReviewError, Finding, Snapshot, SourceText, column_at
from activities.workbench.programs import ProgramError, environment_for, run_program

NEEDED = ("bandit", "ruff", "radon")
"""The packages that the analysers come in."""

_SECONDS = 600.0
_MOST_BYTES = 128_000_000


class AnalyserCrashedError(CodeReviewError):
    """An analyser was ended by a signal, as by its own stack when an expression is nested too deep."""


@dataclass(frozen=True)
class Laid:
    """The snapshot's files as they lie in a folder: `f00001.py` and so on.

    Attributes:
        folder: Where.
        files: The file of the snapshot by the name it has there.
    """

    folder: Path
    files: Mapping[str, SourceText]

    def file(self, name: str) -> SourceText | None:
        """Return the file that an analyser means."""
        return self.files.get(Path(name).name)

    def mention(self, marker: str) -> bool:
        """Return whether any file has a word in it."""
        return any(marker in file.text for file in self.files.values())


def check_installed() -> None:
    """Make sure that the analysers are there.

    Raises:
        CodeReviewError: Some are not; the message says what to install.
    """
    missing = [name for name in NEEDED if not version_of(name)]
    if missing:
        raise CodeReviewError(
            f"code_review needs {', '.join(NEEDED)} on the worker; missing: {', '.join(missing)}. "
            "Install them with: pip install 'temporal-baton[code-review]'"
        )


def version_of(package: str) -> str:
    """Return the installed version of a package, "" where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


@asynccontextmanager
async def laid_out(snapshot: Snapshot) -> AsyncIterator[Laid]:
    """Lay the snapshot's Python out in a folder for the time of the block."""
    check_installed()
    with tempfile.TemporaryDirectory(prefix="baton-review-") as name:
        laid = Laid(
            Path(name),
            {
                f"f{number:05}.{'pyi' if file.path.endswith('.pyi') else 'py'}": file
                for number, file in enumerate(snapshot.written_in("Python"))
            },
        )
        await asyncio.to_thread(_lay, laid)
        yield laid


def _lay(laid: Laid) -> None:
    for name, file in laid.files.items():
        (laid.folder / name).write_bytes(file.text.encode("utf-8", "replace"))


async def ask_program(program: str, arguments: list[str], laid: Laid) -> Any:
    """Run an analyser over the folder, and return what it says.

    Raises:
        AnalyserCrashedError: A signal ended it.
        CodeReviewError: It fails, takes too long, or says too much.
    """
    try:
        ran = await run_program(
            [sys.executable, "-m", program, *arguments],
            folder=laid.folder,
            seconds=_SECONDS,
            environment=environment_for(further={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}),
            most_bytes=_MOST_BYTES,
        )
    except ProgramError as error:
        raise CodeReviewError(f"{program} cannot be run: {error}") from error
    if ran.code is None or ran.dropped:
        what = f"took longer than {_SECONDS:g} s" if ran.code is None else "found more than can be read"
        raise CodeReviewError(f"{program} {what}; review a part of the project, or only what changed")
    try:
        return json.loads(ran.output)
    except ValueError:
        said = ran.errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["nothing"]
        if ran.code < 0:
            raise AnalyserCrashedError(f"{program} was ended by signal {-ran.code} and said: {said[0][:300]}") from None
        raise CodeReviewError(f"{program} ended with exit code {ran.code} and said: {said[0][:300]}") from None


def finding_in(file: SourceText, *, line: int, end_line: int, offset: int | None = None, **members: Any) -> Finding:
    """Return a finding in a file, with the text of its first line, unless that holds a secret.

    Its column is among the members, or told by the ``offset`` in bytes that Python's parser has it at.
    """
    lines = _lines(file.text)
    first = min(max(line, 1), len(lines))
    if offset is not None:
        members["column"] = column_at(lines[first - 1], offset)
    code = "" if is_secret(members["rule"]) else lines[first - 1].strip()[:200]
    return Finding(path=file.path, line=first, end_line=max(first, end_line), code=code, **members)


@lru_cache(maxsize=1)
def _lines(text: str) -> list[str]:
    """Return the lines of a text; the last text's are kept, since findings come file by file."""
    return text.split("\n")


def is_secret(rule: str) -> bool:
    """Return whether a rule's findings stand where a password does; neither report nor history may repeat it."""
    return rule[1:] in ("105", "106", "107")
