"""Runs of every kind under constant queries, while their workers are killed and stopped at random."""

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import TemporalError
from temporalio.worker import Replayer

from baton import BatonPlugin, PipelineInput, Safeguards
from baton.client import Question, RunRecord, decide, read_run
from baton.devserver import DevServer
from baton.errors import BatonError
from baton.outside.client_external import OutsideAgents
from baton.wire.names import ANSWER, QUERY_BATON, QUERY_HISTORY, QUERY_QUESTIONS, QUERY_STATUS, QUERY_WAITING
from tests.storm.pipelines import KINDS, PIPELINES
from tests.storm.worker import QUEUE

Handle = WorkflowHandle[Any, Any]
_QUERIES = (QUERY_STATUS, QUERY_BATON, QUERY_HISTORY, QUERY_WAITING, QUERY_QUESTIONS)
_SOON = timedelta(seconds=6)


@dataclass(frozen=True)
class Options:
    """The strength of a storm.

    Attributes:
        runs: How many runs are started.
        seed: The seed of the random worker faults; runs are concurrent and not reproducible.
        at_once: How many run at the same time.
        workers: How many worker processes there are.
        cache: How many workflows each keeps in memory.
        patience: Seconds after which a run counts as stuck.
    """

    runs: int = 200
    seed: int = 1
    at_once: int = 8
    workers: int = 2
    cache: int = 3
    patience: float = 240.0


@dataclass
class Kind:
    """The results of the runs of a kind, including runs that they started.

    Attributes:
        runs: How many there were.
        stuck: Those that did not end.
        not_replaying: Those that do not replay, and the files in which their histories are kept.
        differing: Those whose history reads differently than their result.
        violations: Other violations of their rules.
        seconds: How long each took.
    """

    runs: int = 0
    stuck: list[str] = field(default_factory=list)
    not_replaying: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether every run ended, replays, reads back as its result, and kept the rules of its kind."""
        return not (self.stuck or self.not_replaying or self.differing or self.violations)


@dataclass
class Report:
    """The result of a storm."""

    kinds: dict[str, Kind]
    counts: Counter[str]

    @property
    def is_sound(self) -> bool:
        """Whether every kind is sound."""
        return all(kind.is_sound for kind in self.kinds.values())

    def lines(self) -> list[str]:
        """Return a line for each kind, one for what was done to the workers, and one for each fault."""
        rows = []
        for name, kind in self.kinds.items():
            longest = max(kind.seconds, default=0.0)
            rows.append(
                f"{name:16} {kind.runs:4} runs  {len(kind.stuck)} stuck  {len(kind.not_replaying)} do not replay  "
                f"{len(kind.differing)} differ from their result  longest {longest:.0f} s"
            )
        rows.append("  ".join(f"{count} {name}" for name, count in sorted(self.counts.items())))
        for kind in self.kinds.values():
            rows += [*kind.stuck, *kind.not_replaying, *kind.differing, *kind.violations]
        return rows


class Storm:
    """A storm on a server; its folder gets the workers' output and the histories that do not replay.

    Attributes:
        kinds: The pipeline of each kind.
    """

    kinds: Mapping[str, Any] = KINDS

    def __init__(self, server: DevServer, folder: Path, options: Options) -> None:
        self._server = server
        self._folder = folder
        self._options = options
        self._random = random.Random(options.seed)
        self._safeguards = Safeguards.development(folder)
        self._workers: list[asyncio.subprocess.Process] = []
        self._started = 0
        self._report = Report({name: Kind() for name in self.kinds}, Counter())

    async def run(self) -> Report:
        """Start all runs, disturb the workers until they have ended, and check every history."""
        self._client = await Client.connect(
            self._server.address, plugins=[BatonPlugin(safeguards=self._safeguards)], identity="storm"
        )
        self._workers = [await self._start_worker() for _ in range(self._options.workers)]
        disturbance = asyncio.create_task(self._disturb_workers())
        try:
            semaphore = asyncio.Semaphore(self._options.at_once)
            names = [*self.kinds]
            await asyncio.gather(
                *(self._run_one(semaphore, number, names[number % len(names)]) for number in range(self._options.runs))
            )
        finally:
            disturbance.cancel()
            with suppress(asyncio.CancelledError):
                await disturbance
            for worker in self._workers:
                with suppress(ProcessLookupError):  # it ended by itself
                    worker.kill()
                await worker.wait()
        await self._check_runs()
        return self._report

    async def _start_worker(self) -> asyncio.subprocess.Process:
        """Start a worker process; every second does already what the SDK announces for its next versions."""
        command = [sys.executable, "-m", "tests.storm.worker", self._server.address, str(self._folder)]
        self._started += 1
        with (self._folder / f"worker-{self._started}.log").open("wb") as log:
            worker = await asyncio.create_subprocess_exec(
                *command,
                str(self._options.cache),
                ("now", "next")[self._started % 2],
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert worker.stdout is not None
        await worker.stdout.readline()
        return worker

    async def _disturb_workers(self) -> None:
        """Kill or stop a worker sometimes."""
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 2.5))
            index = self._random.randrange(len(self._workers))
            worker = self._workers[index]
            try:
                if self._random.random() < 0.15:
                    worker.kill()
                    await worker.wait()
                    self._count_fault("workers killed")
                    self._workers[index] = await self._start_worker()
                else:
                    worker.send_signal(signal.SIGSTOP)
                    self._count_fault("workers stopped")
                    await asyncio.sleep(self._random.uniform(0.3, 4))
                    worker.send_signal(signal.SIGCONT)
            except ProcessLookupError:  # it ended by itself, as a process of the SDK may
                self._count_fault("workers crashed")
                self._workers[index] = await self._start_worker()

    def _count_fault(self, fault: str) -> None:
        """Count a worker fault."""
        self._report.counts[fault] += 1

    async def _run_one(self, semaphore: asyncio.Semaphore, number: int, name: str) -> None:
        """Start a run, query and help it until it ends."""
        async with semaphore:
            began, id = time.monotonic(), f"{name.replace(' ', '-')}-{number}"
            handle: Handle = await self._client.start_workflow(
                self.kinds[name].run,
                PipelineInput(goal="Weather the storm"),
                id=id,
                task_queue=QUEUE,
                task_timeout=timedelta(seconds=5),
            )
            watched = [id, f"{id}-to"] if name in ("handoffs", "streams") else [id]
            tasks = [asyncio.create_task(self._query(run_id)) for run_id in (*watched, id)]
            tasks += [asyncio.ensure_future(helper(id)) for helper in self._helpers(name)]
            try:
                async with asyncio.timeout(self._options.patience):
                    await self._wait_for_end(handle)
                    for other in watched[1:]:  # it may end a little later
                        await self._client.get_workflow_handle(other).result()
            except TimeoutError:  # what is stuck is found at the end, with what it started
                self._report.counts["runs given up"] += 1
            except TemporalError as error:
                self._report.kinds[name].stuck.append(f"{id}: {error}: {error.__cause__}")
            finally:
                pending = {*tasks}
                while pending:  # the SDK turns the cancellation of an update into an error, which a helper survives
                    for task in pending:
                        task.cancel()
                    _, pending = await asyncio.wait(pending, timeout=1)
            self._report.kinds[name].seconds.append(time.monotonic() - began)

    def _helpers(self, name: str) -> list[Callable[[str], Awaitable[None]]]:
        """Return the helpers of a kind."""
        helpers = {"approvals": self._approve, "dead letters": self._edit, "external agents": self._review}
        return [helpers[name]] if name in helpers else []

    async def _wait_for_end(self, handle: Handle) -> None:
        """Return when a run has ended."""
        await handle.result()

    async def _query(self, id: str) -> None:
        """Query a run again and again."""
        handle = self._client.get_workflow_handle(id)
        while True:
            try:
                await handle.query(random.choice(_QUERIES), rpc_timeout=_SOON)
                self._report.counts["queries answered"] += 1
            except TemporalError:
                self._report.counts["queries refused"] += 1
            await asyncio.sleep(random.uniform(0, 0.05))

    async def _approve(self, id: str) -> None:
        """Approve a run's questions, by signal or by update, sometimes twice."""
        handle = self._client.get_workflow_handle(id)
        while True:
            with suppress(TemporalError, BatonError):
                asked = await handle.query(QUERY_QUESTIONS, result_type=list[Question], rpc_timeout=_SOON)
                for question in asked:
                    decision = question.answer("approve", who="ann", why="it is calm")
                    for _ in range(random.choice((1, 1, 2))):
                        if random.random() < 0.5:
                            await handle.signal(ANSWER, decision)
                        else:
                            await handle.execute_update(ANSWER, decision, rpc_timeout=_SOON)
            await asyncio.sleep(0.2)

    async def _edit(self, id: str) -> None:
        """Edit the baton of a run whose handoff waits."""
        handle = self._client.get_workflow_handle(id)
        while True:
            with suppress(TemporalError, BatonError):
                asked = await handle.query(QUERY_QUESTIONS, result_type=list[Question], rpc_timeout=_SOON)
                for question in asked:
                    data = {"patch": {"work_scope": ["src/*"]}}
                    edit = question.answer("edit", who="ann", why="it needs a scope", data=data)
                    await decide(self._client, id, edit)
            await asyncio.sleep(0.2)

    async def _review(self, id: str) -> None:
        """Act as the outside agent of a run."""
        async with self._safeguards.shared().open() as guarded:
            agents = OutsideAgents(self._client, guarded.gate)
            while True:
                with suppress(TemporalError, BatonError):
                    async for ref in agents.list_open("reviewer"):
                        if ref.workflow_id == id:
                            await agents.accept(ref, "reviewer", holder=id)
                            await agents.return_patch(ref, "reviewer", {"decision_log": ["Reviewed"]}, holder=id)
                await asyncio.sleep(0.3)

    async def _check_runs(self) -> None:
        """Replay and read every run."""
        plugin = BatonPlugin(safeguards=self._safeguards)
        async for run in self._client.list_workflows():
            name = next(name for name in self.kinds if run.id.startswith(name.replace(" ", "-")))
            kind = self._report.kinds[name]
            kind.runs += 1
            if run.status is WorkflowExecutionStatus.RUNNING:
                kind.stuck.append(f"{run.id}: still running")
            handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
            replayer = Replayer(workflows=PIPELINES, plugins=[plugin])
            history = await handle.fetch_history()
            replay = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            if replay.replay_failure is not None:
                path = self._folder / f"{run.id}-{run.run_id}.json"
                path.write_text(history.to_json(), encoding="utf-8")
                kind.not_replaying.append(f"{run.id} {run.run_id}: {replay.replay_failure} (in {path})")
            read = await read_run(self._client, run.id, run.run_id)
            if read.result is not None and read.result.baton != read.baton.to_json_object():
                kind.differing.append(f"{run.id} {run.run_id}: {read.baton} is not {read.result.baton}")
            self._check_run(kind, read)

    def _check_run(self, kind: Kind, read: RunRecord) -> None:
        """Note other violations of a run."""
