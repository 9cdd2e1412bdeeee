"""What a contract is compiled for, and the draft in which each event is settled exactly once."""

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
from baton.handoff.validation import TOLERANCE
from baton.wire.records import CompactRecord, Name, has_text
from baton.wire.text import TokenEstimator, estimate_tokens, single_line

EXCLUDED_TYPES = frozenset({EventType.BRAINSTORM, EventType.INTERNAL_NOTE, EventType.REJECTED_ASSUMPTION})
"""The types that never cross."""
CONFIDENCES: Mapping[EventType, Confidence] = {
    EventType.LLM_RESPONSE: Confidence.MEDIUM,
    EventType.DECISION: Confidence.MEDIUM,
    EventType.USER_MESSAGE: Confidence.UNVERIFIED,
}
"""How sure a fact is by the type of its event; a tool's result has a rule of its own, other types become no facts."""
DEFAULT_MAX_AGE_MINUTES = 30
"""After how many minutes a tool's result is stale, unless the policy or the event says otherwise."""
_MOST_MINUTES = 10**12  # two million years, which a timedelta still holds


@dataclass(frozen=True)
class ContractRequest:
    """What a contract is compiled for.

    Attributes:
        handoff_id: Names the handoff.
        receiving_agent: Who is to receive.
        task: What is to be done, at most 500 characters.
        trace_id: The trace; empty takes the trace id out of `traceparent`.
        created_at: When, with its offset from UTC; in a workflow the workflow's time.
        capability: The tools that the receiver is able to use.
        granted: Tools that the policy grants although they were not used.
        forbidden: Tools that the receiver may not use, whatever else is said.
        output_schema: The shape that the output must have.
        max_tokens: How many tokens the contract may take as the receiver reads it; None for any number.
        receiving_agent_version: The receiver's version, where it matters which.
        traceparent: The W3C trace context that the handoff travels with.
        message_id: The signed message that will carry the contract.
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

    def __post_init__(self) -> None:
        """Check that the clock is one."""
        if self.created_at.tzinfo is None:
            raise ValueError("created_at has no offset from UTC; use workflow.now(), or datetime.now(UTC)")


@dataclass(frozen=True)
class ContractPolicy:
    """How long everything lasts.

    Attributes:
        max_result_age_minutes: After how many minutes a tool's result is stale; exactly so old is still fresh.
        tool_ages: The same by tool, whatever its case; an event's own `max_age_minutes` comes before both.
        expires_after_minutes: How long the contract lasts.
        tolerance: How far ahead the clock of a recorder may be.
    """

    max_result_age_minutes: int = DEFAULT_MAX_AGE_MINUTES
    tool_ages: Mapping[str, int] = field(default_factory=dict)
    expires_after_minutes: int = DEFAULT_EXPIRY_MINUTES
    tolerance: timedelta = TOLERANCE

    def __post_init__(self) -> None:
        """Check what would otherwise come to light at the first handoff, or never."""
        ages = {"max_result_age_minutes": self.max_result_age_minutes, **self.tool_ages}
        for name, minutes in ages.items():
            if minutes < 0:
                raise ValueError(f"the age limit {name!r} is {minutes} minutes; it must be 0 or more")
        if self.expires_after_minutes < 1:
            raise ValueError(f"expires_after_minutes is {self.expires_after_minutes}; it must be 1 or more")

    def age_limit(self, tool: str, own: int | None) -> timedelta:
        """Return how old a tool's result may be."""
        minutes = self._minutes_of(tool) if own is None else own
        return timedelta(minutes=min(minutes, _MOST_MINUTES))

    def _minutes_of(self, tool: str) -> int:
        """Return the limit of a tool, however its caller spelled it: it is the same tool to its contract."""
        if not self.tool_ages or tool in self.tool_ages:
            return self.tool_ages.get(tool, self.max_result_age_minutes)
        same = (minutes for name, minutes in self.tool_ages.items() if tool_key(name) == tool_key(tool))
        return min(same, default=self.max_result_age_minutes)


HEADING = "## Handoff Contract"
FACTS = "\n**Facts:**\n"
"""The heading of the facts; absent without facts."""


def render_contract(contract: HandoffContract) -> str:
    """Return a contract as markdown for an agent's user turn."""
    parts = [f"{HEADING}\n\n**Task:** {single_line(contract.task)}\n"]
    if contract.facts:
        parts += [FACTS, *map(fact_line, contract.facts)]
    parts.append(f"\n**Allowed tools:** {_listed(contract.allowed_tools)}\n")
    if contract.forbidden_tools:
        parts.append(f"**Forbidden tools:** {_listed(contract.forbidden_tools)}\n")
    if contract.output_schema is not None:
        parts.append(f"**Output:** as in {single_line(str(contract.output_schema))}\n")
    named, receiver = single_line(contract.handoff_id), single_line(contract.receiving_agent)
    parts.append(f"**Handoff:** {named}, to {receiver}, use until {_time(contract.expires_at)}\n")
    return "".join(parts)


def fact_line(fact: Fact) -> str:
    """Return a fact as a line of the rendered contract, with its line break."""
    source = fact.source
    origin = _origin(source.source, source.method)
    return f"- {fact.confidence}, {origin} at {_time(source.timestamp)}: {single_line(fact.claim)}\n"


def contract_tokens(contract: HandoffContract, estimator: TokenEstimator = estimate_tokens) -> int:
    """Return how many tokens a contract takes as its receiver reads it: task, facts, tools and terms."""
    return estimator(render_contract(contract))


@lru_cache(maxsize=4096)
def _origin(source: str, method: str) -> str:
    """Return where a fact is from and how, on one line."""
    name = single_line(source)
    return name if method == f"tool_call:{source}" else f"{name} by {single_line(method)}"


def _listed(names: list[str]) -> str:
    """Return names in a row, or that there are none."""
    return ", ".join(single_line(name) for name in names) or "none"


def _time(at: datetime) -> str:
    """Return a time to the second, as on the wire."""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


EXPLICIT, TYPE, STALE, FAILED = "explicit", "type", "stale", "failed"
UNSUPPORTED, BUDGET = "unsupported", "budget"
"""Why events are left out, in a word: they are marked, of a type that never crosses, stale, of a tool that failed, no
basis of any fact, or more than the receiver's token budget holds."""
LONGEST_SUBJECT = 200
"""How many characters a label shows of what it is about."""
UNKNOWN = "unknown"
"""The source of a fact whose source is not known; the validation lets none through."""

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,79}")
_UNKNOWN = frozenset({"", UNKNOWN, "unknown_tool", "undefined", "null", "none", "n/a"})


def is_unknown_source(name: str) -> bool:
    """Return whether the name of a source says that it is unknown."""
    return not has_text(name) or name.strip().casefold() in _UNKNOWN


class EventOutcome(StrEnum):
    """What became of an event."""

    FACT = "fact"
    EXCLUDED = "excluded"
    CONSUMED = "consumed"


class Disposition(CompactRecord):
    """What became of an event, and why."""

    event_id: Name
    fate: Annotated[EventOutcome, Field(strict=False)]
    label: Label | None = None
    consumed_by: Name | None = None


@lru_cache(maxsize=4096)
def label_of(kind: str, subject: str, otherwise: EventType) -> str:
    """Return a label: why something was left out, and what kind of thing it was, on one line."""
    if not _KIND.fullmatch(kind):
        raise ContractError(f"{kind!r} cannot begin a label; use a word of small letters, as in 'confidential'")
    name = " ".join(subject.split())
    return f"{kind}:{name[:LONGEST_SUBJECT] if has_text(name) else otherwise.value}"


class Draft:
    """A contract in the making, as processors see and change it.

    Attributes:
        events: The session, in order.
        request: What is compiled for whom.
        policy: By which policy.
        estimator: Counts tokens.

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
    ) -> None:
        self.events: Sequence[SessionEvent] = tuple(events)
        self.request = request
        self.policy = policy
        self.estimator = estimator
        self._by_id = {event.id: event for event in self.events}
        self._settled: dict[str, tuple[EventOutcome, str | None]] = {}
        self._facts: dict[str, Fact] = {}
        if len(self._by_id) != len(self.events):
            twice = Counter(event.id for event in self.events).most_common(1)[0][0]
            raise ContractError(f"two events have the id {twice!r}; give each event an id of its own")

    def __setattr__(self, name: str, value: object) -> None:
        """Set a member once: a processor that put another session or request in its place would lose events."""
        if name in self.__dict__:
            raise AttributeError(f"{name!r} of a draft cannot be replaced")
        super().__setattr__(name, value)

    @property
    def rest(self) -> list[SessionEvent]:
        """The events that are not settled yet, in order."""
        return [event for event in self.events if event.id not in self._settled]

    @property
    def facts(self) -> list[Fact]:
        """The facts so far, in the order of their events."""
        return [self._facts[event.id] for event in self.events if event.id in self._facts]

    def event(self, event_id: str) -> SessionEvent:
        """Return an event by its id."""
        if event_id not in self._by_id:
            raise ContractError(f"this session has no event {event_id!r}")
        return self._by_id[event_id]

    def leave_out(self, event: SessionEvent, kind: str, subject: str | None = None) -> None:
        """Leave an event out."""
        if self._facts.pop(event.id, None) is not None:
            del self._settled[event.id]
        self._settle(event, EventOutcome.EXCLUDED, label_of(kind, subject or "", event.type))

    def consume(self, call: SessionEvent, result: SessionEvent) -> None:
        """Count a call as told by its result."""
        if call.type is not EventType.TOOL_CALL:
            raise ContractError(f"the event {call.id!r} is a {call.type.value}; only a tool_call is consumed")
        self._settle(call, EventOutcome.CONSUMED, result.id)

    def state(self, event: SessionEvent, claim: str, source: SourceProvenance, confidence: Confidence) -> None:
        """Make a fact of an event."""
        if confidence is Confidence.HIGH and not (event.type is EventType.TOOL_RESULT and event.success is True):
            raise ContractError(f"the event {event.id!r} is not a tool's success; its confidence cannot be high")
        if not has_text(claim):
            raise ContractError(f"the claim of the event {event.id!r} says nothing; leave the event out")
        self._settle(event, EventOutcome.FACT)
        rest: dict[str, Any] = {"whole": event.whole} if event.whole is not None and claim == event.content else {}
        self._facts[event.id] = Fact(claim=claim, source=source, confidence=confidence, event_id=event.id, **rest)

    def show_whole(self, fact: Fact) -> None:
        """Have the receiver's prompt show the whole claim of a fact, and not its beginning only."""
        self._facts[fact.event_id] = fact.model_copy(update={"in_full": True})

    def fates(self) -> Iterator[tuple[SessionEvent, EventOutcome, str | None]]:
        """Go through the events that are settled, in order: what became of each, and its label or consuming result."""
        for event in self.events:
            if found := self._settled.get(event.id):
                yield event, *found

    def dispositions(self) -> list[Disposition]:
        """Return what became of each event that is settled, in order."""
        return [
            Disposition(
                event_id=event.id,
                fate=fate,
                label=told if fate is EventOutcome.EXCLUDED else None,
                consumed_by=told if fate is EventOutcome.CONSUMED else None,
            )
            for event, fate, told in self.fates()
        ]

    def label_counts(self) -> dict[str, int]:
        """Return how many events each label stands for, in order of their first appearance."""
        return dict(Counter(told for _, fate, told in self.fates() if told and fate is EventOutcome.EXCLUDED))

    def _settle(self, event: SessionEvent, fate: EventOutcome, told: str | None = None) -> None:
        """Settle an event of this session that is not settled yet."""
        if found := self._settled.get(event.id):
            raise ContractError(
                f"the event {event.id!r} is settled already, as {found[1] or found[0].value}; "
                "look only at `rest`, or leave a fact out"
            )
        self.event(event.id)
        self._settled[event.id] = fate, told


@dataclass(frozen=True)
class Processor:
    """A named step of the compiler.

    Attributes:
        name: Names it in the report.
        run: What it does to the draft; a pure function of it, for it runs in workflow code.
    """

    name: str
    run: Callable[[Draft], None]

    def __post_init__(self) -> None:
        """Check that calling it does something; otherwise what it should leave out would cross unseen."""
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_one(self.run) for is_one in kinds):
            raise TypeError(
                f"the processor {self.name!r} is an async function or a generator, and calling it would do nothing; "
                "write a plain function that changes the draft"
            )
