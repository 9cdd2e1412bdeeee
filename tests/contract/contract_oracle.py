"""A second compiler, written naively and apart from the first: one event at a time, straight from the document.

It shares with the first only the records that go in. Where the two differ, one of them is wrong.
"""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from baton.contract.draft import ContractRequest
from baton.contract.records import SessionEvent


@dataclass
class Answer:
    """What the oracle says a contract has to be."""

    fates: dict[str, str] = field(default_factory=dict)
    facts: list[dict[str, Any]] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)


def when(event: SessionEvent) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(event.timestamp))
        return None if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def consumer(call: SessionEvent, events: list[SessionEvent], taken: dict[str, str]) -> str | None:
    """Return the result that a call is consumed by, by the calls' own ids; results that are taken are in ``taken``."""
    key = call.call_id or call.id
    namesakes = [one for one in events if one.type == "tool_call" and dropped(one) is None]
    first = next(one for one in namesakes if (one.call_id or one.id) == key)
    if first is not call:
        return None
    for one in events:
        answers = one.type == "tool_result" and one.call_id == key and one.id not in taken.values()
        if answers and (not call.tool_name or not one.tool_name or call.tool_name == one.tool_name):
            return one.id
    return None


def dropped(event: SessionEvent) -> str | None:
    """Return the label of an event that is marked or of a type that never crosses."""
    if event.exclude_from_handoff:
        return f"explicit:{event.type.value}"
    if event.type in ("brainstorm", "internal_note", "rejected_assumption"):
        return f"type:{event.type.value}"
    return None


def judged(event: SessionEvent, now: datetime) -> str | dict[str, Any]:
    """Return the label of an event that is no call, or the fact that it is."""
    kind = event.type.value
    about = " ".join((event.tool_name or "").split()) if kind == "tool_result" else kind
    about = about or kind
    if label := dropped(event):
        return label
    if kind == "tool_result" and event.success is False:
        return f"failed:{about}"
    at = when(event)
    if at is None or at > now + timedelta(seconds=60):
        return f"stale:{about}"
    limit = event.max_age_minutes if event.max_age_minutes is not None else 30 if kind == "tool_result" else None
    if limit is not None and now - at > timedelta(minutes=limit):
        return f"stale:{about}"
    agent = (event.agent or "").strip()
    rows = {
        "tool_result": ((event.tool_name or "").strip(), f"tool_call:{(event.tool_name or '').strip()}", "low"),
        "llm_response": (agent or "llm", "llm_generation", "medium"),
        "decision": (agent or "agent", "decision", "medium"),
        "user_message": ("user", "user_input", "unverified"),
    }
    if kind not in rows or not event.content.strip() or (kind == "decision" and event.accepted is not True):
        return f"unsupported:{kind}"
    source, method, confidence = rows[kind]
    if kind == "tool_result" and event.success is True:
        confidence = "high"
    if source in ("", "unknown"):
        source, method, confidence = "unknown", "tool_result", "unverified"
    stamp = at.isoformat().replace("+00:00", "Z")
    provenance = {"source": source, "timestamp": stamp, "method": method}
    return {"claim": event.content, "source": provenance, "confidence": confidence, "eventId": event.id}


def page(request: ContractRequest, tools: list[str], facts: list[dict[str, Any]]) -> str:
    """Return the contract as its receiver reads it."""
    text = f"## Handoff Contract\n\n**Task:** {request.task}\n"
    if facts:
        text += "\n**Facts:**\n" + "".join(map(line, facts))
    text += f"\n**Allowed tools:** {', '.join(tools) or 'none'}\n"
    if request.forbidden:
        text += f"**Forbidden tools:** {', '.join(sorted(request.forbidden))}\n"
    if request.output_schema:
        text += f"**Output:** as in {request.output_schema.schema_name}@{request.output_schema.version}\n"
    until = (request.created_at + timedelta(minutes=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return text + f"**Handoff:** {request.handoff_id}, to {request.receiving_agent}, use until {until}\n"


def line(fact: dict[str, Any]) -> str:
    """Return a fact as its receiver reads it."""
    source = fact["source"]
    by = "" if source["method"] == f"tool_call:{source['source']}" else f" by {source['method']}"
    at = source["timestamp"][:19] + "Z"
    return f"- {fact['confidence']}, {source['source']}{by} at {at}: {fact['claim']}\n"


def tokens(text: str) -> int:
    """Return the tokens of a text of ASCII."""
    return math.ceil(len(text) / 4)


def oracle(events: list[SessionEvent], request: ContractRequest) -> Answer:
    """Return what compiling a session has to come to, under the default policy."""
    answer = Answer()
    consumed: dict[str, str] = {}
    calls = [one for one in events if one.type == "tool_call" and dropped(one) is None]
    for one in events:  # by the ids that results name
        for call in calls:
            named = one.type == "tool_result" and one.call_id == (call.call_id or call.id)
            if named and call.id not in consumed and consumer(call, events, consumed) == one.id:
                consumed[call.id] = one.id
    for place, one in enumerate(events):  # and else the oldest open call of the tool
        if one.type == "tool_result" and one.call_id is None:
            for call in events[:place]:
                open_call = call in calls and call.call_id is None and call.id not in consumed
                if open_call and call.tool_name == one.tool_name:
                    consumed[call.id] = one.id
                    break
    for one in events:
        if one.type == "tool_call":
            label = dropped(one) or "unsupported:tool_call"
            answer.fates[one.id] = f"consumed by {consumed[one.id]}" if one.id in consumed else label
        elif isinstance(found := judged(one, request.created_at), str):
            answer.fates[one.id] = found
        else:
            answer.fates[one.id] = "fact"
            answer.facts.append(found)

    used = {
        one.tool_name for one in events if one.type == "tool_result" and one.success and answer.fates[one.id] == "fact"
    }

    def same(tool: str, others: Any) -> bool:
        return any(tool.strip().lower() == (other or "").strip().lower() for other in others)

    answer.tools = sorted(
        tool
        for tool in request.capability
        if (same(tool, used) or same(tool, request.granted)) and not same(tool, request.forbidden)
    )
    trim(answer, events, request)
    return answer


def trim(answer: Answer, events: list[SessionEvent], request: ContractRequest) -> None:
    """Leave out the facts that the token budget has no room for."""
    if request.max_tokens is None:
        return
    left = request.max_tokens - tokens(page(request, answer.tools, [])) - tokens("\n**Facts:**\n")
    order = {one.id: place for place, one in enumerate(events)}
    sure = ["high", "medium", "low", "unverified"]
    ranked = sorted(answer.facts, key=lambda one: order[one["eventId"]], reverse=True)
    ranked = sorted(ranked, key=lambda one: datetime.fromisoformat(one["source"]["timestamp"]), reverse=True)
    ranked = sorted(ranked, key=lambda one: sure.index(one["confidence"]))
    kept = []
    for fact in ranked:
        if tokens(line(fact)) <= left:
            left -= tokens(line(fact))
            kept.append(fact["eventId"])
    for fact in list(answer.facts):
        if fact["eventId"] not in kept:
            answer.facts.remove(fact)
            one = events[order[fact["eventId"]]]
            about = " ".join((one.tool_name or "").split()) if one.type == "tool_result" else one.type.value
            answer.fates[one.id] = f"budget:{about or one.type.value}"
