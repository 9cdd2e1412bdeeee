"""Somebody asks why an agent did that: from a run's page over its reasons to what the agent was asked."""

from pathlib import Path

import pytest
from playwright.async_api import Browser
from temporalio.client import Client

from baton import PipelineInput
from baton.console.rendering import run_path
from baton.console.sources import Sources
from baton.testing import Reply, pipeline_worker, run_pipeline
from tests.console.browser.conftest import Office, Person
from tests.console.browser.test_deciding import fill, fits, press
from tests.console.browser.test_looks import assert_clean
from tests.console.why_pipelines import MAIL, enter, mailing, offers, quoting

WIDTHS = (390, 1280, 1920)


@pytest.fixture
async def offered(client: Client) -> str:
    """Return the id of a run that has ended."""
    async with pipeline_worker(client, [offers], [enter, quoting, mailing]) as worker:
        decisions = {"head of sales": Reply(True, who="maria", why="a good price")}
        start = PipelineInput(goal="Make an offer")
        return (await run_pipeline(worker, offers, start, decisions=decisions)).handle.id


async def seen_by(person: Person, name: str) -> None:
    """Assert that the page is clean and fits, on a phone, a laptop and a wide screen."""
    for width in WIDTHS:
        await person.page.set_viewport_size({"width": width, "height": 900})
        await fits(person)
        await assert_clean(person, f"{name}-{width}")


async def test_31_somebody_asks_why(
    chromium_browser: Browser, screenshots: Path, sources: Sources, offered: str, quiet: list[Person]
) -> None:
    """From the output to the agent, its tool and who approved; then what it was asked; then what is sealed."""
    office = Office(chromium_browser, sources, screenshots)
    ann = await office.person()
    quiet.append(ann)
    await ann.open(run_path(offered))
    await ann.page.get_by_role("link", name="Why", exact=True).click()
    await ann.sees("tool crm.lookup: c-17 pays 4200 USD")
    await ann.sees("by maria: “a good price”")
    await seen_by(ann, "31-why")
    await ann.page.get_by_label("Where it comes from").fill("output.price")
    await press(ann, "Ask")
    await ann.sees("output.price = 4200")
    await ann.page.get_by_role("link", name="step 2 quote").click()
    await ann.page.get_by_role("link", name="What quote was asked and answered").click()
    await ann.sees("A customer of ten years")
    await seen_by(ann, "31-asked")
    await ann.open(run_path(offered, None, "/transcript", step=4, stage="mail"))
    await ann.sees("it is sealed")
    await fill(ann, Why="a complaint")
    await press(ann, "Open")
    await ann.sees(MAIL)
    await seen_by(ann, "31-opened")
    await office.close()
