"""The door for chat front ends: a run as the events of AG-UI, and what it asks as interrupts.

An AG-UI run ends where people are asked; the request that answers goes on from there. The state that the client sends
back has the cursor of `follow`, so that no event is repeated, after a lost connection either.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio.exceptions import TemporalError

from baton.core.questions import MISFIT
from baton.doors.client_access import Caller
from baton.doors.client_ag_ui_events import Translation, interrupt_of
from baton.doors.client_runs import (
    NotAllowedError,
    NotFoundError,
    ServiceParts,
    answer_key,
    may_answer,
    open_questions,
    questions_by_key,
    read,
    read_input,
    start,
    watch,
)
from baton.doors.client_service import Door, caller_of, refusal
from baton.errors import BatonError, PipelineError
from baton.lazy import needs_extra
from baton.runs.client_follow import Cursor
from baton.runs.client_record import RunRecord
from baton.wire.json_values import loads_strict
from baton.wire.text import describe_faults

with needs_extra("ag-ui", __name__):
    from ag_ui.core import (
        PROTOCOL_VERSION,
        BaseEvent,
        Interrupt,
        ResumeEntry,
        RunAgentInput,
        RunErrorEvent,
        RunStartedEvent,
        UserMessage,
    )
    from ag_ui.encoder import EventEncoder
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

PATH = "/ag-ui/{name}"
"""Where the service serves a pipeline to chat front ends."""
_PING_SECONDS = 15.0  # a comment, without which proxies close a silent stream
_STARTING = ("params", "inputs", "baton")


@dataclass(frozen=True)
class _Asked:
    """A request: the run that it is about, where the client stands, and why answers of it were refused."""

    given: RunAgentInput
    run: str
    cursor: Cursor | None
    faults: Mapping[str, str]
    answered: frozenset[str]


def door(parts: ServiceParts) -> Door:
    """Return the door for AG-UI: `POST /ag-ui/<pipeline>`."""

    async def run_agent(request: Request) -> Response:
        caller = caller_of(request)
        try:
            body = loads_strict(await request.body())
            asked = await _ask(parts, caller, request.path_params["name"], RunAgentInput.model_validate(body))
        except ValidationError as error:
            return refusal(400, describe_faults(error))
        except NotFoundError as error:
            return refusal(404, str(error))
        except NotAllowedError as error:
            return refusal(403, str(error))
        except BatonError as error:
            return refusal(400, str(error))
        except TemporalError as error:
            return refusal(503, f"{type(error).__name__}; try again")
        encoder = EventEncoder()
        return StreamingResponse(_texts(_events(parts, caller, asked), encoder), media_type=encoder.get_content_type())

    return Door([Route(PATH, run_agent, methods=["POST"])])


async def _ask(parts: ServiceParts, caller: Caller, name: str, given: RunAgentInput) -> _Asked:
    """Start the run of a request, or pass on the answers in it."""
    offer = parts.offers.get(name)
    if offer is None:
        raise NotFoundError(f"there is no pipeline {name[:80]!r}; there are {', '.join(sorted(parts.offers))}")
    faults, answered = dict[str, str](), set[str]()
    if given.resume:
        runs = {entry.interrupt_id.partition("/")[0] for entry in given.resume}
        if len(runs) != 1:
            raise PipelineError("the interrupts are of several runs; answer those of one")
        workflow_id = runs.pop()
        for entry in given.resume:
            key = entry.interrupt_id.partition("/")[2]
            try:
                if await _resume(parts, caller, workflow_id, key, entry):
                    answered.add(key)
            except PipelineError as error:
                if isinstance(error, (NotFoundError, NotAllowedError)):
                    raise
                faults[key] = str(error)
    else:
        props = given.forwarded_props if isinstance(given.forwarded_props, Mapping) else {}
        start_input = read_input(
            offer, {"goal": _goal(given), **{key: props[key] for key in _STARTING if key in props}}
        )
        workflow_id = await start(parts, caller, offer, start_input, key=given.run_id, group=given.thread_id)
    return _Asked(given, workflow_id, _cursor(given.state, workflow_id), faults, frozenset(answered))


async def _resume(parts: ServiceParts, caller: Caller, workflow_id: str, key: str, entry: ResumeEntry) -> bool:
    """Pass on an answer; return whether there was one. A request sent again finds the question answered.

    Raises:
        PipelineError: It is refused.
    """
    run = await read(parts, caller, workflow_id)
    question = questions_by_key(run).get(key)
    if question is None or entry.status != "resolved":
        return question is None
    payload = entry.payload if isinstance(entry.payload, Mapping) else {}
    if not isinstance(payload.get("choice"), str):
        names = ", ".join(choice.name for choice in question.choices)
        raise PipelineError(f'{MISFIT}the payload is {{"choice": …}}, one of {names}; also "why" and "data"')
    data, why = payload.get("data"), str(payload.get("why") or "")
    await answer_key(parts, caller, workflow_id, key, payload["choice"], data=data, why=why)
    return True


def _goal(given: RunAgentInput) -> str:
    """Return the text of the last message of the person."""
    for message in reversed(given.messages):
        if isinstance(message, UserMessage):
            if isinstance(message.content, str):
                return message.content
            return "\n".join(part.text for part in message.content if part.type == "text")
    raise PipelineError("there is no message of the user; the last one is the goal")


def _cursor(state: Any, workflow_id: str) -> Cursor | None:
    """Return where a client stands in a run, as its state says; None for the beginning."""
    if not isinstance(state, Mapping) or state.get("run") != workflow_id or not state.get("cursor"):
        return None
    try:
        return Cursor.parse(str(state["cursor"]))
    except ValueError:
        raise PipelineError("state.cursor: not one that this service has sent") from None


async def _events(parts: ServiceParts, caller: Caller, asked: _Asked) -> AsyncGenerator[BaseEvent]:
    """Yield the events of a run, until it ends or people have to answer."""
    given = asked.given
    yield RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id, protocol_version=PROTOCOL_VERSION)
    translation = Translation(given.thread_id, given.run_id, str(asked.cursor) if asked.cursor else None)
    try:
        updates = watch(parts, caller, asked.run, asked.cursor)
        async with contextlib.aclosing(updates):
            async for update in updates:
                if update.run is None:
                    continue
                for event in translation.take(update):
                    yield event
                if update.is_last:
                    for event in translation.end(update.run):
                        yield event
                    return
                if interrupts := await _interrupts(parts, caller, asked, update.run):
                    for event in translation.interrupt(interrupts):
                        yield event
                    return
    except (BatonError, TemporalError, ValueError) as error:
        text = str(error) if isinstance(error, BatonError) else type(error).__name__
        yield RunErrorEvent(message=text, code=type(error).__name__)


async def _interrupts(parts: ServiceParts, caller: Caller, asked: _Asked, run: RunRecord) -> list[Interrupt]:
    """Return what a run asks its caller, but for what this request has answered."""
    return [
        interrupt_of(question, f"{asked.run}/{key}", asked.faults.get(key, ""))
        for key, question in (await open_questions(parts, caller, run)).items()
        if may_answer(question, caller) and key not in asked.answered
    ]


async def _texts(events: AsyncGenerator[BaseEvent], encoder: EventEncoder) -> AsyncIterator[str]:
    """Yield events as texts, and a comment while there are none for long."""
    pending = asyncio.ensure_future(anext(events))
    try:
        while True:
            done, _ = await asyncio.wait({pending}, timeout=_PING_SECONDS)
            if not done:
                yield ": \n\n"
                continue
            try:
                event = pending.result()
            except StopAsyncIteration:
                return
            yield encoder.encode(event)
            pending = asyncio.ensure_future(anext(events))
    finally:
        pending.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await pending
        await events.aclose()
