"""The analysers that work offline: bandit and ruff for security, ruff for performance.

They run on copies with numbered names in a folder without configuration, so nothing in the source decides what is
looked for. Comments that suppress a finding (`# nosec`, `# noqa`) do not hide it.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from activities.code_review.records import CodeReviewError, Concern, Finding, Severity, Snapshot, SourceText

NEEDED = ("bandit", "ruff")
RULES: Mapping[Concern, str] = {"security": "S", "performance": "PERF,ASYNC,C4,C901,B019,RUF015"}
"""Ruff's rules for each concern."""

_SECONDS = 600
_SUPPRESSION = re.compile(r"#\s*(?i:noqa|nosec)\b:?\s*((?:[A-Z]+\d+[,\s]*)*)")
_COMPLEXITY = re.compile(r"too complex \((\d+) > ")
_BANDIT_SURE = {"HIGH": 95, "MEDIUM": 75, "LOW": 50}
_GRAVE = frozenset(("S324", "S501", "S602", "S605", "S609", "S701", "S702"))  # as bandit grades their twins
_SLIGHT = frozenset(
    ("S101", "S105", "S106", "S107", "S110", "S112", "S311", "S403", "S404", "S405", "S406", "S603", "S606", "S607")
)
_SECRETS = ("105", "106", "107")  # rules whose findings are at a password, which no report may repeat


@dataclass(frozen=True)
class Copies:
    """The snapshot's Python files as they are in a folder: `f00001.py` and so on."""

    folder: Path
    files: Mapping[str, SourceText]


@dataclass(frozen=True)
class Found:
    """What one analyser found, and the files that it could not parse."""

    analyser: str
    findings: list[Finding]
    broken: frozenset[str] = frozenset()

    @property
    def claim(self) -> str:
        """What it found, in one sentence."""
        suppressed = sum(one.suppressed for one in self.findings)
        unread = f"; could not parse {len(self.broken)} files" if self.broken else ""
        return f"{self.analyser} reports {len(self.findings)} findings, {suppressed} suppressed in the source{unread}"


Analysis = Callable[[Copies], Awaitable[Found]]


def check_installed() -> None:
    """Make sure that the analysers are installed.

    Raises:
        CodeReviewError: Some are not; the message says what to install.
    """
    missing = []
    for name in NEEDED:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise CodeReviewError(
            f"code_review needs {', '.join(NEEDED)} on the worker; missing: {', '.join(missing)}. "
            "Install them with: pip install 'temporal-baton[pipelines]'"
        )


@contextlib.asynccontextmanager
async def copies_of(snapshot: Snapshot) -> AsyncIterator[Copies]:
    """Copy the snapshot's Python files into a folder for the time of the block."""
    python = [file for file in snapshot.files if file.language == "Python"]
    names = (f"f{number:05}.py{'i' if file.path.endswith('.pyi') else ''}" for number, file in enumerate(python))
    folder = await asyncio.to_thread(tempfile.TemporaryDirectory[str], prefix="baton-review-")
    copies = Copies(Path(folder.name), dict(zip(names, python, strict=True)))

    def write() -> None:
        for name, file in copies.files.items():
            (copies.folder / name).write_bytes(file.text.encode("utf-8", "replace"))

    try:
        await asyncio.to_thread(write)
        yield copies
    finally:
        await asyncio.to_thread(folder.cleanup)


async def bandit(copies: Copies) -> Found:
    """Return the weaknesses that bandit finds."""
    if not copies.files:
        return Found(_named("bandit"), [])
    answer = await _run("bandit", ["-q", "-f", "json", "--ignore-nosec", "-r", "."], copies)
    findings = [
        _finding(
            copies.files[Path(raw["filename"]).name],
            raw["line_number"],
            end_line=max(raw["line_range"], default=raw["line_number"]),
            offset=raw["col_offset"],
            concern="security",
            severity=_bandit_severity(raw["issue_severity"]),
            rule=raw["test_id"],
            message=raw["issue_text"].partition(":")[0] if raw["test_id"][1:] in _SECRETS else raw["issue_text"],
            by=("bandit",),
            confidence=_BANDIT_SURE.get(raw["issue_confidence"], 50),
            help=raw["more_info"],
            cwe=raw.get("issue_cwe", {}).get("id"),
        )
        for raw in answer["results"]
    ]
    broken = (copies.files[Path(raw["filename"]).name].path for raw in answer.get("errors", ()))
    return Found(_named("bandit"), findings, frozenset(broken))


async def ruff(copies: Copies, concern: Concern) -> Found:
    """Return what ruff's rules for a concern find."""
    arguments = ["check", "--isolated", "--no-cache", "--exit-zero", "--ignore-noqa", "--output-format", "json"]
    arguments += ["--config", "exclude = []", "--no-respect-gitignore", "--target-version", "py314"]
    answers, broken = await _run_ruff([*arguments, "--select", RULES[concern]], copies)
    findings = []
    for raw in answers:
        file = copies.files[Path(raw["filename"]).name]
        if raw["code"] in (None, "invalid-syntax"):
            broken.add(file.path)
            continue
        findings.append(
            _finding(
                file,
                raw["location"]["row"],
                end_line=raw["end_location"]["row"],
                column=raw["location"]["column"],
                concern=concern,
                severity=_ruff_severity(raw["code"], raw["message"]),
                rule=raw["code"],
                message=raw["message"].replace("`", ""),
                by=("ruff",),
                confidence=85,
                help=raw["url"] or "",
            )
        )
    return Found(_named("ruff"), findings, frozenset(broken))


ANALYSERS: Mapping[Concern, Mapping[str, Analysis]] = {
    "security": {"bandit": bandit, "ruff": lambda copies: ruff(copies, "security")},
    "performance": {"ruff": lambda copies: ruff(copies, "performance")},
}
"""What each reviewer uses, by name."""


class _CrashedError(CodeReviewError):
    """An analyser was ended by a signal, such as by its own stack on a deeply nested expression."""


async def _run(program: str, arguments: list[str], copies: Copies) -> Any:
    """Run an analyser in the folder and return the JSON that it writes."""
    needed = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", program, *arguments),
        cwd=copies.folder,
        env={**needed, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), _SECONDS)
    except TimeoutError:
        raise CodeReviewError(f"{program} took longer than {_SECONDS} s; review a part of the project") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill() if sys.platform == "win32" else os.killpg(process.pid, signal.SIGKILL)
    try:
        return json.loads(output)
    except ValueError:
        said = (errors.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1][:300]
        kind = _CrashedError if (process.returncode or 0) < 0 else CodeReviewError
        raise kind(f"{program} ended with exit code {process.returncode} and said: {said}") from None


async def _run_ruff(arguments: list[str], copies: Copies) -> tuple[list[dict[str, Any]], set[str]]:
    """Return what ruff finds, and the files at which it crashes; after a crash each file is read by itself."""
    answers: list[dict[str, Any]] = []
    crashed: set[str] = set()
    with contextlib.suppress(_CrashedError):
        return (await _run("ruff", [*arguments, "."], copies) if copies.files else answers), crashed
    for name, file in copies.files.items():
        try:
            answers += await _run("ruff", [*arguments, name], copies)
        except _CrashedError:
            crashed.add(file.path)
    return answers, crashed


def _finding(file: SourceText, line: int, *, end_line: int, offset: int | None = None, **members: Any) -> Finding:
    """Return a finding with its line's text, unless that holds a secret.

    The offset of a column is in bytes, as Python's parser counts.
    """
    lines = _lines(file.text)
    first = min(max(line, 1), len(lines))
    if offset is not None:
        members["column"] = len(lines[first - 1].encode("utf-8", "replace")[:offset].decode("utf-8", "ignore")) + 1
    last = min(max(first, end_line), len(lines))
    code = "" if members["rule"][1:] in _SECRETS else lines[first - 1].strip()[:200]
    suppressed = any(_suppresses(line, members["rule"]) for line in lines[first - 1 : last])
    return Finding(path=file.path, line=first, end_line=last, code=code, suppressed=suppressed, **members)


def _suppresses(line: str, rule: str) -> bool:
    """Return whether a comment in a line hides a rule's findings: `# noqa`, `# nosec B602`, `# noqa: S602,S603`."""
    found = _SUPPRESSION.search(line)
    codes = re.findall(r"[A-Z]+\d+", found[1]) if found else []
    return found is not None and (not codes or any(rule.startswith(code) for code in codes))


@lru_cache(maxsize=1)
def _lines(text: str) -> list[str]:
    """Return the lines of a text; findings come file by file, so the last text's are kept."""
    return text.split("\n")


def _named(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _bandit_severity(word: str) -> Severity:
    known: dict[str, Severity] = {"HIGH": "high", "MEDIUM": "medium"}
    return known.get(word, "low")


def _ruff_severity(code: str, message: str) -> Severity:
    if much := _COMPLEXITY.search(message):
        return "high" if int(much[1]) > 40 else "medium" if int(much[1]) > 20 else "low"
    if code in _GRAVE:
        return "high"
    return "low" if code in _SLIGHT or code.startswith(("PERF", "C4", "RUF")) else "medium"
