"""The stages of `code_review`: snapshot → security auditor beside performance reviewer → coordinator.

The snapshot and the reviews travel as artifacts. The coordinator merges the reviewers' handoff reports.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from activities.code_review.agents import AnalyserResult, Reviewer, build_review, check_installed
from activities.code_review.records import (
    SEVERITIES,
    CodeReviewError,
    Concern,
    Review,
    Severity,
    Snapshot,
    count_by_severity,
    decide_verdict,
    sort_findings,
)
from activities.code_review.reports import describe_result, merged_report, to_sarif
from activities.code_review.sources import (
    read_diff,
    read_tree,
    snapshot_changes,
    snapshot_diff,
    snapshot_project,
)
from activities.models import configured_model
from activities.pages import write_folder
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.agents import AnswerForm, agent_stage
from baton.contract.activity import ToolAnswer
from baton.report.rendering import render_report

REPORT, SARIF = "REVIEW.md", "review.sarif"

_TERMS: dict[str, Any] = {
    "timeout": timedelta(minutes=30),
    "heartbeat": timedelta(seconds=10),
    # A retry does not mend a wrong folder or parameter, or a missing analyser.
    "retries": Retries(never=("TypeError", "ValueError", "BatonError", "CodeReviewError", "ToolDeniedError")),
}
_MODEL_MICRO_USD = 250_000
"""The reservation for a reviewer's model; the analysers cost nothing."""


@stage(
    name="take-snapshot",
    writes=["current_state", "decision_log", "artifacts"],
    **_TERMS,
    tools=["files"],
)
async def take_snapshot(context: StageContext[Baton]) -> StageResult:
    """Read the code under review once, so that all reviewers see the same."""
    _output_folder(context), _read_fail_on(context)  # a wrong parameter fails here, not after three stages
    check_installed()
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
        decision_log=[f"Reviewed {snapshot.compared_with or 'the whole project'} as it was when the review began"],
    )
    readable = any(file.language == "Python" for file in snapshot.files) or (
        bool(snapshot.files) and configured_model("take-snapshot") is not None
    )
    output = {"files": len(snapshot.files), "lines": snapshot.lines, "readable": readable}
    return StageResult(baton_patch=patch, output=output)


audit_security = agent_stage(
    Reviewer("security"),
    answers=AnswerForm.REPORT,
    **_TERMS,
    reserve_micro_usd=_MODEL_MICRO_USD,
)
"""Look for weaknesses with bandit and a configured model, and report to the coordinator."""

review_performance = agent_stage(
    Reviewer("performance"),
    answers=AnswerForm.REPORT,
    **_TERMS,
    reserve_micro_usd=_MODEL_MICRO_USD,
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
    """Snapshot the whole project, the changes since `base`, or those of `diff`."""
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
    """Write the review's files; other files in the folder stay."""
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
    value = context.params.get(name)
    if not isinstance(value, str) or not value:
        raise CodeReviewError(
            f"code_review needs the parameter {name!r}; found {value!r}. Start it with: "
            "baton run code_review --goal … --param source=DIR --param output=DIR"
        )
    return value
