"""How long a handoff from one pipeline to another takes: by signal, sealed, judged and on record."""

import asyncio
import statistics
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from baton.workflow.arrivals import QUERY_ANSWERED
from benchmarks.compare import Effort
from benchmarks.measures import pipeline_input
from benchmarks.report import Findings
from benchmarks.rig import Crew, Rig
from benchmarks.samples import large

PAIRS = {1: 200, 20: 600}
"""How many pairs of pipelines are measured, by how many are at work at a time."""

_WARM_UP = 20


@dataclass(frozen=True)
class Took:
    """What a handoff took, in milliseconds from the moment the sender's code dispatched it.

    Attributes:
        answered: Until the receiver's gate answered.
        accepted: Until the acceptance was in the ledger and in the receiver's history as well.
        acknowledged: Until the sender had the answer in its history, its seal verified.
    """

    answered: float
    accepted: float
    acknowledged: float


async def signal_handoffs(rig: Rig, effort: Effort, *, concurrency: int) -> Findings:
    """Measure handoffs by signal between fresh pairs of pipelines, so many pairs at once, with a baton of 4 KB.

    Sender and receiver share a worker. The receivers wait already, each for its own sender; then all senders are
    started together.
    """
    crew = await rig.crew("protocol")
    for _ in range(2 if effort.quick else _WARM_UP):
        await _pairs(crew, 1)
    told = []
    for _ in range(max(2, effort.pipelines(PAIRS[concurrency]) // concurrency)):
        told += [await _took(*pair) for pair in await _pairs(crew, concurrency)]
    at_a_time = "one pair at a time" if concurrency == 1 else f"{concurrency} pairs at once"
    findings = Findings(f"Handoff by signal, {at_a_time}, {len(told)} in all", ("dispatch until", "p50 ms", "p99 ms"))
    p99 = {}
    for what in ("answered", "accepted", "acknowledged"):
        times = [getattr(one, what) for one in told]
        p99[what] = statistics.quantiles(times, n=100)[98]
        findings.rows.append((what, f"{statistics.median(times):.1f}", f"{p99[what]:.1f}"))
    findings.values[f"signal_accept_p99_ms_c{concurrency}"] = p99["accepted"]
    return findings


async def _pairs(crew: Crew, count: int) -> list[tuple[WorkflowHandle[Any, Any], WorkflowHandle[Any, Any]]]:
    """Run so many pairs of pipelines at once to their ends; return sender and receiver of each.

    Raises:
        RuntimeError: A handoff was not accepted.
    """
    start = pipeline_input(large())
    receivers = await asyncio.gather(*(crew.start("Receives", start) for _ in range(count)))
    await asyncio.gather(*(one.query(QUERY_ANSWERED, "") for one in receivers))  # it answers once it has begun
    senders = await asyncio.gather(
        *(crew.start("HandsOff", start.model_copy(update={"params": {"to": one.id}})) for one in receivers)
    )
    for sender, receiver in zip(senders, receivers, strict=True):
        answer = (await sender.result())["output"]
        if answer["answer"] != "accepted":
            raise RuntimeError(f"a handoff was answered {answer['answer']!r}: {answer}")
        await receiver.result()
    return list(zip(senders, receivers, strict=True))


async def _took(sender: WorkflowHandle[Any, Any], receiver: WorkflowHandle[Any, Any]) -> Took:
    """Return what a pair's handoff took, by the server's clock but for the gate's answer.

    It was dispatched when the sender's workflow task began whose code made the message: the message is dated so.
    """
    sent, came = await _events(sender), await _events(receiver)
    began = next(one for one in sent if one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED)
    dispatched = began.event_time.ToNanoseconds()
    received = (await receiver.result())["output"]
    accepted, acknowledged = (
        next(one for one in events if one.event_type == EventType.EVENT_TYPE_MARKER_RECORDED) for events in (came, sent)
    )
    return Took(
        received["seconds"] * 1_000,
        (accepted.event_time.ToNanoseconds() - dispatched) / 1e6,
        (acknowledged.event_time.ToNanoseconds() - dispatched) / 1e6,
    )


async def _events(handle: WorkflowHandle[Any, Any]) -> list[HistoryEvent]:
    return [event async for event in handle.fetch_history_events()]
