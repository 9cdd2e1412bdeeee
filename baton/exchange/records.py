"""Handoffs between pipelines as messages that may come twice, late, out of order or not at all.

A sender keeps what it sent in an `Outbox`, a receiver what it answered in `ProcessedHandoffs`. Both are plain data that
survives continuing as new, and neither trusts the transport: a handoff is accepted once, and its first answer counts.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field, JsonValue

from baton.core.baton import Baton
from baton.core.verdict import Code, Verdict
from baton.handoff.records import CostTracking
from baton.handoff.sealed import KEY_ID, SIGNATURE
from baton.handoff.validation import Receipt, ReceiverRequirements
from baton.wire.json_values import digest
from baton.wire.records import CompactRecord, Digest, Instant, Integer, Name, OpenRecord, Timestamp, Uuid4

HANDOFF = "handoff"
"""Signal: a sealed handoff, the one argument."""
HANDOFF_ANSWER = "handoff_answer"
"""Signal: a sealed acknowledgement, the one argument."""
QUERY_ANSWERED = "handoff_answered"
"""Query: the answer that this pipeline gave to a handoff, by its id; for senders that are not workflows."""
MOST_REMEMBERED = 1_000
"""How many handoffs an outbox or an intake remembers; what is older has expired and is refused for that."""


class Reply(StrEnum):
    """What a receiver answers to a handoff between pipelines."""

    ACCEPTED = "accepted"
    """It is on record, and the receiver continues with it."""
    REJECTED = "rejected"
    """It is not executed, and sending it again will not help."""
    NEEDS_INPUT = "needs_input"
    """It is not executed; the sender can correct it, and `unmet` says by what."""


class Acknowledgement(OpenRecord):
    """A receiver's answer to a handoff, sealed like the handoff itself as it leaves.

    Attributes:
        handoff_id: The handoff that it answers.
        digest: Of the message that it answers (`message_digest`); an answer to other content does not count.
        answer: Accepted, rejected or needs-input.
        unmet: Of needs-input: what is missing, a sentence each.
        reason: Of a rejection: why, in a sentence.
        code: The code of the verdict; absent where it was accepted, or an agent said no without one.
        by: Who answers: an `agentType`.
        at: When; on the wire it is `timestamp`, as in every sealed message.
    """

    __baton_sealed__: ClassVar[bool] = True

    handoff_id: Uuid4
    digest: Digest
    answer: Reply = Field(strict=False)
    unmet: list[str] = Field(default_factory=list)
    reason: str = ""
    code: Code | None = Field(default=None, strict=False)
    by: Name
    at: Instant = Field(alias="timestamp")

    @property
    def accepted(self) -> bool:
        """Whether the receiver continues with the handoff."""
        return self.answer is Reply.ACCEPTED

    @classmethod
    def of_verdict(cls, handoff_id: str, message: str, verdict: Verdict, *, by: str, at: datetime) -> "Acknowledgement":
        """Return the answer that a verdict amounts to: what a sender can correct is needs-input, not rejected."""
        mendable = verdict.reason in (Code.SCHEMA_INVALID, Code.INCOMPLETE_CONTEXT)
        answer = Reply.ACCEPTED if verdict else Reply.NEEDS_INPUT if mendable else Reply.REJECTED
        unmet = [one.text for one in verdict.findings if one.code is verdict.reason] if mendable else []
        return cls(
            handoff_id=handoff_id,
            digest=message,
            answer=answer,
            unmet=unmet,
            reason=verdict.details or "",
            code=verdict.reason,
            by=by,
            at=at,
        )


def message_digest(message: Mapping[str, Any]) -> str:
    """Return the digest of what a message says: of all its members but its seal."""
    return digest({name: value for name, value in message.items() if name not in (KEY_ID, SIGNATURE)})


class Sent(CompactRecord):
    """A handoff that was sent.

    Attributes:
        handoff_id: The handoff.
        digest: Of its message.
        receiver: Who is to answer: an `agentType`.
        workflow_id: Where it was sent.
        sent_at: When it was sent first.
        deadline: Until when an answer is waited for.
        corrected: How many messages under this id were answered with needs-input before.
        attempts: How often it was sent.
        answer: The first answer, once it is here.
        open: Whether somebody waits for the answer.
    """

    handoff_id: str
    digest: Digest
    receiver: str
    workflow_id: str
    sent_at: Timestamp
    deadline: Timestamp
    corrected: Integer = Field(default=0, ge=0)
    attempts: Integer = Field(default=1, ge=1)
    answer: Acknowledgement | None = None
    open: bool = True


_MOST_EARLY = 20


class AckMatch(StrEnum):
    """What an outbox makes of an answer."""

    FIRST = "first"
    """It is the answer."""
    REPEATED = "repeated"
    """It came before, word for word or nearly so; it changes nothing."""
    LATE = "late"
    """It is the first, and its sender does not wait any longer."""
    CONTRADICTS = "contradicts"
    """Another answer came first, and stays."""
    OTHER_MESSAGE = "other_message"
    """It answers a message that was not sent under this id."""
    OTHER_AGENT = "other_agent"
    """Somebody else accepts than was asked; a refusal counts from anyone who the message has reached."""
    UNKNOWN = "unknown"
    """No such handoff was sent, or it was so long ago that it is forgotten."""


class Outbox:
    """What a sender handed on, and the answers: for each handoff the first one counts, whatever comes later."""

    def __init__(self, carried: Iterable[Mapping[str, Any]] = ()) -> None:
        """Begin empty, or with what an earlier run carried over."""
        self._early: dict[str, Acknowledgement] = {}
        self._sent = {one.handoff_id: one for one in (Sent.model_validate(each, strict=False) for each in carried)}

    def put(self, sent: Sent) -> None:
        """Keep a handoff that is about to be sent for the first time, or a corrected one under the id of before."""
        before = self._sent.pop(sent.handoff_id, None)
        if before is not None and (before.open or before.answer is None or before.answer.accepted):
            self._sent[sent.handoff_id] = before
            raise ValueError(f"handoff {sent.handoff_id!r} was sent before; use `again`, or give it an id of its own")
        corrected = 0 if before is None else before.corrected + 1
        self._sent[sent.handoff_id] = sent.model_copy(update={"corrected": corrected})
        closed = [one.handoff_id for one in self._sent.values() if not one.open]
        for old in closed[: max(len(self._sent) - MOST_REMEMBERED, 0)]:
            del self._sent[old]
        if early := self._early.pop(sent.handoff_id, None):
            self.take(early)

    def attempt(self, handoff_id: str) -> int:
        """Return which attempt the next message under an id is, from 1; only a corrected one is another."""
        before = self._sent.get(handoff_id)
        return 1 if before is None else before.corrected + 2

    def again(self, handoff_id: str) -> Sent:
        """Count another attempt of the same handoff; the message is the same."""
        return self._change(handoff_id, attempts=self._sent[handoff_id].attempts + 1)

    def extend(self, handoff_id: str, deadline: datetime) -> Sent:
        """Wait for the answer until a later time."""
        return self._change(handoff_id, deadline=deadline)

    def close(self, handoff_id: str) -> None:
        """Wait no longer for an answer; one that comes is noted."""
        self._change(handoff_id, open=False)

    def take(self, ack: Acknowledgement) -> AckMatch:
        """Take an answer whose seal holds."""
        sent = self._sent.get(ack.handoff_id)
        if sent is None:
            # In a run that was rolled back, the answer to what it streams may come before it has streamed it.
            self._early = {**self._early, ack.handoff_id: ack}
            if len(self._early) > _MOST_EARLY:
                del self._early[next(iter(self._early))]
            return AckMatch.UNKNOWN
        if ack.digest != sent.digest:
            return AckMatch.OTHER_MESSAGE
        if ack.accepted and ack.by != sent.receiver:
            return AckMatch.OTHER_AGENT
        if sent.answer is not None:
            return AckMatch.REPEATED if sent.answer.answer is ack.answer else AckMatch.CONTRADICTS
        self._change(ack.handoff_id, answer=ack)
        return AckMatch.FIRST if sent.open else AckMatch.LATE

    def answer(self, handoff_id: str) -> Acknowledgement | None:
        """Return the answer to a handoff, or None while there is none."""
        sent = self._sent.get(handoff_id)
        return None if sent is None else sent.answer

    def carried(self) -> list[JsonValue]:
        """Return everything as JSON, for the run that continues this one."""
        return [one.model_dump(mode="json") for one in self._sent.values()]

    def _change(self, handoff_id: str, **changes: Any) -> Sent:
        changed = self._sent[handoff_id] = self._sent[handoff_id].model_copy(update=changes)
        return changed


class ProcessedHandoffs:
    """What a receiver answered, so that a handoff that comes again gets the same answer and is not executed twice."""

    def __init__(self, carried: Iterable[Mapping[str, Any]] = ()) -> None:
        """Begin empty, or with what an earlier run carried over."""
        self._answers = {one.handoff_id: one for one in (Acknowledgement.from_json_object(each) for each in carried)}

    def before(self, handoff_id: str, message: str, *, by: str, at: datetime) -> Acknowledgement | None:
        """Return the answer to a handoff that is settled already, or None if it is to be judged."""
        earlier = self._answers.get(handoff_id)
        if earlier is None or (earlier.digest != message and not earlier.accepted):
            return None
        if earlier.digest == message:
            return earlier
        return Acknowledgement(
            handoff_id=handoff_id,
            digest=message,
            answer=Reply.REJECTED,
            reason="another message with this id was accepted before; a handoff is sent again as it was",
            code=Code.SIGNATURE_INVALID,
            by=by,
            at=at,
        )

    def keep(self, ack: Acknowledgement) -> None:
        """Remember an answer; the first one to the same content stays."""
        earlier = self._answers.get(ack.handoff_id)
        if earlier is not None and earlier.accepted and earlier.digest != ack.digest:
            raise ValueError(f"handoff {ack.handoff_id!r} was accepted with other content; that answer stays")
        if earlier is None or earlier.digest != ack.digest:
            self._answers.pop(ack.handoff_id, None)
            self._answers[ack.handoff_id] = ack
        if len(self._answers) > MOST_REMEMBERED:
            refused = (one.handoff_id for one in self._answers.values() if not one.accepted)
            del self._answers[next(refused, next(iter(self._answers)))]

    def answer(self, handoff_id: str) -> Acknowledgement | None:
        """Return the answer to a handoff, or None if it has none yet."""
        return self._answers.get(handoff_id)

    def carried(self) -> list[JsonValue]:
        """Return everything as JSON, for the run that continues this one."""
        return [one.to_json_object() for one in self._answers.values()]


class QueueKey(CompactRecord):
    """Where a message says that it stands in its chain; taken from bytes that are not verified yet."""

    handoff_id: str = ""
    parent: str = ""
    task_id: str = ""
    hops: int = -1

    @classmethod
    def of(cls, message: Any) -> "QueueKey":
        """Return where a message stands; what it does not say properly is left out. It never raises."""
        if not isinstance(message, Mapping):
            return cls()
        trail = message.get("trail")
        hops = trail.get("hops") if isinstance(trail, Mapping) else None
        texts = (message.get(name) for name in ("handoffId", "parentHandoffId", "taskId"))
        handoff, parent, task = (one if isinstance(one, str) else "" for one in texts)
        return cls(handoff_id=handoff, parent=parent, task_id=task, hops=hops if type(hops) is int else -1)


def next_in_line(waiting: Sequence[QueueKey]) -> int:
    """Return which of the waiting messages comes first: in order of arrival, but parents before their children."""
    there = {one.handoff_id for one in waiting if one.handoff_id}
    first = 0
    for index, one in enumerate(waiting):
        if not one.parent or one.parent not in there or one.parent == one.handoff_id:
            first = index
            break
    chosen = waiting[first]
    for index, one in enumerate(waiting):
        if one.task_id and one.task_id == chosen.task_id and -1 < one.hops < chosen.hops:
            first, chosen = index, one
    return first


ADMIT = "baton.admit"
"""The activity that leads a handoff through the worker's gate."""
OPEN = "baton.open"
"""The activity that verifies the signature of an acknowledgement, a chunk, or a move of an external agent."""
REPLY_TO = "replyTo"
"""Member of a handoff's `step`: the workflow that its sender waits in."""
ATTEMPT = "attempt"
"""Member of a handoff's `step`: how often it was corrected, from 1."""


def reply_to_of(message: Mapping[str, Any]) -> str | None:
    """Return the workflow that the sender of a handoff waits in; None if an agent did not hand it on."""
    step = message.get("step")
    named = step.get(REPLY_TO) if isinstance(step, Mapping) else None
    return named if isinstance(named, str) else None


class AcceptRequest(CompactRecord):
    """A handoff as a workflow received it, and what its receiver requires."""

    raw: str
    audience: str
    receiver: ReceiverRequirements

    @property
    def message(self) -> bytes:
        """The message's bytes."""
        return base64.b64decode(self.raw)


class Admission(CompactRecord):
    """What the gate made of a handoff; it is on record.

    Attributes:
        receipt: The answer.
        digest: Of what the message says; absent if its seal does not hold, and then nothing else is known of it.
        sender: Who handed on.
        reply_to: The workflow that waits for the answer; absent if it is meant for somebody else.
        message: The message, if it was accepted.
    """

    receipt: Receipt
    digest: Digest | None = None
    sender: str = ""
    reply_to: str | None = None
    message: dict[str, JsonValue] | None = None


class Opened(CompactRecord):
    """What a sealed message says."""

    message: dict[str, JsonValue] | None = None
    fault: str = ""
    unsafe: list[str] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)


class Received(CompactRecord):
    """A handoff that a pipeline accepted; what `Exchange.receive` returns.

    Attributes:
        handoff_id: The handoff.
        task_id: The task.
        digest: Of what the message says.
        sender: Who handed on.
        reply_to: The workflow that was answered; absent if it does not wait.
        description: What the receiver is to do.
        constraints: Rules of the form `key:value`.
        state: The message's `currentState`; the sender's baton is in here.
        trail: How the task came here.
        step: What the sender sent along.
        cost: What the chain had spent by then, and what is left.
        flags: What the safety scan noticed and let pass.
        anchor: The head of the task's audit chain with the acceptance in it.
        seconds: From the sender's dispatch to the acceptance.
    """

    handoff_id: str
    task_id: str
    digest: Digest
    sender: str
    reply_to: str | None = None
    description: str
    constraints: list[str] = Field(default_factory=list)
    state: dict[str, JsonValue]
    trail: dict[str, JsonValue] | None = None
    step: dict[str, JsonValue] = Field(default_factory=dict)
    cost: CostTracking | None = None
    flags: list[str] = Field(default_factory=list)
    anchor: str | None = None
    seconds: float = 0.0

    @classmethod
    def of(cls, admission: Admission, seconds: float) -> "Received":
        """Return what was received."""
        message: Mapping[str, Any] | None = admission.message
        if message is None or admission.digest is None:
            raise ValueError("only an accepted handoff is received")
        return cls(
            handoff_id=message["handoffId"],
            task_id=message["taskId"],
            digest=admission.digest,
            sender=admission.sender,
            reply_to=admission.reply_to,
            description=message["taskDescription"],
            constraints=message["constraints"],
            state=message["currentState"],
            trail=message.get("trail"),
            step=message.get("step") or {},
            cost=CostTracking.model_validate(message["costTracking"], strict=False),
            flags=admission.receipt.flags,
            anchor=admission.receipt.anchor,
            seconds=round(seconds, 6),
        )


def taken_over(baton: Baton, received: Received) -> dict[str, JsonValue]:
    """Return the patch by which a receiver takes over the baton that it was handed; its own goal stays."""
    mine = baton.to_json_object()
    patch: dict[str, JsonValue] = {}
    for name in Baton.FIELDS:
        theirs = received.state.get(name)
        if name == "goal" or not isinstance(theirs, list) or not theirs:
            continue
        own = mine.get(name)
        own = own if isinstance(own, list) else []
        new = [one for one in theirs if one not in own]
        if name == "current_state":
            patch[name] = theirs
        elif new:
            patch[name] = new if name == "decision_log" else [*own, *new]
    return patch
