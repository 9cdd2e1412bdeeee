"""The list of runs."""

import re
from dataclasses import replace
from datetime import timedelta
from html import unescape

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import BatonPlugin, Safeguards
from baton.console.app import console_app
from baton.console.security import Access, Links
from baton.console.sources import Sources
from baton.devserver import DevServer
from tests.console.conftest import Browser, started
from tests.console.console_pipelines import checks, echoes, failing, release
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


def _rows(page: str) -> list[str]:
    """Return the ids of the runs on a page, in order."""
    return [unescape(run_id) for run_id in re.findall(r'data-row href="[^"]*"><bdi>([^<]*)<', page)]


def _link(page: str, text: str) -> str:
    """Return the address of a link."""
    match = re.search(rf'href="([^"]*)"[^>]*>{re.escape(text)}<', page)
    assert match is not None
    return unescape(match[1])


class TestRuns:
    """What stands in the list, and in which order."""

    async def test_runs_that_need_you_come_first_then_those_that_failed(self, browser: Browser, worker: Worker) -> None:
        """With the question, for whom, until when, since when, and the spend; a failed run says why."""
        waits = await started(worker, release, "list-waits", "Notes of the list")
        await until_waiting(waits, "release manager")
        fails = await started(worker, failing, "list-fails", "Fail in the list")
        with pytest.raises(WorkflowFailureError):
            await fails.result()
        done = await started(worker, checks, "list-done", "End in the list")
        await done.result()
        page = await _until(
            browser, "", "Needs you", "Failed and suspended", "list-fails", "list-done", "a decision: release manager"
        )
        needs, others = page.split('id="failed-or-suspended"')
        trouble, others = others.split('id="others"')

        assert "list-waits" in needs
        assert ("list-fails" in trouble, "list-fails" in needs + others) == (True, False)
        assert "list-done" in others
        assert "ann, group:release" in needs
        assert "$0.05" in needs
        assert re.search(r'<time class="until" datetime="[^"]*" title="[^"]* UTC"[^>]*>in \d', needs)
        assert re.search(r'class="for">for <time class="ago"', needs)
        assert re.search(r'class="why"><bdi>[^<]*the model is gone</bdi>.*?class="for">for <time class="ago"', trouble)

    async def test_a_part_that_is_full_and_complete_is_counted_exactly(
        self, browser: Browser, worker: Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It offers no more, though the server cannot say that its page was the last."""
        handle = await started(worker, echoes, "exact-1", "Ask once", text="exact")
        await until_waiting(handle, "exact")
        needs = (await _until(browser, "?pipeline=echoes", "exact-1")).partition('id="failed-or-suspended"')[0]
        count = len(_rows(needs.partition('id="others"')[0]))
        monkeypatch.setattr("baton.console.pages_runs._MAX_FIRST", count)
        page = await _until(browser, "?pipeline=echoes", f'<span class="count">{count}</span>')
        assert "Show all" not in page.partition('id="failed-or-suspended"')[0]
        await handle.terminate()

    async def test_a_search_finds_text_of_the_goal(self, browser: Browser, worker: Worker) -> None:
        """And parts of the id and the task; an empty result says so."""
        handle = await started(worker, failing, "search-7", "Count the Hedgehogs of the north")
        del handle

        assert "search-7" in await _until(browser, "?q=hedgehogs", "search-7")
        assert "search-7" in await _until(browser, "?q=RCH-7", "search-7")
        assert "No run is like this" in await _listed(browser, "?q=unicorns")

    async def test_a_search_goes_on_where_it_ended(
        self, browser: Browser, worker: Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each page looks through so many runs, and says so; ids that begin with the text are found at once."""
        for number in range(4):
            handle = await started(worker, checks, f"deep-{number}", "Count the Wolverines" if not number else "Count")
            await handle.result()
        await _until(browser, "?q=wolverines", "deep-0")
        await _until(browser, "?pipeline=checks&q=deep-3", "deep-3")
        monkeypatch.setattr("baton.console.pages_runs.SEARCHED", 2)
        page, pages = await _listed(browser, "?q=wolverines"), 1
        assert "found among 2 runs of" in page or "among the first 2 runs" in page
        while "deep-0" not in _rows(page):
            page, pages = await _listed(browser, _link(page, "Search on")[1:]), pages + 1
        assert pages > 1
        assert "deep-0" in _rows(await _listed(browser, "?q=deep-0"))

    async def test_filters_are_in_the_address(self, browser: Browser, worker: Worker) -> None:
        """A link to a filtered list can be shared, without the form's empty fields."""
        handle = await started(worker, failing, "filter-1", "Fail")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        page = await _until(browser, "?status=FAILED&pipeline=failing", "filter-1")

        assert 'value="FAILED" selected' in page
        assert re.search(r'name="pipeline"[^>]* value="failing"', page)
        parts = page.partition("<table")[2]
        assert set(re.findall(r'class="badge s-([a-z-]+)"', parts)) == {"failed"}
        assert "filter-1" in _rows(await _until(browser, "?status=failed_or_suspended", "filter-1"))
        shared = await browser.get("/?status=&pipeline=failing&q=&since=24h")
        assert shared.url.query == b"pipeline=failing&since=24h"

    async def test_time_person_and_spend_filter(self, browser: Browser, worker: Worker) -> None:
        """Of a person: whom it asks, in a group or by name, and who decided; a fault is said at its field."""
        waits = await started(worker, release, "who-waits", "Notes for somebody")
        await until_waiting(waits, "release manager")
        done = await started(worker, checks, "who-done", "Nobody is asked")
        await done.result()
        for query in ("q=who-&person=Ann", "q=who-&person=release", "q=who-&spend=0.05"):
            page = await _until(browser, f"?{query}", "who-waits")
            assert _rows(page) == ["who-waits"]
        assert _rows(await _listed(browser, "?q=who-&person=bob")) == []
        assert _rows(await _listed(browser, "?q=who-&spend=0.06")) == []
        both = "?q=who-&since=1h"
        assert {*_rows(await _until(browser, both, "who-waits", "who-done"))} == {"who-waits", "who-done"}
        assert _rows(await _listed(browser, "?q=who-&before=1h")) == []
        assert _rows(await _listed(browser, "?q=who-&since=2199-01-01")) == ["who-waits"]
        page = (await browser.get("/?since=soon&spend=much")).text
        assert re.search(r'name="since"[^>]*aria-invalid="true"', page)
        assert len(re.findall('class="fault"', page)) == 2

    async def test_pages_counts_and_orders(self, browser: Browser, worker: Worker) -> None:
        """So many of how many, page by page; the totals by status are links; orders hold across pages."""
        for number in range(5):
            handle = await started(worker, checks, f"paged-{number}", "Be counted")
            await handle.result()
        everything = [f"paged-{number}" for number in range(5)]
        await _until(browser, "?pipeline=checks&sort=-began&limit=500", *everything)
        for query in ("pipeline=checks&status=COMPLETED&limit=2", "pipeline=checks&sort=began&limit=2"):
            page, seen = await _until(browser, f"?{query}", "2 of "), list[str]()
            assert len(_rows(page)) == 2
            while True:
                seen += _rows(page)
                if 'rel="next"' not in page:
                    break
                page = await _listed(browser, _link(page, "Next page")[1:])
            assert "First page" in page
            assert len(seen) == len({*seen})
            assert {*everything} <= {*seen}
            if "sort" in query:
                assert [one for one in seen if one in everything] == everything
        overview = await _until(browser, "?pipeline=checks", "totals")
        totals = overview.partition('class="totals"')[2].partition("</nav>")[0]
        assert "status=COMPLETED" in totals
        assert "pipeline=checks" in totals
        counted = int(re.findall(r"completed</span> (\d+)", totals)[0])
        listed = await _listed(browser, "?pipeline=checks&status=COMPLETED&limit=500")
        assert counted == len(_rows(listed))

    async def test_columns_are_chosen(self, browser: Browser, worker: Worker) -> None:
        """In the address too."""
        await (await started(worker, checks, "columns", "Be shown")).result()
        page = await _until(browser, "?col=task&col=ended", "columns")
        headings = re.findall(r'<th scope="col" class="c-[a-z]+">([^<]+)<', page.partition("</thead>")[0])
        assert headings == ["Task", "Ended"]
        assert page.count("checked") == 2

    async def test_a_page_that_is_none_says_so(self, browser: Browser) -> None:
        """An address may be cut."""
        answer = await browser.get("/?after=cut")
        assert answer.status_code == 409
        assert "begin with the first page" in answer.text

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
