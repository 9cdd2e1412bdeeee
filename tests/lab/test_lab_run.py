"""A lab run ends with its budget, is taken up after an interruption, and runs from a packed file."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.client import Client
from temporalio.worker import Worker

from baton import ArtifactRef, MemoryArtifactStore
from baton.agents import AgentAnswer, AgentWork
from baton.client.faces import ArtifactStore
from baton.lab import BASELINE, DECISION, Cohort, LabError, LabOptions, Lane, Overrides, pack, report, run_lab
from baton.lab import client_run as hosting
from baton.testing import assert_cohort, pipeline_worker
from tests.lab.refunds import Decider, make_decide

SMALL = Lane(name="small", overrides=Overrides(model="small"))


class Counting(Decider):
    """A decider that counts its runs, and says when it has done some."""

    def __init__(self) -> None:
        super().__init__()
        self.runs, self.some = 0, asyncio.Event()

    async def run(self, work: AgentWork) -> AgentAnswer:
        self.runs += 1
        if self.runs >= 3:
            self.some.set()
        return await super().run(work)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
async def counted(sealed: Client, counting: Counting) -> AsyncIterator[Worker]:
    async with pipeline_worker(sealed, [], [make_decide(counting)]) as worker:
        yield worker


async def test_the_budget_ends_a_lab_run_cleanly(counted: Worker, cohort: Cohort, counting: Counting) -> None:
    """Eight cases cost a thousandth of a dollar each; five are paid for, and the rest is said."""
    options = LabOptions(budget_micro_usd=5_000, task_queue=counted.task_queue, parallel=2)
    results = await run_lab(counted.client, cohort, [], options)
    assert (results.spend.micro_usd, results.unrun, counting.runs) == (5_000, 3, 5)
    [baseline] = report(cohort, results)
    assert baseline.same(DECISION) == (5, 5)


async def test_an_interrupted_lab_run_is_taken_up(
    counted: Worker, cohort: Cohort, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that hosts it ends; the same call goes on where it was, and no case runs twice."""
    options = LabOptions(repeat=4, parallel=1, task_queue=counted.task_queue)
    ids: list[str] = []
    hosted = asyncio.create_task(run_lab(counted.client, cohort, [SMALL], options, started=ids.append))
    await counting.some.wait()
    hosted.cancel()
    with suppress(asyncio.CancelledError):
        await hosted
    results = await run_lab(counted.client, cohort, [SMALL], options, started=ids.append)
    assert ids == [results.workflow_id] * 2
    assert counting.runs == len(cohort.cases) * 4 * 2
    assert {len(sample.outcomes) for sample in results.samples} == {4}


async def test_a_long_lab_run_continues_as_new(
    counted: Worker, cohort: Cohort, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history stays short, and what came of its cases goes along."""
    monkeypatch.setattr("baton.lab.workflow._MAX_EVENTS", 40)
    results = await run_lab(counted.client, cohort, [SMALL], LabOptions(repeat=2, task_queue=counted.task_queue))
    runs = [run async for run in counted.client.list_workflows(f"WorkflowId = '{results.workflow_id}'")]
    assert len(runs) > 1
    assert counting.runs == len(cohort.cases) * 2 * 2
    assert {len(sample.outcomes) for sample in results.samples} == {2}


async def test_a_packed_cohort_brings_its_artifacts(cohort: Cohort, kept: ArtifactStore) -> None:
    """It runs where the store of the recorded runs is not."""
    sha = await kept.put(b"the letter of the customer")
    ref: JsonValue = ArtifactRef(id="letter", type="document", hash=sha, size=26).model_dump(mode="json")
    case = cohort.cases[0]
    case = case.model_copy(update={"given": {**case.given, "baton": {**case.given["baton"], "artifacts": [ref]}}})  # type: ignore[dict-item]
    packed, lost = await pack(cohort.with_cases([case]), kept)
    assert (list(packed.artifacts), lost) == ([sha], [])
    again, elsewhere = Cohort.from_bytes(packed.to_bytes(), "packed.json"), MemoryArtifactStore()
    await hosting.unpack(again, elsewhere)
    assert await elsewhere.get(sha) == b"the letter of the customer"
    forged = again.model_copy(update={"artifacts": {sha: "Zm9yZ2Vk"}})
    with pytest.raises(LabError, match="was changed"):
        await hosting.unpack(forged, elsewhere)


TERMS: dict[str, list[Any]] = {
    "timeout": [1e12, 0, -1],
    "heartbeat": [1e12, -1],
    "tries": [10**9, -1],
    "first": [0, 1e12],
    "factor": [0.5, 1e9],
    "longest": [1e300],
    "attempts": [0, 10**9],
    "task_queue": ["", "q" * 2_000],
}
"""By member of a case's terms, values that a file made by hand may have."""


@pytest.mark.parametrize(("member", "value"), [(name, value) for name, values in TERMS.items() for value in values])
async def test_terms_without_bounds_are_refused(cohort: Cohort, member: str, value: object) -> None:
    members = json.loads(cohort.to_bytes())
    members["cases"][2]["terms"][member] = value
    with pytest.raises(LabError, match=rf"refunds\.json.*cases\.2\.terms\.{member}"):
        Cohort.from_bytes(json.dumps(members).encode(), "refunds.json")


async def test_a_lab_run_is_not_larger_than_its_workflow_can_be(sealed: Client, cohort: Cohort) -> None:
    """Cases, runs, lanes, bytes, and an input that no stage had: each is refused before anything starts."""
    case = cohort.cases[0]
    many = [case.model_copy(update={"id": f"case-{nth}"}) for nth in range(1_001)]
    with pytest.raises(LabError, match="1,009 cases"):
        cohort.with_cases(many)
    whole = Cohort(name="many", cases=many[:1_000])
    with pytest.raises(LabError, match="11,000 runs"):
        await run_lab(sealed, whole, [], LabOptions(repeat=11))
    with pytest.raises(LabError, match="lanes"):
        await run_lab(sealed, cohort, [Lane(name=f"lane {nth}") for nth in range(20)])
    large = case.model_copy(update={"given": {**case.given, "params": {"text": "x" * 100_000}}})
    heavy = Cohort(name="heavy", cases=[large.model_copy(update={"id": f"case-{nth}"}) for nth in range(90)])
    with pytest.raises(LabError, match="bytes"):
        await run_lab(sealed, heavy)
    damaged = Cohort(name="damaged", cases=[case.model_copy(update={"given": {"stage": 3}})])
    with pytest.raises(LabError, match="'refund-1' cannot be run"):
        await run_lab(sealed, damaged)


async def test_pytest_runs_a_cohort(counted: Worker, cohort: Cohort, tmp_path: Any) -> None:
    file = tmp_path / "refunds.json"
    file.write_bytes(cohort.to_bytes())
    [baseline] = await assert_cohort(counted, file)
    assert baseline.lane == BASELINE
    with pytest.raises(AssertionError, match="refund-7 differs"):
        await assert_cohort(counted, file, candidates=[SMALL], repeat=3)
