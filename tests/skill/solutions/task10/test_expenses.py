"""The claims: what an agent sees, who decides, and what is paid."""

from datetime import timedelta
from typing import Any

from expenses import expenses, pay, summarise

from baton import PipelineInput, StageResult
from baton.testing import Expect, Reply, run_pipeline

ANN, BOB = (Reply(True, {"cost_centre": "travel"}, who=who) for who in ("ann", "bob"))


async def run(workers: Any, scripts: Any, amounts: list[int], decision: Any = None, client: Any = None) -> Any:
    """Run a claim of one item for each amount."""
    items = [{"name": f"item of {amount}", "amount": amount} for amount in amounts]
    sees = [f"item of {amount}" for amount in amounts]
    agent = scripts.stage(summarise, Expect(StageResult(output="Some items."), sees=sees))
    start = PipelineInput(goal="Pay my expenses", params={"items": items})
    decisions = {} if decision is None else {"lead": decision}
    longest = timedelta(seconds=30) if client is None else timedelta(days=30)
    async with workers([expenses], [agent, pay], client=client) as worker:
        return await run_pipeline(worker, expenses, start, within=longest, decisions=decisions)


async def test_a_small_claim_needs_nobody(baton_worker: Any, baton_scripts: Any) -> None:
    ended = await run(baton_worker, baton_scripts, [300, 200])
    assert ended.result.output == {"paid": 500, "cost_centre": "general"}
    assert ended.step_names == ["summarise", "pay"]


async def test_a_large_claim_needs_two_people(baton_worker: Any, baton_scripts: Any) -> None:
    votes: list[int] = []

    def decide(question: Any) -> Reply:
        votes.append(len(question.votes))
        return BOB if question.votes else ANN

    ended = await run(baton_worker, baton_scripts, [300, 201], decide)
    assert votes == [0, 1]
    assert ended.result.output == {"paid": 501, "cost_centre": "travel"}
    assert ended.baton.current_state == ["Paid 501 from travel"]


async def test_a_denied_claim_is_not_paid(baton_worker: Any, baton_scripts: Any) -> None:
    ended = await run(baton_worker, baton_scripts, [900], False)
    assert ended.result.output == {"paid": 0, "why": "denied"}
    assert ended.step_names == ["summarise", "lead"]


async def test_three_days_of_silence_are_a_no(baton_worker: Any, baton_scripts: Any, baton_time: Any) -> None:
    ended = await run(baton_worker, baton_scripts, [900], None, baton_time.client)
    assert ended.result.output == {"paid": 0, "why": "deadline"}
    assert timedelta(days=3) <= ended.record.ended - ended.record.began < timedelta(days=4)
