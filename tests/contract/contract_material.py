"""What the tests of contracts are made of: the document's example, sessions by hand, and random ones."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from baton import MemoryArtifactStore
from baton.contract.activity import SessionLog
from baton.contract.activity_transcript import Keeping
from baton.contract.draft import ContractRequest
from baton.contract.records import ContractVerdict, EventType, OutputSchemaRef, SessionEvent
from baton.contract.registry import OutputSchema, OutputSchemas
from baton.contract.validation import validate_contract

NOW = datetime(2026, 6, 27, 9, 25, tzinfo=UTC)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

EXAMPLE: dict[str, Any] = {
    "handoffId": "risk-review-2026-001",
    "receivingAgent": "ComplianceReviewAgent",
    "task": "Evaluate whether the proposed outbound email violates internal policy.",
    "facts": [
        {
            "claim": "The recipient is an existing enterprise customer.",
            "source": {"source": "crm.lookup_customer", "timestamp": "2026-06-27T09:20:00Z", "method": "api_call"},
            "confidence": "high",
            "eventId": "evt-9a3b2c",
        },
        {
            "claim": "The customer signed the DPA in 2024.",
            "source": {
                "source": "contracts.search",
                "timestamp": "2026-06-27T09:21:00Z",
                "method": "tool_call:contracts.search",
            },
            "confidence": "high",
            "eventId": "evt-7d8e1f",
        },
    ],
    "excludedContext": ["type:brainstorm", "type:internal_note", "stale:crm.lookup_pricing"],
    "allowedTools": ["policy.search", "crm.read_customer_status"],
    "forbiddenTools": ["email.send", "crm.update_customer"],
    "outputSchema": {"schemaName": "ComplianceDecisionV1", "version": "1.2"},
    "expiresAfterMinutes": 30,
    "createdAt": "2026-06-27T09:25:00Z",
    "traceId": "trace-risk-review-2026-001",
}
"""The contract of the document, S5 L42-80."""

SCHEMAS = OutputSchemas([OutputSchema("ComplianceDecisionV1", "1.2", {"type": "object"})])


def example(**changes: Any) -> dict[str, Any]:
    """Return the document's contract with members replaced; `...` takes one away."""
    members = {**copy.deepcopy(EXAMPLE), **changes}
    return {name: value for name, value in members.items() if value is not ...}


def event(kind: str, content: str = "", minutes: float = 5, **members: Any) -> SessionEvent:
    """Return an event some minutes before the contract is made, with an id of its own unless one is given."""
    event_members = {"id": f"evt-{kind}", "timestamp": NOW - timedelta(minutes=minutes), **members}
    return SessionEvent(type=EventType(kind), content=content, **event_members)


def result(content: str, minutes: float = 5, **members: Any) -> SessionEvent:
    """Return the result of a tool that succeeded."""
    return event("tool_result", content, minutes, **{"tool_name": "crm.lookup", "success": True, **members})


def request(**changes: Any) -> ContractRequest:
    """Return what the document's contract is compiled for."""
    members: dict[str, Any] = {
        "handoff_id": "risk-review-2026-001",
        "receiving_agent": "ComplianceReviewAgent",
        "task": "Evaluate whether the proposed outbound email violates internal policy.",
        "trace_id": "trace-risk-review-2026-001",
        "created_at": NOW,
        "capability": frozenset({"policy.search", "crm.read_customer_status"}),
        "granted": frozenset({"policy.search"}),
        "forbidden": frozenset({"email.send"}),
        "output_schema": OutputSchemaRef(schema_name="ComplianceDecisionV1", version="1.2"),
    }
    return ContractRequest(**{**members, **changes})


IDEA = event("brainstorm", "What if we just skip the compliance check?", id="evt-idea")
"""What must not cross, in the document's own words."""


def verdict(contract: Any, **surroundings: Any) -> ContractVerdict:
    """Return the verdict on a contract where everything about it is known."""
    members = {"now": NOW, "schemas": SCHEMAS, "parent_trace_id": EXAMPLE["traceId"], **surroundings}
    return validate_contract(contract, **members)


def errors(contract: Any, **surroundings: Any) -> list[tuple[str, str]]:
    """Return the errors of a contract, each with its check and place."""
    return [(error.rule, error.at) for error in verdict(contract, **surroundings).errors]


def warnings(contract: Any, **surroundings: Any) -> list[tuple[str, str]]:
    """Return the warnings of a contract, each with its check and place."""
    return [(warning.rule, warning.at) for warning in verdict(contract, **surroundings).warnings]


TOOLS = ("crm.lookup", "policy.search", "email.send", "Email.Send ", "unknown", " ", None)
_AGES = (-600, -2, -1, 0, 1, 5, 29, 30, 31, 600)
_times = st.one_of(
    st.sampled_from(_AGES).map(lambda age: (NOW - timedelta(minutes=age)).isoformat()),
    st.sampled_from(
        (None, "", "yesterday", "2026-06-27T09:20:00", "2026-06-27T11:20:00+02:00", "9999-12-31T23:59:59Z")
    ),
)


@st.composite
def sessions(draw: st.DrawFn, most: int = 12) -> list[SessionEvent]:
    """Return a random session: few tools, calls and ages, so that they meet; each text says which event it is of."""
    items = []
    for number in range(draw(st.integers(0, most))):
        kind = draw(st.sampled_from(EventType))
        tool = kind in (EventType.TOOL_CALL, EventType.TOOL_RESULT) or draw(st.booleans())
        items.append(
            SessionEvent(
                id=f"e{number}",
                type=kind,
                timestamp=draw(_times),
                content=draw(st.sampled_from((f"marker-{number}-end", f"marker-{number}-end" * 9, " ", ""))),
                exclude_from_handoff=draw(st.sampled_from((False, False, False, True))),
                max_age_minutes=draw(st.sampled_from((None, None, None, 0, 5, 600))),
                tool_name=draw(st.sampled_from(TOOLS)) if tool else None,
                call_id=draw(st.sampled_from((None, None, "c1", "c2", "e0", "e1"))),
                success=draw(st.sampled_from((True, True, False, None))),
                accepted=draw(st.sampled_from((True, False, None))),
                agent=draw(st.sampled_from((None, "research", " "))),
            )
        )
    return items


tool_sets = st.frozensets(st.sampled_from(("crm.lookup", "policy.search", "email.send", "CRM.lookup", "crm.read")))


@st.composite
def requests(draw: st.DrawFn) -> ContractRequest:
    """Return a random request."""
    return request(
        capability=draw(tool_sets),
        granted=draw(tool_sets),
        forbidden=draw(tool_sets),
        max_tokens=draw(st.none() | st.integers(0, 400)),
    )


async def end_session(how: str) -> None:
    """Have a stage's agent asked and answer, and end its session, whose transcript is `kept`, `sealed`, or not kept."""

    async def seal(text: str) -> Any:
        return None

    log = SessionLog("score", "1", "h-1")
    log.transcript.give([("system", "Be brief"), ("user", "Score it"), ("thought", "Hm")])
    log.transcript.answered("High")
    keeping = {"kept": Keeping(), "sealed": Keeping(seal=seal)}.get(how, Keeping(time=None))
    await log.close(MemoryArtifactStore(), keeping)
