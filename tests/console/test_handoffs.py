"""Handoffs to other pipelines, as branches of the relay."""

import re
from html import unescape

import pytest
from temporalio.client import Client, WorkflowFailureError

from baton import PipelineInput
from baton.testing import pipeline_worker
from tests.console.conftest import Browser
from tests.exchange.exchange_pipelines import HandsOff, Receives
from tests.support import events


def _branch(page: str) -> str:
    """Return the first step's rows in the relay."""
    return page.partition('id="step-1"')[2].partition("</tbody>")[0]


async def test_a_handoff_is_a_branch_with_a_link_to_its_receiver(browser: Browser, client: Client) -> None:
    """Its step has the message and the answer; the report has no link, since it works without a console."""
    async with pipeline_worker(client, [HandsOff, Receives], []) as worker:
        start = PipelineInput(goal="Hand on", params={"to": "risk & 7", "starts": "Receives"})
        handle = await client.start_workflow(HandsOff.run, start, id="hands-on-1", task_queue=worker.task_queue)
        await handle.result()
    page = (await browser.get("/run?id=hands-on-1")).text
    saved = (await browser.get("/run/report?id=hands-on-1")).text
    step = (await browser.get("/run/step?id=hands-on-1&step=1")).text
    link = re.search(r'href="(/run[?][^"]*)">Open <bdi>risk &amp; 7', _branch(page))

    assert link is not None
    assert "<title>risk &amp; 7" in (await browser.get(unescape(link[1]))).text
    assert "no answer yet" not in page
    assert "Score the risk" in step
    assert "accepted" in step.partition("Output")[2]
    assert "risk &amp; 7" in _branch(saved)
    assert "href" not in _branch(saved)
    assert "Completed" in _branch(saved), "the receiver is inside the report"


async def test_a_handoff_that_nobody_answers_takes_the_time_it_took(browser: Browser, client: Client) -> None:
    """In the table of steps and in the picture, though its step failed without an answer."""
    async with pipeline_worker(client, [HandsOff], []) as worker:
        start = PipelineInput(goal="Hand on", params={"to": "nobody", "seconds": 1, "attempts": 1})
        handle = await client.start_workflow(HandsOff.run, start, id="hands-on-3", task_queue=worker.task_queue)
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    page = (await browser.get("/run?id=hands-on-3")).text
    took = re.search(r'<td class="end">([0-9.]+) s</td>', _branch(page))

    assert took is not None
    assert float(took[1]) >= 1
    assert "0 ms at work" in page
    assert "Who carried the baton: risk. It fell with risk." in page


async def test_an_unanswered_handoff_is_a_branch_too(browser: Browser, client: Client) -> None:
    """It comes last, since its step is not in the history yet."""
    async with pipeline_worker(client, [HandsOff], []) as worker:
        start = PipelineInput(goal="Hand on", params={"to": "nobody"})
        handle = await client.start_workflow(HandsOff.run, start, id="hands-on-2", task_queue=worker.task_queue)
        async for event in events(handle):
            if event.HasField("signal_external_workflow_execution_initiated_event_attributes"):
                break
        page = (await browser.get("/run?id=hands-on-2")).text
        await handle.terminate()

    relay = page.partition('class="relay"')[2].partition("</table>")[0]
    assert "<bdi>nobody</bdi></a>" in relay
    assert "no answer yet" in relay
