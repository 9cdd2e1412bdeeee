"""Pages for a task's audit, its evidence bundle, and a run's personal data, which opens after a reason is given."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from baton.client import Erased, PersonalData, Role, RunRecord, Trace, standing
from baton.console.forms import check_reason
from baton.console.pages_run import read_requested_run
from baton.console.rendering import file_response, get_sources, query_param, render, run_path
from baton.console.security import action, get_viewer, page
from baton.console.sources import Sources

_ERASURE = "ERASURE"


async def _run(request: Request, sources: Sources) -> RunRecord | None:
    """Return the run that the address names, or None."""
    workflow_id = request.query_params.get("id")
    return await sources.run(workflow_id, request.query_params.get("run") or None) if workflow_id else None


def basis(trace: Trace) -> list[str]:
    """Return what a verdict is based on, and what was not checked, as sentences."""
    report = trace.report
    lines = [f"The hash chain links records 1 to {report.linked}." if report.linked else "It has no records."]
    if report.signed_through:
        lines.append(f"A signature covers records 1 to {report.signed_through}.")
    else:
        lines.append("No signature was verified: their public keys are not available.")
    if report.anchored_through:
        lines.append(f"An anchor outside the ledger covers records 1 to {report.anchored_through}.")
    if report.compared_at is not None:
        lines.append(
            f"That anchor is the checkpoint of {report.compared_at:%Y-%m-%d %H:%M:%S} UTC: what was added after it and "
            "cut off again would not be noticed."
        )
    if report.anchored_through < report.linked:
        lines.append(
            "Whether later records were cut off was not checked: no anchor outside the ledger covers the last."
        )
    for finding in report.findings:
        lines.append(f"Record {finding.sequence}: {finding.reason}" if finding.sequence else finding.reason)
    return lines


async def audit(request: Request) -> Response:
    """Show a task's records."""
    sources, task = get_sources(request), query_param(request, "task")
    run, runs = await _run(request, sources), await sources.task_runs(task)
    trace = await sources.trace(task, [*runs, run] if run else runs)
    pairs = list(zip(trace.linked, trace.headers, strict=True))
    values = {
        "task": task,
        "run": run,
        "trace": trace,
        "basis": basis(trace),
        "verdict": trace.report.verdict.value,
        "runs": [(task_run, standing(task_run, await sources.waits(task_run)).status) for task_run in runs],
        "rows": pairs,
        "erasures": [(record, header) for record, header in pairs if header.kind == _ERASURE],
    }
    return render(request, "audit.html", values)


async def evidence(request: Request) -> Response:
    """Return a task's evidence as a bundle that verifies without the ledger."""
    sources, task = get_sources(request), query_param(request, "task")
    ledger, evidence = await sources.ledger(), sources.evidence
    assert evidence is not None  # noqa: S101 - else there is no ledger
    verifier, keys = await asyncio.to_thread(evidence.read_keys)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "evidence.zst"
        await ledger.export(bundle, [task], keys=[*keys], verifier=verifier)
        data = await asyncio.to_thread(bundle.read_bytes)
    return file_response(data, f"{task}.zst", media="application/zstd")


async def show_sealed(request: Request) -> Response:
    """Show which personal data a run has, without its values."""
    return _personal_page(request, await read_requested_run(request))


async def open_data(request: Request, form: Mapping[str, str]) -> Response:
    """Record who opens personal data and why, then show it."""
    run, why = await read_requested_run(request), form.get("why", "").strip()
    if fault := check_reason(why):
        return _personal_page(request, run, fault=fault)
    return _personal_page(request, run, known=await get_sources(request).disclose(run, get_viewer(request).name, why))


def _personal_page(request: Request, run: RunRecord, *, known: PersonalData | None = None, fault: str = "") -> Response:
    sealed_fields = ((who, entry.get("fields")) for who, entry in run.personal_data.items() if isinstance(entry, dict))
    values = {
        "run": run,
        "people": {who: sorted(fields) if isinstance(fields, dict) else [] for who, fields in sealed_fields},
        "known": known,
        "erased": {who: data for who, data in (known or {}).items() if isinstance(data, Erased)},
        "fault": fault,
        "action": run_path(run.workflow_id, run.run_id, "/personal"),
    }
    return render(request, "personal.html", values, status=422 if fault else 200)


ROUTES = [
    page("/audit", audit),
    page("/audit/evidence", evidence),
    page("/run/personal", show_sealed),
    action("/run/personal", open_data, Role.OPERATOR),
]
