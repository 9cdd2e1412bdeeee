"""What runs ask people is in their memos and histories: it is read without a worker, and without asking the runs."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, Interceptor, OutboundInterceptor, QueryWorkflowInput
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from baton import Exhibit, Overview, PipelineError, PipelineInput
from baton.client import (
    Answer,
    Cursor,
    Decide,
    PendingHandoff,
    Question,
    RunFilter,
    WaitingQuestion,
    decide,
    follow,
    inbox,
    list_runs,
    open_approvals,
    read_handoffs,
    read_run,
    standing,
    waits,
)
from baton.client.faces import CheckMark, InboxFilter, QuestionKind, inbox_page
from baton.core.questions import OpenQuestions, approval_choices, handoff_choices, handoff_title, summarize_questions
from baton.core.verdict import Code, Disposition, Finding
from baton.devserver import DevServer, DevServerOptions
from baton.handoff.relay import HandoffTerms
from baton.plugin import BatonPlugin
from baton.runs import client_waiting
from baton.runs.client_checks import check_search_attributes
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import (
    ANSWER,
    ATTRIBUTE_PIPELINE,
    ATTRIBUTE_UNTIL,
    MEMO_QUESTIONS,
    NOT_WAITING,
    QUERY_QUESTIONS,
    QUERY_STATUS,
    SEARCH_ATTRIBUTES,
)
from tests.handoff.question_pipelines import (
    LONG,
    PIPELINES,
    asks_about_a_handoff,
    asks_many,
    asks_on_and_on,
    asks_one,
    asks_two,
    asks_two_about_a_handoff,
)
from tests.support import GOAL, LIMIT, Handle, start, until_waiting

NOW = datetime(2026, 11, 29, tzinfo=UTC)
UNTIL = SearchAttributeKey.for_datetime(ATTRIBUTE_UNTIL)
DIGEST = f"sha256:{'0' * 64}"
MAX_MEMO_BYTES = 2_048  # the SDK warns of more


@pytest.fixture(scope="module")
async def client(server: DevServer) -> Client:
    return await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])


def served(client: Client, queue: str | None = None) -> Any:
    """Return a worker of these pipelines for a while."""
    return pipeline_worker(client, PIPELINES, [], task_queue=queue)


async def asking(client: Client, pipeline: Any, *titles: str) -> tuple[Handle, str]:
    """Return a run that asks, once it does, and its task queue, whose worker has ended."""
    async with served(client) as worker:
        handle = await start(worker, pipeline)
        await until_waiting(handle, *titles)
    return handle, worker.task_queue


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget workers at once; the server remembers them for minutes after they ended."""
    monkeypatch.setattr(client_waiting, "WORKER_SILENCE", timedelta(0))


async def listed(client: Client, handle: Handle) -> list[WaitingQuestion]:
    """Return a run's entries in the inbox, once the server's index has it."""
    while True:
        entries = [entry async for entry in inbox(client, limit=10_000) if entry.workflow_id == handle.id]
        if entries:
            return entries
        await asyncio.sleep(0.05)  # the index lags behind, and tells nobody when it has caught up


async def inboxed(client: Client, handle: Handle) -> list[WaitingQuestion]:
    """Return what a run asks people, once it does."""
    while not (entries := [entry async for entry in inbox(client, handle.id)]):  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    return entries


async def memo_bytes(handle: Handle) -> list[int]:
    """Return the size of each memo update with questions."""
    return [
        event.workflow_properties_modified_event_attributes.upserted_memo.ByteSize()
        async for event in handle.fetch_history_events()
        if MEMO_QUESTIONS in event.workflow_properties_modified_event_attributes.upserted_memo.fields
    ]


async def open_questions(client: Client, handle: Handle) -> list[Question]:
    return (await read_run(client, handle.id)).questions


async def yes(client: Client, handle: Handle, who: str, answer: Any = None) -> Answer:
    [asked] = await open_questions(client, handle)
    return asked.answer("approve", who=who, why="it is tested", data=answer)


class Unqueried(Interceptor):
    """A client's queries fail."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        class Outbound(OutboundInterceptor):
            async def query_workflow(self, input: QueryWorkflowInput) -> Any:
                raise AssertionError(f"a face sent the query {input.query!r}")

        return Outbound(next)


class TestWithoutQuery:
    async def test_what_faces_read_and_decide_asks_no_run(self, server: DevServer, client: Client) -> None:
        """Also while a worker is there, and if what is decided is refused."""
        quiet = await Client.connect(
            server.address, plugins=[BatonPlugin(safeguards="off")], interceptors=[Unqueried()]
        )
        async with served(client) as worker:
            asks, refers = [await start(worker, pipeline) for pipeline in (asks_one, asks_about_a_handoff)]
            await until_waiting(asks, "release manager")
            [handoff] = [entry.handoff for entry in await inboxed(quiet, refers) if entry.handoff]
            runs = [await read_run(quiet, handle.id) for handle in (asks, refers)]
            said = [standing(run, await waits(quiet, run)) for run in runs]
            voted = await yes(quiet, asks, "ann", {"limit": 1})
            with pytest.raises(PipelineError, match="takes no data"):
                await decide(quiet, asks.id, voted)
            released = Answer(question=handoff.handoff_id, choice="release", who="ann", why="it is tested")
            with pytest.raises(PipelineError, match="release"):
                await decide(quiet, refers.id, released)
            for handle in (asks, refers):
                await handle.terminate()

        assert [entry.status for entry in said] == ["WAITING", "PENDING_HANDOFF"]


class TestOpenApprovals:
    async def test_a_service_lists_and_decides_them(self, client: Client) -> None:
        """Those of all runs, or of one; a handoff that waits is none."""
        async with served(client) as worker:
            asks, refers = [await start(worker, pipeline) for pipeline in (asks_one, asks_about_a_handoff)]
            await until_waiting(asks, "release manager")
            await inboxed(client, refers)
            await listed(client, asks)

            assert [asked.workflow_id async for asked in open_approvals(client, refers.id)] == []
            assert asks.id in [asked.workflow_id async for asked in open_approvals(client)]
            async for asked in open_approvals(client, asks.id):
                answer = asked.question.answer("approve", who="ann", why="it is tested")
                assert (await decide(client, asked.workflow_id, answer)).approved
            assert (await asks.result()).output == ["ann", "update"]
            assert [asked async for asked in open_approvals(client, asks.id)] == []
            await refers.terminate()

    async def test_whatever_is_read_of_a_run_is_json(self, client: Client) -> None:
        """By the same method, records within records too."""
        async with served(client) as worker:
            handle = await start(worker, asks_one)
            await until_waiting(handle, "release manager")
            run = await read_run(client, handle.id)
            waiting, preview = await waits(client, run), await Decide(client, handle.id, "approve").preview()
            assert waiting is not None
            [asked] = [asked async for asked in open_approvals(client, handle.id)]
            handoffs, update = await read_handoffs(client, handle.id), await anext(follow(client, handle.id))
            while not (runs := [run async for run in list_runs(client, RunFilter(id_prefix=handle.id))]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await handle.terminate()

        stands = standing(run, waiting)
        records: list[Any] = [run, *run.steps, waiting, stands, asked, asked.question, handoffs, update, *runs, preview]
        read = [json.loads(json.dumps(record.to_json_object())) for record in records]
        assert read[-2]["workflow_id"] == read[0]["workflow_id"] == read[-4]["run"]["workflow_id"] == handle.id
        assert read[2]["pending"][0]["asked"]["title"] == asked.to_json_object()["question"]["title"]
        assert {Cursor.parse(text) for text in read[-3]["cursors"]} == {*update.cursors}


class TestWithoutWorker:
    async def test_it_is_listed_and_said_that_no_worker_is_there(self, client: Client, forgotten: None) -> None:
        """Nothing asks the run: it could not answer."""
        handle, _ = await asking(client, asks_one, "release manager")
        [entry] = await listed(client, handle)

        assert entry.approval is not None
        assert (entry.approval.title, entry.approval.asks, entry.has_worker) == ("release manager", "Publish?", False)
        assert entry.deadline == entry.approval.until
        assert [entry async for entry in inbox(client, handle.id)] == [entry]
        assert len(await memo_bytes(handle)) == 1, "one event for one question"
        await handle.terminate()
        while handle.id in [entry.workflow_id async for entry in inbox(client)]:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
        assert [entry async for entry in inbox(client, handle.id)] == []

    async def test_two_people_decide_while_the_worker_restarts(self, client: Client, forgotten: None) -> None:
        """The second one sees the first one's vote and answer, and all that is shown, from the history alone."""
        handle, queue = await asking(client, asks_two, "release manager")
        [anns] = await open_questions(client, handle)
        assert [exhibit.text for exhibit in anns.shows] == [LONG]
        async with served(client, queue):
            asked: Overview = await handle.query(QUERY_STATUS, result_type=Overview)
            assert [question.digest for question in asked.questions] == [anns.digest]
            reply = await decide(client, handle.id, await yes(client, handle, "ann", {"limit": 5}))
            assert reply.missing == 1

        [entry] = await listed(client, handle)
        [bobs] = await open_questions(client, handle)
        assert entry.approval is not None
        assert [vote.who for vote in entry.approval.votes] == ["ann"]
        assert [(vote.who, vote.data) for vote in bobs.votes] == [("ann", {"limit": 5})]
        assert max(await memo_bytes(handle)) < MAX_MEMO_BYTES
        async with served(client, queue):
            await decide(client, handle.id, await yes(client, handle, "bob", {"limit": 5}))
            assert (await handle.result()).output == "ann, bob"
            await assert_replays(handle, PIPELINES)
        assert (await handle.describe()).typed_search_attributes.get(UNTIL) == NOT_WAITING

    async def test_a_decision_waits_for_a_worker(self, client: Client, forgotten: None) -> None:
        """The server holds it."""
        handle, queue = await asking(client, asks_one, "release manager")

        assert await Decide(client, handle.id, "approve").commit(by="ann") is None
        async with served(client, queue):
            assert (await handle.result()).output == ["ann", "signal"]

    async def test_what_the_pipelines_code_asks_is_listed(self, client: Client) -> None:
        """`Pipeline.ask` puts a handoff into the inbox like an escalation."""
        async with served(client) as worker:
            handle = await start(worker, asks_about_a_handoff)
            [entry] = await listed(client, handle)

        assert entry.handoff is not None
        assert (entry.deadline, entry.stage) == (entry.question and entry.question.until, "legal → finance")
        await handle.terminate()


class TestCarriedAnswers:
    async def test_none_is_carried_over(self, client: Client) -> None:
        """Each is in the outcome of its step, which the next run restores; long reasons would not fit its input."""
        async with served(client) as worker:
            handle = await start(worker, asks_on_and_on)
            for seq in range(1, 9):
                question = await question_of(handle, seq)
                await decide(client, handle.id, question.answer("requeue", who="ann", why="x" * 10_000))
            result = await handle.result()

        assert result.output == []
        assert [settled.choice for settled in (await read_run(client, handle.id)).answers] == ["requeue"] * 8


async def question_of(handle: Handle, seq: int) -> Question:
    """Return the question of a step, once it is asked."""
    while True:
        questions: list[Question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
        for question in questions:
            if question.seq == seq:
                return question
        await asyncio.sleep(0.01)


class TestTerms:
    """A pipeline says who decides about its handoffs, and how many must agree."""

    async def test_two_people_agree_on_what_becomes_of_a_handoff(self, client: Client) -> None:
        """The rules are those of approvals; also by signal, which a service may use."""
        async with served(client) as worker:
            handle = await start(worker, asks_two_about_a_handoff)
            question = await question_of(handle, 1)
            with pytest.raises(PipelineError, match="'eve' may not decide"):
                await decide(client, handle.id, question.answer("requeue", who="eve", why="w"))
            first = await decide(client, handle.id, question.answer("requeue", who="ann", why="w"))
            assert first.missing == 1
            with pytest.raises(PipelineError, match="does not allow 'edit'; use requeue, abandon"):
                await decide(client, handle.id, question.answer("edit", who="bob", data={"patch": {"goal": "x"}}))
            await handle.signal(ANSWER, question.answer("requeue", who="bob", why="as ann says"))

            assert (await handle.result()).output == ["requeue", "ann, bob", "signal"]
            await assert_replays(handle, PIPELINES)
        [settled] = (await read_run(client, handle.id)).handoff_decisions
        assert [(vote.who, vote.choice) for vote in settled.votes] == [("ann", "requeue"), ("bob", "requeue")]

    async def test_a_voter_abandons_what_they_wanted_to_requeue(self, client: Client) -> None:
        """They need nobody else; inbox and record say so."""
        async with served(client) as worker:
            handle = await start(worker, asks_two_about_a_handoff)
            question = await question_of(handle, 1)
            requeue = question.answer("requeue", who="ann", why="w")
            assert (await decide(client, handle.id, requeue)).missing == 1
            [voted] = await open_questions(client, handle)
            assert (voted.missing, [vote.who for vote in voted.votes]) == (1, ["ann"])
            await decide(client, handle.id, question.answer("abandon", who="ann", why="seen again"))

            assert (await handle.result()).output == ["abandon", "ann", "update"]
            await assert_replays(handle, PIPELINES)
        [settled] = (await read_run(client, handle.id)).handoff_decisions
        assert [(vote.choice, vote.replaced) for vote in settled.votes] == [("requeue", True), ("abandon", False)]

    def test_who_may_decide_is_checked_at_the_start(self) -> None:
        """Otherwise the handoff would wait in vain."""
        with pytest.raises(ValueError, match="2 people have to approve, and only ann may"):
            HandoffTerms(needs=2, who=["ann"])
        with pytest.raises(TypeError, match="expected a list"):
            HandoffTerms(who="ann")


class TestManyQuestions:
    async def test_all_of_one_run_are_listed(self, client: Client) -> None:
        """Those that do not fit into its memo are in its history."""
        titles = [f"person {number}" for number in range(8)]
        handle, queue = await asking(client, asks_many, *titles)

        entries = await listed(client, handle)
        assert [entry.approval and entry.approval.title for entry in entries] == titles[::-1], "by deadline"
        assert max(await memo_bytes(handle)) < MAX_MEMO_BYTES
        assert {approval.asks for approval in await open_questions(client, handle)} == {LONG[:800]}
        async with served(client, queue):
            for approval in await open_questions(client, handle):
                await decide(client, handle.id, approval.answer("approve", who="ann", why="w"))
                await read_run(client, handle.id)
            assert (await handle.result()).output == ["ann"] * 8
            await assert_replays(handle, PIPELINES)


@pytest.fixture(scope="class")
async def crowd() -> AsyncIterator[Client]:
    """A server of its own where 36 runs ask, started in the order of their deadlines; ten have the same one."""
    async with DevServer(DevServerOptions(ui_port=None)) as server:
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
        now = datetime.now(UTC).replace(microsecond=0)
        deadlines = [
            *(now + timedelta(minutes=number - 5) for number in range(6)),  # some have passed: their workers are away
            *[now + timedelta(hours=1)] * 10,
            *(now + timedelta(days=number) for number in range(1, 21)),
        ]
        for number, until in enumerate(deadlines):
            asked = approval(title="lead", since=now, until=until, digest=DIGEST)
            attributes = TypedSearchAttributes([SearchAttributePair(UNTIL, until)])
            memo = {MEMO_QUESTIONS: OpenQuestions(questions=[asked])}
            id, queue = f"asks-{number:02}", f"queue-{number % 3}"
            await client.start_workflow("Asks", id=id, task_queue=queue, memo=memo, search_attributes=attributes)
        while (await inbox_page(client)).total < len(deadlines):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
        yield client


class TestPages:
    @pytest.mark.parametrize("limit", [3, 7, 12, 100])
    async def test_the_nearest_deadline_comes_first_and_none_is_left_out(self, crowd: Client, limit: int) -> None:
        """The server's order is the newest start first, which hid the oldest questions."""
        pages = [await inbox_page(crowd, limit=limit, skip=skip) for skip in range(0, 36, limit)]

        entries = [entry for page in pages for entry in page.entries]
        deadlines = [entry.deadline for entry in entries]
        assert deadlines == sorted(deadlines, key=lambda deadline: deadline or NOW)
        assert {entry.workflow_id for entry in entries} == {f"asks-{number:02}" for number in range(36)}
        assert {page.total for page in pages} == {36}
        assert (pages[0].remaining, pages[-1].remaining) == (max(0, 36 - limit), 0)

    async def test_a_filter_selects_what_the_server_does_not_index_too(self, crowd: Client) -> None:
        """Pipeline, kind, title, and what a person may decide; the count is of what fits."""
        wanted = [
            InboxFilter(pipeline="Asks"),
            InboxFilter(kind=QuestionKind.APPROVAL),
            InboxFilter(title="lead"),
            InboxFilter(who="ann"),
        ]
        other = [
            InboxFilter(pipeline="As'ks"),
            InboxFilter(kind=QuestionKind.BUDGET),
            InboxFilter(title="leads"),
            InboxFilter("Asks", QuestionKind.UNREADABLE),
        ]
        pages = [await inbox_page(crowd, each, limit=7, skip=7) for each in wanted]
        assert {(page.total, len(page.entries), page.remaining, page.soon) for page in pages} == {(36, 7, 22, 16)}
        assert len({tuple(entry.workflow_id for entry in page.entries) for page in pages}) == 1
        assert [(await inbox_page(crowd, each)).total for each in other] == [0] * 4
        searched = await inbox_page(crowd, InboxFilter(title="lead"), depth=10)
        assert (searched.total, searched.unsearched) == (10, 26)

    @pytest.mark.parametrize("page", [3, 100])
    async def test_a_list_of_all_has_the_same_order(
        self, crowd: Client, monkeypatch: pytest.MonkeyPatch, page: int
    ) -> None:
        """It is read in pages that grow; none is left out, and none comes twice."""
        monkeypatch.setattr("baton.runs.client_inbox.PAGE", page)

        entries = [entry async for entry in inbox(crowd)]
        assert [entry.deadline for entry in entries] == sorted(entry.until or NOW for entry in entries)
        assert sorted(entry.workflow_id for entry in entries) == [f"asks-{number:02}" for number in range(36)]
        assert [entry async for entry in inbox(crowd, limit=7)] == entries[:7]
        nearest = [entry async for entry in open_approvals(crowd, limit=5)]
        assert [vars(entry) for entry in nearest] == [vars(entry) for entry in entries[:5]]
        assert [entry async for entry in inbox(crowd, limit=0)] == []

    async def test_one_that_cannot_be_read_does_not_hide_the_others(self, crowd: Client) -> None:
        """It is listed with its deadline and the trouble."""
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=30)
        attributes = TypedSearchAttributes([SearchAttributePair(UNTIL, until)])
        memo = {MEMO_QUESTIONS: {"questions": 5}}
        handle = await crowd.start_workflow(
            "Asks", id=f"broken-{uuid4()}", task_queue="q", memo=memo, search_attributes=attributes
        )
        [entry] = await listed(crowd, handle)
        assert (entry.question, entry.deadline) == (None, until)
        assert handle.id not in [asked.workflow_id async for asked in open_approvals(crowd)]
        assert "cannot be decoded" in (entry.trouble or "")
        await handle.terminate()


class TestMissingAttribute:
    async def test_a_run_without_it_never_fails_a_task(self) -> None:
        """The namespace has Baton's other attributes; `doctor --fix` adds the one that it lacks."""
        others = {name: kind for name, kind in SEARCH_ATTRIBUTES.items() if name != ATTRIBUTE_UNTIL}
        async with DevServer(DevServerOptions(ui_port=None, search_attributes=others)) as server:
            plain = await Client.connect(server.address)
            client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
            label = SearchAttributePair(SearchAttributeKey.for_keyword(ATTRIBUTE_PIPELINE), "asks_one")
            async with served(client) as worker:
                handle: Handle = await plain.start_workflow(
                    "asks_one",
                    PipelineInput(goal=GOAL).model_dump(mode="json"),
                    id="unlabelled",
                    task_queue=worker.task_queue,
                    search_attributes=TypedSearchAttributes([label]),
                    execution_timeout=LIMIT,
                )
                own = client.get_workflow_handle("unlabelled")
                await until_waiting(own, "release manager")
                await decide(client, handle.id, await yes(client, own, "ann"))
                await own.result()

                assert (await check_search_attributes(client, fix=False)).mark is CheckMark.FAIL
                assert (await check_search_attributes(client, fix=True)).found == f"added {ATTRIBUTE_UNTIL}"
                other = await start(worker, asks_one)
                [entry] = await listed(client, other)
                assert entry.approval is not None

    async def test_doctor_names_one_of_another_type(self) -> None:
        """With it, a pipeline cannot start."""
        wrong = {**SEARCH_ATTRIBUTES, ATTRIBUTE_UNTIL: "Keyword"}
        async with DevServer(DevServerOptions(ui_port=None, search_attributes=wrong)) as server:
            finding = await check_search_attributes(await Client.connect(server.address), fix=True)
        assert (finding.mark, f"{ATTRIBUTE_UNTIL} is to be Datetime" in finding.found) == (CheckMark.FAIL, True)


def approval(form: dict[str, Any] | None = None, **members: Any) -> Question:
    choices = [choice.model_copy(update={"form": form}) for choice in approval_choices(None)]
    usual: dict[str, Any] = {"id": "1:a", "title": "lead", "seq": 1, "since": NOW, "until": NOW, "choices": choices}
    return Question(**{**usual, **members})


def handoff(**members: Any) -> Question:
    usual: dict[str, Any] = {
        "handoff_id": "h",
        "seq": 1,
        "sender": "extract",
        "receiver": "score",
        "fate": Disposition.DEAD_LETTER,
        "details": "why",
    }
    about = PendingHandoff(**{**usual, **members})
    return approval(title=handoff_title(about), handoff=about, choices=handoff_choices(about))


class TestSummarize:
    WIDE = "\N{GRINNING FACE}"

    @pytest.mark.parametrize(
        "question",
        [
            approval(),
            approval(asks=WIDE * 2_000),
            approval(title=WIDE * 200, asks=WIDE * 2_000, who=[WIDE * 200] * 100, needs=3),
            approval(shows=[Exhibit(title=WIDE * 200, text="t" * 9_000, length=9_000, digest=DIGEST)] * 20),
            approval({"required": ["n" * 900] * 50, "properties": {}}),
            handoff(details="d" * 20_000),
            handoff(
                sender="s" * 900,
                receiver="r" * 900,
                findings=[Finding(code=Code.SAFETY_VIOLATION, text="t" * 2_000)] * 30,
            ),
        ],
    )
    def test_a_question_of_any_size_fits(self, question: Question) -> None:
        """The SDK warns of a memo that is larger, and lists get slow."""
        summary = summarize_questions([question])
        assert len(summary.model_dump_json().encode()) < MAX_MEMO_BYTES - 200  # encryption adds something
        [found] = summary.questions
        assert (found.id, found.until) == (question.id, question.until)
        assert [choice.name for choice in found.choices] == [choice.name for choice in question.choices]
        assert found.is_whole == (found == question)

    def test_the_newest_is_among_many(self) -> None:
        """So each question is in the history when it opens."""
        questions = [approval(id=f"1:{number}", asks="a" * 500) for number in range(50)]
        summary = summarize_questions(questions, "1:49")
        assert summary.questions[0].id == "1:49"
        assert len(summary.questions) + summary.more == 50
