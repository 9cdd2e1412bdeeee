"""What people see in Temporal's own interface: lists, summaries, and the page of a run."""

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
from baton.wire.names import DECIDE
from tests.pipelines.pipelines import Announced, Gated, Linear, Parent
from tests.support import GOAL, Handle, approve, failure, start, until, until_waiting


async def found(client: Client, query: str) -> WorkflowExecution:
    """Wait until a search finds a run; the test's timeout bounds the wait."""
    while True:
        async for one in client.list_workflows(query, limit=1):
            return one
        await asyncio.sleep(0.05)


async def labels(handle: Handle) -> dict[str, object]:
    described = await handle.describe()
    return {pair.key.name: pair.value for pair in described.typed_search_attributes}


async def page(handle: Handle) -> str:
    """Return the page that the interface shows as the run's current details."""
    metadata = await handle.query("__temporal_workflow_metadata")
    return str(metadata.current_details)


class TestSearch:
    async def test_a_run_that_waits_for_a_person_is_found_by_status_and_stage(
        self, client: Client, worker: Worker
    ) -> None:
        """The list of what waits for people is one query (S2-when-d)."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")

        query = f"BatonStatus='WAITING' and BatonStage='release manager' and WorkflowId='{handle.id}'"
        assert (await found(client, query)).id == handle.id
        await approve(client, handle)
        await handle.result()
        assert "BatonStatus" not in await labels(handle), "how it ended, Temporal's own status says"

    async def test_a_failed_run_is_searchable_as_failed(self, worker: Worker) -> None:
        """Whatever it failed by."""
        handle = await start(worker, Gated.run, seconds=0.01)
        await failure(handle)

        assert (await labels(handle))["BatonStatus"] == "FAILED"

    async def test_a_failed_run_says_of_itself_that_it_failed(self, client: Client, worker: Worker) -> None:
        """A service that asks by the query alone would take it for one that works; without labels, too."""
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
        assert (await found(client, query)).id == child


class TestSummaries:
    async def test_the_goal_is_the_runs_summary(self, worker: Worker) -> None:
        """What the run is for, without opening it."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        assert await (await run.handle.describe()).static_summary() == GOAL

    async def test_each_stage_has_its_number_and_name(self, client: Client, worker: Worker) -> None:
        """In the timeline, people see steps and not activity types."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        summaries = [
            (await client.data_converter.decode([one.user_metadata.summary]))[0]
            async for one in run.handle.fetch_history_events()
            if one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]
        assert summaries == ["step 1: plan", "step 2: implement", "step 3: review"]


class TestPage:
    async def test_it_shows_the_baton_what_is_waited_for_and_where_to_go_back_to(
        self, client: Client, worker: Worker
    ) -> None:
        """Operators choose the event for a reset from it: it is the one the reader finds, too."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        shown = await page(handle)

        run = await read_run(client, handle.id)
        assert "**Status:** waiting · **waits for:** approval **release manager**" in shown
        assert "Chose JWT over sessions" in shown
        assert "**release manager:**" in shown
        assert "(until " in shown
        for step in run.steps:
            assert f"- before **{step.name}** = event {step.reset_event}" in shown
        await handle.terminate()

    async def test_what_the_run_itself_says_stands_above(self, worker: Worker) -> None:
        """A team's own details are kept."""
        handle = await start(worker, Announced.run)
        await until_waiting(handle, "release manager")

        assert (await page(handle)).startswith("Before the summer\n\n**Status:** waiting")
        await handle.terminate()

    async def test_text_of_agents_is_shown_and_not_run(self, client: Client, worker: Worker) -> None:
        """The interface renders raw HTML, and shows entities as they are written."""
        hostile = ("<script>", "\\<img src=x>", "\\\\<b>", "`<i>", "<!-- -->", "a <u", "x > 3 & y < 4")
        goal = f"Add {' and '.join(hostile)} login"
        handle = await client.start_workflow(
            Gated.run, PipelineInput(goal=goal), id="html-goal", task_queue=worker.task_queue
        )
        await until_waiting(handle, "release manager")

        read = MarkdownIt("commonmark").parse(await page(handle))
        leaves = [leaf for token in read for leaf in (token, *(token.children or ()))]
        assert not [leaf for leaf in leaves if leaf.type.startswith("html")]
        shown = "".join(leaf.content for leaf in leaves if leaf.type == "text")
        assert "<script> and <img src=x> and \\<b> and `<i>" in shown
        assert "x > 3 & y < 4 login" in shown
        await handle.terminate()

    async def test_links_and_images_of_agents_are_not_live(self, client: Client, worker: Worker) -> None:
        """An operator's browser loads no image that an agent names, and no link hides where it leads."""
        links = "![x](https://evil.example/?q) [log in](https://evil.example) [a]: https://e.example"
        hostile = f"{links} www.e.example a@e.example"
        handle = await client.start_workflow(
            Gated.run, PipelineInput(goal=hostile), id="live-goal", task_queue=worker.task_queue
        )
        await until_waiting(handle, "release manager")

        summary = await (await handle.describe()).static_summary()
        for text in (await page(handle), summary or ""):
            read = MarkdownIt("commonmark").parse(text)
            kinds = {leaf.type for token in read for leaf in (token, *(token.children or ()))}
            assert kinds.isdisjoint({"link_open", "image"}), kinds
            assert not [bare for bare in ("://", "www.", "a@") if bare in text]
        await handle.terminate()

    async def test_what_was_sent_stays_on_one_line_of_a_note_the_page_and_the_log(
        self, worker: Worker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A refusal quotes its sender, who must not write headings, lines of the log, or to the terminal."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        hostile = "ann\n\n# Approved\n\x1b]0;title\x07"
        await handle.signal(DECIDE, {"approval": "another", "approved": True, "who": hostile})
        await handle.signal(DECIDE, {"approval": hostile + "w" * 10_000, "approved": True, "who": "ann"})
        notes = (await until(handle, lambda now: len(now.notes) == 2)).notes

        assert notes[0].endswith(r"found 'ann\n\n# Approved\n\x1b]0;title\x07'")
        assert max(map(len, notes)) < 3_000
        assert "\n# Approved" not in await page(handle)
        logged = [one.getMessage() for one in caplog.records if "Approved" in one.getMessage()]
        assert logged
        assert not [one for one in logged if "\n" in one or "\x1b" in one]
        await handle.terminate()
