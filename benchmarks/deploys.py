"""Deploys: code that changes while runs wait and work, and workers that are killed on the way.

A release is a file that `python -m baton.worker` serves. Each adds, renames or removes a stage of the one before. With
worker versioning every run ends on the release that it began with. Without, the newest release gets all runs:
`baton replay --last N` names those that do not fit it, which then wait, and end once a release that fits is back.
"""

import asyncio
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from baton import BatonPlugin, PipelineInput, Safeguards, WorkerParts
from baton.artifacts.store import open_store
from baton.client import Answer, RunStatus, decide, read_run
from baton.core.messages import Overview
from baton.devserver import DevServer, DevServerOptions
from baton.devserver.processes import bound_to_parent
from baton.errors import BatonError
from baton.wire.names import QUERY_STATUS
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig, production_environment

SEED = 20_261_127
QUEUE, DEPLOYMENT, APPROVAL = "deploys", "deploys", "manager"
_ROOT = Path(__file__).parents[1]
_TIMEOUT_SECONDS = 600.0
_REPORT_SETTING = "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute"
_RELEASE = '''"""Release {number}."""
import asyncio
from datetime import timedelta
from pathlib import Path

from baton import Baton, BatonPatch, Pipeline, StageContext, pipeline, stage


async def did(context: StageContext[Baton]) -> BatonPatch:
    await asyncio.sleep(float(context.params["seconds"]))
    with Path(context.params["effects"]).open("a") as file:
        file.write(f"{{context.params['run']}} {{context.given.stage}} {{context.given.seq}}\\n")
    return BatonPatch(current_state=[f"{{context.given.stage}} is done"])

{stages}

@pipeline
async def release(p: Pipeline) -> object:
    for _ in range(int(p.params["rounds"])):
        await p.stage(build)
{before}    if p.params["asks"]:
        await p.approve("manager", within=timedelta(days=1))
{after}    await p.stage(ship)
    return p.baton.current_state[0]
'''
_STAGE = """
@stage
async def {name}(context: StageContext[Baton]) -> BatonPatch:
    return await did(context)
"""


@dataclass(frozen=True)
class Scale:
    """How much goes on.

    Attributes:
        deploys: How many releases follow the first.
        runs: How many runs there are, a part of them begun under each release; every other one waits for a person.
    """

    deploys: int = 10
    runs: int = 200


@dataclass
class Outcome:
    """What became of the runs.

    Attributes:
        lost: Runs that did not end as they should, lack a stage, or ran one more often than its attempts explain.
        stuck: Runs that stand still and were not named, or did not end under any release.
        suspended: Runs that did not fit a later release, each named by `baton replay`.
        killed: How many workers were killed.
    """

    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    suspended: set[str] = field(default_factory=set)
    killed: int = 0


async def deploys(rig: Rig, effort: Effort) -> Findings:
    """Measure how many runs are lost or stuck over ten deploys, with worker versioning and without."""
    scale = Scale(deploys=2, runs=12) if effort.quick else Scale()
    rows: list[Sequence[str]] = []
    lost = stuck = 0
    for versioned in (True, False):
        folder = rig.folder / ("versioned" if versioned else "unversioned")
        folder.mkdir()
        outcome = await run_deploys(folder, scale, versioned=versioned)
        lost, stuck = lost + len(outcome.lost), stuck + len(outcome.stuck)
        counts = (outcome.killed, len(outcome.suspended), len(outcome.lost), len(outcome.stuck))
        rows.append(("with" if versioned else "without", *map(str, counts)))
        for fault in (*outcome.lost, *outcome.stuck):
            print(f"deploys: {fault}", file=sys.stderr, flush=True)
    columns = ("worker versioning", "workers killed", "suspended and named", "lost", "stuck")
    findings = Findings(f"{scale.deploys} deploys under {scale.runs} runs (seed {SEED})", columns, rows)
    findings.values.update(deploy_lost=lost, deploy_stuck=stuck)
    return findings


async def run_deploys(folder: Path, scale: Scale, *, versioned: bool) -> Outcome:
    """Deploy again and again, have all runs end, and return what became of them."""
    options = DevServerOptions(database=folder / "server.db", ui_port=None, settings={_REPORT_SETTING: 1})
    async with DevServer(options) as server:
        parts = WorkerParts(artifacts=open_store(folder / "artifacts"))
        safeguards = Safeguards.development(folder / ".baton")
        client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
        return await _Deploys(client, server.address, folder, scale, versioned=versioned).run()


class _Deploys:
    """Releases, their workers, and the runs that began under each."""

    def __init__(self, client: Client, address: str, folder: Path, scale: Scale, *, versioned: bool) -> None:
        self._client = client
        self._folder = folder
        self._scale = scale
        self._versioned = versioned
        self._random = random.Random(SEED)
        self._environment = {
            **{
                name: value
                for name, value in production_environment().items()
                if not name.startswith(("TEMPORAL_", "BATON_"))
            },
            "PYTHONPATH": str(_ROOT),
            "TEMPORAL_ADDRESS": address,
            "BATON_TASK_QUEUE": QUEUE,
            "BATON_DEPLOYMENT": DEPLOYMENT,
            "BATON_ARTIFACTS": str(folder / "artifacts"),
            "BATON_LOG_LEVEL": "ERROR",
        }
        self._workers: list[tuple[int, asyncio.subprocess.Process]] = []
        self._runs: list[WorkflowHandle[Any, Any]] = []
        self._outcome = Outcome()

    async def run(self) -> Outcome:
        """Deploy, end all runs, and look at every history."""
        try:
            for number in range(self._scale.deploys + 1):
                await self._deploy(number)
                print(f"deploys: release {number} of {self._scale.deploys}", file=sys.stderr, flush=True)
            if self._versioned:
                await self._end(self._runs)
            else:
                await self._end_under_what_fits()
        finally:
            for _, worker in self._workers:
                worker.kill()
                await worker.wait()
        await self._look()
        return self._outcome

    async def _deploy(self, number: int) -> None:
        """Put a release in place of the one before, start runs, and kill a worker while they work."""
        (self._folder / f"release_{number}.py").write_text(release(number), encoding="utf-8")
        if not self._versioned:
            await self._gate(number)
            while self._workers:  # one after the other, as a rolling deploy does; half of them without a warning
                await self._stop(0, signal.SIGKILL if len(self._workers) % 2 else signal.SIGTERM)
        self._workers += [(number, await self._started(number)) for _ in range(1 if self._versioned else 2)]
        if self._versioned:
            await self._make_current(number)
        share = range(len(self._runs), self._scale.runs * (number + 1) // (self._scale.deploys + 1))
        self._runs += [await self._start(run_number) for run_number in share]
        await asyncio.sleep(self._random.uniform(0.5, 1.5))
        index = self._random.randrange(len(self._workers))
        worker_release, _ = self._workers[index]
        await self._stop(index, signal.SIGKILL)
        self._workers.append((worker_release, await self._started(worker_release)))

    async def _start(self, number: int) -> WorkflowHandle[Any, Any]:
        """Start a run: every other one waits for a person, the others work."""
        asks = number % 2 == 0
        params = {
            "asks": asks,
            "rounds": 1 if asks else 6,
            "seconds": 0.01 if asks else 0.3,
            "run": f"run-{number}",
            "effects": str(self._folder / "effects"),
        }
        start = PipelineInput(goal="Release it", params=params)
        return await self._client.start_workflow("release", start, id=f"run-{number}", task_queue=QUEUE)

    async def _started(self, number: int) -> asyncio.subprocess.Process:
        """Return a worker of a release."""
        build = {"BATON_BUILD_ID": f"release-{number}"} if self._versioned else {}
        return await asyncio.create_subprocess_exec(
            *bound_to_parent([sys.executable, "-m", "baton.worker", f"release_{number}.py"]),
            cwd=self._folder,
            env={**self._environment, **build},
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def _stop(self, index: int, signal_number: signal.Signals) -> None:
        """End a worker."""
        _, worker = self._workers.pop(index)
        worker.send_signal(signal_number)
        await worker.wait()
        self._outcome.killed += signal_number is signal.SIGKILL

    async def _make_current(self, number: int) -> None:
        """Have new runs begin on a release, once the server has heard of it."""
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self._client.namespace, deployment_name=DEPLOYMENT, build_id=f"release-{number}"
        )
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while True:
                try:
                    await self._client.workflow_service.set_worker_deployment_current_version(request)
                except RPCError:  # its workers have not asked for work yet
                    await asyncio.sleep(0.1)
                else:
                    return

    async def _gate(self, number: int) -> set[str]:
        """Return the open runs that a release cannot continue, as `baton replay --last` names them."""
        if not self._runs:
            return set()
        last = ("--last", str(len(self._runs)), "-m", f"release_{number}")
        replay = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "baton", "replay", *last, "--json"),
            cwd=self._folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await replay.communicate()
        results = {result["source"].partition("/")[0]: result for result in json.loads(output)}
        misfits = {id for id, result in results.items() if not result["fits"]}
        unexplained = [id for id in misfits if "the code does not match" not in (results[id]["problem"] or "")]
        self._outcome.stuck += [f"{id} is refused without a reason: {results[id]['problem']}" for id in unexplained]
        open_runs = {handle.id for handle in self._runs if await self._is_open(handle)}
        self._outcome.suspended |= misfits & open_runs
        return misfits & open_runs

    async def _end_under_what_fits(self) -> None:
        """Put release after release back, newest first, until no run is left."""
        for number in reversed(range(self._scale.deploys + 1)):
            misfits = await self._gate(number)
            fitting = [run for run in self._runs if run.id not in misfits and await self._is_open(run)]
            print(
                f"deploys: {len(fitting)} runs end under release {number}, {len(misfits)} do not fit", file=sys.stderr
            )
            if fitting:
                while self._workers:
                    await self._stop(0, signal.SIGKILL)
                self._workers = [(number, await self._started(number)) for _ in range(2)]
                await self._end(fitting)

    async def _end(self, runs: Iterable[WorkflowHandle[Any, Any]]) -> None:
        """Decide what runs wait for, and have them end."""
        semaphore = asyncio.Semaphore(16)

        async def end(handle: WorkflowHandle[Any, Any]) -> None:
            try:
                async with semaphore, asyncio.timeout(_TIMEOUT_SECONDS):
                    await self._approve(handle)
                    await handle.result()
            except (TimeoutError, TemporalError) as error:
                self._outcome.stuck.append(f"{handle.id} does not end: {type(error).__name__} {error}")

        await asyncio.gather(*map(end, runs))

    async def _approve(self, handle: WorkflowHandle[Any, Any]) -> None:
        """Approve a run that asks."""
        while await self._is_open(handle):
            try:
                overview = await handle.query(QUERY_STATUS, result_type=Overview)
                if any(approval.name == APPROVAL for approval in overview.waiting_for):
                    await decide(self._client, handle.id, Answer(question=APPROVAL, choice="approve", who="ann"))
                    return
            except (TemporalError, BatonError):  # no worker has taken the run yet
                pass
            await asyncio.sleep(0.1)

    async def _is_open(self, handle: WorkflowHandle[Any, Any]) -> bool:
        status = (await handle.describe()).status
        return status is not None and status.name == "RUNNING"

    async def _look(self) -> None:
        """Compare what each run did with what its history tells."""
        lines = (self._folder / "effects").read_text(encoding="utf-8").splitlines()
        effects = Counter(lines)
        for handle in self._runs:
            run = await read_run(self._client, handle.id)
            completed = [step.name for step in run.steps if step.name != APPROVAL]
            if run.status is not RunStatus.COMPLETED or completed[-1:] != ["ship"] or completed[0] != "build":
                self._outcome.lost.append(f"{handle.id} is {run.status.value} after {completed}: {run.failure}")
            starts = await _count_starts(handle)
            for step in run.steps:
                times = effects[f"{handle.id} {step.name} {step.seq}"]
                if step.name != APPROVAL and not 1 <= times <= starts[step.seq]:
                    problem = f"ran {times} times, begun {starts[step.seq]} times"
                    self._outcome.lost.append(f"{handle.id}: step {step.seq} {step.name} {problem}")


async def _count_starts(handle: WorkflowHandle[Any, Any]) -> Counter[int]:
    """Return how often each step's stage was begun, in the order of the history."""
    steps: dict[int, int] = {}
    starts: Counter[int] = Counter()
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            summary = event.user_metadata.summary.data.decode()
            steps[event.event_id] = int(summary.split()[1].rstrip(":"))
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            starts[steps[started.scheduled_event_id]] += started.attempt
    return starts


def release(number: int) -> str:
    """Return the code of a release: of each three the first adds a stage, the second renames it, the third removes it.

    In turns that stage stands behind the approval, where runs that wait have not come yet, and before it.
    """
    cycle, phase = divmod(number, 3)
    extra = {1: [f"check_{cycle}"], 2: [f"audit_{cycle}"]}.get(phase, [])
    calls = "".join(f"    await p.stage({name})\n" for name in extra)
    stages = "".join(_STAGE.format(name=name) for name in ("build", *extra, "ship"))
    before, after = (calls, "") if cycle % 2 else ("", calls)
    return _RELEASE.format(number=number, stages=stages, before=before, after=after)
