"""Why an agent did that, in the console: where a value comes from, and what an agent was asked."""

import html
import re
from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineInput
from baton.client import Role, RunRecord
from baton.console.app import console_app
from baton.console.content import MAX_CHARACTERS
from baton.console.security import Access, Links
from baton.console.sources import Sources
from baton.testing import Reply, pipeline_worker, run_pipeline
from tests.console.conftest import Browser, token_in
from tests.console.why_pipelines import MAIL, THOUGHT, enter, mailing, offers, quoting


@pytest.fixture(scope="module")
async def offered(client: Client) -> AsyncIterator[RunRecord]:
    """Return a run that has ended."""
    async with pipeline_worker(client, [offers], [enter, quoting, mailing]) as worker:
        decisions = {"head of sales": Reply(True, who="maria", why="a good price")}
        run = await run_pipeline(worker, offers, PipelineInput(goal="Make an offer"), decisions=decisions)
        yield run.record


async def text_of(browser: Browser, page: str, status: int = 200, **parameters: object) -> str:
    """Return a page's text without markup."""
    answer = await browser.http.get(page, params={name: str(value) for name, value in parameters.items()})
    assert answer.status_code == status, answer.text
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


class TestWhy:
    async def test_it_leads_from_a_value_to_tools_and_people(self, browser: Browser, offered: RunRecord) -> None:
        """With links to the steps."""
        text = await text_of(browser, "/run/why", id=offered.workflow_id, path="output.price")
        page = (await browser.get(f"/run/why?id={offered.workflow_id}&path=output.price")).text

        order = [
            "output.price = 4200",
            "step 2 quote",
            "tool crm.lookup: c-17 pays 4200 USD",
            "head of sales: approved",
        ]
        places = [text.index(line) for line in order]
        assert places == sorted(places)
        assert "gpt-4o · $0.0015" in text
        assert "by maria: “a good price”" in text
        assert f"/run/step?id={offered.workflow_id}" in html.unescape(page)

    async def test_the_run_and_its_steps_lead_to_it(self, browser: Browser, offered: RunRecord) -> None:
        """The run's page to its output, a step's page to its answer."""
        run = (await browser.get(f"/run?id={offered.workflow_id}")).text
        step = html.unescape((await browser.get(f"/run/step?id={offered.workflow_id}&step=2")).text)

        assert "/run/why?" in run
        assert f"/run/why?id={offered.workflow_id}&run={offered.run_id}&path=2.output" in step
        assert f"/run/transcript?id={offered.workflow_id}&run={offered.run_id}&step=2&stage=quote" in step
        assert "4200" in await text_of(browser, "/run/why", id=offered.workflow_id, path="2.output")

    async def test_what_is_not_there_is_said_and_offered(self, browser: Browser, offered: RunRecord) -> None:
        """The field keeps what was asked."""
        text = await text_of(browser, "/run/why", 404, id=offered.workflow_id, path="output.cost")

        assert "output has no 'cost'; it has: price, text, by" in text

    async def test_all_that_it_offers_is_there(self, browser: Browser, offered: RunRecord) -> None:
        """A member whose name no path can have is not offered."""
        page = (await browser.get(f"/run/why?id={offered.workflow_id}")).text
        paths = re.findall(r'<option value="([^"]*)">', page)

        members = [path.removeprefix("output") for path in paths if path.startswith("output")]
        assert members == ["", ".price", ".text", ".by"]
        for path in paths:
            await text_of(browser, "/run/why", id=offered.workflow_id, path=html.unescape(path))


class TestTranscript:
    async def test_it_shows_what_an_agent_was_asked_and_did(self, browser: Browser, offered: RunRecord) -> None:
        """The prompt, the call with arguments and result, the thought; as text, whatever is in it."""
        answer = await browser.get(f"/run/transcript?id={offered.workflow_id}&step=2&stage=quote")
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())

        assert '{"customer":"c-17"} result c-17 pays 4200 USD' in text
        assert "Make an offer" in text
        assert html.escape(THOUGHT) in answer.text
        assert THOUGHT not in answer.text
        assert 1_000 < answer.text.count("at length") <= MAX_CHARACTERS / len("at length ")

    @pytest.mark.parametrize("role", [Role.VIEWER, Role.DECIDER])
    async def test_it_is_for_operators(self, sources: Sources, offered: RunRecord, role: Role) -> None:
        """Others do not see the link, and are refused."""
        links = Links("ann", role)
        other = await Browser(console_app(sources, Access(links=links)), links).sign_in()
        step = (await other.get(f"/run/step?id={offered.workflow_id}&step=2")).text

        assert "/run/transcript" not in step
        await text_of(other, "/run/transcript", 403, id=offered.workflow_id, step=2, stage="quote")

    async def test_a_sealed_one_is_opened_on_record(
        self, browser: Browser, sources: Sources, offered: RunRecord
    ) -> None:
        """With a reason, in the chain of its task."""
        page = f"/run/transcript?id={offered.workflow_id}&step=4&stage=mail"
        before = (await browser.get(page)).text
        unsaid = await browser.post(page, {"csrf": token_in(before), "why": " "})
        opened = await browser.post(page, {"csrf": token_in(before), "why": "a complaint"})
        assert offered.task_id is not None
        trace = await sources.trace(offered.task_id, [offered])
        openings = [header for header in trace.headers if header.status == "PERSONAL_DATA_OPENED"]

        assert MAIL not in before + unsaid.text
        assert "it is sealed" in before
        assert unsaid.status_code == 422
        assert f"Write to {MAIL}." in opened.text
        assert [(header.actor, header.details) for header in openings] == [("ann", "a complaint")]

    async def test_a_stage_without_one_says_so(self, browser: Browser, worker: Worker, offered: RunRecord) -> None:
        """No agent does it."""
        text = await text_of(browser, "/run/transcript", id=offered.workflow_id, step=1, stage="enter")

        assert "Nothing was kept" in text
