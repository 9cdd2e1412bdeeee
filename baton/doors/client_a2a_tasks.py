"""A run as an A2A task: states, messages, artifacts, events. Nothing is stored: each is made from the history."""

import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from baton.artifacts.store import ArtifactStore
from baton.core.artifacts import ArtifactRef
from baton.core.history import StepKind
from baton.core.pending import HandoffAction
from baton.core.questions import Question, Settled
from baton.doors.client_runs import ISSUER
from baton.errors import ArtifactError, MalformedMessageError
from baton.lazy import needs_extra
from baton.runs.client_description import describe_news
from baton.runs.client_follow import Cursor
from baton.runs.client_news import RUN_BOUNDS, STEP_ENDS, News, NewsKind
from baton.runs.client_order import AcceptedHandoff
from baton.runs.client_record import RunRecord, RunStatus, StepStatus
from baton.wire.json_values import as_json, find_excess, loads_strict
from baton.wire.names import A2A_EXTENSION

with needs_extra("a2a", __name__):
    from a2a.types.a2a_pb2 import (
        Artifact,
        Message,
        Part,
        Role,
        Task,
        TaskArtifactUpdateEvent,
        TaskState,
        TaskStatus,
        TaskStatusUpdateEvent,
    )

JSON = "application/json"
HANDOFF_TYPE = "application/vnd.baton.handoff+json"
"""The media type of a signed handoff."""
RECEIPT_TYPE = "application/vnd.baton.receipt+json"
"""The media type of the signed answer to an order."""
MAX_PART_BYTES = 256 * 1024
"""The largest artifact whose bytes a task carries; of a larger one it has the digest and the size."""
MAX_TASK_BYTES = 2 * 1024 * 1024
"""The most bytes of all artifacts that a task carries."""
_MAX_NESTING = 24  # of JSON in a part: each level is three of protobuf's, which reads 100
INTERRUPTED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})
TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
_REFUSALS = ("ApprovalDeniedError", "InputError", "ParameterError")
_ENDS: Mapping[RunStatus, TaskState] = {
    RunStatus.COMPLETED: TaskState.TASK_STATE_COMPLETED,
    RunStatus.CANCELED: TaskState.TASK_STATE_CANCELED,
    RunStatus.TERMINATED: TaskState.TASK_STATE_CANCELED,
}


def state_of(run: RunRecord) -> TaskState:
    """Return the state of a run's task."""
    if run.status in _ENDS:
        return _ENDS[run.status]
    if run.status is not RunStatus.RUNNING:
        return TaskState.TASK_STATE_REJECTED if _is_refused(run) else TaskState.TASK_STATE_FAILED
    if run.questions:
        return TaskState.TASK_STATE_INPUT_REQUIRED
    return TaskState.TASK_STATE_WORKING if run.steps else TaskState.TASK_STATE_SUBMITTED


def _is_refused(run: RunRecord) -> bool:
    """Return whether a run failed because people, its input's rules or a receiver refused the work."""
    decisions = run.handoff_decisions
    is_abandoned = bool(decisions) and decisions[-1].choice == HandoffAction.ABANDON
    return is_abandoned or (run.failure or "").partition(":")[0] in _REFUSALS


def context_of(run: RunRecord) -> str:
    """Return the context of a run's task: what its caller named, or the task's own id."""
    requester = run.start.requester
    context = requester.claims.get("context") if requester and requester.issuer == ISSUER else None
    return context if isinstance(context, str) else run.workflow_id


def to_struct(members: Mapping[str, Any]) -> Struct:
    """Return JSON members as protobuf's."""
    return ParseDict(as_json(dict(members)), Struct())


def to_timestamp(at: datetime) -> Timestamp:
    """Return a time in milliseconds, as A2A writes it."""
    stamp = Timestamp()
    stamp.FromMilliseconds(int(at.timestamp() * 1000))
    return stamp


def task_of(run: RunRecord, artifacts: Sequence[Artifact] = ()) -> Task:
    """Return a run's task, with its messages so far; what it asks now is the message of its status."""
    return Task(
        id=run.workflow_id,
        context_id=context_of(run),
        status=status_of(run),
        artifacts=artifacts,
        history=[message for _, message in sorted(_messages(run), key=lambda pair: pair[0])],
        metadata=to_struct({A2A_EXTENSION: {"pipeline": run.pipeline, "cost": as_json(run.billed)}}),
    )


def status_of(run: RunRecord) -> TaskStatus:
    """Return the status of a run's task now, with what is asked, or why it failed."""
    state = state_of(run)
    at = run.ended or run.read_at
    if state in INTERRUPTED:
        question = run.questions[0]
        return TaskStatus(state=state, message=asking(run, question), timestamp=to_timestamp(question.since))
    message = None
    if state in TERMINAL and run.failure:
        message = _message(run, Role.ROLE_AGENT, "end", [Part(text=run.failure)])
    return TaskStatus(state=state, message=message, timestamp=to_timestamp(at))


def _message(run: RunRecord, role: Role, name: str, parts: Sequence[Part], **metadata: Any) -> Message:
    return Message(
        message_id=f"{run.workflow_id}:{name}",
        context_id=context_of(run),
        task_id=run.workflow_id,
        role=role,
        parts=parts,
        metadata=to_struct({A2A_EXTENSION: metadata}) if metadata else None,
    )


def data_part(value: Any) -> Part:
    """Return a part with JSON, whose numbers its reader gets as floats; as a text if it is too deep for protobuf."""
    members = as_json(value)
    if find_excess(members, max_depth=_MAX_NESTING) is not None:
        return Part(text=json.dumps(members, ensure_ascii=False), media_type=JSON)
    return Part(data=ParseDict(members, Value()), media_type=JSON)


def asking(run: RunRecord, question: Question) -> Message:
    """Return the message that asks what a run asks; an answer is a message that names the choice."""
    choices = [
        {"choice": choice.name, **({"schema": choice.filled_form} if choice.form else {})}
        for choice in question.choices
    ]
    shown = [f"{exhibit.title}\n{exhibit.text}" if exhibit.title else exhibit.text for exhibit in question.shows]
    text = "\n\n".join(filter(None, [question.title, question.text, *shown]))
    form = {"question": question.id, "choices": choices, "until": as_json(question.until)}
    return _message(run, Role.ROLE_AGENT, f"question-{question.id}", [Part(text=text), data_part(form)])


def _messages(run: RunRecord) -> Iterator[tuple[datetime, Message]]:
    """Yield the messages of a run with their times: goal, steps that ended, notes of both sides, answers."""
    began = run.first_began or run.began or run.read_at
    yield began, goal_message(run)
    entries = {entry.seq: entry for entry in run.state.entries if entry.kind is not StepKind.EDIT}
    for step in run.steps:
        if step.kind is StepKind.APPROVAL or step.ended is None:
            continue
        if step.status is StepStatus.DONE:
            own = [entries[step.seq]] if step.seq in entries else []
            yield step.ended, _news_message(run, News(NewsKind.STEP_DONE, step.ended, step=step, entries=own))
        elif step.status is StepStatus.FAILED:
            failed = News(NewsKind.STEP_FAILED, step.ended, step.failure or "", step)
            yield step.ended, _news_message(run, failed)
    for note in run.notes:
        yield note.at, _news_message(run, News(NewsKind.NOTE, note.at, note.text))
    for sent in run.steering:
        parts = [Part(text=sent.text), data_part({"who": sent.who, "step": sent.step})]
        yield sent.at, _message(run, Role.ROLE_USER, f"steering-{sent.id}", parts)
    for settled in run.answers:
        yield settled.at, answer_message(run, settled)


def goal_message(run: RunRecord) -> Message:
    """Return the message that started a run."""
    requester = run.start.requester
    own = requester.claims.get("message") if requester and requester.issuer == ISSUER else None
    members = as_json({"params": run.start.params, "inputs": run.start.inputs, "baton": run.start.baton})
    given = {name: value for name, value in members.items() if value}
    message = _message(run, Role.ROLE_USER, "goal", [Part(text=run.start.goal), *([data_part(given)] if given else [])])
    if isinstance(own, str):
        message.message_id = own
    return message


def answer_message(run: RunRecord, settled: Settled) -> Message:
    """Return the message of an answer to a question."""
    data = settled.data if isinstance(settled.data, dict) else {}
    only = next(iter(data.values())) if len(data) == 1 else None
    text = only if isinstance(only, str) else settled.why or settled.choice
    row = {"question": settled.question, "choice": settled.choice, "who": settled.who, "why": settled.why, "data": data}
    return _message(run, Role.ROLE_USER, f"answer-{settled.question}", [Part(text=text), data_part(row)])


def _news_message(run: RunRecord, news: News, name: str | None = None) -> Message:
    step = news.step
    own_name = f"step-{step.seq}-{news.kind.value}" if step and news.kind in STEP_ENDS else None
    if news.kind is NewsKind.NOTE:
        own_name = f"note-{int(news.at.timestamp() * 1e6)}"
    members = {name: value for name, value in news.to_json_object().items() if name != "entries"}
    decided = [decision for entry in news.entries for decision in entry.patch.get("decision_log") or []]
    data = data_part({**members, **({"decided": decided} if decided else {})})
    parts = [Part(text=_text_of(news, run)), data]
    return _message(run, Role.ROLE_AGENT, own_name or name or news.kind.value, parts)


def _text_of(news: News, run: RunRecord) -> str:
    """Return a piece of news as a sentence; those for operators name commands that callers do not have."""
    is_question = news.kind is NewsKind.HANDOFF_WAITS or (
        news.kind is NewsKind.STEP_STARTED and news.step is not None and news.step.kind is StepKind.APPROVAL
    )
    if not is_question:
        return describe_news(news, run)
    name = f"{news.step.seq} {news.step.name}: " if news.step else ""
    return f"{name}waits for an answer{f': {news.text}' if news.text else ''}"


def update_of(run: RunRecord, news: News, cursor: Cursor) -> TaskStatusUpdateEvent | None:
    """Return the event of a piece of news while the run continues; None if the state's own event says it."""
    if news.kind in RUN_BOUNDS:
        return None
    message = _news_message(run, news, f"{news.kind.value}-{cursor.event}-{cursor.index}")
    if news.kind is NewsKind.TEXT:
        del message.parts[:]
        message.parts.append(Part(text=news.text))
    status = TaskStatus(state=TaskState.TASK_STATE_WORKING, message=message, timestamp=to_timestamp(news.at))
    return _status_event(run, status, cursor)


def state_event(run: RunRecord, cursor: Cursor | None) -> TaskStatusUpdateEvent:
    """Return the event of a run's state now."""
    return _status_event(run, status_of(run), cursor)


def _status_event(run: RunRecord, status: TaskStatus, cursor: Cursor | None) -> TaskStatusUpdateEvent:
    place = {"cursor": str(cursor)} if cursor else {}
    return TaskStatusUpdateEvent(
        task_id=run.workflow_id,
        context_id=context_of(run),
        status=status,
        metadata=to_struct({A2A_EXTENSION: {**place, "cost": as_json(run.billed)}}),
    )


def artifact_event(run: RunRecord, artifact: Artifact) -> TaskArtifactUpdateEvent:
    """Return the event of a new artifact, whole."""
    return TaskArtifactUpdateEvent(
        task_id=run.workflow_id, context_id=context_of(run), artifact=artifact, last_chunk=True
    )


class Artifacts:
    """Makes the artifacts of a task, each once, with their bytes as far as they fit."""

    def __init__(self, store: ArtifactStore | None) -> None:
        self._store = store
        self._sent: set[str] = set()
        self._left = MAX_TASK_BYTES

    async def new(self, run: RunRecord) -> list[Artifact]:
        """Return the artifacts of a run that were not returned before: those of its baton, then its output."""
        made = []
        for ref in run.baton.artifacts:
            if ref.id not in self._sent:
                self._sent.add(ref.id)
                made.append(await self._artifact(ref))
        if run.result is not None and run.result.output is not None and "" not in self._sent:
            self._sent.add("")
            made.append(_output(run.result.output))
        return made

    async def _artifact(self, ref: ArtifactRef) -> Artifact:
        data = await self._read(ref)
        facts = {"type": ref.type, "sha256": ref.hash, "size": ref.size, "path": ref.path}
        return Artifact(
            artifact_id=ref.id,
            name=ref.id,
            description=ref.summary or "",
            parts=[data_part(facts) if data is None else _content(ref, data)],
            metadata=to_struct({A2A_EXTENSION: facts}),
        )

    async def _read(self, ref: ArtifactRef) -> bytes | None:
        """Return the bytes of an artifact; None if they are too many, or this service has no store with them."""
        most = min(MAX_PART_BYTES, self._left)
        if self._store is None or ref.size is None or ref.size > most:
            return None
        try:
            data = await self._store.get(ref.hash)
        except ArtifactError:
            return None
        if len(data) > most:  # the reference is its writer's, who may be wrong about the size
            return None
        self._left -= len(data)
        return data


def handoff_artifacts(messages: Mapping[str, bytes]) -> list[Artifact]:
    """Return the signed handoffs of a run with their contracts, byte for byte: in data parts numbers become floats."""
    return [
        Artifact(
            artifact_id=f"handoff-{handoff_id}",
            name=f"handoff {handoff_id}",
            parts=[Part(raw=raw, media_type=HANDOFF_TYPE)],
            extensions=[A2A_EXTENSION],
        )
        for handoff_id, raw in messages.items()
    ]


def receipt_artifact(accepted: AcceptedHandoff) -> Artifact:
    """Return the signed answer to an order, byte for byte."""
    part = Part(raw=accepted.signed.encode(), media_type=RECEIPT_TYPE)
    return Artifact(artifact_id="receipt", name="receipt", parts=[part], extensions=[A2A_EXTENSION])


def rejected_task(accepted: AcceptedHandoff, task_id: str, context_id: str) -> Task:
    """Return the task of an order that was rejected: no run has it, so it cannot be fetched again."""
    said = Message(
        message_id=f"{task_id}:end",
        context_id=context_id or task_id,
        task_id=task_id,
        role=Role.ROLE_AGENT,
        parts=[Part(text=accepted.receipt.verdict.details or "")],
    )
    at = to_timestamp(accepted.receipt.at)
    return Task(
        id=task_id,
        context_id=said.context_id,
        status=TaskStatus(state=TaskState.TASK_STATE_REJECTED, message=said, timestamp=at),
        artifacts=[receipt_artifact(accepted)],
    )


def _content(ref: ArtifactRef, data: bytes) -> Part:
    """Return the bytes of an artifact as a part: a file if it has a path, else JSON or text if it is one."""
    if ref.path:
        name = ref.path.rpartition("/")[2]
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Part(raw=data, filename=name, media_type=kind)
    try:
        text = data.decode("utf-8")
    except ValueError:
        return Part(raw=data, media_type="application/octet-stream")
    if ref.type in (JSON, "json"):
        with suppress(MalformedMessageError):  # a number that protobuf has not would make the task unreadable
            return data_part(loads_strict(text))
    return Part(text=text)


def _output(output: Any) -> Artifact:
    part = Part(text=output) if isinstance(output, str) else data_part(output)
    return Artifact(artifact_id="output", name="output", parts=[part])
