"""AG-UI: a run as events that the protocol's own types check, its questions as interrupts, its baton as state."""

import asyncio
import copy
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import jsonschema_rs
import pytest
from ag_ui.core import Event, EventType
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from temporalio.client import Client

from baton.client import decide, inbox, read_run
from baton.doors.client_ag_ui_events import json_patch
from tests.doors.clients.conftest import TOKENS
from tests.doors.clients.door_pipelines import WORDS

EVENTS: TypeAdapter[Any] = TypeAdapter(Event)
YES: dict[str, Any] = {
    "choice": "approve",
    "why": "it is good",
    "data": {"copies": 3, "color": "blue", "places": {"Oslo": 2}},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
)


def body(goal: str = "Batons", **members: Any) -> dict[str, Any]:
    """Return what a front end sends."""
    ids = {"threadId": str(uuid.uuid4()), "runId": str(uuid.uuid4())}
    return {**ids, "messages": [{"id": "m1", "role": "user", "content": goal}], **members}


def resuming(events: Sequence[Any], first: Mapping[str, Any], payload: Any, **members: Any) -> dict[str, Any]:
    """Return the request that answers the interrupts with which events ended."""
    ids = [interrupt.id for interrupt in events[-1].outcome.interrupts]
    resume = [{"interruptId": id, "status": "resolved", "payload": payload} for id in ids]
    return body(threadId=first["threadId"], state=state_after(events), resume=resume, **members)


async def post(url: str, sent: Any, name: str = "ann", pipeline: str = "article") -> httpx.Response:
    """Send a request as a front end, and return the whole response."""
    headers = {"authorization": f"Bearer {TOKENS[name]}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        content = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        return await http.post(f"{url}/ag-ui/{pipeline}", content=content, headers={"content-type": "application/json"})


async def run(url: str, sent: Any, name: str = "ann", pipeline: str = "article") -> list[Any]:
    """Return the events of an AG-UI run, each checked by the protocol's own types."""
    answer = await post(url, sent, name, pipeline)
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [EVENTS.validate_json(line) for line in lines]


def patched(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return a JSON value after a JSON Patch (RFC 6902), as far as the door writes such."""
    document = {"": copy.deepcopy(value)}
    for operation in operations:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/"))
        target: Any = document
        for name in parents:
            target = target[name]
        if isinstance(target, list):
            assert (operation["op"], last) == ("add", "-")
            target.append(operation["value"])
        elif operation["op"] == "remove":
            del target[last]
        else:
            assert (last in target) is (operation["op"] == "replace")
            target[last] = operation["value"]
    return document[""]


def state_after(events: Sequence[Any]) -> Any:
    """Return the state that a front end has after events."""
    state: Any = None
    for event in events:
        if event.type is EventType.STATE_SNAPSHOT:
            state = event.snapshot
        elif event.type is EventType.STATE_DELTA:
            state = patched(state, [one.model_dump() for one in event.delta])
    return state


def of(events: Sequence[Any], kind: EventType) -> list[Any]:
    return [event for event in events if event.type is kind]


@given(JSON, JSON)
def test_a_patch_makes_one_value_of_another(old: Any, new: Any) -> None:
    after = patched(old, [*json_patch(old, new)])
    assert json.dumps(after, sort_keys=True) == json.dumps(new, sort_keys=True)


async def test_a_run_is_a_stream_that_a_question_interrupts_and_an_answer_resumes(url: str, sealing: Client) -> None:
    first = body()
    events = await run(url, first)
    assert [events[0].type, events[0].protocol_version, events[0].run_id] == ["RUN_STARTED", "1.0", first["runId"]]
    assert [one.delta for one in of(events, EventType.TEXT_MESSAGE_CONTENT)] == WORDS
    [call], [result] = of(events, EventType.TOOL_CALL_START), of(events, EventType.TOOL_CALL_RESULT)
    assert (call.tool_call_name, result.tool_call_id, result.content) == ("search", call.tool_call_id, "found")
    [interrupt] = events[-1].outcome.interrupts
    assert (interrupt.reason, interrupt.response_schema["oneOf"][0]["required"]) == ("approval", ["choice", "data"])
    assert jsonschema_rs.is_valid(interrupt.response_schema, YES)
    assert not jsonschema_rs.is_valid(interrupt.response_schema, {**YES, "data": {**YES["data"], "color": "sad"}})
    assert "".join(WORDS) in interrupt.metadata["shows"][0]["text"]
    before = state_after(events)
    assert (before["status"], before["baton"]["decision_log"]) == ("WAITING", ["Write about batons"])

    second = resuming(events, first, YES)
    rest = await run(url, second)
    assert of(rest, EventType.TEXT_MESSAGE_CONTENT)[-1].delta == "3 blue copies for Oslo"
    assert (rest[-1].outcome.type, rest[-1].result) == ("success", "3 blue copies for Oslo")
    assert of(rest, EventType.TOOL_CALL_START) == []
    assert [one.step_name for one in of(events + rest, EventType.STEP_STARTED)].count("1 write") == 1
    assert (state_after(rest)["status"], state_after(rest)["run"]) == ("COMPLETED", before["run"])
    [settled] = (await read_run(sealing, before["run"])).answers
    assert (settled.who, settled.why) == ("ann", "it is good")

    again = await run(url, second)  # the connection broke, and the front end sends it again
    assert [one.type for one in again] == [one.type for one in rest]
    assert len((await read_run(sealing, before["run"])).answers) == 1


async def test_a_request_sent_again_is_the_same_run_and_goes_on_where_the_client_is(url: str) -> None:
    first = body()
    events = await run(url, first)
    repeated = await run(url, first)
    assert state_after(events) == state_after(repeated)
    resumed = await run(url, {**first, "state": state_after(events)})
    assert of(resumed, EventType.TEXT_MESSAGE_CONTENT) == []
    assert resumed[-1].outcome.interrupts == events[-1].outcome.interrupts


@pytest.mark.parametrize(
    "payload",
    [
        *(None, {}, {"choice": "maybe"}, {"choice": "approve"}),
        *({"choice": "approve", "data": data} for data in ({"copies": 0}, "text", 5, [["copies", 3]])),
    ],
    ids=str,
)
async def test_an_answer_that_does_not_fit_interrupts_again_with_the_reason(url: str, payload: Any) -> None:
    first = body()
    events = await run(url, first)
    again = await run(url, resuming(events, first, payload))
    [before], [interrupt] = events[-1].outcome.interrupts, again[-1].outcome.interrupts
    assert (interrupt.id, len(interrupt.message) > len(before.message)) == (before.id, True)


async def test_an_answer_may_be_a_list(url: str) -> None:
    first = body()
    events = await run(url, first, pipeline="invites")
    rest = await run(url, resuming(events, first, {"choice": "approve", "data": ["ann", "bob"]}), pipeline="invites")
    assert rest[-1].result == ["ann", "bob"]


async def test_a_cancelled_interrupt_decides_nothing(url: str, sealing: Client) -> None:
    first = body()
    events = await run(url, first)
    sent = resuming(events, first, None)
    sent["resume"][0]["status"] = "cancelled"
    again = await run(url, sent)
    assert again[-1].outcome.type == "interrupt"
    assert len((await read_run(sealing, state_after(events)["run"])).questions) == 1


async def test_what_others_decide_meanwhile_goes_on(url: str, sealing: Client) -> None:
    """A stale interrupt is not asked again."""
    first = body()
    events = await run(url, first)
    id = state_after(events)["run"]
    [entry] = [entry async for entry in inbox(sealing, id)]
    assert entry.question is not None
    await decide(sealing, id, entry.question.answer("approve", who="bob", data={"copies": 1}))
    rest = await run(url, {**first, "state": state_after(events)})
    assert rest[-1].result == "1 red copies for nobody"


async def test_a_run_that_fails_is_an_error_and_a_cancelled_one_is_not(url: str, sealing: Client) -> None:
    *_, error = await run(url, body(), pipeline="breaks")
    assert (error.type, error.code, "the press is broken" in error.message) == ("RUN_ERROR", "FAILED", True)
    first = body()
    id = state_after(await run(url, first))["run"]
    handle = sealing.get_workflow_handle(id)
    await handle.cancel()
    await asyncio.gather(handle.result(), return_exceptions=True)
    assert (await run(url, first))[-1].outcome.type == "cancelled"


async def test_a_run_of_another_is_not_there(url: str, sealing: Client) -> None:
    first = body()
    events = await run(url, first)
    refused = [await post(url, resuming(events, first, YES), name) for name in ("bob", "viewer")]
    assert [answer.status_code for answer in refused] == [404, 404]
    assert (await post(url, body(), "viewer")).status_code == 403
    theirs = await run(url, first, "bob")  # the same ids are another run
    assert state_after(theirs)["run"] != state_after(events)["run"]
    assert len((await read_run(sealing, state_after(events)["run"])).questions) == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"{", 400, id="no JSON"),
        pytest.param([], 400, id="no object"),
        pytest.param({"threadId": "t"}, 400, id="members missing"),
        pytest.param(body(messages=[]), 400, id="no message"),
        pytest.param(body(" "), 400, id="a blank goal"),
        pytest.param(body(resume=[{"interruptId": "none/1@x", "status": "resolved"}]), 404, id="no such run"),
        pytest.param(body(forwardedProps={"inputs": 7}), 400, id="inputs that are none"),
        pytest.param(b" " * (1024 * 1024 + 1), 413, id="too large"),
    ],
)
async def test_a_malformed_request_is_refused(url: str, sent: Any, status: int) -> None:
    answer = await post(url, sent)
    assert (answer.status_code, [*answer.json()]) == (status, ["error"])


async def test_a_forged_cursor_is_refused_and_one_of_another_run_ignored(url: str) -> None:
    first = body()
    state = state_after(await run(url, first))
    assert (await post(url, {**first, "state": {**state, "cursor": "x"}})).status_code == 400
    beyond = state["cursor"].split(":")
    forged = ":".join([beyond[0], "999", *beyond[2:]])
    assert (await run(url, {**first, "state": {**state, "cursor": forged}}))[-1].type is EventType.RUN_ERROR
    assert (await run(url, {**body(), "state": state}))[-1].outcome.type == "interrupt"
    assert (await post(url, body(), pipeline="none")).status_code == 404
