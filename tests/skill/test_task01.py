"""Task 1: two plain stages, the second with the output of the first as its input."""

from typing import Any

import pytest

from baton import Baton, PipelineInput, StageContext
from baton.testing import assert_replays, run_pipeline

COMMITS = ["feat: log in", "chore: bump", "fix: log out", "chore: format"]


@pytest.fixture
def changelog(load: Any) -> Any:
    return load("changelog", "task01")


async def test_it_keeps_what_users_see(changelog: Any, baton_worker: Any) -> None:
    start = PipelineInput(goal="Write the changelog", params={"commits": COMMITS})
    async with baton_worker([changelog.changelog], [changelog.collect, changelog.count]) as worker:
        run = await run_pipeline(worker, changelog.changelog, start)
    assert run.result.output == {"changes": ["feat: log in", "fix: log out"], "count": 2}
    assert run.baton.decision_log == ["Left out 2 chores"]
    assert run.baton.current_state == ["2 changes"]
    assert run.step_names == ["collect", "count"]
    await assert_replays(run.handle, [changelog.changelog])


async def test_it_has_nothing_to_say_about_nothing(changelog: Any, baton_worker: Any) -> None:
    start = PipelineInput(goal="Write the changelog", params={"commits": []})
    async with baton_worker(
        [changelog.changelog], [changelog.collect, changelog.count], replay_every_task=True
    ) as worker:
        run = await run_pipeline(worker, changelog.changelog, start)
    assert run.result.output == {"changes": [], "count": 0}
    assert run.baton.current_state == ["0 changes"]


async def test_a_stage_can_be_called_as_a_function(changelog: Any) -> None:
    context = StageContext.for_test(Baton(goal="Write"), params={"commits": ["chore: a", "fix: b"]})
    assert (await changelog.collect(context)).output == ["fix: b"]
