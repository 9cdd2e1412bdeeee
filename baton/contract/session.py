"""What happened while an agent worked, as typed events: the durable record that contracts are compiled from.

A session is kept apart from what the next agent reads (S5-prob-i). Its events hold short claims; whole answers lie
in the artifact store, and an event names them by hash. A timestamp is kept as it was written: one that is missing
or cannot be read makes an event unfit to be a fact, and no reason to lose the event.
"""

from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

from pydantic import Field, PlainValidator, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from baton.artifacts.records import Name
from baton.wire.values import Count, Digest, OpenRecord


class EventType(StrEnum):
    """What kind of thing happened."""

    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    LLM_RESPONSE = "llm_response"
    USER_MESSAGE = "user_message"
    ASSISTANT_MESSAGE = "assistant_message"
    DECISION = "decision"
    BRAINSTORM = "brainstorm"
    INTERNAL_NOTE = "internal_note"
    REJECTED_ASSUMPTION = "rejected_assumption"


def _written(value: Any) -> Any:
    """Write a time as it stands on the wire; a text stays as it is."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if not isinstance(value, str):
        raise ValueError("a time is a text, as in 2026-06-27T09:20:00Z, or a datetime")
    return value


WrittenTime = Annotated[datetime | str, PlainValidator(_written), WithJsonSchema({"type": "string"})]
"""A time as somebody wrote it, readable or not. It is made of a text or a datetime, and kept as text."""


class SessionEvent(OpenRecord):
    """One thing that happened in a session (S5-compiler-a).

    Members at their default are left out of its JSON, and members that this release does not know are kept.

    Attributes:
        id: Names the event; unique in the session, and a fact's `eventId` leads back to it.
        type: What kind of thing happened.
        timestamp: When; of a tool's result, when the data was retrieved and not when it was passed on (S5-fm-b).
        content: The claim or the text, short; a tool's result is a claim in a sentence.
        ref: The artifact that holds the whole content, where `content` is not all of it.
        tokens: How many tokens the whole content has; 0 if nobody counted.
        exclude_from_handoff: True keeps it from every other agent (S5-compiler-c).
        max_age_minutes: After how many minutes it is stale, instead of what the policy says.
        tool_name: The tool that was called, or that answered.
        call_id: Of a call its own id, if not that of the event; of a result the call that it answers.
        success: Whether the tool did its work; absent where nobody said so, which is not the same as yes (C-43).
        accepted: Of a decision, whether it was accepted (C-40).
        agent: Who recorded it.
        handoff_id: The handoff under which the agent acted (S5-fields-a).

    Example:
        >>> event = SessionEvent(id="evt-9a3b2c", type="brainstorm", timestamp="2026-06-27T09:20:00Z", content="?")
        >>> event.to_json_object()
        {'id': 'evt-9a3b2c', 'type': 'brainstorm', 'timestamp': '2026-06-27T09:20:00Z', 'content': '?'}
    """

    id: Name
    type: Annotated[EventType, Field(strict=False)]
    timestamp: WrittenTime | None = None
    content: str = ""
    ref: Digest | None = None
    tokens: Count = 0
    exclude_from_handoff: bool = False
    max_age_minutes: Count | None = None
    tool_name: str | None = None
    call_id: Name | None = None
    success: bool | None = None
    accepted: bool | None = None
    agent: str | None = None
    handoff_id: str | None = None

    @property
    def at(self) -> datetime | None:
        """The time of the event in UTC; None if it is missing, unreadable or has no offset (C-42)."""
        return instant(self.timestamp)

    @model_serializer(mode="wrap")
    def _compact(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out members at their default: a session is most of what a run has to keep."""
        members: dict[str, Any] = handler(self)
        defaults = _defaults()
        return {name: one for name, one in members.items() if name not in defaults or one != defaults[name]}


@cache
def _defaults() -> dict[str, Any]:
    """Return the default of each member of an event that has one, by its name on the wire."""
    fields = SessionEvent.model_fields.items()
    return {field.alias or name: field.default for name, field in fields if not field.is_required()}


def instant(value: object) -> datetime | None:
    """Return the time that a value tells, in UTC, or None if it tells none.

    Args:
        value: A text with a time and its offset from UTC, in a spelling of ISO 8601; anything else tells none.

    Example:
        >>> instant("2026-06-27T11:20:00+02:00")
        datetime.datetime(2026, 6, 27, 9, 20, tzinfo=datetime.timezone.utc)
        >>> instant("2026-06-27T11:20:00") is instant("yesterday") is None
        True
    """
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
