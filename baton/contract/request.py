"""What a contract is compiled for, and by which policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from baton.contract.records import DEFAULT_EXPIRY_MINUTES, Confidence, OutputSchemaRef
from baton.contract.session import EventType
from baton.contract.tool_names import tool_key
from baton.handoff.freshness import TOLERANCE

EXCLUDED_TYPES = frozenset({EventType.BRAINSTORM, EventType.INTERNAL_NOTE, EventType.REJECTED_ASSUMPTION})
"""The types that never cross, unless a policy says otherwise (S5-check-c, C-40)."""
CONFIDENCES: Mapping[EventType, Confidence] = {
    EventType.LLM_RESPONSE: Confidence.MEDIUM,
    EventType.DECISION: Confidence.MEDIUM,
    EventType.USER_MESSAGE: Confidence.UNVERIFIED,
}
"""How sure a fact is by the type of its event; a tool's result has a rule of its own (S5-fields-i)."""
DEFAULT_MAX_AGE_MINUTES = 30
"""After how many minutes a tool's result is stale, unless the policy or the event says otherwise."""
_MOST_MINUTES = 10**12  # two million years, which a timedelta still holds


@dataclass(frozen=True)
class ContractRequest:
    """What a contract is compiled for.

    Nothing of it is checked here but the clock: `baton.contract.checks.validate_contract` reports all that is
    wrong at once.

    Attributes:
        handoff_id: Names the handoff.
        receiving_agent: Who is to receive.
        task: What is to be done, at most 500 characters.
        trace_id: The trace; empty takes the trace id out of `traceparent` (C-44).
        created_at: When, with its offset from UTC; in a workflow the workflow's time.
        capability: The tools that the receiver is able to use.
        granted: Tools that the policy grants although nobody used them.
        forbidden: Tools that the receiver may not use, whatever else is said.
        ceiling: The most that the chain allows here, for example what the sender itself was allowed; None for no limit.
        output_schema: The shape that the output must have.
        max_tokens: How many tokens the contract may take as the receiver reads it; None for any number.
        receiving_agent_version: The receiver's version, where it matters which.
        traceparent: The W3C trace context that the handoff travels with.
        message_id: The signed message that will carry the contract (X-1).

    Raises:
        ValueError: `created_at` has no offset from UTC, so no age can be told.
    """

    handoff_id: str
    receiving_agent: str
    task: str
    trace_id: str
    created_at: datetime
    capability: frozenset[str]
    granted: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    ceiling: frozenset[str] | None = None
    output_schema: OutputSchemaRef | None = None
    max_tokens: int | None = None
    receiving_agent_version: str | None = None
    traceparent: str | None = None
    message_id: str | None = None

    def __post_init__(self) -> None:
        """Check that the clock is one."""
        if self.created_at.tzinfo is None:
            raise ValueError("created_at has no offset from UTC; use workflow.now(), or datetime.now(UTC)")


@dataclass(frozen=True)
class ContractPolicy:
    """Which events become facts, how sure they are, and how long everything lasts.

    Attributes:
        max_result_age_minutes: After how many minutes a tool's result is stale; exactly so old is still fresh (C-42).
        tool_ages: The same by tool, whatever its case (S5-check-d); an event's own `max_age_minutes` comes before both.
        expires_after_minutes: How long the contract lasts.
        excluded_types: The types of events that never cross.
        confidences: How sure a fact is by the type of its event. Events of other types become no facts.
        tolerance: How far ahead the clock of a recorder may be.
        refuse_unknown_sources: A tool's result that does not name its tool has no known source. True makes it a fact
            that the validation refuses, so that the handoff fails fast (S5-fm-d); False leaves it out. It crosses
            in neither case.

    Raises:
        ValueError: An age or the expiry is not a number of minutes that can be, or a type is said to be of high
            confidence, which only a tool's success is (S5-fields-i).

    Example:
        >>> ContractPolicy(tool_ages={"crm.lookup_pricing": 5}).age_limit("crm.lookup_pricing", None)
        datetime.timedelta(seconds=300)
        >>> ContractPolicy(confidences={EventType.LLM_RESPONSE: Confidence.HIGH})
        Traceback (most recent call last):
        ValueError: 'llm_response' is said to be of high confidence; only a tool that succeeded is; say medium or less
    """

    max_result_age_minutes: int = DEFAULT_MAX_AGE_MINUTES
    tool_ages: Mapping[str, int] = field(default_factory=dict)
    expires_after_minutes: int = DEFAULT_EXPIRY_MINUTES
    excluded_types: frozenset[EventType] = EXCLUDED_TYPES
    confidences: Mapping[EventType, Confidence] = field(default_factory=lambda: dict(CONFIDENCES))
    tolerance: timedelta = TOLERANCE
    refuse_unknown_sources: bool = True

    def __post_init__(self) -> None:
        """Check what would otherwise come to light at the first handoff, or never."""
        ages = {"max_result_age_minutes": self.max_result_age_minutes, **self.tool_ages}
        for name, minutes in ages.items():
            if minutes < 0:
                raise ValueError(f"the age limit {name!r} is {minutes} minutes; it must be 0 or more")
        if self.expires_after_minutes < 1:
            raise ValueError(f"expires_after_minutes is {self.expires_after_minutes}; it must be 1 or more")
        for kind, confidence in self.confidences.items():
            if confidence is Confidence.HIGH:
                raise ValueError(
                    f"{kind.value!r} is said to be of high confidence; only a tool that succeeded is; "
                    "say medium or less"
                )

    def age_limit(self, tool: str, own: int | None) -> timedelta:
        """Return how old a tool's result may be.

        Args:
            tool: The tool's name.
            own: The event's own limit in minutes, if it has one.
        """
        minutes = self._minutes_of(tool) if own is None else own
        return timedelta(minutes=min(minutes, _MOST_MINUTES))

    def _minutes_of(self, tool: str) -> int:
        """Return the limit of a tool, however its caller spelled it: it is the same tool to its contract."""
        if not self.tool_ages or tool in self.tool_ages:
            return self.tool_ages.get(tool, self.max_result_age_minutes)
        same = (minutes for name, minutes in self.tool_ages.items() if tool_key(name) == tool_key(tool))
        return min(same, default=self.max_result_age_minutes)
