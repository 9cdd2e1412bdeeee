"""Who a run works for: known to stages, tools, children and approvals, and under the signature of each handoff."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError
from temporalio.client import WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from baton import Baton, PipelineInput, Requester, StageContext
from baton.client import Answer, decide, read_handoffs, read_run
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.testing import run_pipeline
from tests.pipelines.whom_pipelines import asks_requester, look_up, see, seen, seen_in_child
from tests.support import failure, sealing_worker, until

ANN = Requester(id="ann", issuer="https://login.example.com", claims={"tenant": "acme", "groups": ["sales"]})


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    pipelines = [seen, seen_in_child, asks_requester]
    async with sealing_worker(server, safeguards, pipelines, [see, look_up]) as worker:
        yield worker


class TestRequester:
    async def test_stages_tools_and_children_know_it(self, worker: Worker) -> None:
        """It is in the signed part of each handoff, and in no prompt."""
        run = await run_pipeline(worker, seen, PipelineInput(goal="See", requester=ANN))

        assert run.result is not None
        output: Any = run.result.output
        known = ANN.to_json_object()
        assert output["stage"]["requester"] == output["child"]["requester"] == known
        assert output["agent"] == {"tool": known, "prompted": False}
        messages = (await read_handoffs(worker.client, run.handle.id)).messages
        assert [message["step"]["requester"] for message in messages.values()] == [known, known]

    async def test_without_one_nothing_is_said(self, worker: Worker) -> None:
        """No message has a member for it."""
        run = await run_pipeline(worker, seen, PipelineInput(goal="See"))

        assert run.result is not None
        output: Any = run.result.output
        assert (output["stage"]["requester"], output["agent"]["tool"]) == (None, None)
        messages = (await read_handoffs(worker.client, run.handle.id)).messages
        assert not any("requester" in message["step"] for message in messages.values())

    async def test_an_approval_can_name_it(self, worker: Worker) -> None:
        """Nobody else may decide, however it is spelled; without a requester the question cannot be asked."""
        start, queue = PipelineInput(goal="See", requester=ANN), worker.task_queue
        handle = await worker.client.start_workflow(asks_requester, start, id="asks-requester", task_queue=queue)
        await until(handle, lambda now: bool(now.questions))
        assert (await read_run(worker.client, handle.id)).questions[0].who == ["ann"]
        with pytest.raises(PipelineError, match="bob"):
            await decide(worker.client, handle.id, Answer(choice="approve", who="bob"))
        await decide(worker.client, handle.id, Answer(choice="approve", who="ann"))
        assert (await handle.result()).output == "ann"

        nobody = PipelineInput(goal="See")
        unknown = await worker.client.start_workflow(asks_requester, nobody, id="asks-nobody", task_queue=queue)
        assert "'run:requester'" in await failure(unknown)

    async def test_a_secret_is_not_a_claim(self, worker: Worker) -> None:
        """It would be in the history for good, so no run starts."""
        token = Requester(id="ann", claims={"token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln"})
        start = PipelineInput(goal="See", requester=token)
        with pytest.raises(PipelineError, match="secret"):
            await worker.client.start_workflow(seen, start, id="with-a-secret", task_queue=worker.task_queue)
        beginning = WithStartWorkflowOperation(
            seen,
            start,
            id="with-a-secret",
            task_queue=worker.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        with pytest.raises(PipelineError, match="secret"):
            await worker.client.execute_update_with_start_workflow("answer", {}, start_workflow_operation=beginning)

    @pytest.mark.parametrize("id", ["ann\nbob", "group:leads", "Run:Requester", " "])
    async def test_no_run_works_for_what_is_no_person(self, worker: Worker, id: str) -> None:
        """Neither by a start nor by a question to its requester: a group would decide in place of a person."""
        start = PipelineInput(goal="See", requester=Requester(id=id))
        with pytest.raises(PipelineError):
            await worker.client.start_workflow(seen, start, id=f"for-{uuid4()}", task_queue=worker.task_queue)
        given = {"goal": "See", "requester": {"id": id}}  # a service in another language
        asked = await worker.client.start_workflow(
            asks_requester.__name__, given, id=f"asks-{uuid4()}", task_queue=worker.task_queue
        )
        assert "'run:requester'" in await failure(asked)

    @pytest.mark.parametrize(
        "members",
        [
            pytest.param({"id": "ann", "claims": {"about": "x" * 5_000}}, id="too many bytes"),
            pytest.param({"id": "ann", "claims": {f"c{number}": 1 for number in range(40)}}, id="too many claims"),
        ],
    )
    def test_what_is_no_identity_is_refused(self, members: dict[str, Any]) -> None:
        """Every handoff carries it, and people read the name."""
        with pytest.raises(ValidationError):
            Requester(**members)

    async def test_a_test_may_give_one(self) -> None:
        """As in a run."""
        context = StageContext.for_test(Baton(goal="See"), requester=ANN)
        result: Any = await look_up(context)

        assert result.output["tool"]["id"] == "ann"
