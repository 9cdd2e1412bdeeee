"""The audit of a task, its evidence to download, and the personal data of a run, sealed until somebody says why."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from baton.client import Erased, PersonalData, RunRecord, Trace, standing
from baton.console.forms import fault_of_reason
from baton.console.pages_run import run_of
from baton.console.rendering import file, named, render, run_path, sources_of
from baton.console.security import Role, action, page, viewer_of
from baton.console.sources import Sources

_ERASURE = "ERASURE"


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
    sources, task = sources_of(request), named(request, "task")
    run, runs = await _run(request, sources), await sources.runs_of(task)
    trace = await sources.trace(task, [*runs, run] if run else runs)
    pairs = list(zip(trace.linked, trace.headers, strict=True))
    values = {
        "task": task,
        "run": run,
        "trace": trace,
        "basis": basis(trace),
        "verdict": trace.report.verdict.value,
        "runs": [(one, standing(one, await sources.waits(one)).status) for one in runs],
        "rows": pairs,
        "erasures": [(record, header) for record, header in pairs if header.kind == _ERASURE],
    }
    return render(request, "audit.html", values)


async def evidence(request: Request) -> Response:
    """Return a task's evidence as a bundle that others verify without the ledger."""
    sources, task = sources_of(request), named(request, "task")
    ledger, known = await sources.ledger(), sources.evidence
    assert known is not None  # noqa: S101 - else there is no ledger
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "evidence.zst"
        await ledger.export(bundle, [task], keys=[*known.keys], verifier=known.verifier)
        data = await asyncio.to_thread(bundle.read_bytes)
    return file(data, f"{task}.zst", media="application/zstd")


async def sealed(request: Request) -> Response:
    """Show of whom a run knows what, without what it is."""
    return _shown(request, await run_of(request))


async def opened(request: Request, form: Mapping[str, str]) -> Response:
    """Show the values, once it is on record who opened them and why."""
    run, why = await run_of(request), form.get("why", "").strip()
    if fault := fault_of_reason(why):
        return _shown(request, run, fault=fault)
    return _shown(request, run, known=await sources_of(request).disclosed(run, viewer_of(request).name, why))


def _shown(request: Request, run: RunRecord, *, known: PersonalData | None = None, fault: str = "") -> Response:
    sealed_fields = ((who, entry.get("fields")) for who, entry in run.personal_data.items() if isinstance(entry, dict))
    values = {
        "run": run,
        "people": {who: sorted(fields) if isinstance(fields, dict) else [] for who, fields in sealed_fields},
        "known": known,
        "erased": {who: one for who, one in (known or {}).items() if isinstance(one, Erased)},
        "fault": fault,
        "action": run_path(run.workflow_id, run.run_id, "/personal"),
    }
    return render(request, "personal.html", values, status=422 if fault else 200)


ROUTES = [
    page("/audit", audit),
    page("/audit/evidence", evidence),
    page("/run/personal", sealed),
    action("/run/personal", opened, Role.OPERATOR),
]
