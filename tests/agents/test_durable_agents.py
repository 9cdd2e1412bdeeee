"""Fine-grained durable agents on a real server."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker
from typer.testing import CliRunner

from baton import ArtifactRef, MemoryArtifactStore, WorkerParts
from baton.agents.port import HANDOFF_HEADER
from baton.agents.pydantic_ai_durable import DurableAgent, DurableAgentsPlugin
from baton.cli.app import make_app
from baton.client import read_run
from baton.client.faces import explain_in
from baton.contract.records import TOOL_DENIED
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.report.rendering import render_for_agent
from baton.testing import assert_replays, assert_replays_folder, pipeline_worker, run_pipeline
from baton.wire.json_values import digest
from tests.agents.durable_agents import (
    DURABLE_PIPELINES,
    DURABLE_STAGES,
    HEADERS,
    KEY,
    NOTED,
    REQUESTS,
    TYPED,
    Delegates,
    Thinks,
    ThinksLong,
)
from tests.report.report_material import report
from tests.support import Handle, event, failure, start
from tests.support.surfaces import assert_not_seen, assert_seen, surfaces_of

PAGES = "".join(f"{place:<10}" for place in range(0, 40_000, 10))
"""A text that is larger than the window of an agent that reads."""


@pytest.fixture(scope="module")
def store() -> MemoryArtifactStore:
    """Return the worker's artifact store."""
    return MemoryArtifactStore()


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards, store: MemoryArtifactStore) -> AsyncIterator[Worker]:
    """Return a worker that runs the durable agents, sealed."""
    baton = BatonPlugin(WorkerParts(artifacts=store), safeguards=safeguards)
    client = await Client.connect(server.address, plugins=[baton, DurableAgentsPlugin()])
    async with pipeline_worker(client, DURABLE_PIPELINES, DURABLE_STAGES) as worker:
        REQUESTS.clear()
        yield worker


async def activities(handle: Handle) -> list[str]:
    """Return the activities that a run scheduled, in order."""
    events = (await handle.fetch_history()).events
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


class TestDurableAgent:
    async def test_each_request_and_each_tool_call_is_an_activity(self, worker: Worker, tmp_path: Path) -> None:
        """A lost worker costs what was under way, and the history replays."""
        handle = await start(worker, Thinks.run)
        result = await handle.result()
        names = await activities(handle)

        assert result.baton["decision_log"] == ["Ask the customer"]
        assert [names[0], names[-1]] == ["looks", "looks.answer"]
        assert len([name for name in names if "model_request" in name]) == 2
        assert len([name for name in names if "call_tool" in name]) == 1
        await assert_replays(handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])
        (tmp_path / "looks.json").write_text((await handle.fetch_history()).to_json())
        assert await assert_replays_folder(tmp_path, DURABLE_PIPELINES, further=[DurableAgentsPlugin()]) == 1

    async def test_repeated_ids_of_its_tool_calls_are_made_unique(self, worker: Worker) -> None:
        """The framework would refuse them, and each retry would pay the model again."""
        REQUESTS.clear()
        result = await run_pipeline(worker, Thinks.run, PipelineInput(goal="Plan", params={"agent": "twins"}))

        returned = [part for message in REQUESTS[-1] for part in message.parts if isinstance(part, ToolReturnPart)]
        assert [part.tool_call_id for part in returned] == ["x", "x_2"]
        await assert_replays(result.handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])

    async def test_baton_replay_loads_its_pipeline_as_the_worker_does(self, worker: Worker, tmp_path: Path) -> None:
        """With the plugin of such agents, which the pipeline's module has loaded."""
        handle = await start(worker, Thinks.run)
        await handle.result()
        (tmp_path / "looks.json").write_text((await handle.fetch_history()).to_json())
        words = ["replay", str(tmp_path / "looks.json"), "-m", Thinks.__module__]
        root = ["--path", str(Path(__file__).parents[2])]
        result = await asyncio.to_thread(CliRunner().invoke, make_app(), [*words, *root])

        assert (result.exit_code, "✓" in result.output) == (0, True), result.output

    async def test_its_output_has_a_type_and_notes_beside_it(self, worker: Worker) -> None:
        """An output that does not fit goes back to the model; what the type writes is the stage's output."""
        start = PipelineInput(goal="Plan", params={"agent": "typed"})
        run = await run_pipeline(worker, Thinks.run, start)

        assert run.result.output == {"customer": "c-1", "pays": 20, "owes": 0}
        assert run.baton.decision_log == TYPED["decided"]
        step = run.record.state.outcomes[-1]
        assert [event["type"] for event in step.events] == ["assistant_message", "decision", "brainstorm"]
        await assert_replays(run.handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])

    async def test_its_own_output_type_is_kept(self, worker: Worker) -> None:
        """The same output, which has no room for notes."""
        run = await run_pipeline(worker, Thinks.run, PipelineInput(goal="Plan", params={"agent": "owns"}))

        assert run.result.output == {"customer": "c-1", "pays": 20, "owes": 0}
        assert [entry.warnings for entry in run.record.state.entries][-1] == ["left no reasons"]
        await assert_replays(run.handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])

    async def test_it_notes_by_tools_beside_its_own(self, worker: Worker) -> None:
        """In workflow code: no request and no activity more; what it said beside them stays with it."""
        REQUESTS.clear()
        run = await run_pipeline(worker, Thinks.run, PipelineInput(goal="Plan", params={"agent": "notes"}))

        assert len(REQUESTS) == 2
        assert len([name for name in await activities(run.handle) if "call_tool" in name]) == 1
        assert run.baton.decision_log == ["Ask the customer", "Offer 10 %"]
        assert run.baton.current_state == ["Found out"]
        step = run.record.state.outcomes[-1]
        kinds = ["assistant_message", "tool_call", "tool_result", "decision", "rejected_assumption", "brainstorm"]
        assert [event["type"] for event in step.events] == kinds
        await assert_replays(run.handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])

    async def test_it_writes_a_text_and_is_asked_again_for_notes_that_are_required(self, worker: Worker) -> None:
        """The block of notes is no part of the output, and no thought crosses."""
        REQUESTS.clear()
        result = await (await start(worker, Thinks.run, agent="writing")).result()

        assert result.output == "Batons travel."
        assert result.baton["decision_log"] == NOTED.decided
        assert "Perhaps a poem?" not in str(result.baton)
        assert len(REQUESTS) == 2

    async def test_its_report_becomes_a_patch_once_it_is_one(self, worker: Worker) -> None:
        """A text that is no report goes back to the model in the same conversation."""
        REQUESTS.clear()
        result = await (await start(worker, Thinks.run, agent="reporting")).result()

        assert "It is old." in str(result.baton["current_state"])
        assert len(REQUESTS) == 2

    async def test_its_inputs_stand_in_its_prompt(self, worker: Worker) -> None:
        """Whole, under their names, as those of any stage (issue 33)."""
        REQUESTS.clear()
        start = PipelineInput(goal="Plan", inputs={"draft": "Batons travel."})
        result = await run_pipeline(worker, Thinks.run, start)

        prompt = str(getattr(REQUESTS[0][0].parts[-1], "content", ""))
        assert "Batons travel." in prompt.partition("Input `draft`:")[2]
        await assert_replays(result.handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])

    async def test_it_reads_the_rest_of_a_truncated_input(self, worker: Worker, store: MemoryArtifactStore) -> None:
        """A text and an artifact, page by page; what its handoff does not name is refused to the model (issue 33)."""
        REQUESTS.clear()
        ref = ArtifactRef(id="notes-1", type="notes", hash=await store.put(PAGES.encode()), size=len(PAGES))
        start = PipelineInput(goal="Plan", params={"agent": "reads"}, inputs={"draft": PAGES, "notes": ref})
        result = await run_pipeline(worker, Thinks.run, start)

        prompt = str(getattr(REQUESTS[0][0].parts[-1], "content", ""))
        assert prompt.count("of 40,000 characters; read the rest with `read_artifact`") == 2
        draft, notes, secret = [getattr(part, "content", None) for part in REQUESTS[1][-1].parts]
        page = {"characters": 40_000, "offset": 20_000, "text": PAGES[20_000:36_000], "next": 36_000}
        assert draft == {"id": "draft", "characters": 40_000, "offset": 30_000, "text": "30000", "next": 30_005}
        assert notes == {"id": "notes", **page}
        assert secret == {"error": "no artifact 'secret' is named in your handoff; named are: 'draft', 'notes'"}
        assert (await activities(result.handle)).count("baton.read_artifact") == 1  # the text is in the run already
        run = await read_run(worker.client, result.handle.id)
        events = [event for outcome in run.state.outcomes for event in outcome.events]
        # Pages are noted, and are no facts for the next stages; an error is not.
        assert [event["type"] for event in events] == ["assistant_message", "internal_note", "internal_note"]
        await assert_replays(result.handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])

    async def test_it_reads_reports_as_its_prompt_shows_them(self, worker: Worker) -> None:
        """That of the step before, and an input that is one: offsets in both are those of the Markdown."""
        REQUESTS.clear()
        draft = report(sender="drafter").to_json_object()
        start = PipelineInput(goal="Plan", params={"agent": "studies"}, inputs={"draft": draft})
        result = await run_pipeline(worker, Thinks.run, start)

        prompt = str(getattr(REQUESTS[0][0].parts[-1], "content", ""))
        pages = [getattr(part, "content", None) for part in REQUESTS[1][-1].parts]
        assert [page and (page["id"], page["text"]) for page in pages] == [
            ("handoff_report", "Agent Handoff R"),
            ("draft", "Agent Handoff R"),
        ]
        assert pages[1]
        assert pages[1]["characters"] == len(render_for_agent(report(sender="drafter")))
        assert prompt.count("## Agent Handoff R") == 2
        await assert_replays(result.handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])

    async def test_an_agent_without_read_permission_is_not_offered_reading(self, worker: Worker) -> None:
        """And its call is denied."""
        REQUESTS.clear()
        start = PipelineInput(goal="Plan", params={"agent": "may_not_read"}, inputs={"draft": PAGES})
        handle = await worker.client.start_workflow(
            Thinks.run, start, id=f"may-not-read-{uuid.uuid4()}", task_queue=worker.task_queue
        )

        assert TOOL_DENIED in await failure(handle)
        prompt = str(getattr(REQUESTS[0][0].parts[-1], "content", ""))
        assert "of 40,000 characters; the rest is not shown" in prompt
        assert "baton.read_artifact" not in await activities(handle)

    async def test_its_session_is_on_record_and_its_bill_is_paid(self, worker: Worker) -> None:
        """Tool results with the time of retrieval, what the model said, what it used (S5-compiler-h, S5-fm-b)."""
        handle = await start(worker, Thinks.run)
        await handle.result()
        run = await read_run(worker.client, handle.id)
        events = [event for outcome in run.state.outcomes for event in outcome.events]

        assert [event["type"] for event in events] == ["assistant_message", "tool_call", "tool_result"]
        assert (events[1]["ref"], events[2]["callId"]) == (digest({"customer": "c-1"}), events[1]["id"])
        assert str(events[1]["timestamp"]) <= str(events[2]["timestamp"])
        assert events[2]["content"] == "c-1 pays 20 USD"
        spend = run.state.spend
        assert spend.prompt_tokens > 0
        assert spend.micro_usd == spend.prompt_tokens + 10 * spend.completion_tokens
        assert explain_in(run, "looks").contract["allowedTools"] == ["lookup"]

    async def test_each_request_names_the_handoff(self, worker: Worker) -> None:
        """Beside the headers of the agent's own (S5-fields-a)."""
        HEADERS.clear()
        handle = await start(worker, Thinks.run)
        await handle.result()
        run = await read_run(worker.client, handle.id)
        contract = explain_in(run, "looks").contract

        named = {"X-Gateway": "house", HANDOFF_HEADER: contract["handoffId"]}
        assert [named, named] == HEADERS

    async def test_a_forbidden_tool_does_not_run(self, worker: Worker) -> None:
        """The check is in workflow code, before an activity is scheduled (S5-fields-k)."""
        handle = await start(worker, Thinks.run, agent="sends")

        assert TOOL_DENIED in await failure(handle)
        assert not [name for name in await activities(handle) if "call_tool" in name]

    async def test_a_denied_call_is_in_the_ledger(self, worker: Worker, safeguards: Safeguards) -> None:
        """Under the handoff that the agent had accepted, and its request is on the bill (S5-fields-a, S5-prob-h)."""
        handle = await start(worker, Thinks.run, agent="sends")
        await failure(handle)
        run = await read_run(worker.client, handle.id)
        async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
            trace = await ledger.trace(run.start.task_id or "")
        records = trace.records
        accepted = {
            record.fields.to_agent: record.fields.event_id for record in records if record.fields.status == "ACCEPTED"
        }
        (denial,) = [record for record in records if record.fields.kind == "denial"]

        assert denial.body == {"tool": "send", "handoffId": accepted["sends"]}
        assert run.state.spend.prompt_tokens > 0

    async def test_a_run_that_failed_is_on_the_bill(self, worker: Worker) -> None:
        """With what it did until then; the reason is its own."""
        handle = await start(worker, Thinks.run, agent="limited")

        assert "reached a limit of its run" in await failure(handle)
        run = await read_run(worker.client, handle.id)
        assert run.state.spend.prompt_tokens > 0
        assert [event["type"] for outcome in run.state.outcomes for event in outcome.events][-1] == "tool_result"

    async def test_an_answer_that_does_not_fit_is_corrected_in_the_same_conversation(self, worker: Worker) -> None:
        """The model is told what is wrong; the stage that puts the answer on record is not sent out in vain."""
        handle = await start(worker, Thinks.run, agent="errs")
        result = await handle.result()
        names = await activities(handle)

        assert result.baton["decision_log"] == ["Ask the customer"]
        assert [name for name in names if name.startswith("errs")] == ["errs", "errs.answer"]
        assert len([name for name in names if "model_request" in name]) == 2

    async def test_an_answer_that_the_pipeline_refuses_is_charged_once(self, worker: Worker) -> None:
        """The same answer would be refused again."""
        handle = await start(worker, Thinks.run, agent="overdoes")

        assert "overdoes.answer" in await failure(handle)
        names = await activities(handle)
        assert names.count("overdoes.answer") == 1

    @pytest.mark.parametrize(
        ("agent", "under_way"),
        [
            pytest.param("stopped", 3, id="in a call"),
            pytest.param("ponders", 4, id="in a request"),
        ],
    )
    async def test_a_run_that_is_cancelled_is_on_the_bill(self, worker: Worker, agent: str, under_way: int) -> None:
        """With what it used until then, and it ends as cancelled and not as failed."""
        handle = await start(worker, Thinks.run, agent=agent)
        await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, under_way)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()

        assert isinstance(ended.value.cause, CancelledError)
        run = await read_run(worker.client, handle.id)
        assert run.state.spend.prompt_tokens > 0
        assert [event["type"] for outcome in run.state.outcomes for event in outcome.events][:2] == [
            "assistant_message",
            "tool_call",
        ]
        await assert_replays(handle, DURABLE_PIPELINES, further=[DurableAgentsPlugin()])

    @pytest.mark.parametrize(
        ("agent", "seconds"), [pytest.param("waits", 1, id="in a call"), pytest.param("hurries", 2, id="in a request")]
    )
    async def test_a_run_keeps_the_time_of_its_limits(self, worker: Worker, agent: str, seconds: int) -> None:
        """And what it did until then is on the bill."""
        handle = await start(worker, Thinks.run, agent=agent)

        assert f"did not finish within {seconds} s" in await failure(handle)
        run = await read_run(worker.client, handle.id)
        assert run.state.spend.prompt_tokens > 0

    async def test_a_providers_own_words_stay_out_of_the_history(self, worker: Worker) -> None:
        """They may repeat a key; status and kind are told."""
        handle = await start(worker, Thinks.run, agent="refused")

        assert "agent 'refused': the provider of 'house-1' answered 401" in await failure(handle)
        surfaces = await surfaces_of(worker.client, handle.id)
        assert_not_seen(KEY, surfaces)
        assert_seen("answered 401", surfaces)

    async def test_an_unreadable_answer_is_reported_without_its_text(self, worker: Worker) -> None:
        """The framework's own text of it quotes the answer, and the activity's says only that it failed."""
        handle = await start(worker, Thinks.run, agent="garbled")

        assert "agent 'garbled': the provider's answer cannot be read" in await failure(handle)
        assert_not_seen(KEY, await surfaces_of(worker.client, handle.id))

    @pytest.mark.parametrize(
        ("agent", "message"),
        [
            pytest.param("filtered", "the model refused to answer, or its provider's content filter", id="a filter"),
            pytest.param("empty", r"the provider's answer cannot be read \(IndexError\)", id="no choices"),
        ],
    )
    async def test_a_failed_request_is_reported_without_the_providers_text(
        self, worker: Worker, agent: str, message: str
    ) -> None:
        """Also where the framework makes an error of its own of it, with the provider's words in it."""
        handle = await start(worker, Thinks.run, agent=agent)

        assert re.search(rf"agent '{agent}': {message}", await failure(handle))
        assert_not_seen(KEY, await surfaces_of(worker.client, handle.id))

    @pytest.mark.parametrize(
        ("agent", "message"),
        [
            pytest.param("refuses", "agent 'refuses': the model refused to answer", id="a refusal"),
            pytest.param("long", "the answer was cut off at the most tokens", id="cut off"),
        ],
    )
    async def test_a_cut_off_answer_is_not_requested_again(self, worker: Worker, agent: str, message: str) -> None:
        """The framework would only say that it is no call of the answer's tool, and pay again."""
        handle = await start(worker, Thinks.run, agent=agent)

        assert message in await failure(handle)
        assert len([name for name in await activities(handle) if "model_request" in name]) == 1

    async def test_a_tool_that_fails_for_good_is_named_with_its_reason(self, worker: Worker) -> None:
        """And not only that an activity failed."""
        handle = await start(worker, Thinks.run, agent="breaks")

        message = await failure(handle)
        assert "agent 'breaks'" in message
        assert "call_tool: RuntimeError: the register is down" in message

    async def test_half_a_character_fails_the_run(self, worker: Worker) -> None:
        """Temporal could not store it, and would run the tool or the request again without end."""
        handle = await start(worker, Thinks.run, agent="halves")

        assert "agent 'halves': a model or tool returned what cannot be stored" in await failure(handle)

    async def test_a_run_that_continues_as_new_keeps_the_answer(self, worker: Worker) -> None:
        """It continued before the answer was on record, and thought again, and continued again, without an end."""
        handle = await start(worker, ThinksLong.run)
        request_count = len(REQUESTS)
        result = await asyncio.wait_for(handle.result(), 60)

        assert result.output == {"runs": 1}
        assert len(REQUESTS) - request_count == 4

    async def test_another_pipeline_has_it_as_a_child(self, worker: Worker) -> None:
        """What it decided is in the parent's baton."""
        result = await (await start(worker, Delegates.run)).result()

        assert result.baton["decision_log"] == ["Ask the customer"]

    def test_an_agent_without_the_capability_is_refused(self) -> None:
        """Where it is made."""
        with pytest.raises(ValueError, match="TemporalDurability"):
            DurableAgent(Agent(name="plain"))
