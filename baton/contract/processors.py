"""The compiler's own processors, in their order: each leaves something out, or makes facts of what is left.

A team adds to them or puts its own in their place: `(*DEFAULT_PROCESSORS[:4], mine, *DEFAULT_PROCESSORS[4:])`.
The order decides which label an event gets: a marked brainstorm is `explicit:brainstorm`, a stale result of a
failed tool is `failed:`.
"""

from collections import deque
from functools import lru_cache

from baton.contract.assembly import assemble
from baton.contract.draft import (
    BUDGET,
    EXPLICIT,
    FAILED,
    STALE,
    TYPE,
    UNKNOWN,
    UNSUPPORTED,
    Draft,
    Processor,
    is_unknown_source,
)
from baton.contract.records import Confidence, Fact, SourceProvenance
from baton.contract.rendering import FACTS, fact_line, render_contract
from baton.contract.session import EventType, SessionEvent
from baton.wire.records import says_something

_SOURCES = {
    EventType.TOOL_CALL: ("agent", "tool_call"),
    EventType.LLM_RESPONSE: ("llm", "llm_generation"),
    EventType.ASSISTANT_MESSAGE: ("llm", "llm_generation"),
    EventType.DECISION: ("agent", "decision"),
    EventType.USER_MESSAGE: ("user", "user_input"),
}
"""Source and method by type; where an agent is named and no person spoke, the agent is the source."""
_SURENESS = {confidence: rank for rank, confidence in enumerate(Confidence)}


def leave_out_marked(draft: Draft) -> None:
    """Leave out what is marked `excludeFromHandoff`, whatever it is: `explicit:<type>` (S5-compiler-c)."""
    for event in draft.rest:
        if event.exclude_from_handoff:
            draft.leave_out(event, EXPLICIT)


def leave_out_types(draft: Draft) -> None:
    """Leave out what is of a type that never crosses: `type:<type>` (S5-compiler-b)."""
    for event in draft.rest:
        if event.type in draft.policy.excluded_types:
            draft.leave_out(event, TYPE)


def consume_calls(draft: Draft) -> None:
    """Count calls as told by their results: by the call's id, and without one in the order of each tool's calls.

    A call whose result is left out is consumed all the same; one without any result is left for `state_claims`.
    """
    rest = [event for event in draft.rest if event.type is EventType.TOOL_CALL]
    calls = {call.call_id or call.id: call for call in reversed(rest)}
    consumed: set[str] = set()
    for result in draft.events:
        if result.type is not EventType.TOOL_RESULT or result.call_id is None:
            continue
        call = calls.get(result.call_id)
        if call and (call.tool_name or result.tool_name) == (result.tool_name or call.tool_name):
            draft.consume(calls.pop(result.call_id), result)
            consumed.add(call.id)
    nameless = {call.id for call in rest if call.call_id is None} - consumed
    waiting: dict[str | None, deque[SessionEvent]] = {}
    for event in draft.events:
        if event.id in nameless:
            waiting.setdefault(event.tool_name, deque()).append(event)
        elif event.type is EventType.TOOL_RESULT and event.call_id is None and (queue := waiting.get(event.tool_name)):
            draft.consume(queue.popleft(), event)


def leave_out_failed(draft: Draft) -> None:
    """Leave out the results of tools that failed: `failed:<tool>` (C-39)."""
    for event in draft.rest:
        if event.type is EventType.TOOL_RESULT and event.success is False:
            draft.leave_out(event, FAILED, _subject(event))


def leave_out_stale(draft: Draft) -> None:
    """Leave out what is not fresh: `stale:<tool or type>` (S5-compiler-d, C-42).

    A tool's result is stale when it is older than its limit, and whatever else says how long it lasts when it
    is older than that. What has no readable time, or one in the future, is never fresh: nobody knows how old it is.
    """
    now, policy = draft.request.created_at, draft.policy
    for event in draft.rest:
        if event.type is EventType.TOOL_CALL and event.type not in policy.confidences:
            continue  # it is no fact in any case
        at, own = event.at, event.max_age_minutes
        limited = event.type is EventType.TOOL_RESULT or own is not None
        if at is None or at - now > policy.tolerance or (limited and now - at > policy.age_limit(_subject(event), own)):
            draft.leave_out(event, STALE, _subject(event))


def state_claims(draft: Draft) -> None:
    """Make facts of what is left, each with its provenance and confidence (S5-compiler-e, S5-compiler-f).

    What backs no fact is left out as `unsupported:<type>`: an empty text, a call without a result, a decision that
    was not accepted (C-40), a type that the policy gives no confidence.
    """
    for event in draft.rest:
        at, confidence = event.at, confidence_of(event, draft)
        source, method = source_of(event)
        refused = source == UNKNOWN and not draft.policy.refuse_unknown_sources
        if at is None or confidence is None or refused or not says_something(event.content):
            draft.leave_out(event, UNSUPPORTED)
            continue
        provenance = SourceProvenance(source=source, timestamp=at, method=method)
        draft.state(event, event.content, provenance, Confidence.UNVERIFIED if source == UNKNOWN else confidence)


def keep_within_budget(draft: Draft) -> None:
    """Leave out the facts that the receiver's token budget has no room for: `budget:<tool or type>` (S5-valid-e).

    The surest facts are kept before others, of equally sure ones the newest, and of equally new ones the last; a fact
    too long for what is left does not keep shorter ones after it out.
    """
    most = draft.request.max_tokens
    if most is None:
        return
    kept: list[Fact] = []
    contract, facts = assemble(draft, []), draft.facts
    left = most - draft.estimator(render_contract(contract)) - draft.estimator(FACTS)
    places = {fact.event_id: place for place, fact in enumerate(facts)}
    for fact in sorted(facts, key=lambda one: (*_importance(one), -places[one.event_id])):
        if left > 0 and (cost := draft.estimator(fact_line(fact))) <= left:
            left -= cost
            kept.append(fact)
    # An estimator may charge more for a whole than for its parts.
    while kept and draft.estimator(render_contract(contract.model_copy(update={"facts": kept}))) > most:
        kept.pop()
    staying = {fact.event_id for fact in kept}
    for fact in facts:
        if fact.event_id not in staying:
            event = draft.event(fact.event_id)
            draft.leave_out(event, BUDGET, _subject(event))


def confidence_of(event: SessionEvent, draft: Draft) -> Confidence | None:
    """Return how sure a fact made of an event is, or None if none can be made of it (S5-fields-i, C-43).

    High takes a tool that said it succeeded; a tool that said nothing of it is of low confidence.
    """
    if event.type is EventType.TOOL_RESULT:
        return Confidence.HIGH if event.success is True else Confidence.LOW
    if event.type is EventType.DECISION and event.accepted is not True:
        return None
    return draft.policy.confidences.get(event.type)


def source_of(event: SessionEvent) -> tuple[str, str]:
    """Return the source and the method of a fact made of an event; an unnamed tool is an unknown source.

    Example:
        >>> source_of(SessionEvent(id="e", type="tool_result", tool_name="contracts.search"))
        ('contracts.search', 'tool_call:contracts.search')
        >>> source_of(SessionEvent(id="e", type="llm_response", agent="research"))
        ('research', 'llm_generation')
    """
    return _source(event.type, event.tool_name or "", event.agent or "")


@lru_cache(maxsize=4096)
def _source(kind: EventType, tool: str, agent: str) -> tuple[str, str]:
    """Return the source and the method by type, tool and agent."""
    if kind is EventType.TOOL_RESULT:
        name = tool.strip()
        return (UNKNOWN, kind.value) if is_unknown_source(name) else (name, f"tool_call:{name}")
    source, method = _SOURCES.get(kind, ("agent", kind.value))
    if kind is EventType.USER_MESSAGE or is_unknown_source(agent):
        return source, method
    return agent.strip(), method


def _subject(event: SessionEvent) -> str:
    """Return what kind of thing an event is, for its label: a result's tool, else the type."""
    return (event.tool_name or "") if event.type is EventType.TOOL_RESULT else event.type.value


def _importance(fact: Fact) -> tuple[int, float]:
    """Return what facts are sorted by when not all have room: the surest first, of these the newest; then the later."""
    return _SURENESS[fact.confidence], -fact.source.timestamp.timestamp()


DEFAULT_PROCESSORS = (
    Processor("marked", leave_out_marked),
    Processor("types", leave_out_types),
    Processor("calls", consume_calls),
    Processor("failed", leave_out_failed),
    Processor("stale", leave_out_stale),
    Processor("claims", state_claims),
    Processor("budget", keep_within_budget),
)
"""The compiler as shipped, in its order."""
