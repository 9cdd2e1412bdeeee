"""Terms that recorded runs would have allowed, and how many each would have refused."""

from uuid import uuid4

from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineInput
from baton.lab import Cohort, propose, read_uses
from baton.testing import pipeline_worker, run_pipeline
from tests.lab.refunds import book, booking


async def test_recorded_runs_are_learnt_from(refunds: Worker, cohort: Cohort) -> None:
    uses = [use for case in cohort.cases for use in await read_uses(refunds.client, case.source.workflow_id)]
    by_stage = {proposal.stage: proposal for proposal in propose(uses)}
    decide = by_stage["decide"]
    assert (decide.runs, decide.terms["tools"], decide.terms["writes"]) == (8, ["lookup"], ["decision_log"])
    assert by_stage["transfer"].terms["tools"] == []
    assert {*decide.refused.values()} == {0}


async def test_a_refused_attempt_teaches_nothing(sealed: Client) -> None:
    """What it wrote was undeclared."""
    async with pipeline_worker(sealed, [booking], [book]) as worker:
        run = await run_pipeline(worker, booking, PipelineInput(goal="Book"), id=f"booking-{uuid4().hex[:6]}")
        [proposal] = propose(await read_uses(sealed, run.handle.id))
    assert (proposal.runs, proposal.terms["writes"], {*proposal.refused.values()}) == (1, ["current_state"], {0})
