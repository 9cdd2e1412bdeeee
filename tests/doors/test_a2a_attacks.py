"""What a stranger, a careless and a hostile caller send to the A2A door."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import httpx
import pytest

from baton.client.faces import ArtifactStore
from baton.doors.client_service import MAX_BODY_BYTES, MAX_CALLS, MAX_STREAMS
from tests.doors.conftest import http_of, token_of

VERSION, JSON = {"A2A-Version": "1.0"}, "application/json"


def rpc(method: str, params: Any) -> dict[str, Any]:
    """Return a JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def text_message(text: str = "Batons", **members: Any) -> dict[str, Any]:
    """Return the parameters of a message."""
    message = {
        "messageId": str(uuid4()),
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        "metadata": {"skill": "quick"},
    }
    return {"message": {**message, **members}}


async def call(url: str, body: Any, name: str | None = "ann", **headers: str) -> httpx.Response:
    """Send a body to the JSON-RPC binding."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with http_of(name) as http:
        sent = {"content-type": JSON, **VERSION, **headers}
        return await http.post(f"{url}/a2a", content=content, headers=sent)


@pytest.mark.parametrize(
    ("path", "method"),
    [("/a2a", "POST"), ("/a2a/message:send", "POST"), ("/a2a/tasks", "GET"), ("/a2a/tasks/x:subscribe", "GET")],
)
async def test_without_a_token_nothing_is_answered(url: str, path: str, method: str) -> None:
    async with http_of(None) as http:
        assert (await http.request(method, f"{url}{path}", headers=VERSION)).status_code == 401


async def test_a_page_of_another_site_may_not_call(url: str) -> None:
    answer = await call(url, rpc("SendMessage", text_message()), Origin="https://evil.example")
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}', -32600),
        (rpc("tasks/delete", {}), -32601),
        (rpc("GetTask", {"id": 7}), -32602),
        (rpc("GetTask", {}), -32602),
        (rpc("GetTask", {"id": "../../x"}), -32001),
        (rpc("GetTask", {"id": "\u0000"}), -32001),
        (rpc("SendMessage", {"message": {"role": "ROLE_USER", "parts": []}}), -32602),
        (rpc("SendMessage", text_message("")), -32602),
        (rpc("SendMessage", text_message(contextId="x" * 1_000)), -32602),
        (rpc("SendMessage", text_message(parts=[{"data": {"goal": {"a": 1}}}])), -32602),
        (
            rpc("SendMessage", text_message(parts=[{"text": '{"a": 1, "a": 2}', "mediaType": "application/json"}])),
            -32602,
        ),
        (rpc("SendMessage", text_message(parts=[{"text": "x", "mediaType": "video/mp4"}])), -32005),
        (rpc("SendMessage", text_message(taskId="no-such-task")), -32001),
        (rpc("ListTasks", {"pageSize": 0}), -32602),
        (rpc("ListTasks", {"pageSize": 100_000}), -32602),
        (rpc("SendMessage", text_message(metadata={"skill": "quick", "x": [1] * 20_000})), -32602),
        (rpc("SendMessage", text_message(metadata={"skill": "quick", "x": [1] * 200_000})), -32700),
        (rpc("SendMessage", text_message(parts=[{"data": {"goal": "x", "params": {"words": float("nan")}}}])), -32700),
    ],
)
async def test_a_malformed_call_is_refused_by_its_code(url: str, body: Any, code: int) -> None:
    answer = await call(url, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, code)


async def test_a_deeply_nested_call_is_refused(url: str) -> None:
    answer = await call(url, b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":' + b"[" * 200_000)
    assert answer.json()["error"]["code"] in (-32700, -32600, -32602, -32603)
    assert (await call(url, rpc("ListTasks", {}))).status_code == 200


async def test_a_deeply_nested_task_is_still_listed(url: str) -> None:
    """As deep as any door lets it, though protobuf reads less: its part is a text then."""
    nested: Any = 1
    for _ in range(40):
        nested = {"a": nested}
    part = {"data": {"goal": "Batons", "params": {"nested": nested}}}
    sent = await call(url, rpc("SendMessage", text_message(parts=[part])), "bob")
    id = sent.json()["result"]["task"]["id"]
    listed = (await call(url, rpc("ListTasks", {}), "bob")).json()["result"]["tasks"]
    [goal] = [task["history"][0] for task in listed if task["id"] == id]
    assert json.loads(goal["parts"][1]["text"])["params"] == {"nested": nested}


async def task_with(url: str, store: ArtifactStore, data: bytes, **facts: Any) -> dict[str, Any]:
    """Return the task of a caller who hands over an artifact, as it is listed."""
    ref = {"id": "figures", "hash": await store.put(data), **facts}
    part = {"data": {"goal": "Batons", "baton": {"artifacts": [ref]}}}
    sent = await call(url, rpc("SendMessage", text_message(parts=[part], contextId=(context := str(uuid4())))))
    id = sent.json()["result"]["task"]["id"]
    assert (await call(url, rpc("GetTask", {"id": id}))).json()["result"]["id"] == id
    tasks = list[Any]()
    async with asyncio.timeout(60):
        while not tasks:  # the server's index lags behind by a moment
            listed = await call(url, rpc("ListTasks", {"contextId": context, "includeArtifacts": True}))
            tasks = listed.json()["result"]["tasks"]
    assert [task["id"] for task in tasks] == [id]
    task: dict[str, Any] = tasks[0]
    return task


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"mean": NaN}', id="no number"),
        pytest.param('{"mean": 1e999}', id="infinite"),
        pytest.param(f'{{"mean": {"9" * 400}}}', id="too long a number"),
        pytest.param("[" * 200_000, id="too deep"),
        pytest.param('{"mean": 1, "mean": 2}', id="twice"),
        pytest.param('{"mean": ', id="unfinished"),
    ],
)
async def test_a_task_can_be_read_whatever_its_artifacts_are(url: str, store: ArtifactStore, text: str) -> None:
    """What is not JSON to every reader is a text."""
    task = await task_with(url, store, text.encode(), type="json", size=len(text))
    [part] = task["artifacts"][0]["parts"]
    assert part["text"] == text


async def test_an_artifact_larger_than_its_reference_says_is_not_sent(url: str, store: ArtifactStore) -> None:
    task = await task_with(url, store, b"x" * 1_000_000, type="text", size=1)
    [part] = task["artifacts"][0]["parts"]
    assert part["data"]["size"] == 1


async def test_an_oversized_message_is_refused(url: str) -> None:
    assert (await call(url, rpc("SendMessage", text_message("x" * MAX_BODY_BYTES)))).status_code == 413


async def test_an_error_does_not_say_what_is_inside(url: str) -> None:
    text = (await call(url, rpc("GetTask", {"id": "\u0000"}))).text + (await call(url, b"{")).text
    assert "Traceback" not in text
    assert "temporal" not in text.lower()
    assert "/baton/" not in text


async def test_what_a_form_of_a_web_page_can_send_is_refused(url: str) -> None:
    plain = {"content-type": "text/plain"}
    assert (await call(url, rpc("ListTasks", {}), **plain)).json()["error"]["code"] == -32005
    async with http_of() as http:
        body = json.dumps(text_message())
        answer = await http.post(f"{url}/a2a/message:send", content=body, headers={**VERSION, **plain})
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, 415)
        answer = await http.post(f"{url}/a2a/message:send", content="{", headers={**VERSION, "content-type": JSON})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)


async def test_another_version_of_the_protocol_is_refused(url: str) -> None:
    answer = await call(url, rpc("GetTask", {"id": "x"}), **{"A2A-Version": "9.0"})
    assert answer.json()["error"]["code"] == -32009


async def test_calls_of_one_caller_that_wait_are_limited_and_end_when_it_leaves(url: str) -> None:
    """Each waits for a run that does not end; 256 of them would be all that the service answers at once."""
    message = text_message(metadata={"skill": "endless"})
    headers = {"authorization": f"Bearer {token_of('ann')}", **VERSION}
    async with httpx.AsyncClient(headers=headers, limits=httpx.Limits(max_connections=None), timeout=60) as http:
        waiting = {asyncio.create_task(http.post(f"{url}/a2a/message:send", json=message)) for _ in range(120)}
        refused = set[asyncio.Task[httpx.Response]]()
        async with asyncio.timeout(60):
            while len(refused) < 120 - MAX_CALLS:
                ended, _ = await asyncio.wait(waiting - refused, return_when=asyncio.FIRST_COMPLETED)
                refused |= ended
        assert {task.result().status_code for task in refused} == {429}
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    again = {**message, "configuration": {"returnImmediately": True}}
    async with asyncio.timeout(60):
        while (sent := await call(url, rpc("SendMessage", again))).status_code == 429:
            pass
    await call(url, rpc("CancelTask", {"id": sent.json()["result"]["task"]["id"]}))


async def test_300_streams_of_one_caller_leave_room_for_the_others(url: str) -> None:
    endless = text_message(metadata={"skill": "endless"})
    started = await call(url, rpc("SendMessage", {**endless, "configuration": {"returnImmediately": True}}))
    id = started.json()["result"]["task"]["id"]
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=400)
        headers = {"authorization": f"Bearer {token_of('ann')}", **VERSION}
        http = await stack.enter_async_context(httpx.AsyncClient(headers=headers, limits=limits, timeout=60))
        path = f"{url}/a2a/tasks/{id}:subscribe"
        streams = [await stack.enter_async_context(http.stream("GET", path)) for _ in range(300)]
        statuses = [stream.status_code for stream in streams]
        assert (statuses.count(200), statuses.count(429)) == (MAX_STREAMS, 300 - MAX_STREAMS)
        other = await call(url, rpc("SendMessage", text_message()), "bob")
        assert other.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    await call(url, rpc("CancelTask", {"id": id}))
