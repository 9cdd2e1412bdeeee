"""The lab is made to send, pay, write and sign, by agents, stages, tools, activities and cohorts; it cannot."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client, Interceptor, OutboundInterceptor, StartWorkflowInput
from temporalio.worker import Worker

from baton import WorkerParts
from baton.agents import AgentAnswer, AgentWork, SubprocessAgent, agent_stage, new_notes
from baton.client import read_run
from baton.contract.records import ToolDeniedError
from baton.devserver import DevServer
from baton.errors import AgentError
from baton.handoff.store_safeguards import Safeguards
from baton.lab import BASELINE, Case, Cohort, LabError, LabOptions, Lane, Outcome, Overrides, Unrecorded, run_lab
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.lab.conftest import WatchedStore
from tests.lab.refunds import EFFECTS, make_decide, refund, transfer

DOORS = ("send", "pay", "write", "sign")


def act(door: str) -> Any:
    """Return a tool that has an effect."""

    def effect(to: str = "world") -> str:
        EFFECTS.append(f"{door} to {to}")
        return door

    effect.__name__ = door
    return effect


class Sneaky:
    """An agent that tries every door to the outside that a stage has, and says which one opened."""

    name = "sneaky"
    lab_overrides = frozenset({"model"})

    async def run(self, work: AgentWork) -> AgentAnswer:
        context, opened = work.context, []
        door = str(work.overrides.model)
        tool = next(tool for tool in work.tools if tool.name == door)
        tries: dict[str, Callable[[], Any]] = {
            "its tool": lambda: tool.call({"to": "a"}),
            "the toolbox": lambda: context.tools.call(door, act(door), "b"),
            "a guarded function": lambda: context.tools.guard(act(door))(to="c"),
        }
        for name, attempt in tries.items():
            try:
                answer = attempt()
                if hasattr(answer, "__await__"):
                    await answer
                opened.append(name)
            except ToolDeniedError:
                continue
        ref = await context.artifacts.write("report", "written in the lab", type="document")
        return AgentAnswer(output={"opened": opened, "wrote": ref.hash})


class Unknown:
    """An agent of which nothing is known."""

    name = "unknown"

    async def run(self, work: AgentWork) -> AgentAnswer:
        EFFECTS.append("ran")
        return AgentAnswer(output="ran")


class Talking:
    """An agent whose framework says what it asked and was answered, and shows people's notes."""

    name = "talking"
    lab_overrides = frozenset[str]()
    steers = True

    async def run(self, work: AgentWork) -> AgentAnswer:
        work.transcript.ask(self.name, [("user", work.user_turn())])
        work.transcript.answered("said in the lab")
        if "nothing" in work.prompt:
            raise AgentError("the model fell silent", permanent=True)
        return AgentAnswer(output=await new_notes(work))


class NoteSender(Interceptor):
    """Sends a note to the agent of the stage `talking` in each workflow that a client starts."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _NotesInMemos(next)


class _NotesInMemos(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> Any:
        target = {"seq": 1, "step": "talking", "who": "ann", "at": "2026-01-01T00:00:00Z"}
        input.memo = {"baton_notes": {"notes": [{"id": "n", "text": "pay at once", **target}]}}
        return await super().start_workflow(input)


@activity.defn(name="send_mail")
async def send_mail(message: dict[str, Any]) -> None:
    """Send a mail; a plain activity, which knows nothing of the lab."""
    EFFECTS.append("mailed")


@activity.defn(name="decide")
async def decide_elsewhere(message: Any) -> dict[str, Any]:
    """Decide without Baton, and pay at once."""
    EFFECTS.append("paid elsewhere")
    return {"stage": "decide", "seq": 1}


STAGES = [
    make_decide(),
    transfer,
    agent_stage(Sneaky(), tools=[act(door) for door in DOORS], answers=dict[str, Any], notes=False),
    agent_stage(Unknown(), answers=str, notes=False),
    agent_stage(SubprocessAgent("program", ["touch", "/tmp/lab-was-here"]), answers=str, notes=False),
    agent_stage(Talking(), answers=str, notes=False, steer=True),
    agent_stage(Talking(), name="secretive", answers=str, notes=False, steer=True, transcript="off"),
    send_mail,
]


@pytest.fixture
async def traps(sealed: Client) -> AsyncIterator[Worker]:
    """Return a worker whose stages try to act."""
    EFFECTS.clear()
    async with pipeline_worker(sealed, [refund], STAGES) as worker:
        yield worker


def as_if_of(stage: str, case: Case) -> Case:
    """Return a case changed by hand: another stage gets its input, without the contract that limits its tools."""
    given = {name: value for name, value in case.given.items() if name != "contract"}
    terms = case.terms.model_copy(update={"tries": 1})
    return case.model_copy(update={"stage": stage, "given": given, "terms": terms})


async def run_case(
    worker: Worker, case: Case, lane: Lane | None = None, *, client: Client | None = None, **options: Any
) -> Outcome:
    """Return what comes of a case in one lane on a worker."""
    cohort = Cohort(name="one", cases=[case])
    queue = LabOptions(task_queue=worker.task_queue, **options)
    results = await run_lab(client or worker.client, cohort, [lane] if lane else [], queue)
    [outcome] = results.outcomes(case.id, lane.name if lane else BASELINE)
    return outcome


@pytest.mark.parametrize("door", DOORS)
async def test_no_tool_of_an_agent_acts(traps: Worker, cohort: Cohort, kept: WatchedStore, door: str) -> None:
    case = as_if_of("sneaky", cohort.case("refund-1"))
    lane = Lane(name="try", overrides=Overrides(model=door))
    outcome = await run_case(traps, case, lane)
    assert isinstance(outcome.output, dict), outcome
    assert (outcome.output["opened"], EFFECTS) == ([], [])
    assert [call.how for call in outcome.calls] == ["refused"] * 3
    assert not await kept.has(str(outcome.output["wrote"]))


async def test_a_tool_of_a_candidate_that_the_baseline_never_called_is_refused(traps: Worker, cohort: Cohort) -> None:
    lane = Lane(name="rash", overrides=Overrides(prompt="It pays itself."))
    outcome = await run_case(traps, cohort.case("refund-1"), lane)
    assert "'pay' was called" in outcome.failure
    assert [(call.tool, call.how) for call in outcome.calls] == [("lookup", "recorded"), ("pay", "refused")]
    assert EFFECTS == []


async def test_only_tools_declared_repeatable_run_where_the_policy_is_run(traps: Worker, cohort: Cohort) -> None:
    case = cohort.case("refund-1").model_copy(update={"tool_calls": []})
    lane = Lane(name="rash", overrides=Overrides(prompt="It pays itself."))
    outcome = await run_case(traps, case, lane, unrecorded=Unrecorded.RUN)
    assert [(call.tool, call.how) for call in outcome.calls] == [("lookup", "ran"), ("pay", "refused")]
    assert EFFECTS == ["looked up 1"] * 2  # by the baseline as well


async def test_a_person_answers_a_call_that_was_not_recorded(traps: Worker, cohort: Cohort) -> None:
    case = cohort.case("refund-1").model_copy(update={"tool_calls": []})
    asking = await run_case(traps, case, unrecorded=Unrecorded.ASK)
    assert asking.asked is not None
    assert json.loads(asking.asked.shown) == {"order": 1}
    answered = case.answered(asking.asked, {"order": 1, "paid": 70, "late": True}, by="ann")
    assert (await run_case(traps, answered)).output == {"verdict": "approve", "amount": 70}
    assert EFFECTS == []


@pytest.mark.parametrize("stage", ["transfer", "unknown", "program"])
async def test_what_is_not_held_back_runs_only_by_name(traps: Worker, cohort: Cohort, stage: str) -> None:
    case = as_if_of(stage, cohort.case("refund-1"))
    refused = await run_case(traps, case)
    assert "--allow" in refused.failure
    assert EFFECTS == []
    if stage != "program":
        assert (await run_case(traps, case, allow=[stage])).failure == ""
        assert len(EFFECTS) == 1


async def test_a_cohort_cannot_name_a_plain_activity(traps: Worker, cohort: Cohort) -> None:
    """Also where somebody names it, and where it is Baton's own."""
    for name in ("send_mail", "baton.record"):
        case = as_if_of(name, cohort.case("refund-1"))
        outcome = await run_case(traps, case, allow=[name])
        assert "is not a stage" in outcome.failure, outcome
    assert EFFECTS == []


async def test_a_worker_that_does_not_know_the_lab_runs_nothing(traps: Worker, cohort: Cohort) -> None:
    """It has the stage under its own name, as one in another language or of an older build has."""
    plain = Client(traps.client.service_client, namespace=traps.client.namespace)
    async with Worker(plain, task_queue=f"plain-{uuid4().hex[:6]}", activities=[decide_elsewhere]) as elsewhere:
        outcome = await run_case(elsewhere, cohort.case("refund-1"), client=traps.client)
    assert "is not registered" in outcome.failure
    assert EFFECTS == []


async def test_the_recorded_run_and_its_chain_are_untouched(
    traps: Worker, cohort: Cohort, safeguards: Safeguards
) -> None:
    """The lab's handoffs are of a task of their own, and the recorded run gets no event."""
    case = cohort.case("refund-1")
    before = await read_run(traps.client, case.source.workflow_id)
    assert before.task_id is not None
    async with safeguards.shared().open() as guarded:
        chain = await guarded.gate.ledger.trace(before.task_id)
        await run_case(traps, case)
        assert (await guarded.gate.ledger.trace(before.task_id)).records == chain.records
    after = await read_run(traps.client, case.source.workflow_id)
    assert after.last_event == before.last_event


@pytest.fixture
async def steered(server: DevServer, safeguards: Safeguards, kept: WatchedStore) -> Client:
    """Return a client whose lab runs carry a note for the agent."""
    plugin = BatonPlugin(WorkerParts(artifacts=kept), safeguards=safeguards)
    return await Client.connect(server.address, plugins=[plugin], interceptors=[NoteSender()])


async def test_no_note_of_people_reaches_an_agent(traps: Worker, cohort: Cohort, steered: Client) -> None:
    """Not even one in the memo of the lab run, for a stage whose recorded run took notes."""
    case = as_if_of("talking", cohort.case("refund-1"))
    case = case.model_copy(update={"given": {**case.given, "steer": True}})
    outcome = await run_case(traps, case, client=steered)
    assert (outcome.failure, outcome.output) == ("", "")


@pytest.mark.parametrize("goal", ["Refund order 1", "Say nothing"])
async def test_what_agents_say_is_not_kept(traps: Worker, cohort: Cohort, kept: WatchedStore, goal: str) -> None:
    """Neither of a stage that returns nor of one that fails; the store gets the prompt only, for the side by side."""
    case = as_if_of("talking", cohort.case("refund-1"))
    baton = {**case.stage_input.baton, "goal": goal}
    case = case.model_copy(update={"given": {**case.given, "baton": baton}})
    del kept.written[:]
    outcome = await run_case(traps, case)
    assert bool(outcome.failure) == (goal == "Say nothing")
    assert outcome.prompt is not None
    assert not [data for data in kept.written if b"said in the lab" in data]
    assert [data for data in kept.written if goal.encode() in data] == [await kept.get(outcome.prompt)]


async def test_of_a_stage_without_transcripts_nothing_is_kept(
    traps: Worker, cohort: Cohort, kept: WatchedStore
) -> None:
    case = as_if_of("secretive", cohort.case("refund-1"))
    del kept.written[:]
    outcome = await run_case(traps, case)
    assert (outcome.failure, outcome.prompt) == ("", None)
    assert not [data for data in kept.written if b"Refund order 1" in data]


async def test_a_changed_cohort_is_refused(cohort: Cohort) -> None:
    changed = cohort.to_bytes().replace(b'"order":1', b'"order":2')
    with pytest.raises(LabError, match="digest"):
        Cohort.from_bytes(changed, "refunds.json")


@pytest.mark.parametrize("value", [10**400, 2**60, "\ud800"], ids=["long", "large", "surrogate"])
async def test_a_value_that_no_record_has_is_refused(cohort: Cohort, value: object) -> None:
    """As what it is, so that the pages of the other cohorts are still shown."""
    members = json.loads(cohort.to_bytes())
    members["cases"][0]["given"]["params"]["order"] = value
    with pytest.raises(LabError, match=r"refunds\.json"):
        Cohort.from_bytes(json.dumps(members).encode(), "refunds.json")
