"""Handoffs to other pipelines, as the page of a run shows them."""

import re
from html import unescape

from temporalio.client import Client

from baton import PipelineInput
from baton.testing import pipeline_worker
from tests.console.conftest import Browser
from tests.exchange.exchange_pipelines import HandsOff, Receives


async def test_a_handoff_leads_to_the_run_that_it_went_to(browser: Browser, client: Client) -> None:
    """The report, which is read without a console, names it without a link."""
    async with pipeline_worker(client, [HandsOff, Receives], []) as worker:
        start = PipelineInput(goal="Hand on", params={"to": "risk & 7", "starts": "Receives"})
        handle = await client.start_workflow(HandsOff.run, start, id="hands-on-1", task_queue=worker.task_queue)
        await handle.result()
    page = (await browser.get("/run?id=hands-on-1")).text.partition("Handed on to other pipelines")[2]
    saved = (await browser.get("/run/report?id=hands-on-1")).text.partition("Handed on to other pipelines")[2]
    link = re.search(r'href="(/run[?][^"]*)"><bdi>risk &amp; 7', page)

    assert link is not None
    assert "<title>risk &amp; 7" in (await browser.get(unescape(link[1]))).text
    assert "risk &amp; 7" in saved
    assert "href" not in saved.partition("</ul>")[0]
