"""Recorded stages run again, with a candidate beside the baseline, and without an effect outside."""

from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineInput
from baton.client.faces import ArtifactStore
from baton.lab import (
    BASELINE,
    DECISION,
    Cohort,
    Judging,
    LabError,
    LabOptions,
    Lane,
    Limits,
    Overrides,
    Results,
    decision_of,
    make_cohort,
    read_cases,
    refusals,
    report,
    run_lab,
)
from baton.testing import run_pipeline
from tests.lab.refunds import EFFECTS, refund

SMALL = Lane(name="small", overrides=Overrides(model="small"))


async def test_a_case_is_what_was_recorded(cohort: Cohort) -> None:
    case = cohort.case("refund-3")
    assert (case.stage, case.stage_input.params["order"]) == ("decide", 3)
    assert case.recorded.output == {"verdict": "approve", "amount": 30}
    assert decision_of(case.recorded, cohort.judging) == "Approve 30"
    assert case.recorded.spend.micro_usd == 1_000
    assert [(call.tool, call.result) for call in case.tool_calls] == [
        ("lookup", {"order": 3, "paid": 30, "late": True})
    ]
    assert Cohort.from_bytes(cohort.to_bytes(), "refunds.json") == cohort


async def test_steps_and_runs_of_one_workflow_are_cases_of_their_own(
    refunds: Worker, cohort: Cohort, kept: ArtifactStore
) -> None:
    """None replaces another, and the same step again replaces itself, whatever it is called."""
    run, both = cohort.case("refund-1").source.workflow_id, Cohort(name="both")
    for stage in ("decide", "transfer", "..", "..decide", "transfer", "1"):
        both = both.with_cases(await read_cases(refunds.client, run, stage, store=kept))
    names = [run, f"{run}.transfer", f"{run}.decide..", f"{run}.decide..decide"]
    assert [case.id for case in both.cases] == names
    await run_pipeline(refunds, refund, PipelineInput(goal="Again", params={"order": 2}), id=run)
    for stage in ("decide", "transfer"):
        both = both.with_cases(await read_cases(refunds.client, run, stage, store=kept))
    assert [case.id for case in both.cases] == [*names, f"{run}.decide", f"{run}.transfer.2"]
    assert len({case.source.run_id for case in both.cases}) == 2


async def test_a_run_that_cannot_be_read_leaves_the_others(sealed: Client, cohort: Cohort, kept: ArtifactStore) -> None:
    """One that is no pipeline, and one that there is not."""
    plain = await sealed.start_workflow("plain", id=f"plain-{uuid4().hex[:6]}", task_queue=f"nobody-{uuid4().hex[:6]}")
    run = cohort.case("refund-2").source.workflow_id
    runs = [(id, None) for id in (plain.id, "no-such-run", run)]
    made, skipped = await make_cohort(sealed, "some", runs, "decide", Judging(), kept)
    assert [case.id for case in made.cases] == [run]
    assert [reason.partition(":")[0] for reason in skipped] == [plain.id, "no-such-run"]
    with pytest.raises(LabError):
        await make_cohort(sealed, "none", runs[:2], "decide", Judging(), kept)
    await plain.terminate()


async def test_the_lab_tells_a_candidate_from_the_baseline(sealed: Client, cohort: Cohort) -> None:
    """The small model decides otherwise about one order in eight, and costs a tenth; nothing happens outside."""
    EFFECTS.clear()
    results = await run_lab(sealed, cohort, [SMALL], LabOptions(repeat=3))
    assert EFFECTS == []
    assert Results.from_bytes(results.to_bytes(), "results") == results
    baseline, small = report(cohort, results)
    assert baseline.lane == BASELINE
    assert baseline.same(DECISION) == (24, 24), results
    assert [case.case for case in small.differing()] == ["refund-7"]
    assert small.same(DECISION) == (21, 24)
    assert small.cost_ratio == 0.1
    faults = refusals(small, Limits(), cases=8, repeat=3)
    assert len(faults) == 1
    assert "refund-7 differs (3 of 3)" in faults[0]
    assert refusals(small, Limits(same={DECISION: 0.8}, cost=0.5), cases=8, repeat=3) == []
