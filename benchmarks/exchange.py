"""The duration of a handoff between pipelines: by signal, sealed, validated and recorded."""

import asyncio
import statistics
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from baton.exchange.records import QUERY_ANSWERED
from baton.wire.names import QUERY_STATUS
from benchmarks.compare import Effort
from benchmarks.measures import pipeline_input
from benchmarks.report import Findings
from benchmarks.rig import Crew, Rig
from benchmarks.samples import large

PAIRS = {1: 200, 20: 600}
"""How many pairs of pipelines are measured, by how many are at work at a time."""

_WARM_UP = 100
"""So many pairs go before: the first ones start all at once, and find everything cold."""

_Pair = tuple[WorkflowHandle[Any, Any], WorkflowHandle[Any, Any]]
"""Sender and receiver."""


@dataclass(frozen=True)
class HandoffTimes:
    """The durations of a handoff, in milliseconds from its dispatch by the sender's code.

    Attributes:
        answered: Until the receiver's gate answered.
        accepted: Until the acceptance was in the ledger and in the receiver's history as well.
        acknowledged: Until the sender had the answer in its history, its seal verified.
    """

    answered: float
    accepted: float
    acknowledged: float


async def signal_handoffs(rig: Rig, effort: Effort, *, concurrency: int) -> Findings:
    """Measure handoffs by signal between fresh pairs of pipelines, so many pairs at a time, with a baton of 4 KB.

    Sender and receiver share a worker. Both have begun and wait when the sender is told to hand on.
    """
    crew = await rig.crew("protocol")
    warm_up = 2 if effort.quick else _WARM_UP
    pairs = await _run_pairs(crew, warm_up + effort.pipelines(PAIRS[concurrency]), concurrency)
    told = [await _measure_handoff(*pair) for pair in pairs[warm_up:]]
    at_a_time = "one pair at a time" if concurrency == 1 else f"{concurrency} pairs at a time"
    findings = Findings(f"Handoff by signal, {at_a_time}, {len(told)} in all", ("dispatch until", "p50 ms", "p99 ms"))
    p99 = {}
    for moment in ("answered", "accepted", "acknowledged"):
        milliseconds = [getattr(handoff, moment) for handoff in told]
        p99[moment] = statistics.quantiles(milliseconds, n=100)[98]
        findings.rows.append((moment, f"{statistics.median(milliseconds):.1f}", f"{p99[moment]:.1f}"))
    findings.values[f"signal_accept_p99_ms_c{concurrency}"] = p99["accepted"]
    return findings


async def _run_pairs(crew: Crew, count: int, concurrency: int) -> list[_Pair]:
    """Run so many pairs to their ends, so many at a time; return sender and receiver of each."""
    remaining, pairs = iter(range(count)), list[_Pair]()

    async def run_next() -> None:
        for _ in remaining:
            pairs.append(await _run_pair(crew))

    await asyncio.gather(*(run_next() for _ in range(concurrency)))
    return pairs


async def _run_pair(crew: Crew) -> _Pair:
    """Have one pipeline hand on to another, and return both once they have ended.

    Raises:
        RuntimeError: The handoff was not accepted.
    """
    start = pipeline_input(large())
    receiver = await crew.start("Receives", start)
    sender = await crew.start("HandsOff", start.model_copy(update={"params": {"to": receiver.id}}))
    await asyncio.gather(receiver.query(QUERY_ANSWERED, ""), sender.query(QUERY_STATUS))  # answered once they began
    await sender.signal("go")
    answer = (await sender.result())["output"]
    if answer["answer"] != "accepted":
        raise RuntimeError(f"a handoff was answered {answer['answer']!r}: {answer}")
    await receiver.result()
    return sender, receiver


async def _measure_handoff(sender: WorkflowHandle[Any, Any], receiver: WorkflowHandle[Any, Any]) -> HandoffTimes:
    """Return what a pair's handoff took, by the server's clock but for the gate's answer.

    It was dispatched when the sender's workflow task began whose code made the message: the message is dated so.

    Raises:
        RuntimeError: There is no such task.
    """
    sender_events, receiver_events = await _read_events(sender), await _read_events(receiver)
    dispatched = 0
    for event in sender_events:
        if event.event_type == EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
            break
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            dispatched = event.event_time.ToNanoseconds()
    else:
        raise RuntimeError(f"{sender.id!r} handed nothing on")
    received = (await receiver.result())["output"]
    accepted, acknowledged = (
        next(event for event in events if _is_opened(event)) for events in (receiver_events, sender_events)
    )
    return HandoffTimes(
        received["seconds"] * 1_000,
        (accepted.event_time.ToNanoseconds() - dispatched) / 1e6,
        (acknowledged.event_time.ToNanoseconds() - dispatched) / 1e6,
    )


def _is_opened(event: HistoryEvent) -> bool:
    """Return whether a worker has opened the first message: pipelines of this benchmark run no other activity."""
    return event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED


async def _read_events(handle: WorkflowHandle[Any, Any]) -> list[HistoryEvent]:
    return [event async for event in handle.fetch_history_events()]
