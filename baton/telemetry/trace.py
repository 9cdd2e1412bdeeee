"""The traceparent of a handoff (W3C Trace Context).

A trace of Baton is flat. Every handoff of a task carries the traceparent of the span that started the pipeline, also
in child pipelines and continued runs, so one trace holds them all without deep nesting. Links show the order: a
handoff's span id is computed from its id and receiver, so `parentHandoffId` is enough to link to the previous span.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from baton.core.outline import Outline
from baton.errors import BatonError

MAX_LENGTH = 512
"""The maximum length of a traceparent of a later version, and of a tracestate."""

FOLLOWS = "follows"
"""The member of `step` with the previous handoff's span, in a child, where `parentHandoffId` does not name it."""

_SAMPLED = 0x01
_SPAN_ID = re.compile("[0-9a-f]{16}")
# Version 00 ends after the flags, later ones may continue after a dash (§3.2.4); ff is not a version (§3.2.2.1).
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")


class TraceparentError(BatonError, ValueError):
    """A text is not a traceparent. The message shows the format."""


@dataclass(frozen=True)
class TraceContext:
    """A W3C traceparent: which trace, which span of it, and whether that span is recorded."""

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
        """Parse a traceparent."""
        parts = _TRACEPARENT.fullmatch(text) if len(text) <= MAX_LENGTH else None
        if parts is None or parts[1] == "ff" or (parts[1] == "00" and parts[5]):
            raise TraceparentError(
                "a traceparent is 00-<32 hex>-<16 hex>-<2 hex> in lower case (W3C Trace Context §3.2); "
                f"found {text[:80]!r}"
            )
        return cls(parts[2], parts[3], bool(int(parts[4], 16) & _SAMPLED))

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.sampled else 0:02x}"


def new_traceparent(trace_id: str, span_id: str) -> str:
    """Return the traceparent of a new trace."""
    return str(TraceContext(trace_id, span_id))


def child_traceparent(parent: str, span_id: str) -> str:
    """Return a span's traceparent: its parent's trace and sampling, its own id."""
    context = TraceContext.parse(parent)
    return str(TraceContext(context.trace_id, span_id, context.sampled))


def task_traceparent(task_id: str) -> str:
    """Return the traceparent of a task that was started outside a trace, made of the task's id."""
    digits = task_id.replace("-", "").lower()
    return new_traceparent(digits, digits[:16])


def handoff_span_id(handoff_id: str, receiver: str) -> str:
    """Return the id of a handoff's span, which anyone can compute."""
    hashed = hashlib.sha256(f"{handoff_id}\n{receiver}".encode("utf-8", "replace")).digest()
    return f"{int.from_bytes(hashed[:8], 'big') or 1:016x}"


@dataclass(frozen=True)
class HandoffTrace:
    """The members of a message that a trace needs.

    Attributes:
        parent: The span that started the pipeline, or None if the message has no valid traceparent.
        tracestate: Opaque state of tracing systems, passed on unchanged.
        handoff_id: The handoff's id.
        task_id: The task's id.
        sender: Who handed on.
        receiver: Who is to receive.
        previous_id: The handoff that the sender received, None for the first of its pipeline.
        previous_span_id: The id of that handoff's span; for a child pipeline's first, the span of its parent's last
            handoff; after a fan-out, the span of the last branch.
        sent_at: When the message was built, None if its timestamp is missing or invalid.
        attempt: The attempt of its stage, from 1.
        is_first: Whether it begins its pipeline's task, as the first step, and is the only or first copy of a fan-out.
        hands_back: Whether it asks its receiver to correct an earlier handoff; it has its own id, and continues
            the count of attempts.
        from_pipeline: Whether the pipeline itself hands on, and not an agent.
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
    from_pipeline: bool = False

    @classmethod
    def of(cls, outline: Outline) -> "HandoffTrace | None":
        """Return a message's trace, or None if it does not name its handoff, task or agents."""
        names = outline.handoff_id, outline.task_id, outline.from_agent.agent_id, outline.to_agent.agent_type
        if not all(names):
            return None
        handoff_id, task_id, sender, receiver = (str(name)[:MAX_LENGTH] for name in names)
        parent_id, step, execution = outline.parent_handoff_id, outline.step, outline.from_agent.execution_id
        # `executionId` is the handoff that the sender accepted, or, if it hands back, the one it rejected.
        hands_back = parent_id is not None and step.seq is not None and execution != parent_id
        return cls(
            parent=_parse_parent(outline.traceparent),
            tracestate=(outline.tracestate or "") if len(outline.tracestate or "") <= MAX_LENGTH else "",
            handoff_id=handoff_id,
            task_id=task_id,
            sender=sender,
            receiver=receiver,
            previous_id=parent_id,
            previous_span_id=_previous_span_id(execution if hands_back else parent_id, sender, step.follows),
            sent_at=outline.timestamp,
            attempt=step.attempt,
            is_first=outline.initial
            and step.seq in (None, 1)
            and (not outline.receiver_list or outline.receiver_list[0] == receiver),
            hands_back=hands_back,
            from_pipeline=parent_id is None or step.follows is not None,
        )

    @property
    def span_id(self) -> str:
        """The id of the handoff's own span."""
        return handoff_span_id(self.handoff_id, self.receiver)

    @property
    def begins_trace(self) -> bool:
        """Whether it is the first handoff of a task that was started without a span."""
        return self.previous_span_id is None and self.is_first and self.is_untraced

    @property
    def is_untraced(self) -> bool:
        """Whether the task was started without a trace, so that sampling is undecided."""
        if self.parent is None:
            return False
        try:
            return str(self.parent) == task_traceparent(self.task_id)
        except TraceparentError:
            return False


def span_after(handoff_id: str, receivers: str) -> str:
    """Return the span id of the handoff that these receivers (joined by `+`) accepted; in a fan-out, of the last."""
    return handoff_span_id(handoff_id, receivers.rpartition("+")[2])


def _previous_span_id(handoff_id: str | None, sender: str, follows: str | None) -> str | None:
    """Return the previous handoff's span id: the one that `step` names, or computed from the handoff's id."""
    if follows is not None and _SPAN_ID.fullmatch(follows):
        return follows
    return None if handoff_id is None else span_after(handoff_id, sender)


def _parse_parent(text: str | None) -> TraceContext | None:
    try:
        return None if text is None else TraceContext.parse(text)
    except TraceparentError:
        return None
