"""Forms that cannot be sent as they are: each says what is wrong, and nothing is done."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from temporalio.client import Client, WorkflowFailureError

from baton import Budget, Pipeline, PipelineInput, PipelineStatus, pipeline
from baton.client import Decide, HandoffAction, RunFilter, list_runs, read_run
from baton.console.pages_inbox import approval_path, handoff_path
from baton.console.sources import Sources
from baton.testing import pipeline_worker
from tests.agents.steered_pipelines import GATES, heedless, steers_nobody
from tests.console.conftest import Browser, operator, started, token_in
from tests.console.console_pipelines import tick
from tests.handoff.question_pipelines import REFUSED, asks_about_a_handoff
from tests.support import approve, until, until_waiting

RUN = "operated on"
AT = f"run={quote(RUN)}"


@pipeline
async def operated(p: Pipeline) -> object:
    """One step, then a person."""
    await p.stage(tick)
    await p.approve("budget", within=timedelta(days=1), shows={"text": "It costs 3 euros."})
    return None


@pytest.fixture
async def browser(sources: Sources) -> Browser:
    """Return a browser for each test."""
    return await operator(sources)


@pytest.fixture(scope="module")
async def question(client: Client) -> AsyncIterator[str]:
    """Return the id of the question at which the run waits."""
    async with pipeline_worker(client, [operated], [tick]) as worker:
        handle: Any = await started(worker, operated, RUN)
        await until_waiting(handle, "budget")
        [asked] = (await read_run(client, RUN)).approvals
        yield asked.id
        await handle.terminate()


async def send(browser: Browser, path: str, **fields: str) -> str:
    """Send a form, and return the page that answers."""
    shown = (await browser.get(f"/fork?{AT}&at=1")).text
    fields = {"mark": mark_in(shown), **fields} if path.startswith("/fork") else fields
    return (await browser.post(path, {"csrf": token_in(shown), **fields})).text


@pytest.mark.parametrize(
    ("path", "fields", "fault"),
    [
        (f"/rollback?{AT}", {"why": "a test"}, "the address names no step"),
        (f"/rollback?{AT}&to=1", {}, "give a reason"),
        (
            f"/rollback?{AT}&to=1",
            {"why": "a test", "mark": "old"},
            "nothing was rolled back: what was shown is unknown",
        ),
        (f"/rollback?{AT}&to=9", {"why": "a test"}, "has no step"),
        (f"/fork?{AT}&at=1", {"why": "a test", "id": ""}, "give the new run an id"),
        (f"/fork?{AT}&at=1", {"id": "x", "patch": "[]"}, "a patch is a JSON object"),
        (f"/fork?{AT}&at=1", {"id": "x", "patch": "{"}, "this is not JSON"),
        (f"/fork?{AT}&at=1", {"why": "a test", "id": RUN}, "another run has this id"),
        (f"/fork?{AT}&at=9", {"why": "a test", "id": "x"}, "has no step"),
        (f"/fork?{AT}&at=1", {"why": "a test", "id": "x" * 1_100}, "exceeds"),
        ("/start?pipeline=operated", {"id": "", "input/goal": "Pay"}, "fill this in"),
        (
            "/start?pipeline=operated",
            {"id": "x", "task_queue": "q", "input/goal": "Pay", "budget": "much"},
            "is not an amount",
        ),
        ("/start?pipeline=operated", {"id": RUN, "task_queue": "q", "input/goal": "Pay"}, "another run has this id"),
        ("/handoff/check?" + AT, {"patch": "[]"}, "a patch is a JSON object, such as"),
        ("/handoff/check?" + AT, {"patch": "{}"}, "the patch changes nothing"),
    ],
)
async def test_a_form_that_cannot_be_sent_says_why(
    browser: Browser, client: Client, question: str, path: str, fields: dict[str, str], fault: str
) -> None:
    """No run was started, forked or rolled back."""
    assert fault in await send(browser, path, **fields)
    runs = [run async for run in list_runs(client, RunFilter(id_prefix=RUN), limit=10)]
    assert [run.workflow_id for run in runs] == [RUN]
    assert not [run async for run in list_runs(client, RunFilter(id_prefix="x"), limit=10)]


async def test_a_roll_back_does_what_its_page_showed(browser: Browser, client: Client) -> None:
    """A colleague approves meanwhile: nothing is done, and the page that answers shows what would follow now."""
    workflow_id = "rolled back here"
    async with pipeline_worker(client, [operated], [tick]) as worker:
        handle: Any = await started(worker, operated, workflow_id)
        await until_waiting(handle, "budget")
        path = f"/rollback?run={quote(workflow_id)}&to=1"
        shown = (await browser.get(path)).text
        await approve(client, handle, "budget")
        await handle.result()
        fields = {"csrf": token_in(shown), "why": "a test"}
        answer = (await browser.post(path, {**fields, "mark": mark_in(shown)})).text
        assert "the run is COMPLETED now; decided meanwhile: 2 budget" in answer
        assert "is undone, and asked for again" in answer
        assert (await read_run(client, workflow_id)).run_id == handle.first_execution_run_id
        await browser.post(path, {**fields, "mark": mark_in(answer)})
        run = await read_run(client, workflow_id)
        assert run.run_id != handle.first_execution_run_id
        await client.get_workflow_handle(workflow_id).terminate()


async def test_a_run_is_canceled_as_shown(browser: Browser, client: Client) -> None:
    """The run's page leads to what would follow; an outdated page does nothing, and the server's refusal is shown."""
    workflow_id = "canceled here"
    async with pipeline_worker(client, [operated], [tick]) as worker:
        handle: Any = await started(worker, operated, workflow_id)
        await until_waiting(handle, "budget")
        path = f"/cancel?run={quote(workflow_id, safe='')}"
        assert (
            f'href="/cancel?run={quote_plus(workflow_id)}"' in (await browser.get(f"/run?id={quote(workflow_id)}")).text
        )
        shown = (await browser.get(path)).text
        assert "The run stops at its current step." in shown
        fields = {"csrf": token_in(shown), "why": "a test"}
        assert "nothing was canceled: what was shown is unknown" in (await browser.post(path, fields)).text
        await browser.post(path, {**fields, "mark": mark_in(shown)})
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert "cannot be canceled: it is CANCELED" in (await browser.get(path)).text
        assert "it is CANCELED; nothing was paused" in (await browser.get(path.replace("cancel?", "pause?"))).text


async def test_a_run_is_paused_and_unpaused_from_its_page(browser: Browser, client: Client) -> None:
    """The page offers what can be done now: pausing and canceling, and then unpausing."""
    workflow_id = "paused here"
    async with pipeline_worker(client, [operated], [tick]) as worker:
        handle: Any = await started(worker, operated, workflow_id)
        await until_waiting(handle, "budget")
        here = f"/run?id={quote(workflow_id)}"
        for verb, other in (("pause", "unpause"), ("unpause", "pause")):
            page = (await browser.get(here)).text
            path = f"/{verb}?run={quote_plus(workflow_id)}"
            assert f'href="{path}"' in page
            assert f'href="/cancel?run={quote_plus(workflow_id)}"' in page
            assert f'href="/{other}?' not in page
            shown = (await browser.get(path)).text
            fields = {"csrf": token_in(shown), "mark": mark_in(shown), "why": "a test"}
            answer = await browser.post(path, fields)
            assert answer.url.path == "/run"
        run = await read_run(client, workflow_id)
        assert [(change.is_paused, change.by, change.why) for change in run.pauses] == [
            (True, "ann", "a test"),
            (False, "ann", "a test"),
        ]
        await handle.terminate()


async def test_a_run_starts_with_the_values_of_an_earlier_one(browser: Browser, client: Client) -> None:
    """All that a form can carry over is filled in, and what it leaves out is named."""
    start = PipelineInput(
        goal="Pay the invoice",
        params={"amount": 3, "text": "two\nlines", "deep": {"a": [1, None]}, "no": False, "lines": ["a", "b"]},
        inputs={"invoice": {"number": 7}},
        baton={"constraints": ["Only in euros"], "decision_log": ["Pay by card"]},
        budget=Budget(initial_micro_usd=2_500_000),
        personal_data={"jane": {"fields": {}}},
    )
    earlier = await client.start_workflow("operated", start, id="an earlier one", task_queue="nobody")
    page = (await browser.get("/run?id=an+earlier+one")).text
    [path] = [unescape(found) for found in re.findall(r'href="(/start\?[^"]*)"', page)]
    shown = (await browser.get(path)).text
    assert "without its personal data" in shown
    fields = form_fields(shown)
    assert (fields["task_queue"], fields["budget"]) == ("nobody", "2.5")
    answer = await browser.post(path, {**fields, "id": "a later one"})
    assert answer.url.path == "/run"
    later = (await read_run(client, "a later one")).start
    for name in ("goal", "params", "inputs", "baton"):
        assert getattr(later, name) == getattr(start, name)
    assert (later.budget, later.personal_data) == (start.budget, {})
    assert later.task_id != (await read_run(client, earlier.id)).start.task_id
    for workflow_id in (earlier.id, "a later one"):
        await client.get_workflow_handle(workflow_id).terminate()


def form_fields(page: str) -> dict[str, str]:
    """Return what the form of a page would send as it is shown."""
    form = page.partition('class="decide')[2].partition("</form>")[0]
    inputs = re.findall(r'<input [^>]*name="([^"]+)"[^>]*? value="([^"]*)"', form)
    areas = re.findall(r'<textarea [^>]*name="([^"]+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL)
    choices = re.findall(r'<select [^>]*name="([^"]+)"[^>]*>.*?value="([^"]*)" selected', form, re.DOTALL)
    return {name: unescape(value) for name, value in [*inputs, *areas, *choices]}


def mark_in(page: str) -> str:
    """Return what a page's form says that it showed."""
    match = re.search(r'name="mark" value="([^"]+)"', page)
    assert match is not None
    return unescape(match[1])


async def test_a_decision_needs_a_yes_or_a_no(browser: Browser, question: str) -> None:
    """And an exhibit is one that the approval has."""
    path = approval_path(RUN, question)
    assert "approve or deny" in await send(browser, path, why="a test")
    exhibit = path.replace("?", "/exhibit?")
    assert (await browser.get(f"{exhibit}&place=1")).text == "It costs 3 euros."
    assert (await browser.get(f"{exhibit}&place=9")).status_code == 404


async def test_the_second_is_told_whose_decision_counts(browser: Browser, client: Client) -> None:
    """Carol decides while Ann's page is open; Ann, who sends her own form twice, is told of her own."""
    async with pipeline_worker(client, [operated], [tick]) as worker:
        for workflow_id, other in (("decided first", "carol"), ("decided twice", "")):
            handle: Any = await started(worker, operated, workflow_id)
            await until_waiting(handle, "budget")
            preview = await Decide(client, workflow_id, "approve").preview()
            question = str(preview.basis["question"])
            path = approval_path(workflow_id, question)
            shown = (await browser.get(path)).text
            if other:
                await Decide(client, workflow_id, "approve", question=question).commit(
                    preview.mark, by=other, why="quicker"
                )
            fields = {"csrf": token_in(shown), "mark": mark_in(shown), "why": "a test", "approved": "yes"}
            answers = [(await browser.post(path, fields)).text for _ in range(2)]
            await handle.result()
            answers.append((await browser.post(path, fields)).text)
            for answer in answers:
                assert (other or "ann") in answer
                assert ("</bdi> decided first: " in answer) is bool(other)


async def test_a_handoff_is_settled_once(browser: Browser, client: Client) -> None:
    """As its page showed it; who comes second is told whose decision counts, who sends the form twice is not."""
    async with pipeline_worker(client, [asks_about_a_handoff], []) as worker:
        for workflow_id, other in (("settled first", "carol"), ("settled twice", "")):
            handle: Any = await started(worker, asks_about_a_handoff, workflow_id)
            await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
            preview = await Decide(client, workflow_id, HandoffAction.REQUEUE).preview()
            path = handoff_path(workflow_id, REFUSED)
            shown = (await browser.get(path)).text
            if other:
                operation = Decide(client, workflow_id, HandoffAction.REQUEUE)
                await operation.commit(preview.mark, by=other, why="quicker")
            fields = {"csrf": token_in(shown), "mark": mark_in(shown), "why": "a test", "action": "requeue"}
            for _ in range(2):
                answer = (await browser.post(path, fields)).text
                assert (other or "ann") in answer
                assert ("</bdi> decided first: " in answer) is bool(other)
            await handle.result()


async def test_the_same_form_leads_to_the_same_run(browser: Browser, client: Client, question: str) -> None:
    """Sending it again, as an impatient person does, starts nothing."""
    fields = {"id": "begun here", "task_queue": "nobody", "input/goal": "Pay", "budget": "2.50"}
    for _ in range(2):
        assert "begun here" in await send(browser, "/start?pipeline=operated", **fields)
    run = await read_run(client, "begun here")
    assert (run.start.goal, run.ceiling_micro_usd) == ("Pay", 2_500_000)
    assert len([listed async for listed in client.list_workflows("WorkflowId = 'begun here'")]) == 1
    await client.get_workflow_handle("begun here").terminate()


async def test_a_note_is_sent_to_an_agent_at_work(browser: Browser, client: Client) -> None:
    """The page says who gets it; the run's page then has it, and whether it was shown."""
    async with pipeline_worker(client, [steers_nobody], [heedless]) as worker:
        handle: Any = await started(worker, steers_nobody, "steered here")
        gate, path = GATES[handle.id], f"/steer?run={quote(handle.id)}"
        await gate.working.wait()
        page = (await browser.get(path)).text
        fields = {"csrf": token_in(page), "mark": mark_in(page)}
        assert "write the note" in (await browser.post(path, {**fields, "text": " "})).text
        sent = (await browser.post(path, {**fields, "text": "use <b>EUR</b>"})).text
        gate.go_on.set()
        await handle.result()

    assert "heedless" in page
    assert "use &lt;b&gt;EUR&lt;/b&gt;" in sent
    assert [note.who for note in (await read_run(client, handle.id)).steering] == ["ann"]
    assert "is COMPLETED" in unescape((await browser.get(path)).text)
