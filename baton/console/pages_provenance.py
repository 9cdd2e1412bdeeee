"""Pages that tell where a value of a run comes from, and what an agent was asked and answered."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from baton import HistoryError
from baton.client import Explanation, Provenance, ReadTranscript, Role, RunRecord, explain, why
from baton.client.faces import explain_in, moments
from baton.console.content import MAX_CHARACTERS
from baton.console.forms import check_reason
from baton.console.pages_run import nonempty_fields, read_requested_run
from baton.console.rendering import get_sources, query_param, render, run_path
from baton.console.security import action, get_viewer, page

_OUTPUT = "output"
_NAME = re.compile(r"[^.\[\]]+")  # what a path can have between its points
_MAX_SHOWN = 3_000_000  # characters of a page of transcripts
_MAX_INDENT = 12  # levels; deeper ones stand below each other


async def show_why(request: Request) -> Response:
    """Show where a value comes from, or what else there is to ask for."""
    run, path = await read_requested_run(request), request.query_params.get("path", "").strip()
    provenance, trouble = None, ""
    path = path or _first_path(run)
    try:
        client = await get_sources(request).client()
        provenance = await why(client, run.workflow_id, path, run_id=run.run_id)
    except HistoryError as error:
        trouble = str(error)
    values = {
        "run": run,
        "asked": path,
        "trouble": trouble,
        "rows": [] if provenance is None else _rows(provenance),
        "more": 0 if provenance is None else provenance.more,
        "offered": offered_paths(run),
    }
    return render(request, "why.html", values, status=404 if trouble else 200)


def _rows(provenance: Provenance) -> list[tuple[int, object, bool]]:
    return [(min(depth, _MAX_INDENT), reason, is_told) for depth, reason, is_told in provenance.tree()]


def _first_path(run: RunRecord) -> str:
    return next(iter(offered_paths(run)), _OUTPUT)


def offered_paths(run: RunRecord) -> list[str]:
    """Return what can be asked about a run: its output with the members that a path can name, its fields, artifacts."""
    output = run.result.output if run.result else None
    names = filter(_NAME.fullmatch, output if isinstance(output, dict) else ())
    members = [f"{_OUTPUT}.{name}" for name in names]
    fields = [name for name, _ in nonempty_fields(run.baton)]
    return [*([] if output is None else [_OUTPUT]), *members, *fields, *(ref.id for ref in run.baton.artifacts)]


async def show_transcript(request: Request) -> Response:
    """Show what the agents of a stage were asked and answered, unless it is sealed."""
    explanation = await _explanation(request)
    return await _transcript_page(request, explanation, await get_sources(request).transcripts(explanation.transcripts))


async def open_transcript(request: Request, form: Mapping[str, str]) -> Response:
    """Record who opens what is sealed and why, then show it."""
    explanation, why = await _explanation(request), form.get("why", "").strip()
    sources = get_sources(request)
    if fault := check_reason(why):
        read = await sources.transcripts(explanation.transcripts)
        return await _transcript_page(request, explanation, read, fault=fault)
    run, name = await read_requested_run(request), get_viewer(request).name
    read = await sources.open_transcripts(run, explanation.transcripts, name, why)
    return await _transcript_page(request, explanation, read, opened=True)


async def _explanation(request: Request) -> Explanation:
    run, seq, stage = await read_requested_run(request), query_param(request, "step"), query_param(request, "stage")
    try:
        return explain_in(run, stage, {run.step(seq).seq})
    except HistoryError:  # an earlier run executed it
        return await explain(await get_sources(request).client(), run.workflow_id, seq, run_id=run.run_id)


async def _transcript_page(
    request: Request,
    explanation: Explanation,
    read: Sequence[ReadTranscript],
    *,
    fault: str = "",
    opened: bool = False,
) -> Response:
    run, stage = await read_requested_run(request), query_param(request, "stage")
    values = {
        "run": run,
        "explanation": explanation,
        "attempts": _attempts(read),
        "sealed": any(one.is_sealed and one.transcript is None for one in read),
        "opened": opened,
        "fault": fault,
        "action": run_path(run.workflow_id, run.run_id, "/transcript", step=explanation.seq, stage=stage),
    }
    return render(request, "transcript.html", values, status=422 if fault else 200)


def _attempts(read: Sequence[ReadTranscript]) -> list[tuple[ReadTranscript, list[Any]]]:
    """Return each attempt with what its agents did, cut to what a page can show."""
    left, attempts = _MAX_SHOWN, []
    for one in read:
        found = []
        for moment in [] if one.transcript is None else moments(one.transcript):
            texts = []
            for label, text in moment.texts:
                kept = text[: min(left, MAX_CHARACTERS)]
                left -= len(kept)
                more = len(text) - len(kept)
                texts.append(
                    (label, f"{kept}… {more:,} more characters: `baton explain` prints them" if more else kept)
                )
            found.append(replace(moment, texts=texts))
        attempts.append((one, found))
    return attempts


ROUTES = [
    page("/run/why", show_why),
    page("/run/transcript", show_transcript, Role.OPERATOR),
    action("/run/transcript", open_transcript, Role.OPERATOR),
]
