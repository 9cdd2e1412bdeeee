"""The stages of `code_review`: snapshot → security auditor beside performance reviewer → coordinator (S4-use-2).

Between them the work travels as artifacts: the snapshot that both reviewers read, and what each found. Each returns
a handoff report; the coordinator merges the reports.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue

from activities.code_review.analysers import ANALYSERS, review_of
from activities.code_review.claims import ask_model
from activities.code_review.laying_out import check_installed
from activities.code_review.records import (
    SEVERITIES,
    CodeReviewError,
    Concern,
    Review,
    Severity,
    Snapshot,
    count_by_severity,
    in_order,
    is_complete,
    verdict_of,
)
from activities.code_review.reporting import COORDINATOR, completed, in_words, report_of
from activities.code_review.sarif import to_sarif
from activities.code_review.sources import (
    read_diff,
    read_tree,
    snapshot_of_changes,
    snapshot_of_diff,
    snapshot_of_project,
)
from activities.project_init.store import write_bytes
from activities.workbench.asking import configured_model
from activities.workbench.parameters import required_text
from activities.workbench.using import use
from activities.workbench.words import counted
from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from baton.report.merging import merge_reports
from baton.report.rendering import render_report
from baton.wire.records import Record

RecordT = TypeVar("RecordT", bound=Record)
Context = StageContext[Baton]

REPORT = "REVIEW.md"
SARIF = "review.sarif"

_USAGE = "code_review --goal … --param source=DIR --param output=DIR"
_MOST_FILES = 12  # in the work scope
_HEARTBEAT = timedelta(seconds=10)
_LONGEST = timedelta(minutes=30)
# A wrong folder or parameter, or a missing analyser, does not become right by waiting.
_RETRIES = Retries(
    never=(
        "TypeError",
        "ValueError",
        "CodeReviewError",
        "ProjectError",
        "GitError",
        "ToolDeniedError",
        "ModelRefusedError",
    )
)
_TOLD = 2
"""How many findings a reviewer's report tells, in words of the analyser's alone; the artifact has them all."""


@stage(
    name="take-snapshot",
    writes=["current_state", "decision_log", "artifacts", "open_questions"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["files", "git"],
)
async def take_snapshot(context: Context) -> StageResult:
    """Read the code under review once, so that all reviewers look at the same; the source is only read."""
    source = Path(_text(context, "source"))
    _output_folder(context), _fail_on(context)  # said now, not after three stages
    check_installed()
    base, diff = context.params.get("base"), context.params.get("diff")
    if base is not None and diff is not None:
        raise CodeReviewError("review what changed since 'base', or what 'diff' changes; leave one of the two out")

    def report(line: str) -> None:
        context.last_heartbeat = (line,)

    tree = await use(
        context,
        "files",
        lambda: asyncio.to_thread(read_tree, source, report),
        lambda read: f"The source has {counted(len(read.listing.files), 'file')}",
    )
    if base is not None:
        name = _text(context, "base")
        snapshot = await use(context, "git", lambda: snapshot_of_changes(tree, name), _scope_in_words)
    elif diff is not None:
        place = Path(_text(context, "diff"))
        text = await asyncio.to_thread(read_diff, place)
        snapshot = await asyncio.to_thread(snapshot_of_diff, tree, text, place.name)
    else:
        snapshot = await asyncio.to_thread(snapshot_of_project, tree)
    await _hand_on(context, "snapshot", snapshot, _scope_in_words(snapshot))
    unread = "; ".join(f"{one.count} × {one.reason}" for one in snapshot.unread)
    patch = BatonPatch(
        current_state=[
            _scope_in_words(snapshot),
            *([f"Not under review: {unread}"[:400]] if unread else ["Nothing is left out of it"]),
            "The source was read, not executed, and is as it was",
        ],
        decision_log=[f"Reviewed {_what(snapshot)} as it was when the review began"],
    )
    output: dict[str, JsonValue] = {"files": len(snapshot.files), "lines": snapshot.lines}
    return StageResult(baton_patch=patch, output=output)


@stage(
    name="audit-security", timeout=_LONGEST, heartbeat=_HEARTBEAT, retries=_RETRIES, tools=["bandit", "ruff", "model"]
)
async def audit_security(context: Context) -> StageResult:
    """Look for security weaknesses with bandit, ruff and a configured model, and report them to the coordinator."""
    return await _reviewed(context, "security")


@stage(
    name="review-performance",
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["ruff", "radon", "loops", "model"],
)
async def review_performance(context: Context) -> StageResult:
    """Look for slow, blocking and overly complex code with ruff, radon, our own rules and a configured model."""
    return await _reviewed(context, "performance")


@stage(
    name="coordinate-review",
    writes=["current_state", "decision_log", "artifacts", "open_questions", "work_scope"],
    timeout=_LONGEST,
    heartbeat=_HEARTBEAT,
    retries=_RETRIES,
    tools=["files"],
)
async def coordinate_review(context: Context) -> StageResult:
    """Merge both reports into one with a verdict, as Markdown and as SARIF."""
    out, fail_on = _output_folder(context), _fail_on(context)
    snapshot = await _handed(context, "snapshot", Snapshot)
    reviews = [await _handed(context, f"{concern}-review", Review) for concern in ANALYSERS]
    shown, sarif = await asyncio.to_thread(_merged, snapshot, reviews, fail_on)
    await use(
        context,
        "files",
        lambda: asyncio.to_thread(_write, out, {REPORT: shown, SARIF: sarif}),
        lambda _: f"The review is written to {REPORT} and {SARIF}",
    )
    await context.artifacts.write("review", shown, type="report", path=REPORT, summary="The merged report")
    await context.artifacts.write("sarif", sarif, type="sarif", path=SARIF, summary="The findings as SARIF 2.1.0")
    findings = list(in_order([one for review in reviews for one in review.open]))
    verdict = verdict_of(findings, fail_on, complete=is_complete(snapshot, reviews))
    patch = BatonPatch(
        current_state=[
            f"Verdict: {verdict}; {in_words(findings)} in {counted(len(snapshot.files), 'file')}",
            f"The merged report is in {REPORT}, its findings as SARIF 2.1.0 in {SARIF}",
            *(f"{one.severity} {one.place} {one.message} ({one.rule})" for one in findings[:5]),
            *([] if findings else ["Nothing was found in what was analysed"]),
        ],
        decision_log=[f"Verdict {verdict!r}: changes are requested from severity {fail_on!r} on"],
        work_scope=list(dict.fromkeys(one.path for one in findings))[:_MOST_FILES],
    )
    counts = dict[str, JsonValue](count_by_severity(findings))
    output: dict[str, JsonValue] = {
        "verdict": verdict,
        "findings": counts,
        "suppressed": sum(one.suppressed for review in reviews for one in review.findings),
        "report": str(out / REPORT),
        "sarif": str(out / SARIF),
    }
    return StageResult(baton_patch=patch, output=output)


STAGES: list[Callable[..., Any]] = [take_snapshot, audit_security, review_performance, coordinate_review]
"""What a worker runs."""


async def _reviewed(context: Context, concern: Concern) -> StageResult:
    """Run the reviewer's analysers one after the other, keep what they found, and report the gravest of it."""
    snapshot = await _handed(context, "snapshot", Snapshot)
    found = [
        await use(context, name, partial(analyse, snapshot), lambda one: one.claim)
        for name, analyse in ANALYSERS[concern].items()
    ]
    dropped = 0
    model = configured_model()
    if model is not None:
        claimed, dropped = await use(
            context, "model", partial(ask_model, context, model, concern, snapshot), lambda one: one[0].claim
        )
        found.append(claimed)
    review = review_of(concern, snapshot, found).model_copy(update={"rejected": dropped})
    await _hand_on(context, f"{concern}-review", review, in_words(review.open))
    counts = dict[str, JsonValue](count_by_severity(review.open))
    return StageResult(report=render_report(report_of(review, snapshot, most=_TOLD)), output=counts)


async def _hand_on(context: Context, id: str, result: Record, summary: str) -> None:
    """Write a stage's result as an artifact for the next one."""
    await context.artifacts.write(id, result.model_dump_json(), type=id, summary=summary)


async def _handed(context: Context, id: str, kind: type[RecordT]) -> RecordT:
    """Return what an earlier stage handed on; the store has checked its hash."""
    return await asyncio.to_thread(kind.model_validate_json, await context.artifacts.read(id))


def _merged(snapshot: Snapshot, reviews: list[Review], fail_on: Severity) -> tuple[str, str]:
    """Return the merged report as Markdown, and the findings as SARIF; for thousands of findings this takes a while."""
    told = [report_of(review, snapshot) for review in reviews]
    merged = merge_reports(told, sender=COORDINATOR, receiver="parent", task=f"Review {snapshot.name}")
    report = completed(merged, snapshot, reviews, fail_on, [REPORT, SARIF])
    return render_report(report), to_sarif(snapshot, reviews)


def _write(out: Path, files: dict[str, str]) -> None:
    """Write the review's files whole; nothing else in the folder is touched."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_bytes(out, name, text.encode())
    except OSError as error:
        raise CodeReviewError(f"the output folder {str(out)!r} cannot be written ({error.strerror})") from None


def _scope_in_words(snapshot: Snapshot) -> str:
    size = f"{counted(len(snapshot.files), 'file')} with {counted(snapshot.lines, 'line')}"
    return f"Under review: {_what(snapshot)}, {size}"


def _what(snapshot: Snapshot) -> str:
    return f"what changed {snapshot.compared_with}" if snapshot.compared_with else "the whole project"


def _output_folder(context: Context) -> Path:
    """Return the folder to write to.

    Raises:
        CodeReviewError: It lies in the source, which is never written to.
    """
    out, source = Path(_text(context, "output")), Path(_text(context, "source"))
    place, top = out.resolve(), source.resolve()
    if place.is_relative_to(top):
        raise CodeReviewError(
            f"the output folder {str(out)!r} lies in the source, which is never written to; choose one outside it"
        )
    return out


def _fail_on(context: Context) -> Severity:
    """Return the least severity for which changes are requested.

    Raises:
        CodeReviewError: It is no severity.
    """
    given = context.params.get("fail_on", "high")
    for severity in SEVERITIES:
        if given == severity:
            return severity
    raise CodeReviewError(f"the parameter 'fail_on' is {given!r}; it must be one of {', '.join(SEVERITIES)}")


def _text(context: Context, name: str) -> str:
    """Return a parameter that is a text."""
    return required_text(context.params, name, _USAGE, CodeReviewError)
