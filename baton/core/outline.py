"""What a handoff message says of itself, read once, also where it breaks the schema.

A rejected message is traced, recorded and answered like an accepted one, and may hold anything. So a member that is
missing or malformed has its default here, and every other reader takes the typed members.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from baton.core.costs import CostTracking
from baton.wire.records import CamelRecord, parse_instant

Nth = Annotated[int, Field(ge=1, lt=1_000_000)]


class _Lenient(CamelRecord):
    model_config = ConfigDict(extra="ignore")

    @field_validator("*", mode="wrap")
    @classmethod
    def _drop_malformed(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return handler(value)
        except ValidationError:
            return cls.model_fields[info.field_name or ""].get_default(call_default_factory=True)


class _From(_Lenient):
    agent_id: str | None = None
    execution_id: str | None = None


class _To(_Lenient):
    agent_type: str | None = None


class _Trail(_Lenient):
    hops: int = -1


class _Step(_Lenient):
    seq: Nth | None = None
    attempt: Nth = 1
    follows: str | None = None
    reply_to: str | None = None


class Outline(_Lenient):
    """The members of a message that its traces, records and answers need.

    Attributes:
        handoff_id: Its id.
        task_id: Its task.
        parent_handoff_id: The handoff that brought the task to the sender.
        from_agent: The sender.
        to_agent: The receiver.
        timestamp: When it was built, in UTC.
        initial: Whether it begins a task.
        audience: The only address that may accept it.
        audience_run: The first run of the chain that it is meant for.
        namespace: The Temporal namespace that it is meant for.
        receiver_list: Of a fan-out, every receiver.
        cost_tracking: What the task has cost, and what is left.
        trail: How the task came here; `hops` is -1 if it does not say.
        traceparent: The trace that it belongs to.
        tracestate: Opaque state of tracing systems.
        step: Of a stage's input, its number and attempt, and the span that it follows; of a handoff between pipelines,
            its attempt and the workflow that waits for the answer.
    """

    handoff_id: str | None = None
    task_id: str | None = None
    parent_handoff_id: str | None = None
    from_agent: _From = _From()
    to_agent: _To = _To()
    timestamp: Annotated[datetime | None, BeforeValidator(parse_instant)] = None
    initial: bool = False
    audience: str | None = None
    audience_run: str | None = None
    namespace: str | None = None
    receiver_list: list[str] = Field(default_factory=list)
    cost_tracking: CostTracking | None = None
    trail: _Trail = _Trail()
    traceparent: str | None = None
    tracestate: str | None = None
    step: _Step = _Step()

    @classmethod
    def of(cls, message: Any) -> Self:
        """Return the outline of a message, which may be any JSON; it never raises."""
        return cls.from_json_object(message) if isinstance(message, Mapping) else cls()
