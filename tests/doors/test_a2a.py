"""Pipelines as A2A agents, called with the SDK's own client over both bindings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.helpers import get_data_parts, get_message_text
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict
from temporalio.client import Client as TemporalClient
from temporalio.worker import Worker

from baton import Pipeline, PipelineInput, Requester, Safeguards, pipeline
from baton.client import Access, Caller, Offer, ServiceParts, Tokens, read_run, serve_service, service
from baton.client.faces import ArtifactStore
from baton.devserver.processes import held_port
from baton.protocol import verify
from baton.testing import pipeline_worker
from tests.doors.conftest import http_of, token_of
from tests.doors.door_pipelines import quick, tick

EXTENSION = "urn:baton:a2a:1"
BINDINGS = ("JSONRPC", "HTTP+JSON")


@asynccontextmanager
async def agent(
    url: str, name: str = "ann", binding: str = "JSONRPC", *, streaming: bool = True
) -> AsyncIterator[Client]:
    """Yield the SDK's client of a caller."""
    async with http_of(name) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], streaming=streaming)
        yield ClientFactory(config).create(card)


def said(text: str = "", data: Any = None, *, skill: str | None = None, **members: Any) -> pb.Message:
    """Return a caller's message."""
    parts = [pb.Part(text=text)] if text else []
    message = pb.Message(message_id=str(uuid4()), role=pb.ROLE_USER, parts=parts, **members)
    if data is not None:
        message.parts.add().data.struct_value.update(data)
    if skill is not None:
        message.metadata.update({"skill": skill})
    return message


async def send(client: Client, message: pb.Message, **configuration: Any) -> list[pb.StreamResponse]:
    """Send a message, and return every event."""
    request = pb.SendMessageRequest(message=message, configuration=pb.SendMessageConfiguration(**configuration))
    return [event async for event in client.send_message(request)]


def states(events: list[pb.StreamResponse]) -> list[int]:
    """Return the states that events say, each once in a row."""
    seen = [
        event.task.status.state if event.HasField("task") else event.status_update.status.state
        for event in events
        if event.HasField("task") or event.HasField("status_update")
    ]
    return [state for index, state in enumerate(seen) if index == 0 or seen[index - 1] != state]


def task_id(events: list[pb.StreamResponse]) -> str:
    """Return the id of the task that a stream begins with."""
    assert events[0].HasField("task")
    return events[0].task.id


def extended(metadata: Any) -> Any:
    """Return what metadata has by the extension."""
    return MessageToDict(metadata)[EXTENSION]


async def ask_article(client: Client, **params: Any) -> str:
    """Start a pipeline up to its question, and return its task's id."""
    events = await send(client, said("Batons", {"params": params} if params else None, skill="article"))
    assert states(events)[-1] == pb.TASK_STATE_INPUT_REQUIRED
    return task_id(events)


async def test_the_card_has_each_pipeline_with_its_input_schema(url: str) -> None:
    async with http_of(None) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    assert {skill.id for skill in card.skills} == {"article", "quick", "endless", "conformance"}
    assert [interface.protocol_binding for interface in card.supported_interfaces] == list(BINDINGS)
    [extension] = card.capabilities.extensions
    assert extension.uri == EXTENSION
    schema = MessageToDict(extension.params)["skills"]["article"]
    assert schema["properties"]["params"]["properties"]["words"]["minimum"] == 1
    assert "bearer" in card.security_schemes


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_message_starts_a_run_and_its_steps_come_as_messages(
    url: str, binding: str, doors_worker: Worker
) -> None:
    async with agent(url, binding=binding) as client:
        events = await send(client, said("Batons", {"params": {"words": 120}}, skill="article", context_id="c-1"))
        assert states(events) == [pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING, pb.TASK_STATE_INPUT_REQUIRED]
        artifacts = [event.artifact_update.artifact for event in events if event.HasField("artifact_update")]
        assert [(artifact.artifact_id, artifact.parts[0].text) for artifact in artifacts] == [("outline", "# Batons")]
        news = [get_data_parts(event.status_update.status.message.parts) for event in events[1:]]
        done = [row for rows in news for row in rows if row.get("what") == "step_done"]
        assert [row["name"] for row in done] == ["outline"]
        run = await read_run(doors_worker.client, task_id(events))
        assert run.start.requester is not None
        assert (run.start.requester.id, run.start.params, events[0].task.context_id) == ("ann", {"words": 120}, "c-1")


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_question_is_answered_by_a_typed_message(url: str, binding: str) -> None:
    async with agent(url, binding=binding) as client:
        id = await ask_article(client)
        task = await client.get_task(pb.GetTaskRequest(id=id))
        [asked] = get_data_parts(task.status.message.parts)
        assert {choice["choice"] for choice in asked["choices"]} == {"approve", "deny"}
        events = await send(client, said(task_id=id, data={"percent": 7, "note": "short"}))
        assert states(events)[-1] == pb.TASK_STATE_COMPLETED
        task = await client.get_task(pb.GetTaskRequest(id=id))
    output = next(artifact for artifact in task.artifacts if artifact.artifact_id == "output")
    assert get_data_parts(output.parts) == [{"words": 300.0, "percent": 7.0, "note": "short"}]
    assert extended(task.metadata)["cost"]["micro_usd"] == 1_200
    roles = [message.role for message in task.history]
    assert (roles[0], roles.count(pb.ROLE_USER)) == (pb.ROLE_USER, 2)
    assert get_message_text(task.history[0]) == "Batons"


@pytest.mark.parametrize("answer", ['{"percent": 7}', '{"choice": "approve", "data": {"percent": 7}}'])
async def test_an_answer_may_be_json_in_a_text(url: str, answer: str) -> None:
    """Of a client whose users and models write texts only, such as ADK's."""
    async with agent(url) as client:
        id = await ask_article(client)
        await send(client, said(answer, task_id=id))
        task = await client.get_task(pb.GetTaskRequest(id=id))
    output = next(artifact for artifact in task.artifacts if artifact.artifact_id == "output")
    assert get_data_parts(output.parts) == [{"words": 300.0, "percent": 7.0, "note": ""}]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"percent": "many"}, ""),
        ({"choice": "approve", "data": {}}, ""),
        ({"choice": "burn"}, ""),
        ({"choice": "approve", "data": {"percent": 1}, "color": "red"}, ""),
        (None, "seven"),
        (None, '{"percent": "many"}'),
        (None, '{"choice": "burn"}'),
        (None, "[7]"),
        (None, '{"percent": %s}' % ("9" * 10_000)),
        (None, '{"percent": 7, "why": "\\ud800"}'),
        (None, 'They wrote: {"percent": 7}'),
        (None, '```json\n{"choice": "approve", "data": {"percent": 7}}\n```'),
        (None, '{"choice": "approve", "data": {"percent": 7}} {"choice": "deny"}'),
        (None, "[" * 100_000),
        ({"question": "9:0000000000000000", "choice": "deny"}, ""),
    ],
)
async def test_a_wrong_answer_is_refused_and_the_question_stays(url: str, data: Any, text: str) -> None:
    async with agent(url) as client:
        id = await ask_article(client)
        with pytest.raises(A2AError):
            await send(client, said(text, data, task_id=id))
        assert (await client.get_task(pb.GetTaskRequest(id=id))).status.state == pb.TASK_STATE_INPUT_REQUIRED


async def test_a_file_is_no_part_of_an_answer(url: str) -> None:
    """It is refused: no run would get it."""
    async with agent(url) as client:
        id = await ask_article(client)
        message = said(task_id=id, data={"percent": 7})
        message.parts.add(raw=b"signed", filename="signed.pdf", media_type="application/pdf")
        with pytest.raises(ContentTypeNotSupportedError):
            await send(client, message)
        assert (await client.get_task(pb.GetTaskRequest(id=id))).status.state == pb.TASK_STATE_INPUT_REQUIRED


@pytest.mark.parametrize("text", ['{"choice": "deny"}', ' {"choice": "approve", "data": {"text": "Fine"}}'])
async def test_a_choice_in_json_is_not_the_text_of_an_approval(url: str, text: str) -> None:
    """A form with one text takes any text: a denial that came as JSON would approve."""
    async with agent(url) as client:
        message = said("Batons", skill="conformance")
        message.message_id = f"tck-input-required-{message.message_id}"
        id = task_id(await send(client, message))
        with pytest.raises(InvalidParamsError):
            await send(client, said(text, task_id=id))
        assert (await client.get_task(pb.GetTaskRequest(id=id))).status.state == pb.TASK_STATE_INPUT_REQUIRED
        assert states(await send(client, said("deny", task_id=id)))[-1] == pb.TASK_STATE_REJECTED


async def test_a_denied_task_is_rejected(url: str) -> None:
    async with agent(url) as client:
        id = await ask_article(client)
        events = await send(client, said("deny", task_id=id))
        assert states(events)[-1] == pb.TASK_STATE_REJECTED
        with pytest.raises(UnsupportedOperationError):
            await send(client, said("approve", task_id=id))


@pytest.mark.parametrize(
    "message",
    [
        said("Batons"),
        said("Batons", skill="nothing"),
        said("Batons", {"params": {"words": 0}}, skill="article"),
        said("Batons", {"outcomes": []}, skill="article"),
        said("Batons", {"requester": {"id": "bob"}}, skill="article"),
        said("Batons", {"params": {}, "baton": {"current_state": 7}}, skill="article"),
        said(data={"params": {}}, skill="article"),
        pb.Message(message_id="url", role=pb.ROLE_USER, parts=[pb.Part(url="http://127.0.0.1/x")]),
    ],
)
async def test_a_message_that_does_not_fit_starts_nothing(url: str, message: pb.Message) -> None:
    async with agent(url) as client:
        with pytest.raises(A2AError):
            await send(client, message)


async def test_the_same_message_again_is_the_same_task(url: str) -> None:
    """Replayed by its caller; from another caller it is another's message."""
    message = said("Batons", skill="quick")
    async with agent(url) as ann, agent(url, "bob") as bob:
        first, again, other = [await send(client, message) for client in (ann, ann, bob)]
    assert task_id(first) == task_id(again) != task_id(other)
    assert states(again)[-1] == pb.TASK_STATE_COMPLETED


async def test_a_file_becomes_an_input(url: str, doors_worker: Worker) -> None:
    message = said("Batons", skill="quick")
    message.parts.add(raw=b"a,b\n", filename="prices.csv", media_type="text/csv")
    async with agent(url) as client:
        events = await send(client, message)
    run = await read_run(doors_worker.client, task_id(events))
    assert "prices_csv" in run.start.inputs


async def test_each_file_becomes_an_input_of_its_own(url: str, doors_worker: Worker, store: ArtifactStore) -> None:
    """Phones name all pictures alike, and names in other letters come to the same."""
    message = said("Batons", skill="quick")
    names = ("image.png", "image_png_4", "image.png", "合同.pdf", "附件.pdf")
    for number, name in enumerate(names):
        message.parts.add(raw=str(number).encode(), filename=name, media_type="application/pdf")
    async with agent(url) as client:
        events = await send(client, message)
    inputs = (await read_run(doors_worker.client, task_id(events))).start.inputs
    kept = sorted([await store.get(ref["$artifact"]["hash"]) for ref in inputs.values()])
    assert kept == [str(number).encode() for number in range(len(names))]


async def test_a_file_does_not_replace_an_input(url: str) -> None:
    message = said("Batons", {"inputs": {"prices_csv": "none"}}, skill="quick")
    message.parts.add(raw=b"a,b\n", filename="prices.csv", media_type="text/csv")
    async with agent(url) as client:
        with pytest.raises(InvalidParamsError):
            await send(client, message)


async def test_another_callers_task_is_not_there(url: str) -> None:
    async with agent(url) as ann, agent(url, "bob") as bob, agent(url, "ops") as ops:
        id = await ask_article(ann)
        with pytest.raises(TaskNotFoundError):
            await bob.get_task(pb.GetTaskRequest(id=id))
        with pytest.raises(TaskNotFoundError):
            await bob.cancel_task(pb.CancelTaskRequest(id=id))
        with pytest.raises(TaskNotFoundError):
            await send(bob, said(task_id=id, data={"percent": 7}))
        with pytest.raises(TaskNotFoundError):
            async for _ in bob.subscribe(pb.SubscribeToTaskRequest(id=id)):
                pass
        assert (await ops.get_task(pb.GetTaskRequest(id=id))).id == id
        assert (await ann.get_task(pb.GetTaskRequest(id=id))).status.state == pb.TASK_STATE_INPUT_REQUIRED


async def test_a_run_that_nobody_started_here_is_not_there(url: str, doors_worker: Worker) -> None:
    start = PipelineInput(goal="Batons", requester=Requester(id="ann", issuer="baton run"))
    id = f"elsewhere-{uuid4()}"
    await doors_worker.client.start_workflow("quick", start, id=id, task_queue=doors_worker.task_queue)
    async with agent(url) as ann:
        with pytest.raises(TaskNotFoundError):
            await ann.get_task(pb.GetTaskRequest(id=id))


async def test_a_caller_may_do_what_their_token_says(url: str) -> None:
    async with agent(url, "eve") as eve, agent(url, "shop") as shop:
        with pytest.raises(UnsupportedOperationError):
            await send(eve, said("Batons", skill="quick"))
        id = await ask_article(shop)
        with pytest.raises(UnsupportedOperationError):
            await send(shop, said(task_id=id, data={"percent": 7}))


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_task_is_canceled(url: str, binding: str) -> None:
    async with agent(url, binding=binding, streaming=False) as client:
        [started] = await send(client, said("Batons", skill="endless"), return_immediately=True)
        task = await client.cancel_task(pb.CancelTaskRequest(id=started.task.id))
        assert task.status.state == pb.TASK_STATE_CANCELED
        with pytest.raises(A2AError):
            await client.cancel_task(pb.CancelTaskRequest(id=started.task.id))


async def test_one_subscribes_again_from_where_one_was(url: str) -> None:
    """After a lost stream, no news is missing and none comes twice."""
    async with agent(url) as client:
        events = await send(client, said("Batons", skill="article"))
        id, updates = task_id(events), [event.status_update for event in events if event.HasField("status_update")]
        cursor = extended(updates[1].metadata)["cursor"]
        context = ClientCallContext(
            service_parameters=ServiceParametersFactory.create([lambda given: given.update({"Last-Event-ID": cursor})])
        )
        again = list[pb.StreamResponse]()
        async for event in client.subscribe(pb.SubscribeToTaskRequest(id=id), context=context):
            if not again:
                await send(client, said(task_id=id, data={"percent": 7}))
            again.append(event)
    assert again[0].HasField("task")
    rest = [event.status_update.status.message.message_id for event in again if event.HasField("status_update")]
    known = [update.status.message.message_id for update in updates]
    assert rest[: len(known) - 2] == known[2:]
    assert states(again)[-1] == pb.TASK_STATE_COMPLETED


@pipeline
async def lengthy(p: Pipeline) -> None:
    """Do so many steps that the server has the history in two pages, then ask."""
    for _ in range(90):
        await p.sleep(timedelta(milliseconds=1))
    await p.approve("editor", within=timedelta(days=1))


async def test_what_was_before_is_no_news_to_who_subscribes(doors_worker: Worker) -> None:
    """However long the history is; the task comes first, as it is."""
    async with pipeline_worker(doors_worker.client, [lengthy], []) as worker:
        with held_port() as port:
            address = f"http://127.0.0.1:{port}"
        offers = {"lengthy": Offer("lengthy", worker.task_queue)}
        parts = ServiceParts(worker.client, offers, Access(tokens=Tokens({Caller("ann"): token_of("ann")})), address)
        async with serve_service(service(parts), port=port), agent(address) as client:
            id = task_id(await send(client, said("Batons")))
            events = list[pb.StreamResponse]()
            async for event in client.subscribe(pb.SubscribeToTaskRequest(id=id)):
                if not events:
                    await send(client, said("approve", task_id=id))
                events.append(event)
    assert events[0].task.status.state == pb.TASK_STATE_INPUT_REQUIRED
    news = [get_data_parts(event.status_update.status.message.parts) for event in events[1:]]
    assert {row["seq"] for rows in news for row in rows if "seq" in row} == {91}
    assert states(events)[-1] == pb.TASK_STATE_COMPLETED


async def test_tasks_are_listed_by_page_context_and_state(url: str) -> None:
    context = str(uuid4())
    async with agent(url) as ann, agent(url, "bob") as bob:
        ids = [task_id(await send(ann, said("Batons", skill="quick", context_id=context))) for _ in range(3)]
        waiting = task_id(await send(ann, said("Batons", skill="article", context_id=context)))
        await send(bob, said("Batons", skill="quick", context_id=context))

        async def listed(client: Client, **members: Any) -> pb.ListTasksResponse:
            while True:  # the server's index lags behind by a moment
                page = await client.list_tasks(pb.ListTasksRequest(context_id=context, **members))
                if page.total_size:
                    return page

        while (page := await listed(ann)).total_size < 4:
            pass
        assert {task.id for task in page.tasks} == {*ids, waiting}
        assert {task.context_id for task in page.tasks} == {context}
        assert [task.id for task in (await listed(ann, status=pb.TASK_STATE_INPUT_REQUIRED)).tasks] == [waiting]
        first = await listed(ann, page_size=3)
        second = await listed(ann, page_size=3, page_token=first.next_page_token)
        assert {task.id for task in [*first.tasks, *second.tasks]} == {*ids, waiting}
        assert {task.id for task in (await listed(bob)).tasks}.isdisjoint(ids)
        with pytest.raises(InvalidParamsError):
            await ann.list_tasks(pb.ListTasksRequest(page_token="nonsense"))


async def test_the_context_that_a_task_names_is_listed(url: str) -> None:
    """Of a message without one too; the message sent again is still the same task."""
    message = said("Batons", skill="quick")
    async with agent(url) as client:
        [task, *_] = [event.task for event in await send(client, message)]
        assert (await send(client, message))[0].task.id == task.id
        async with asyncio.timeout(60):
            while not (page := await client.list_tasks(pb.ListTasksRequest(context_id=task.context_id))).tasks:
                pass  # the server's index lags behind by a moment
        assert [listed.id for listed in page.tasks] == [task.id]


async def test_a_run_that_cannot_be_read_leaves_the_others_listed(url: str, doors_worker: Worker) -> None:
    """Such as one that is gone since the list was made, or that somebody else started by such an id."""
    context = str(uuid4())
    async with agent(url) as client:
        id = task_id(await send(client, said("Batons", skill="quick", context_id=context)))
        start = PipelineInput(goal="Batons", requester=Requester(id="ann", issuer="baton run"))
        other = f"{id.rpartition('-')[0]}-{uuid4()}"
        await doors_worker.client.start_workflow("quick", start, id=other, task_queue=doors_worker.task_queue)
        while (page := await client.list_tasks(pb.ListTasksRequest(context_id=context))).total_size < 2:
            pass  # the server's index lags behind by a moment
    assert [task.id for task in page.tasks] == [id]


async def test_signed_handoffs_and_contracts_arrive_byte_for_byte(
    sealing: TemporalClient, safeguards: Safeguards
) -> None:
    """With the extension only; a receiver elsewhere verifies the signature over the received bytes."""
    async with pipeline_worker(sealing, [quick], [tick]) as worker:
        offers = {"quick": Offer("quick", worker.task_queue)}
        with held_port() as port:
            address = f"http://127.0.0.1:{port}"
        access = Access(tokens=Tokens({Caller("ann"): token_of("ann")}))
        app = service(ServiceParts(sealing, offers, access, address))
        async with serve_service(app, port=port), agent(address) as client:
            events = await send(client, said("Batons", {"params": {"whole": 3, "half": 0.5}}))
            request = pb.GetTaskRequest(id=task_id(events))
            assert not (await client.get_task(request)).artifacts[1:]
            context = ClientCallContext(
                service_parameters=ServiceParametersFactory.create([with_a2a_extensions([EXTENSION])])
            )
            task = await client.get_task(request, context=context)
    [handoff] = [artifact for artifact in task.artifacts if EXTENSION in artifact.extensions]
    assert handoff.parts[0].media_type == "application/vnd.baton.handoff+json"
    verified = verify(handoff.parts[0].raw, safeguards.keyring)
    assert verified.message["toAgent"]["agentType"] == "tick"
