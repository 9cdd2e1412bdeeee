"""Compile session events into a contract, with a report on each event."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pydantic import Field

from baton.contract.draft import (
    BUDGET,
    CONFIDENCES,
    EXCLUDED_TYPES,
    EXPLICIT,
    FACTS,
    FAILED,
    STALE,
    TYPE,
    UNKNOWN,
    UNSUPPORTED,
    ContractPolicy,
    ContractRequest,
    Disposition,
    Draft,
    EventOutcome,
    Processor,
    bounded_tokens,
    contract_tokens,
    fact_line,
    is_unknown_source,
)
from baton.contract.records import (
    CONTRACT_CURRENT,
    Confidence,
    ContractError,
    EventType,
    Fact,
    HandoffContract,
    SessionEvent,
    SourceProvenance,
)
from baton.contract.registry import tool_key, tool_keys
from baton.core.verdict import TOLERANCE
from baton.wire.records import CompactRecord, Count, has_text
from baton.wire.text import TokenEstimator, estimate_tokens


def assemble(draft: Draft, facts: Sequence[Fact] | None = None) -> HandoffContract:
    """Return the contract of a draft, unchecked; see `validate_contract`."""
    request = draft.request
    counts = draft.label_counts()
    optional: dict[str, Any] = {
        "constraints": draft.constraints or None,
        "output_schema": request.output_schema,
        "receiving_agent_version": request.receiving_agent_version,
        "traceparent": request.traceparent,
        "message_id": request.message_id,
        "tools_as_declared": request.tools_as_declared or None,
    }
    return HandoffContract.model_construct(
        handoff_id=request.handoff_id,
        receiving_agent=request.receiving_agent,
        task=request.task,
        facts=list(draft.facts if facts is None else facts),
        excluded_context=list(counts),
        allowed_tools=allowed_tools(request, used_tools(draft)),
        forbidden_tools=sorted(request.forbidden),
        expires_after_minutes=draft.policy.expires_after_minutes,
        created_at=request.created_at,
        trace_id=request.trace_id or parse_trace_id(request.traceparent),
        schema_version=CONTRACT_CURRENT,
        excluded_counts=counts,
        **{name: value for name, value in optional.items() if value is not None},
    )


def parse_trace_id(traceparent: str | None) -> str:
    """Return the trace id of a W3C traceparent, or an empty text."""
    _, _, rest = (traceparent or "").partition("-")
    return rest.partition("-")[0]


def used_tools(draft: Draft) -> frozenset[str]:
    """Return the tools successfully used here whose results crossed, or were left out only for the token budget."""
    budget = f"{BUDGET}:"
    return frozenset(
        event.tool_name
        for event, outcome, detail in draft.fates()
        if event.success is True and event.type is EventType.TOOL_RESULT and event.tool_name and not event.imported
        if outcome is EventOutcome.FACT or (detail or "").startswith(budget)
    )


def allowed_tools(request: ContractRequest, used: frozenset[str]) -> list[str]:
    """Return the tools of a contract: ((used or granted) and capability) without forbidden."""
    keys = tool_keys(used | request.granted) - tool_keys(request.forbidden)
    return sorted(tool for tool in request.capability if tool_key(tool) in keys)


_SOURCES = {
    EventType.TOOL_CALL: ("agent", "tool_call"),
    EventType.LLM_RESPONSE: ("llm", "llm_generation"),
    EventType.ASSISTANT_MESSAGE: ("llm", "llm_generation"),
    EventType.DECISION: ("agent", "decision"),
    EventType.USER_MESSAGE: ("user", "user_input"),
}
"""Default source and method by type; a named agent replaces the source, except of a person's message."""
IMPORTED = "imported"
"""How the method of a fact from another tool's session begins; the session's agent follows, then the method there."""
_CONFIDENCE_RANK = {confidence: rank for rank, confidence in enumerate(Confidence)}


def leave_out_marked(draft: Draft) -> None:
    """Leave out events marked `excludeFromHandoff`: `explicit:<type>`."""
    for event in draft.rest:
        if event.exclude_from_handoff:
            draft.leave_out(event, EXPLICIT)


def leave_out_types(draft: Draft) -> None:
    """Leave out events of the types that never cross: `type:<type>`."""
    for event in draft.rest:
        if event.type in EXCLUDED_TYPES:
            draft.leave_out(event, TYPE)


def consume_calls(draft: Draft) -> None:
    """Match calls to their results: by call id, or else in order for each tool."""
    unsettled = [event for event in draft.rest if event.type is EventType.TOOL_CALL]
    calls = {call.call_id or call.id: call for call in reversed(unsettled)}
    consumed: set[str] = set()
    for result in draft.events:
        if result.type is not EventType.TOOL_RESULT or result.call_id is None:
            continue
        call = calls.get(result.call_id)
        if call and (call.tool_name or result.tool_name) == (result.tool_name or call.tool_name):
            draft.consume(calls.pop(result.call_id), result)
            consumed.add(call.id)
    without_call_id = {call.id for call in unsettled if call.call_id is None} - consumed
    queues: dict[str | None, deque[SessionEvent]] = {}
    for event in draft.events:
        if event.id in without_call_id:
            queues.setdefault(event.tool_name, deque()).append(event)
        elif event.type is EventType.TOOL_RESULT and event.call_id is None and (queue := queues.get(event.tool_name)):
            draft.consume(queue.popleft(), event)


def leave_out_failed(draft: Draft) -> None:
    """Leave out the results of failed tools, and what rests on them: `failed:<subject>`."""
    _leave_out_resting(draft, FAILED, lambda event: event.type is EventType.TOOL_RESULT and event.success is False)


def leave_out_stale(draft: Draft) -> None:
    """Leave out stale events, and what rests on them: `stale:<subject>`."""
    _leave_out_resting(draft, STALE, partial(_is_stale, draft))


def _leave_out_resting(draft: Draft, label: str, is_bad: Callable[[SessionEvent], bool]) -> None:
    """Leave out bad events, what names one as its source, and what a model said after a bad result in the same run.

    A model's statement rests on what its tools answered before it, until the tool answers again; a decision rests on
    the sources that it names. An imported session is one long run in which tools fail all the time, and the model of
    which worked around that: there a failed tool takes no statement along, which is unverified anyway.
    """
    unsettled = {event.id for event in draft.rest}
    bad: set[str] = set()
    bad_tools: dict[tuple[str | None, str | None], set[str]] = {}
    for event in draft.events:
        if event.id not in unsettled or event.type is EventType.TOOL_CALL:  # a call never becomes a fact
            continue
        tools = bad_tools.setdefault((event.agent, event.handoff_id), set())
        is_result = event.type is EventType.TOOL_RESULT
        tool = tool_key(event.tool_name or "")
        if is_bad(event) or bad.intersection(event.rests_on or ()):
            draft.leave_out(event, label, _label_subject(event))
            bad.add(event.id)
            if is_result:
                tools.add(tool)
        elif is_result:
            tools.discard(tool)
        elif event.type is EventType.LLM_RESPONSE and tools and not (event.imported and label == FAILED):
            draft.leave_out(event, label, _label_subject(event))
            bad.add(event.id)


def _is_stale(draft: Draft, event: SessionEvent) -> bool:
    """Return whether an event has no time, one in the future, or is older than it may be."""
    now, at, max_age = draft.request.created_at, event.at, event.max_age_minutes
    is_limited = event.type is EventType.TOOL_RESULT or max_age is not None
    limit = draft.policy.age_limit(_label_subject(event), max_age)
    return at is None or at - now > TOLERANCE or (is_limited and now - at > limit)


def state_claims(draft: Draft) -> None:
    """Turn the remaining events into facts with provenance and confidence."""
    for event in draft.rest:
        at, confidence = event.at, derive_confidence(event)
        source, method = derive_source(event)
        unsourced = event.imported and source == UNKNOWN  # nobody here can name its tool
        if at is None or confidence is None or unsourced or not has_text(event.content):
            draft.leave_out(event, UNSUPPORTED)
            continue
        provenance = SourceProvenance(source=source, timestamp=at, method=method)
        draft.state(event, event.content, provenance, Confidence.UNVERIFIED if source == UNKNOWN else confidence)


def keep_within_budget(draft: Draft) -> None:
    """Leave out the facts that exceed the receiver's token budget: `budget:<subject>`."""
    limit = draft.request.max_tokens
    if limit is None:
        for fact in draft.facts:
            if fact.whole is not None:
                draft.show_whole(fact)
        return
    crossing: list[Fact] = []
    contract, facts = assemble(draft, []), draft.facts
    remaining = limit - bounded_tokens(contract, draft.estimator) - draft.estimator(FACTS)
    positions = {fact.event_id: position for position, fact in enumerate(facts)}
    for fact in sorted(facts, key=lambda fact: (*rank_fact(fact), -positions[fact.event_id])):
        if remaining > 0 and (cost := draft.estimator(fact_line(fact))) <= remaining:
            remaining -= cost
            crossing.append(fact)
    for fact in crossing:  # remaining room goes to long claims, the most important first
        event = draft.event(fact.event_id)
        extra = event.tokens - draft.estimator(fact.claim)
        if fact.whole is not None and extra <= remaining:
            remaining -= max(0, extra)
            draft.show_whole(fact)
    # An estimator may count more tokens for the whole than for its parts.
    while crossing and bounded_tokens(contract.model_copy(update={"facts": crossing}), draft.estimator) > limit:
        crossing.pop()
    crossing_ids = {fact.event_id for fact in crossing}
    for fact in facts:
        if fact.event_id not in crossing_ids:
            event = draft.event(fact.event_id)
            draft.leave_out(event, BUDGET, _label_subject(event))


def derive_confidence(event: SessionEvent) -> Confidence | None:
    """Return the confidence of an event's fact, or None if it cannot become a fact."""
    if event.type is EventType.DECISION and event.accepted is not True:
        return None
    if event.type is not EventType.TOOL_RESULT:
        confidence = CONFIDENCES.get(event.type)
    elif event.success is not True:
        confidence = Confidence.LOW
    else:
        confidence = Confidence.HIGH if event.is_certain else Confidence.MEDIUM
    return Confidence.UNVERIFIED if event.imported and confidence is not None else confidence


def derive_source(event: SessionEvent) -> tuple[str, str]:
    """Return source and method of an event's fact; an unnamed tool is an unknown source."""
    source, method = _derive_source(event.type, event.tool_name or "", event.agent or "")
    return source, ":".join(filter(None, (IMPORTED, event.agent, method))) if event.imported else method


@lru_cache(maxsize=4096)
def _derive_source(event_type: EventType, tool: str, agent: str) -> tuple[str, str]:
    if event_type is EventType.TOOL_RESULT:
        name = tool.strip()
        return (UNKNOWN, event_type.value) if is_unknown_source(name) else (name, f"tool_call:{name}")
    source, method = _SOURCES.get(event_type, ("agent", event_type.value))
    if event_type is EventType.USER_MESSAGE or is_unknown_source(agent):
        return source, method
    return agent.strip(), method


def _label_subject(event: SessionEvent) -> str:
    """Return the subject of an event's label: the tool of a result, else the type."""
    return (event.tool_name or "") if event.type is EventType.TOOL_RESULT else event.type.value


def rank_fact(fact: Fact) -> tuple[int, float]:
    """Return the sort key of a fact: what a user asked or forbade here first, then the most certain and the newest."""
    is_of_user = fact.source.method == _SOURCES[EventType.USER_MESSAGE][1]
    return -1 if is_of_user else _CONFIDENCE_RANK[fact.confidence], -fact.source.timestamp.timestamp()


DEFAULT_PROCESSORS = (
    Processor("marked", leave_out_marked),
    Processor("types", leave_out_types),
    Processor("calls", consume_calls),
    Processor("failed", leave_out_failed),
    Processor("stale", leave_out_stale),
    Processor("claims", state_claims),
    Processor("budget", keep_within_budget),
)
"""The default steps of the compiler, in order."""


class CompileReport(CompactRecord):
    """The outcome of each event in session order, against which a contract is validated.

    Attributes:
        settled: The number of earlier events by label, which were left out for good.
    """

    dispositions: list[Disposition]
    processors: list[str]
    session_tokens: Count
    contract_tokens: Count
    settled: dict[str, Count] = Field(default_factory=dict)

    @property
    def label_counts(self) -> Mapping[str, int]:
        """The number of events per label, in order of first appearance."""
        labels = (disposition.label for disposition in self.dispositions if disposition.label is not None)
        return Counter(self.settled) + Counter(labels)

    def ids(self, fate: EventOutcome) -> frozenset[str]:
        """Return the ids of the events with this outcome."""
        return frozenset(disposition.event_id for disposition in self.dispositions if disposition.fate is fate)


@dataclass(frozen=True)
class Compiled:
    """A contract and its compile report."""

    contract: HandoffContract
    report: CompileReport


def compile_contract(
    events: Iterable[SessionEvent],
    request: ContractRequest,
    policy: ContractPolicy | None = None,
    processors: Sequence[Processor] = DEFAULT_PROCESSORS,
    estimator: TokenEstimator = estimate_tokens,
    settled: Mapping[str, int] | None = None,
) -> Compiled:
    """Compile the contract that a receiver sees instead of the session, of which ``settled`` events are only counted.

    The number of settled events is given by label.
    """
    draft = Draft(events, request, policy or ContractPolicy(), estimator, settled)
    for processor in processors:
        try:
            processor.run(draft)
        except Exception as error:
            raise ContractError(f"the processor {processor.name!r} failed: {type(error).__name__}: {error}") from error
    for event in draft.rest:
        draft.leave_out(event, UNSUPPORTED)
    contract = assemble(draft)
    report = CompileReport(
        dispositions=draft.dispositions(),
        processors=[processor.name for processor in processors],
        session_tokens=sum(event.tokens or estimator(event.content) for event in draft.events),
        contract_tokens=contract_tokens(contract, estimator),
        settled=draft.settled,
    )
    return Compiled(contract, report)
