"""The request for a contract, and the draft in which each event is settled exactly once."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from baton.contract.records import (
    DEFAULT_EXPIRY_MINUTES,
    Confidence,
    Constraint,
    ContractError,
    EventType,
    Fact,
    HandoffContract,
    Label,
    OutputSchemaRef,
    SessionEvent,
    SourceProvenance,
)
from baton.contract.registry import tool_key
from baton.wire.records import CompactRecord, Name, format_instant, has_text
from baton.wire.text import TokenEstimator, estimate_tokens, single_line

EXCLUDED_TYPES = frozenset(
    {EventType.BRAINSTORM, EventType.INTERNAL_NOTE, EventType.REJECTED_ASSUMPTION, EventType.ASSISTANT_MESSAGE}
)
"""The types of events that never cross."""
CONFIDENCES: Mapping[EventType, Confidence] = {
    EventType.LLM_RESPONSE: Confidence.MEDIUM,
    EventType.DECISION: Confidence.MEDIUM,
    EventType.USER_MESSAGE: Confidence.UNVERIFIED,
}
"""Confidence by type of event. Tool results have their own rule; other types never become facts."""
DEFAULT_MAX_AGE_MINUTES = 30
"""The default age in minutes after which a tool's result is stale."""
_MAX_MINUTES = 10**12  # two million years, within the range of a timedelta


@dataclass(frozen=True)
class ContractRequest:
    """The request for a contract; ``created_at`` is the workflow's time in a workflow.

    Attributes:
        granted: Tools that the policy grants even if they were not used before.
        max_tokens: The maximum tokens of the rendered contract; None for no limit.
        tools_as_declared: Leave the receiver's tools as it declares them.
    """

    handoff_id: str
    receiving_agent: str
    task: str
    trace_id: str
    created_at: datetime
    capability: frozenset[str]
    granted: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    output_schema: OutputSchemaRef | None = None
    max_tokens: int | None = None
    receiving_agent_version: str | None = None
    traceparent: str | None = None
    message_id: str | None = None
    tools_as_declared: bool = False

    def __post_init__(self) -> None:
        if self.created_at.tzinfo is None:
            raise ValueError("created_at has no UTC offset; use workflow.now(), or datetime.now(UTC)")


@dataclass(frozen=True)
class ContractPolicy:
    """Time limits of contracts and facts.

    Attributes:
        tool_ages: The same by tool, ignoring case. An event's own `max_age_minutes` takes precedence over both.
    """

    max_result_age_minutes: int = DEFAULT_MAX_AGE_MINUTES
    tool_ages: Mapping[str, int] = field(default_factory=dict)
    expires_after_minutes: int = DEFAULT_EXPIRY_MINUTES

    def __post_init__(self) -> None:
        ages = {"max_result_age_minutes": self.max_result_age_minutes, **self.tool_ages}
        for name, minutes in ages.items():
            if minutes < 0:
                raise ValueError(f"the age limit {name!r} is {minutes} minutes; it must be 0 or more")
        if self.expires_after_minutes < 1:
            raise ValueError(f"expires_after_minutes is {self.expires_after_minutes}; it must be 1 or more")

    def age_limit(self, tool: str, own: int | None) -> timedelta:
        """Return the maximum age of a tool's result; ``own`` is that of the event."""
        minutes = self._limit_minutes(tool) if own is None else own
        return timedelta(minutes=min(minutes, _MAX_MINUTES))

    def _limit_minutes(self, tool: str) -> int:
        """Return the limit of a tool in minutes, for any spelling of its name."""
        if not self.tool_ages or tool in self.tool_ages:
            return self.tool_ages.get(tool, self.max_result_age_minutes)
        limits = (minutes for name, minutes in self.tool_ages.items() if tool_key(name) == tool_key(tool))
        return min(limits, default=self.max_result_age_minutes)


HEADING = "## Handoff Contract"
CONSTRAINTS = "\n**Constraints, in the user's words:**\n"
FACTS = "\n**Facts:**\n"
"""The heading of the facts, if there are any."""


def render_contract(contract: HandoffContract) -> str:
    """Return a contract as Markdown for an agent's prompt."""
    parts = [f"{HEADING}\n\n**Task:** {single_line(contract.task)}\n"]
    if contract.constraints:
        parts += [CONSTRAINTS, *(f"- {single_line(rule.text)}\n" for rule in contract.constraints)]
    if contract.facts:
        parts += [FACTS, *map(fact_line, contract.facts)]
    parts.append("\n")
    if contract.limits_tools:
        parts.append(f"**Allowed tools:** {_join_names(contract.allowed_tools)}\n")
    if contract.forbidden_tools:
        parts.append(f"**Forbidden tools:** {_join_names(contract.forbidden_tools)}\n")
    if contract.output_schema is not None:
        parts.append(f"**Output:** as in {single_line(str(contract.output_schema))}\n")
    handoff_id, receiver = single_line(contract.handoff_id), single_line(contract.receiving_agent)
    parts.append(f"**Handoff:** {handoff_id}, to {receiver}, use until {_render_time(contract.expires_at)}\n")
    return "".join(parts)


def fact_line(fact: Fact) -> str:
    """Return a fact as a line of the rendered contract."""
    source = fact.source
    origin = _render_origin(source.source, source.method)
    return f"- {fact.confidence}, {origin} at {_render_time(source.timestamp)}: {single_line(fact.claim)}\n"


def contract_tokens(contract: HandoffContract, estimator: TokenEstimator = estimate_tokens) -> int:
    """Return the tokens of the rendered contract."""
    return estimator(render_contract(contract))


def bounded_tokens(contract: HandoffContract, estimator: TokenEstimator = estimate_tokens) -> int:
    """Return the tokens that count against a contract's budget: all but those of the constraints, which it always has.

    A budget that they use up would let a prohibition give way, or a run fail because its user forbade much.
    """
    return contract_tokens(contract.model_copy(update={"constraints": None}), estimator)


@lru_cache(maxsize=4096)
def _render_origin(source: str, method: str) -> str:
    name = single_line(source)
    return name if method == f"tool_call:{source}" else f"{name} by {single_line(method)}"


def _join_names(names: list[str]) -> str:
    return ", ".join(single_line(name) for name in names) or "none"


def _render_time(at: datetime) -> str:
    return format_instant(at.replace(microsecond=0))


EXPLICIT, TYPE, STALE, FAILED = "explicit", "type", "stale", "failed"
UNSUPPORTED, BUDGET = "unsupported", "budget"
"""Why an event is left out: marked, of a type that never crosses, stale, from a failed tool, unable to become a fact,
or over the token budget."""
MAX_SUBJECT_LENGTH = 200
"""The maximum length of the subject in a label."""
UNKNOWN = "unknown"
"""The name of an unknown source; the validation rejects facts with it."""

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,79}")
_UNKNOWN_NAMES = frozenset({"", UNKNOWN, "unknown_tool", "undefined", "null", "none", "n/a"})


def is_unknown_source(name: str) -> bool:
    """Return whether a name stands for an unknown source."""
    return not has_text(name) or name.strip().casefold() in _UNKNOWN_NAMES


class EventOutcome(StrEnum):
    """The outcome of an event."""

    FACT = "fact"
    EXCLUDED = "excluded"
    CONSUMED = "consumed"


class Disposition(CompactRecord):
    """The outcome of an event, and why."""

    event_id: Name
    fate: Annotated[EventOutcome, Field(strict=False)]
    label: Label | None = None
    consumed_by: Name | None = None


@lru_cache(maxsize=4096)
def make_label(kind: str, subject: str, fallback: EventType) -> str:
    """Return a label: why an event was left out, and its subject."""
    if not _KIND.fullmatch(kind):
        raise ContractError(f"{kind!r} cannot begin a label; use a lower-case word such as 'confidential'")
    name = " ".join(subject.split())
    return f"{kind}:{name[:MAX_SUBJECT_LENGTH] if has_text(name) else fallback.value}"


class Draft:
    """The state of a compilation, which processors read and change.

    Attributes:
        events: The session, in order.
        request: The request for the contract.
        policy: The time limits.
        estimator: Counts tokens.
        settled: The number of earlier events by label, which were left out for good.

    Example:
        >>> from datetime import UTC, datetime
        >>> request = ContractRequest("h", "A", "Do it.", "t", datetime(2026, 6, 27, tzinfo=UTC), frozenset())
        >>> draft = Draft([SessionEvent(id="e1", type="brainstorm")], request, ContractPolicy())
        >>> draft.leave_out(draft.rest[0], "type")
        >>> draft.rest, draft.dispositions()[0].label
        ([], 'type:brainstorm')
    """

    def __init__(
        self,
        events: Iterable[SessionEvent],
        request: ContractRequest,
        policy: ContractPolicy,
        estimator: TokenEstimator = estimate_tokens,
        settled: Mapping[str, int] | None = None,
    ) -> None:
        self.settled = dict(settled or {})
        self.events: Sequence[SessionEvent] = tuple(events)
        self.request = request
        self.policy = policy
        self.estimator = estimator
        self._by_id = {event.id: event for event in self.events}
        self._settled: dict[str, tuple[EventOutcome, str | None]] = {}
        self._facts: dict[str, Fact] = {}
        if len(self._by_id) != len(self.events):
            duplicate = Counter(event.id for event in self.events).most_common(1)[0][0]
            raise ContractError(f"two events have the id {duplicate!r}; give each event a unique id")

    def __setattr__(self, name: str, value: object) -> None:
        """Reject a second assignment: a processor that replaces the session or request would lose events."""
        if name in self.__dict__:
            raise AttributeError(f"{name!r} of a draft cannot be replaced")
        super().__setattr__(name, value)

    @property
    def rest(self) -> list[SessionEvent]:
        """The unsettled events, in order."""
        return [event for event in self.events if event.id not in self._settled]

    @property
    def facts(self) -> list[Fact]:
        """The facts so far, in session order."""
        return [self._facts[event.id] for event in self.events if event.id in self._facts]

    @property
    def constraints(self) -> list[Constraint]:
        """What the users forbade whose messages are facts, or would be if there were room; each sentence once."""
        found: dict[str, Constraint] = {}
        for event, outcome, label in self.fates():
            crosses = outcome is EventOutcome.FACT or (label or "").startswith(f"{BUDGET}:")
            if crosses and event.type is EventType.USER_MESSAGE:
                for text in event.prohibitions or ():
                    found.setdefault(text, Constraint(text=text, event_id=event.id))
        return [*found.values()]

    def event(self, event_id: str) -> SessionEvent:
        """Return an event by its id."""
        if event_id not in self._by_id:
            raise ContractError(f"this session has no event {event_id!r}")
        return self._by_id[event_id]

    def leave_out(self, event: SessionEvent, kind: str, subject: str | None = None) -> None:
        """Leave an event out, with a label of ``kind`` and ``subject``."""
        if self._facts.pop(event.id, None) is not None:
            del self._settled[event.id]
        self._settle(event, EventOutcome.EXCLUDED, make_label(kind, subject or "", event.type))

    def consume(self, call: SessionEvent, result: SessionEvent) -> None:
        """Settle a call by its result."""
        if call.type is not EventType.TOOL_CALL:
            raise ContractError(f"the event {call.id!r} is a {call.type.value}; only a tool_call is consumed")
        self._settle(call, EventOutcome.CONSUMED, result.id)

    def state(self, event: SessionEvent, claim: str, source: SourceProvenance, confidence: Confidence) -> None:
        """Turn an event into a fact."""
        if confidence is Confidence.HIGH and not event.is_certain:
            raise ContractError(f"the event {event.id!r} is not a tool's success; its confidence cannot be high")
        if not has_text(claim):
            raise ContractError(f"the claim of the event {event.id!r} says nothing; leave the event out")
        self._settle(event, EventOutcome.FACT)
        optional: dict[str, Any] = {"whole": event.whole} if event.whole is not None and claim == event.content else {}
        self._facts[event.id] = Fact(claim=claim, source=source, confidence=confidence, event_id=event.id, **optional)

    def show_whole(self, fact: Fact) -> None:
        """Show the whole claim of a fact in the receiver's prompt, not only its beginning."""
        self._facts[fact.event_id] = fact.model_copy(update={"in_full": True})

    def fates(self) -> Iterator[tuple[SessionEvent, EventOutcome, str | None]]:
        """Yield each settled event with its outcome and its label or consuming result."""
        for event in self.events:
            if settlement := self._settled.get(event.id):
                yield event, *settlement

    def dispositions(self) -> list[Disposition]:
        """Return the outcome of each settled event, in order."""
        return [
            Disposition(
                event_id=event.id,
                fate=fate,
                label=detail if fate is EventOutcome.EXCLUDED else None,
                consumed_by=detail if fate is EventOutcome.CONSUMED else None,
            )
            for event, fate, detail in self.fates()
        ]

    def label_counts(self) -> dict[str, int]:
        """Return the number of events per label, in order of first appearance."""
        labels = (label for _, outcome, label in self.fates() if label and outcome is EventOutcome.EXCLUDED)
        return dict(Counter(self.settled) + Counter(labels))

    def _settle(self, event: SessionEvent, fate: EventOutcome, detail: str | None = None) -> None:
        """Settle an unsettled event of this session."""
        if settlement := self._settled.get(event.id):
            raise ContractError(
                f"the event {event.id!r} is already settled as {settlement[1] or settlement[0].value}; "
                "look only at `rest`, or leave a fact out"
            )
        self.event(event.id)
        self._settled[event.id] = fate, detail


@dataclass(frozen=True)
class Processor:
    """A named step of the compiler.

    Attributes:
        name: The name in the report.
        run: Changes the draft. It runs in workflow code, so it must be deterministic.
    """

    name: str
    run: Callable[[Draft], None]

    def __post_init__(self) -> None:
        """Reject functions that do nothing when called, because what they should leave out would cross."""
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_kind(self.run) for is_kind in kinds):
            raise TypeError(
                f"the processor {self.name!r} is an async function or a generator, and calling it would do nothing; "
                "write a plain function that changes the draft"
            )
