"""A contract in the making: what the compiler's processors may do to it, and what none of them can.

Each event is settled once: as a fact, as left out under a label, or as a call consumed by its result. Whatever
processors a team adds, no event is lost, none is settled twice, nothing but a tool's success is of high confidence,
and no fact is made of what was left out (C-39).
"""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from baton.artifacts.records import Name
from baton.contract.errors import ContractError
from baton.contract.records import Confidence, Fact, Label, SourceProvenance
from baton.contract.request import ContractPolicy, ContractRequest
from baton.contract.session import EventType, SessionEvent
from baton.wire.records import CompactRecord, says_something
from baton.wire.tokens import TokenEstimator, estimate_tokens

EXPLICIT, TYPE, STALE, FAILED = "explicit", "type", "stale", "failed"
UNSUPPORTED, BUDGET = "unsupported", "budget"
"""Why events are left out, in a word: they are marked, of a type that never crosses, stale, of a tool that failed, no
basis of any fact, or more than the receiver's token budget holds (C-39)."""
LONGEST_SUBJECT = 200
"""How many characters a label shows of what it is about."""
UNKNOWN = "unknown"
"""The source of a fact whose source is not known; the validation lets none through (S5-fm-d, C-35)."""

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,79}")
_UNKNOWN = frozenset({"", UNKNOWN, "unknown_tool", "undefined", "null", "none", "n/a"})


def is_unknown_source(name: str) -> bool:
    """Return whether the name of a source says that nobody knows it.

    Example:
        >>> is_unknown_source(" Unknown"), is_unknown_source("crm.lookup")
        (True, False)
    """
    return not says_something(name) or name.strip().casefold() in _UNKNOWN


class EventFate(StrEnum):
    """What became of an event."""

    FACT = "fact"
    EXCLUDED = "excluded"
    CONSUMED = "consumed"


class Disposition(CompactRecord):
    """What became of an event, and why.

    Attributes:
        event_id: The event.
        fate: What became of it.
        label: Why it was left out, if it was.
        consumed_by: The result that a call was consumed by, if it was.
    """

    event_id: Name
    fate: Annotated[EventFate, Field(strict=False)]
    label: Label | None = None
    consumed_by: Name | None = None


@lru_cache(maxsize=4096)
def label_of(kind: str, subject: str, otherwise: EventType) -> str:
    r"""Return a label: why something was left out, and what kind of thing it was, on one line.

    Args:
        kind: Why, in a word.
        subject: What kind of thing.
        otherwise: What stands for a subject that says nothing.

    Raises:
        ContractError: The word is not one of small letters, digits, `_` and `-`.

    Example:
        >>> label_of("stale", "crm.lookup\n_pricing ", EventType.TOOL_RESULT)
        'stale:crm.lookup _pricing'
        >>> label_of("type", "", EventType.BRAINSTORM)
        'type:brainstorm'
    """
    if not _KIND.fullmatch(kind):
        raise ContractError(f"{kind!r} cannot begin a label; use a word of small letters, as in 'confidential'")
    name = " ".join(subject.split())
    return f"{kind}:{name[:LONGEST_SUBJECT] if says_something(name) else otherwise.value}"


class Draft:
    """A contract in the making, as processors see and change it.

    Args:
        events: The session, in order.
        request: What is compiled for whom.
        policy: By which policy.
        estimator: Counts tokens.

    Raises:
        ContractError: Two events have the same id, so a fact would not lead back to one of them.

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
        self._events: Sequence[SessionEvent] = tuple(events)
        self._request = request
        self._policy = policy
        self._estimator = estimator
        self._by_id = {event.id: event for event in self._events}
        self._settled: dict[str, tuple[EventFate, str | None]] = {}
        self._facts: dict[str, Fact] = {}
        if len(self._by_id) != len(self._events):
            twice = Counter(event.id for event in self._events).most_common(1)[0][0]
            raise ContractError(f"two events have the id {twice!r}; give each event an id of its own")

    @property
    def events(self) -> Sequence[SessionEvent]:
        """The session, in order."""
        return self._events

    @property
    def request(self) -> ContractRequest:
        """What is compiled for whom."""
        return self._request

    @property
    def policy(self) -> ContractPolicy:
        """By which policy."""
        return self._policy

    @property
    def estimator(self) -> TokenEstimator:
        """Counts tokens."""
        return self._estimator

    @property
    def rest(self) -> list[SessionEvent]:
        """The events that are not settled yet, in order."""
        return [event for event in self._events if event.id not in self._settled]

    @property
    def facts(self) -> list[Fact]:
        """The facts so far, in the order of their events."""
        return [self._facts[event.id] for event in self._events if event.id in self._facts]

    def event(self, event_id: str) -> SessionEvent:
        """Return an event by its id.

        Raises:
            ContractError: There is none.
        """
        if event_id not in self._by_id:
            raise ContractError(f"there is no event {event_id!r} in this session")
        return self._by_id[event_id]

    def leave_out(self, event: SessionEvent, kind: str, subject: str | None = None) -> None:
        """Leave an event out.

        Args:
            event: The event; a fact that was made of it is withdrawn.
            kind: Why, in a word: the part of the label before the colon.
            subject: What kind of thing it was; by default its tool if it is a result, else its type.

        Raises:
            ContractError: The event was left out or consumed before, or the word cannot begin a label.
        """
        if self._facts.pop(event.id, None) is not None:
            del self._settled[event.id]
        self._settle(event, EventFate.EXCLUDED, label_of(kind, subject or "", event.type))

    def consume(self, call: SessionEvent, result: SessionEvent) -> None:
        """Count a call as told by its result.

        Raises:
            ContractError: The call is settled, or is no call.
        """
        if call.type is not EventType.TOOL_CALL:
            raise ContractError(f"the event {call.id!r} is a {call.type.value}; only a tool_call is consumed")
        self._settle(call, EventFate.CONSUMED, result.id)

    def state(self, event: SessionEvent, claim: str, source: SourceProvenance, confidence: Confidence) -> None:
        """Make a fact of an event.

        Raises:
            ContractError: The event is settled, the claim says nothing, or it is said to be of high confidence and
                the event is no tool's success.
        """
        if confidence is Confidence.HIGH and not (event.type is EventType.TOOL_RESULT and event.success is True):
            raise ContractError(f"the event {event.id!r} is no tool's success; its confidence cannot be high")
        if not says_something(claim):
            raise ContractError(f"the claim of the event {event.id!r} says nothing; leave the event out")
        self._settle(event, EventFate.FACT)
        self._facts[event.id] = Fact(claim=claim, source=source, confidence=confidence, event_id=event.id)

    def fates(self) -> Iterator[tuple[SessionEvent, EventFate, str | None]]:
        """Go through the events that are settled, in order: what became of each, and its label or consuming result."""
        for event in self._events:
            if found := self._settled.get(event.id):
                yield event, *found

    def dispositions(self) -> list[Disposition]:
        """Return what became of each event that is settled, in order."""
        return [
            Disposition(
                event_id=event.id,
                fate=fate,
                label=told if fate is EventFate.EXCLUDED else None,
                consumed_by=told if fate is EventFate.CONSUMED else None,
            )
            for event, fate, told in self.fates()
        ]

    def label_counts(self) -> dict[str, int]:
        """Return how many events each label stands for, in order of their first appearance."""
        return dict(Counter(told for _, fate, told in self.fates() if told and fate is EventFate.EXCLUDED))

    def _settle(self, event: SessionEvent, fate: EventFate, told: str | None = None) -> None:
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
    """A named step of the compiler (S5-compiler-k).

    Attributes:
        name: Names it in the report.
        run: What it does to the draft; a pure function of it, for it runs in workflow code.

    Raises:
        TypeError: `run` is an async function or a generator, so that calling it would do nothing.
    """

    name: str
    run: Callable[[Draft], None]

    def __post_init__(self) -> None:
        """Check that calling it does something; what it is to leave out would cross otherwise, and nobody would see."""
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_one(self.run) for is_one in kinds):
            raise TypeError(
                f"the processor {self.name!r} is an async function or a generator, and calling it would do nothing; "
                "write a plain function that changes the draft"
            )
