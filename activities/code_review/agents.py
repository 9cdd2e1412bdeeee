"""The reviewers, behind Baton's port: bandit and ruff find, a configured model adds what it can quote from the code.

Each writes its whole review as an artifact and answers with a handoff report to the coordinator.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.code_review.records import (
    RUFF_RULES,
    CodeReviewError,
    Concern,
    Finding,
    Review,
    Severity,
    Snapshot,
    SourceText,
    Unread,
    count_by_severity,
    in_order,
    is_test,
)
from activities.code_review.reports import REVIEWERS, reviewer_report
from activities.models import ask_model
from baton.agents import AgentAnswer, AgentWork
from baton.contract.activity import ToolAnswer
from baton.report.rendering import render_report

NEEDED = ("bandit", "ruff")
_SECONDS = 600
_SUPPRESSION = re.compile(r"#\s*(?i:noqa|nosec)\b:?\s*((?:[A-Z]+\d+[,\s]*)*)")
_COMPLEXITY = re.compile(r"too complex \((\d+) > ")
_BANDIT_SURE = {"HIGH": 95, "MEDIUM": 75, "LOW": 50}
_SECRETS = ("B105", "B106", "B107")  # rules whose findings are at a password, which no report may repeat


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
    """Make sure that the analysers are installed."""
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
            concern="security",
            severity=_bandit_severity(raw["issue_severity"]),
            rule=raw["test_id"],
            message=raw["issue_text"].partition(":")[0] if raw["test_id"] in _SECRETS else raw["issue_text"],
            by=("bandit",),
            confidence=_BANDIT_SURE.get(raw["issue_confidence"], 50),
            cwe=raw.get("issue_cwe", {}).get("id"),
        )
        for raw in answer["results"]
    ]
    broken = (copies.files[Path(raw["filename"]).name].path for raw in answer.get("errors", ()))
    return Found(_named("bandit"), findings, frozenset(broken))


async def ruff(copies: Copies) -> Found:
    """Return the slow, blocking and complex code that ruff finds."""
    if not copies.files:
        return Found(_named("ruff"), [])
    arguments = ["check", "--isolated", "--no-cache", "--exit-zero", "--ignore-noqa", "--output-format", "json"]
    arguments += ["--config", "exclude = []", "--no-respect-gitignore", "--target-version", "py314"]
    answers = await _run("ruff", [*arguments, "--select", RUFF_RULES, "."], copies)
    findings, broken = [], set[str]()
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
                concern="performance",
                severity=_ruff_severity(raw["code"], raw["message"]),
                rule=raw["code"],
                message=raw["message"].replace("`", ""),
                by=("ruff",),
                confidence=85,
            )
        )
    return Found(_named("ruff"), findings, frozenset(broken))


ANALYSERS: Mapping[Concern, tuple[str, Analysis]] = {"security": ("bandit", bandit), "performance": ("ruff", ruff)}
"""What each reviewer uses, by name."""


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
        raise CodeReviewError(f"{program} ended with exit code {process.returncode} and said: {said}") from None


def _finding(file: SourceText, line: int, *, end_line: int, **members: Any) -> Finding:
    """Return a finding with its line's text, unless that holds a secret."""
    lines = file.text.split("\n")
    first = min(max(line, 1), len(lines))
    last = min(max(first, end_line), len(lines))
    code = "" if members["rule"] in _SECRETS else lines[first - 1].strip()[:200]
    suppressed = any(_suppresses(line, members["rule"]) for line in lines[first - 1 : last])
    return Finding(path=file.path, line=first, end_line=last, code=code, suppressed=suppressed, **members)


def _suppresses(line: str, rule: str) -> bool:
    """Return whether a comment in a line hides a rule's findings: `# noqa`, `# nosec B602`, `# noqa: S602,S603`."""
    found = _SUPPRESSION.search(line)
    codes = re.findall(r"[A-Z]+\d+", found[1]) if found else []
    return found is not None and (not codes or any(rule.startswith(code.replace("S", "B")) for code in codes))


def _named(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _bandit_severity(word: str) -> Severity:
    known: dict[str, Severity] = {"HIGH": "high", "MEDIUM": "medium"}
    return known.get(word, "low")


def _ruff_severity(code: str, message: str) -> Severity:
    if much := _COMPLEXITY.search(message):
        return "high" if int(much[1]) > 40 else "medium" if int(much[1]) > 20 else "low"
    return "low" if code.startswith(("PERF", "C4", "RUF")) else "medium"


_TASKS: dict[Concern, str] = {
    "security": "You are a security auditor. Find weaknesses that somebody could use against the program",
    "performance": "You are a performance reviewer. Find code that is slow, blocks, or grows faster than its input",
}
_HOW = (
    "For each finding give the path, the number of its line, and that line word for word as the quote; leave out what "
    "you are not sure of. Where changed passages are given, only these are under review."
)
_PORTION = 60_000  # characters
_MOST_PORTIONS = 20
_REPORTED = 2
"""How many findings the report tells; the artifact has them all."""


class Claim(BaseModel):
    """One finding, as a model claims it."""

    model_config = ConfigDict(extra="forbid")

    path: str
    line: int = Field(ge=1)
    quote: str = Field(min_length=6, max_length=400)
    severity: Severity
    message: str = Field(min_length=1, max_length=400)


class Claims(BaseModel):
    """All that a model claims of one portion of the code."""

    findings: list[Claim] = Field(default_factory=list, max_length=50)


class Reviewer:
    """Reviews a snapshot for one concern."""

    def __init__(self, concern: Concern) -> None:
        self._concern = concern

    @property
    def name(self) -> str:
        """The agent's name, which is its stage's."""
        return REVIEWERS[self._concern]

    @property
    def tool_names(self) -> frozenset[str]:
        """The analyser, which the contract must allow."""
        return frozenset(ANALYSERS[self._concern][:1])

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the analyser, ask the model, and report the gravest findings."""
        context = work.context
        snapshot = await asyncio.to_thread(Snapshot.model_validate_json, await context.artifacts.read("snapshot"))
        name, analyse = ANALYSERS[self._concern]
        async with copies_of(snapshot) as copies:
            found = await context.tools.call(name, partial(_with_claim, analyse, copies))
        claims: list[Claim] = []
        portions, shown = list(_portions(snapshot)), 0
        for portion in portions[:_MOST_PORTIONS]:
            if context.charged.micro_usd >= (work.limits.micro_usd or inf):
                break
            answer = await ask_model(work, f"{_TASKS[self._concern]}. {_HOW}", portion, Claims)
            if answer is None:
                break
            claims += answer.findings
            shown += 1
        review = await asyncio.to_thread(review_of, self._concern, snapshot, found, claims if shown else None)
        if 0 < shown < len(portions):
            left = f"the model read {shown} of {len(portions)} portions of the code"
            review = review.model_copy(update={"analysers": (*review.analysers, left)})
        counts = count_by_severity(review.open)
        summary = f"{len(review.open)} findings"
        id = f"{self._concern}-review"
        await context.artifacts.write(id, review.model_dump_json(), type=id, summary=summary)
        report = render_report(reviewer_report(review, snapshot, most=_REPORTED))
        return AgentAnswer(report=report, output={**counts}, claimed=False)


async def _with_claim(analyse: Analysis, copies: Copies) -> ToolAnswer:
    """Run an analyser; later contracts have the sentence on what it found."""
    found = await analyse(copies)
    return ToolAnswer(found, claim=found.claim)


def review_of(concern: Concern, snapshot: Snapshot, found: Found, claims: Sequence[Claim] | None = None) -> Review:
    """Return what a reviewer makes of what was found.

    In tests an assertion is not a finding, and nothing about
    performance is graver than low. A claim whose quote is not in its file is dropped. Of a change only what is in its
    lines counts.
    """
    files = {file.path: file for file in snapshot.files}
    quoted = [_quoted(concern, claim, files.get(claim.path)) for claim in claims or ()]
    findings = [*found.findings, *(one for one in quoted if one)]
    kept = []
    for one in findings:
        file = files[one.path]
        if not file.covers(one.line, one.end_line) or (is_test(one.path) and one.rule == "B101"):
            continue
        is_slight = is_test(one.path) and concern == "performance"
        kept.append(one.model_copy(update={"severity": "low"}) if is_slight else one)
    broken = sorted(found.broken)
    others = sorted(file.path for file in snapshot.files if file.language != "Python")
    reader = "these analysers do not" if claims is None else "only the model did"
    groups = {"not to be parsed as Python": broken, f"in other languages, which {reader} read": others}
    return Review(
        concern=concern,
        analysers=(found.analyser, *(["the configured model"] if claims is not None else [])),
        findings=in_order(kept),
        unread=tuple(
            Unread(reason=reason, count=len(paths), examples=tuple(paths[:5]))
            for reason, paths in groups.items()
            if paths
        ),
        rejected=quoted.count(None),
    )


def _quoted(concern: Concern, claim: Claim, file: SourceText | None) -> Finding | None:
    """Return a model's claim as a finding at the line that it quotes; None if no line has the words."""
    quote = " ".join(claim.quote.split())
    lines = [] if file is None else file.text.split("\n")
    found = [number for number, line in enumerate(lines, 1) if quote in " ".join(line.split())]
    if not found or len(quote) < 6:
        return None
    line = min(found, key=lambda number: abs(number - claim.line))
    return Finding(
        path=claim.path,
        line=line,
        end_line=line,
        concern=concern,
        severity=claim.severity,
        rule=f"MODEL-{concern}",
        message=" ".join(claim.message.split()),
        by=("model",),
        confidence=60,
        code=quote[:200],
    )


def _portions(snapshot: Snapshot) -> Iterator[JsonValue]:
    """Yield the code in portions that a model can read; a file that is too long for one is cut."""
    portion: list[JsonValue] = []
    size = 0
    for file in snapshot.files:
        text = file.text[:_PORTION]
        if portion and size + len(text) > _PORTION:
            yield portion
            portion, size = [], 0
        changed: JsonValue = None if file.changed is None else [[first, last] for first, last in file.changed]
        portion.append({"path": file.path, "language": file.language, "changed": changed, "text": text})
        size += len(text)
    if portion:
        yield portion
