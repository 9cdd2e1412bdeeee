"""The events of AG-UI for the news of a run. No I/O: an update in, events out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from baton.core.questions import Question
from baton.lazy import needs_extra
from baton.runs.client_follow import Followed
from baton.runs.client_news import RUN_BOUNDS, STEP_ENDS, News, NewsKind
from baton.runs.client_record import RunRecord, RunStatus, Step
from baton.runs.client_standing import standing
from baton.wire.json_values import as_json
from baton.wire.schema_embedding import inline_refs

with needs_extra("ag-ui", __name__):
    from ag_ui.core import (
        BaseEvent,
        CustomEvent,
        Interrupt,
        RunErrorEvent,
        RunFinishedCancelledOutcome,
        RunFinishedEvent,
        RunFinishedInterruptOutcome,
        RunFinishedSuccessOutcome,
        StateDeltaEvent,
        StateSnapshotEvent,
        StepFinishedEvent,
        StepStartedEvent,
        TextMessageContentEvent,
        TextMessageEndEvent,
        TextMessageStartEvent,
        ToolCallArgsEvent,
        ToolCallEndEvent,
        ToolCallResultEvent,
        ToolCallStartEvent,
    )


class Translation:
    """One stream: which step, message and calls are open in it, and the state that its client has.

    Args:
        thread_id: The conversation.
        run_id: The AG-UI run.
        cursor: Where the client stands.
    """

    def __init__(self, thread_id: str, run_id: str, cursor: str | None) -> None:
        self._ids = {"thread_id": thread_id, "run_id": run_id}
        self._cursor = cursor
        self._state: dict[str, Any] | None = None
        self._steps: dict[int, str] = {}
        self._message: tuple[str, int] | None = None
        self._calls: dict[tuple[int, str], list[str]] = {}
        self._said = ""

    def take(self, update: Followed) -> Iterator[BaseEvent]:
        """Yield the events of an update, then what it changed of the state."""
        for news, cursor in zip(update.news, update.cursors, strict=True):
            self._cursor = str(cursor)
            for event in self._news(news, self._cursor):
                event.timestamp = int(news.at.timestamp() * 1000)
                yield event
        if update.run is None:
            return
        state = state_of(update.run, self._cursor)
        if self._state is None:
            yield StateSnapshotEvent(snapshot=state)
        elif delta := [*json_patch(self._state, state)]:
            yield StateDeltaEvent.model_validate({"type": "STATE_DELTA", "delta": delta})
        self._state = state

    def end(self, run: RunRecord) -> Iterator[BaseEvent]:
        """Yield the last events of a run that has ended."""
        output = run.result.output if run.result else None
        if run.status is RunStatus.COMPLETED and isinstance(output, str) and output and output != self._said:
            yield from self._text(output, "output", 0, run.pipeline)
        yield from self._close()
        if run.status.is_stopped:
            yield RunFinishedEvent(**self._ids, outcome=RunFinishedCancelledOutcome())
        elif run.status is not RunStatus.COMPLETED:
            yield RunErrorEvent(message=run.failure or standing(run).sentence, code=run.status.value)
        else:
            yield RunFinishedEvent(**self._ids, outcome=RunFinishedSuccessOutcome(), result=output)

    def interrupt(self, interrupts: Sequence[Interrupt]) -> Iterator[BaseEvent]:
        """Yield the last events of an AG-UI run that ends because people are asked."""
        yield from self._close()
        yield RunFinishedEvent(**self._ids, outcome=RunFinishedInterruptOutcome(interrupts=list(interrupts)))

    def _news(self, news: News, id: str) -> Iterator[BaseEvent]:
        seq = news.step.seq if news.step else 0
        match news.kind:
            case NewsKind.TEXT:
                yield from self._text(news.text, id, seq, news.step.name if news.step else "")
            case NewsKind.TOOL_CALLED:
                yield from self._end_message()
                self._calls.setdefault((seq, news.tool), []).append(id)
                yield ToolCallStartEvent(tool_call_id=id, tool_call_name=news.tool)
                yield ToolCallArgsEvent(tool_call_id=id, delta=news.text)
                yield ToolCallEndEvent(tool_call_id=id)
            case NewsKind.TOOL_ANSWERED if calls := self._calls.get((seq, news.tool)):
                yield ToolCallResultEvent(message_id=id, tool_call_id=calls.pop(0), content=news.text)
            case NewsKind.STEP_STARTED if news.step:
                yield from self._begin(news.step)
            case kind if kind in STEP_ENDS and news.step:
                yield from self._end_message()
                yield from self._begin(news.step)  # in an earlier stream
                if kind is NewsKind.STEP_FAILED:
                    yield _custom(news)
                yield StepFinishedEvent(step_name=self._steps.pop(seq))
            case kind if kind not in RUN_BOUNDS:
                yield from self._end_message()
                yield _custom(news)

    def _begin(self, step: Step) -> Iterator[BaseEvent]:
        if step.seq not in self._steps:
            self._steps[step.seq] = f"{step.seq} {step.name}"
            yield StepStartedEvent(step_name=self._steps[step.seq])

    def _text(self, text: str, id: str, seq: int, name: str) -> Iterator[BaseEvent]:
        if not text:  # the protocol has no empty pieces
            return
        if self._message is None or self._message[1] != seq:
            yield from self._end_message()
            self._message, self._said = (id, seq), ""
            yield TextMessageStartEvent(message_id=id, role="assistant", name=name or None)
        self._said += text
        yield TextMessageContentEvent(message_id=self._message[0], delta=text)

    def _end_message(self) -> Iterator[BaseEvent]:
        if self._message is not None:
            id, _ = self._message
            self._message = None
            yield TextMessageEndEvent(message_id=id)

    def _close(self) -> Iterator[BaseEvent]:
        """Yield the ends of what is open: a stream may not end before."""
        yield from self._end_message()
        for name in self._steps.values():
            yield StepFinishedEvent(step_name=name)
        self._steps.clear()


def state_of(run: RunRecord, cursor: str | None) -> dict[str, Any]:
    """Return the state that a front end has of a run."""
    return {
        "run": run.workflow_id,
        "pipeline": run.pipeline,
        "status": standing(run).status,
        "baton": as_json(run.baton.to_json_object()),
        "cursor": cursor,
    }


def interrupt_of(question: Question, id: str, fault: str = "") -> Interrupt:
    """Return a question as an interrupt; its answer is choice, reason, and the data of the choice's form."""
    answers = []
    for choice in question.choices:
        properties: dict[str, Any] = {"choice": {"const": choice.name}, "why": {"type": "string"}}
        form = inline_refs(choice.filled_form or {})
        answers.append(
            {
                "type": "object",
                "properties": {**properties, **({"data": form} if form else {})},
                "required": ["choice", *(["data"] if form and form.get("required") else [])],
            }
        )
    shows = [{"title": item.title, "form": item.form, "text": item.text} for item in question.shows]
    return Interrupt(
        id=id,
        reason="handoff" if question.handoff else "approval",
        message="\n\n".join(part for part in (fault, question.title, question.text) if part),
        response_schema={"oneOf": answers},
        expires_at=question.until.isoformat(),
        metadata={"choices": [choice.name for choice in question.choices], "shows": shows},
    )


def json_patch(old: Any, new: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the operations (RFC 6902) that make one JSON value of another; a longer list keeps its beginning.

    Example:
        >>> [*json_patch({"a": [1]}, {"a": [1, 2], "b/c": None})]
        [{'op': 'add', 'path': '/a/-', 'value': 2}, {'op': 'add', 'path': '/b~1c', 'value': None}]
    """
    if _same(old, new):
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*old, *(name for name in new if name not in old)]:
            at = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in new:
                yield {"op": "remove", "path": at}
            elif name not in old:
                yield {"op": "add", "path": at, "value": new[name]}
            else:
                yield from json_patch(old[name], new[name], at)
    elif isinstance(old, list) and isinstance(new, list) and _same(old, new[: len(old)]):
        yield from ({"op": "add", "path": f"{path}/-", "value": value} for value in new[len(old) :])
    else:
        yield {"op": "replace", "path": path, "value": new}


def _same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same; to Python, true is 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _custom(news: News) -> CustomEvent:
    return CustomEvent(name=f"baton.{news.kind.value}", value=news.to_json_object())
