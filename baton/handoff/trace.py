"""Traces: what a traceparent says, and which one belongs to a handoff (W3C Trace Context).

A trace of Baton is flat. Every handoff of a task carries the traceparent of the span that started the pipeline,
through child pipelines and continued runs too, so one trace holds them all and nothing nests without end. What
came of it is shown by links: a handoff's own span id follows from its id and its receiver, so anyone who knows
`parentHandoffId` can link to the span of the handoff before, without anything more in the message.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from baton.contract.records import instant
from baton.errors import BatonError

LONGEST = 512
"""The most characters of a traceparent of a later version, and of a tracestate."""

FOLLOWS = "follows"
"""The member of `step` that names the span of the handoff before, where `parentHandoffId` does not: in a child."""

_SAMPLED = 0x01
_SPAN_ID = re.compile("[0-9a-f]{16}")
# Version 00 ends after the flags, later ones may continue after a dash (§3.2.4); ff is not a version (§3.2.2.1).
_PARTS = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")


class TraceparentError(BatonError, ValueError):
    """A text is not a traceparent; it says what one looks like."""


@dataclass(frozen=True)
class TraceContext:
    """A W3C traceparent: which trace, which span of it, and whether that span is recorded.

    Attributes:
        trace_id: 32 hexadecimal digits in lower case, not all zeros.
        span_id: 16 of them, not all zeros: the span that the receiver's own is a child of.
        sampled: Whether the sender may have recorded its span; a receiver that can record does so if it did.
    """

    trace_id: str
    span_id: str
    sampled: bool = True

    def __post_init__(self) -> None:
        for name, value, digits in (("trace id", self.trace_id, 32), ("span id", self.span_id, 16)):
            if not re.fullmatch(f"[0-9a-f]{{{digits}}}", value) or not int(value, 16):
                raise TraceparentError(
                    f"a {name} is {digits} hexadecimal digits in lower case, not all zeros; found {value[:40]!r}"
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a traceparent says."""
        parts = _PARTS.fullmatch(text) if len(text) <= LONGEST else None
        if parts is None or parts[1] == "ff" or (parts[1] == "00" and parts[5]):
            raise TraceparentError(
                "a traceparent is 00-<32 hex>-<16 hex>-<2 hex> in lower case (W3C Trace Context §3.2); "
                f"found {text[:80]!r}"
            )
        return cls(parts[2], parts[3], bool(int(parts[4], 16) & _SAMPLED))

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.sampled else 0:02x}"


def new_traceparent(trace_id: str, span_id: str) -> str:
    """Return the traceparent of a trace that begins here."""
    return str(TraceContext(trace_id, span_id))


def child_traceparent(parent: str, span_id: str) -> str:
    """Return the traceparent that a span hands on: its parent's trace and sampling, its own id."""
    before = TraceContext.parse(parent)
    return str(TraceContext(before.trace_id, span_id, before.sampled))


def task_traceparent(task_id: str) -> str:
    """Return the traceparent of a task that was started in no trace: both ids are made of the task's own."""
    digits = task_id.replace("-", "").lower()
    return new_traceparent(digits, digits[:16])


def handoff_span_id(handoff_id: str, receiver: str) -> str:
    """Return the id of the span that stands for a handoff; the same for anyone who works it out."""
    name = hashlib.sha256(f"{handoff_id}\n{receiver}".encode("utf-8", "replace")).digest()
    return f"{int.from_bytes(name[:8], 'big') or 1:016x}"


@dataclass(frozen=True)
class HandoffTrace:
    """What a message says that a trace needs.

    Attributes:
        parent: The span that started the pipeline, or None if the message has no sound traceparent.
        tracestate: What came with it for tracing systems; opaque, handed on as it is.
        handoff_id: The handoff's id.
        task_id: The task's id.
        sender: Who handed on.
        receiver: Whom it is for.
        previous_id: The handoff that brought the task to the sender, None for the first of its pipeline.
        previous_span_id: The id of that handoff's span; of a pipeline's first, that of the handoff at which the one
            that started it was. The branches of a fan-out hand on together; it is that of the last one.
        sent_at: When the message was built, None if it does not say so properly.
        attempt: Which attempt of its stage it asks for, from 1.
        is_first: Whether it begins its pipeline's task, as the first step, and is the only copy of a fan-out's or the
            first.
        hands_back: Whether its receiver is to correct what it had handed on; it has an id of its own, and continues
            counting the attempts.
    """

    parent: TraceContext | None
    tracestate: str
    handoff_id: str
    task_id: str
    sender: str
    receiver: str
    previous_id: str | None
    previous_span_id: str | None
    sent_at: datetime | None
    attempt: int
    is_first: bool = True
    hands_back: bool = False

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "HandoffTrace | None":
        """Return what a message says, or None if it is so broken that it names no handoff or no agents."""
        agents = [message.get("fromAgent"), message.get("toAgent")]
        sender, receiver = (one if isinstance(one, Mapping) else {} for one in agents)
        names = message.get("handoffId"), message.get("taskId"), sender.get("agentId"), receiver.get("agentType")
        if not all(isinstance(name, str) and name for name in names):
            return None
        handoff_id, task_id, agent_id, agent_type = (str(name)[:LONGEST] for name in names)
        state, previous, copies = message.get("tracestate"), message.get("parentHandoffId"), message.get("receiverList")
        given = message.get("step")
        step: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        attempt, seq, execution = step.get("attempt"), step.get("seq"), sender.get("executionId")
        previous = previous if isinstance(previous, str) else None
        # A stage's execution is named by the handoff that brought it the task; who hands back, by the one it refused.
        hands_back = previous is not None and isinstance(seq, int) and execution != previous
        return cls(
            parent=_parent(message.get("traceparent")),
            tracestate=state if isinstance(state, str) and len(state) <= LONGEST else "",
            handoff_id=handoff_id,
            task_id=task_id,
            sender=agent_id,
            receiver=agent_type,
            previous_id=previous,
            previous_span_id=_span_before(execution if hands_back else previous, agent_id, step),
            sent_at=instant(message.get("timestamp")),
            attempt=attempt if isinstance(attempt, int) and attempt > 0 else 1,
            is_first=message.get("initial") is True
            and seq in (None, 1)
            and (not (isinstance(copies, list) and copies) or copies[0] == agent_type),
            hands_back=hands_back,
        )

    @property
    def span_id(self) -> str:
        """The id of the handoff's own span."""
        return handoff_span_id(self.handoff_id, self.receiver)

    @property
    def begins_trace(self) -> bool:
        """Whether it is the first handoff of a task whose start was not recorded."""
        return self.previous_span_id is None and self.is_first and self.is_untraced

    @property
    def is_untraced(self) -> bool:
        """Whether the task was started without a trace, so that recording its own is undecided."""
        if self.parent is None:
            return False
        try:
            return str(self.parent) == task_traceparent(self.task_id)
        except TraceparentError:
            return False


def span_after(handoff_id: str, receivers: str) -> str:
    """Return the id of the span of the handoff whose receiver sends the next one; of a fan-out's, the last."""
    return handoff_span_id(handoff_id, receivers.rpartition("+")[2])


def _span_before(handoff_id: object, sender: str, step: Mapping[str, Any]) -> str | None:
    """Return the id of the span of the handoff before, by its id or as the message says it."""
    if isinstance(handoff_id, str):
        return span_after(handoff_id, sender)
    follows = step.get(FOLLOWS)
    return follows if isinstance(follows, str) and _SPAN_ID.fullmatch(follows) else None


def _parent(value: object) -> TraceContext | None:
    """Return a member `traceparent` if it is one."""
    try:
        return TraceContext.parse(value) if isinstance(value, str) else None
    except TraceparentError:
        return None
