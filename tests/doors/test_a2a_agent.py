"""A remote agent over A2A as a stage: its answer, cost, cancel, resumption, and what a hostile one cannot do."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from temporalio.client import Client, WorkflowFailureError

from baton import PipelineInput, Retries
from baton.agents import A2AAgent, AgentLimits, AnswerForm, agent_stage
from baton.client import NewsKind, follow, read_run
from baton.codec.server import serving
from baton.testing import pipeline_worker
from baton.wire.names import A2A_EXTENSION
from tests.doors.conftest import token_of
from tests.doors.door_pipelines import delegating
from tests.doors.test_a2a import agent as caller

VARIABLE = "WRITER_TOKEN"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the worker the token."""
    monkeypatch.setenv(VARIABLE, token_of("ann"))


def stage_of(url: str, skill: str | None = "quick", *, retries: int = 1, **members: Any) -> Any:
    """Return the stage of a remote agent."""
    members = {"token_variable": VARIABLE, **members}
    limits = AgentLimits(seconds=members.pop("seconds", 60))
    remote = A2AAgent("writer", url, skill, **members)
    again = Retries(attempts=retries, first=timedelta(milliseconds=50))
    return agent_stage(remote, answers=AnswerForm.TEXT, limits=limits, retries=again, notes=False)


async def start(client: Client, queue: str) -> Any:
    """Start the pipeline that delegates."""
    id = f"delegating-{uuid4()}"
    return await client.start_workflow("delegating", PipelineInput(goal="Batons"), id=id, task_queue=queue)


async def outcome(client: Client, stage: Any) -> tuple[Any, Any]:
    """Run the pipeline with a stage; return its result or failure, and its record."""
    async with pipeline_worker(client, [delegating], [stage]) as worker:
        handle = await start(client, worker.task_queue)
        try:
            result = await handle.result()
        except WorkflowFailureError as error:
            result = error
        return result, await read_run(client, handle.id)


async def test_a_remote_pipeline_is_a_stage(client: Client, url: str) -> None:
    """Its answer is the stage's output, its messages are streamed, and no token is in the history."""
    async with pipeline_worker(client, [delegating], [stage_of(url)]) as worker:
        handle = await start(client, worker.task_queue)
        streamed = [
            news.text
            async for update in follow(client, handle.id)
            for news in update.news
            if news.kind is NewsKind.TEXT
        ]
        result = await handle.result()
        history = (await handle.fetch_history()).to_json()
    assert "Batons" in result["output"]
    assert any("tick: done" in text for text in streamed)
    assert token_of("ann") not in history


async def test_its_cost_is_charged(client: Client, url: str) -> None:
    """Also if the agent then asks for input, which a stage cannot give; the remote task is canceled."""
    before = await remote_tasks(url)
    result, run = await outcome(client, stage_of(url, "article"))
    assert isinstance(result, WorkflowFailureError)
    assert "asks for input" in run.failure
    assert (run.billed.micro_usd, run.billed.prompt_tokens) == (1_200, 300)
    task = await new_task(url, before)
    while (await remote_tasks(url))[task] == pb.TASK_STATE_INPUT_REQUIRED:
        pass  # until the service has seen the end


async def remote_tasks(url: str) -> dict[str, int]:
    """Return the state of every task of the caller."""
    async with caller(url) as client:
        return {
            task.id: task.status.state for task in (await client.list_tasks(pb.ListTasksRequest(page_size=100))).tasks
        }


async def new_task(url: str, before: dict[str, int]) -> str:
    """Return the task that is not among those before, once it is listed."""
    while True:
        if new := (await remote_tasks(url)).keys() - before.keys():
            return new.pop()


async def test_a_canceled_stage_cancels_the_task(client: Client, url: str) -> None:
    before = await remote_tasks(url)
    async with pipeline_worker(client, [delegating], [stage_of(url, "endless")]) as worker:
        handle = await start(client, worker.task_queue)
        id = await new_task(url, before)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        while (await remote_tasks(url))[id] != pb.TASK_STATE_CANCELED:
            pass


async def test_the_next_worker_takes_up_the_same_task(client: Client, url: str) -> None:
    before, queue = await remote_tasks(url), f"delegating-{uuid4()}"
    stage = stage_of(url, "endless", retries=5)
    async with pipeline_worker(client, [delegating], [stage], task_queue=queue):
        handle = await start(client, queue)
        id = await new_task(url, before)
    assert (await remote_tasks(url))[id] == pb.TASK_STATE_WORKING
    async with pipeline_worker(client, [delegating], [stage], task_queue=queue):
        async for update in follow(client, handle.id):
            if any("hang: begins" in news.text for news in update.news if news.kind is NewsKind.TEXT):
                break
        async with caller(url) as service:
            await service.cancel_task(pb.CancelTaskRequest(id=id))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert (await remote_tasks(url)).keys() - before.keys() == {id}


async def test_a_task_has_a_deadline(client: Client, url: str) -> None:
    result, run = await outcome(client, stage_of(url, "endless", seconds=1))
    assert isinstance(result, WorkflowFailureError)
    assert "in time" in run.failure


Answer = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def hostile(answer: Answer, *, interface: str | None = None) -> AsyncIterator[str]:
    """Serve a card whose interface answers as it likes; yield its address."""

    async def card(request: Request) -> Response:
        url = interface or f"{str(request.base_url).rstrip('/')}/a2a"
        interfaces = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
        members = {"name": "x", "description": "x", "version": "1", "capabilities": {}, "skills": []}
        modes = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
        return JSONResponse({**members, **modes, "supportedInterfaces": interfaces})

    routes = [Route("/.well-known/agent-card.json", card), Route("/a2a", answer, methods=["POST"])]
    async with serving(Starlette(routes=routes), "the agent") as url:
        yield url


def rpc(result: Any) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": "1", "result": result})


async def _redirects(_: Request) -> Response:
    return RedirectResponse("http://127.0.0.1:9/steal", status_code=307)


async def _floods(_: Request) -> Response:
    return Response(b"x" * 300_000, media_type="application/json")


async def _babbles(_: Request) -> Response:
    return Response(b"[" * 50_000, media_type="application/json")


async def _refuses(_: Request) -> Response:
    return Response(status_code=401)


async def _errs(_: Request) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": "1", "error": {"code": -32602, "message": f"no {token_of('ann')}"}})


async def _misses(_: Request) -> Response:
    return rpc({"task": {"id": 7, "status": "done"}})


@pytest.mark.parametrize("answer", [_redirects, _floods, _babbles, _refuses, _errs, _misses])
async def test_a_hostile_agent_fails_its_stage_and_gets_no_further(client: Client, answer: Answer) -> None:
    """At the first attempt; the token that it sends back is masked."""
    async with hostile(answer) as url:
        result, run = await outcome(client, stage_of(url, most_bytes=100_000, retries=3))
    assert isinstance(result, WorkflowFailureError)
    assert "writer" in run.failure
    assert token_of("ann") not in json.dumps(run.to_json_object(), default=str)
    assert [step.retries for step in run.steps] == [0]


async def test_a_card_that_names_another_origin_is_refused(client: Client) -> None:
    """So the token goes nowhere else."""
    stolen: list[str] = []

    async def steal(request: Request) -> Response:
        stolen.append(request.headers.get("authorization", ""))
        return rpc({})

    async with hostile(steal) as elsewhere, hostile(steal, interface=f"{elsewhere}/a2a") as url:
        result, run = await outcome(client, stage_of(url, retries=3))
    assert isinstance(result, WorkflowFailureError)
    assert not stolen
    assert [step.retries for step in run.steps] == [0]


async def test_an_answer_without_a_task_counts(client: Client) -> None:
    async def answer(request: Request) -> Response:
        assert request.headers["authorization"] == f"Bearer {token_of('ann')}"
        return rpc({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Here it is"}]}})

    async with hostile(answer) as url:
        result, _ = await outcome(client, stage_of(url))
    assert result["output"] == "Here it is"


async def test_an_absurd_cost_is_not_charged(client: Client) -> None:
    async def answer(_: Request) -> Response:
        told = {A2A_EXTENSION: {"cost": {"micro_usd": 1e30, "prompt_tokens": 1e300}}}
        done = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}, "metadata": told}
        return rpc({"task": {**done, "artifacts": [{"artifactId": "output", "parts": [{"text": "Here it is"}]}]}})

    async with hostile(answer) as url:
        result, run = await outcome(client, stage_of(url))
    assert (result["output"], bool(run.billed)) == ("Here it is", False)


async def test_a_missing_token_suspends_the_run(client: Client, url: str, tmp_path: Path) -> None:
    """Until a worker has it: this one lacks it."""
    stage = stage_of(url, token_variable=None, token_file=tmp_path / "token")
    async with pipeline_worker(client, [delegating], [stage]) as worker:
        handle = await start(client, worker.task_queue)
        async for update in follow(client, handle.id):
            if any(news.kind is NewsKind.WAITS_FOR_WORKER for news in update.news):
                break
        await handle.terminate()


@pytest.mark.parametrize("url", ["", "ftp://agents.example", "https://", "https://ann:secret@agents.example"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="card_url"):
        A2AAgent("writer", url)
