"""The compiler: from session events to a contract, step by step, with a report of what became of each event."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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
    contract_tokens,
    fact_line,
    is_unknown_source,
    render_contract,
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
from baton.wire.records import CompactRecord, Count, has_text
from baton.wire.text import TokenEstimator, estimate_tokens


def assemble(draft: Draft, facts: Sequence[Fact] | None = None) -> HandoffContract:
    """Return the contract that a draft amounts to. It is not checked; `validate_contract` does that."""
    request = draft.request
    counts = draft.label_counts()
    optional: dict[str, Any] = {
        "output_schema": request.output_schema,
        "receiving_agent_version": request.receiving_agent_version,
        "traceparent": request.traceparent,
        "message_id": request.message_id,
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
        trace_id=request.trace_id or trace_id_of(request.traceparent),
        schema_version=CONTRACT_CURRENT,
        excluded_counts=counts,
        **{name: value for name, value in optional.items() if value is not None},
    )


def trace_id_of(traceparent: str | None) -> str:
    """Return the trace id in a W3C traceparent, or nothing where there is none."""
    _, _, rest = (traceparent or "").partition("-")
    return rest.partition("-")[0]


def used_tools(draft: Draft) -> frozenset[str]:
    """Return the tools that were used with success, and whose results crossed or only lacked room."""
    budget = f"{BUDGET}:"
    return frozenset(
        event.tool_name
        for event, fate, told in draft.fates()
        if event.success is True and event.type is EventType.TOOL_RESULT and event.tool_name
        if fate is EventOutcome.FACT or (told or "").startswith(budget)
    )


def allowed_tools(request: ContractRequest, used: frozenset[str]) -> list[str]:
    """Return the tools that a contract grants: ((used or granted) and capability) without forbidden."""
    wanted = tool_keys(used | request.granted) - tool_keys(request.forbidden)
    return sorted(tool for tool in request.capability if tool_key(tool) in wanted)


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
    """Leave out what is marked `excludeFromHandoff`, whatever it is: `explicit:<type>`."""
    for event in draft.rest:
        if event.exclude_from_handoff:
            draft.leave_out(event, EXPLICIT)


def leave_out_types(draft: Draft) -> None:
    """Leave out what is of a type that never crosses: `type:<type>`."""
    for event in draft.rest:
        if event.type in EXCLUDED_TYPES:
            draft.leave_out(event, TYPE)


def consume_calls(draft: Draft) -> None:
    """Count calls as told by their results: by the call's id, and without one in the order of each tool's calls."""
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
    """Leave out the results of tools that failed: `failed:<tool>`."""
    for event in draft.rest:
        if event.type is EventType.TOOL_RESULT and event.success is False:
            draft.leave_out(event, FAILED, _subject(event))


def leave_out_stale(draft: Draft) -> None:
    """Leave out what is not fresh."""
    now, policy = draft.request.created_at, draft.policy
    for event in draft.rest:
        if event.type is EventType.TOOL_CALL:
            continue  # it cannot be a fact in any case
        at, own = event.at, event.max_age_minutes
        limited = event.type is EventType.TOOL_RESULT or own is not None
        if at is None or at - now > policy.tolerance or (limited and now - at > policy.age_limit(_subject(event), own)):
            draft.leave_out(event, STALE, _subject(event))


def state_claims(draft: Draft) -> None:
    """Make facts of what is left, each with its provenance and confidence."""
    for event in draft.rest:
        at, confidence = event.at, confidence_of(event)
        source, method = source_of(event)
        if at is None or confidence is None or not has_text(event.content):
            draft.leave_out(event, UNSUPPORTED)
            continue
        provenance = SourceProvenance(source=source, timestamp=at, method=method)
        draft.state(event, event.content, provenance, Confidence.UNVERIFIED if source == UNKNOWN else confidence)


def keep_within_budget(draft: Draft) -> None:
    """Leave out the facts that the receiver's token budget has no room for."""
    most = draft.request.max_tokens
    if most is None:
        for fact in draft.facts:
            if fact.whole is not None:
                draft.show_whole(fact)
        return
    kept: list[Fact] = []
    contract, facts = assemble(draft, []), draft.facts
    left = most - draft.estimator(render_contract(contract)) - draft.estimator(FACTS)
    places = {fact.event_id: place for place, fact in enumerate(facts)}
    for fact in sorted(facts, key=lambda one: (*importance(one), -places[one.event_id])):
        if left > 0 and (cost := draft.estimator(fact_line(fact))) <= left:
            left -= cost
            kept.append(fact)
    for fact in kept:  # what room is left goes to long claims, the most important first
        event = draft.event(fact.event_id)
        more = event.tokens - draft.estimator(fact.claim)
        if fact.whole is not None and more <= left:
            left -= max(0, more)
            draft.show_whole(fact)
    # An estimator may charge more for a whole than for its parts.
    while kept and draft.estimator(render_contract(contract.model_copy(update={"facts": kept}))) > most:
        kept.pop()
    staying = {fact.event_id for fact in kept}
    for fact in facts:
        if fact.event_id not in staying:
            event = draft.event(fact.event_id)
            draft.leave_out(event, BUDGET, _subject(event))


def confidence_of(event: SessionEvent) -> Confidence | None:
    """Return how sure a fact made of an event is, or None if none can be made of it."""
    if event.type is EventType.TOOL_RESULT:
        return Confidence.HIGH if event.success is True else Confidence.LOW
    if event.type is EventType.DECISION and event.accepted is not True:
        return None
    return CONFIDENCES.get(event.type)


def source_of(event: SessionEvent) -> tuple[str, str]:
    """Return the source and the method of a fact made of an event; an unnamed tool is an unknown source."""
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


def importance(fact: Fact) -> tuple[int, float]:
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


class CompileReport(CompactRecord):
    """What the compiler did with each event: the evidence that the validation checks a contract against.

    Attributes:
        dispositions: What became of each event, in the order of the session.
        processors: The names of the processors, in their order.
        session_tokens: How many tokens the whole session would have taken.
        contract_tokens: How many the contract takes as its receiver reads it.
    """

    dispositions: list[Disposition]
    processors: list[str]
    session_tokens: Count
    contract_tokens: Count

    @property
    def label_counts(self) -> Mapping[str, int]:
        """How many events each label stands for, in order of their first appearance."""
        return Counter(one.label for one in self.dispositions if one.label is not None)

    def ids(self, fate: EventOutcome) -> frozenset[str]:
        """Return the ids of the events that became of something."""
        return frozenset(one.event_id for one in self.dispositions if one.fate is fate)


@dataclass(frozen=True)
class Compiled:
    """A contract and the report of its making."""

    contract: HandoffContract
    report: CompileReport


def compile_contract(
    events: Iterable[SessionEvent],
    request: ContractRequest,
    policy: ContractPolicy | None = None,
    processors: Sequence[Processor] = DEFAULT_PROCESSORS,
    estimator: TokenEstimator = estimate_tokens,
) -> Compiled:
    """Return the contract that a receiver may see instead of a session, and what became of each event."""
    draft = Draft(events, request, policy or ContractPolicy(), estimator)
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
    )
    return Compiled(contract, report)
