"""Handoffs between pipelines as messages that may arrive twice, late, out of order or not at all.

A sender keeps its handoffs in an `Outbox`, a receiver its answers in `ProcessedHandoffs`. Both are plain data that
survives continue-as-new, and neither trusts the transport: a handoff is accepted once, and its first answer counts.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field, JsonValue, ValidationError

from baton.core.baton import Baton
from baton.core.costs import CostTracking
from baton.core.outline import Outline
from baton.core.patching import unknown_decisions
from baton.core.receivers import ReceiverRequirements
from baton.core.requester import Requester
from baton.core.verdict import Code, Finding, Receipt, Verdict
from baton.handoff.records import Handoff
from baton.handoff.sealed import KEY_ID, NAMESPACE, SIGNATURE
from baton.wire.json_values import digest
from baton.wire.records import CompactRecord, Digest, Instant, Integer, Name, OpenRecord, Timestamp, Uuid4
from baton.wire.text import describe_faults

QUERY_ANSWERED = "handoff_answered"
"""Query: this pipeline's answer to a handoff, by its id; for senders that are not workflows."""
MAX_REMEMBERED = 1_000
"""How many handoffs an outbox or an intake remembers; older ones have expired and are refused for that."""


class Reply(StrEnum):
    """A receiver's answer to a handoff between pipelines."""

    ACCEPTED = "accepted"
    """It is recorded, and the receiver continues with it."""
    REJECTED = "rejected"
    """It is not executed, and sending it again does not help."""
    NEEDS_INPUT = "needs_input"
    """It is not executed; the sender can correct it, and `unmet` says what is missing."""


class Acknowledgement(OpenRecord):
    """A receiver's answer to a handoff, sealed like the handoff itself.

    Attributes:
        handoff_id: The handoff that it answers.
        digest: The digest of the answered message (`message_digest`); an answer to other content does not count.
        answer: Accepted, rejected or needs-input.
        unmet: What is missing for needs-input, a sentence each.
        reason: Why it was rejected, in a sentence.
        code: The code of the verdict; absent if accepted, or if an agent rejected without one.
        by: The answering agent: an `agentType`.
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
        """Return the answer for a verdict: needs-input if the sender can correct it, else accepted or rejected."""
        correctable = verdict.reason in (Code.SCHEMA_INVALID, Code.INCOMPLETE_CONTEXT)
        answer = Reply.ACCEPTED if verdict else Reply.NEEDS_INPUT if correctable else Reply.REJECTED
        unmet = [finding.text for finding in verdict.findings if finding.code is verdict.reason] if correctable else []
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
    """Return the digest of a message without its seal and what is added with it."""
    return digest({name: value for name, value in message.items() if name not in (KEY_ID, NAMESPACE, SIGNATURE)})


class SentHandoff(CompactRecord):
    """A handoff that was sent.

    Attributes:
        corrected: How many earlier messages under this id were answered with needs-input.
        answer: The first answer, if there is one.
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


_MAX_EARLY = 20


class AckMatch(StrEnum):
    """How an answer relates to an outbox."""

    FIRST = "first"
    """It is the answer."""
    REPEATED = "repeated"
    """The same answer was received before; it changes nothing."""
    LATE = "late"
    """It is the first, but the sender no longer waits."""
    CONTRADICTS = "contradicts"
    """Another answer was received first, and stays."""
    OTHER_MESSAGE = "other_message"
    """It answers a message that was not sent under this id."""
    OTHER_AGENT = "other_agent"
    """It is an acceptance from another agent than the receiver; a rejection counts from any agent."""
    UNKNOWN = "unknown"
    """No such handoff was sent, or it is forgotten."""


class Outbox:
    """A sender's handoffs and their answers; the first answer to each counts."""

    def __init__(self, carried: Iterable[Mapping[str, Any]] = ()) -> None:
        """Begin empty, or with the state of the previous run."""
        self._early: dict[str, Acknowledgement] = {}
        handoffs = (SentHandoff.model_validate(members, strict=False) for members in carried)
        self._sent = {handoff.handoff_id: handoff for handoff in handoffs}

    def add(self, sent: SentHandoff) -> None:
        """Add a handoff before it is sent, or a corrected one under the same id."""
        earlier = self._sent.pop(sent.handoff_id, None)
        if earlier is not None and (earlier.open or earlier.answer is None or earlier.answer.accepted):
            self._sent[sent.handoff_id] = earlier
            raise ValueError(
                f"handoff {sent.handoff_id!r} was sent before; use `count_attempt`, or give it an id of its own"
            )
        corrected = 0 if earlier is None else earlier.corrected + 1
        self._sent[sent.handoff_id] = sent.model_copy(update={"corrected": corrected})
        closed = [other.handoff_id for other in self._sent.values() if not other.open]
        for handoff_id in closed[: max(len(self._sent) - MAX_REMEMBERED, 0)]:
            del self._sent[handoff_id]
        if early := self._early.pop(sent.handoff_id, None):
            self.receive(early)

    def next_attempt(self, handoff_id: str) -> int:
        """Return the attempt of the next message under an id, from 1; only corrections count."""
        earlier = self._sent.get(handoff_id)
        return 1 if earlier is None else earlier.corrected + 2

    def count_attempt(self, handoff_id: str) -> SentHandoff:
        """Count another sending of the same message."""
        return self._change(handoff_id, attempts=self._sent[handoff_id].attempts + 1)

    def extend(self, handoff_id: str, deadline: datetime) -> SentHandoff:
        """Move the deadline of a handoff."""
        return self._change(handoff_id, deadline=deadline)

    def close(self, handoff_id: str) -> None:
        """Stop waiting for an answer."""
        self._change(handoff_id, open=False)

    def receive(self, ack: Acknowledgement) -> AckMatch:
        """Record an answer whose seal holds, and return how it matches."""
        sent = self._sent.get(ack.handoff_id)
        if sent is None:
            # After a roll-back, the answer to a stream may arrive before the run has sent it again.
            self._early = {**self._early, ack.handoff_id: ack}
            if len(self._early) > _MAX_EARLY:
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
        """Return the answer to a handoff, or None."""
        sent = self._sent.get(handoff_id)
        return None if sent is None else sent.answer

    def carried(self) -> list[JsonValue]:
        """Return everything as JSON, for the run that continues this one."""
        return [sent.model_dump(mode="json") for sent in self._sent.values()]

    def _change(self, handoff_id: str, **changes: Any) -> SentHandoff:
        changed = self._sent[handoff_id] = self._sent[handoff_id].model_copy(update=changes)
        return changed


class ProcessedHandoffs:
    """A receiver's answers, so that a repeated handoff gets the same answer and is not executed twice."""

    def __init__(self, carried: Iterable[Mapping[str, Any]] = ()) -> None:
        """Begin empty, or with the state of the previous run."""
        answers = (Acknowledgement.from_json_object(members) for members in carried)
        self._answers = {answer.handoff_id: answer for answer in answers}

    def earlier_answer(self, handoff_id: str, message: str, *, by: str, at: datetime) -> Acknowledgement | None:
        """Return the answer to a handoff that is already settled, or None if it has to be judged."""
        earlier = self._answers.get(handoff_id)
        if earlier is None or (earlier.digest != message and not earlier.accepted):
            return None
        if earlier.digest == message:
            return earlier
        return Acknowledgement(
            handoff_id=handoff_id,
            digest=message,
            answer=Reply.REJECTED,
            reason="another message with this id was accepted before; send a handoff again unchanged",
            code=Code.SIGNATURE_INVALID,
            by=by,
            at=at,
        )

    def remember(self, ack: Acknowledgement) -> None:
        """Remember an answer; the first one to the same content stays."""
        earlier = self._answers.get(ack.handoff_id)
        if earlier is not None and earlier.accepted and earlier.digest != ack.digest:
            raise ValueError(f"handoff {ack.handoff_id!r} was accepted with other content; its answer cannot change")
        if earlier is None or earlier.digest != ack.digest:
            self._answers.pop(ack.handoff_id, None)
            self._answers[ack.handoff_id] = ack
        if len(self._answers) > MAX_REMEMBERED:
            refused = (answer.handoff_id for answer in self._answers.values() if not answer.accepted)
            del self._answers[next(refused, next(iter(self._answers)))]

    def answer(self, handoff_id: str) -> Acknowledgement | None:
        """Return the answer to a handoff, or None."""
        return self._answers.get(handoff_id)

    def carried(self) -> list[JsonValue]:
        """Return everything as JSON, for the run that continues this one."""
        return [answer.to_json_object() for answer in self._answers.values()]


def next_in_line(waiting: Sequence[Outline]) -> int:
    """Return the index of the next message: in order of arrival, but parents before their children."""
    known_ids = {key.handoff_id for key in waiting if key.handoff_id}
    first = 0
    for index, key in enumerate(waiting):
        if key.parent_handoff_id not in known_ids or key.parent_handoff_id == key.handoff_id:
            first = index
            break
    best = waiting[first]
    for index, key in enumerate(waiting):
        if key.task_id and key.task_id == best.task_id and -1 < key.trail.hops < best.trail.hops:
            first, best = index, key
    return first


ADMIT = "baton.admit"
"""The activity that passes a handoff through the worker's gate."""
OPEN = "baton.open"
"""The activity that verifies the seal of an acknowledgement, a chunk, or an action of an outside agent."""
FOR_WHOM = "requester"
"""Member of a handoff's `step`: who its sender works for. Agents outside do not get it."""
ATTEMPT = "attempt"
"""Member of a handoff's `step`: the attempt under its id, from 1."""


def check_requester(handoff: Handoff) -> list[Finding]:
    """Return a finding if a handoff says for whom its sender works in another form than Baton's."""
    given = (handoff.step or {}).get(FOR_WHOM)
    try:
        if given is not None:
            Requester.model_validate(given)
    except ValidationError as error:
        text = f"it is not a requester: {describe_faults(error)}; leave it out, or send what the sender's run has"
        return [Finding(code=Code.SCHEMA_INVALID, text=text, at=f"/step/{FOR_WHOM}")]
    return []


class AcceptRequest(CompactRecord):
    """A received handoff, the first run of the receiver's chain as its workflow knows it, and its requirements."""

    raw: str
    run_chain: str
    receiver: ReceiverRequirements

    @property
    def message(self) -> bytes:
        """The message's bytes."""
        return base64.b64decode(self.raw)


class Admission(CompactRecord):
    """The gate's recorded answer to a handoff.

    Attributes:
        digest: The message's digest; absent if its seal does not hold, as are all members below.
        reply_to: The workflow that waits for the answer; absent if the message is for another receiver.
    """

    receipt: Receipt
    digest: Digest | None = None
    sender: str = ""
    reply_to: str | None = None
    message: dict[str, JsonValue] | None = None


class OpenedMessage(CompactRecord):
    """A sealed message after its seal was verified, or why it was not opened."""

    message: dict[str, JsonValue] | None = None
    fault: str = ""
    unsafe: list[str] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)


class ReceivedHandoff(CompactRecord):
    """A handoff that a pipeline accepted; `Exchange.receive` returns it.

    Attributes:
        handoff_id: The handoff.
        task_id: The task.
        digest: The message's digest.
        sender: Who handed on.
        reply_to: The workflow that was answered; absent if none waits.
        description: What the receiver is to do.
        constraints: Rules of the form `key:value`.
        state: The message's `currentState`; the sender's baton is in here.
        trail: The task's earlier handoffs.
        step: The message's `step`.
        cost: What the chain has spent, and what is left.
        flags: What the safety scan noticed and let pass.
        anchor: The head of the task's audit chain after the acceptance.
        seconds: The time from dispatch to acceptance.
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

    @property
    def requester(self) -> Requester | None:
        """Who the sender works for; None if its run does not say. Another form of it is not admitted."""
        given = self.step.get(FOR_WHOM)
        return None if given is None else Requester.model_validate(given)

    @classmethod
    def of(cls, admission: Admission, handoff: Handoff, seconds: float) -> "ReceivedHandoff":
        """Return the received handoff of an admission that accepted it."""
        if admission.digest is None:
            raise ValueError("only an accepted handoff is received")
        return cls(
            handoff_id=handoff.handoff_id,
            task_id=handoff.task_id,
            digest=admission.digest,
            sender=admission.sender,
            reply_to=admission.reply_to,
            description=handoff.task_description,
            constraints=handoff.constraints,
            state=handoff.current_state,
            trail=None if handoff.trail is None else handoff.trail.to_json_object(),
            step=handoff.step or {},
            cost=handoff.cost_tracking,
            flags=admission.receipt.flags,
            anchor=admission.receipt.anchor,
            seconds=round(seconds, 6),
        )


def received_patch(baton: Baton, received: ReceivedHandoff) -> dict[str, JsonValue]:
    """Return the patch that merges a received baton into the receiver's; the receiver's goal stays."""
    own_members = baton.to_json_object()
    patch: dict[str, JsonValue] = {}
    for name in Baton.FIELDS:
        received_items = received.state.get(name)
        if name == "goal" or not isinstance(received_items, list) or not received_items:
            continue
        own_items = own_members.get(name)
        own_items = own_items if isinstance(own_items, list) else []
        new_items = [item for item in received_items if item not in own_items]
        if name == "current_state":
            patch[name] = received_items
        elif name == "decision_log":
            if unknown := unknown_decisions(baton.decision_log, received_items):
                patch[name] = unknown
        elif new_items:
            patch[name] = [*own_items, *new_items]
    return patch
