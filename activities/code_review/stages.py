"""The stages of `code_review`: snapshot → security auditor beside performance reviewer → coordinator.

Bandit and ruff find, a configured model adds what it can quote, and the coordinator merges the reports.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from activities.code_review.reports import (
    REVIEWERS,
    RUFF_RULES,
    SEVERITIES,
    CodeReviewError,
    Concern,
    Finding,
    Review,
    Severity,
    Snapshot,
    SourceText,
    Unread,
    count_by_severity,
    decide_verdict,
    describe_result,
    merged_report,
    reviewer_report,
    sort_findings,
    to_sarif,
)
from activities.code_review.sources import read_diff, read_tree, snapshot_changes, snapshot_diff, snapshot_project
from activities.models import ask_model, configured_model
from activities.pages import write_folder
from activities.parameters import text_parameter
from activities.programs import run_program
from activities.source_files import is_test_file
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.agents import AgentAnswer, AgentWork, AnswerForm, agent_stage
from baton.contract.activity import ToolAnswer
from baton.report.rendering import render_report

_TIMEOUT_SECONDS, _MAX_OUTPUT_BYTES = 600, 256_000_000
_SUPPRESSION = re.compile(r"#\s*(?i:noqa|nosec)\b:?\s*((?:[A-Z]+\d+[,\s]*)*)")
_COMPLEXITY = re.compile(r"too complex \((\d+) > ")
_SECRET_RULES = ("B105", "B106", "B107")  # the line of such a finding holds a password, which no report may repeat


@dataclass(frozen=True)
class Copies:
    """The snapshot's Python files, copied to a folder as `f00001.py` and so on."""

    folder: Path
    files: Mapping[str, SourceText]


@dataclass(frozen=True)
class AnalyserResult:
    """The findings of one analyser, and the files that it could not parse."""

    analyser: str
    findings: list[Finding]
    broken: frozenset[str] = frozenset()

    @property
    def claim(self) -> str:
        """The result in one sentence."""
        suppressed = sum(finding.suppressed for finding in self.findings)
        unread = f"; could not parse {len(self.broken)} files" if self.broken else ""
        return f"{self.analyser} reports {len(self.findings)} findings, {suppressed} suppressed in the source{unread}"


_RESULT = TypeAdapter(AnalyserResult)
Analyser = Callable[[Copies], Awaitable[AnalyserResult]]


@contextlib.contextmanager
def copy_files(snapshot: Snapshot) -> Iterator[Copies]:
    """Copy the snapshot's Python files into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="baton-review-") as folder:
        copies: dict[str, SourceText] = {}
        for number, file in enumerate(file for file in snapshot.files if file.language == "Python"):
            name = f"f{number:05}.py{'i' if file.path.endswith('.pyi') else ''}"
            Path(folder, name).write_bytes(file.text.encode("utf-8", "replace"))
            copies[name] = file
        yield Copies(Path(folder), copies)


async def bandit(copies: Copies) -> AnalyserResult:
    """Return the weaknesses that bandit finds."""
    if not copies.files:
        return AnalyserResult(_with_version("bandit"), [])
    output = await _run_analyser("bandit", ["-q", "-f", "json", "--ignore-nosec", "-r", "."], copies)
    findings = [
        _make_finding(
            copies.files[Path(raw["filename"]).name],
            raw["line_number"],
            end_line=max(raw["line_range"], default=raw["line_number"]),
            concern="security",
            severity=_bandit_severity(raw["issue_severity"]),
            rule=raw["test_id"],
            message=raw["issue_text"].partition(":")[0] if raw["test_id"] in _SECRET_RULES else raw["issue_text"],
            by=("bandit",),
            cwe=raw.get("issue_cwe", {}).get("id"),
        )
        for raw in output["results"]
    ]
    broken = (copies.files[Path(raw["filename"]).name].path for raw in output.get("errors", ()))
    return AnalyserResult(_with_version("bandit"), findings, frozenset(broken))


async def ruff(copies: Copies) -> AnalyserResult:
    """Return the slow, blocking and complex code that ruff finds."""
    if not copies.files:
        return AnalyserResult(_with_version("ruff"), [])
    arguments = ["check", "--isolated", "--no-cache", "--exit-zero", "--ignore-noqa", "--output-format", "json"]
    arguments += ["--config", "exclude = []", "--no-respect-gitignore", "--target-version", "py314"]
    output = await _run_analyser("ruff", [*arguments, "--select", RUFF_RULES, "."], copies)
    findings, broken = [], set[str]()
    for raw in output:
        file = copies.files[Path(raw["filename"]).name]
        if raw["code"] in (None, "invalid-syntax"):
            broken.add(file.path)
            continue
        findings.append(
            _make_finding(
                file,
                raw["location"]["row"],
                end_line=raw["end_location"]["row"],
                concern="performance",
                severity=_ruff_severity(raw["code"], raw["message"]),
                rule=raw["code"],
                message=raw["message"].replace("`", ""),
                by=("ruff",),
            )
        )
    return AnalyserResult(_with_version("ruff"), findings, frozenset(broken))


ANALYSERS: Mapping[Concern, tuple[str, Analyser]] = {"security": ("bandit", bandit), "performance": ("ruff", ruff)}
"""The analyser of each reviewer, with its name."""


async def _run_analyser(program: str, arguments: list[str], copies: Copies) -> Any:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    result = await run_program(
        [sys.executable, "-m", program, *arguments],
        folder=copies.folder,
        seconds=_TIMEOUT_SECONDS,
        environment={**inherited, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"},
        max_bytes=_MAX_OUTPUT_BYTES,
    )
    if result.code is None or result.dropped:
        raise CodeReviewError(f"{program} took too long or found too much; review a part of the project")
    try:
        return json.loads(result.output)
    except ValueError:
        last_line = (result.errors.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1][:300]
        raise CodeReviewError(f"{program} failed with exit code {result.code}: {last_line}") from None


def _make_finding(file: SourceText, line: int, *, end_line: int, **members: Any) -> Finding:
    """Return a finding with the text of its line, unless the line holds a secret."""
    lines = file.text.split("\n")
    if not 1 <= line <= end_line <= len(lines):
        raise CodeReviewError(f"{members['by'][0]} cites {file.path}:{line}-{end_line}, of {len(lines)} lines")
    code = "" if members["rule"] in _SECRET_RULES else lines[line - 1].strip()[:200]
    suppressed = any(_suppresses(text, members["rule"]) for text in lines[line - 1 : end_line])
    return Finding(path=file.path, line=line, end_line=end_line, code=code, suppressed=suppressed, **members)


def _suppresses(line: str, rule: str) -> bool:
    """Return whether a comment suppresses a rule: `# noqa`, `# nosec B602`, `# noqa: S602,S603`."""
    match = _SUPPRESSION.search(line)
    codes = re.findall(r"[A-Z]+\d+", match[1]) if match else []
    return match is not None and (not codes or any(rule.startswith(code.replace("S", "B")) for code in codes))


def _with_version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _bandit_severity(level: str) -> Severity:
    severities: dict[str, Severity] = {"HIGH": "high", "MEDIUM": "medium"}
    return severities.get(level, "low")


def _ruff_severity(code: str, message: str) -> Severity:
    if match := _COMPLEXITY.search(message):
        return "high" if int(match[1]) > 40 else "medium" if int(match[1]) > 20 else "low"
    return "low" if code.startswith(("PERF", "C4", "RUF")) else "medium"


_TASKS: dict[Concern, str] = {
    "security": "You are a security auditor. Find weaknesses that somebody could use against the program",
    "performance": "You are a performance reviewer. Find code that is slow, blocks, or grows faster than its input",
}
_INSTRUCTIONS = (
    "For each finding give the path, the number of its line, and that line word for word as the quote; leave out what "
    "you are not sure of. Where changed passages are given, only these are under review."
)
_PORTION_SIZE = 60_000  # characters
_MAX_PORTIONS = 20
_MAX_REPORTED = 2
"""The report lists this many findings; the artifact has all."""


class Claim(BaseModel):
    """A finding that a model claims."""

    model_config = ConfigDict(extra="forbid")

    path: str
    line: int = Field(ge=1)
    quote: str = Field(min_length=6, max_length=400)
    severity: Severity
    message: str = Field(min_length=1, max_length=400)


class Claims(BaseModel):
    """The claims of a model on one portion of the code."""

    findings: list[Claim] = Field(default_factory=list, max_length=50)


class Reviewer:
    """Reviews a snapshot for one concern."""

    lab_overrides = frozenset({"model", "prompt"})  # its analyser is a tool, and else it reads artifacts and asks

    def __init__(self, concern: Concern) -> None:
        self._concern = concern

    @property
    def name(self) -> str:
        """The name of the agent and its stage."""
        return REVIEWERS[self._concern]

    @property
    def tool_names(self) -> frozenset[str]:
        """The analyser, which the contract has to allow."""
        return frozenset(ANALYSERS[self._concern][:1])

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the analyser, ask the model, and report the most severe findings."""
        context = work.context
        snapshot = await asyncio.to_thread(Snapshot.model_validate_json, await context.artifacts.read("snapshot"))
        name, analyse = ANALYSERS[self._concern]
        with copy_files(snapshot) as copies:
            answer = await context.tools.call(name, partial(_call_analyser, analyse, copies))
        result = _RESULT.validate_python(answer, strict=False)
        claims: list[Claim] = []
        portions, portions_read = list(_split_into_portions(snapshot)), 0
        for portion in portions[:_MAX_PORTIONS]:
            if context.charged.micro_usd >= (work.limits.micro_usd or inf):
                break
            claimed = await ask_model(work, f"{_TASKS[self._concern]}. {_INSTRUCTIONS}", portion, Claims)
            if claimed is None:
                break
            claims += claimed.findings
            portions_read += 1
        review = await asyncio.to_thread(
            build_review, self._concern, snapshot, result, claims if portions_read else None
        )
        review = review.model_copy(update={"judged": 0 < portions_read == len(portions)})
        if 0 < portions_read < len(portions):
            note = f"the model read {portions_read} of {len(portions)} portions of the code"
            review = review.model_copy(update={"analysers": (*review.analysers, note)})
        counts = count_by_severity(review.open)
        summary = f"{len(review.open)} findings"
        id = f"{self._concern}-review"
        await context.artifacts.write(id, review.model_dump_json(), type=id, summary=summary)
        report = render_report(reviewer_report(review, snapshot, limit=_MAX_REPORTED))
        return AgentAnswer(report=report, output={**counts}, claimed=False)


async def _call_analyser(analyse: Analyser, copies: Copies) -> ToolAnswer:
    result = await analyse(copies)
    return ToolAnswer(_RESULT.dump_python(result, mode="json"), claim=result.claim)


def build_review(
    concern: Concern, snapshot: Snapshot, result: AnalyserResult, claims: Sequence[Claim] | None = None
) -> Review:
    """Return the review of an analyser's result and a model's claims; of a change, findings on its lines."""
    files = {file.path: file for file in snapshot.files}
    model_findings = [_locate_claim(concern, claim, files.get(claim.path)) for claim in claims or ()]
    findings = [*result.findings, *(finding for finding in model_findings if finding)]
    relevant = []
    for finding in findings:
        file = files[finding.path]
        if not file.covers(finding.line, finding.end_line) or (is_test_file(finding.path) and finding.rule == "B101"):
            continue
        is_slight = is_test_file(finding.path) and concern == "performance"
        relevant.append(finding.model_copy(update={"severity": "low"}) if is_slight else finding)
    broken = sorted(result.broken)
    other_languages = sorted(file.path for file in snapshot.files if file.language != "Python")
    reader = "these analysers do not" if claims is None else "only the model did"
    unread = {*broken, *other_languages} if claims is None else set[str]()
    groups = {"not to be parsed as Python": broken, f"in other languages, which {reader} read": other_languages}
    return Review(
        concern=concern,
        analysers=(result.analyser, *(["the configured model"] if claims is not None else [])),
        examined=len(files.keys() - unread),
        findings=sort_findings(relevant),
        unread=tuple(
            Unread(reason=reason, count=len(paths), examples=tuple(paths[:5]))
            for reason, paths in groups.items()
            if paths
        ),
        rejected=model_findings.count(None),
    )


def _locate_claim(concern: Concern, claim: Claim, file: SourceText | None) -> Finding | None:
    """Return a claim as a finding at the quoted line nearest to the claimed one, or None if no line matches."""
    quote = " ".join(claim.quote.split())
    lines = [] if file is None else file.text.split("\n")
    matches = [number for number, line in enumerate(lines, 1) if quote in " ".join(line.split())]
    if not matches or len(quote) < 6:
        return None
    line = min(matches, key=lambda number: abs(number - claim.line))
    return Finding(
        path=claim.path,
        line=line,
        end_line=line,
        concern=concern,
        severity=claim.severity,
        rule=f"MODEL-{concern}",
        message=" ".join(claim.message.split()),
        by=("model",),
        code=quote[:200],
    )


def _split_into_portions(snapshot: Snapshot) -> Iterator[JsonValue]:
    """Yield the code in portions of a size that a model can read; longer files are cut."""
    portion: list[JsonValue] = []
    size = 0
    for file in snapshot.files:
        text = file.text[:_PORTION_SIZE]
        if portion and size + len(text) > _PORTION_SIZE:
            yield portion
            portion, size = [], 0
        changed: JsonValue = None if file.changed is None else [[first, last] for first, last in file.changed]
        portion.append({"path": file.path, "language": file.language, "changed": changed, "text": text})
        size += len(text)
    if portion:
        yield portion


REPORT, SARIF = "REVIEW.md", "review.sarif"

_TERMS: dict[str, Any] = {
    "timeout": timedelta(minutes=30),
    "heartbeat": timedelta(seconds=10),
    # A retry does not fix a wrong folder or parameter, or a missing analyser.
    "retries": Retries(never=("TypeError", "ValueError", "BatonError", "CodeReviewError", "ToolDeniedError")),
}
_MODEL_MICRO_USD = 250_000
"""The reservation for a reviewer's model; the analysers cost nothing."""


@stage(name="take-snapshot", writes=["current_state", "decision_log", "artifacts"], **_TERMS, tools=["files"])
async def take_snapshot(context: StageContext[Baton]) -> StageResult:
    """Read the code under review once, so that all reviewers see the same."""
    _output_folder(context), _read_fail_on(context)  # a wrong parameter fails here, not after three stages
    snapshot = await context.tools.call("files", lambda: asyncio.to_thread(_read_source, context))
    content = await asyncio.to_thread(snapshot.model_dump_json)
    await context.artifacts.write("snapshot", content, type="snapshot", summary=snapshot.scope)
    unread = "; ".join(map(str, snapshot.unread))
    patch = BatonPatch(
        current_state=[
            f"Under review: {snapshot.scope}",
            f"Not under review: {unread}"[:400] if unread else "Nothing is left out of it",
            "The source was read, not executed",
        ],
        decision_log=[
            f"Reviewed the programs {snapshot.compared_with or 'of the project'} as they were when the review began"
        ],
    )
    readable = any(file.language == "Python" for file in snapshot.files) or (
        bool(snapshot.files) and configured_model("take-snapshot") is not None
    )
    output = {"files": len(snapshot.files), "lines": snapshot.lines, "readable": readable}
    return StageResult(baton_patch=patch, output=output)


audit_security = agent_stage(
    Reviewer("security"), answers=AnswerForm.REPORT, **_TERMS, reserve_micro_usd=_MODEL_MICRO_USD
)
"""Look for weaknesses with bandit and a configured model, and report to the coordinator."""

review_performance = agent_stage(
    Reviewer("performance"), answers=AnswerForm.REPORT, **_TERMS, reserve_micro_usd=_MODEL_MICRO_USD
)
"""Look for slow, blocking and complex code with ruff and a configured model, and report to the coordinator."""


@stage(
    name="coordinate-review",
    writes=["current_state", "decision_log", "work_scope", "artifacts"],
    **_TERMS,
    tools=["files"],
)
async def coordinate_review(context: StageContext[Baton]) -> StageResult:
    """Merge both reviews into a report with a verdict, as Markdown and SARIF."""
    out, fail_on = _output_folder(context), _read_fail_on(context)
    snapshot = await asyncio.to_thread(Snapshot.model_validate_json, await context.artifacts.read("snapshot"))
    concerns: tuple[Concern, ...] = ("security", "performance")
    reviews = [
        Review.model_validate_json(await context.artifacts.read(f"{concern}-review"))
        if context.params.get("reviewed", True)
        else build_review(concern, snapshot, AnalyserResult("no analyser", []))
        for concern in concerns
    ]
    report = await asyncio.to_thread(merged_report, snapshot, reviews, fail_on, [REPORT, SARIF])
    files = {REPORT: render_report(report), SARIF: await asyncio.to_thread(to_sarif, snapshot, reviews)}
    await context.tools.call("files", lambda: asyncio.to_thread(_write_files, out, files))
    await context.artifacts.write("review", files[REPORT], type="report", path=REPORT, summary="The merged report")
    await context.artifacts.write("sarif", files[SARIF], type="sarif", path=SARIF, summary="The findings as SARIF")
    findings = sort_findings(finding for review in reviews for finding in review.open)
    verdict = decide_verdict(snapshot, reviews, fail_on)
    patch = BatonPatch(
        current_state=[
            f"Verdict: {verdict}",
            describe_result(snapshot, reviews),
            f"The merged report is in {REPORT}, its findings as SARIF 2.1.0 in {SARIF}",
            *(f"{finding.severity} {finding.place} {finding.message} ({finding.rule})" for finding in findings[:5]),
        ],
        decision_log=[f"Verdict {verdict!r}: changes are requested from severity {fail_on!r} on"],
        work_scope=list(dict.fromkeys(finding.path for finding in findings))[:12],
    )
    output = {
        "verdict": verdict,
        "findings": {**count_by_severity(findings)},
        "suppressed": sum(finding.suppressed for review in reviews for finding in review.findings),
        "report": str(out / REPORT),
        "sarif": str(out / SARIF),
    }
    return StageResult(baton_patch=patch, output=output)


STAGES: list[Callable[..., Any]] = [take_snapshot, audit_security, review_performance, coordinate_review]
"""The stages that a worker registers."""


def _read_source(context: StageContext[Baton]) -> ToolAnswer:
    base, diff = context.params.get("base"), context.params.get("diff")
    if base is not None and diff is not None:
        raise CodeReviewError("the parameters 'base' and 'diff' exclude each other; leave one out")
    tree = read_tree(Path(_text_parameter(context, "source")))
    if base is not None:
        snapshot = snapshot_changes(tree, _text_parameter(context, "base"))
    elif diff is not None:
        path = Path(_text_parameter(context, "diff"))
        snapshot = snapshot_diff(tree, read_diff(path), path.name)
    else:
        snapshot = snapshot_project(tree)
    return ToolAnswer(snapshot, claim=f"Under review: {snapshot.scope}")


def _write_files(out: Path, files: dict[str, str]) -> ToolAnswer:
    write_folder(out, files, CodeReviewError)
    return ToolAnswer(None, claim=f"The review is written to {' and '.join(files)}")


def _output_folder(context: StageContext[Baton]) -> Path:
    out, source = Path(_text_parameter(context, "output")), Path(_text_parameter(context, "source"))
    if out.resolve().is_relative_to(source.resolve()):
        raise CodeReviewError(
            f"the output folder {str(out)!r} is inside the source, which is never written to; choose one outside it"
        )
    return out


def _read_fail_on(context: StageContext[Baton]) -> Severity:
    """Return the lowest severity for which changes are requested."""
    value = context.params.get("fail_on", "high")
    for severity in SEVERITIES:
        if value == severity:
            return severity
    raise CodeReviewError(f"the parameter 'fail_on' is {value!r}; it must be one of {', '.join(SEVERITIES)}")


def _text_parameter(context: StageContext[Baton], name: str) -> str:
    return text_parameter(context, name, "code_review", CodeReviewError)
