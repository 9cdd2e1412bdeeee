"""Conversations on a real server: compressed for the next agent's window, on the pipeline's own terms."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker
from typer.testing import CliRunner

from baton import HandoffTerms, PipelineInput, PipelineResult, Spend, WorkerParts, estimate_tokens
from baton.cli.app import make_app
from baton.client import fork, read_run, roll_back
from baton.compression.rules import COMPRESS, Summariser, Summary
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.records import Kind
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import PipelineRun, assert_replays, pipeline_worker, run_pipeline
from baton.wire.money import Price
from tests.handoff.handoff_pipelines import PIPELINES, Talks
from tests.handoff.handoff_stages import STAGES
from tests.support import Handle, event, sealing_worker, start

WRITTEN = "They talked about liability."


async def _scribe(prompt: str, max_tokens: int) -> Summary:
    return Summary(text=WRITTEN, spend=Spend(micro_usd=200))


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    """Return a running worker with safeguards, and no model for summaries."""
    async with sealing_worker(server, safeguards, PIPELINES, STAGES) as worker:
        yield worker


@pytest.fixture(scope="module")
async def scribes(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    """Return a running worker with a cheap model for summaries."""
    price = Price(input=Decimal("0.01"), output=Decimal("0.01"))
    parts = WorkerParts(summariser=Summariser(_scribe, price))
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        yield worker


async def received_handoff(run: PipelineRun, safeguards: Safeguards) -> dict[str, Any]:
    """Return the message that the listener accepted, as the ledger has it."""
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        records = (await ledger.trace(run.result.task_id)).records
    [body] = [record.body for record in records if record.fields.to_agent == "listen"]
    return dict(body)


class TestConversation:
    async def test_it_is_compressed_first(self, worker: Worker, safeguards: Safeguards) -> None:
        """What was decided is still there, the newest turns word for word, and all of it under the threshold.

        S3-6.4-a, S3-6.4-g, S3-13.2-c, S3-3.1-c; the third of S3-2-f.
        """
        run = await run_pipeline(worker, Talks.run, PipelineInput(goal="Talk"))
        output = run.result.output
        assert isinstance(output, dict)
        summary = str(output["summary"])
        assert "liability is capped at 250,000 EUR" in summary
        assert output["turns"] == 5
        assert summary.endswith("[Full history compressed — last 5 turns verbatim below]")

        body = await received_handoff(run, safeguards)
        assert estimate_tokens(json.dumps(body)) <= 0.8 * 6_000
        assert body["conversationHistorySummary"] == summary
        for plugin in (BatonPlugin(safeguards=safeguards), BatonPlugin()):
            await assert_replays(run.handle, PIPELINES, plugin=plugin)

    async def test_who_goes_back_to_the_listener_goes_back_before_that(self, worker: Worker) -> None:
        """The handoff was made before, and its receiver refuses another message under its id as a forgery."""
        run = await run_pipeline(worker, Talks.run, PipelineInput(goal="Talk"))
        await roll_back(worker.client, run.handle.id, "listen", by="ann", why="once more")

        handle: Handle = worker.client.get_workflow_handle(run.handle.id, result_type=PipelineResult)
        assert (await handle.result()).output == run.result.output

    async def test_when_and_how_far_is_the_pipelines_to_say(self, worker: Worker, safeguards: Safeguards) -> None:
        """Another share of the window, and another number of turns word for word (S3-6.4-a, S3-6.4-e, S3-11-c)."""
        terms: Any = {"compress_above": 0.35, "verbatim_turns": 1}  # two have room
        run = await run_pipeline(worker, Talks.run, PipelineInput(goal="Talk", params={"terms": terms}))

        body = await received_handoff(run, safeguards)
        assert estimate_tokens(json.dumps(body)) <= 0.35 * 6_000
        assert len(body["conversationHistoryVerbatim"]) == 1
        assert body["conversationHistorySummary"].endswith("— last 1 turns verbatim below]")

    async def test_a_log_of_numbers_gives_way_to_an_artifact(self, worker: Worker, safeguards: Safeguards) -> None:
        """The summary names it; the agent and an operator open it, in a fork too (C-19, S3-11-c)."""
        run = await run_pipeline(worker, Talks.run, PipelineInput(goal="Talk", params={"log": 1_500}))
        record = await read_run(worker.client, run.handle.id)
        [ref] = record.artifacts
        output = run.result.output
        assert isinstance(output, dict)
        assert f"lines with numbers left out; the whole is artifact '{ref.id}' …]" in str(output["summary"])
        assert str(output[ref.id]).startswith("(turn 1, tool)\nuser aaa signed in after 0 ms\nuser aab")
        step = (await received_handoff(run, safeguards))["step"]
        assert [entry["hash"] for entry in step["older"]] == [ref.hash]
        shown = await asyncio.to_thread(
            CliRunner().invoke,
            make_app(),
            ["artifact", "cat", run.handle.id, ref.id],
            env={"TEMPORAL_ADDRESS": worker.client.service_client.config.target_host},
        )
        assert "user ccf signed in after 1409 ms\n" in shown.output
        await assert_replays(run.handle, PIPELINES)

        forked = await fork(worker.client, run.handle.id, "listen", by="ann", why="once more")
        handle: Handle = worker.client.get_workflow_handle(forked.id, result_type=PipelineResult)
        assert (await handle.result()).output == output


async def _slow(prompt: str, max_tokens: int) -> Summary:
    """Summarise, once the server has heard of the work twice."""
    handle = activity.client().get_workflow_handle(str(activity.info().workflow_id))
    heard_turns: set[int] = set()
    while len(heard_turns) < 2:
        [pending] = (await handle.describe()).raw_description.pending_activities
        heard_turns.add(pending.last_heartbeat_time.ToNanoseconds())
        await asyncio.sleep(0.05)
    return await _scribe(prompt, max_tokens)


async def test_a_model_that_takes_its_time_is_known_to_be_at_work(server: DevServer, safeguards: Safeguards) -> None:
    """So a worker that dies meanwhile is missed after seconds, as with a stage."""
    parts = WorkerParts(summariser=Summariser(_slow, Price(input=Decimal("0.01"), output=Decimal("0.01"))))
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        run = await run_pipeline(worker, Talks.run, PipelineInput(goal="Talk"))

    assert isinstance(run.result.output, dict)
    assert str(run.result.output["summary"]).startswith(WRITTEN)
    [limit] = [
        scheduled.heartbeat_timeout.ToTimedelta()
        for event in (await run.handle.fetch_history()).events
        if (scheduled := event.activity_task_scheduled_event_attributes).activity_type.name == COMPRESS
    ]
    assert limit == timedelta(seconds=10)


async def _endless(prompt: str, max_tokens: int) -> Summary:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def test_a_run_that_is_cancelled_meanwhile_has_not_failed(server: DevServer, safeguards: Safeguards) -> None:
    """Its code is told that it was cancelled, and not that a stage failed, after which it could go on."""
    parts = WorkerParts(summariser=Summariser(_endless, Price(input=Decimal("0.01"), output=Decimal("0.01"))))
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        handle = await start(worker, Talks.run)
        await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, 2)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()

    assert isinstance(raised.value.cause, CancelledError)
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_summary_is_on_record_with_its_attempt(scribes: Worker, safeguards: Safeguards) -> None:
    """That of the handoff for which it was made."""
    run = await run_pipeline(scribes, Talks.run, PipelineInput(goal="Talk"))

    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        headers = (await ledger.trace(run.result.task_id)).headers
    [summary] = [header for header in headers if header.kind == Kind.SUMMARY]
    assert [(header.event_id, header.attempt) for header in headers if header.to_agent == "listen"] == [
        (summary.event_id, 1)
    ] * 2


class TestUpstream:
    """What the call cost whose conversation is compressed: a model's summary costs under 5 % of it (S3-9-d)."""

    @pytest.mark.parametrize("events", [pytest.param(3_200, id="one run"), pytest.param(4, id="continued as new")])
    async def test_the_conversation_survives_every_continuation(self, scribes: Worker, events: int) -> None:
        """In the next run as in the same one; 5 % of nothing would be too dear for every model (S3-9-d)."""
        start = PipelineInput(goal="Talk", params={"events": events, "pause": 1.5})
        run = await run_pipeline(scribes, Talks.run, start)

        assert (run.record.start.continued > 0) == (events == 4)
        assert isinstance(run.result.output, dict)
        assert str(run.result.output["summary"]).startswith(WRITTEN)

    async def test_a_fork_knows_it(self, scribes: Worker) -> None:
        """No stage may have worked in it when one listens; the model writes there as well (S3-9-d)."""
        run = await run_pipeline(scribes, Talks.run, PipelineInput(goal="Talk", params={"pause": 0.01}))

        forked = await fork(scribes.client, run.record.workflow_id, "sleep", by="ann", why="listen again")

        assert str((await forked.result())["output"]["summary"]).startswith(WRITTEN)


class TestTerms:
    @pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan")])
    def test_a_share_that_is_none_is_refused(self, share: float) -> None:
        """Where it is written, and with what it should be."""
        with pytest.raises(ValueError, match="give a share of the window: above 0, at most 1"):
            HandoffTerms(compress_above=share)

    def test_the_newest_turn_always_stays(self) -> None:
        """No conversation is all summary."""
        with pytest.raises(ValueError, match="verbatim_turns is 0; the newest turn always stays"):
            HandoffTerms(verbatim_turns=0)
