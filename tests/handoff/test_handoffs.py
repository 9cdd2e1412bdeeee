"""Handoffs between stages on a real server: sealed, judged, put on record, and what becomes of those refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.worker import Worker

from baton import Budget, PipelineInput, PipelineResult, PipelineStatus
from baton.client import PendingHandoff, Question, RunRecord, Settled, read_run
from baton.core.messages import StageReturn
from baton.core.verdict import Code, Disposition
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.hosting.metering import count_expiring, dead_letter_age
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import ChainHead
from baton.ledger.entries import Trace
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker, run_pipeline
from baton.wire.money import to_micro_usd
from baton.wire.names import ANSWER, HANDOFF_REFUSED, QUERY_QUESTIONS
from tests.handoff.handoff_pipelines import (
    PIPELINES,
    Breaks,
    BreaksAndGoesOn,
    Elsewhere,
    FansOutSealed,
    Forgets,
    FourAgents,
    Pays,
    Replaces,
    Spends,
    Supervises,
    Undoes,
)
from tests.handoff.handoff_stages import INJECTION, STAGES
from tests.pipelines.stages import EXECUTED
from tests.support import LIMIT, Handle, failure, overview, sealing_worker, start, until, until_waiting
from tests.support.clocks import shift_clocks


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    async with sealing_worker(server, safeguards, PIPELINES, STAGES) as worker:
        yield worker


async def trace(safeguards: Safeguards, task_id: str, anchors: Sequence[ChainHead] = ()) -> Trace:
    """Return what the ledger has of a task, verified with the public keys."""
    options = LedgerOptions(create=False)
    async with Ledger(safeguards.ledger, options) as ledger:
        return await ledger.trace(task_id, verifier=safeguards.keyring.public(), anchors=anchors)


async def asked(handle: Handle) -> Question:
    """Return the question about a handoff, as soon as one is asked."""
    await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    [question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
    assert isinstance(question, Question)
    return question


async def waiting(handle: Handle) -> PendingHandoff:
    """Return the handoff that waits for a person, as soon as one does."""
    handoff = (await asked(handle)).handoff
    assert handoff is not None
    return handoff


async def resolve(handle: Handle, pending: PendingHandoff, action: str, **data: Any) -> Settled:
    question = await asked(handle)
    assert question.handoff == pending
    answer = question.answer(action, who="ann", why="I looked at it", data=data or None)
    settled: Settled = await handle.execute_update(ANSWER, answer, result_type=Settled)
    return settled


def story(task: Trace) -> list[tuple[str, str, str | None]]:
    """Return what a trace tells: kind, status and receiver of each record, completions left out."""
    return [
        (record.fields.kind, record.fields.status, record.fields.to_agent)
        for record in task.records
        if record.fields.kind != "completion"
    ]


async def check_read_back(worker: Worker, handle: Handle, safeguards: Safeguards) -> RunRecord:
    """Check that the history alone tells the same baton, and that it replays, with and without keys."""
    run = await read_run(worker.client, handle.id)
    assert run.result is not None
    assert run.baton.to_json_object() == run.result.baton
    for plugin in (BatonPlugin(safeguards=safeguards), BatonPlugin()):
        await assert_replays(handle, PIPELINES, plugin=plugin)
    return run


class TestSupervisor:
    async def test_the_way_to_its_workers_and_back_is_on_record(self, worker: Worker, safeguards: Safeguards) -> None:
        """The task begins once, each handoff follows the one before, and each worker's result is recorded."""
        run = await run_pipeline(worker, Supervises.run, PipelineInput(goal="Review the contract"))
        task = await trace(safeguards, run.result.task_id)

        sent = [record for record in task.records if record.fields.status == "ACCEPTED"]
        assert [record.fields.kind for record in sent] == ["start", *["handoff"] * 3]
        ids = [record.body["handoffId"] for record in sent]
        assert [record.body["parentHandoffId"] for record in sent] == [None, *ids[:-1]]
        back = [record for record in task.records if record.fields.to_agent == "Supervises"]
        assert [(record.fields.kind, record.fields.from_agent) for record in back] == [("completion", "Works")] * 2
        assert [record.body["output"] for record in back] == [{"scored": 1}] * 2
        assert task.report.verdict in ("valid", "valid, completeness not checked")
        await check_read_back(worker, run.handle, safeguards)

    async def test_its_own_result_completes_the_task(self, worker: Worker, safeguards: Safeguards) -> None:
        """Not the output of the last worker."""
        run = await run_pipeline(worker, Supervises.run, PipelineInput(goal="Review the contract"))
        task = await trace(safeguards, run.result.task_id)

        assert task.output["output"] == run.result.output == "both halves are reviewed"
        assert (task.records[-1].fields.from_agent, task.records[-1].fields.status) == ("Supervises", "COMPLETED")
        assert task.cost.complete
        assert task.cost.micro_usd == run.result.spend.micro_usd
        head = ChainHead.from_anchor("baton", run.result.task_id, run.record.anchors[-1])
        assert head.sequence == len(task.records), "the history holds the head of the last record"


async def fail_by_itself(client: Client, supervisor: Handle) -> str:
    """Let the worker raise, and return what its supervisor learns."""
    return "ValueError: the annex is missing"


async def cancel(client: Client, supervisor: Handle) -> str:
    await (await worker_of(client, supervisor)).cancel()
    return "CancelledError: "


async def terminate(client: Client, supervisor: Handle) -> str:
    await (await worker_of(client, supervisor)).terminate()
    return "TerminatedError: "


async def worker_of(client: Client, supervisor: Handle) -> Handle:
    """Return the worker of a supervisor, once it waits for a person after its first agent."""
    await until_waiting(supervisor, "worker")
    [(child_id, *_)] = (await read_run(client, supervisor.id)).children
    child = client.get_workflow_handle(child_id)
    await until_waiting(child, "release manager")
    return child


@pytest.mark.parametrize("end", [fail_by_itself, cancel, terminate])
class TestFailedWorker:
    async def test_its_way_back_is_on_record_and_the_next_handoff_follows(
        self, worker: Worker, safeguards: Safeguards, end: Callable[[Client, Handle], Awaitable[str]]
    ) -> None:
        """The task does not begin again: the supervisor hands on what its worker brought back."""
        supervisor = await start(worker, Replaces.run, anyway=True, waits=end is not fail_by_itself)
        why = await end(worker.client, supervisor)
        await supervisor.result()
        run = await check_read_back(worker, supervisor, safeguards)
        task = await trace(safeguards, run.start.task_id or "")

        first, _, back, second, _, third, *_ = task.records
        assert (back.fields.kind, back.fields.status) == ("completion", "FAILED")
        assert (back.fields.from_agent, back.fields.to_agent) == ("WorksInPart", "Replaces")
        assert (back.fields.details or "").startswith(why)
        assert [record.fields.kind for record in (first, second, third)] == ["start", "handoff", "handoff"]
        assert (second.body["parentHandoffId"], second.fields.from_agent) == (back.fields.event_id, "Replaces")
        assert [subtask["description"] for subtask in second.body["completedSubtasks"]] == ["failed: worker"]
        assert (third.body["parentHandoffId"], third.fields.from_agent) == (second.fields.event_id, "analyse")
        assert task.output["output"] == "reviewed by its own agents"
        assert task.report.verdict == "valid, completeness not checked"

    async def test_a_supervisor_that_fails_too_has_recorded_it(
        self, worker: Worker, safeguards: Safeguards, end: Callable[[Client, Handle], Awaitable[str]]
    ) -> None:
        """It is the last record of the task, which has no output."""
        supervisor = await start(worker, Replaces.run, waits=end is not fail_by_itself)
        why = await end(worker.client, supervisor)
        await failure(supervisor)
        run = await read_run(worker.client, supervisor.id)
        task = await trace(safeguards, run.start.task_id or "")

        back = task.records[-1].fields
        assert (back.status, back.from_agent, back.to_agent) == ("FAILED", "WorksInPart", "Replaces")
        assert (back.details or "").startswith(why)
        assert task.output is None
        head = ChainHead.from_anchor("baton", task.task_id, run.anchors[-1])
        assert head.sequence == len(task.records), "the history holds the head of the last record"
        await assert_replays(supervisor, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))


class TestFourAgents:
    async def test_three_handoffs_are_on_record(self, worker: Worker, safeguards: Safeguards) -> None:
        """Between four agents there are three handoffs, under one task (S3-13.3-a, S3-13.3-b, S3-13.2-a, C-50)."""
        run = await run_pipeline(worker, FourAgents.run, PipelineInput(goal="Review the contract"))
        task = await trace(safeguards, run.result.task_id)

        accepted = [
            record for record in task.records if (record.fields.kind, record.fields.status) == ("handoff", "ACCEPTED")
        ]
        pairs = [(record.fields.from_agent, record.fields.to_agent) for record in accepted]
        assert pairs == [("extract", "analyse"), ("analyse", "score"), ("score", "summarise")]
        assert {record.fields.task_id for record in task.records} == {run.result.task_id}
        assert {record.body["taskId"] for record in accepted} == {run.result.task_id}
        kinds = [record.fields.kind for record in task.records]
        assert kinds == ["start", "completion", *["handoff", "completion"] * 3]
        assert task.report.verdict in ("valid", "valid, completeness not checked")

    async def test_the_cost_is_what_was_spent(self, worker: Worker, safeguards: Safeguards) -> None:
        """Spent and left are the budget in each record; the agents' shares add up to the bills.

        S3-13.3-c, C-12, S3-9-a, S3-9-b, S3-13.2-d.
        """
        start = PipelineInput(goal="Review the contract", budget=Budget(initial_micro_usd=400_000))
        run = await run_pipeline(worker, FourAgents.run, start)
        task = await trace(safeguards, run.result.task_id)

        costs = [record.fields.cost for record in task.records if record.fields.cost is not None]
        assert {cost.spent_micro_usd + (cost.remaining_micro_usd or 0) for cost in costs} == {400_000}
        assert task.cost.micro_usd == run.result.spend.micro_usd == 210_000
        assert task.cost.complete
        assert {agent: to_micro_usd(amount) for agent, amount in task.cost.by_agent.items() if amount} == {
            "extract": 80_000,
            "analyse": 100_000,
            "score": 20_000,
            "summarise": 10_000,
        }
        assert task.cost.findings == ()

    async def test_each_link_names_the_one_before(self, worker: Worker, safeguards: Safeguards) -> None:
        """What each agent did follows from the handoffs: parents, traces and finished work.

        S3-2-h, S3-3.3-d, S3-6.2-c, S3-6.2-e, S3-6.2-f.
        """
        run = await run_pipeline(worker, FourAgents.run, PipelineInput(goal="Review the contract"))
        recorded = [record.body for record in (await trace(safeguards, run.result.task_id)).records]
        bodies = [body for body in recorded if "toAgent" in body]

        assert bodies[0]["parentHandoffId"] is None
        assert [body["parentHandoffId"] for body in bodies[1:]] == [body["handoffId"] for body in bodies[:-1]]
        assert {body["traceparent"][:36] for body in bodies} == {bodies[0]["traceparent"][:36]}
        done = [[subtask["subtaskId"] for subtask in body["completedSubtasks"]] for body in bodies]
        assert done == [[], ["1:extract"], ["1:extract", "2:analyse"], ["1:extract", "2:analyse", "3:score"]]
        assert bodies[2]["currentState"]["decision_log"] == ["Kept the annexes", "Liability is uncapped"]
        assert bodies[2]["constraints"] == ["scoringFramework:iso31000"]
        first = next(body for body in bodies if "Liability is uncapped" in body["currentState"]["decision_log"])
        assert first["fromAgent"]["agentId"] == "analyse", "who is to be asked, if that was wrong"
        concluded = [body["baton_patch"] for body in recorded if "baton_patch" in body]
        assert concluded == [entry.patch for entry, _ in run.record.history], "the last one's too"

    async def test_any_workflow_id_that_a_service_may_choose_is_put_on_record(
        self, worker: Worker, safeguards: Safeguards
    ) -> None:
        """Temporal takes control characters in an id, which a record's header cannot hold; the run goes on."""
        handle = await start(worker, FourAgents.run, id="contract\t7\x1b[31m")
        result = await handle.result()

        task = await trace(safeguards, result.task_id)
        workflow_ids = {record.fields.run_id.partition("/")[0] for record in task.records if record.fields.run_id}
        assert workflow_ids == {"contract\ufffd7\ufffd[31m"}

    async def test_it_costs_no_event(self, worker: Worker, server: DevServer) -> None:
        """The history is as long as without safeguards: seal, gate and record ride on the stage's own activity."""
        guarded = await run_pipeline(worker, FourAgents.run, PipelineInput(goal="Review the contract"))
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
        async with pipeline_worker(client, PIPELINES, STAGES) as plain_worker:
            plain = await run_pipeline(plain_worker, FourAgents.run, PipelineInput(goal="Review the contract"))

        assert len((await guarded.handle.fetch_history()).events) == len((await plain.handle.fetch_history()).events)

    async def test_the_history_anchors_the_ledger(self, worker: Worker, safeguards: Safeguards) -> None:
        """The heads that stages bring back are in the run's history, outside the ledger (C-26)."""
        run = await run_pipeline(worker, FourAgents.run, PipelineInput(goal="Review the contract"))
        anchors = [ChainHead.from_anchor("baton", run.result.task_id, anchor) for anchor in run.record.anchors]
        task = await trace(safeguards, run.result.task_id, anchors)

        assert [anchor.sequence for anchor in anchors] == [2, 4, 6, 8]
        assert task.report.anchored_through == 8

    async def test_branches_each_have_their_copy(self, worker: Worker, safeguards: Safeguards) -> None:
        """Each receiver of a fan-out has a whole message of its own that names all of them (S3-14.2-b, S3-14.2-c)."""
        run = await run_pipeline(worker, FansOutSealed.run, PipelineInput(goal="Review the contract"))
        bodies = [
            record.body for record in (await trace(safeguards, run.result.task_id)).records if "toAgent" in record.body
        ]

        branches = [body for body in bodies if "receiverList" in body]
        assert sorted(body["toAgent"]["agentType"] for body in branches) == ["analyse", "score"]
        assert {tuple(body["receiverList"]) for body in branches} == {("analyse", "score")}
        assert len({body["handoffId"] for body in branches}) == 2
        extracted = next(after for entry, after in run.record.history if entry.stage_id == "extract")
        assert [body["currentState"] for body in branches] == [extracted.to_json_object()] * 2
        assert bodies[-1]["fromAgent"]["agentId"] == "analyse+score"


class TestBackToSender:
    async def test_the_sender_corrects_it(self, worker: Worker, safeguards: Safeguards) -> None:
        """The sender's stage runs again with the findings, under the same handoff id.

        S3-6.1-n, C-20, S3-6.1-h, S3-2-c, S3-3.3-a; the first of the protocols of S3-2-f.
        """
        handle = await start(worker, Forgets.run)
        result = PipelineResult.model_validate(await handle.result())

        task = await trace(safeguards, result.task_id)
        about_scope = [record for record in task.records if record.fields.to_agent == "scoped"]
        assert [(record.fields.status, record.fields.reason, record.fields.attempt) for record in about_scope] == [
            ("REJECTED", "INCOMPLETE_CONTEXT", 1),
            ("ACCEPTED", None, 3),
        ]
        assert len({record.fields.event_id for record in about_scope}) == 1
        assert result.baton["current_state"] == ["Worked in clauses/*"]
        assert result.baton["decision_log"] == ["Asked to mend: 1 finding"]
        run = await check_read_back(worker, handle, safeguards)
        assert [(entry.stage_id, entry.kind) for entry, _ in run.history] == [
            ("forgetful", "stage"),
            ("forgetful", "edit"),
            ("scoped", "stage"),
        ]

    async def test_three_failures_wait_for_a_person(self, worker: Worker, safeguards: Safeguards) -> None:
        """Then the baton is as before the handoff, the task pending, the reason shown, and a person asked.

        S3-6.3-a, S3-6.3-c, S3-6.3-d, S3-6.3-e, S3-6.3-f, S3-6.3-g, S3-5.1-f, S3-13.2-b; the second of S3-2-f.
        """
        handle = await start(worker, Forgets.run, stubborn=True)
        pending = await waiting(handle)

        assert (pending.fate, pending.reason) == (Disposition.ESCALATE, Code.INCOMPLETE_CONTEXT)
        now = await overview(handle)
        assert now.status.value == "PENDING_HANDOFF"
        assert any(f"waits for a person (escalate): {pending.details}" in note for note in now.notes)
        assert "work_scope" in pending.details
        assert (await handle.query("baton"))["current_state"] == ["Prepared"]
        assert EXECUTED[handle.id, "forgetful"] == 3
        await resolve(handle, pending, "edit", patch={"work_scope": ["annex/*"]})
        result = PipelineResult.model_validate(await handle.result())

        task = await trace(safeguards, result.task_id)
        assert [event for event in story(task) if event[2] == "scoped"] == [
            *[("handoff", "REJECTED", "scoped")] * 3,
            ("rollback", "ESCALATE", "scoped"),
            ("decision", "EDIT", "scoped"),
            ("handoff", "ACCEPTED", "scoped"),
        ]
        assert [record.body["data"] for record in task.records if record.fields.kind == "decision"] == [
            {"patch": {"work_scope": ["annex/*"]}}
        ]
        assert result.baton["current_state"] == ["Worked in annex/*"]
        assert result.baton["decision_log"] == [], "its attempts in vain leave nothing"
        run = await check_read_back(worker, handle, safeguards)
        assert [(entry.stage_id, entry.by) for entry, _ in run.history] == [
            ("forgetful", None),
            ("edit", "ann"),
            ("scoped", None),
        ]


class TestDeadLetters:
    async def test_it_is_never_retried_and_waits(self, worker: Worker, safeguards: Safeguards) -> None:
        """The receiver does not run; a release is audited again with the reviewer's name.

        S3-6.1-k, S3-6.1-o, S3-11-d, S3-13.1-d, S3-7.2-j, S3-3.3-b, S3-3.1-e.
        """
        handle = await start(worker, FourAgents.run, poisoned=True)
        pending = await waiting(handle)

        assert (pending.fate, pending.reason, pending.receiver) == (
            Disposition.DEAD_LETTER,
            Code.SAFETY_VIOLATION,
            "score",
        )
        assert EXECUTED[handle.id, "score"] == 0
        assert INJECTION not in pending.model_dump_json()
        await resolve(handle, pending, "release")
        result = PipelineResult.model_validate(await handle.result())

        assert EXECUTED[handle.id, "score"] == 1
        task = await trace(safeguards, result.task_id)
        released = [record.fields for record in task.records if record.fields.to_agent == "score"]
        assert [(record.kind, record.status, record.actor) for record in released] == [
            ("handoff", "REJECTED", None),
            ("rollback", "DEAD_LETTER", None),
            ("decision", "RELEASE", "ann"),
            ("handoff", "ACCEPTED", "ann"),
        ]
        [last] = [record.fields for record in task.records if record.fields.to_agent == "summarise"]
        assert (last.status, last.actor) == ("ACCEPTED", "ann"), "the same text is not asked about twice"

    async def test_it_is_a_failed_activity(self, worker: Worker) -> None:
        """The timeline shows it red: type, code and findings are in the failure, and the details say what to do."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        pending = await waiting(handle)
        [failed] = [
            event.activity_task_failed_event_attributes.failure
            async for event in handle.fetch_history_events()
            if event.HasField("activity_task_failed_event_attributes")
        ]
        metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)

        assert failed.message.startswith("SAFETY_VIOLATION: ")
        assert failed.application_failure_info.type == HANDOFF_REFUSED
        assert failed.application_failure_info.non_retryable
        [answer] = await worker.client.data_converter.decode(
            failed.application_failure_info.details.payloads, [StageReturn]
        )
        assert (answer.verdict.reason, answer.verdict.findings) == (Code.SAFETY_VIOLATION, pending.findings)
        page = metadata.current_details
        assert "dead letter, SAFETY" in page
        assert f"until {(await asked(handle)).until:%Y-%m-%d}" in page
        assert f"`baton inbox show {handle.id}` has the commands that decide" in page
        assert "`baton show" not in page
        await resolve(handle, pending, "abandon")
        await failure(handle)

    async def test_it_can_be_abandoned(self, worker: Worker, safeguards: Safeguards) -> None:
        """Then the stage fails in the pipeline's code, with who and why."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        await resolve(handle, await waiting(handle), "abandon")

        assert "abandoned by ann: I looked at it" in await failure(handle)

    async def test_a_decision_that_does_not_fit_is_refused(self, worker: Worker) -> None:
        """A dead letter takes no money; the answer says what it takes, and nothing enters the history."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        pending = await waiting(handle)

        with pytest.raises(WorkflowUpdateFailedError) as raised:
            await resolve(handle, pending, "top_up", micro_usd=5)
        assert "does not allow 'top_up'; use release, requeue, edit, abandon" in str(raised.value.cause)
        await resolve(handle, pending, "abandon")
        await failure(handle)


class TestBudget:
    async def test_it_waits_for_a_top_up(self, worker: Worker, safeguards: Safeguards) -> None:
        """The stage does not run, a person tops up, and it runs (C-21, S3-9-c)."""
        handle = await worker.client.start_workflow(
            Spends.run,
            PipelineInput(goal="Review", budget=Budget(initial_micro_usd=200_000)),
            id=f"spends-{uuid4()}",
            task_queue=worker.task_queue,
            execution_timeout=LIMIT,
        )
        pending = await waiting(handle)
        assert (pending.fate, pending.receiver, EXECUTED[handle.id, "dear"]) == (Disposition.TOP_UP, "dear", 0)

        await resolve(handle, pending, "top_up", micro_usd=30_000)
        result = await handle.result()
        assert (result.spend.micro_usd, EXECUTED[handle.id, "dear"]) == (230_000, 1)

    async def test_without_budget_nothing_is_executed(self, worker: Worker, safeguards: Safeguards) -> None:
        """The pipeline asks for money, on record, before the handoff, and the receiver does not run.

        S3-6.1-l, S3-13.1-c: no handoff is sent that its receiver would have to refuse.
        """
        handle = await worker.client.start_workflow(
            FourAgents.run,
            PipelineInput(goal="Review", budget=Budget(initial_micro_usd=180_000)),
            id=f"spent-{uuid4()}",
            task_queue=worker.task_queue,
            execution_timeout=LIMIT,
        )
        pending = await waiting(handle)
        assert (pending.reason, pending.receiver) == (Code.BUDGET_EXHAUSTED, "score")
        assert EXECUTED[handle.id, "score"] == 0

        await resolve(handle, pending, "top_up", micro_usd=100_000)
        result = await handle.result()
        task = await trace(safeguards, result.task_id)
        assert ("rollback", "TOP_UP", "score") in story(task)
        assert [record.fields.reason for record in task.records if record.fields.kind == "rollback"] == [
            "BUDGET_EXHAUSTED"
        ]
        assert task.cost.micro_usd == 210_000
        await assert_replays(handle, PIPELINES)  # where nobody has the keys


class TestRetries:
    @pytest.mark.parametrize(
        ("raises", "bills"), [pytest.param(2, 3, id="then it succeeds"), pytest.param(3, 3, id="to the end")]
    )
    async def test_every_run_is_charged_once(self, worker: Worker, raises: int, bills: int) -> None:
        """The sum of what is charged is the sum of the bills, with retries in it (S3-11-e, S3-9-c)."""
        start = PipelineInput(goal="Pay", budget=Budget(initial_micro_usd=100_000), params={"raises": raises})
        run = await run_pipeline(worker, Pays.run, start)

        charged = run.result.billed or run.result.spend
        assert (charged.micro_usd, charged.prompt_tokens) == (bills * 7_000, bills * 10)
        assert EXECUTED[run.handle.id, "pays"] == bills


class TestReceiverFails:
    async def test_it_is_rolled_back(self, worker: Worker, safeguards: Safeguards) -> None:
        """The baton is as before, the task pending, and the roll-back on record (S3-6.3-b, S3-6.3-c, S3-6.3-e)."""
        handle = await start(worker, Breaks.run)
        pending = await waiting(handle)

        assert pending.reason is None
        assert "the model is down" in pending.details
        assert (await handle.query("baton"))["current_state"] == ["12 clauses extracted"]
        await resolve(handle, pending, "abandon")
        assert "the model is down" in await failure(handle)
        run = await read_run(worker.client, handle.id)
        task = await trace(safeguards, run.start.task_id or "")
        assert ("rollback", "PENDING_HANDOFF", "breaks") in story(task)

    @pytest.mark.parametrize("off", [timedelta(0), timedelta(days=-1), timedelta(days=1)], ids=["", "slow", "fast"])
    async def test_its_age_and_its_deadline_are_measured(
        self, worker: Worker, safeguards: Safeguards, monkeypatch: pytest.MonkeyPatch, off: timedelta
    ) -> None:
        """So that an alert comes before the deadline abandons it; also on a machine whose clock is a day off."""
        handle = await start(worker, Breaks.run)
        pending = await waiting(handle)
        address = worker.client.service_client.config.target_host
        client = await Client.connect(address, plugins=[BatonPlugin(safeguards=safeguards)])
        with monkeypatch.context() as patch:
            shift_clocks(patch, off)
            while await count_expiring(client) == 0:  # noqa: ASYNC110 - the index tells nobody
                await asyncio.sleep(0.05)
            assert timedelta(0) < await dead_letter_age(client) < timedelta(hours=1)
            assert await count_expiring(client, timedelta(0)) == 0
        await resolve(handle, pending, "abandon")
        await failure(handle)

    async def test_a_failure_that_the_code_handles_waits_for_nobody(
        self, worker: Worker, safeguards: Safeguards
    ) -> None:
        """What is on record says so, and no alert counts it as a roll-back."""
        run = await run_pipeline(worker, BreaksAndGoesOn.run, PipelineInput(goal="Review"))
        assert ("rollback", "STAGE_FAILED", "breaks") in story(await trace(safeguards, run.result.task_id))
        assert not [note for note in (await overview(run.handle)).notes if "rolled back" in note]


class TestForgery:
    async def test_a_worker_with_other_keys_refuses(
        self, server: DevServer, worker: Worker, safeguards: Safeguards, tmp_path: Path
    ) -> None:
        """A stage's worker that does not know the key accepts nothing, and says which key (S3-10.2-c, S3-13.1-e)."""
        other = Safeguards(Keyring.generate(), tmp_path / "ledger.db")
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=other)])
        async with pipeline_worker(client, [], STAGES, task_queue=f"other-{uuid4()}") as stages_only:
            queue = f"workflows-{uuid4()}"
            async with pipeline_worker(worker.client, [Elsewhere], [], task_queue=queue):
                handle = await worker.client.start_workflow(
                    Elsewhere.run,
                    PipelineInput(goal="Review", params={"queue": stages_only.task_queue}),
                    id=f"elsewhere-{uuid4()}",
                    task_queue=queue,
                    execution_timeout=LIMIT,
                )
                pending = await waiting(handle)
                assert (pending.fate, pending.reason) == (Disposition.DEAD_LETTER, Code.SIGNATURE_INVALID)
                assert EXECUTED[handle.id, "extract"] == 0
                await resolve(handle, pending, "abandon")
                await failure(handle)


class TestCompensations:
    async def test_they_are_undone_newest_first(self, worker: Worker, safeguards: Safeguards) -> None:
        """A stage failed later on: what was declared runs, one that fails is noted, and the error goes on."""
        run = await run_pipeline(worker, Undoes.run, PipelineInput(goal="Book"))

        assert [(step.name, step.status.value) for step in run.record.steps] == [
            ("extract", "done"),
            ("analyse", "done"),
            ("breaks", "failed"),
            ("score", "done"),
            ("breaks", "failed"),
            ("summarise", "done"),
        ]
        assert "the model is down" in str(run.result.output)
        await check_read_back(worker, run.handle, safeguards)
