"""What the handoff protocol costs: the same four stages with safeguards and without them, side by side.

With safeguards each stage is begun by a sealed handoff, which its worker opens, validates, scans and puts on record
before the stage runs, and what the stage returns is put on record as well. The ledger is an SQLite file.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from baton.core.baton import Baton
from baton.core.budget import Budget
from baton.core.messages import StageInput, StageReturn
from baton.core.receivers import ReceiverRequirements
from baton.core.stages import StageSpec
from baton.handoff.relay import HandoffTerms, Relay
from baton.handoff.store_gate import Gate
from baton.handoff.store_safeguards import Safeguards
from baton.handoff.store_signing import seal_json
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import Verdict
from baton.ledger.store import Ledger, LedgerOptions
from benchmarks.compare import Effort, ratio, take_turns
from benchmarks.load import Load, speed, stage_latencies
from benchmarks.measures import LATENCY_COLUMNS, SPEED_COLUMNS, column, latency_rows, pipeline_input, speed_rows
from benchmarks.peers.job import State
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.samples import STAGES, huge, large, patch, small
from benchmarks.worker import ledger_of

WITHOUT, PROTOCOL, ENCRYPTED = "without", "protocol", "encrypted too"
"""The sides: no safeguards; with them; with them, and all that Temporal stores encrypted."""

SIZES: Mapping[str, Callable[[], dict[str, Any]]] = {"4 KB": large, "1 KB": small, "16 KB": huge}
"""The batons whose histories are weighed."""

_ROLES = {WITHOUT: "baton", PROTOCOL: "protocol", ENCRYPTED: "encrypted"}
_MESSAGES = 400
_STAGES_DONE = 2  # so many stages are done: the message is the third one's
_RECORDS = 2 * STAGES  # each stage's acceptance, and what it returned


async def protocol_cost(rig: Rig, effort: Effort, *, stock: bool = False) -> Findings:
    """Measure pipelines per second with the protocol against without it, 10 at a time, with a baton of 4 KB.

    Args:
        rig: Has the workers.
        effort: How often.
        stock: On a stock server, where pipelines wait for their hops and the processors have room.
    """
    loads = await _make_loads(rig, sides=(WITHOUT, PROTOCOL), server="stock") if stock else await _make_loads(rig)
    where = " on a stock server" if stock else ""
    findings = Findings(f"The handoff protocol{where}, 10 pipelines at a time, baton of 4 KB", SPEED_COLUMNS)
    turn = partial(speed, pipelines=effort.pipelines(60), concurrency=10)
    results = await take_turns(f"handoff protocol{where}, 10 at a time", loads, turn, effort)
    findings.rows.extend(speed_rows("4 KB", results, WITHOUT))
    figure = "protocol_throughput_ratio_stock" if stock else "protocol_throughput_ratio"
    findings.values[figure] = ratio(column(results, "per_second"), PROTOCOL, WITHOUT)
    return findings


async def protocol_latency(rig: Rig, effort: Effort) -> Findings:
    """Measure how much longer a handoff takes with the protocol, one pipeline at a time, with a baton of 4 KB.

    A round's figure is the difference of the medians of its two turns.
    """
    loads = await _make_loads(rig)

    async def turn(load: Load) -> float:
        return statistics.median(await stage_latencies(load, effort.pipelines(40)))

    results = await take_turns("handoff protocol, one at a time", loads, turn, effort)
    findings = Findings("The handoff protocol, one pipeline at a time, baton of 4 KB", LATENCY_COLUMNS)
    findings.rows.extend(latency_rows("4 KB", results, WITHOUT))
    added = [
        with_protocol - without_protocol
        for with_protocol, without_protocol in zip(results[PROTOCOL], results[WITHOUT], strict=True)
    ]
    findings.rows.append(("added to a handoff", f"{statistics.median(added):.2f}", ""))
    findings.values["protocol_ms_per_handoff"] = statistics.median(added)
    return findings


async def protocol_history(rig: Rig, effort: Effort) -> Findings:
    """Count the events and bytes that one pipeline leaves in Temporal, by the size of its first baton.

    Raises:
        RuntimeError: The handoffs of a pipeline are not on record.
    """
    findings = Findings("History of four stages", ("side", "events", "bytes", "of raw's"))
    for size, make in SIZES.items():
        sizes: dict[str, tuple[int, int]] = {}
        for load in (Load("raw", await rig.crew("raw"), "RawDelivery", State(**make())), *await _make_loads(rig, make)):
            sizes[load.name] = events, written = await measure_history(load)
            share = written / sizes["raw"][1]
            findings.rows.append((f"{load.name}, {size}", str(events), f"{written:,}", f"{share:.2f}"))
        suffix = {"1 KB": "_1k", "16 KB": "_16k"}.get(size, "")
        findings.values[f"history_bytes_vs_raw{suffix}"] = sizes[ENCRYPTED][1] / sizes["raw"][1]
        if make is large:
            extra = max(sizes[PROTOCOL][0], sizes[ENCRYPTED][0]) - sizes[WITHOUT][0]
            findings.values["protocol_extra_events"] = extra
    for name, role in ((PROTOCOL, "protocol"), (ENCRYPTED, "encrypted")):
        await _check_on_record(rig, name, role)
    return findings


async def acceptance(rig: Rig, effort: Effort) -> Findings:
    """Measure the processor time of a receiver's gate for a message of 5.5 KB, and beside it that of its record.

    The figure is the mean over messages of different texts. Some of them hold words, such as `ignore`, that the
    safety scan looks at twice; the quartiles tell those apart. The record is the rest of what a receiver waits for:
    the entry, the signature of the chain's head, and the transaction that has it on the disk.
    """
    keyring = Keyring.generate()
    receiver = ReceiverRequirements("review", "1.0.0", frozenset({"goal", "constraints"}))
    judge_times, accept_times, wall_times = [], [], []
    message_times: list[float] = []
    size = 0
    async with Safeguards(keyring, rig.folder / "acceptance-ledger.db").opened() as guarded:
        for number in range(effort.rounds + 1):  # the first one warms up
            messages = _make_messages(keyring, 20 if effort.quick else _MESSAGES, number)
            size = len(messages[0])
            message_times = [_measure_judgement(guarded.gate, raw, receiver) for raw in messages]
            judge_times.append(statistics.mean(message_times))
            cpu, began = time.process_time(), time.perf_counter()
            await _accept(guarded.gate, messages, receiver)
            accept_times.append((time.process_time() - cpu) / len(messages) * 1e6)
            wall_times.append((time.perf_counter() - began) / len(messages) * 1e6)
    judge_time, accept_time, wall_time = (
        statistics.median(times[1:]) for times in (judge_times, accept_times, wall_times)
    )
    findings = Findings(f"Accepting a message of {size:,} bytes", ("what", "CPU µs", "µs"))
    findings.rows.append(
        ("judged: seal, schema, completeness, safety, budget", f"{judge_time:.0f}", f"{judge_time:.0f}")
    )
    quickest, _, slowest = statistics.quantiles(message_times, n=4)
    findings.rows.append(("… the lower and the upper quartile", f"{quickest:.0f}, {slowest:.0f}", ""))
    findings.rows.append(
        ("put on record, on the disk", f"{accept_time - judge_time:.0f}", f"{wall_time - judge_time:.0f}")
    )
    findings.values["accept_us"] = judge_time
    return findings


def _measure_judgement(gate: Gate, raw: bytes, receiver: ReceiverRequirements) -> float:
    """Return the microseconds of processor time that it takes to judge a message."""
    started = time.thread_time()
    assert gate.judge(raw, receiver).verdict
    return (time.thread_time() - started) * 1e6


async def _make_loads(
    rig: Rig,
    make: Callable[[], dict[str, Any]] = large,
    sides: Iterable[str] = _ROLES,
    *,
    server: str = "shipped",
) -> list[Load]:
    """Return the sides, all of them by default."""
    argument = pipeline_input(make())
    return [Load(side, await rig.crew(_ROLES[side], server=server), "Delivery", argument) for side in sides]


async def measure_history(load: Load) -> tuple[int, int]:
    """Run a pipeline; return how many events and bytes its history has, as the server counts them."""
    handle = await load.crew.start(load.workflow, load.argument)
    await handle.result()
    info = (await handle.describe()).raw_description.workflow_execution_info
    return info.history_length, info.history_size_bytes


async def _check_on_record(rig: Rig, name: str, role: str) -> None:
    """Make sure that what was measured as the protocol was the protocol.

    Raises:
        RuntimeError: The ledger has not exactly the records of a pipeline.
    """
    crew = await rig.crew(role)
    result: Any = await (await crew.start("Delivery", pipeline_input(large()))).result()
    async with Ledger(ledger_of(rig.folder, role), LedgerOptions(create=False)) as ledger:
        trace = await ledger.trace(result["task_id"], verifier=Keyring.development(rig.folder).public())
    expected = Verdict.UNANCHORED  # nothing is kept outside of the ledger here
    if len(trace.records) != _RECORDS or trace.report.verdict is not expected:
        raise RuntimeError(
            f"{name}: a pipeline left {len(trace.records)} records, {trace.report.verdict}; "
            f"expected {_RECORDS}, {expected}"
        )


async def _accept(gate: Gate, messages: Sequence[bytes], receiver: ReceiverRequirements) -> None:
    """Accept messages one after the other, as the stages of one pipeline do."""
    for raw in messages:
        receipt, _ = await gate.accept(raw, receiver)
        assert receipt.verdict


def _make_messages(keyring: Keyring, count: int, number: int) -> list[bytes]:
    """Return sealed messages of about 5.5 KB as a pipeline sends them, each another handoff of the same task."""
    task = str(UUID(int=number, version=4))
    relay = Relay("Delivery", task, task, HandoffTerms())
    cost = Budget(initial_micro_usd=10_000_000).cost_tracking()
    sealed = []
    for index in range(count + _STAGES_DONE):
        spec, handoff_id = StageSpec("review"), str(UUID(int=number << 32 | index, version=4))
        change = patch(index, 8)
        baton = Baton.model_validate({**large(), "current_state": change["current_state"]})
        stage_input = StageInput(stage="review", seq=index + 1, task_id=task, baton=baton.to_json_object())
        handoff = relay.message(spec, stage_input, cost, handoff_id=handoff_id, now=datetime.now(UTC))
        sealed.append(seal_json(handoff.__pydantic_serializer__.to_json(handoff, exclude_unset=True), keyring))
        if index < _STAGES_DONE:
            result = StageReturn(stage="review", seq=index + 1, baton_patch={"decision_log": [*change["decision_log"]]})
            relay.complete_stage(spec, result, handoff_id, datetime.now(UTC))
    return sealed[_STAGES_DONE:]
