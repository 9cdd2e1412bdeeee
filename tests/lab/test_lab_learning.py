"""Terms that recorded runs would have allowed, and how many each would have refused."""

from temporalio.worker import Worker

from baton.lab import Cohort, propose, read_uses


async def test_recorded_runs_are_learnt_from(refunds: Worker, cohort: Cohort) -> None:
    uses = [use for case in cohort.cases for use in await read_uses(refunds.client, case.source.workflow_id)]
    by_stage = {proposal.stage: proposal for proposal in propose(uses)}
    decide = by_stage["decide"]
    assert (decide.runs, decide.terms["tools"], decide.terms["writes"]) == (8, ["lookup"], ["decision_log"])
    assert by_stage["transfer"].terms["tools"] == []
    assert {*decide.refused.values()} == {0}
