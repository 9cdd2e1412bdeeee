"""The lab: whether it finds what a candidate changes and nothing else, and what it costs beside the stages alone."""

import gc
import random
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, Pipeline, PipelineInput, Stage, WorkerParts, pipeline
from baton.agents import AnswerForm, Notes, Price, PydanticAgent, agent_stage
from baton.artifacts.store import MemoryArtifactStore
from baton.core.messages import StageInput, StageReturn
from baton.lab import DECISION, Cohort, LabOptions, Lane, Limits, Overrides, refusals, report, run_lab
from baton.lab.client_cases import read_cases
from baton.lab.records import Outcome, Results
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig

SEED = 20_261_129
RUNS, CHANGED, REPEAT, PARALLEL = 20, 7, 3, 8
NOISE, ALARMS, TIMED_CASES = 0.05, 100, 200
_OTHER = "Decide otherwise where you are told to."


def _topic(messages: Sequence[ModelMessage]) -> int:
    text = str(messages[0])
    return int(text.partition("topic ")[2].split()[0].strip(".,:`\\'\"#*)"))


def scripted(name: str, otherwise: set[int], *tools: Any) -> Stage[Any, Any]:
    """Return the stage of an agent with a scripted model that decides otherwise for some topics, if it is told to."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if tools and len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart(tools[0].__name__, {"topic": _topic(messages)})])
        other = _OTHER in (info.instructions or "") and _topic(messages) in otherwise
        notes = Notes(decided=[f"{name} {'leaves out' if other else 'keeps'} topic {_topic(messages)}, it is scripted"])
        return ModelResponse(parts=[TextPart(f"The {name} of it.\n\n{notes.render()}")])

    model = PydanticAgent(Agent(FunctionModel(answer), name=name), price=Price(input=3, output=15))
    return agent_stage(model, answers=AnswerForm.TEXT, tools=tools, instructions="Do it well.")


def sources(topic: int) -> list[str]:
    """Return the sources on a topic."""
    return [f"topic {topic}: a record of the work", "Temporal keeps it"]


OTHERWISE = {"research": {2, 11}, "write": {3, 5, 17}, "edit": {0, 19}}
"""By agent, the topics about which the candidate decides otherwise: seven of sixty cases."""
research, write, edit = (
    scripted("research", OTHERWISE["research"], sources),
    scripted("write", OTHERWISE["write"]),
    scripted("edit", OTHERWISE["edit"]),
)
STAGES = [research, write, edit]


@pipeline
async def lab_article(p: Pipeline) -> object:
    """Research, write and edit, as in `examples/article.py`."""
    facts = await p.stage(research)
    draft = await p.stage(write, inputs={"facts": facts})
    return (await p.stage(edit, inputs={"draft": draft})).output


@workflow.defn(name="direct_stages")
class DirectStages:
    """Runs stages with given inputs, so many at once, and nothing else: the lab's work without the lab."""

    @workflow.run
    async def run(self, inputs: list[StageInput], repeat: int) -> int:
        """Run them all so often, and return how many answered."""
        import asyncio  # noqa: PLC0415 - in the sandbox

        slots = asyncio.Semaphore(PARALLEL)

        async def stage(given: StageInput) -> StageReturn:
            async with slots:
                returned: StageReturn = await workflow.execute_activity(
                    given.stage,
                    given,
                    result_type=StageReturn,
                    start_to_close_timeout=timedelta(minutes=1),
                    heartbeat_timeout=timedelta(seconds=10),
                )
                return returned

        return len(await asyncio.gather(*(stage(given) for _ in range(repeat) for given in inputs)))


async def lab(rig: Rig, effort: Effort) -> Findings:
    """Measure what the lab finds of seven changes in sixty cases, its false alarms, its time and its processor."""
    server = await rig.server()
    store = MemoryArtifactStore()
    client = await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(artifacts=store), safeguards="off")])
    rounds = 1 if effort.quick else 3
    queue = f"bench-lab-{uuid4().hex[:8]}"
    async with Worker(client, task_queue=queue, workflows=[lab_article, DirectStages], activities=STAGES):
        cohort = await record(client, queue, store)
        candidate = Lane(name="other", overrides=Overrides(instructions=_OTHER))
        results = await run_lab(client, cohort, [candidate], LabOptions(repeat=REPEAT, parallel=PARALLEL))
        found = {case.case for case in report(cohort, results)[1].differing()}
        expected = {
            case.id for case in cohort.cases if case.stage_input.params["topic"] in OTHERWISE.get(case.stage, set())
        }
        timed = larger(cohort, 30 if effort.quick else TIMED_CASES)
        ratios, seconds = [], 0.0
        for _ in range(rounds):
            direct = await direct_cpu(client, queue, timed)
            gc.collect()
            began, cpu = time.monotonic(), time.process_time()
            await run_lab(client, timed, [candidate], LabOptions(repeat=REPEAT, parallel=PARALLEL))
            seconds = max(seconds, time.monotonic() - began)
            ratios.append((time.process_time() - cpu) / direct)
    alarms = false_alarms(cohort, results)
    ratio = sorted(ratios)[len(ratios) // 2]
    findings = Findings("The lab", ["figure", "value"])
    values = {
        "lab_found": float(len(found & expected) - len(found - expected)),
        "lab_false_alarms": alarms / ALARMS,
        "lab_seconds": seconds,
        "lab_cpu_vs_direct": ratio,
    }
    findings.values.update(values)
    findings.rows.extend([name, f"{value:.2f}"] for name, value in values.items())
    return findings


async def record(client: Client, queue: str, store: MemoryArtifactStore) -> Cohort:
    """Run the articles, and return their stages as a cohort."""
    cohort = Cohort(name="articles")
    for topic in range(RUNS):
        start = PipelineInput(goal=f"Write about topic {topic} now", params={"topic": topic})
        handle = await client.start_workflow(
            "lab_article", start, id=f"lab-article-{topic}-{uuid4().hex[:6]}", task_queue=queue
        )
        await handle.result()
        cohort = cohort.with_cases(await read_cases(client, handle.id, store=store))
    return cohort


def larger(cohort: Cohort, count: int) -> Cohort:
    """Return a cohort of so many cases, the given ones again under other names."""
    cases = [cohort.cases[nth % len(cohort.cases)] for nth in range(count)]
    return Cohort(
        name="many", cases=[case.model_copy(update={"id": f"{nth}.{case.id}"}) for nth, case in enumerate(cases)]
    )


async def direct_cpu(client: Client, queue: str, cohort: Cohort) -> float:
    """Return the processor time of the cohort's stages run directly, twice as often as each lane repeats them."""
    inputs = [case.stage_input for case in cohort.cases]
    gc.collect()
    began = time.process_time()
    await client.execute_workflow(
        DirectStages.run, args=[inputs, 2 * REPEAT], id=f"direct-{uuid4().hex[:8]}", task_queue=queue
    )
    return time.process_time() - began


def false_alarms(cohort: Cohort, results: Results) -> int:
    """Return in how many of a hundred lab runs the gate refuses a candidate that differs at random in 5 % of runs.

    Their outcomes are drawn: the baseline's are those that were measured, the candidate's the same, with other
    decisions at random.
    """
    drawn, alarms = random.Random(SEED), 0
    base = {sample.case: sample.outcomes for sample in results.samples if sample.lane != "other"}
    other = Outcome(baton_patch={"decision_log": ["Another decision"]})
    for _ in range(ALARMS):
        samples = [
            sample
            if sample.lane != "other"
            else sample.model_copy(
                update={"outcomes": [other if drawn.random() < NOISE else one for one in base[sample.case]]}
            )
            for sample in results.samples
        ]
        noisy = report(cohort, results.model_copy(update={"samples": samples}))[1]
        alarms += bool(refusals(noisy, Limits({DECISION: 0.95}), cases=len(cohort.cases), repeat=REPEAT))
    return alarms
