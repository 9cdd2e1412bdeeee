"""Messages to a task that works and asks nothing: notes for its agent, sent with the SDK's own client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from a2a.helpers import get_message_text
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError
from temporalio.client import Client as TemporalClient

from baton.client import Access, Offer, ServiceParts, Tokens, read_run, serve_service, service
from baton.devserver.processes import held_port
from baton.testing import pipeline_worker
from tests.agents.steered_pipelines import GATES, PIPELINES, STAGES
from tests.doors.conftest import TOKENS
from tests.doors.test_a2a import agent, said, send

NOTE = "use EUR"


@pytest.fixture(scope="module")
async def notes_url(client: TemporalClient) -> AsyncIterator[str]:
    """Return the address of a service whose stages take notes, or do not."""
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        names = ("steers_again", "steers_deaf", "steers_one_of_two")
        offers = {name: Offer(name, worker.task_queue) for name in names}
        parts = ServiceParts(client, offers, Access(tokens=Tokens(TOKENS)), url)
        async with serve_service(service(parts), port=urlsplit(url).port or 0):
            yield url


@asynccontextmanager
async def working(url: str, skill: str) -> AsyncIterator[tuple[Any, str]]:
    """Yield the client of a task whose stage is at work, and the task's id; then let it go on."""
    async with agent(url, streaming=False) as ann:
        [event] = await send(ann, said("Name the price", skill=skill), return_immediately=True)
        id = event.task.id
        await GATES[id].working.wait()
        try:
            yield ann, id
        finally:
            GATES[id].go_on.set()


async def test_a_text_is_a_note_for_the_agent_at_work(notes_url: str, client: TemporalClient) -> None:
    """It is shown to the agent, once however often the message comes; the task and the record have it."""
    async with working(notes_url, "steers_again") as (ann, id):
        note = said(NOTE, task_id=id)
        for _ in range(2):
            [event] = await send(ann, note, return_immediately=True)
            assert (event.task.id, event.task.status.state) == (id, pb.TASK_STATE_WORKING)
        task = await ann.get_task(pb.GetTaskRequest(id=id))
    await client.get_workflow_handle(id).result()
    run = await read_run(client, id)

    [_, told] = [message for message in task.history if message.role == pb.ROLE_USER]
    assert get_message_text(told) == NOTE
    assert [(sent.text, sent.who, run.was_shown(sent)) for sent in run.steering] == [(NOTE, "ann", True)]
    assert f"Heard ['{NOTE}']" in run.baton.decision_log


@pytest.mark.parametrize(
    ("skill", "message"),
    [
        pytest.param("steers_deaf", {"text": NOTE}, id="no agent that takes notes"),
        pytest.param("steers_one_of_two", {"text": NOTE}, id="two that do"),
        pytest.param("steers_again", {"data": {"choice": "approve"}}, id="an answer to what is not asked"),
        pytest.param("steers_again", {"text": NOTE, "data": {"percent": 7}}, id="a text with a form"),
        pytest.param("steers_again", {"text": "x" * 501}, id="a text too long for a note"),
    ],
)
async def test_what_no_agent_can_take_is_refused(
    notes_url: str, client: TemporalClient, skill: str, message: dict[str, Any]
) -> None:
    async with working(notes_url, skill) as (ann, id):
        with pytest.raises(UnsupportedOperationError):
            await send(ann, said(**message, task_id=id))
        assert (await read_run(client, id)).steering == []


async def test_nobody_else_steers_it(notes_url: str, client: TemporalClient) -> None:
    """Another's task does not exist; who only looks sends no notes."""
    async with working(notes_url, "steers_again") as (_, id):
        for name in ("bob", "eve"):
            async with agent(notes_url, name) as other:
                with pytest.raises(TaskNotFoundError):
                    await send(other, said(NOTE, task_id=id))
        assert (await read_run(client, id)).steering == []
