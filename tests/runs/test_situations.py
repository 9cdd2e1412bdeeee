"""Everything that a run can wait for, in every view, whatever its worker does: all say the same."""

import asyncio
import contextlib
import html
import io
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.worker import Worker
from typer.testing import CliRunner

from baton import BatonPlugin, Budget, Keyring, PipelineError, PipelineInput, Safeguards, WorkerParts
from baton.cli.app import make_app
from baton.cli.decide import LiveView
from baton.cli.watch import Page
from baton.client import Followed, OutsideAgents, Pause, Role, decide, follow, fork, inbox, roll_back
from baton.console.app import console_app
from baton.console.security import Access, Links
from baton.console.sources import Sources
from baton.devserver import DevServerOptions
from baton.runs import client_waiting
from baton.testing import local_server, pipeline_worker
from tests.agents.coding_agents.calling import RefusedError, call
from tests.doors.clients.desks import desk_at, served
from tests.runs.situations import DAY, FULL, INJECTION, LOST, PIPELINES, SOON, STAGES, Store

QUEUE = "situations"
BASE = "http://127.0.0.1:8234"
BOTH = ("ann", "bob")
REPORTS_AT_ONCE = {"system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute": 1}
OPTIONS = DevServerOptions(ui_port=None, settings=REPORTS_AT_ONCE)  # on which runs may be paused
LONG = timedelta(minutes=10)
"""No longer than this does the test take."""
PASSES = 8  # until the server's index, which lags behind, knows all


@dataclass(frozen=True)
class Asked:
    """A question that a run asks people: its title, its label in the inbox, who decides, and who has."""

    title: str
    label: str = "approval"
    who: tuple[str, ...] = ()
    needs: int = 1
    voted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Situation:
    """A run, and what it waits for.

    Attributes:
        pipeline: The pipeline of `tests.runs.situations`.
        params: Its parameters.
        status: What every view calls it.
        asked: What it asks people.
        needs_you: Whether a person has to do something, apart from its worker's.
        ended: Whether it has ended.
        within: The time that the nearest deadline had in the beginning, or a sleep.
        also: The stage that it waits for besides.
    """

    pipeline: str
    params: Mapping[str, Any] = field(default_factory=dict)
    status: str = "RUNNING"
    asked: Sequence[Asked] = ()
    needs_you: bool = False
    ended: bool = False
    within: timedelta | None = None
    also: str | None = None


def approval(*asked: Asked, **params: Any) -> Situation:
    """Return a run that asks this."""
    within = SOON if params.get("soon") else DAY
    titles = {"titles": [question.title for question in asked], **params}
    return Situation("approves", titles, "WAITING", asked, needs_you=True, within=within)


def handoff(label: str, to: str, title: str = "", **params: Any) -> Situation:
    """Return a run with a handoff that waits for Ann or Bob."""
    asked = Asked(title or f"prepare → {to}", label, BOTH)
    return Situation("hands_on", {"to": to, **params}, "PENDING_HANDOFF", [asked], needs_you=True, within=DAY)


GATE, REFUSED = Asked("gate"), "legal → finance"
SITUATIONS = {
    "approval": approval(GATE),
    "approval-of-two-of-three": approval(
        Asked("gate", who=("ann", "bob", "carl"), needs=2, voted=("ann",)), who=["ann", "bob", "carl"], needs=2
    ),
    "approval-with-a-near-deadline": approval(GATE, soon=True),
    "approval-with-a-form": approval(GATE, typed=True),
    "two-questions": approval(Asked("one"), Asked("other")),
    "rolled-back": approval(GATE),
    "dead-letter": handoff("dead letter", "work", "hands_on → prepare", log=INJECTION),
    "needs-input": handoff("needs input", "scoped"),
    "failed-after-accepting": handoff("escalation", "fail"),
    "empty-budget": handoff("budget exhausted", "dear"),
    "one-branch-asks": replace(handoff("needs input", "work+scoped", "prepare → scoped"), also="work"),
    "one-branch-asks-and-one-lacks-a-worker": replace(
        handoff("needs input", "unknown+scoped", "prepare → scoped"), also="worker"
    ),
    "ask": Situation("asks", {}, "PENDING_HANDOFF", [Asked(REFUSED, "escalation", BOTH, 2)], True, within=DAY),
    "ask-anybody": Situation("asks_anybody", {}, "PENDING_HANDOFF", [Asked(REFUSED, "escalation")], True, within=DAY),
    "no-worker-has-the-stage": Situation("runs_stage", {"to": "unknown"}, "SUSPENDED", needs_you=True),
    "lost-artifact": Situation("hands_on", {"to": "read_plan", "writes": LOST}, "SUSPENDED", needs_you=True),
    "full-store": Situation("hands_on", {"to": "work", "writes": FULL}),
    "code-does-not-fit": Situation("not_there", {}, "SUSPENDED", needs_you=True),
    "unknown-key": Situation("", {}, "SUSPENDED", needs_you=True),
    "paused": Situation("approves", {"titles": ["gate"]}, "PAUSED", needs_you=True),
    "at-work": Situation("runs_stage", {"to": "work"}),
    "retries": Situation("runs_stage", {"to": "try_again"}),
    "child-asks": Situation("parents"),
    "outside": Situation("hands_outside", status="WAITING", within=DAY),
    "outside-and-at-work": Situation("hands_outside", {"works": True}, "WAITING", within=DAY, also="work"),
    "sleeps": Situation("sleeps", within=DAY),
    "completed": Situation("approves", {"titles": []}, "COMPLETED", ended=True),
    "unsealed-past": Situation("approves", {}, "FAILED", ended=True),
    "failed": Situation("runs_stage", {"to": "fail"}, "FAILED", ended=True),
    "canceled": Situation("approves", {"titles": ["gate"]}, "CANCELED", ended=True),
}
"""By the workflow id of the run."""


Said = dict[str, Any]
"""What a view says of a run; it need not say everything."""


async def start_all(client: Client) -> None:
    """Start all runs; those that are forked, paused, canceled, voted on or rolled back need `settle` besides."""
    for id, situation in SITUATIONS.items():
        if not situation.pipeline:
            continue
        budget = Budget(initial_micro_usd=200_000) if id == "empty-budget" else None
        start: Any = PipelineInput(goal=id, params=dict(situation.params), budget=budget)
        starter, attributes = client, None
        if id == "unsealed-past":  # somebody who has no key
            starter = await Client.connect(client.service_client.config.target_host)
            past = {"goal": id, "origin": {"workflow_id": "w", "run_id": "r", "at": "s"}}
            start = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(past).encode()))
            label = SearchAttributeKey.for_keyword("BatonPipeline")
            attributes = TypedSearchAttributes([SearchAttributePair(label, situation.pipeline)])
        await starter.start_workflow(situation.pipeline, start, id=id, task_queue=QUEUE, search_attributes=attributes)


async def settle(client: Client) -> None:
    """Have people do what some situations need, once their runs ask."""
    for id in ("paused", "canceled", "rolled-back", "approval-of-two-of-three"):
        while not (entries := [entry async for entry in inbox(client, id)]):
            pass
        question = entries[0].question
        assert question is not None
        if id == "paused":
            await Pause(client, id).commit(by="ann", why="an audit")
        elif id == "canceled":
            await client.get_workflow_handle(id).cancel()
        elif id == "rolled-back":
            await roll_back(client, id, "1", by="ann", why="once more")
        else:
            await decide(client, id, question.answer("approve", who="ann", why="it is tested"))
    while not ([entry async for entry in inbox(client, "needs-input")]):
        pass
    address = client.service_client.config.target_host
    stranger = await Client.connect(address, plugins=[BatonPlugin(keyring=Keyring.generate())])
    with pytest.raises(PipelineError):  # its workers do not know the key
        await fork(stranger, "needs-input", "2", by="eve", why="once more", new_id="unknown-key")


def rounded(until: str | datetime | None) -> str | None:
    """Return a deadline in milliseconds, as the console writes it."""
    at = datetime.fromisoformat(until) if isinstance(until, str) else until
    return at.isoformat(timespec="milliseconds") if at else None


def short(question: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return id, title, people, how many of them, and deadline of a question in JSON."""
    who, needs = tuple(question.get("who", [])), question.get("needs", 1)
    return question["id"], question["title"], who, needs, rounded(question["until"])


def uncounted(sentence: str) -> str:
    """Return a sentence without times, which are of a time zone, and without the number of tries, which grows."""
    return re.sub(r" \d+ times|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( UTC)?", "", sentence)


async def watched(client: Client, id: str, reference: Said) -> Said:
    """Return what `baton watch` says of a run: its news as JSON, and which of the sentences are on its page."""
    updates: Any = follow(client, id)
    async with contextlib.aclosing(updates):
        update: Followed = await anext(updates)
    assert update.run is not None
    open_ids = {question[0] for question in reference["questions"]}
    asked = [piece.to_json_object().get("question") for piece in update.news]
    said: Said = {"questions": sorted(short(question) for question in asked if question and question["id"] in open_ids)}
    if reference["ended"]:
        return said
    page = Page(Console(file=io.StringIO(), width=10_000))
    page.take(update)

    def sentences() -> list[str]:
        console = Console(file=io.StringIO(), width=10_000, record=True)
        console.print(page.whole())
        text = " ".join(uncounted(console.export_text()).split())
        return [sentence for sentence in reference["sentences"] if " ".join(sentence.split()) in text]

    await until(page.poll_waits(client), lambda: sentences() == reference["sentences"])
    return {**said, "sentences": sentences()}


async def printed(client: Client, id: str, reference: Said) -> Said:
    """Return which questions `baton.run` prints with a command that helps, and which agent outside it names."""
    file = io.StringIO()
    names = [question[1].rpartition(" → ")[2] for question in reference["questions"]]
    outside = [agent for agent, _ in reference["outside"]]

    def named() -> list[str]:
        lines = file.getvalue().splitlines()
        helped = [name for name in names if any("(baton " in line and name in line for line in lines)]
        return helped + [name for name in outside if any(name in line for line in lines)]

    live = LiveView(client, Console(file=file, width=10_000))
    await until(live.show(id), lambda: named() == names + outside)
    return {"named": named()}


async def until(view: Coroutine[Any, Any, None], is_said: Callable[[], bool]) -> None:
    """Run a view that has no end until it says something, for two seconds at most."""
    showing = asyncio.create_task(view)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while not is_said():  # noqa: ASYNC110 - the view has to be looked at
                await asyncio.sleep(0.01)
    showing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await showing


@dataclass(frozen=True)
class Views:
    """The faces of one server: the command, the console, the door for agents outside, and the client."""

    client: Client
    folder: Path
    console: httpx.AsyncClient
    gate: Any

    async def command(self, *words: str) -> Any:
        """Return what a command prints with ``--json``."""
        env = {"TEMPORAL_ADDRESS": self.client.service_client.config.target_host}

        def invoke() -> str:
            with contextlib.chdir(self.folder):
                result = CliRunner().invoke(make_app(), [*words, "--json"], env=env)
            assert result.stdout, result.stderr
            return result.stdout

        return json.loads(await asyncio.to_thread(invoke))

    async def page(self, path: str) -> str:
        """Return a page of the console."""
        answer = await self.console.get(path)
        assert answer.status_code == 200, answer.text
        return html.unescape(answer.text)

    async def handoffs(self) -> list[Any] | str:
        """Return what the service lists for the agent outside, or why not; it remembers no run without an answer."""
        async with served(OutsideAgents(self.client, self.gate)) as url, desk_at(url) as agent:
            try:
                rows: list[Any] = await call(agent, "list_mine")
            except RefusedError as error:
                return str(error)
        return rows

    async def listed(self) -> dict[str, Said]:
        """Return what `baton list` says."""
        runs = await self.command("list", "--children", "--limit", "100")
        newest = {run["workflow_id"]: run for run in reversed(runs)}  # that which was rolled back is listed as well
        return {id: {"status": run["status"], "ended": run["ended"] is not None} for id, run in newest.items()}

    async def shown(self, id: str) -> Said:
        """Return what `baton show` says of a run: all that there is to say."""
        page = await self.command("show", id)
        first = page["standings"][0]
        return {
            "status": first["status"],
            "ended": page["ended"] is not None,
            "first": (first["waits_for"], first["whom"]),
            "until": rounded(first["until"]),
            "needs you": first["needs_you"],
            "questions": sorted(short(entry["question"]) for entry in page["standings"] if entry["question"]),
            "outside": [
                (entry["whom"], entry["until"])
                for entry in page["standings"]
                if entry["whom"] and not entry["question"]
            ],
            "sentences": [uncounted(entry["sentence"]) for entry in page["standings"]],
            "has worker": page["has_worker"],
            "deadlines": [datetime.fromisoformat(entry["until"]) for entry in page["standings"] if entry["until"]],
            "words": {word for entry in page["standings"] for word in (entry["waits_for"] or "").split()},
        }

    async def in_inbox(self) -> dict[str, Said]:
        """Return what `baton inbox` says, by run."""
        said: dict[str, Said] = {}
        for entry in await self.command("inbox"):
            of_run = said.setdefault(entry["workflow_id"], {"questions": [], "has worker": entry["has_worker"]})
            of_run["questions"] = sorted([*of_run["questions"], short(entry["question"])])
            of_run.setdefault("voted", []).extend(vote["who"] for vote in entry["question"].get("votes", []))
        return said

    async def in_client(self, id: str) -> Said:
        """Return what `inbox` says of a run."""
        entries = [entry async for entry in inbox(self.client, id)]
        asked = [entry.to_json_object()["question"] for entry in entries]
        return {"questions": sorted(map(short, asked))}

    async def on_runs_page(self) -> dict[str, Said]:
        """Return what the console's list says."""
        while "still being read" in (page := await self.page("/?children=1&limit=100")):
            pass
        said = {}
        for part in page.split('<h2 id="')[1:]:
            for row in part.split("<tr>")[2:]:
                found = _ROW.search(row)
                assert found is not None, row
                id, badge, waits_for, whom, until = found.groups()
                said[id] = {"status": badge.upper().replace("-", "_"), "first": (waits_for, whom)}
                if until:
                    said[id]["until"] = rounded(until)
                if not part.startswith("failed-or-suspended"):
                    said[id]["needs you"] = part.startswith("needs-you")
        return said

    async def on_run_page(self, id: str) -> Said:
        """Return what the console's page of a run says."""
        found = _HEAD.search(await self.page(f"/run?id={id}"))
        assert found is not None
        return {"status": found[1].upper().replace("-", "_"), "sentence": uncounted(re.sub("<.*?>", "", found[2]))}

    async def on_inbox_page(self) -> tuple[dict[str, Said], set[str]]:
        """Return what the console's inbox says, by run, and the runs that it says have no worker."""
        page = await self.page("/inbox")
        said: dict[str, Said] = {}
        for card in page.split('<li class="card ask">')[1:]:
            found = _CARD.search(card)
            assert found is not None, card
            id, title, label, until, whom, needs, voted = found.groups()
            who = () if whom == "anybody" else tuple(whom.split(", "))
            of_run = said.setdefault(id, {"asks": [], "labels": [], "voted": []})
            of_run["asks"] = sorted([*of_run["asks"], (title, who, int(needs or 1), rounded(until))])
            of_run["labels"] += [label]
            of_run["voted"] += voted.split(", ") if voted else []
        _, _, notice = page.partition('class="notice"')
        return said, set(re.findall(r'href="/run\?id=([^"&]+)', notice))


_ROW = re.compile(
    r'href="/run\?id=([^"&]+)".*?badge s-([a-z-]+)".*?data-label="Waits for">(?:<bdi>(.*?)</bdi>)?'
    r'(?: <span class="muted">of <bdi>(.*?)</bdi></span>)?'
    r'.*?data-label="Deadline">(?:<time [^>]*datetime="(.*?)")?',
    re.DOTALL,
)
_HEAD = re.compile(r'<h1>.*?badge s-([a-z-]+)".*?class="standing">(.*?)</p>', re.DOTALL)
_CARD = re.compile(
    r'<bdi>(.*?)</bdi>: <bdi>(.*?)</bdi>.*?class="badge[^>]*>(.*?)<.*?<time class="until[^"]*" datetime="(.*?)"'
    r'.*? · for <bdi class="whom">(.*?)</bdi> to decide'
    r'(?: · <span class="agreed">\d+ of (\d+) agreed(?:: <bdi>(.*?)</bdi>)?</span>)?',
    re.DOTALL,
)


async def faults(views: Views, *, has_worker: bool) -> list[tuple[object, ...]]:
    """Return where two views, or a view and the table, say different things."""
    found: list[tuple[object, ...]] = []
    listed, inbox, rows = await views.listed(), await views.in_inbox(), await views.on_runs_page()
    cards, unserved = await views.on_inbox_page()
    references = {id: await views.shown(id) for id in listed}
    asking = {id for id, said in references.items() if said["questions"]}

    def compare(id: str, view: str, said: Said, reference: Said) -> None:
        found.extend((id, view, key, said[key], reference.get(key)) for key in said if said[key] != reference.get(key))

    for id, reference in references.items():
        voted = [*SITUATIONS[id].asked[0].voted] if id in SITUATIONS and id in asking else []
        named = [question[1].rpartition(" → ")[2] for question in reference["questions"]]
        named += [agent for agent, _ in reference["outside"]]
        reference = {**reference, "named": named, "voted": voted}
        reference["asks"] = sorted(question[1:] for question in reference["questions"])
        compare(id, "list", listed[id], reference)
        compare(id, "inbox", inbox.get(id, {"questions": []}), reference)
        compare(id, "client", await views.in_client(id) if reference["status"] != "PAUSED" else {}, reference)
        row = dict(rows[id])
        if reference["ended"]:
            row["first"] = reference["first"]  # the list has no column for it
        if reference["until"] is None:
            row.pop("until", None)  # the index has the nearest deadline of all questions, even of a paused run
        compare(id, "runs page", row, reference)
        card = cards.get(id, {"asks": []})
        compare(id, "inbox page", {key: card[key] for key in card if key != "labels"}, reference)
        page = await views.on_run_page(id)
        if not page.pop("sentence").startswith(reference["sentences"][0]):
            found.append((id, "run page", page, reference["sentences"]))
        compare(id, "run page", page, reference)
        compare(id, "watch", await watched(views.client, id, reference), reference)
        compare(id, "run", await printed(views.client, id, reference), reference)
        if not reference["ended"] and reference["has worker"] != has_worker:
            found.append((id, "show", "has worker", reference["has worker"]))
        if id in SITUATIONS:
            found += [
                (id, "table", *fault) for fault in against(SITUATIONS[id], reference, card, has_worker=has_worker)
            ]
    if unserved != (set() if has_worker else asking):
        found.append(("inbox page", "without a worker", unserved))
    found += [("missing", id) for id in SITUATIONS if id not in listed]
    return found + await faults_of_all(views, references, has_worker=has_worker)


def against(situation: Situation, said: Said, card: Said, *, has_worker: bool) -> list[tuple[object, ...]]:
    """Return where the views differ from the table."""
    expected = {
        "status": situation.status,
        "ended": situation.ended,
        "needs you": situation.needs_you or (not has_worker and not situation.ended),
        "asked": sorted((asked.title, asked.who, asked.needs) for asked in situation.asked),
        "labels": sorted(asked.label for asked in situation.asked),
    }
    actual = {**said, "asked": sorted(question[1:4] for question in said["questions"])}
    actual["labels"] = sorted(card.get("labels", []))
    remaining = min(said["deadlines"]) - datetime.now(UTC) if said["deadlines"] else None
    found: list[tuple[object, ...]] = [
        (key, actual[key], expected[key]) for key in expected if actual[key] != expected[key]
    ]
    if situation.within and not (remaining and situation.within - LONG < remaining <= situation.within):
        found.append(("deadline", remaining, situation.within))
    if situation.also and situation.also not in said["words"]:
        found.append(("also", said["words"], situation.also))
    return found


async def faults_of_all(views: Views, references: Mapping[str, Said], *, has_worker: bool) -> list[tuple[object, ...]]:
    """Return where the views that count runs, or list them for an agent, differ from what is said of each."""
    found: list[tuple[object, ...]] = []
    outside = {id: said["outside"][0][1] for id, said in references.items() if said["outside"]}
    counts = Counter(
        "outside" if id in outside else _COUNTED[said["status"]]
        for id, said in references.items()
        if said["status"] in _COUNTED
    )
    findings = {finding["check"]: finding for finding in await views.command("doctor", "--task-queue", QUEUE)}
    doctor = {**findings["waiting for you"]["runs"], **findings["suspended runs"]["runs"]}
    if doctor != counts:
        found.append(("doctor", doctor, counts))
    if (findings["workers"]["mark"] == "ok") is not has_worker:
        found.append(("doctor", "workers", findings["workers"]))
    answer = await views.handoffs()
    if isinstance(answer, str):  # it says that nobody answers, and not that there is nothing to do
        return [*found, ("outside", answer)] if has_worker or "no worker answers" not in answer else found
    if not has_worker:
        return [*found, ("outside", answer)]
    handoffs = {item["workflow"]: item["until"] for item in answer}
    if set(handoffs) != set(outside):
        found.append(("outside", handoffs, outside))
    for id in set(handoffs) & set(outside):
        late = datetime.fromisoformat(outside[id]) - datetime.fromisoformat(handoffs[id])
        if not timedelta(0) <= late < timedelta(seconds=30):  # its timer begins a moment after the message
            found.append(("outside", id, handoffs[id], outside[id]))
    return found


_COUNTED = {"PENDING_HANDOFF": "handoff", "WAITING": "approval", "PAUSED": "unpause", "SUSPENDED": "suspended"}


async def agree(views: Views, *, has_worker: bool) -> list[tuple[object, ...]]:
    """Return the faults once there are none, or those that stay."""
    for _ in range(PASSES - 1):
        if not await faults(views, has_worker=has_worker):
            return []
    return await faults(views, has_worker=has_worker)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """Return a client of a server of its own, whose list has these runs only."""
    async with local_server(OPTIONS) as server:
        plugin = BatonPlugin(WorkerParts(artifacts=Store()), safeguards=Safeguards.development(tmp_path / "safeguards"))
        yield await Client.connect(server.address, plugins=[plugin])


@pytest.fixture
async def views(client: Client, tmp_path: Path) -> AsyncIterator[Views]:
    """Return the views of that server."""

    async def connect() -> Client:
        return client

    links = Links("ann", Role.OPERATOR)
    transport = httpx.ASGITransport(console_app(Sources(connect), Access(links=links)))
    async with (
        Safeguards.development(tmp_path / "safeguards").opened() as guarded,
        httpx.AsyncClient(transport=transport, base_url=BASE, follow_redirects=True) as console,
    ):
        assert (await console.get(links.path)).status_code == 200
        yield Views(client, tmp_path, console, guarded.gate)


async def test_every_view_says_the_same(client: Client, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status, questions, people and deadlines: with a worker, without one, with a new one, with a busy one."""
    async with pipeline_worker(client, PIPELINES, STAGES, task_queue=QUEUE):
        await start_all(client)
        await settle(client)
        assert await agree(views, has_worker=True) == []
    with monkeypatch.context() as patched:
        patched.setattr(client_waiting, "WORKER_SILENCE", timedelta(0))  # it ended long ago
        assert await agree(views, has_worker=False) == []
    async with pipeline_worker(client, PIPELINES, STAGES, task_queue=QUEUE):
        assert await agree(views, has_worker=True) == []
    busy = Worker(
        client,
        task_queue=QUEUE,
        workflows=PIPELINES,
        activities=STAGES,
        max_concurrent_activities=1,
        graceful_shutdown_timeout=timedelta(0),
    )
    async with busy:
        assert await agree(views, has_worker=True) == []
