"""What a deployment can take: `python -m benchmarks.capacity measure`, `plan` and `page`.

`measure` writes `capacity.json`, `plan` computes from it what a load needs and where each part ends
(`capacity_plan`), `page` writes the figures into docs/capacity.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from baton import PipelineInput
from baton.artifacts.store import LocalArtifactStore
from baton.client import RunFilter
from baton.devserver.processes import bound_to_parent
from baton.keys.store_keys import PublicKeys
from baton.ledger.chain import Verdict
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_schema import migrate_ledger
from baton.ledger.store_verified import VerifiedFile
from benchmarks.capacity_plan import PlannedLoad, plan_table, tables
from benchmarks.console import measure_lists, measure_page, p95, run_all, serve_console
from benchmarks.ledger import make_keys
from benchmarks.ledger_samples import Signer, canonical_messages, entry, fill
from benchmarks.load import Load, speed
from benchmarks.measures import pipeline_input
from benchmarks.postgres import Server, programs
from benchmarks.report import environment
from benchmarks.rig import Crew, Rig, process_seconds, production_environment, resident_mb
from benchmarks.samples import STAGES, small
from benchmarks.worker import ledger_of

FIGURES = Path(__file__).with_name("capacity.json")
PAGE = Path(__file__).parents[1] / "docs" / "capacity.md"
PROCESSES = (1, 2, 4, 8)
ROLES = ("baton_writer", "baton_keeper")
_ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        records: Appended for each number of writer processes.
        pipelines: Run by one worker.
        open_runs: Runs that wait for a person.
        verified: Records of the ledger that is verified and archived.
        rounds: How often each question is asked.
    """

    records: int = 100_000
    pipelines: int = 400
    open_runs: int = 10_000
    verified: int = 1_000_000
    rounds: int = 20


@contextlib.asynccontextmanager
async def postgres(folder: Path | None = None) -> AsyncIterator[Server | None]:
    """Start a Postgres server, in a new folder unless one is given; None without its programs."""
    where = programs()
    if where is None:
        yield None
        return
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    else:
        folder.mkdir()
    server = Server(folder, where)
    await asyncio.to_thread(server.make)
    await asyncio.to_thread(server.start, "shared_buffers=256MB", "max_wal_size=2GB")
    try:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            for role in ROLES:
                connection.execute(f"CREATE ROLE {role} LOGIN")
        yield server
    finally:
        await asyncio.to_thread(server.stop, "immediate")
        await asyncio.to_thread(shutil.rmtree, folder)


async def new_database(server: Server) -> str:
    """Return the name of a new database with the ledger's tables."""
    name = f"ledger_{uuid4().hex[:12]}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    await migrate_ledger(server.url(name), writer=ROLES[0], keeper=ROLES[1])
    return name


async def writers(server: Server | None, signer: Signer, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Measure appends by several processes: records a second, processor and bytes a record."""
    figures: dict[str, Any] = {"sqlite": {}, "postgres": {}}
    for count in PROCESSES:
        file = folder / f"writers-{count}.db"
        per_second, used = await _append(str(file), signer, count, sizes.records)
        figures["sqlite"][str(count)] = {"per_s": per_second, "cpu_us": used}
        figures["sqlite_bytes"] = file.stat().st_size / sizes.records
        file.unlink()
        _note("writers", "sqlite", count, per_second)
        if server is None:
            continue
        name = await new_database(server)
        before = _server_seconds(server)
        per_second, used = await _append(server.url(name, ROLES[0]), signer, count, sizes.records)
        server_us = (_server_seconds(server) - before) * 1e6 / sizes.records
        figures["postgres"][str(count)] = {"per_s": per_second, "cpu_us": used, "server_cpu_us": server_us}
        figures |= {f"postgres_{part}": size / sizes.records for part, size in _table_bytes(server.url(name)).items()}
        _note("writers", "postgres", count, per_second)
    return figures


async def _append(where: str, signer: Signer, count: int, records: int) -> tuple[float, float]:
    """Append with so many processes at the same time; return records a second, and processor µs a record."""
    if not where.startswith("postgresql:"):
        async with Ledger(Path(where), LedgerOptions(signer=signer)):
            pass  # makes the tables
    share = records // count
    processes = [
        await asyncio.create_subprocess_exec(
            *bound_to_parent([sys.executable, "-m", "benchmarks.capacity_writer"]),
            *(where, signer.secret.hex(), f"writer-{number}", str(share)),
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            raise RuntimeError("a writer ended before it was ready; see above")
    started = time.perf_counter()
    outputs = [output for output, _ in await asyncio.gather(*(process.communicate(b"\n") for process in processes))]
    seconds = time.perf_counter() - started
    used = sum(float(output.split()[1]) for output in outputs)
    return share * count / seconds, used * 1e6 / (share * count)


def _server_seconds(server: Server) -> float:
    """Return the processor seconds of Postgres so far: its main process, those it waited for, and its children."""
    main = server.process_id
    children = Path(f"/proc/{main}/task/{main}/children").read_text(encoding="utf-8").split()
    seconds = 0.0
    for child in children:
        with contextlib.suppress(OSError):  # it has ended, and its main process counts it
            seconds += process_seconds(int(child))
    return seconds + process_seconds(main, waited=True)


def _table_bytes(url: str) -> dict[str, int]:
    """Return the bytes of the ledger's index and of the bytes of its records, with all that belongs to them."""
    with psycopg.connect(url) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute(
            "SELECT pg_total_relation_size('handoff_audit'), (SELECT sum(pg_total_relation_size(inhrelid)) "
            "FROM pg_inherits WHERE inhparent = 'handoff_audit_content'::regclass)"
        ).fetchone()
    assert row is not None
    return {"index_bytes": int(row[0]), "content_bytes": int(row[1])}


async def runs(sizes: Sizes) -> dict[str, Any]:
    """Measure a worker with safeguards: runs a second, processor, records, transitions and history of a run."""
    async with Rig() as rig:
        crew = await rig.crew("protocol")
        load = Load("protocol", crew, "Delivery", pipeline_input(small()))
        await speed(load, 10, 10)  # warms up
        file = ledger_of(rig.folder, "protocol")
        before = _count(file)
        taken = await speed(load, sizes.pipelines, 20)
        records = (_count(file) - before) / sizes.pipelines
        handle = await crew.start("Delivery", pipeline_input(small()))
        await handle.result()
        info = (await handle.describe()).raw_description.workflow_execution_info
        server_bytes = sum(part.stat().st_size for part in rig.folder.glob("shipped.db*")) / (sizes.pipelines + 11)
    return {
        "stages": STAGES,
        "per_s": taken.per_second,
        "worker_ms": taken.worker_ms,
        "server_ms": taken.server_ms,
        "records": records,
        "transitions": info.state_transition_count,
        "history_bytes": info.history_size_bytes,
        "server_bytes": server_bytes,
    }


def _count(file: Path) -> int:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        count: int = connection.execute("SELECT count(*) FROM handoff_audit").fetchone()[0]
    return count


async def open_runs(sizes: Sizes) -> dict[str, Any]:
    """Measure runs that wait for a person: their memory, and the questions of people among them."""
    async with Rig() as rig, serve_console(rig) as console:
        crew = console.crew
        held, started = resident_mb(crew.worker.pid), time.perf_counter()
        await _start_asking(crew, sizes.open_runs)
        seconds = time.perf_counter() - started
        memory_kb = max(0.0, resident_mb(crew.worker.pid) - held) * 1_000 / sizes.open_runs
        figures: dict[str, Any] = {"runs": sizes.open_runs, "start_per_s": sizes.open_runs / seconds}
        figures["memory_kb"] = memory_kb
        figures["inbox_ms"], figures["list_ms"] = await measure_lists(crew.client, sizes.rounds)
        figures["doctor_s"] = await _command_seconds(crew, rig.folder, "doctor", "--task-queue", crew.queue)
        async with console.viewer("ann") as ann:
            for name, path in (("console_list_ms", "/"), ("console_inbox_ms", "/inbox")):
                figures[name] = p95([await measure_page(ann, path) for _ in range(sizes.rounds)])
    return figures


async def _start_asking(crew: Crew, count: int) -> None:
    """Start runs, and wait until all of them ask."""

    async def start(_: int) -> None:
        await crew.client.start_workflow(
            "Asks",
            PipelineInput(goal="Ask"),
            id=f"asks-{uuid4().hex}",
            task_queue=crew.queue,
            execution_timeout=timedelta(hours=4),
        )

    await run_all(start, range(count))
    waiting = RunFilter(status="WAITING").query()
    while (await crew.client.count_workflows(waiting)).count < count:  # noqa: ASYNC110 - another process counts
        await asyncio.sleep(0.5)


async def _command_seconds(crew: Crew, folder: Path, *words: str) -> float:
    """Return how long a command of an operator takes."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "baton", *words),
        cwd=folder,
        env={**production_environment(), "TEMPORAL_ADDRESS": crew.server.address},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
    return time.perf_counter() - started


class _Watch:
    """The time and the processor time since it was made, of this process and of those that it waited for."""

    def __init__(self) -> None:
        self._started, self._used = time.perf_counter(), self._processor()

    def speed(self, records: int) -> dict[str, float]:
        """Return records a second, and processor time a record."""
        seconds, used = time.perf_counter() - self._started, self._processor() - self._used
        return {"per_s": records / seconds, "cpu_us": used * 1e6 / records}

    def _processor(self) -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system


async def proofs(signer: Signer, keys: PublicKeys, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Measure the verification of a whole ledger and of what was added, and its archive."""
    file, store = folder / "verified.db", LocalArtifactStore(folder / "cold")
    await fill(file, signer, sizes.verified)
    figures: dict[str, Any] = {"records": sizes.verified, "bytes": file.stat().st_size / sizes.verified}
    state = VerifiedFile(folder / "state.json", signer)
    async with Ledger(file, LedgerOptions(signer=signer, artifacts=store)) as ledger:
        figures["processes"] = max(2, os.cpu_count() or 1)
        for name, processes in (("verify", 1), ("verify_parallel", figures["processes"])):
            watch = _Watch()
            report = await ledger.verify_all(verifier=keys, verified=state, processes=processes)
            assert (report.verdict, report.records) == (Verdict.UNANCHORED, sizes.verified)
            figures[name] = watch.speed(sizes.verified)
            _note(name, figures[name]["per_s"])
        added = max(4, sizes.verified // 100)
        messages = canonical_messages()
        for start in range(0, added, 200):
            await ledger.append_all(
                [entry(f"new-{n // 4}", n % 4, messages[n % len(messages)]) for n in range(start, start + 200)]
            )
        watch = _Watch()
        report = await ledger.verify_all(verifier=keys, verified=state, new_only=True)
        assert report.verified_before == sizes.verified
        figures["verify_new"] = watch.speed(report.records - sizes.verified)
        watch = _Watch()
        segments = await ledger.move_to_cold(timedelta(0))
        moved = sum(segment.records for segment in segments)
        figures["archive"] = watch.speed(moved)
        figures["cold_bytes"] = sum(segment.bytes for segment in segments) / moved
    return figures


PARTS = ("writers", "runs", "open", "proofs")


async def measure(sizes: Sizes, only: Sequence[str]) -> dict[str, Any]:
    """Return the figures of these parts."""
    figures: dict[str, Any] = {}
    signer, keys = make_keys()
    with tempfile.TemporaryDirectory(prefix="baton-capacity-") as name:
        if "writers" in only:
            async with postgres() as server:
                figures["writers"] = await writers(server, signer, Path(name), sizes)
                figures["writers"]["records"] = sizes.records
        if "runs" in only:
            figures["runs"] = await runs(sizes)
        if "open" in only:
            figures["open"] = await open_runs(sizes)
        if "proofs" in only:
            figures["proofs"] = await proofs(signer, keys, Path(name), sizes)
    return figures


def write_page(figures: dict[str, Any], text: str) -> str:
    """Return the page with these figures in place of those between its marks."""
    written = tables(figures)
    return _BLOCK.sub(lambda match: f"<!-- figures: {match[1]} -->\n{written[match[1]]}\n<!-- end -->", text)


def _note(*values: object) -> None:
    print(*(f"{value:,.0f}" if isinstance(value, float) else value for value in values), file=sys.stderr, flush=True)


def rounded(value: Any) -> Any:
    """Return figures with three digits that count."""
    if isinstance(value, dict):
        return {name: rounded(member) for name, member in value.items()}
    return float(f"{value:.3g}") if isinstance(value, float) else value


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="measure, and write capacity.json")
    for name, usual in vars(Sizes()).items():
        measuring.add_argument(f"--{name.replace('_', '-')}", type=int, default=usual, help="(default: %(default)s)")
    measuring.add_argument("--only", action="append", choices=PARTS, help="only this part (repeatable)")
    measuring.add_argument("--output", type=Path, default=FIGURES)
    planning = commands.add_parser("plan", help="compute what a load needs")
    planning.add_argument("--runs", type=float, default=10e6, help="runs a month (default: 10e6)")
    planning.add_argument("--stages", type=float, default=10, help="stages of a run (default: 10)")
    planning.add_argument("--stage-seconds", type=float, default=30, help="how long a stage takes (default: 30)")
    planning.add_argument("--peak", type=float, default=4, help="the busiest hour over the mean (default: 4)")
    commands.add_parser("page", help="write the figures into docs/capacity.md")
    given = parser.parse_args(arguments)
    if given.command == "measure":
        sizes = Sizes(given.records, given.pipelines, given.open_runs, given.verified, given.rounds)
        measured = rounded(asyncio.run(measure(sizes, given.only or PARTS)))
        known = json.loads(given.output.read_text(encoding="utf-8")) if given.output.exists() else {}
        command = shlex.join(["python", "-m", "benchmarks.capacity", *arguments])
        load = max(os.getloadavg()[1], known.get("load", 0.0)) if given.only else os.getloadavg()[1]
        commands_of = {**known.get("commands", {}), **dict.fromkeys(measured, command)}
        known |= {**measured, "environment": environment(), "load": rounded(load), "commands": commands_of}
        given.output.write_text(f"{json.dumps(known, indent=2)}\n", encoding="utf-8")
        return 0
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    if given.command == "plan":
        print(plan_table(figures, PlannedLoad(given.runs, given.stages, given.stage_seconds, given.peak)))
    else:
        PAGE.write_text(write_page(figures, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the SDK's threads may otherwise end the process with SIGABRT
