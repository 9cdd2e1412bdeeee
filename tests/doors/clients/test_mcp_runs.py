"""Pipelines as MCP tools, called by the SDK's own client over HTTP: progress, questions, tasks, and others' runs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Literal
from uuid import uuid4

import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, ElicitResult, InputRequiredResult, Request, RequestParams, Result, TextContent
from pydantic import ConfigDict, Field
from temporalio.client import Client, FetchWorkflowHistoryEventsInput, Interceptor, OutboundInterceptor

from baton import PipelineInput
from baton.client import Answer, Caller, ServiceParts, decide, inbox, read_run, serve_service, service
from baton.doors import client_runs
from baton.errors import BatonError, PipelineError
from tests.doors.clients.conftest import mcp_client
from tests.doors.clients.door_pipelines import WORDS

YES = {"choice": "approve", "why": "it is good", "approve.copies": 3, "approve.color": "blue"}
MODES = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


class Person:
    """The person at a client, with an answer to each question that they are asked."""

    def __init__(self, *answers: Mapping[str, Any] | str) -> None:
        self.answers, self.asked = list(answers), list[Any]()

    async def __call__(self, _: Any, params: Any) -> ElicitResult:
        self.asked.append(params)
        answer = self.answers.pop(0)
        return ElicitResult(action=answer) if isinstance(answer, str) else ElicitResult(action="accept", content=answer)


def said(result: CallToolResult) -> str:
    """Return the text of a result."""
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


async def asked_of(client: Client, run: str) -> Any:
    """Return the first question of a run, once it is open."""
    while True:
        async for entry in inbox(client, run):
            return entry.question
        await asyncio.sleep(0.02)


@MODES
async def test_a_pipeline_is_a_tool_with_news_and_questions(url: str, sealing: Client, mode: str) -> None:
    """The form is flat, what it cannot express is JSON; the answer is recorded as the caller's, the run as theirs."""
    person, news = Person(YES | {"approve.places": '{"Oslo": 2}'}), list[tuple[float, str]]()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        news.append((progress, message or ""))

    async with mcp_client(url, "ann", mode=mode, elicitation_callback=person) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["run_article"].input_schema["required"] == ["goal"]
        result = await client.call_tool("run_article", {"goal": "Batons"}, progress_callback=on_progress)

    state: Any = result.structured_content
    assert (said(result), state["status"]) == ("3 blue copies for Oslo", "COMPLETED")
    assert state["baton"]["decision_log"] == ["Write about batons"]
    [asked] = person.asked
    fields = ["choice", "why", "approve.copies", "approve.color", "approve.places"]
    assert [*asked.requested_schema["properties"]] == fields
    assert "".join(WORDS) in asked.message
    assert [number for number, _ in news] == sorted({number for number, _ in news})
    assert any("write: done" in text for _, text in news)
    run = await read_run(sealing, state["run"])
    [settled] = run.answers
    assert (settled.who, settled.why) == ("ann", "it is good")
    assert settled.data == {"copies": 3, "color": "blue", "places": {"Oslo": 2}}
    assert run.start.requester is not None
    assert run.start.requester.id == "ann"


@MODES
async def test_an_answer_that_does_not_fit_is_asked_again_with_the_reason(url: str, mode: str) -> None:
    person = Person(YES | {"approve.copies": 0}, YES | {"approve.places": "{"}, YES)
    async with mcp_client(url, "ann", mode=mode, elicitation_callback=person) as client:
        result = await client.call_tool("run_article", {"goal": "Batons"})

    assert said(result) == "3 blue copies for nobody"
    assert ["To approve: the answer does not fit" in asked.message for asked in person.asked] == [False, True, True]


@MODES
async def test_a_person_who_does_not_answer_leaves_the_run_to_others(url: str, sealing: Client, mode: str) -> None:
    """The call ends and the run goes on; `follow_run` returns what came of it."""
    person = Person("decline")
    async with mcp_client(url, "ann", mode=mode, elicitation_callback=person) as client:
        first = await client.call_tool("run_article", {"goal": "Batons"})
        state: Any = first.structured_content
        assert (first.is_error, state["status"], len(person.asked)) == (False, "WAITING", 1)
        question = await asked_of(sealing, state["run"])
        await decide(sealing, state["run"], question.answer("approve", who="bob", data={"copies": 1}))
        last = await client.call_tool("follow_run", {"run": state["run"]})
    assert said(last) == "1 red copies for nobody"


async def test_a_client_that_cannot_ask_is_told_what_the_run_waits_for(url: str) -> None:
    async with mcp_client(url, "ann") as client:
        result = await client.call_tool("run_article", {"goal": "Batons"})
        state: Any = result.structured_content
        assert (state["status"], "print" in state["says"]) == ("WAITING", True)
        asked = await client.call_tool("cancel_run", {"run": state["run"]})
        ended = await client.call_tool("follow_run", {"run": state["run"]})
    assert asked.structured_content["says"] != state["says"]  # also if it still waits
    assert (ended.is_error, ended.structured_content["status"]) == (True, "CANCELED")


@pytest.mark.parametrize(
    ("pipeline", "content", "output"),
    [
        ("invites", {"approve": '["ann", "bob"]'}, ["ann", "bob"]),
        ("remarks", {"approve.text": '"good"', "approve.tags": '["a"]'}, {"text": "good", "tags": ["a"]}),
    ],
)
async def test_a_form_that_mcp_cannot_express_is_filled_in_as_json(
    url: str, pipeline: str, content: dict[str, str], output: Any
) -> None:
    async with mcp_client(url, "ann", elicitation_callback=Person({"choice": "approve", **content})) as client:
        result = await client.call_tool(f"run_{pipeline}", {"goal": "Batons"})
    assert result.structured_content["output"] == output


async def test_a_vote_among_several_leaves_the_question_to_the_others(url: str, sealing: Client) -> None:
    person = Person({"choice": "approve"})
    async with mcp_client(url, "ann", elicitation_callback=person) as client:
        first = await client.call_tool("run_asks_two", {"goal": "Go"})
        state: Any = first.structured_content
        assert state["status"] == "WAITING"
        question = await asked_of(sealing, state["run"])
        assert [vote.who for vote in question.votes] == ["ann"]
        await decide(sealing, state["run"], Answer(choice="approve", who="bob", question=question.id))
        assert said(await client.call_tool("follow_run", {"run": state["run"]})) == "gone"


async def test_a_question_to_others_is_not_asked(url: str) -> None:
    person = Person()
    async with mcp_client(url, "ann", elicitation_callback=person) as client:
        result = await client.call_tool("run_article", {"goal": "Batons", "params": {"who": ["bob"]}})
    assert (result.structured_content["status"], person.asked) == ("WAITING", [])


async def test_a_run_that_fails_is_an_error_with_its_reason(url: str) -> None:
    async with mcp_client(url, "ann") as client:
        result = await client.call_tool("run_breaks", {"goal": "Batons"})
    assert (result.is_error, "the press is broken" in said(result)) == (True, True)


async def test_the_same_key_is_the_same_run_of_a_pipeline(url: str) -> None:
    """And another run of another pipeline."""
    async with mcp_client(url, "ann") as client:
        tools = ["run_article", "run_article", "run_asks_two"]
        results = [await client.call_tool(tool, {"goal": "Batons", "key": "order-7"}) for tool in tools]
    first, again, other = [result.structured_content["run"] for result in results]
    assert (again == first, other == first) == (True, False)


async def test_two_pipelines_with_one_tool_are_refused(parts: ServiceParts) -> None:
    """A caller of the tool could not tell which one it starts."""
    offer = parts.offers["article"]
    with pytest.raises(BatonError, match="pay_now"):
        service(replace(parts, offers={"pay now": offer, "article": offer, "pay_now": offer}))


async def test_the_run_of_another_is_not_there(url: str) -> None:
    """Neither to follow, nor to stop, nor as a task; and who may only look starts nothing."""
    async with mcp_client(url, "ann") as ann:
        run = (await ann.call_tool("run_article", {"goal": "Batons"})).structured_content["run"]
    async with mcp_client(url, "bob", extensions=[TaskClient()]) as bob:
        for tool in ("follow_run", "cancel_run"):
            theirs, none = [await bob.call_tool(tool, {"run": id}) for id in (run, "none")]
            assert (theirs.is_error, said(theirs).replace(run, "none")) == (True, said(none))
        for id in (run, "none"):
            with pytest.raises(MCPError, match="you have no run"):
                await send(bob, "tasks/get", id)
    async with mcp_client(url, "viewer") as viewer:
        assert "operator" in said(await viewer.call_tool("run_article", {"goal": "Batons"}))


class Meanwhile(Interceptor):
    """Something happens once a client has read a run, before it reads it again."""

    def __init__(self, happens: Callable[[], Awaitable[None]]) -> None:
        self.happens, self.reads = happens, 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        meanwhile = self

        class Outbound(OutboundInterceptor):
            async def fetch_workflow_history_events(self, input: FetchWorkflowHistoryEventsInput) -> Any:
                meanwhile.reads += 1
                if meanwhile.reads == 2:
                    await meanwhile.happens()
                async for event in next.fetch_workflow_history_events(input):
                    yield event

        return Outbound(next)


async def test_an_answer_counts_only_for_what_was_shown(parts: ServiceParts) -> None:
    """It is refused if the baton changes while the door passes it on."""
    ann, client = Caller("ann"), parts.client
    offer = parts.offers["revises"]
    id = await client_runs.start(parts, ann, offer, PipelineInput(goal="Batons"), key=uuid4().hex)

    async def asked(title: str) -> Any:
        while True:
            for question in (await read_run(client, id)).questions:
                if question.title == title:
                    return question
            await asyncio.sleep(0.02)

    shown, revise = await asked("go"), await asked("revise")

    async def change() -> None:
        await decide(client, id, revise.answer("approve", who="bob"))
        while (await asked("go")).digest == shown.digest:  # noqa: ASYNC110 - a history gives no event
            await asyncio.sleep(0.02)

    config = client.config() | {"interceptors": [Meanwhile(change)]}
    changing = replace(parts, client=Client(**config))
    with pytest.raises(PipelineError):
        await client_runs.answer(changing, ann, id, "approve", question=shown.id, digest=shown.digest)
    now = await asked("go")
    await client_runs.answer(parts, ann, id, "approve", question=now.id, digest=now.digest)
    assert (await client.get_workflow_handle(id).result())["output"] == "gone"


class TestRounds:
    """The rounds of one call, driven by hand as over days."""

    async def ask(self, url: str, name: str = "ann", **more: Any) -> Any:
        async with mcp_client(url, name, elicitation_callback=Person()) as client:
            return await client.session.call_tool("run_article", {"goal": "Batons"}, allow_input_required=True, **more)

    @pytest.mark.parametrize("for_agents", [True, False])
    async def test_the_state_of_a_call_outlives_the_service(self, parts: ServiceParts, for_agents: bool) -> None:
        """Another service with the same keys takes the answer; sent again, it decides nothing."""
        assert parts.agents is not None
        keyring = parts.agents.gate.keyring
        both = parts if for_agents else replace(parts, agents=None, keyring=keyring)
        async with serve_service(service(both), port=0) as url, serve_service(service(both), port=0) as other:
            await self.answer_elsewhere(url, other)

    async def answer_elsewhere(self, url: str, other: str) -> None:
        first = await self.ask(url)
        assert isinstance(first, InputRequiredResult)
        answers = {key: ElicitResult(action="accept", content=dict(YES)) for key in first.input_requests or {}}
        again: Any = {"request_state": first.request_state, "input_responses": answers}
        last = await self.ask(other, **again)
        repeated = await self.ask(url, **again)
        assert [said(result) for result in (last, repeated)] == ["3 blue copies for nobody"] * 2

    @pytest.mark.parametrize("change", ["another", "forged", "other arguments"])
    async def test_a_state_that_is_not_the_callers_is_refused(self, url: str, change: str) -> None:
        first = await self.ask(url)
        state = first.request_state[:-4] + "AAAA" if change == "forged" else first.request_state
        name = "bob" if change == "another" else "ann"
        async with mcp_client(url, name, elicitation_callback=Person()) as client:
            goal = "Others" if change == "other arguments" else "Batons"
            with pytest.raises(MCPError, match="requestState"):
                await client.session.call_tool(
                    "run_article", {"goal": goal}, request_state=state, allow_input_required=True
                )


class TaskResult(Result):
    """What a call returns to a client that takes tasks."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str = ""


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")
    input_responses: dict[str, Any] | None = Field(default=None, alias="inputResponses")


class TaskState(Result):
    model_config = ConfigDict(extra="allow")
    status: str = ""


async def send(client: Any, method: str, task_id: str, **params: Any) -> Any:
    """Send a method of tasks."""
    request = Request[TaskParams, str](method=method, params=TaskParams(taskId=task_id, **params))
    return await client.session.send_request(request, TaskState)


async def reached(client: Any, task_id: str, status: str) -> Any:
    """Return a task once it has a status."""
    while (task := await send(client, "tasks/get", task_id)).status != status:  # noqa: ASYNC110 - clients poll
        await asyncio.sleep(0.02)
    return task


async def keep(result: TaskResult, _: ClaimContext) -> CallToolResult:
    """Return the task itself."""
    state = {"run": result.task_id, "status": result.status, "says": ""}  # what the tool's schema asks for
    return CallToolResult(content=[TextContent(type="text", text=result.task_id)], structured_content=state)


class TaskClient(ClientExtension):
    """A client that takes tasks."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Any:
        return (ResultClaim(result_type="task", model=TaskResult, resolve=keep),)


async def test_a_client_that_takes_tasks_gets_one_and_answers_in_it(url: str) -> None:
    """The task's id is the run's; its questions are input requests, its end the tool's result."""
    async with mcp_client(url, "ann", extensions=[TaskClient()]) as client:
        task_id = said(await client.call_tool("run_article", {"goal": "Batons"}))
        task = await reached(client, task_id, "input_required")
        [key] = task.model_extra["inputRequests"]
        misfit = {"action": "accept", "content": YES | {"approve.copies": 0}}
        with pytest.raises(MCPError, match="does not fit"):
            await send(client, "tasks/update", task_id, inputResponses={key: misfit})
        await send(
            client,
            "tasks/update",
            task_id,
            inputResponses={key: {"action": "accept", "content": YES}, "none": {"action": "decline"}},
        )
        task = await reached(client, task_id, "completed")
        assert task.model_extra["result"]["content"][0]["text"] == "3 blue copies for nobody"
        other = said(await client.call_tool("run_article", {"goal": "Batons"}))
        await send(client, "tasks/cancel", other)
        await reached(client, other, "cancelled")
