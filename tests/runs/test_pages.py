"""The list of runs page by page: nothing is left out while runs move, and counts are the server's."""

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from baton import BatonError, BatonPlugin, PipelineInput, Spend
from baton.client import ListedRun, RunFilter, count_runs, list_runs, roll_back
from baton.client.faces import (
    BEGINNING,
    RunDetails,
    RunSearch,
    count_statuses,
    list_page,
    read_details,
    sort_by_details,
    urgent_page,
)
from baton.devserver import DevServer
from baton.testing import local_server, pipeline_worker
from tests.pipelines.pipelines import Gated
from tests.pipelines.stages import STAGES
from tests.support import GOAL, approve, until_waiting

DEEP = base64.urlsafe_b64encode(b"[" * 40_000).decode()
RUNS, NOW = 12, datetime(2026, 11, 29, tzinfo=UTC)


@pytest.fixture(scope="module")
async def own_server() -> AsyncIterator[DevServer]:
    """Return a server without other runs."""
    async with local_server() as running:
        yield running


@pytest.fixture(scope="module")
async def crowd(own_server: DevServer) -> Client:
    """Return a client of a server with a dozen runs that nobody works on, of which every third was stopped."""
    client = await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards="off")])
    await begin(client, "Crowd")
    return client


async def begin(client: Client, pipeline: str) -> None:
    """Start a dozen runs of a pipeline, stop every third, and wait until the server's index has them."""
    for number in range(RUNS):
        start = PipelineInput(goal=f"Deliver part {number}")
        handle = await client.start_workflow(pipeline, start, id=f"{pipeline}-{number:02}", task_queue="nobody")
        if number % 3 == 0:
            await handle.terminate("a test")
    await until_counted(client, RunFilter(pipeline), {"RUNNING": 8, "TERMINATED": 4})


async def until_counted(client: Client, run_filter: RunFilter, expected: dict[str, int]) -> None:
    """Wait until the server's index, which lags behind, has so many runs of each status."""
    while await count_statuses(client, run_filter) != expected:
        pass


async def walk(client: Client, run_filter: RunFilter, limit: int, sort: str | None = None) -> list[list[ListedRun]]:
    """Return all pages of a list."""
    pages, after = [], None
    while True:
        page = await list_page(client, run_filter, limit=limit, after=after, sort=sort)
        pages.append(page.runs)
        if (after := page.next) is None:
            return pages


class TestListPage:
    """`list_page`, `count_statuses`."""

    @pytest.mark.parametrize("sort", [None, "began", "-began", "-ended", "took", "deadline"])
    async def test_pages_have_every_run_once(self, crowd: Client, sort: str | None) -> None:
        """In the order of the list without pages, whatever the order; a page of several is full."""
        run_filter = RunFilter("Crowd")
        pages = await walk(crowd, run_filter, 5, sort)
        runs = [run for page in pages for run in page]

        assert [len(page) for page in pages[:2]] == [5, 5]
        assert len({run.workflow_id for run in runs}) == len(runs) == RUNS
        if sort is None:
            assert runs == [run async for run in list_runs(crowd, run_filter)]
        elif sort.endswith("began"):
            ordered = [run.began for run in runs]
            assert ordered == sorted(ordered, reverse=sort.startswith("-"))
        elif sort == "-ended":
            assert [run.ended is None for run in runs] == [False] * 4 + [True] * 8
            times = [run.ended for run in runs if run.ended]
            assert times == sorted(times, reverse=True)

    @pytest.mark.parametrize("limit", [2, 5, 20])
    async def test_the_most_urgent_come_first(self, own_server: DevServer, limit: int) -> None:
        """The nearest deadline, even of the oldest of more runs than fit on the page."""
        plain = await Client.connect(own_server.address)
        until, pipeline = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1), f"Urgent{limit}"
        for number in range(6):
            pairs: list[SearchAttributePair[Any]] = [
                SearchAttributePair(SearchAttributeKey.for_keyword("BatonPipeline"), pipeline),
                SearchAttributePair(SearchAttributeKey.for_keyword("BatonStatus"), "WAITING"),
                SearchAttributePair(SearchAttributeKey.for_datetime("BatonUntil"), until + timedelta(hours=number)),
            ]
            id = f"{pipeline}-{number}"
            attributes = TypedSearchAttributes(pairs)
            await plain.start_workflow(pipeline, id=id, task_queue="nobody", search_attributes=attributes)
        await until_counted(plain, RunFilter(pipeline), {"WAITING": 6})
        page = await urgent_page(plain, RunFilter(pipeline, "WAITING"), limit=limit)

        assert [run.workflow_id for run in page.runs] == [f"{pipeline}-{number}" for number in range(min(6, limit))]
        assert (page.next is None) == (limit > 6)

    async def test_a_run_that_ends_between_two_pages_is_not_left_out(self, crowd: Client) -> None:
        """It moves to the runs that ended: one on a later page then comes twice, and none is missing."""
        await begin(crowd, "Moving")
        first = await list_page(crowd, RunFilter("Moving"), limit=4)
        seen, everything = [run.workflow_id for run in first.runs], [f"Moving-{number:02}" for number in range(RUNS)]
        unseen = next(workflow_id for workflow_id in everything[1::3] if workflow_id not in seen)
        for workflow_id in (seen[0], unseen):
            await crowd.get_workflow_handle(workflow_id).terminate("a test")
        await until_counted(crowd, RunFilter("Moving"), {"RUNNING": 6, "TERMINATED": 6})
        after = first.next
        while after is not None:
            page = await list_page(crowd, RunFilter("Moving"), limit=4, after=after)
            seen += [run.workflow_id for run in page.runs]
            after = page.next

        assert sorted({*seen}) == everything
        assert (seen.count(seen[0]), seen.count(unseen)) == (2, 1)

    async def test_counts_are_those_of_lists(self, crowd: Client) -> None:
        """By status, also of several; a status without runs is not among them."""
        counts = await count_statuses(crowd, RunFilter("Crowd"))
        for status, count in counts.items():
            assert count == await count_runs(crowd, RunFilter("Crowd", status))
            assert count == len([run async for run in list_runs(crowd, RunFilter("Crowd", status))])
        both = RunFilter("Crowd", ("RUNNING", "TERMINATED"))
        assert counts.keys() == {"RUNNING", "TERMINATED"}
        assert (
            sum(counts.values()) == await count_runs(crowd, both) == await count_runs(crowd, RunFilter("Crowd")) == 12
        )

    @pytest.mark.parametrize("sort", [None, "began"])
    @pytest.mark.parametrize("after", ["x", "ä", "bnVsbA", "MQ", DEEP])
    async def test_a_place_that_is_none_is_refused(self, crowd: Client, after: str, sort: str | None) -> None:
        """An address may be cut, or of another order."""
        with pytest.raises(BatonError, match="first page"):
            await list_page(crowd, after=after, sort=sort)

    @pytest.mark.parametrize("text", ["\\' OR WorkflowType IS NOT NULL -- ", "Crowd\\", "Crowd' OR 'a' = 'a"])
    async def test_a_filter_is_a_value_and_no_part_of_the_query(self, crowd: Client, text: str) -> None:
        """Whoever may filter the list sees no other workflows by it, whatever they type."""
        for run_filter in (RunFilter(text), RunFilter(task=text), RunFilter(stage=text), RunFilter(id_prefix=text)):
            assert (await list_page(crowd, run_filter)).runs == []

    async def test_there_is_a_place_before_the_first_run(self, crowd: Client) -> None:
        """For a list whose first part filled the page."""
        beginning = await list_page(crowd, limit=3, after=BEGINNING)
        assert beginning == await list_page(crowd, limit=3)

    async def test_a_rolled_back_run_is_on_one_page(self, crowd: Client) -> None:
        """Its run before ended, and would be on a later page."""
        async with pipeline_worker(crowd, [Gated], STAGES) as worker:
            start = PipelineInput(goal=GOAL)
            handle = await crowd.start_workflow(Gated.run, start, id="rolled back", task_queue=worker.task_queue)
            await until_waiting(handle, "release manager")
            await roll_back(crowd, handle.id, "1", by="bob", why="again")
            newer = crowd.get_workflow_handle(handle.id)
            await until_waiting(newer, "release manager")
            run_filter = RunFilter(id_prefix=handle.id)
            await until_counted(crowd, run_filter, {"WAITING": 1, "TERMINATED": 1})
            [[listed], *rest] = await walk(crowd, run_filter, 1)
            details = await read_details(crowd, listed)
            assert (listed.status, [*filter(None, rest)]) == ("WAITING", [])
            assert listed.until is not None
            assert details.standing is not None
            assert details.standing.until is not None
            assert abs((details.standing.until - listed.until).total_seconds()) < 1
            assert details.since is not None
            assert listed.began <= details.since <= listed.until
            await approve(crowd, newer)
            await newer.result()


class TestRunSearch:
    """What the index cannot answer."""

    RUN = ListedRun("shop-1", "r", "Delivery", "RUNNING", "plan", "task-7", NOW, None)
    DETAILS = RunDetails("Sell ink", spent=Spend(micro_usd=2_000_000), people=frozenset({"ann", "group:release"}))

    @pytest.mark.parametrize(
        ("search", "found"),
        [
            (RunSearch(), True),
            (RunSearch("SHOP"), True),
            (RunSearch("INK"), True),
            (RunSearch("task-7"), True),
            (RunSearch("paper"), False),
            (RunSearch(person=" Ann "), True),
            (RunSearch(person="release"), True),
            (RunSearch(person="bob"), False),
            (RunSearch(min_micro_usd=2_000_000), True),
            (RunSearch(min_micro_usd=2_000_001), False),
            (RunSearch("ink", "ann", 1), True),
            (RunSearch("paper", "ann", 1), False),
        ],
    )
    def test_all_that_is_given_has_to_match(self, search: RunSearch, found: bool) -> None:
        """Names and texts in any case."""
        assert search.matches(self.RUN, "Sell ink", self.DETAILS) is found

    def test_a_run_whose_history_is_unread_is_not_found_by_it(self) -> None:
        """By its text it is."""
        assert not RunSearch(person="ann").matches(self.RUN, "", None)
        assert RunSearch("shop").matches(self.RUN, "", None)

    def test_unknown_values_come_last(self) -> None:
        """Whichever way the order goes."""
        runs = [ListedRun(name, name, "P", "RUNNING", None, None, NOW, None) for name in "abc"]
        details = {"a": RunDetails("", spent=Spend(micro_usd=1)), "c": RunDetails("", spent=Spend(micro_usd=3))}
        for sort, expected in (("spent", "acb"), ("-spent", "cab")):
            assert "".join(run.run_id for run in sort_by_details(runs, details, sort)) == expected
