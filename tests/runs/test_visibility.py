"""What Temporal's UI shows: lists, summaries, and the details of a run."""

import asyncio
import uuid

import pytest
from markdown_it import MarkdownIt
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecution
from temporalio.worker import Worker

from baton.client import read_run
from baton.core.messages import PipelineInput
from baton.testing import run_pipeline
from baton.wire.names import ANSWER
from tests.pipelines.pipelines import Announced, Gated, Linear, Parent
from tests.support import GOAL, Handle, approve, failure, start, until, until_waiting


async def wait_until_found(client: Client, query: str) -> WorkflowExecution:
    """Wait until a search finds a run; the test's timeout bounds the wait."""
    while True:
        async for run in client.list_workflows(query, limit=1):
            return run
        await asyncio.sleep(0.05)


async def search_attributes(handle: Handle) -> dict[str, object]:
    description = await handle.describe()
    return {pair.key.name: pair.value for pair in description.typed_search_attributes}


async def page(handle: Handle) -> str:
    """Return the run's current details, as the UI shows them."""
    metadata = await handle.query("__temporal_workflow_metadata")
    return str(metadata.current_details)


class TestSearch:
    async def test_a_run_that_waits_for_a_person_is_found_by_status_and_stage(
        self, client: Client, worker: Worker
    ) -> None:
        """The list of runs that wait for people is one query (S2-when-d)."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")

        query = f"BatonStatus='WAITING' and BatonStage='release manager' and WorkflowId='{handle.id}'"
        assert (await wait_until_found(client, query)).id == handle.id
        await approve(client, handle)
        await handle.result()
        assert "BatonStatus" not in await search_attributes(handle), "how it ended, Temporal's own status says"

    async def test_a_failed_run_is_searchable_as_failed(self, worker: Worker) -> None:
        """Whatever the reason."""
        handle = await start(worker, Gated.run, seconds=0.01)
        await failure(handle)

        assert (await search_attributes(handle))["BatonStatus"] == "FAILED"

    async def test_the_status_query_of_a_failed_run_says_so(self, client: Client, worker: Worker) -> None:
        """Also without search attributes: a service that only queries would take it for a running one."""
        start = PipelineInput(goal=GOAL, params={"seconds": 0.01})
        plain = await Client.connect(client.service_client.config.target_host)
        handle = await plain.start_workflow(
            "Gated", start.model_dump(mode="json"), id=f"unlabelled-{uuid.uuid4()}", task_queue=worker.task_queue
        )
        await failure(handle)

        assert (await client.get_workflow_handle(handle.id).query("status"))["status"] == "FAILED"
        assert "**Status:** failed" in await page(client.get_workflow_handle(handle.id))

    async def test_all_runs_of_a_task_are_found_by_its_id(self, client: Client, worker: Worker) -> None:
        run = await run_pipeline(worker, Parent.run, PipelineInput(goal=GOAL))
        [(child, *_)] = run.record.children

        query = f"BatonTaskId='{run.result.task_id}' and BatonPipeline='Linear'"
        assert (await wait_until_found(client, query)).id == child


class TestSummaries:
    async def test_the_goal_is_the_runs_summary(self, worker: Worker) -> None:
        """The purpose of the run, without opening it."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        assert await (await run.handle.describe()).static_summary() == GOAL

    async def test_each_stage_has_its_number_and_name(self, client: Client, worker: Worker) -> None:
        """The timeline shows steps, not activity types."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        summaries = [
            (await client.data_converter.decode([history_event.user_metadata.summary]))[0]
            async for history_event in run.handle.fetch_history_events()
            if history_event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]
        assert summaries == ["step 1: plan", "step 2: implement", "step 3: review"]


class TestPage:
    async def test_it_shows_the_baton_the_open_approval_and_the_reset_events(
        self, client: Client, worker: Worker
    ) -> None:
        """Operators choose the event of a reset from it; it is the reader's event too."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        details = await page(handle)

        run = await read_run(client, handle.id)
        assert "**Status:** waiting · **waits for:** approval **release manager**" in details
        assert "Chose JWT over sessions" in details
        assert "**release manager:**" in details
        assert "(until " in details
        for step in run.steps:
            assert f"- before **{step.name}** = event {step.reset_event}" in details
        await handle.terminate()

    async def test_the_runs_own_details_come_first(self, worker: Worker) -> None:
        """A team's own details are kept."""
        handle = await start(worker, Announced.run)
        await until_waiting(handle, "release manager")

        assert (await page(handle)).startswith("Before the summer\n\n**Status:** waiting")
        await handle.terminate()

    async def test_html_from_agents_is_escaped(self, client: Client, worker: Worker) -> None:
        """The UI renders raw HTML, and shows entities as they are written."""
        hostile = ("<script>", "\\<img src=x>", "\\\\<b>", "`<i>", "<!-- -->", "a <u", "x > 3 & y < 4")
        goal = f"Add {' and '.join(hostile)} login"
        handle = await client.start_workflow(
            Gated.run, PipelineInput(goal=goal), id="html-goal", task_queue=worker.task_queue
        )
        await until_waiting(handle, "release manager")

        tokens = MarkdownIt("commonmark").parse(await page(handle))
        leaves = [leaf for token in tokens for leaf in (token, *(token.children or ()))]
        assert not [leaf for leaf in leaves if leaf.type.startswith("html")]
        text = "".join(leaf.content for leaf in leaves if leaf.type == "text")
        assert "<script> and <img src=x> and \\<b> and `<i>" in text
        assert "x > 3 & y < 4 login" in text
        await handle.terminate()

    async def test_links_and_images_of_agents_are_not_live(self, client: Client, worker: Worker) -> None:
        """An operator's browser loads no image that an agent names, and no link hides its target."""
        links = "![x](https://evil.example/?q) [log in](https://evil.example) [a]: https://e.example"
        hostile = f"{links} www.e.example a@e.example"
        handle = await client.start_workflow(
            Gated.run, PipelineInput(goal=hostile), id="live-goal", task_queue=worker.task_queue
        )
        await until_waiting(handle, "release manager")

        summary = await (await handle.describe()).static_summary()
        for text in (await page(handle), summary or ""):
            tokens = MarkdownIt("commonmark").parse(text)
            kinds = {leaf.type for token in tokens for leaf in (token, *(token.children or ()))}
            assert kinds.isdisjoint({"link_open", "image"}), kinds
            assert not [bare for bare in ("://", "www.", "a@") if bare in text]
        await handle.terminate()

    async def test_signal_text_stays_on_one_line_in_notes_page_and_log(
        self, worker: Worker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A refusal quotes its sender, who must not write headings, log lines, or terminal codes."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        hostile = "ann\n\n# Approved\n\x1b]0;title\x07"
        await handle.signal(ANSWER, {"question": "another", "choice": "approve", "who": hostile})
        await handle.signal(ANSWER, {"question": hostile + "w" * 10_000, "choice": "approve", "who": "ann"})
        notes = (await until(handle, lambda now: len(now.notes) == 2)).notes

        assert notes[0].endswith(r"found 'ann\n\n# Approved\n\x1b]0;title\x07'")
        assert max(map(len, notes)) < 3_000
        assert "\n# Approved" not in await page(handle)
        messages = [record.getMessage() for record in caplog.records if "Approved" in record.getMessage()]
        assert messages
        assert not [message for message in messages if "\n" in message or "\x1b" in message]
        await handle.terminate()
