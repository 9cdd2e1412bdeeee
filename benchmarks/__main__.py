"""The command `python -m benchmarks`: measure, print tables, write `results.json`."""

import argparse
import asyncio
import gc
import os
import shlex
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.bounds import worst_checks
from benchmarks.compare import Effort
from benchmarks.console import events, memory, pages
from benchmarks.contracts import compile_cost
from benchmarks.cost import handoff_cost, worker_cost
from benchmarks.deploys import deploys
from benchmarks.doors import a2a_cost
from benchmarks.exchange import signal_handoffs
from benchmarks.fidelity import fidelity
from benchmarks.following import follow_cost
from benchmarks.history import history
from benchmarks.inputs import inputs
from benchmarks.lab import lab
from benchmarks.ledger import append_size, appends, trace, verification
from benchmarks.measures import embedded_latency, stage_latency, stock_throughput, throughput
from benchmarks.notes import notes
from benchmarks.peers.comparison import PEERS, SAME, against, agent_chain, agent_histories, agent_stage, same_framework
from benchmarks.projects import new_project
from benchmarks.protocol import acceptance, protocol_cost, protocol_history, protocol_latency
from benchmarks.recovery import recovery
from benchmarks.report import GOALS, Findings, show, summarise, update, write
from benchmarks.restart import restart
from benchmarks.rig import Rig
from benchmarks.scan import scan_corpora, scan_hostile, scan_structure
from benchmarks.startup import first_stage, import_time
from benchmarks.tokens import tokens

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Measure:
    """A measurement, and the figures it finds."""

    names: Sequence[str]
    take: Callable[[Rig, Effort], Awaitable[Findings]]


MEASURES = (
    Measure(["throughput_vs_raw_c1"], partial(throughput, concurrency=1)),
    Measure(["throughput_vs_raw_c10"], partial(throughput, concurrency=10)),
    Measure(["throughput_vs_raw_c50"], partial(throughput, concurrency=50)),
    Measure(["stage_latency_vs_raw"], stage_latency),
    Measure(["history_bytes_per_stage", "history_bytes_growth", "history_rebuild_s_1000"], history),
    Measure(["embedded_vs_stock_latency"], embedded_latency),
    Measure(["throughput_vs_stock_c10"], stock_throughput),
    Measure(["import_ms"], import_time),
    Measure(["start_to_first_stage_ms"], first_stage),
    Measure(["first_pipeline_s", "new_project_s"], new_project),
    Measure(
        ["protocol_extra_events", "history_bytes_vs_raw", "history_bytes_vs_raw_1k", "history_bytes_vs_raw_16k"],
        protocol_history,
    ),
    Measure(["protocol_throughput_ratio"], protocol_cost),
    Measure(["protocol_throughput_ratio_stock"], partial(protocol_cost, stock=True)),
    Measure(["protocol_ms_per_handoff"], protocol_latency),
    Measure(["accept_us"], acceptance),
    Measure(["worker_cpu_vs_raw", "worker_cpu_vs_raw_safe", "worker_cpu_safe_vs_plain"], worker_cost),
    Measure(["handoff_cpu_ms"], handoff_cost),
    Measure(["follow_cost"], follow_cost),
    Measure(["a2a_added_ms", "a2a_event_ms"], a2a_cost),
    Measure(["signal_accept_p99_ms_c1"], partial(signal_handoffs, concurrency=1)),
    Measure(["signal_accept_p99_ms_c20"], partial(signal_handoffs, concurrency=20)),
    Measure(["recovery_s_median", "recovery_s_max"], recovery),
    Measure(["restart_s_100"], restart),
    Measure(["deploy_lost", "deploy_stuck"], deploys),
    Measure(["trace_ms_1m"], trace),
    Measure(["append_bytes"], append_size),
    Measure(["ledger_append_per_s"], appends),
    Measure(["ledger_verify_per_s", "ledger_signatures_per_s"], verification),
    Measure(["scan_reject_fpr", "scan_marked_recall", "scan_ms_per_kb"], scan_corpora),
    Measure(["scan_worst_64k_ms"], scan_hostile),
    Measure(["worst_workflow_task_ms", "worst_gate_ms"], worst_checks),
    Measure(["fence_escapes"], scan_structure),
    Measure(["compile_ms_1000", "compile_growth_4000"], compile_cost),
    Measure(
        [
            "tokens_vs_transcript_stage5",
            "tokens_vs_transcript_stage20",
            "tokens_with_inputs_stage5",
            "tokens_whole_loop_ratio",
            "tokens_growth_stage20_vs_stage5",
        ],
        tokens,
    ),
    Measure(
        [
            "fidelity_decisions",
            "fidelity_prohibitions",
            "fidelity_numbers",
            "fidelity_paths",
            "fidelity_thoughts_as_facts",
            "fidelity_tokens_vs_transcript",
        ],
        fidelity,
    ),
    Measure(["notes_tokens", "notes_requests"], notes),
    Measure(["delivered_share", "inputs_history_bytes_per_stage"], inputs),
    Measure(
        ["console_list_p95_ms", "console_list_vs_temporal", "console_run_p95_ms", "console_first_page_kb"],
        pages,
    ),
    Measure(["console_event_ms"], events),
    Measure(["console_memory_growth_mb"], memory),
    Measure(["lab_found", "lab_false_alarms", "lab_seconds", "lab_cpu_vs_direct"], lab),
    Measure(["agent_stage_vs_bare"], agent_stage),
    Measure(["agent_chain_vs_bare"], agent_chain),
    *(Measure([f"cpu_vs_{name}"], partial(same_framework, name=name)) for name in SAME),
    Measure([f"history_vs_{name}" for name in SAME], agent_histories),
    *(Measure([figure], partial(against, figure=figure)) for figure in PEERS),
)


async def measure(only: Sequence[str], effort: Effort, console: Console) -> dict[str, float]:
    """Take the measurements that find the figures ``only``, or all, and print a table for each.

    Each has servers and workers of its own: those of the one before would be in its way, also when they are idle. So
    would be what they left in this process, which the collector of garbage would go through again and again.
    """
    values: dict[str, float] = {}
    for measure in MEASURES:
        if not only or set(only) & set(measure.names):
            gc.collect()
            gc.freeze()
            async with Rig() as rig:
                findings = await measure.take(rig, effort)
            show(findings, console)
            values |= {name: float(f"{value:.3g}") for name, value in findings.values.items()}
    return values


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code: 0 measured, 1 something failed, 130 stopped by Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure what the README's figures say.")
    parser.add_argument("--only", action="append", default=[], choices=GOALS, help="only this figure (repeatable)")
    parser.add_argument("--rounds", type=int, default=Effort.rounds, help="turns of each side (default: %(default)s)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=Effort.minutes,
        help="watch the console's memory so long (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="see that everything runs; the figures mean nothing")
    parser.add_argument("--update", action="store_true", help="put the figures of --only into results.json")
    parser.add_argument("--output", type=Path, help="write the figures here (default: results.json, if complete)")
    given = parser.parse_args(arguments)
    output = given.output or (RESULTS if not given.only and not given.quick else None)
    console = Console(width=None if sys.stdout.isatty() else 120)
    started = time.monotonic()
    try:
        values = asyncio.run(measure(given.only, Effort(given.rounds, given.quick, given.minutes), console))
    except KeyboardInterrupt:
        return 130
    except Exception:
        traceback.print_exc()
        return 1
    summarise(values, console)
    command = shlex.join(["python", "-m", "benchmarks", *arguments])
    if given.update and given.only and not given.quick:
        update(values, command, RESULTS)
    elif output is not None:
        write(values, command, output)
    console.print(f"{time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the SDK's threads may otherwise end the process with SIGABRT
