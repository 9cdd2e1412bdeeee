"""Runs a cohort in the lab: starts or resumes the lab run, hosts its workflow, and returns what came of it."""

import asyncio
import base64
import re
from collections.abc import Callable, Sequence

from pydantic import ValidationError
from pydantic_core import to_json
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from baton.artifacts.store import ArtifactStore
from baton.core.history import Spend
from baton.core.lab import LAB_RUN
from baton.errors import ArtifactError, PipelineError
from baton.lab.client_cases import read_outcome
from baton.lab.records import (
    BASELINE,
    MAX_BYTES,
    Case,
    Cohort,
    LabError,
    LabOptions,
    LabStart,
    Lane,
    Outcome,
    Ran,
    Results,
    Sample,
    path_id,
)
from baton.lab.workflow import LabRun
from baton.plugin import AT_ONCE, BatonPlugin
from baton.wire.json_values import canonical_json, format_digest, sha256
from baton.wire.store_clock import now_utc
from baton.wire.text import describe_faults

_REFERENCE = re.compile(rb'"(?:hash|whole)":"(?:sha256:)?([0-9a-f]{64})"')


async def run_lab(
    client: Client,
    cohort: Cohort,
    candidates: Sequence[Lane] = (),
    options: LabOptions | None = None,
    *,
    id: str | None = None,
    started: Callable[[str], None] = lambda id: None,
) -> Results:
    """Run a cohort's cases in the baseline and in each candidate, and return what came of them.

    The lab run is a workflow, hosted in this process: if the process ends, the same call takes the run up where it was.
    The stages run on their own workers.

    Args:
        client: A client with `BatonPlugin`, with the workers' keys and artifact store.
        cohort: The cohort.
        candidates: The lanes beside the baseline.
        options: How it goes.
        id: The workflow's id; by default made from what is run, so that the same call finds an open run.
        started: Called with the workflow's id.

    Raises:
        LabError: The cohort has no case, or one that cannot be run, two lanes have one name, it is all too much, or the
            client has no artifact store.
        temporalio.client.WorkflowFailureError: The lab run failed or was cancelled.

    Example:
        ```python
        mini = Lane(name="mini", overrides=Overrides(model="gpt-5-mini"))
        results = await run_lab(client, Cohort.from_bytes(file.read_bytes(), str(file)), [mini], LabOptions(repeat=3))
        ```
    """
    store = _store_of(client)
    names = [BASELINE, *(lane.name for lane in candidates)]
    if len({*names}) < len(names):
        raise LabError(f"two lanes have one name: {', '.join(names)}")
    if not cohort.cases:
        raise LabError(f"cohort {cohort.name!r} has no case; `baton lab add` adds one")
    await unpack(cohort, store)
    start = await _make_start(cohort, [Lane(name=BASELINE), *candidates], options or LabOptions(), store)
    key = format_digest(sha256(canonical_json(start.to_json_object())))[7:19]
    workflow_id = id or f"lab-{cohort.name}-{key}"
    worker = Worker(
        client, task_queue=f"baton-lab-{workflow_id}"[:200], workflows=[LabRun], graceful_shutdown_timeout=AT_ONCE
    )
    async with worker:
        handle = await client.start_workflow(
            LAB_RUN,
            start,
            id=workflow_id,
            task_queue=worker.task_queue,
            result_type=list[Ran],
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        started(handle.id)
        result = await handle.result()
    items = start.items
    ran = [await _whole(client, cohort.cases[items[each.item][0]], handle.id, each) for each in result]
    return _results(cohort, start, handle.id, ran)


async def _make_start(cohort: Cohort, lanes: list[Lane], options: LabOptions, store: ArtifactStore) -> LabStart:
    """Return the input of a lab run: what its workflow reads is checked here, and small enough."""
    for case in cohort.cases:
        try:
            case.pipeline_input.recorded() if case.path else case.stage_input
        except (ValidationError, PipelineError) as error:
            raise LabError(f"case {case.id!r} cannot be run, its input is damaged: {describe_faults(error)}") from error
    for lane in lanes:
        if lane.overrides.stage not in (None, *cohort.stages):
            known = ", ".join(cohort.stages)
            raise LabError(f"{lane.name!r} changes the stage {lane.overrides.stage!r}; the cases have {known}")
    answers = {
        case.id: await store.put(to_json([call.to_json_object() for call in case.tool_calls]))
        for case in cohort.cases
        if case.tool_calls
    }
    cases = [_without_recording(case) for case in cohort.cases]
    size = len(to_json([case.to_json_object() for case in cases]))
    if size > MAX_BYTES:
        raise LabError(f"the inputs of cohort {cohort.name!r} have {size:,} bytes; at most {MAX_BYTES:,}: make several")
    try:
        return LabStart(digest=cohort.digest, cases=cases, answers=answers, lanes=lanes, options=options)
    except ValidationError as error:
        raise LabError(f"cohort {cohort.name!r} cannot be run: {describe_faults(error)}") from error


async def _whole(client: Client, case: Case, lab_run: str, ran: Ran) -> Ran:
    """Return what came of an item; of several stages, the history has it."""
    if not case.path or ran.outcome is None:
        return ran
    outcome = await read_outcome(client, path_id(lab_run, ran.item), case)
    return ran.model_copy(update={"outcome": outcome, "spend": outcome.spend})


def _without_recording(case: Case) -> Case:
    """Return a case without what the lab run does not need, so that its input is small."""
    recorded = Outcome(spend=case.recorded.spend)
    return case.model_copy(update={"recorded": recorded, "tool_calls": [], "should": None, "dropped": []})


def _results(cohort: Cohort, start: LabStart, workflow_id: str, ran: list[Ran]) -> Results:
    samples: dict[tuple[str, str], list[Outcome]] = {}
    items = start.items
    for each in ran:
        case, _, lane = items[each.item]
        found = samples.setdefault((start.cases[case].id, start.lanes[lane].name), [])
        found += [] if each.outcome is None else [each.outcome]
    return Results(
        cohort=cohort.name,
        digest=cohort.digest,
        workflow_id=workflow_id,
        at=now_utc(),
        repeat=start.options.repeat,
        lanes=start.lanes,
        samples=[Sample(case=case, lane=lane, outcomes=found) for (case, lane), found in samples.items()],
        unrun=sum(each.outcome is None for each in ran),
        spend=sum((each.spend for each in ran), start=Spend()),
    )


def _store_of(client: Client) -> ArtifactStore:
    """Return the artifact store that a client's workers share."""
    plugins = client.config(active_config=True)["plugins"]
    store = next((plugin.artifacts for plugin in plugins if isinstance(plugin, BatonPlugin)), None)
    if store is None:
        raise LabError("the lab hands recorded tool calls over by the artifact store: connect with BatonPlugin and one")
    return store


async def pack(cohort: Cohort, store: ArtifactStore) -> tuple[Cohort, list[str]]:
    """Return a cohort with the bytes of all artifacts that its cases refer to, and those that the store lacks."""
    packed, lost = dict(cohort.artifacts), list[str]()
    found = [sha.decode() for case in cohort.cases for sha in _REFERENCE.findall(to_json(case.given))]
    for sha in [sha for sha in dict.fromkeys(found) if sha not in packed]:
        try:
            packed[sha] = base64.b64encode(await store.get(sha)).decode()
        except ArtifactError:
            lost.append(sha)
    return cohort.model_copy(update={"artifacts": packed}), lost


async def unpack(cohort: Cohort, store: ArtifactStore) -> None:
    """Put a packed cohort's artifacts into a store.

    Raises:
        LabError: An artifact is not the one that its cases refer to.
    """
    stored = await asyncio.gather(*(store.put(base64.b64decode(text)) for text in cohort.artifacts.values()))
    if changed := [sha for sha, found in zip(cohort.artifacts, stored, strict=True) if sha != found]:
        raise LabError(f"cohort {cohort.name!r}: the artifact {changed[0]} was changed; pack the cohort again")
