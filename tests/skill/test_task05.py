"""Task 5: stages that cost money, under a budget that is used up."""

from typing import Any

import pytest

from baton import Budget, OnExhaustion, PipelineInput
from baton.testing import run_pipeline

TOPICS = ["bread", "milk", "tea", "salt", "oil"]


@pytest.fixture
def survey(load: Any) -> Any:
    return load("survey", "task05")


async def run(survey: Any, baton_worker: Any, budget: Budget | None) -> Any:
    start = PipelineInput(goal="Ask about food", params={"topics": TOPICS}, budget=budget)
    async with baton_worker([survey.survey], [survey.ask, survey.summarise]) as worker:
        return await run_pipeline(worker, survey.survey, start)


async def test_without_a_budget_all_are_asked(survey: Any, baton_worker: Any) -> None:
    ended = await run(survey, baton_worker, None)
    answers = [f"Answer about {topic}" for topic in TOPICS]
    assert ended.result.output == {"answers": answers, "summary": "5 answers"}
    assert ended.step_names == [*(f"ask {topic}" for topic in TOPICS), "summarise"]
    assert ended.result.spend.micro_usd == 1_600_000


async def test_a_budget_ends_it_early(survey: Any, baton_worker: Any) -> None:
    budget = Budget(initial_micro_usd=1_500_000, set_aside_micro_usd=200_000, then=OnExhaustion.WRAP_UP)
    ended = await run(survey, baton_worker, budget)
    answers = [f"Answer about {topic}" for topic in TOPICS[:4]]
    assert ended.result.output == {"answers": answers, "summary": "4 answers"}
    assert ended.result.spend.micro_usd == 1_300_000


async def test_with_nothing_but_what_is_set_aside_it_still_sums_up(survey: Any, baton_worker: Any) -> None:
    budget = Budget(initial_micro_usd=250_000, set_aside_micro_usd=200_000, then=OnExhaustion.WRAP_UP)
    ended = await run(survey, baton_worker, budget)
    assert ended.result.output == {"answers": [], "summary": "0 answers"}
    assert ended.result.spend.micro_usd == 100_000
