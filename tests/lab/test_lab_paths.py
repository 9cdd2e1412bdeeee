"""Several stages of a run, or all of it, as a case: the pipeline's own code runs, and nothing leaves it."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineInput, Spend, WorkerParts
from baton.client import read_run
from baton.client.faces import ArtifactStore
from baton.devserver import DevServer
from baton.lab import (
    Case,
    Cohort,
    LabError,
    LabOptions,
    Lane,
    Outcome,
    Overrides,
    Unrecorded,
    read_cases,
    report,
    run_lab,
)
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker, run_pipeline
from tests.lab.letters import file_stage, filing, find_stage
from tests.lab.refunds import (
    EFFECTS,
    LIMITS,
    WAYS,
    Mails,
    book,
    booking,
    decide,
    insisting,
    mailing,
    once,
    outsourced,
    reviewed,
    sneaking,
    transfer,
    tried,
)
from tests.lab.test_lab_effects import decide_elsewhere, send_mail

SMALL = Lane(name="small", overrides=Overrides(stage="decide", model="small"))


@pytest.fixture
async def office(sealed: Client) -> AsyncIterator[Worker]:
    workflows: list[Any] = [reviewed, sneaking, insisting, booking, outsourced, mailing, Mails]
    async with pipeline_worker(sealed, workflows, [decide, tried, book, transfer, send_mail]) as worker:
        yield worker


@pytest.fixture
async def unsealed(server: DevServer, kept: ArtifactStore) -> AsyncIterator[Worker]:
    """Return a worker without safeguards."""
    plugin = BatonPlugin(WorkerParts(artifacts=kept), safeguards="off")
    client = await Client.connect(server.address, plugins=[plugin])
    workflows: list[Any] = [sneaking, mailing]
    async with pipeline_worker(client, workflows, [decide, transfer, send_mail]) as worker:
        yield worker


async def record(
    worker: Worker, order: int, path: str, kept: ArtifactStore, pipeline: Any = reviewed, **params: Any
) -> Case:
    """Return a path of a new run, which a manager approved."""
    start = PipelineInput(goal=f"Refund order {order}", params={"order": order, **params})
    decisions = {"manager": True} if pipeline is reviewed else {}
    run = await run_pipeline(worker, pipeline, start, id=f"path-{order}-{uuid4().hex[:6]}", decisions=decisions)
    [case] = await read_cases(worker.client, run.handle.id, path, store=kept)
    EFFECTS.clear()
    return case


async def outcomes(worker: Worker, case: Case, *lanes: Lane, **options: Any) -> tuple[Any, list[Outcome]]:
    """Return a lab run's reports and what a case came to in each lane."""
    cohort = Cohort(name="paths", cases=[case])
    assert Cohort.from_bytes(cohort.to_bytes(), "paths.json") == cohort
    results = await run_lab(worker.client, cohort, lanes, LabOptions(**options))
    found = [results.outcomes(case.id, lane.name)[0] for lane in results.lanes]
    return report(cohort, results), found


async def test_a_whole_run_is_answered_as_recorded(office: Worker, kept: ArtifactStore) -> None:
    """Its stage without a model is answered from the record, its approval as people decided, and nobody waits."""
    case = await record(office, 3, "..", kept, sleeps=0)
    assert (case.path, case.stage, case.recorded.output) == (
        "decide..",
        "reviewed",
        {"verdict": "approve", "amount": 30},
    )
    reports, [baseline] = await outcomes(office, case)
    assert (baseline.failure, baseline.output, baseline.baton_patch) == (
        "",
        case.recorded.output,
        case.recorded.baton_patch,
    )
    assert [call.how for call in baseline.calls] == ["recorded"]
    assert (baseline.spend, reports[0].base_micro_usd) == (case.recorded.spend, 1_000)
    assert EFFECTS == []


async def test_a_stage_is_answered_with_what_its_pipeline_accepted(office: Worker, kept: ArtifactStore) -> None:
    """Not with an attempt that was refused, though it worked on the same."""
    case = await record(office, 3, "..", kept, booking)
    assert (case.recorded.attempts, case.recorded.output) == (2, "booked")
    assert [call.arguments for call in case.tool_calls if call.is_stage] == [case.tool_calls[0].arguments]
    _, [baseline] = await outcomes(office, case)
    assert (baseline.failure, baseline.output, baseline.attempts, EFFECTS) == ("", "booked", 1, [])


async def test_a_case_of_several_stages_ends_with_its_budget(office: Worker, kept: ArtifactStore) -> None:
    """Each stage may cost what is left, none begins once it is used up, and code that goes on does nothing more."""
    case = await record(office, 3, "..", kept, insisting)
    assert (case.recorded.failure, case.recorded.spend.micro_usd) == ("", 3_000)
    LIMITS.clear()
    _, [ended] = await outcomes(office, case, case_micro_usd=1_500)
    assert (ended.spend.micro_usd, LIMITS) == (2_000, [1_500, 500])
    assert "used up" in ended.failure
    _, [whole] = await outcomes(office, case, case_micro_usd=3_000)
    assert (whole.failure, whole.spend.micro_usd, whole.output) == ("", 3_000, "decided")


async def test_one_case_spends_no_more_than_the_lab_run_has(office: Worker, kept: ArtifactStore) -> None:
    """It costs more than recorded: the budget ends it, so it is not judged, and what it cost is said."""
    case = await record(office, 3, "..", kept, insisting)
    cheap = case.model_copy(update={"recorded": case.recorded.model_copy(update={"spend": Spend(micro_usd=100)})})
    LIMITS.clear()
    results = await run_lab(office.client, Cohort(name="cheap", cases=[cheap]), [], LabOptions(budget_micro_usd=1_500))
    assert (results.unrun, results.spend.micro_usd, LIMITS) == (1, 2_000, [1_500, 500])
    assert results.outcomes(case.id, "baseline") == []
    later = await record(office, 3, "try 1..", kept, insisting)
    LIMITS.clear()
    results = await run_lab(office.client, Cohort(name="later", cases=[later]), [], LabOptions(budget_micro_usd=2_000))
    assert (results.unrun, results.spend.micro_usd, LIMITS) == (0, 2_000, [2_000, 1_000])


async def test_people_would_have_been_asked_again_where_they_saw_something_else(
    office: Worker, kept: ArtifactStore
) -> None:
    """The small model decides otherwise about order 7, so the recorded approval is not of what it shows."""
    case = await record(office, 7, "..", kept)
    reports, [baseline, small] = await outcomes(office, case, SMALL)
    assert (baseline.failure, baseline.output) == ("", {"verdict": "approve", "amount": 70})
    assert "would have asked again: 'manager'" in small.failure
    assert list(reports[1].failures) == ["would have asked again"]
    assert EFFECTS == []


@pytest.mark.parametrize("path", ["..", "decide"])
async def test_a_candidate_changes_a_stage_that_there_is(office: Worker, kept: ArtifactStore, path: str) -> None:
    case = await record(office, 7, path, kept)
    misspelt = Lane(name="small", overrides=Overrides(stage="decied", model="small"))
    with pytest.raises(LabError, match=r"'decied'.* decide"):
        await run_lab(office.client, Cohort(name="paths", cases=[case]), [misspelt])


async def test_a_range_begins_and_ends_where_it_says(office: Worker, kept: ArtifactStore) -> None:
    """Before it steps are as recorded; after it no step begins, so a changed decision asks nobody."""
    case = await record(office, 7, "..decide", kept)
    _, [baseline, small] = await outcomes(office, case, SMALL)
    assert [one.output for one in (baseline, small)] == [
        {"verdict": "approve", "amount": 70},
        {"verdict": "deny", "amount": 0},
    ]
    assert (baseline.failure, small.failure, small.spend.micro_usd) == ("", "", 100)
    later = await record(office, 7, "manager..", kept)
    _, [baseline] = await outcomes(office, later)
    assert (baseline.failure, baseline.spend.micro_usd, baseline.calls) == ("", 0, [])
    assert baseline.output == {"verdict": "approve", "amount": 70}
    assert EFFECTS == []


async def test_a_stage_without_a_model_is_refused_where_it_is_asked_something_else(
    office: Worker, kept: ArtifactStore
) -> None:
    """Unless somebody names it, which is their word that it has no effect."""
    case = await record(office, 3, "..", kept)
    case = case.model_copy(update={"tool_calls": [call for call in case.tool_calls if call.tool == "lookup"]})
    _, [refused] = await outcomes(office, case)
    assert "--allow" in refused.failure
    assert EFFECTS == []
    _, [named] = await outcomes(office, case, allow=["transfer"])
    assert (named.failure, EFFECTS) == ("", ["transferred"])


@pytest.mark.parametrize("sealing", [True, False])
async def test_a_pipelines_own_code_reaches_nothing(
    office: Worker, unsealed: Worker, kept: ArtifactStore, sealing: bool
) -> None:
    """Recorded, each way was open; in the lab, none is, though the code goes on after each refusal.

    Where handoffs are signed, a stage takes no message of the pipeline's own making anyway.
    """
    other = await office.client.start_workflow(
        "mailing", PipelineInput(goal="Wait"), id=f"other-{uuid4().hex[:6]}", task_queue=f"nobody-{uuid4().hex[:6]}"
    )
    worker = office if sealing else unsealed
    case = await record(worker, 3, "..", kept, sneaking, other=other.id)
    assert case.recorded.output == {"opened": [way for way in WAYS if not (sealing and "stage" in way)]}
    before = (await other.describe()).history_length
    _, [baseline] = await outcomes(worker, case)
    assert (baseline.failure, baseline.output) == ("", {"opened": []})
    assert (EFFECTS, (await other.describe()).history_length) == ([], before)
    await other.terminate()


async def test_a_call_that_was_not_recorded_ends_the_case_with_its_cost(office: Worker, kept: ArtifactStore) -> None:
    """What the agent spent and called before is known, and the call can be answered by people."""
    case = await record(office, 3, "..", kept)
    rash = Lane(name="rash", overrides=Overrides(stage="decide", prompt="It pays itself."))
    _, [_, outcome] = await outcomes(office, case, rash, unrecorded=Unrecorded.ASK)
    assert "'pay' was called" in outcome.failure
    assert [(call.tool, call.how) for call in outcome.calls] == [("lookup", "recorded"), ("pay", "asked")]
    assert (outcome.spend.micro_usd, EFFECTS) == (1_000, [])
    assert outcome.asked is not None
    answered = case.answered(outcome.asked, "paid", by="ann")
    _, [_, again] = await outcomes(office, answered, rash)
    assert (again.failure, [call.how for call in again.calls]) == ("", ["recorded", "recorded"])


@pytest.mark.parametrize("kind", ["mailing", "Mails"])
async def test_a_cohort_cannot_name_another_workflow(office: Worker, kept: ArtifactStore, kind: str) -> None:
    """A forged case starts another pipeline, or a plain workflow: both are in the lab as well."""
    case = await record(office, 3, "..", kept)
    _, [forged] = await outcomes(office, case.model_copy(update={"stage": kind}))
    assert "does not let it out" in forged.failure
    assert EFFECTS == []


async def test_a_stage_on_a_worker_that_does_not_know_the_lab_does_not_run(office: Worker, kept: ArtifactStore) -> None:
    """The pipeline's code is held back, and so are stages on other task queues, whoever serves them by now."""
    queue, client = f"other-{uuid4().hex[:6]}", office.client
    async with pipeline_worker(client, [], [once], task_queue=queue):
        case = await record(office, 3, "..", kept, outsourced, queue=queue)
    assert case.recorded.output == {"verdict": "approve", "amount": 30}
    plain = Client(client.service_client, namespace=client.namespace)
    async with Worker(plain, task_queue=queue, activities=[decide_elsewhere]):
        _, [baseline] = await outcomes(office, case)
    assert "is not registered" in baseline.failure
    assert EFFECTS == []


async def test_nobody_starts_a_run_with_answers_of_their_own(office: Worker, kept: ArtifactStore) -> None:
    """Where handoffs are signed, a path in the lab is a past, and needs the seal of a worker."""
    case = await record(office, 3, "..", kept)
    unsealed = Client(office.client.service_client, namespace=office.client.namespace)
    handle = await unsealed.start_workflow(
        "reviewed", case.given, id=f"own-{uuid4().hex[:6]}", task_queue=office.task_queue
    )
    with pytest.raises(Exception, match="Workflow execution failed"):
        await handle.result()
    assert "not sealed" in str((await read_run(office.client, handle.id)).failure)
    assert EFFECTS == []


async def test_a_later_stage_reads_what_an_earlier_one_wrote(sealed: Client, kept: ArtifactStore) -> None:
    """Each lane has its own; the recorded artifact stays."""
    async with pipeline_worker(sealed, [filing], [file_stage, find_stage]) as worker:
        run = await run_pipeline(worker, filing, PipelineInput(goal="File it"), id=f"filing-{uuid4().hex[:6]}")
        [case] = await read_cases(worker.client, run.handle.id, "..", store=kept)
        _, found = await outcomes(worker, case, Lane(name="small", overrides=Overrides(model="small")))
    assert [(one.failure, one.output) for one in (case.recorded, *found)] == [
        ("", "by large"),
        ("", "by large"),
        ("", "by small"),
    ]


async def test_each_step_has_its_prompt(sealed: Client, kept: ArtifactStore) -> None:
    """Also where a lane does not come as far as the other: the finder takes no other prompt."""
    told = Lane(name="told", overrides=Overrides(stage="find", prompt="Find it"))
    async with pipeline_worker(sealed, [filing], [file_stage, find_stage]) as worker:
        run = await run_pipeline(worker, filing, PipelineInput(goal="File it"), id=f"filing-{uuid4().hex[:6]}")
        [case] = await read_cases(worker.client, run.handle.id, "..", store=kept)
        results = await run_lab(worker.client, Cohort(name="filing", cases=[case]), [told])
    baseline, own = (results.prompts(case, lane.name) for lane in results.lanes)
    assert ([*baseline], [*own]) == (["file, step 1", "find, step 2"], ["file, step 1"])
    assert len({*baseline.values()}) == 2


async def test_a_run_that_goes_on_is_no_case(office: Worker, kept: ArtifactStore) -> None:
    start = PipelineInput(goal="Refund order 3", params={"order": 3})
    handle = await office.client.start_workflow(
        "reviewed", start, id=f"open-{uuid4().hex[:6]}", task_queue=f"nobody-{uuid4().hex[:6]}"
    )
    with pytest.raises(LabError):
        await read_cases(office.client, handle.id, "..", store=kept)
    await handle.terminate()
