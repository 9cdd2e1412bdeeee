"""Troubles among runs that wait for people: `python -m benchmarks.endurance --waiting 10000 --minutes 60`.

Real workers with safeguards, a real Temporal server, a real Postgres. Runs wait for a person, others go through all the
time; meanwhile all workers are killed and started again, the disk of both ledgers is full, Postgres is killed, and one
worker's clock is two minutes off. In the end every history, every record and every execution that a stage noted is
counted: it prints a table, and exits with 1 if a run or a record is lost, a stage was executed twice without need, or
memory grew. `--page` also keeps the figures for docs/capacity.md (`python -m benchmarks.capacity page`).
"""

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
from temporalio.client import Client
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from baton import BatonPlugin, PipelineInput, Safeguards
from baton.client import Answer, RunFilter, count_runs, decide, read_run
from baton.devserver import DevServer, DevServerOptions
from baton.errors import BatonError
from baton.keys.store_keyring import Keyring
from benchmarks.capacity import FIGURES, ROLES, new_database, postgres, rounded
from benchmarks.capacity_plan import endurance_tables
from benchmarks.console import console_process, measure_lists, measure_page, p95, run_all
from benchmarks.endurance_checks import (
    Counted,
    Expected,
    Memory,
    check_ledgers,
    check_records,
    check_runs,
    count_repeated,
    memory_over,
    read_executions,
)
from benchmarks.endurance_fleet import Disk, Fleet, shifted_clock, small_disk
from benchmarks.postgres import Server
from benchmarks.report import environment
from benchmarks.workflows.endured import ASKED, STAGES_OF

QUEUES = ("postgres", "file")
"""The task queues, each named after where its workers' ledger is."""
SKEW_SECONDS = 120
_PROBES = 10
_FULL_SECONDS = 30.0
_MEMORY_SECONDS = 5.0
_PATIENCE = 900.0
_MAY_GROW_MB, _MAY_GROW_SHARE, _LONG_ENOUGH = 20.0, 0.1, 5.0


@dataclass(frozen=True)
class Sizes:
    """How much has to endure how much.

    Attributes:
        waiting: Runs that wait for a person.
        minutes: How long runs are started all the time; the troubles are within.
        decided: How many of the runs that wait are decided in the end.
        rate: Runs a second that are started all the time.
        starts: Runs that wait that are started a second, at most.
        within: Minutes after which no further run that waits is started.
        outage: Seconds for which Postgres is away, and for which a clock is off.
    """

    waiting: int = 10_000
    minutes: float = 60.0
    decided: int = 500
    rate: float = 0.5
    starts: float = 20.0
    within: float = 60.0
    outage: float = 60.0


@dataclass
class Trouble:
    """One trouble, for the table.

    Attributes:
        name: What happened.
        lasted: Seconds.
        until_work: Seconds from its end until a run on each queue had gone through.
        decided: The longest of the decisions right after it, in seconds.
    """

    name: str
    lasted: float
    until_work: float
    decided: float


@dataclass
class Asked:
    """How long people's questions take, p95 in milliseconds."""

    inbox_ms: float
    list_ms: float
    console_list_ms: float
    console_inbox_ms: float


@dataclass
class Endurance:
    """What is under way.

    Attributes:
        client: A client of the deployment.
        fleet: The workers.
        disk: The file system of the ledgers.
        server: Postgres.
        ledgers: Where each queue's ledger is.
        keyring: The keys.
        effects: Where stages note what they do.
        console: The console's address.
        sizes: How much.
    """

    client: Client
    fleet: Fleet
    disk: Disk
    server: Server
    ledgers: dict[str, str]
    keyring: Keyring
    effects: Path
    console: str
    sizes: Sizes
    waiting: list[str] = field(default_factory=list)
    queues: dict[str, str] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    asked: dict[str, Asked] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    decided: set[str] = field(default_factory=set)
    memory: dict[str, Memory] = field(default_factory=dict)
    minutes: float = 0.0
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> Counted:
        """Start everything, make trouble, decide, and count."""
        began = time.monotonic()
        load = asyncio.create_task(self._load())
        memory = asyncio.create_task(self.fleet.measure_memory(_MEMORY_SECONDS))
        try:
            await self._start_waiting()
            self.asked["before"] = await self._ask()
            for trouble in (self._restart, self._fill_disk, self._kill_postgres, self._shift_clock):
                await trouble()
            quiet = time.monotonic()
            _note(f"quiet from now on; {(quiet - began) / 60:.1f} minutes so far")
            await asyncio.sleep(max(0.0, began + self.sizes.minutes * 60 - time.monotonic()))
            self.minutes = (time.monotonic() - began) / 60
            self.enough.set()
            await load
        finally:
            for task in (load, memory):
                task.cancel()
            await asyncio.gather(load, memory, return_exceptions=True)
        self.faults += [f"the worker {name!r} ended by itself" for name in self.fleet.ended()]
        await self._wait_until(lambda: self._count("Steady", "RUNNING"), 0)
        self.asked["after"] = await self._ask()
        await self._decide([id for id in self.waiting if id not in self.decided][: self.sizes.decided])
        await self._wait_until(lambda: self._count("Waiting", "COMPLETED"), len(self.decided))
        self._check_memory(quiet)
        return await self._check()

    # What is started

    async def _start(self, pipeline: str, queue: str) -> str:
        """Start a run, and return its id, which is that of its task; the server is asked until it takes it."""
        id = str(uuid4())
        start = PipelineInput(goal="Endure", task_id=id, params={"effects": str(self.effects)})
        while True:
            try:
                await self.client.start_workflow(pipeline, start, id=id, task_queue=queue)
                break
            except WorkflowAlreadyStartedError:  # by the call before, whose answer was lost
                break
            except RPCError:
                await asyncio.sleep(1)
        self.queues[id] = queue
        return id

    async def _load(self) -> None:
        """Start a run now and then, on each queue in turn."""
        for queue in itertools.cycle(QUEUES):
            await self._start("Steady", queue)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.enough.wait(), 1 / self.sizes.rate)
            if self.enough.is_set():
                return

    async def _start_waiting(self) -> None:
        """Start the runs that wait, and wait until all of them ask."""
        began = time.monotonic()

        async def start(number: int) -> None:
            await asyncio.sleep(began + number / self.sizes.starts - time.monotonic())
            if time.monotonic() > began + self.sizes.within * 60:
                return
            self.waiting.append(await self._start("Waiting", QUEUES[0]))
            if number % 1_000 == 999:
                _note(f"{number + 1:,} started after {time.monotonic() - began:.0f} s")

        await run_all(start, range(self.sizes.waiting))
        await self._wait_until(lambda: self._count("Waiting", "WAITING"), len(self.waiting))
        _note(f"{len(self.waiting):,} runs wait after {time.monotonic() - began:.0f} s")

    async def _count(self, pipeline: str, status: str) -> int:
        return await count_runs(self.client, RunFilter(pipeline=pipeline, status=status))

    async def _wait_until(self, count: Callable[[], Awaitable[int]], wanted: int) -> None:
        """Wait until the server's index has so many; what never comes is found when everything is counted."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(RPCError):
                if await count() == wanted:
                    return
            await asyncio.sleep(0.5)
        _note(f"gave up waiting for {wanted:,}")

    # Troubles

    async def _after(self, name: str, lasted: float) -> None:
        """Note how soon work goes on after a trouble: a run on each queue, and decisions of people."""
        began = time.monotonic()
        for id in await asyncio.gather(*(self._start("Steady", queue) for queue in QUEUES)):
            await self._result(id)
        until_work = time.monotonic() - began
        undecided = [id for id in self.waiting if id not in self.decided][:_PROBES]
        self.troubles.append(Trouble(name, lasted, until_work, max(await self._decide(undecided), default=0.0)))
        _note(f"{name}: work goes on after {until_work:.1f} s, decided within {self.troubles[-1].decided:.1f} s")

    async def _result(self, id: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.client.get_workflow_handle(id).result()
        except (TemporalError, TimeoutError) as error:  # found again when everything is counted
            _note(f"a run did not go through: {error!r}")

    async def _restart(self) -> None:
        """Kill all workers at once, and start them again."""
        began = time.monotonic()
        await asyncio.gather(*(self.fleet.kill(name) for name in self.fleet.names))
        await asyncio.gather(*(self.fleet.start(name) for name in self.fleet.names))
        await self._after("all workers killed, and started again", time.monotonic() - began)

    async def _fill_disk(self) -> None:
        """Have no byte left, again and again, for a while."""
        if not self.disk.is_mounted:
            _note("no disk was filled: nothing may be mounted here")
            return
        seconds = min(_FULL_SECONDS, self.sizes.outage)
        began = time.monotonic()
        try:
            while time.monotonic() - began < seconds:
                await asyncio.to_thread(self.disk.fill)
                await asyncio.sleep(1)
        finally:
            await asyncio.to_thread(self.disk.free)
        if not await asyncio.to_thread(_answers, self.server):
            _note("Postgres had stopped on the full disk, and is started again")
            await asyncio.to_thread(self.server.start)
        await self._after("full disk: a tmpfs with both ledgers", seconds)

    async def _kill_postgres(self) -> None:
        """Kill Postgres, decide meanwhile, and start it again after the outage."""
        began = time.monotonic()
        await asyncio.to_thread(self.server.kill)
        undecided = [id for id in self.waiting if id not in self.decided][: _PROBES // 2]
        deciding = asyncio.create_task(self._decide(undecided))
        await asyncio.sleep(self.sizes.outage)
        await asyncio.to_thread(self.server.start)
        lasted = time.monotonic() - began
        await self._after("Postgres killed, and started again", lasted)
        await deciding

    async def _shift_clock(self) -> None:
        """Have one worker's clock ahead for a while, then behind."""
        name = self.fleet.names[0]
        for seconds, side in ((SKEW_SECONDS, "ahead"), (-SKEW_SECONDS, "behind")):
            shifted = shifted_clock(seconds)
            if shifted is None:
                _note("no worker's clock was shifted: install libfaketime")
                return
            began = time.monotonic()
            await self.fleet.replace(name, shifted)
            await asyncio.sleep(self.sizes.outage)
            await self._after(f"one worker's clock {SKEW_SECONDS} s {side} (libfaketime)", time.monotonic() - began)
            process = self.fleet.process_id(name)
            if not any(line.process == process for same in read_executions(self.effects).values() for line in same):
                self.faults.append(f"the worker whose clock was {side} has executed nothing")
        await self.fleet.replace(name)

    # People

    async def _decide(self, ids: Sequence[str]) -> list[float]:
        """Approve these runs, some at a time, and return how long each took."""
        times: list[float] = []

        async def approve(number: int) -> None:
            began = time.monotonic()
            while True:
                try:
                    await decide(self.client, ids[number], Answer(choice="approve", who="ann", question=ASKED))
                    break
                except (BatonError, TemporalError) as error:  # said again, as a person would, unless it counted
                    if (await read_run(self.client, ids[number])).settled:
                        break
                    if time.monotonic() - began > _PATIENCE:
                        self.faults.append(f"run {ids[number]} could not be decided: {error}")
                        return
                    await asyncio.sleep(1)
            times.append(time.monotonic() - began)

        self.decided.update(ids)
        await run_all(approve, range(len(ids)))
        return times

    async def _ask(self, rounds: int = 20) -> Asked:
        """Measure inbox and list, by the library and on the console."""
        inbox, listed = await measure_lists(self.client, rounds)
        async with httpx.AsyncClient(base_url=self.console, headers={"x-forwarded-user": "ann"}, timeout=60) as ann:
            pages = [p95([await measure_page(ann, path) for _ in range(rounds)]) for path in ("/", "/inbox")]
        return Asked(inbox, listed, *pages)

    # What is counted

    async def _check(self) -> Counted:
        """Count everything."""
        expected = {
            id: Expected(STAGES_OF["Waiting"] if id in self.decided else 1, id not in self.decided)
            for id in self.waiting
        }
        steady = Expected(STAGES_OF["Steady"], is_waiting=False)
        expected |= {id: steady for id in self.queues if id not in expected}
        counted = Counted(faults=self.faults)
        heads = await check_runs(self.client, expected, counted)
        _note(f"{counted.runs:,} histories read")
        await check_ledgers(self.ledgers, self.keyring, heads, self.queues, counted)
        await asyncio.to_thread(check_records, self.ledgers, expected, counted)
        executions = await asyncio.to_thread(read_executions, self.effects)
        counted.executions = sum(map(len, executions.values()))
        counted.repeated = count_repeated(executions, self.fleet.deaths, counted.given_up)
        counted.faults += counted.repeated.faults
        noted = {(run, step) for run, step, _ in executions}
        counted.faults += [
            f"a stage of run {id} has left no note"
            for id, wanted in expected.items()
            if sum((id, step) in noted for step in range(1, 5)) < wanted.stages
        ]
        return counted

    def _check_memory(self, since: float) -> None:
        """Find processes that grew all the time."""
        for name, samples in self.fleet.memory.items():
            memory = memory_over([sample for sample in samples if sample[0] >= since])
            if memory is None:  # it had ended by then, or it was not quiet for long
                continue
            self.memory[name] = memory
            may_grow = max(_MAY_GROW_MB, memory.first * _MAY_GROW_SHARE)
            if memory.minutes >= _LONG_ENOUGH and memory.last - memory.first > may_grow:
                self.faults.append(f"{name} grew from {memory.first:.0f} to {memory.last:.0f} MB")


def _answers(server: Server) -> bool:
    """Return whether Postgres takes connections; it may need a moment after a crash."""
    for _ in range(50):
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(server.url("postgres")):
            return True
        time.sleep(0.2)
    return False


@contextlib.asynccontextmanager
async def deployment(folder: Path, sizes: Sizes) -> AsyncIterator[Endurance]:
    """Start servers, workers and a console, with everything in a folder."""
    keyring, effects = Keyring.development(folder), folder / "effects.jsonl"
    effects.touch()
    os.chmod(folder, 0o711)
    async with contextlib.AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk", 384 + sizes.waiting // 10))
        server = await stack.enter_async_context(postgres(disk.folder / "postgres"))
        if server is None:
            raise RuntimeError("there are no programs of Postgres (initdb, pg_ctl): install Postgres")
        options = DevServerOptions(database=folder / "server.db", ui_port=None)
        temporal = await stack.enter_async_context(DevServer(options))
        ledgers = {
            "postgres": server.url(await new_database(server), ROLES[0]),
            "file": str(disk.folder / "file" / "ledger.db"),
        }
        homes = {"postgres": folder / "home", "file": disk.folder / "file"}
        of_queue = {
            queue: {
                "TEMPORAL_ADDRESS": temporal.address,
                "BATON_TASK_QUEUE": queue,
                "BATON_KEYS": str(folder / "keys.toml"),
                "BATON_LEDGER": ledgers[queue],
                "BATON_ARTIFACTS": str(homes[queue] / "artifacts"),
            }
            for queue in QUEUES
        }
        workers = {"postgres 1": "postgres", "postgres 2": "postgres", "file": "file"}
        fleet = Fleet(folder, {name: of_queue[queue] for name, queue in workers.items()})
        stack.push_async_callback(fleet.close)
        await asyncio.gather(*(fleet.start(name) for name in fleet.names))
        url, process = await stack.enter_async_context(console_process(homes["postgres"], of_queue["postgres"]))
        fleet.watch("console", process.pid)
        fleet.watch("Temporal", temporal.process.pid)
        plugin = BatonPlugin(safeguards=Safeguards(keyring, ledgers["postgres"]))
        client = await Client.connect(temporal.address, plugins=[plugin])
        yield Endurance(client, fleet, disk, server, ledgers, keyring, effects, url, sizes)


def to_figures(endured: Endurance, counted: Counted) -> dict[str, Any]:
    """Return what was measured and counted, as capacity.json keeps it."""
    return {
        "sizes": dataclasses.asdict(endured.sizes),
        "minutes": endured.minutes,
        "waiting": len(endured.waiting),
        "started": len(endured.queues),
        "decided": len(endured.decided),
        "runs": counted.runs,
        "still_waiting": counted.waiting,
        "completed": counted.completed,
        "executions": counted.executions,
        "interrupted": counted.repeated.interrupted if counted.repeated else 0,
        "unheard": counted.repeated.unheard if counted.repeated else 0,
        "killed": len(endured.fleet.deaths),
        "records": counted.records,
        "missing": counted.missing,
        "heads": counted.heads,
        "steady_s": p95(counted.seconds) if counted.seconds else 0.0,
        "troubles": [dataclasses.asdict(trouble) for trouble in endured.troubles],
        "asked": {when: dataclasses.asdict(asked) for when, asked in endured.asked.items()},
        "memory": {name: dataclasses.asdict(memory) for name, memory in endured.memory.items()},
        "faults": len(counted.faults),
    }


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance", description=(__doc__ or "").split("\n")[0])
    for name, usual in vars(Sizes()).items():
        parser.add_argument(f"--{name}", type=type(usual), default=usual, help="(default: %(default)s)")
    parser.add_argument("--page", action="store_true", help="keep the figures for docs/capacity.md")
    given = vars(parser.parse_args(arguments))
    is_for_page = given.pop("page")
    logging.disable(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="baton-endurance-"))
    _note(f"works in {folder}")
    figures, faults = asyncio.run(measure(folder, Sizes(**given)))
    print(endurance_tables(figures), *faults[:50], sep="\n")
    if is_for_page:
        known = json.loads(FIGURES.read_text(encoding="utf-8"))
        told = {
            "command": shlex.join(["python", "-m", "benchmarks.endurance", *arguments]),
            "environment": environment(),
        }
        known["endurance"] = rounded(figures | told | {"load": os.getloadavg()[2]})
        FIGURES.write_text(f"{json.dumps(known, indent=2)}\n", encoding="utf-8")
    if faults:
        print(f"{len(faults)} faults; kept: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if faults else 0


async def measure(folder: Path, sizes: Sizes) -> tuple[dict[str, Any], list[str]]:
    """Have a deployment in a folder endure everything; return the figures and the faults."""
    async with deployment(folder, sizes) as endured:
        counted = await endured.run()
    return to_figures(endured, counted), counted.faults


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the SDK's threads may otherwise end the process with SIGABRT
