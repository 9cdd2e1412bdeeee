"""Priority and fairness: of the server, set by a pipeline's input, and what one tenant's many runs do to another's."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec, WorkflowHandle
from temporalio.common import Priority
from temporalio.worker import Worker

from baton import PipelineInput, Requester
from baton.client import read_run
from baton.devserver import DevServer, DevServerOptions
from baton.plugin import BatonPlugin
from baton.testing import local_server, pipeline_worker, run_pipeline
from tests.pipelines.whom_pipelines import (
    WORKED,
    continues,
    look_up,
    see,
    seen,
    seen_in_child,
    take_turn,
    takes_turn,
)


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, [seen, seen_in_child, continues], [see, look_up]) as worker:
        yield worker


async def priority_of(client: Client, workflow_id: str) -> tuple[int, str]:
    """Return the priority and the fairness key of a workflow's newest run."""
    run = await client.get_workflow_handle(workflow_id).describe()
    priority = run.raw_description.workflow_execution_info.priority
    return priority.priority_key, priority.fairness_key


class TestPriority:
    async def test_a_run_and_its_children_have_it(self, worker: Worker) -> None:
        """The server hands it on, to stages too (`TestTurns`)."""
        start = PipelineInput(goal="See", priority=1, fairness_key="acme")
        run = await run_pipeline(worker, seen, start)

        children = [child for child, _, _ in run.record.children]
        assert len(children) == 1
        for id in (run.handle.id, *children):
            assert await priority_of(worker.client, id) == (1, "acme")

    async def test_a_run_that_continues_keeps_it(self, worker: Worker) -> None:
        """And whom it works for."""
        start = PipelineInput(goal="See", priority=1, fairness_key="acme", requester=Requester(id="ann"))
        run = await run_pipeline(worker, continues, start)

        assert run.result is not None
        assert run.result.output == {"requester": {"id": "ann"}}
        assert await priority_of(worker.client, run.handle.id) == (1, "acme")
        assert (await read_run(worker.client, run.handle.id)).start.continued == 1

    async def test_a_schedule_has_it(self, worker: Worker) -> None:
        """As a start does."""
        id, queue = f"scheduled-{uuid4()}", worker.task_queue
        start = PipelineInput(goal="See", priority=2, fairness_key="acme")
        action = ScheduleActionStartWorkflow("seen", start, id=id, task_queue=queue)
        schedule = await worker.client.create_schedule(id, Schedule(action, ScheduleSpec()))
        described = (await schedule.describe()).schedule.action
        await schedule.delete()

        assert isinstance(described, ScheduleActionStartWorkflow)
        assert described.priority == Priority(priority_key=2, fairness_key="acme")

    @pytest.mark.parametrize(
        "members",
        [{"priority": 0}, {"priority": 6}, {"fairness_key": ""}, {"fairness_key": "ä" * 33}],
        ids=["zero", "six", "an empty key", "66 bytes"],
    )
    def test_what_the_server_refuses_is_refused_before(self, members: dict[str, object]) -> None:
        """With the member's name."""
        with pytest.raises(ValidationError, match=next(iter(members))):
            PipelineInput.model_validate({"goal": "g", **members})


async def take_turns(server: DevServer, *waves: tuple[str, int, dict[str, Any]]) -> list[str]:
    """Let runs wait for one worker, a wave after the other; return whose stages it took, in order.

    Args:
        server: The server.
        waves: The tenant of each wave, how many runs it has, and the terms of their start.
    """
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
    work, runs = f"work-{uuid4()}", []
    async with pipeline_worker(client, [takes_turn], []) as pipelines:
        for tenant, count, terms in waves:
            start = PipelineInput(goal="Turn", params={"tenant": tenant, "work": work}, **terms)
            for _ in range(count):
                id, queue = f"turn-{uuid4()}", pipelines.task_queue
                runs.append(await client.start_workflow(takes_turn, start, id=id, task_queue=queue))
            while not all([await is_waiting(run) for run in runs]):  # noqa: ASYNC110 - a server gives no event
                await asyncio.sleep(0.05)
        async with Worker(client, task_queue=work, activities=[take_turn], max_concurrent_activities=1):
            await asyncio.gather(*(run.result() for run in runs))
    return WORKED[work]


async def is_waiting(run: WorkflowHandle[Any, Any]) -> bool:
    """Return whether a stage of the run waits for a worker."""
    return bool((await run.describe()).raw_description.pending_activities)


class TestTurns:
    """Of 40 waiting stages of one tenant and three that came later, the three are not the last."""

    async def test_urgent_runs_go_first(self) -> None:
        """A server keeps the order of priorities in each part of a queue; it has four, which take turns by chance."""
        whole = {f"matching.numTaskqueue{side}Partitions": 1 for side in ("Read", "Write")}
        waves = ("late", 40, {"priority": 5}), ("soon", 3, {"priority": 1})
        async with local_server(DevServerOptions(ui_port=None, settings=whole)) as server:
            turns = await take_turns(server, *waves)

        assert max(place for place, tenant in enumerate(turns) if tenant == "soon") < 10

    async def test_many_runs_of_a_tenant_do_not_starve_another(self) -> None:
        """Each tenant's runs take turns, on a server with fairness."""
        options = DevServerOptions(ui_port=None, settings={"matching.enableFairness": True})
        waves = ("large", 40, {"fairness_key": "large"}), ("small", 3, {"fairness_key": "small"})
        async with local_server(options) as server:
            turns = await take_turns(server, *waves)

        # The server counts tenants' tasks by an estimate, so they do not take turns one by one.
        assert max(place for place, tenant in enumerate(turns) if tenant == "small") < 40
