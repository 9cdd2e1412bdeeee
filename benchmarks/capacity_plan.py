"""What a load needs, computed from the figures of `capacity.json`, and these figures as tables.

It multiplies: what one run costs, times the runs of the busiest hour, with room to spare. What it assumes stands below
as constants; what was not measured (a cluster of Temporal, a network) is not in it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BUSY = 0.6
"""How much of a processor the busiest hour may use."""
STAGES_AT_ONCE = 100
"""Stages that a worker runs at the same time (`BATON_STAGES_AT_ONCE`)."""
SHARD_TRANSITIONS = 20
"""State transitions a second that one history shard is planned for: it writes one after the other, with the database's
round trip and flush of some 10 ms each, and is to be busy a fifth of the time."""
MIN_SHARDS = 512
HOT_DAYS = 30
"""How long the bytes of records stay in Postgres (`baton audit archive --older-than`)."""
FILE_BUSY = 0.25
"""How much of a processor the writers of one file may use, who take turns: the rest is flushes of the disk and peaks.
`baton doctor` warns above it."""
POSTGRES_PROCESSORS = 8
"""The processors of the Postgres server whose end is computed."""
VERIFY_HOURS = 1.0
"""A ledger whose whole verification by one process takes longer has outgrown a file; `baton doctor` warns above it."""
MONTH_SECONDS, YEAR_MONTHS = 30 * 86_400, 12
TABLE_TERABYTES = 32
"""The largest table of Postgres, with blocks of 8 KB."""

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class PlannedLoad:
    """The load that is planned for.

    Attributes:
        runs: Runs a month.
        stages: Stages of a run.
        stage_seconds: How long a stage takes, most of it waiting for a model.
        peak: How much busier than the mean the busiest hour is.
    """

    runs: float = 10e6
    stages: float = 10
    stage_seconds: float = 30
    peak: float = 4

    @property
    def stages_per_s(self) -> float:
        """Stages a second in the busiest hour."""
        return self.runs * self.stages / MONTH_SECONDS * self.peak


@dataclass(frozen=True)
class Plan:
    """What a load needs, in the busiest hour.

    Attributes:
        load: The load.
        records_per_s: Records a second.
        records_per_month: Records a month.
        workers: Worker processes, and why so many.
        cores: Processors that the workers use.
        postgres_cores: Processors that Postgres uses for the ledger.
        index_gb: What a year adds to the ledger's index, which stays.
        hot_gb: Bytes of records in Postgres, of the last `HOT_DAYS`.
        cold_gb: What a year adds to the artifact store.
        shards: History shards of the Temporal service.
        ends: Where each part ends.
    """

    load: PlannedLoad
    records_per_s: float
    records_per_month: float
    workers: tuple[int, str]
    cores: float
    postgres_cores: float
    index_gb: float
    hot_gb: float
    cold_gb: float
    shards: int
    ends: Sequence[tuple[str, str]]


def make_plan(figures: Figures, load: PlannedLoad) -> Plan:
    """Return what a load needs.

    Raises:
        KeyError: The figures are not complete: measure all parts.
    """
    run, writers, proofs = figures["runs"], figures["writers"], figures["proofs"]
    records = run["records"] / run["stages"]  # of a stage
    records_per_s, per_month = load.stages_per_s * records, load.runs * load.stages * records
    cores = load.stages_per_s * run["worker_ms"] / run["stages"] / 1_000
    by_processor = math.ceil(cores / BUSY)
    by_stages = math.ceil(load.stages_per_s * load.stage_seconds / STAGES_AT_ONCE)
    why = f"stages that wait for models, {STAGES_AT_ONCE} a worker" if by_stages >= by_processor else "processor time"
    postgres = writers["postgres"][max(writers["postgres"], key=int)]
    transitions = load.stages_per_s * run["transitions"] / run["stages"]
    return Plan(
        load,
        records_per_s,
        per_month,
        (max(2, by_processor, by_stages), why),
        cores,
        records_per_s * postgres["server_cpu_us"] / 1e6,
        per_month * YEAR_MONTHS * writers["postgres_index_bytes"] / 1e9,
        per_month * HOT_DAYS / 30 * writers["postgres_content_bytes"] / 1e9,
        per_month * YEAR_MONTHS * proofs["cold_bytes"] / 1e9,
        max(MIN_SHARDS, 2 ** math.ceil(math.log2(transitions / SHARD_TRANSITIONS))),
        list(_ends(figures, load, records)),
    )


def sqlite_limits(figures: Figures) -> tuple[float, float]:
    """Return where a ledger in a file ends: records a second, and bytes."""
    rate = FILE_BUSY * 1e6 / figures["writers"]["sqlite"]["1"]["cpu_us"]
    records = VERIFY_HOURS * 3_600 * 1e6 / figures["proofs"]["verify"]["cpu_us"]
    return rate, records * figures["proofs"]["bytes"]


def _ends(figures: Figures, load: PlannedLoad, records: float) -> list[tuple[str, str]]:
    """Return for each part where it ends, and what follows."""
    writers, proofs = figures["writers"], figures["proofs"]
    per_run = records * load.stages / MONTH_SECONDS * load.peak  # records a second for one run a month
    sqlite_rate, sqlite_bytes = sqlite_limits(figures)
    postgres = writers["postgres"][max(writers["postgres"], key=int)]
    rate = POSTGRES_PROCESSORS * BUSY * 1e6 / postgres["server_cpu_us"]
    year = load.runs * load.stages * records * YEAR_MONTHS
    hourly = load.runs * load.stages * records / 720
    full = year * proofs["verify_parallel"]["cpu_us"] / 1e6 / 3_600
    index = writers["postgres_index_bytes"]
    return [
        (
            "ledger in a file",
            f"{sqlite_rate:,.0f} records/s ({_number(sqlite_rate / per_run)} runs a month) or "
            f"{sqlite_bytes / 1e9:,.0f} GB; then Postgres",
        ),
        (
            "ledger in Postgres, rate",
            f"{rate:,.0f} records/s with {POSTGRES_PROCESSORS} processors ({_number(rate / per_run)} runs a month); "
            "then a ledger for each namespace",
        ),
        (
            "ledger in Postgres, index",
            f"{TABLE_TERABYTES} TB, {TABLE_TERABYTES * 1e12 / (year * index):,.0f} years at this load; "
            "then a ledger for each namespace",
        ),
        (
            "verification of what was added",
            f"{hourly * proofs['verify_new']['cpu_us'] / 1e6 / 60:,.1f} minutes of a processor for each hour",
        ),
        (
            "verification of a year",
            f"{full:,.0f} hours of a processor; `--processes` divides them",
        ),
    ]


def plan_table(figures: Figures, load: PlannedLoad) -> str:
    """Return a plan as a Markdown table."""
    plan, opened = make_plan(figures, load), figures["open"]
    workers, why = plan.workers
    rows = [
        ("load", f"{_number(load.runs)} runs a month of {load.stages:g} stages of {load.stage_seconds:g} s"),
        ("busiest hour", f"{load.stages_per_s:,.0f} stages/s, {plan.records_per_s:,.0f} records/s"),
        ("workers", f"{workers} processes ({why}), {plan.cores:,.1f} processors busy"),
        ("Postgres for the ledger", f"{plan.postgres_cores:,.2f} processors busy"),
        ("disk: index, a year", f"{plan.index_gb:,.0f} GB, and it stays"),
        (f"disk: bytes of {HOT_DAYS} days", f"{plan.hot_gb:,.0f} GB in Postgres"),
        ("artifact store: archived records, a year", f"{plan.cold_gb:,.0f} GB"),
        ("history shards of the service", f"{plan.shards:,}"),
        (
            f"questions among {opened['runs']:,} open runs",
            f"inbox {opened['inbox_ms']:,.0f} ms, list {opened['list_ms']:,.0f} ms, "
            f"console {opened['console_list_ms']:,.0f} ms, doctor {opened['doctor_s']:,.1f} s",
        ),
        *((f"ends: {part}", where) for part, where in plan.ends),
    ]
    return _table(("what", "figure"), rows)


def tables(figures: Figures) -> dict[str, str]:
    """Return the tables of docs/capacity.md by the names of their marks."""
    writers, run, opened, proofs = (figures[name] for name in ("writers", "runs", "open", "proofs"))
    appended = [
        (
            f"{kind}, {count}",
            f"{row['per_s']:,.0f}",
            f"{row['cpu_us']:,.0f}",
            f"{row['server_cpu_us']:,.0f}" if "server_cpu_us" in row else "-",
        )
        for kind, label in (("SQLite", "sqlite"), ("Postgres", "postgres"))
        for count, row in writers[label].items()
    ]
    sizes = [
        ("SQLite, the file", f"{writers['sqlite_bytes']:,.0f}"),
        ("Postgres, the index", f"{writers['postgres_index_bytes']:,.0f}"),
        ("Postgres, the bytes", f"{writers['postgres_content_bytes']:,.0f}"),
        ("archived", f"{proofs['cold_bytes']:,.0f}"),
    ]
    worker = [
        ("runs a second, one worker", f"{run['per_s']:,.1f}"),
        ("processor of the worker, a run", f"{run['worker_ms']:,.0f} ms"),
        ("processor of the embedded service, a run", f"{run['server_ms']:,.0f} ms"),
        ("records of a run", f"{run['records']:,.1f}"),
        ("state transitions of a run", f"{run['transitions']:,.0f}"),
        ("history of a run", f"{run['history_bytes']:,.0f} bytes"),
        ("memory of a worker for an open run", f"{opened['memory_kb']:,.0f} KB"),
    ]
    asked = [
        ("inbox, first page", f"{opened['inbox_ms']:,.0f} ms"),
        ("list, 50 runs", f"{opened['list_ms']:,.0f} ms"),
        ("console, list", f"{opened['console_list_ms']:,.0f} ms"),
        ("console, inbox", f"{opened['console_inbox_ms']:,.0f} ms"),
        ("`baton doctor`", f"{opened['doctor_s']:,.1f} s"),
    ]
    proved = [
        (label, f"{proofs[name]['per_s']:,.0f}", f"{proofs[name]['cpu_us']:,.0f}")
        for label, name in (
            ("`verify --all`", "verify"),
            (f"`verify --all --processes {proofs['processes']}`", "verify_parallel"),
            ("`verify --new`", "verify_new"),
            ("`archive`", "archive"),
        )
    ]
    return {
        "writers": _table(("ledger, processes", "records/s", "µs a record", "µs of Postgres"), appended),
        "sizes": _table(("a record of 5.5 KB", "bytes"), sizes),
        "runs": _table((f"pipelines of {run['stages']} stages", "figure"), worker),
        "open": _table((f"among {opened['runs']:,} open runs", "p95"), asked),
        "proofs": _table((f"of {proofs['records']:,} records", "records/s", "µs a record"), proved),
        "plan": plan_table(figures, PlannedLoad()),
        "measured": _describe(figures),
        "endurance": f"{_describe_endurance(figures['endurance'])}\n\n{endurance_tables(figures['endurance'])}",
    }


def endurance_tables(figures: Figures) -> str:
    """Return the tables of what `benchmarks.endurance` counted and measured."""
    counted = [
        ("runs started, and found again", f"{figures['started']:,}, {figures['runs']:,}"),
        ("ended well, still waiting", f"{figures['completed']:,}, {figures['still_waiting']:,}"),
        ("executions of stages", f"{figures['executions']:,}"),
        (
            f"of these repeated, in flight when one of {figures['killed']} workers was killed",
            f"{figures['interrupted']:,}",
        ),
        ("repeated, not heard of for a heartbeat timeout", f"{figures['unheard']:,}"),
        *((f"records verified, ledger in {name}", f"{records:,}") for name, records in figures["records"].items()),
        ("compared with heads in histories", f"{figures['heads']:,}"),
        ("records missing", f"{figures['missing']:,}"),
        ("a run of three stages, p95", f"{figures['steady_s']:,.1f} s"),
        ("faults", f"{figures['faults']:,}"),
    ]
    troubles = [
        (trouble["name"], *(f"{trouble[name]:,.0f}" for name in ("lasted", "until_work", "decided")))
        for trouble in figures["troubles"]
    ]
    asked = [
        (label, *(f"{figures['asked'][when][name]:,.0f}" for when in ("before", "after")))
        for label, name in (
            ("inbox, first page", "inbox_ms"),
            ("list, 50 runs", "list_ms"),
            ("console, list", "console_list_ms"),
            ("console, inbox", "console_inbox_ms"),
        )
    ]
    memory = [
        (name, *(f"{of[figure]:,.0f}" for figure in ("first", "last", "per_hour")), f"{of['minutes']:,.0f}")
        for name, of in figures["memory"].items()
    ]
    return "\n\n".join(
        _table(head, rows)
        for head, rows in (
            ((f"{figures['waiting']:,} waiting, {figures['minutes']:.0f} minutes", "figure"), counted),
            (("trouble", "lasted, s", "work goes on after, s", "decided within, s"), troubles),
            (("p95, ms", "before", "after"), asked),
            (("memory in the quiet time", "MB at first", "MB at last", "MB an hour", "minutes"), memory),
        )
        if rows
    )


def _describe_endurance(figures: Figures) -> str:
    """Say how the troubles were made, and how busy the machine was."""
    return f"Measured by `{figures['command']}` on {figures['environment']}, at a load of {figures['load']:.0f}."


def _describe(figures: Figures) -> str:
    """Say how much was measured, where, and how busy the machine was."""
    commands = "; ".join(f"`{command}`" for command in dict.fromkeys(figures["commands"].values()))
    writers, opened, proofs = (figures[name] for name in ("writers", "open", "proofs"))
    text = (
        f"Measured by {commands} on {figures['environment']}: {writers['records']:,} records for each number of "
        f"writers, {opened['runs']:,} open runs, {proofs['records']:,} records verified and archived."
    )
    text += f" The machine had a load of {figures['load']:.0f}, with the measured processes."
    if figures["load"] <= max(map(int, writers["sqlite"])):  # so many processes were measured at a time
        return text
    return (
        f"{text} So others kept it busy, and rates a second and times are much worse than on a machine of its own. "
        "Processor times, bytes and counts, which the plan uses, are not."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float) -> str:
    """Return a number of runs for people: 850,000, 2.4 M."""
    return f"{value / 1e6:,.3g} M" if value >= 1e6 else f"{float(f'{value:.2g}'):,.0f}"
