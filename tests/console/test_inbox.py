"""The inbox and what is decided from it: cards, filters, pages, several alike at once, a decision that came second."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field, field_validator
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Baton, Budget, Pipeline, PipelineInput, Spend, StageContext, StageResult, pipeline, stage
from baton.client import Role, decide, read_run
from baton.client.faces import QuestionKind
from baton.console.app import console_app
from baton.console.pages_inbox import approval_path, together_path
from baton.console.security import Access, Links
from baton.console.sources import Sources
from baton.testing import pipeline_worker
from tests.console.conftest import Browser, operator, token_in
from tests.handoff.handoff_pipelines import Spends
from tests.handoff.handoff_stages import STAGES
from tests.support import approve, until_waiting


class Publication(BaseModel):
    """The form of an approval: one default is made, and the model has a rule of its own."""

    tags: list[str] = Field(default_factory=lambda: ["urgent"])
    copies: int = Field(default=5, ge=1, le=100)

    @field_validator("copies")
    @classmethod
    def _even(cls, copies: int) -> int:
        if copies % 2 == 0:
            raise ValueError("an odd number is needed")
        return copies


@stage
async def prepare(context: StageContext[Baton]) -> StageResult:
    """Cost something."""
    return StageResult(spend=Spend(micro_usd=20_000, prompt_tokens=1_500, completion_tokens=90))


@pipeline
async def publishes(p: Pipeline) -> object:
    """Spend, then ask."""
    params: Any = p.params
    await p.stage(prepare)
    decided = await p.approve(
        "publish",
        within=timedelta(minutes=params.get("minutes", 600)),
        asks=params.get("asks", "Publish it?"),
        shows={"text": f"The text of {params.get('asks', 'it')}"},
        answer=Publication if params.get("form") else None,
        needs=params.get("needs", 1),
        who=params.get("who", []),
    )
    return decided.data


@pipeline
async def archives(p: Pipeline) -> object:
    """Ask only."""
    await p.approve("archive", within=timedelta(days=1))
    return None


@pytest.fixture
async def browser(sources: Sources) -> Browser:
    """Return a browser for each test."""
    return await operator(sources)


@pytest.fixture(scope="module")
async def own(client: Client) -> AsyncIterator[Worker]:
    """Return a worker of what is asked here."""
    async with pipeline_worker(client, [publishes, archives, Spends], [prepare, *STAGES]) as worker:
        yield worker


async def asking(worker: Worker, kind: Any, title: str, budget: Budget | None = None, **params: Any) -> Any:
    """Start a run, and return its handle once it asks."""
    start = PipelineInput(goal="Tell the world", params=params, budget=budget)
    handle = await worker.client.start_workflow(
        kind, start, id=f"{title}-{uuid4().hex[:8]}", task_queue=worker.task_queue
    )
    await until_waiting(handle, title)
    return handle


async def question_of(worker: Worker, handle: Any) -> str:
    """Return the id of the question that a run asks."""
    [asked] = (await read_run(worker.client, handle.id)).approvals
    return asked.id


def card(page: str, id: str) -> str:
    """Return the card of a run; empty if there is none."""
    cards = [part for part in page.split('<li class="card ask">')[1:] if f"<bdi>{id}</bdi>" in part]
    return cards[0].partition("</li>")[0] if cards else ""


async def page_with(browser: Browser, path: str, id: str, text: str = "") -> str:
    """Return a page once it has a card of a run, with a text: the index and the costs come a moment later."""
    while True:
        page = (await browser.get(path)).text
        if (found := card(page, id)) and text in found:
            return page
        await asyncio.sleep(0.1)  # the server gives no event, and the console counts requests


def fields_of(page: str, *handles: Any) -> dict[str, str]:
    """Return the hidden fields of a page's form, and the chosen boxes of some runs, by name."""
    hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    boxes = re.findall(r'<input type="checkbox" name="([^"]+)" checked', page)
    chosen = [name for name in boxes if name.endswith(tuple(handle.id for handle in handles))]
    return {unescape(name): unescape(value) for name, value in [*hidden, *((name, "on") for name in chosen)]}


class TestInbox:
    """What waits for people."""

    async def test_a_card_says_what_to_know(self, browser: Browser, own: Worker) -> None:
        """The question, who may decide, since, until, and the cost; a deadline within the hour stands out."""
        budget = Budget(initial_micro_usd=500_000)
        handle = await asking(own, publishes, "publish", budget, minutes=30, needs=2, who=["ann", "bob"], asks="Now?")
        later = await asking(own, publishes, "publish", minutes=300)
        shown = card(await page_with(browser, "/inbox", handle.id, "so far"), handle.id)
        page = await page_with(browser, "/inbox", later.id)

        assert '<p class="question" dir="auto">Now?</p>' in shown
        assert "asked <time" in shown
        assert '<bdi class="whom">ann, bob</bdi>' in shown
        assert "0 of 2 agreed" in shown
        assert "$0.02, 1,590 tokens so far · $0.48 of $0.50 left" in shown
        assert re.search(
            r'<time class="until soon" datetime="[^"]+" title="[^"]+ UTC" data-left="\d+">in \d+ min<', shown
        )
        assert re.search(r'<time class="until" [^>]*>in [45] h<', card(page, later.id))
        assert "within the hour" in page
        for one in (handle, later):
            await one.terminate()

    async def test_a_budget_says_what_is_left_and_what_is_lacking(self, browser: Browser, own: Worker) -> None:
        """On the card, and on the page that decides."""
        handle = await own.client.start_workflow(
            Spends.run,
            PipelineInput(goal="Spend", budget=Budget(initial_micro_usd=200_000)),
            id=f"spends-{uuid4().hex[:8]}",
            task_queue=own.task_queue,
        )
        shown = card(await page_with(browser, "/inbox?kind=budget-exhausted", handle.id, "lacks $"), handle.id)
        link = re.search(r'href="([^"]+)"', shown)
        assert link is not None
        assert re.search(r"lacks \$[0-9.]+ · \$[0-9.]+ of \$0.20 left", (await browser.get(unescape(link[1]))).text)
        await handle.terminate()

    async def test_filters_and_pages(self, browser: Browser, own: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        """Mine, kind, pipeline; each page says how many there are, and leads to the next."""
        mine = await asking(own, publishes, "publish", who=["Ann"])
        other = await asking(own, publishes, "publish", who=["bob"], minutes=700)
        archive = await asking(own, archives, "archive")
        await page_with(browser, "/inbox", other.id)
        page = await page_with(browser, "/inbox?pipeline=archives&kind=approval", archive.id)
        assert [bool(card(page, one.id)) for one in (mine, other, archive)] == [False, False, True]
        page = await page_with(browser, "/inbox?mine=1", mine.id)
        assert [bool(card(page, one.id)) for one in (mine, other, archive)] == [True, False, True]
        assert not card((await browser.get("/inbox?kind=dead-letter")).text, mine.id)

        monkeypatch.setattr("baton.console.pages_inbox._PAGE", 1)
        first = ""
        while "2 runs ask; these are 1 to 1" not in first:  # those of other tests leave the index a moment later
            first = (await browser.get("/inbox?pipeline=publishes&kind=approval")).text
        later = re.search(r'href="([^"]+)">Later deadlines', first)
        assert later is not None
        last = (await browser.get(unescape(later[1]))).text
        assert (bool(card(first, mine.id)), bool(card(last, other.id))) == (True, True)
        assert ("Later deadlines" in last, ">First</a>" in last) == (False, True)
        for one in (mine, other, archive):
            await one.terminate()

    async def test_a_runs_page_leads_to_its_question(self, browser: Browser, own: Worker) -> None:
        """Not to the list of all."""
        handle = await asking(own, archives, "archive")
        page = (await browser.get(f"/run?id={handle.id}")).text
        link = re.search(r'<a href="([^"]+)">Decide: <bdi>archive', page)
        assert link is not None
        assert unescape(link[1]) == approval_path(handle.id, await question_of(own, handle))
        await handle.terminate()


class TestTogether:
    """Several questions that are alike."""

    async def test_those_that_are_chosen_are_decided_as_they_were_shown(self, browser: Browser, own: Worker) -> None:
        """One is left out, one was denied meanwhile: the others count, and the page says what became of each."""
        handles = [await asking(own, publishes, "publish", asks=f"Publish part {number}?") for number in range(4)]
        for handle in handles:
            inbox = await page_with(browser, "/inbox?pipeline=publishes", handle.id)
        link = re.search(r'href="([^"]+)">Decide \d+ together: <bdi>publish', inbox)
        assert link is not None
        path = unescape(link[1])
        page = (await browser.get(path)).text
        assert [f"The text of Publish part {number}?" in page for number in range(4)] == [True] * 4
        left_out, denied = handles[1], handles[2]
        fields = fields_of(page, handles[0], denied, handles[3])
        nothing = (await browser.post(path, {**fields, "approved": "yes", "why": " "})).text
        assert "give a reason" in nothing
        assert (f'{left_out.id}" checked' in nothing, f'{denied.id}" checked' in nothing) == (False, True)
        await approve(own.client, denied, "publish", yes=False)

        answer = (await browser.post(path, {**fields, "approved": "yes", "why": "all read"})).text
        assert "2 of 3 sent." in answer
        assert "was denied by" in answer
        for handle in (handles[0], handles[3]):
            await handle.result()
            [settled] = (await read_run(own.client, handle.id)).answers
            assert (settled.choice, settled.who, settled.why) == ("approve", "ann", "all read")
        assert (await read_run(own.client, left_out.id)).approvals
        await left_out.terminate()

    async def test_an_answer_is_filled_in_once(self, browser: Browser, own: Worker) -> None:
        """It is checked as that of one, and each run gets it."""
        handles = [await asking(own, publishes, "publish", form=True) for _ in range(2)]
        for handle in handles:
            await page_with(browser, "/inbox?pipeline=publishes", handle.id)
        path = together_path("publishes", QuestionKind.APPROVAL, "publish")
        fields = {**fields_of((await browser.get(path)).text, *handles), "approved": "yes", "why": "seen"}
        refused = (await browser.post(path, {**fields, "answer/copies": "0", "answer/tags": "a\nb"})).text
        assert "give at least 1" in refused
        assert "a\nb</textarea>" in refused
        await browser.post(path, {**fields, "answer/copies": "7", "answer/tags": "a\nb"})
        assert [(await handle.result()).output for handle in handles] == [{"tags": ["a", "b"], "copies": 7}] * 2

    async def test_what_was_filled_in_survives_a_nearer_question_without_a_form(
        self, browser: Browser, own: Worker
    ) -> None:
        """One that came meanwhile is first on the page, and asks for nothing; those that were chosen do."""
        handles = [await asking(own, publishes, "publish", form=True) for _ in range(2)]
        path = together_path("publishes", QuestionKind.APPROVAL, "publish")
        for handle in handles:
            page = await page_with(browser, path, handle.id)
        fields = {**fields_of(page, *handles), "approved": "yes", "why": "seen", "answer/tags": "a"}
        nearer = await asking(own, publishes, "publish", minutes=10)
        await page_with(browser, path, nearer.id)
        refused = (await browser.post(path, {**fields, "answer/copies": "0"})).text
        assert ("give at least 1" in refused, bool(card(refused, handles[0].id))) == (True, True)
        for _ in range(2):  # sent again, it has no effect
            answer = (await browser.post(path, {**fields, "answer/copies": "7"})).text
            assert "2 of 2 sent." in answer
        assert [(await handle.result()).output for handle in handles] == [{"tags": ["a"], "copies": 7}] * 2
        await nearer.terminate()

    async def test_handoffs_are_decided_together_too(self, browser: Browser, own: Worker) -> None:
        """With what can be done about each of them."""
        start = PipelineInput(goal="Spend", budget=Budget(initial_micro_usd=200_000))
        handles = [
            await own.client.start_workflow(
                Spends.run, start, id=f"spends-{uuid4().hex[:8]}", task_queue=own.task_queue
            )
            for _ in range(2)
        ]
        for handle in handles:
            page = await page_with(browser, "/inbox?kind=budget-exhausted&pipeline=Spends", handle.id)
        link = re.search(r'href="([^"]+)">Decide \d+ together', page)
        assert link is not None
        for handle in handles:
            page = await page_with(browser, unescape(link[1]), handle.id)
        assert ('value="top_up"' in page, 'value="edit"' in page) == (True, False)
        fields = {**fields_of(page, *handles), "action": "top_up", "usd": "1.00", "why": "worth it"}
        answer = (await browser.post(unescape(link[1]), fields)).text
        assert "2 of 2 sent." in answer
        assert [(await handle.result()).topped_up_micro_usd for handle in handles] == [1_000_000] * 2

    async def test_a_viewer_sees_what_would_be_decided_and_cannot(self, sources: Sources, own: Worker) -> None:
        """There is no form."""
        links = Links("vic", Role.VIEWER)
        browser = await Browser(console_app(sources, Access(links=links)), links).sign_in()
        handle = await asking(own, publishes, "publish")
        path = together_path("publishes", QuestionKind.APPROVAL, "publish")
        page = await page_with(browser, path, handle.id)
        assert "Approve all chosen" not in page
        assert (await browser.post(path, {"csrf": token_in(page), "approved": "yes", "why": "x"})).status_code == 403
        assert (await browser.get("/inbox/together?kind=approval")).status_code == 404
        await handle.terminate()


class TestForm:
    """What is entered, and what becomes of it."""

    async def test_a_made_default_is_shown_and_a_refused_value_is_told_at_its_field(
        self, browser: Browser, own: Worker
    ) -> None:
        """By the console, or by the rule of the model: in words, with everything that was entered."""
        handle = await asking(own, publishes, "publish", form=True)
        path = approval_path(handle.id, await question_of(own, handle))
        page = (await browser.get(path)).text
        assert "urgent</textarea>" in page
        assert 'value="5"' in page
        fields = {**fields_of(page), "approved": "yes", "why": "seen", "answer/tags": "urgent\nnew"}
        for copies, words in (("101", "give at most 100"), ("4", "an odd number is needed")):
            refused = await browser.post(path, {**fields, "answer/copies": copies})
            at_field = refused.text.partition('name="answer/copies"')[2].partition("</div>")[0]
            assert (refused.status_code, words in at_field, f'value="{copies}"' in at_field) == (409, True, True)
            assert "urgent\nnew</textarea>" in refused.text
            assert "seen</textarea>" in refused.text
        await browser.post(path, {**fields, "answer/copies": "7"})
        assert (await handle.result()).output == {"tags": ["urgent", "new"], "copies": 7}

    async def test_whose_decision_came_second_is_told_whose_counted(self, browser: Browser, own: Worker) -> None:
        """What they had entered is not lost."""
        handle = await asking(own, publishes, "publish")
        path = approval_path(handle.id, await question_of(own, handle))
        fields = {**fields_of((await browser.get(path)).text), "approved": "yes", "why": "I read it all"}
        [asked] = (await read_run(own.client, handle.id)).approvals
        await decide(own.client, handle.id, asked.answer("deny", who="carol", why="not yet"))
        late = await browser.post(path, fields)
        assert late.status_code == 409
        told = late.text.partition('role="alert"')[2].partition("</div>")[0]
        assert [text in told for text in ("<bdi>carol</bdi> decided first: denied", "I read it all")] == [True, True]
