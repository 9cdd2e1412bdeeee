"""Steps with names of their own, and a stage that runs for each of many items."""

from collections.abc import AsyncIterator
from datetime import UTC, timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineError, StepKind
from baton.client import StepStatus, fork, read_run, roll_back, waits
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.map_pipelines import (
    PIPELINES,
    STAGES,
    approved_items,
    failing_by_name,
    mapped,
    mapped_items,
    mapped_with_more,
    named,
    refused,
    trusting,
)
from tests.pipelines.stages import EXECUTED, GATES
from tests.support import (
    Handle,
    approve,
    assert_reads_back,
    event,
    failure,
    most_activities,
    names,
    start,
    until,
    until_waiting,
)

SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, PIPELINES, STAGES) as it:
        yield it


async def summaries(handle: Handle) -> list[tuple[str, str]]:
    """Return the type and the summary of each activity, as the Temporal UI shows them."""
    found = []
    async for happened in handle.fetch_history_events():
        if happened.event_type == SCHEDULED:
            kind = happened.activity_task_scheduled_event_attributes.activity_type.name
            found.append((kind, happened.user_metadata.summary.data.decode().strip('"')))
    return found


class TestNames:
    async def test_a_step_has_the_name_that_the_code_gives_it(self, client: Client, worker: Worker) -> None:
        """In the history, while it runs, and in the Temporal UI; the activity is the stage's."""
        handle = await start(worker, named)
        await until_waiting(handle, "digest page 2")
        running = await read_run(client, handle.id)
        assert [step.name for step in running.steps if step.status is StepStatus.RUNNING] == ["digest page 2"]
        GATES[handle.id, "open"].set()
        result = await handle.result()

        run = await assert_reads_back(client, handle, PIPELINES)
        assert result.output == ["digest of one", "digest of wait", "digest of three"]
        assert names(run) == ["digest page 1", "digest page 2", "digest page 3", "conclude_all"]
        assert [(entry.stage_id, entry.stage) for entry in run.state.entries] == [
            ("digest page 1", "digest"),
            ("digest page 3", "digest"),
            ("digest page 2", "digest"),
            ("conclude_all", None),
        ]
        assert await summaries(handle) == [
            ("digest", "step 1: digest page 1"),
            ("digest", "step 2: digest page 2"),
            ("digest", "step 3: digest page 3"),
            ("conclude_all", "step 4: conclude_all"),
        ]
        assert {bill.stage for bill in run.bills} == {"digest"}

    async def test_its_whole_name_comes_before_the_second_of_a_name(self, client: Client, worker: Worker) -> None:
        """Else a fork would silently begin at another step."""
        handle = await start(worker, named, name="conclude_all:1")
        GATES[handle.id, "open"].set()
        await handle.result()
        run = await read_run(client, handle.id)

        found = [run.step(reference).seq for reference in ("conclude_all:1", "conclude_all", "digest page 2:1", "3")]
        assert found == [1, 4, 2, 3]

    async def test_it_is_found_and_taken_over_by_that_name(self, client: Client, worker: Worker) -> None:
        """A fork executes only what comes after; a roll-back goes to before it."""
        handle = await start(worker, named)
        GATES[handle.id, "open"].set()
        await handle.result()
        forked = await fork(client, handle.id, "conclude_all", by="bob", why="again")
        result = await forked.result()

        assert result["output"] == ["digest of one", "digest of wait", "digest of three"]
        assert (EXECUTED[forked.id, "digest"], EXECUTED[forked.id, "conclude_all"]) == (0, 1)
        assert names(await assert_reads_back(client, forked, PIPELINES))[0] == "digest page 1"
        await roll_back(client, handle.id, "digest page 1", by="bob", why="again")
        assert (await client.get_workflow_handle(handle.id).result())["steps"] == 4
        assert EXECUTED[handle.id, "digest"] == 6

    async def test_its_failure_names_it(self, worker: Worker) -> None:
        """Of many steps of one stage it says which."""
        assert await failure(await start(worker, failing_by_name)) == (
            "stage 'digest page 9' failed: ValueError: the page is blank"
        )

    @pytest.mark.parametrize("name", ["", "x" * 201, "half a character"])
    async def test_a_name_has_bounds(self, worker: Worker, name: str) -> None:
        """Those of every other step's."""
        handle = await start(worker, named, name=name if name != "half a character" else "\N{GRINNING FACE}" * 201)

        assert "a stage needs a name of 1 to 200 characters" in await failure(handle)

    async def test_the_longest_name_is_accepted(self, client: Client, worker: Worker) -> None:
        """By the server as well, which limits a summary and a search attribute."""
        longest = "\N{GRINNING FACE}" * 200
        handle = await start(worker, named, name=longest)
        GATES[handle.id, "open"].set()
        await handle.result()

        assert names(await assert_reads_back(client, handle, PIPELINES))[0] == longest


class TestMap:
    async def test_results_and_failures_come_in_the_order_of_the_items(self, client: Client, worker: Worker) -> None:
        """One bad item loses nothing of the others; the first is the last to end."""
        handle = await start(worker, mapped, pages=["wait", "bad", "three", "four"], name="digest page")
        await until(handle, lambda now: EXECUTED[handle.id, "digest"] == 4)
        GATES[handle.id, "open"].set()
        result = await handle.result()

        assert result.output == [
            "digest of wait",
            "stage 'digest page 2' failed: ValueError: the page is blank",
            "digest of three",
            "digest of four",
        ]
        run = await assert_reads_back(client, handle, PIPELINES)
        assert names(run) == ["digest page", "conclude_all"]
        assert run.baton.decision_log == ["wait matters", "three matters", "four matters"]
        assert run.baton_after(run.steps[0]).current_state == ["wait read", "three read", "four read"]
        items = [entry for entry in run.state.entries if entry.kind is StepKind.BRANCH]
        assert [(item.stage_id, item.stage, item.failure is None) for item in items] == [
            ("digest page 1", "digest", True),
            ("digest page 2", "digest", False),
            ("digest page 3", "digest", True),
            ("digest page 4", "digest", True),
        ]
        assert run.state.entries[4].warnings == ["1 of 4 items failed: digest page 2"]
        assert [summary for _, summary in await summaries(handle)][:2] == [
            "step 1: digest page 1",
            "step 1: digest page 2",
        ]

    async def test_a_fork_takes_over_results_and_failures(self, client: Client, worker: Worker) -> None:
        """No item is paid twice."""
        handle = await start(worker, mapped, pages=["one", "bad", "three"])
        output = (await handle.result()).output
        forked = await fork(client, handle.id, "conclude_all", by="bob", why="again")

        assert (await forked.result())["output"] == output
        assert EXECUTED[forked.id, "digest"] == 0
        assert names(await assert_reads_back(client, forked, PIPELINES)) == ["digest", "conclude_all"]

    async def test_results_are_not_given_to_other_items(self, client: Client, worker: Worker) -> None:
        """Code that gives a recorded map another number of items suspends the run before it uses any."""
        handle = await start(worker, mapped, pages=["one", "two"])
        await handle.result()
        async with pipeline_worker(client, [mapped_with_more], STAGES) as other:
            with pytest.raises(PipelineError, match="was recorded with 2 items, but the code gives it 3"):
                await fork(client, handle.id, "conclude_all", by="b", why="w", task_queue=other.task_queue)

    async def test_it_lasts_until_its_last_item(self, client: Client, worker: Worker) -> None:
        """Also if that one failed after its retries."""
        handle = await start(worker, mapped, pages=["one", "bad"])
        await handle.result()
        failed = await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED)
        [step, _] = (await read_run(client, handle.id)).steps

        ended = failed.event_time.ToDatetime(UTC)  # which cuts what the reader rounds
        assert step.ended in (ended, ended + timedelta(microseconds=1))

    async def test_no_more_than_so_many_are_at_work(self, worker: Worker) -> None:
        """A hundred items, four at a time."""
        handle = await start(worker, mapped, pages=[f"p{number}" for number in range(100)], at_most=4)
        result = await handle.result()

        assert len(result.output) == len(result.baton["decision_log"]) == 100
        assert await most_activities(handle) == 4
        await assert_replays(handle, PIPELINES)

    async def test_many_at_once_begin_in_slices(self, worker: Worker) -> None:
        """At most 50 in a workflow task, which has two seconds."""
        handle = await start(worker, mapped, pages=[f"p{number}" for number in range(120)], at_most=120)
        result = await handle.result()
        tasks: dict[int, int] = {}
        async for happened in handle.fetch_history_events():
            if happened.event_type == SCHEDULED:
                task = happened.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
                tasks[task] = tasks.get(task, 0) + 1

        assert len(result.output) == 120
        assert max(tasks.values()) == 50
        await assert_replays(handle, PIPELINES)

    async def test_all_items_may_fail(self, client: Client, worker: Worker) -> None:
        """The pipeline's code decides what that means; the baton is as before."""
        handle = await start(worker, mapped, pages=["bad", "bad"])
        result = await handle.result()

        assert [text[:16] for text in result.output] == ["stage 'digest 1'", "stage 'digest 2'"]
        assert (await assert_reads_back(client, handle, PIPELINES)).baton.current_state == ["Concluded"]

    async def test_the_output_of_a_failed_item_is_refused_with_the_reason(self, worker: Worker) -> None:
        """Code that forgets to ask is told which item failed, and why."""
        assert "no output: stage 'digest 2' failed: ValueError: the page is blank" in await failure(
            await start(worker, trusting)
        )

    async def test_an_item_is_the_input_item(self, worker: Worker) -> None:
        """Without a function; a map without items is no step."""
        handle = await start(worker, mapped_items)
        result = await handle.result()

        assert (result.output, result.steps) == (["digest of one", "digest of two"], 1)

    async def test_each_item_needs_the_approval_of_its_inputs(self, client: Client, worker: Worker) -> None:
        """Nothing runs if one has none."""
        handle = await start(worker, approved_items)
        await approve(client, handle, "page")

        assert "an approval covers one run" in await failure(handle)
        assert EXECUTED[handle.id, "digest"] == 0

    @pytest.mark.parametrize(
        ("how", "why"),
        [
            ("a set", "items is a set; expected a list"),
            ("a text", "items is a str; expected a list"),
            ("too many", "has 501 items; at most 500"),
            ("too large", "the inputs up to item 84 have 8,"),
            ("what JSON cannot hold", "item 2: input 'item' is a object"),
            ("none at once", "at_most is 0"),
            ("a long name", "has a name of 191 characters; at most 190"),
            ("an empty name", "needs a name of 1 to 200 characters"),
            ("a blank name", "needs a name of 1 to 200 characters, not only blanks"),
            ("half a character", "without half a surrogate pair"),
        ],
    )
    async def test_what_it_cannot_run_is_refused_before_anything_runs(self, worker: Worker, how: Any, why: str) -> None:
        """With what it expects."""
        handle = await start(worker, refused, how=how)

        assert why in await failure(handle)
        assert EXECUTED[handle.id, "digest"] == 0

    async def test_what_is_at_work_is_named_by_item(self, client: Client, worker: Worker) -> None:
        """`baton show` and `baton watch` tell which of many a run waits for."""
        handle = await start(worker, mapped, pages=["one", "wait"], name="digest page")
        await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        run = await read_run(client, handle.id)

        assert [(step.name, step.status) for step in run.steps] == [("digest page", StepStatus.RUNNING)]
        assert [sent.title for sent in run.inputs] == ["digest page 1", "digest page 2"]
        open_ones = await waits(client, run)
        assert open_ones is not None
        assert [pending.name for pending in open_ones.pending] == ["digest page 2"]
        GATES[handle.id, "open"].set()
        await handle.result()
