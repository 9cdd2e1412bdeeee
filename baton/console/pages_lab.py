"""Pages of the lab: cohorts, their cases with differences first, a case side by side, and runs for a new cohort."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from baton.client import ListedRun, Role, RunFilter
from baton.client.faces import list_page, read_texts
from baton.console.forms import NO_SUBMISSION, Submission
from baton.console.rendering import get_sources, query_param, render
from baton.console.security import action, page
from baton.errors import BatonError
from baton.lab import (
    BASELINE,
    DECISION,
    Case,
    Cohort,
    Compared,
    Judging,
    LabError,
    Lane,
    LaneReport,
    Outcome,
    Results,
    decided,
    decision_of,
    distinct,
    gate,
    list_cohorts,
    load_cohort,
    load_results,
    make_cohort,
    prompt_changes,
    ranked,
    report,
    save_cohort,
)

MENU = ("/lab", "Lab")

_MOST = 100  # runs to choose from
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_WIDTH, _HEIGHT = 240, 48  # of the picture of the gate's figure


@dataclass(frozen=True)
class Kept:
    """A cohort with what came of it last, judged."""

    name: str
    cohort: Cohort
    results: Results | None = None
    reports: Sequence[LaneReport] = ()
    trouble: str = ""

    @property
    def judged(self) -> list[tuple[LaneReport, list[str]]]:
        """The lanes that the gate judges, each with why it refuses it."""
        return [] if self.results is None else gate(self.cohort, self.results, self.reports)


def read_cohorts(folder: Path | None) -> list[Kept]:
    """Return the cohorts of a folder; one that cannot be read says why."""
    return [_read(file) for file in list_cohorts(folder)] if folder else []


def _read(file: Path) -> Kept:
    try:
        cohort = load_cohort(str(file))
    except BatonError as error:
        return Kept(file.stem, Cohort(name=file.stem), trouble=str(error))
    try:
        results = load_results(str(file), cohort)
    except BatonError as error:
        is_run = file.with_suffix(".results.json").exists()
        return Kept(file.stem, cohort, trouble=str(error) if is_run else "")
    return Kept(file.stem, cohort, results, report(cohort, results))


def cases_of(folder: Path | None, workflow_id: str) -> list[tuple[Kept, list[dict[str, Any]]]]:
    """Return what the lab made of a run: by cohort that was run, the rows of its cases."""
    found = []
    for kept in read_cohorts(folder):
        cases = [(case, marks) for case, marks in ranked(kept.cohort, kept.reports) if kept.results]
        if rows := [_row(kept, case, marks) for case, marks in cases if case.source.workflow_id == workflow_id]:
            found.append((kept, rows))
    return found


async def _requested(request: Request) -> Kept:
    """Return the cohort that the address names; only those of the folder are known."""
    name = query_param(request, "cohort")
    files = {file.stem: file for file in list_cohorts(folder)} if (folder := get_sources(request).lab) else {}
    found = await asyncio.to_thread(_read, files[name]) if name in files else None
    if found is None:
        raise HTTPException(404, f"there is no cohort {name!r} in the console's folder; `baton lab new` makes one")
    return found


async def cohorts(request: Request) -> Response:
    """Show the cohorts of the folder, each with the gate's figure."""
    found = await asyncio.to_thread(read_cohorts, get_sources(request).lab)
    return render(request, "lab.html", {"cohorts": found, "same": _same})


async def cohort(request: Request) -> Response:
    """Show the cases of a cohort, those that differ first, what the gate says, and its figure over time."""
    kept = await _requested(request)
    lanes = [lane.name for lane in kept.results.lanes] if kept.results else []
    rows = [_row(kept, case, marks) for case, marks in ranked(kept.cohort, kept.reports)]
    return render(
        request, "lab_cohort.html", {"kept": kept, "lanes": lanes, "rows": rows, "same": _same, **_drawing(kept)}
    )


def _same(lane: LaneReport) -> tuple[int, int]:
    return lane.same(DECISION)


def _row(kept: Kept, case: Case, marks: Mapping[str, Compared]) -> dict[str, Any]:
    judging, results = kept.cohort.judging, kept.results
    cells = [decided(results.outcomes(case.id, lane.name), judging) for lane in results.lanes] if results else []
    notes = [(lane, one) for lane, one in marks.items() if one.mark.value != "same"]
    return {"case": case, "recorded": decided([case.recorded], judging), "cells": cells, "notes": notes}


def _drawing(kept: Kept) -> dict[str, Any]:
    """Return the points of the gate's figure over time, a line for each lane: the share of equal decisions."""
    figures = kept.results.figures if kept.results else []
    times = sorted({figure.at for figure in figures})
    lines: dict[str, list[Any]] = {}
    for figure in figures:
        share = figure.same / figure.count if figure.count else 0.0
        left = _WIDTH * times.index(figure.at) / max(len(times) - 1, 1)
        lines.setdefault(figure.lane, []).append((round(left), round(_HEIGHT * (1 - share)), figure))
    return {"lines": lines, "width": _WIDTH, "height": _HEIGHT, "times": times}


async def case(request: Request) -> Response:
    """Show a case side by side: what was recorded, the baseline, and each candidate."""
    kept, id = await _requested(request), query_param(request, "case")
    try:
        chosen = kept.cohort.case(id)
    except LabError as error:
        raise HTTPException(404, str(error)) from None
    judging = kept.cohort.judging
    sides: list[tuple[str, list[tuple[Outcome, int]], int]] = [("recorded", [(chosen.recorded, 1)], 1)]
    prompts: list[tuple[Lane, list[str], bool]] = []
    if kept.results is not None:
        found = {lane.name: kept.results.outcomes(id, lane.name) for lane in kept.results.lanes}
        sides += [(lane, distinct(outcomes, judging), len(outcomes)) for lane, outcomes in found.items()]
        get = get_sources(request).artifact
        texts = {lane: await read_texts(get, kept.results.prompts(chosen, lane)) for lane in found}
        base = texts.get(BASELINE, {})
        for lane in kept.results.lanes[1:]:
            steps = [step for step in texts[lane.name] if step in base]
            changes = [prompt_changes(base[step], texts[lane.name][step], f"{lane.name}: {step}") for step in steps]
            prompts.append((lane, [line for lines in changes for line in lines], bool(steps)))
    values = {"kept": kept, "case": chosen, "sides": sides, "prompts": prompts}
    return render(request, "lab_case.html", {**values, "decision_of": lambda outcome: decision_of(outcome, judging)})


async def _choosing(request: Request, submission: Submission = NO_SUBMISSION) -> Response:
    params, inputs = request.query_params, submission.inputs
    run_filter = RunFilter(pipeline=params.get("pipeline") or None, status=params.get("status", "").upper() or None)
    listed: list[ListedRun] = (await list_page(await get_sources(request).client(), run_filter, limit=_MOST)).runs
    values = {
        "listed": listed,
        "params": params,
        "picked": [run.workflow_id for run in listed if f"pick {run.workflow_id}" in inputs],
        **vars(submission),
        "inputs": {"name": "", "stage": "", **inputs},
        "folder": get_sources(request).lab,
        "action": f"/lab/new?{urlencode(params)}",
    }
    return render(request, "lab_choose.html", values, status=submission.status)


async def choose(request: Request) -> Response:
    """Show runs to choose from for a new cohort."""
    return await _choosing(request)


async def new(request: Request, form: Mapping[str, str]) -> Response:
    """Make a cohort of the chosen runs, and show it."""
    sources, name, stage = get_sources(request), form.get("name", "").strip(), form.get("stage", "").strip()
    runs = [(key.removeprefix("pick "), None) for key in form if key.startswith("pick ")]
    faults = {}
    if sources.lab is None or sources.artifacts is None:
        raise BatonError("this console was started without a folder for cohorts, or without an artifact store")
    if not _NAME.fullmatch(name):
        faults["name"] = "1 to 64 letters, digits, - and _"
    elif name in {file.stem for file in list_cohorts(sources.lab)}:
        faults["name"] = "there is a cohort of this name; choose another"
    if not runs:
        faults["picked"] = "choose a run"
    refused = ""
    if not faults:
        try:
            client = await sources.client()
            made, _ = await make_cohort(client, name, runs, stage or None, Judging(), sources.artifacts)
        except BatonError as error:
            refused = str(error)
        else:
            save_cohort(str(sources.lab / f"{name}.json"), made)
            return RedirectResponse(f"/lab/cohort?{urlencode({'cohort': name})}", status_code=303)
    return await _choosing(request, Submission(dict(form), faults, refused))


ROUTES = [
    page("/lab", cohorts),
    page("/lab/cohort", cohort),
    page("/lab/case", case, Role.OPERATOR),
    page("/lab/choose", choose, Role.OPERATOR),
    action("/lab/new", new, Role.OPERATOR),
]
