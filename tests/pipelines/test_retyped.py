"""A baton field whose type changes: continued runs wait for matching code, and its value is never shown."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.client import Client

from baton import HistoryEntry, Outcome
from baton.client import RunStatus, fork
from baton.core.messages import PipelineInput
from baton.errors import PipelineError
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.retyped import After, Before, Peeks, mark, report
from tests.runs.test_suspended import until_suspended
from tests.support import GOAL, LIMIT, Handle

STAGES: list[Callable[..., Any]] = [mark, report]
SECRET = "secret-label"


def marked() -> Outcome:
    """Return the recorded outcome of the first step."""
    entry = HistoryEntry(seq=1, stage_id="mark", timestamp=datetime(2026, 11, 21, tzinfo=UTC), patch={"label": SECRET})
    return Outcome(seq=1, order=0, name="mark", entries=[entry])


async def test_a_continued_run_is_suspended_and_resumes_with_code_that_fits(client: Client) -> None:
    """The reason names the field, the value's type and the expected one; `baton replay` finds it earlier."""
    for start in (
        PipelineInput(goal=GOAL, outcomes=[marked()], continued=1),
        PipelineInput(goal=GOAL, baton={"label": SECRET}, continued=1),
    ):
        queue = f"retyped-{uuid.uuid4()}"
        handle: Handle = await client.start_workflow(
            "Retyped", start, id=queue, task_queue=queue, execution_timeout=LIMIT
        )
        async with pipeline_worker(client, [After], STAGES, task_queue=queue):
            run, _ = await until_suspended(client, handle, tries=2)
        assert run.status is RunStatus.RUNNING
        assert "field 'label': found a text, expected a valid" in (run.suspended or "")
        assert SECRET not in (run.suspended or "")

        async with pipeline_worker(client, [Before], STAGES, task_queue=queue):
            await handle.result()
        with pytest.raises(AssertionError, match="field 'label': found a text"):
            await assert_replays(handle, [After])


async def test_code_that_reads_the_baton_between_two_steps_is_suspended(client: Client) -> None:
    """No error is raised in it, which it might handle."""
    reported = Outcome(seq=2, order=1, name="report", entries=[marked().entries[0].model_copy(update={"seq": 2})])
    start, queue = PipelineInput(goal=GOAL, outcomes=[marked(), reported], continued=1), f"retyped-{uuid.uuid4()}"
    handle: Handle = await client.start_workflow("Retyped", start, id=queue, task_queue=queue, execution_timeout=LIMIT)
    async with pipeline_worker(client, [Peeks], STAGES, task_queue=queue):
        run, _ = await until_suspended(client, handle, tries=1)
    assert "the baton after step 1 ('mark') does not fit ManyLabels: field 'label'" in (run.suspended or "")


async def test_a_fork_is_rejected_before_it_starts(client: Client) -> None:
    """The error names the field and shows no value."""
    queue = f"retyped-{uuid.uuid4()}"
    async with pipeline_worker(client, [Before], STAGES, task_queue=queue):
        handle: Handle = await client.start_workflow(
            "Retyped", PipelineInput(goal=GOAL), id=queue, task_queue=queue, execution_timeout=LIMIT
        )
        await handle.signal("go_on")
        await handle.result()
    async with pipeline_worker(client, [After], STAGES, task_queue=queue):
        with pytest.raises(PipelineError, match="field 'label': found a text, expected a valid") as error:
            await fork(client, handle.id, "report", by="ann", why="again")
    assert SECRET not in str(error.value)
