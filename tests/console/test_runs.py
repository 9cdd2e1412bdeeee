"""The list of runs."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, Safeguards
from baton.console.app import console_app
from baton.console.security import Access, Links
from baton.console.sources import Sources
from baton.devserver import DevServer
from tests.console.conftest import Browser, started
from tests.console.console_pipelines import checks, failing, release
from tests.support import until_waiting
from tests.support.clocks import shift_clocks


async def _listed(browser: Browser, query: str) -> str:
    """Return the list, once every history in it was read."""
    while True:
        page = (await browser.get(f"/{query}")).text
        if "still being read" not in page:
            return page


async def _until(browser: Browser, query: str, *texts: str) -> str:
    """Return the list once it has some texts: the server's index lags behind."""
    while True:
        page = await _listed(browser, query)
        if all(text in page for text in texts):
            return page


class TestRuns:
    """What stands in the list, and in which order."""

    async def test_runs_that_need_you_come_first(self, browser: Browser, worker: Worker) -> None:
        """With the question, for whom, until when, and the spend."""
        waits = await started(worker, release, "list-waits", "Notes of the list")
        await until_waiting(waits, "release manager")
        fails = await started(worker, failing, "list-fails", "Fail in the list")
        await worker.client.get_workflow_handle(fails.id).describe()
        page = await _until(browser, "?q=list-", "Needs you", "All others", "list-fails", "a decision: release manager")
        needs, others = page.split('id="others"')

        assert "list-waits" in needs
        assert "list-fails" not in needs
        assert "list-fails" in others
        assert "ann, group:release" in needs
        assert "$0.05" in needs

    async def test_a_search_finds_text_of_the_goal(self, browser: Browser, worker: Worker) -> None:
        """And parts of the id and the task; an empty result says so."""
        handle = await started(worker, failing, "search-7", "Count the Hedgehogs of the north")
        del handle

        assert "search-7" in await _until(browser, "?q=hedgehogs", "search-7")
        assert "search-7" in await _until(browser, "?q=RCH-7", "search-7")
        assert "No run is like this" in await _listed(browser, "?q=unicorns")

    async def test_a_long_list_is_searched_to_the_requested_depth(self, browser: Browser, worker: Worker) -> None:
        """Goals of the first runs and ids of all; the page says so and offers more."""
        handle = await started(worker, checks, "deep-7", "Count the Wolverines")
        await handle.result()
        waits = await started(worker, release, "deep-waits", "Stand before it")
        await until_waiting(waits, "release manager")
        await _until(browser, "?q=wolverines", "deep-7")
        await _until(browser, "?q=deep-waits", "Needs you")
        near = await _listed(browser, "?q=wolverines&searched=1")
        link = re.search(r'href="/([^"]*searched=4[^"]*)">Search further', near)

        assert "Only the first 1 run of" in near
        assert "deep-7" not in near
        assert link is not None
        assert "deep-7" in await _listed(browser, "?q=deep-7&searched=1")
        assert "deep-7" in await _listed(browser, "?q=wolverines&searched=5000")

    async def test_filters_are_in_the_address(self, browser: Browser, worker: Worker) -> None:
        """A link to a filtered list can be shared."""
        await started(worker, failing, "filter-1", "Fail")
        page = await _until(browser, "?status=FAILED&pipeline=failing", "filter-1")

        assert 'value="FAILED" selected' in page
        assert 'name="pipeline" value="failing"' in page
        assert set(re.findall(r'class="badge s-([a-z-]+)"', page)) == {"failed"}

    async def test_ages_are_by_the_clock_of_the_server(
        self,
        worker: Worker,
        server: DevServer,
        sources: Sources,
        safeguards: Safeguards,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """On a machine whose clock is a day fast."""

        async def connect() -> Client:
            return await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])

        waits = await started(worker, release, "list-ages", "Notes of the list")
        await until_waiting(waits, "release manager")
        links = Links("ann")
        with monkeypatch.context() as patch:
            own_sources = replace(sources, connect=connect, _client=None)
            browser = Browser(console_app(own_sources, Access(links=links)), links)
            shift_clocks(patch, timedelta(days=1))
            await browser.sign_in()
            page = await _until(browser, "?q=list-ages", "list-ages")

        ages = re.findall(r'class="ago"[^>]*>([^<]*)<', page)
        assert ages
        assert [age for age in ages if re.fullmatch(r"\d+ (s|min)", age) is None] == []
