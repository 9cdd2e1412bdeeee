"""Tables for people, and `results.json` for the README and its test."""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from baton.devserver.processes import find_temporal


@dataclass(frozen=True)
class Goal:
    """The goal of a figure.

    Attributes:
        what: A short description of the figure.
        least: The minimum, or None.
        most: The maximum, or None.
    """

    what: str
    least: float | None = None
    most: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is a bound; otherwise the figure is only shown."""
        return (self.least, self.most) != (None, None)

    def met_by(self, value: float) -> bool:
        """Return whether ``value`` reaches the goal.

        Example:
            >>> Goal("ratio", least=0.9).met_by(0.92), Goal("bytes", most=2500).met_by(2600)
            (True, False)
        """
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        """Return the bounds as text."""
        bounds = [("≥", self.least), ("≤", self.most)]
        return " ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


GOALS: Mapping[str, Goal] = {
    "throughput_vs_raw_c1": Goal("pipelines per second, of raw's, one at a time", least=0.90),
    "throughput_vs_raw_c10": Goal("pipelines per second, of raw's, 10 at a time", least=0.90),
    "throughput_vs_raw_c50": Goal("pipelines per second, of raw's, 50 at a time", least=0.90),
    "stage_latency_vs_raw": Goal("time of a stage, of raw's, one pipeline at a time", most=1.15),
    "history_bytes_per_stage": Goal("bytes of history a stage, 1,000 stages, baton of 1,000 tokens", most=2_500),
    "history_bytes_growth": Goal("bytes a stage in 1,000 stages, of those in 10", most=1.10),
    "history_rebuild_s_1000": Goal("seconds to read and rebuild a run of 1,000 stages", most=2.0),
    "embedded_vs_stock_latency": Goal("time of a stage on the embedded server, of the stock one's", most=0.20),
    "throughput_vs_stock_c10": Goal("pipelines per second, of stock worker and server's, 10 at a time", least=1.0),
    "import_ms": Goal("milliseconds of processor time that `from baton import Pipeline, stage` takes"),
    "start_to_first_stage_ms": Goal("milliseconds from the start call to the first stage's code"),
    "first_pipeline_s": Goal(
        "seconds from an empty folder to the output of a first pipeline: three commands", most=120
    ),
    "new_project_s": Goal(
        "seconds of `baton new` until the project's own tests have passed, slowest template", most=60
    ),
    "protocol_extra_events": Goal("history events that the handoff protocol adds to four stages", most=0),
    "history_bytes_vs_raw": Goal("sealed, compressed, encrypted history, of raw's bytes, baton of 4 KB", most=0.6),
    "history_bytes_vs_raw_1k": Goal("the same with a baton of 1 KB", most=0.85),
    "history_bytes_vs_raw_16k": Goal("the same with a baton of 16 KB"),
    "protocol_throughput_ratio": Goal(
        "pipelines a second with the protocol, of those without, 10 at a time", least=0.88
    ),
    "protocol_throughput_ratio_stock": Goal("the same on a stock server"),
    "protocol_ms_per_handoff": Goal("milliseconds that the protocol adds to a handoff (p50)", most=3),
    "accept_us": Goal("microseconds of processor time to judge a message of 5.5 KB", most=150),
    "worker_cpu_vs_raw": Goal("processor time of a worker without safeguards, of raw's", most=1.15),
    "worker_cpu_vs_raw_safe": Goal("the same with safeguards, encrypted", most=1.6),
    "worker_cpu_safe_vs_plain": Goal("processor time of a worker with safeguards, of one without", most=1.4),
    "handoff_cpu_ms": Goal("milliseconds of a worker's processor that safeguards add to a handoff, calm", most=2),
    "follow_cost": Goal("processor time of worker and one watcher, 150 stages, of the worker alone", most=1.3),
    "a2a_added_ms": Goal("milliseconds of processor that A2A adds to a run, of a program that follows it", most=5),
    "a2a_event_ms": Goal("milliseconds from the history to a caller over A2A (p95)", most=300),
    "signal_accept_p99_ms_c1": Goal(
        "milliseconds from dispatch to accept by signal (p99), one pair at a time", most=90
    ),
    "signal_accept_p99_ms_c20": Goal(
        "milliseconds from dispatch to accept by signal (p99), 20 pairs at a time", most=600
    ),
    "recovery_s_median": Goal("seconds from a worker's death to the next handoff accepted, median", most=2.0),
    "recovery_s_max": Goal("the same, the longest", most=6.0),
    "restart_s_100": Goal("seconds until a fresh worker has 100 waiting runs of 90 stages done", most=30),
    "deploy_lost": Goal("runs lost or repeated in ten deploys under 200 runs, with and without versioning", most=0),
    "deploy_stuck": Goal("runs that then stood still and were not named, or never ended", most=0),
    "trace_ms_1m": Goal("milliseconds to trace and verify a task among 1,000,000 records (p99)", most=5),
    "append_bytes": Goal("bytes that a record of 5.5 KB makes the ledger write", most=15_000),
    "ledger_append_per_s": Goal("records a second put on record, each on the disk, 16 appenders"),
    "ledger_verify_per_s": Goal("records a second verified on one core, under a signed checkpoint", least=50_000),
    "ledger_signatures_per_s": Goal(
        "records a second verified without a checkpoint, every signature, all cores", least=4_000
    ),
    "scan_reject_fpr": Goal("share of harmless texts that the scan rejects", most=0.001),
    "scan_marked_recall": Goal("share of marked attacks that the scan flags", least=0.99),
    "scan_ms_per_kb": Goal("milliseconds of scanning a KB, costliest set of texts", most=1.0),
    "scan_worst_64k_ms": Goal("milliseconds of scanning the worst hostile 64 KiB", most=200),
    "worst_workflow_task_ms": Goal("milliseconds that one hostile input holds up a workflow's code", most=200),
    "worst_gate_ms": Goal("milliseconds of checking the worst message, without the scan", most=100),
    "fence_escapes": Goal("prompts in which an attack gets out of the fence", most=0),
    "compile_ms_1000": Goal("milliseconds of processor time to compile 1,000 session events", most=20),
    "compile_growth_4000": Goal("time an event in 4,000, of that in 250", most=1.3),
    "tokens_vs_transcript_stage5": Goal("tokens of transcripts, of the tokens that stage 5 inherits", least=25),
    "tokens_vs_transcript_stage20": Goal("the same of stage 20", least=60),
    "tokens_with_inputs_stage5": Goal("the same of stage 5, with a declared input of 40 KB"),
    "tokens_whole_loop_ratio": Goal("tokens read in the whole loops of 5 agents, transcripts of contracts"),
    "tokens_growth_stage20_vs_stage5": Goal("tokens that stage 20 inherits, of those of stage 5", most=1.2),
    "fidelity_decisions": Goal("share of decisions that reach the fifth agent of a chain, worst adapter", least=1),
    "fidelity_prohibitions": Goal("the same of prohibitions", least=1),
    "fidelity_numbers": Goal("the same of numbers", least=1),
    "fidelity_paths": Goal("the same of paths", least=1),
    "fidelity_thoughts_as_facts": Goal("thoughts and rejected ideas that pass for facts in a later prompt", most=0),
    "fidelity_tokens_vs_transcript": Goal("tokens of the transcript, of those of the fifth agent's prompt", least=20),
    "notes_tokens": Goal("tokens that asking for notes adds to a prompt", most=150),
    "notes_requests": Goal("requests to models that notes add to a stage", most=0),
    "delivered_share": Goal("share of inputs of 40 KB that reaches the next agent, five agents", least=1),
    "inputs_history_bytes_per_stage": Goal("bytes of history a stage with an input of 40 KB", most=2_600),
    "console_list_p95_ms": Goal("milliseconds of the console's list among 10,000 runs (p95)", most=300),
    "console_list_vs_temporal": Goal("the same list, of the time of Temporal's own API"),
    "console_run_p95_ms": Goal(
        "milliseconds of the console's page of a run of 2,000 steps, read before (p95)", most=700
    ),
    "console_first_page_kb": Goal("KB that a browser transfers for a first page of the console", most=150),
    "console_event_ms": Goal(
        "milliseconds from an event in the history to the page loaded again, 20 viewers (p95)", most=500
    ),
    "console_memory_growth_mb": Goal("MB that the console grows by in five minutes with 20 viewers", most=10),
    "lab_found": Goal("of seven changed cases among sixty, those that the lab finds, less all others", least=7),
    "lab_false_alarms": Goal("share of lab runs that refuse an equal candidate with 5 % noise", most=0.05),
    "lab_seconds": Goal("seconds of a lab run of 200 cases, three times in two lanes", most=300),
    "lab_cpu_vs_direct": Goal("its processor time, of the same stages run directly", most=1.2),
    "agent_stage_vs_bare": Goal("time of an agent's stage, of the same agent's in a bare activity", most=1.15),
    "agent_chain_vs_bare": Goal("time of a chain of four agents, of the same in bare activities", most=1.15),
    "cpu_vs_openai_agents": Goal(
        "processor time of a worker, of the OpenAI Agents plugin's: same server, same agents", most=1.0
    ),
    "cpu_vs_pydantic_ai": Goal("the same of pydantic-ai's durable agents", most=0.9),
    "cpu_vs_langgraph": Goal("the same of the LangGraph plugin", most=1.0),
    "history_vs_openai_agents": Goal(
        "encrypted history, of the OpenAI Agents plugin's bytes in plain text, state of 4 KB"
    ),
    "history_vs_pydantic_ai": Goal("the same of pydantic-ai's durable agents"),
    "history_vs_langgraph": Goal("the same of the LangGraph plugin"),
    "vs_openai_agents_c10": Goal("pipelines a second, of the OpenAI Agents plugin's, 10 at a time", least=1.9),
    "vs_pydantic_ai_c10": Goal("pipelines a second, of pydantic-ai's durable agents', 10 at a time", least=2.5),
    "vs_langgraph_plugin_c10": Goal("pipelines a second, of the LangGraph plugin's, 10 at a time", least=1.2),
    "vs_langgraph_sqlite_c10": Goal("pipelines a second, of those of LangGraph in one process, SQLite, 10 at a time"),
    "vs_dbos_sqlite_c10": Goal("pipelines a second, of those of DBOS in one process, SQLite, 10 at a time"),
}
"""All figures, in the order of the report."""


@dataclass(frozen=True)
class Findings:
    """The result of a measurement.

    Attributes:
        title: The title of the table.
        columns: The table's columns.
        rows: The table's rows.
        values: The figures for the report, by name.
    """

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)


def show(findings: Findings, console: Console) -> None:
    """Print the result of a measurement."""
    table = Table(*findings.columns)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in findings.rows:
        table.add_row(*row)
    console.print(f"\n[bold]{findings.title}[/bold]", table, sep="\n")


def summarise(values: Mapping[str, float], console: Console) -> None:
    """Print every figure beside its goal."""
    rows: list[Sequence[str]] = []
    for name, goal in GOALS.items():
        if name in values:
            verdict = ("met" if goal.met_by(values[name]) else "missed") if goal.is_set else ""
            rows.append((name, f"{values[name]:g}", str(goal), verdict, goal.what))
    show(Findings("Figures", ("name", "value", "goal", "", "what it is"), rows), console)


def write(values: Mapping[str, float], command: str, path: Path) -> None:
    """Write the figures as one flat JSON object, with environment and command."""
    _save({**values, "environment": environment(), "command": command, "updates": {}}, path)


def update(values: Mapping[str, float], command: str, path: Path) -> None:
    """Put figures that were measured alone in place of older ones, with the command of each."""
    written = json.loads(path.read_text(encoding="utf-8"))
    updates = {**written.get("updates", {}), **dict.fromkeys(values, command)}
    _save({**written, **values, "updates": updates}, path)


def _save(members: Mapping[str, Any], path: Path) -> None:
    ordered = {name: members[name] for name in (*GOALS, "environment", "command", "updates") if name in members}
    path.write_text(f"{json.dumps(ordered, indent=2, ensure_ascii=False)}\n", encoding="utf-8")


def environment() -> str:
    """Describe the environment in one line."""
    result = subprocess.run(
        [str(find_temporal()), "--version"], capture_output=True, text=True, encoding="utf-8", check=False
    )
    return ", ".join(
        (
            f"Python {platform.python_version()}",
            f"temporalio {importlib.metadata.version('temporalio')}",
            result.stdout.strip(),
            f"{platform.system()} {platform.machine()}",
            f"{os.cpu_count()} processors",
        )
    )
