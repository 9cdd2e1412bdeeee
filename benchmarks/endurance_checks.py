"""What is counted after all troubles: from the histories, the ledgers and what the stages themselves noted."""

import asyncio
import itertools
import json
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from temporalio.client import Client

from baton import StepKind
from baton.client import ChainHead, Ledger, LedgerOptions, RunStatus, StepStatus, read_run
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import Verdict
from baton.runs.client_heads import parse_anchors
from benchmarks.endurance_fleet import Death

LEDGER_NAME = "baton"
GIVEN_UP = "its worker stopped responding"
"""Why a step was executed again whose heartbeat the server missed, in its history."""
_CONCURRENCY = 8
_EVENTS = "SELECT task_id, event_key FROM handoff_audit"


@dataclass(frozen=True)
class Execution:
    """One execution of a stage, as it noted it.

    Attributes:
        process: Where.
        begun: When it began, by `time.monotonic()`.
        is_done: Whether it came to its end.
    """

    process: int
    begun: float
    is_done: bool


Executions = Mapping[tuple[str, int, int], Sequence[Execution]]
"""The executions of each attempt of a step, by run, step and attempt, in order."""


def read_executions(file: Path) -> Executions:
    """Read what the stages noted."""
    begun: dict[tuple[Any, ...], tuple[int, float]] = {}
    done = set[tuple[Any, ...]]()
    for line in file.read_text(encoding="utf-8").splitlines():
        noted = json.loads(line)
        key = (noted["run"], noted["step"], noted["attempt"], noted["process"], noted["execution"])
        if noted["what"] == "begun":
            begun[(*key, noted["at"])] = (noted["process"], noted["at"])
        else:
            done.add(key)
    executions = defaultdict[tuple[str, int, int], list[Execution]](list)
    for (run, step, attempt, process, execution, _), (_, at) in sorted(begun.items(), key=lambda item: item[1][1]):
        is_done = (run, step, attempt, process, execution) in done
        executions[run, step, attempt].append(Execution(process, at, is_done))
    return executions


@dataclass(frozen=True)
class Repeated:
    """Executions that repeat another one of the same attempt.

    Attributes:
        interrupted: How many of them repeat one that was in flight when its worker was killed.
        unheard: How many repeat one of which the server had not heard for its heartbeat timeout, as histories say.
        faults: Each other one, in a sentence.
    """

    interrupted: int
    unheard: int
    faults: list[str]


def count_repeated(executions: Executions, deaths: Sequence[Death], given_up: Container[tuple[str, int]]) -> Repeated:
    """Count repeated executions by their reasons; ``given_up`` has run and step of those the server gave up."""
    interrupted, unheard, faults = 0, 0, []
    for (run, step, attempt), same in executions.items():
        for one, other in itertools.pairwise(same):
            if any(death.process == one.process and one.begun <= death.at <= other.begun for death in deaths):
                interrupted += 1
            elif (run, step) in given_up:
                unheard += 1
            else:
                faults.append(f"step {step} of {run}, attempt {attempt}, was executed again; its worker had not died")
    return Repeated(interrupted, unheard, faults)


@dataclass
class Counted:
    """What was found.

    Attributes:
        runs: How many runs were read.
        waiting: How many of them still wait.
        completed: How many of them ended well.
        executions: How many executions of stages there were.
        given_up: Run and step of the executions that the server gave up, as histories say.
        repeated: Which of these repeat another one.
        records: The records of each ledger.
        heads: How many heads in histories the ledgers were compared with.
        missing: How many acceptances and results of stages lack their record.
        seconds: How long each steady run took.
        faults: What is wrong, each in a sentence.
    """

    runs: int = 0
    waiting: int = 0
    completed: int = 0
    executions: int = 0
    given_up: set[tuple[str, int]] = field(default_factory=set)
    repeated: Repeated | None = None
    records: dict[str, int] = field(default_factory=dict)
    heads: int = 0
    missing: int = 0
    seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Expected:
    """What a run should be like.

    Attributes:
        stages: How many stages it has done.
        is_waiting: Whether it still waits.
    """

    stages: int
    is_waiting: bool


async def check_runs(client: Client, expected: Mapping[str, Expected], counted: Counted) -> list[ChainHead]:
    """Read every run's history: none is lost, each has done all of its stages once. Return the heads they hold."""
    turn, heads = asyncio.Semaphore(_CONCURRENCY), list[ChainHead]()

    async def check(id: str, wanted: Expected) -> None:
        async with turn:
            try:
                run = await read_run(client, id)
            except Exception as error:  # whatever it is, this run is lost
                counted.faults.append(f"run {id} is lost: {error}")
                return
        counted.runs += 1
        counted.waiting += run.status is RunStatus.RUNNING
        counted.completed += run.status is RunStatus.COMPLETED
        status = RunStatus.RUNNING if wanted.is_waiting else RunStatus.COMPLETED
        if run.status is not status:
            counted.faults.append(f"run {id} is {run.status}, not {status}: {run.failure or run.suspended}")
            return
        done = [step for step in run.steps if step.kind is StepKind.STAGE and step.status is StepStatus.DONE]
        if len(done) != wanted.stages:
            counted.faults.append(f"run {id} has done {len(done)} stages of {wanted.stages}")
        if wanted.is_waiting and len(run.questions) != 1:
            counted.faults.append(f"run {id} waits, and asks {len(run.questions)} questions")
        if run.ended and run.began and run.pipeline == "Steady":
            counted.seconds.append((run.ended - run.began).total_seconds())
        counted.given_up |= {(id, step.seq) for step in run.steps if step.retried == GIVEN_UP}
        heads.extend(parse_anchors(LEDGER_NAME, id, run.anchors))

    await asyncio.gather(*(check(id, wanted) for id, wanted in expected.items()))
    counted.heads = len(heads)
    return heads


async def check_ledgers(
    places: Mapping[str, str], keyring: Keyring, heads: Iterable[ChainHead], tasks: Mapping[str, str], counted: Counted
) -> None:
    """Verify every record of every ledger against the heads in the histories.

    Args:
        places: Where each ledger is, by name.
        keyring: The deployment's keys.
        heads: Those of all histories.
        tasks: By task, the name of its ledger.
        counted: Where what is found goes.
    """
    by_ledger = defaultdict[str, list[ChainHead]](list)
    for head in heads:
        by_ledger[tasks[head.task_id]].append(head)
    for name, where in places.items():
        place = where if where.startswith("postgresql:") else Path(where)
        async with Ledger(place, LedgerOptions(create=False)) as ledger:
            report = await ledger.verify_all(verifier=keyring.public(), anchors=by_ledger[name])
        counted.records[name] = report.records
        if report.verdict not in (Verdict.VALID, Verdict.UNANCHORED):
            findings = "; ".join(finding.reason for finding in report.findings[:5])
            counted.faults.append(f"the ledger in {name} is {report.verdict}: {findings}")


def check_records(places: Mapping[str, str], expected: Mapping[str, Expected], counted: Counted) -> None:
    """Look for the acceptance of each execution, and for the return of each stage that is done."""
    recorded = defaultdict[tuple[str, str], set[str]](set)
    for where in places.values():
        for task, key in _read_events(where):
            _, status, _, event = key.split("/", 3)
            recorded[task, status].add(event)
    for task, wanted in expected.items():
        for status in ("ACCEPTED", "RETURNED"):
            stages = len(recorded[task, status])
            if stages < wanted.stages:
                counted.missing += wanted.stages - stages
                counted.faults.append(f"run {task} has {stages} stages {status} on record of {wanted.stages}")


def _read_events(where: str) -> Sequence[tuple[Any, ...]]:
    if where.startswith("postgresql:"):
        with psycopg.connect(where) as connection:
            return connection.execute(_EVENTS).fetchall()
    with closing(sqlite3.connect(where)) as file:
        return file.execute(_EVENTS).fetchall()


@dataclass(frozen=True)
class Memory:
    """The memory of a process over the quiet time.

    Attributes:
        first: Megabytes at its begin: the median of the first tenth after a fifth, in which caches fill.
        last: Megabytes at its end, likewise.
        per_hour: Megabytes an hour: the slope of the line through all samples after that fifth.
        minutes: How long.
    """

    first: float
    last: float
    per_hour: float
    minutes: float


def memory_over(samples: Sequence[tuple[float, float]]) -> Memory | None:
    """Return how memory changed; None of fewer than ten samples."""
    used = samples[len(samples) // 5 :]
    if len(used) < 10:
        return None
    share = len(used) // 10
    first, last = (statistics.median(mb for _, mb in part) for part in (used[:share], used[-share:]))
    slope = statistics.linear_regression([at / 3_600 for at, _ in used], [mb for _, mb in used]).slope
    return Memory(first, last, slope, (used[-1][0] - used[0][0]) / 60)
