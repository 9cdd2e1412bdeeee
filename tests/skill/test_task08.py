"""Task 8: child pipelines, and stages at the same time whose patches are merged."""

from typing import Any

import pytest

from baton import PipelineInput, StepKind
from baton.testing import assert_replays, run_pipeline


@pytest.fixture
def migration(load: Any) -> Any:
    return load("migration", "task08")


async def run(migration: Any, baton_worker: Any, topics: list[str], **options: Any) -> Any:
    stages = [migration.look_up, migration.security, migration.cost]
    async with baton_worker([migration.migrate, migration.research], stages, **options) as worker:
        start = PipelineInput(goal="Migrate", params={"topics": topics})
        return await run_pipeline(worker, migration.migrate, start)


async def test_children_find_and_reviewers_ask(migration: Any, baton_worker: Any) -> None:
    ended = await run(migration, baton_worker, ["Ada", "Bob"])
    assert ended.result.output == {"findings": ["Notes on Ada", "Notes on Bob"], "reviews": [2, 2]}
    assert ended.baton.decision_log == ["Do as Ada does", "Do as Bob does"]
    assert sorted(ended.baton.open_questions) == ["Who decides?", "Who has the keys?", "Who pays?"]
    await assert_replays(ended.handle, [migration.migrate])


async def test_steps_are_named(migration: Any, baton_worker: Any) -> None:
    ended = await run(migration, baton_worker, ["Ada", "Bob"], replay_every_task=True)
    children, [review] = ended.record.steps[:2], ended.record.steps[2:]
    assert [(step.name, step.kind) for step in children] == [
        ("research Ada", StepKind.CHILD),
        ("research Bob", StepKind.CHILD),
    ]
    assert review.kind == StepKind.MERGE


async def test_without_topics_there_are_reviews_of_nothing(migration: Any, baton_worker: Any) -> None:
    ended = await run(migration, baton_worker, [])
    assert ended.result.output == {"findings": [], "reviews": [0, 0]}


async def test_a_child_runs_alone_as_well(migration: Any, baton_worker: Any) -> None:
    async with baton_worker([migration.research], [migration.look_up]) as worker:
        start = PipelineInput(goal="Find out about Eve", inputs={"topic": "Eve"})
        ended = await run_pipeline(worker, migration.research, start)
    assert ended.result.output == "Notes on Eve"
