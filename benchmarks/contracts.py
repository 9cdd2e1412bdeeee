"""What compiling a contract costs: processor time by the number of session events, and whether it grows with it."""

import gc
import statistics
import time
from datetime import UTC, datetime, timedelta

from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractRequest
from baton.contract.records import EventType, SessionEvent
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig

SIZES = (250, 500, 1_000, 2_000, 4_000)
"""How many events; the figure is that of 1,000."""
_NOW = datetime(2026, 6, 27, 9, 25, tzinfo=UTC)
_ROUND = (
    (EventType.TOOL_CALL, "customer c-1042"),
    (EventType.TOOL_RESULT, "The recipient is an existing enterprise customer with a signed processing agreement."),
    (EventType.LLM_RESPONSE, "The draft mentions a discount of 40 %, which is above what the policy allows alone."),
    (EventType.BRAINSTORM, "What if we just skip the compliance check and send it from another mailbox?"),
    (EventType.TOOL_CALL, "agreement of c-1042"),
    (EventType.TOOL_RESULT, "The customer signed the data processing agreement in 2024, and it runs until 2027."),
    (EventType.INTERNAL_NOTE, "Ask the sales lead about the quarter before anything is written to the customer."),
    (EventType.DECISION, "Treat the recipient as an enterprise customer for the whole review."),
    (EventType.USER_MESSAGE, "Please check the mail that goes out to the customer this afternoon."),
    (EventType.REJECTED_ASSUMPTION, "Pricing is the only factor that the policy looks at."),
)


async def compile_cost(rig: Rig | None, effort: Effort) -> Findings:
    """Measure the processor time of compiling sessions of different lengths; that of 1,000 is `compile_ms_1000`."""
    findings = Findings("Compiling a contract", ("events", "facts", "CPU ms", "µs an event", "of that in 250"))
    baseline = 0.0
    for size in SIZES:
        facts, milliseconds = measure_compile(size, 3 if effort.quick else 25)
        each = milliseconds * 1000 / size
        baseline = baseline or each
        findings.rows.append(
            (f"{size:,}", f"{facts:,}", f"{milliseconds:.2f}", f"{each:.2f}", f"{each / baseline:.2f}")
        )
        if size == 1_000:
            findings.values["compile_ms_1000"] = milliseconds
    findings.values["compile_growth_4000"] = each / baseline
    return findings


def measure_compile(size: int, rounds: int) -> tuple[int, float]:
    """Return how many facts a session has, and the milliseconds that compiling it takes, the median of some rounds."""
    events = session(size)
    request = ContractRequest(
        handoff_id="risk-review-2026-001",
        receiving_agent="ComplianceReviewAgent",
        task="Evaluate whether the proposed outbound email violates internal policy.",
        trace_id="trace-risk-review-2026-001",
        created_at=_NOW,
        capability=frozenset({"policy.search", "crm.read_customer_status"}),
        granted=frozenset({"policy.search"}),
        forbidden=frozenset({"email.send"}),
    )
    milliseconds, facts = [], 0
    for _ in range(rounds):
        gc.collect()
        started = time.process_time()
        facts = len(compile_contract(events, request).contract.facts)
        milliseconds.append((time.process_time() - started) * 1000)
    return facts, statistics.median(milliseconds)


def session(size: int) -> list[SessionEvent]:
    """Return a session of a length: each kind of event that agents record, some of them stale, marked or of no use.

    Example:
        >>> [event.type.value for event in session(3)]
        ['tool_call', 'tool_result', 'llm_response']
    """
    return [_event(number) for number in range(size)]


def _event(number: int) -> SessionEvent:
    """Return the event of a number."""
    event_type, text = _ROUND[number % len(_ROUND)]
    tool = f"crm.lookup_{number % 7}" if event_type in (EventType.TOOL_CALL, EventType.TOOL_RESULT) else None
    return SessionEvent(
        id=f"evt-{number}",
        type=event_type,
        timestamp=_NOW - timedelta(minutes=number % 45),
        content=f"{text} ({number})",
        tokens=400 if event_type is EventType.TOOL_RESULT else 0,
        tool_name=tool,
        call_id=f"evt-{number - 1}" if event_type is EventType.TOOL_RESULT else None,
        success=number % 11 != 0 if event_type is EventType.TOOL_RESULT else None,
        accepted=number % 20 < 10 if event_type is EventType.DECISION else None,
        exclude_from_handoff=number % 50 == 2,
        agent="research",
    )
