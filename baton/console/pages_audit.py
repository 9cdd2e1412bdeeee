"""The audit of a task: its chain, the verdict with what it is based on, its evidence, what was erased."""

import asyncio
import tempfile
from pathlib import Path
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from baton.client import RunRecord, Trace
from baton.console.pages_run import sources_of
from baton.console.rendering import render
from baton.console.report import report
from baton.console.security import page
from baton.console.sources import Sources

_ERASURE = "ERASURE"


def _task(request: Request) -> str:
    task = request.query_params.get("task", "").strip()
    if not task:
        raise HTTPException(404, "the address names no task")
    return task


async def _run(request: Request, sources: Sources) -> RunRecord | None:
    """Return the run whose page led here."""
    workflow_id = request.query_params.get("id")
    return await sources.run(workflow_id, request.query_params.get("run") or None) if workflow_id else None


def basis(trace: Trace) -> list[str]:
    """Return what a verdict is based on, and what was not checked."""
    found = trace.report
    told = [f"The hash chain links records 1 to {found.records}." if found.records else "It has no records."]
    if found.signed_through:
        told.append(f"A signature covers records 1 to {found.signed_through}.")
    else:
        told.append("No signature was verified: no public key that made one is at hand.")
    if found.anchored_through:
        told.append(f"What was kept outside the ledger covers records 1 to {found.anchored_through}.")
    if found.anchored_through < found.records:
        told.append("Whether later records were cut off was not checked: nothing outside the ledger covers the last.")
    if found.reason:
        told.append(f"Record {found.sequence or found.records}: {found.reason}")
    return told


async def audit(request: Request) -> Response:
    """Show the records of a task."""
    sources, task = sources_of(request), _task(request)
    run, runs = await _run(request, sources), await sources.runs_of(task)
    trace = await sources.trace(task, [*runs, run] if run else runs)
    pairs = list(zip(trace.linked, trace.headers, strict=True))
    values = {
        "task": task,
        "run": run,
        "trace": trace,
        "basis": basis(trace),
        "verdict": trace.report.verdict.value,
        "runs": runs,
        "rows": pairs,
        "erasures": [(record, header) for record, header in pairs if header.kind == _ERASURE],
    }
    return render(request, "audit.html", values)


async def evidence(request: Request) -> Response:
    """Return a task's evidence as a bundle that others verify without the ledger."""
    sources, task = sources_of(request), _task(request)
    ledger, known = await sources.ledger(), sources.evidence
    assert known is not None  # noqa: S101 - else there is no ledger
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "evidence.zst"
        await ledger.export(file, [task], keys=[*known.keys], verifier=known.verifier)
        data = await asyncio.to_thread(file.read_bytes)
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(task, safe='')}.zst"}
    return Response(data, media_type="application/zstd", headers=headers)


async def saved(request: Request) -> Response:
    """Return a run as one file to save."""
    workflow_id = request.query_params.get("id", "")
    text = await report(sources_of(request), workflow_id, request.query_params.get("run") or None)
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(workflow_id, safe='')}.html"}
    return HTMLResponse(text, headers=headers)


ROUTES = [page("/audit", audit), page("/audit/evidence", evidence), page("/run/report", saved)]
