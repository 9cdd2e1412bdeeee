"""The console against a server with thousands of runs: its pages, its live events, its memory.

The console is a process of its own, `baton console` as people start it, behind a declared proxy so that each viewer is
a person. Viewers do over HTTP what the page's script does: follow the events, and load the page again after each.
"""

import asyncio
import contextlib
import itertools
import random
import re
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from baton import PipelineInput
from baton.client import RunFilter, list_runs
from baton.client.faces import inbox_page
from baton.devserver.processes import bound_to_parent
from baton.wire.names import ATTRIBUTE_PIPELINE, ATTRIBUTE_STAGE
from benchmarks.compare import Effort
from benchmarks.measures import pipeline_input
from benchmarks.report import Findings
from benchmarks.rig import Crew, Rig, production_environment, resident_mb, stop
from benchmarks.samples import small

RUNS, OPEN, ASKING, STEPS, VIEWERS = 10_000, 1_000, 20, 2_000, 20
_CONCURRENCY = 20
_EVENTS = 40
_LISTS = (
    "/",
    "/?status=WAITING",
    "/?status=RUNNING",
    "/?pipeline=Delivery",
    "/?stage=plan",
    "/?status=TERMINATED",
    "/?since=24h",
)
_CHANGE_SECONDS, _SAMPLE_SECONDS = 2.0, 5.0


@dataclass(frozen=True)
class _Console:
    """A console process, its address, and the server behind it."""

    url: str
    process: asyncio.subprocess.Process
    crew: Crew

    def viewer(self, name: str) -> httpx.AsyncClient:
        """Return the browser of a person."""
        return httpx.AsyncClient(base_url=self.url, headers={"x-forwarded-user": name}, timeout=60)

    @property
    def memory_mb(self) -> float:
        """The memory that the process holds, in MB; 0 where the system does not tell."""
        return resident_mb(self.process.pid)


@contextlib.asynccontextmanager
async def serve_console(rig: Rig) -> AsyncIterator[_Console]:
    """Serve a console over the rig's server, as an operator starts it."""
    crew = await rig.crew("baton")
    settings = {"TEMPORAL_ADDRESS": crew.server.address, "BATON_ARTIFACTS": str(rig.folder / "artifacts")}
    async with console_process(rig.folder, settings) as (url, process):
        yield _Console(url, process, crew)


@contextlib.asynccontextmanager
async def console_process(
    folder: Path, settings: Mapping[str, str]
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run a console in a folder with these variables, and return its address and its process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    people = folder / "people.toml"
    people.write_text('addresses = ["127.0.0.1"]\n[roles]\n"*" = "operator"\n', encoding="utf-8")
    url = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(
        *bound_to_parent([sys.executable, "-m", "baton", "console", "--json"]),
        *("--port", str(port), "--people", str(people), "--url", url),
        cwd=folder,
        env={**production_environment(), **settings},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield url, process
    finally:
        await stop(process)


async def _start_runs(crew: Crew, effort: Effort) -> None:
    """Start the runs: most have ended, some wait for a worker, a few ask a person. Nobody polls their task queue."""
    labels = TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(ATTRIBUTE_PIPELINE), "Delivery"),
            SearchAttributePair(SearchAttributeKey.for_keyword(ATTRIBUTE_STAGE), "plan"),
        ]
    )
    runs, open_runs = (100, 40) if effort.quick else (RUNS, OPEN)

    async def start(number: int) -> None:
        handle = await crew.client.start_workflow(
            "Delivery",
            PipelineInput(goal=f"Deliver part {number}"),
            id=f"part-{number}",
            task_queue="nobody",
            search_attributes=labels,
            static_summary=f"Deliver part {number}",
        )
        if number >= open_runs:
            await handle.terminate("measured")

    await run_all(start, range(runs))
    for _ in range(ASKING):
        await crew.client.start_workflow(
            "Asks", pipeline_input(small()), id=f"asks-{random.random()}", task_queue=crew.queue
        )
    await _wait_for_count(lambda: _count_runs(crew.client, RunFilter(status="WAITING").query()), ASKING)
    await _wait_for_count(lambda: _count_runs(crew.client, RunFilter().query()), runs + ASKING)


async def run_all(work: Callable[[int], Awaitable[Any]], numbers: Iterable[int]) -> None:
    """Do something for each number, some at a time."""
    remaining = iter(numbers)

    async def run_next() -> None:
        for number in remaining:
            await work(number)

    await asyncio.gather(*(run_next() for _ in range(_CONCURRENCY)))


async def _count_runs(client: Client, query: str) -> int:
    return (await client.count_workflows(query)).count


async def _wait_for_count(count: Callable[[], Awaitable[int]], minimum: int) -> None:
    """Wait until the server's index has so many runs."""
    while True:
        if await count() >= minimum:
            return
        await asyncio.sleep(0.5)


async def pages(rig: Rig, effort: Effort) -> Findings:
    """Measure the list, beside the same list by the server's own API, and the page of a long run."""
    rounds = 2 if effort.quick else 20
    async with serve_console(rig) as console:
        client = console.crew.client
        await _start_runs(console.crew, effort)
        long_run = await _long_run(console.crew, 20 if effort.quick else STEPS)
        async with console.viewer("ann") as ann:
            lists, server = [], []
            for path in itertools.islice(itertools.cycle(_LISTS), rounds * len(_LISTS)):
                lists.append(await measure_page(ann, path))
                if path == "/":
                    lists.append(await measure_page(ann, await _find_next(ann)))
                    server.append(await _measure_list(client))
            first_read = await measure_page(ann, long_run)
            runs = [await measure_page(ann, long_run) for _ in range(rounds)]
            search = [await measure_page(ann, path) for path in ("/?sort=began", "/?q=part+9999", "/?spend=1")]
            kilobytes = max([await _measure_transfer(console, path) for path in ("/", long_run)])
    values = {
        "console_list_p95_ms": p95(lists),
        "console_list_vs_temporal": statistics.median(lists[:: len(_LISTS) + 1]) / statistics.median(server),
        "console_run_p95_ms": p95(runs),
        "console_first_page_kb": kilobytes,
    }
    rows: list[Sequence[str]] = [
        ("lists: plain, filtered, further pages", f"{statistics.median(lists):.0f}", f"{p95(lists):.0f}"),
        ("the plain list by Temporal's own API", f"{statistics.median(server):.0f}", f"{p95(server):.0f}"),
        ("a sorted list, a search by goals or by spend, at first", f"{max(search):.0f}", ""),
        (f"a run of {STEPS:,} steps", f"{statistics.median(runs):.0f}", f"{p95(runs):.0f}"),
        ("the same, its history read for the first time", f"{first_read:.0f}", ""),
    ]
    return Findings(f"The console's pages among {RUNS:,} runs", ("page", "median ms", "p95 ms"), rows, values)


async def _long_run(crew: Crew, steps: int) -> str:
    """Run a pipeline of many steps, and return the path of its page."""
    argument = pipeline_input(small()).model_copy(update={"params": {"stages": steps}})
    handle = await crew.client.start_workflow("LongDelivery", argument, id="long", task_queue=crew.queue)
    await handle.result()
    return f"/run?{urlencode({'id': handle.id})}"


async def measure_page(browser: httpx.AsyncClient, path: str) -> float:
    """Return how many milliseconds a page takes."""
    started = time.perf_counter()
    (await browser.get(path)).raise_for_status()
    return (time.perf_counter() - started) * 1_000


async def measure_lists(client: Client, rounds: int) -> tuple[float, float]:
    """Return how many milliseconds the inbox's first page and a list of 50 runs take by the library, p95."""
    inbox, listed = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        await inbox_page(client)
        inbox.append((time.perf_counter() - begun) * 1_000)
        begun = time.perf_counter()
        _ = [run async for run in list_runs(client, RunFilter(), limit=50)]
        listed.append((time.perf_counter() - begun) * 1_000)
    return p95(inbox), p95(listed)


async def _find_next(browser: httpx.AsyncClient) -> str:
    """Return the path of the list's second page."""
    match = re.search(r'rel="next" href="([^"]+)"', (await browser.get("/")).text)
    assert match is not None
    return unescape(match[1])


async def _measure_list(client: Client) -> float:
    """Return how many milliseconds the server takes for the same list."""
    started = time.perf_counter()
    _ = [run async for run in client.list_workflows(RunFilter().query(), page_size=51, limit=51)]
    return (time.perf_counter() - started) * 1_000


async def _measure_transfer(console: _Console, path: str) -> float:
    """Return how many KB a browser that was never here transfers for a page and all that belongs to it."""
    async with console.viewer("bob") as bob:
        page = await bob.get(path)
        urls = re.findall(r'(?:<link[^>]*href|<script[^>]*src)="([^"]+)"', page.text)
        responses = [page, *[await bob.get(unescape(url)) for url in urls]]
    return sum(response.num_bytes_downloaded for response in responses) / 1_000


def p95(values: Sequence[float]) -> float:
    """Return the value that 95 % of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]


async def events(rig: Rig, effort: Effort) -> Findings:
    """Measure how long after it is in the history an event has the page of its run loaded again, with 20 viewers."""
    async with serve_console(rig) as console, contextlib.AsyncExitStack() as stack:
        await _start_runs(console.crew, Effort(quick=True))
        for number in range(1, VIEWERS):
            await stack.enter_async_context(_watch_page(console, f"viewer {number}", _choose_page(number)))
        loads = _PageLoads()
        await stack.enter_async_context(_watch_page(console, "ann", _choose_page(0), loads))
        handle, times = console.crew.client.get_workflow_handle("part-0"), []
        for _ in range(3 if effort.quick else _EVENTS):
            await asyncio.sleep(0.3 + random.random())  # so that events fall anywhere between two looks
            count = loads.times
            await handle.signal("nudged")
            last_event_id = (await handle.describe()).raw_description.workflow_execution_info.history_length
            written_at = await _event_time(handle, last_event_id)
            times.append((await loads.after(count) - written_at) * 1_000)
    slow = p95(times)
    rows: list[Sequence[str]] = [(f"{VIEWERS} viewers", f"{statistics.median(times):.0f}", f"{slow:.0f}")]
    columns = ("from the history to the browser", "median ms", "p95 ms")
    return Findings("A live event of a run", columns, rows, {"console_event_ms": slow})


async def _event_time(handle: Any, number: int) -> float:
    """Return when an event of a run was written, in seconds since the epoch."""
    events = [event async for event in handle.fetch_history_events() if event.event_id <= number]
    last: float = events[-1].event_time.ToNanoseconds() / 1e9
    return last


@dataclass
class _PageLoads:
    """When a viewer had their page loaded again."""

    times: int = 0
    at: float = 0.0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def note(self) -> None:
        """Note that it is loaded."""
        async with self.changed:
            self.times, self.at = self.times + 1, time.time()
            self.changed.notify_all()

    async def after(self, times: int) -> float:
        """Return when it was loaded the time after so many."""
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: self.times > times), 30)
            return self.at


def _choose_page(number: int) -> str:
    """Return the page that a viewer looks at: most at a run, some at the list or the inbox."""
    other = {1: "/", 2: "/inbox", 3: "/?status=RUNNING"}.get(number % 5)
    return other or f"/run?{urlencode({'id': f'part-{number % 10}'})}"


@contextlib.asynccontextmanager
async def _watch_page(console: _Console, name: str, path: str, loads: _PageLoads | None = None) -> AsyncIterator[None]:
    """Have somebody look at a page while the context is open."""
    ready = asyncio.Event()
    task = asyncio.create_task(_follow_page(console, name, path, ready, loads or _PageLoads()))
    try:
        await ready.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow_page(console: _Console, name: str, path: str, ready: asyncio.Event, loads: _PageLoads) -> None:
    """Follow a page as its script does: connect, and load it again whenever it changed; connect again if it ended."""
    async with console.viewer(name) as browser:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                page = await browser.get(path)
                match = re.search(r'data-events="([^"]+)"', page.text)
                if match is None:
                    return
                async with browser.stream("GET", unescape(match[1]), timeout=None) as stream:
                    ready.set()
                    async for line in stream.aiter_lines():
                        if line == "event: changed":
                            await browser.get(path)
                            await loads.note()
            await asyncio.sleep(1)


async def memory(rig: Rig, effort: Effort) -> Findings:
    """Measure how much more memory the console holds after some time with 20 viewers, while runs go on.

    What it keeps to answer fast is filled first: a fifth of the time is not counted.
    """
    seconds = 10.0 if effort.quick else effort.minutes * 60
    async with serve_console(rig) as console, contextlib.AsyncExitStack() as stack:
        await _start_runs(console.crew, effort)
        for number in range(VIEWERS):
            await stack.enter_async_context(_watch_page(console, f"viewer {number}", _choose_page(number)))
        started, samples = time.monotonic(), []
        changes = asyncio.create_task(_change_runs(console.crew))
        while (elapsed := time.monotonic() - started) < seconds:
            samples.append((elapsed, console.memory_mb))
            print(f"console memory: {elapsed:.0f} s {samples[-1][1]:.1f} MB", file=sys.stderr, flush=True)
            await asyncio.sleep(min(_SAMPLE_SECONDS, seconds / 10))
        changes.cancel()
        await asyncio.gather(changes, return_exceptions=True)
    used = [megabytes for elapsed, megabytes in samples if elapsed >= seconds / 5]
    share = max(1, len(used) // 10)
    first, last = statistics.median(used[:share]), statistics.median(used[-share:])
    row = (f"{seconds / 60:.1f} min", f"{samples[0][1]:.0f}", f"{first:.0f}", f"{last:.0f}", f"{max(used):.0f}")
    columns = (f"{VIEWERS} viewers", "MB at first", "MB after a fifth", "MB at the end", "most MB")
    return Findings("The console's memory", columns, [row], {"console_memory_growth_mb": max(0.0, last - first)})


async def _change_runs(crew: Crew) -> None:
    """Have runs change, begin and end."""
    for number in itertools.count():
        await crew.client.get_workflow_handle(f"part-{number % 10}").signal("nudged")
        await crew.start("Delivery", pipeline_input(small()))
        await asyncio.sleep(_CHANGE_SECONDS)
