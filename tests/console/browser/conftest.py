"""A real browser before a real console, server and worker.

Chromium is looked for on the machine, or named by `BATON_CHROMIUM`; where there is none and we may (root, apt), it is
installed, and else these tests are skipped and say so. The screenshots go to a temporary folder, or to the one that
`BATON_SCREENSHOTS` names, and stay there.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, MemoryArtifactStore, PipelineInput, Safeguards, WorkerParts
from baton.client import Role
from baton.console.app import serve_console
from baton.console.security import Access, Links
from baton.console.sources import Sources, TemporalUi
from baton.devserver import DevServer
from baton.testing import pipeline_worker
from tests.console.browser.desk_pipelines import DESK, DESK_STAGES

WAIT_MS = 60_000
"""How long a page may take to show what is awaited, on a machine that stands still for a while."""

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the browser's program; install it where that is possible, and skip where it is not."""
    named = os.environ.get("BATON_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if named:
        return named
    if not shutil.which("apt-get") or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip(
            "left out: the browser tests, because there is no Chromium here; `apt-get install chromium`, or name one "
            "by BATON_CHROMIUM"
        )
    install = ["install", "-qy", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "chromium"]
    for words in (["update", "-q"], install):  # another of pytest's processes may be at it too
        process = subprocess.run(
            ["apt-get", *words], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
        )
    installed = shutil.which("chromium")
    if installed is None:
        pytest.skip(f"left out: the browser tests, because apt-get could not install Chromium: {process.stderr[-300:]}")
    return installed


@pytest.fixture(scope="session")
async def chromium_browser(chromium: str) -> AsyncIterator[Browser]:
    """Return one running Chromium."""
    alone = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(
            executable_path=chromium, args=[*alone, "--disable-dev-shm-usage", "--disable-gpu"], timeout=120_000
        )
        yield running
        await running.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the screenshots."""
    named = os.environ.get("BATON_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def desk_safeguards(tmp_path_factory: pytest.TempPathFactory) -> Safeguards:
    """Return the worker's keys and ledger."""
    return Safeguards.development(tmp_path_factory.mktemp("desk"))


async def desk_client(server: DevServer, safeguards: Safeguards) -> Client:
    """Return a client that reads and writes as the worker does."""
    plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards=safeguards)
    return await Client.connect(server.address, plugins=[plugin])


@pytest.fixture(scope="session")
async def desk_worker(server: DevServer, desk_safeguards: Safeguards) -> AsyncIterator[Worker]:
    """Return a running worker of what is decided about."""
    client = await desk_client(server, desk_safeguards)
    async with pipeline_worker(client, DESK, DESK_STAGES) as running:
        yield running


@dataclass
class Person:
    """Somebody at a browser, signed in to a console.

    Attributes:
        name: Their name.
        page: The page that they have open.
        base: The console's address.
        screenshots: Where pictures go.
        errors: What went wrong in the page: scripts that failed, what the policy refused.
    """

    name: str
    page: Page
    base: str
    screenshots: Path
    errors: list[str] = field(default_factory=list)

    async def open(self, path: str) -> None:
        """Open a page."""
        await self.page.goto(f"{self.base}{path}", wait_until="domcontentloaded")

    async def sees(self, text: str) -> None:
        """Wait until a text is visible."""
        await self.page.get_by_text(text).filter(visible=True).first.wait_for()

    async def shot(self, name: str) -> None:
        """Keep a picture of the whole page."""
        await self.page.screenshot(path=self.screenshots / f"{name}.png", full_page=True)


@dataclass
class Office:
    """A console with a browser: makes people who sit before it."""

    browser: Browser
    sources: Sources
    screenshots: Path
    _open: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _consoles: dict[tuple[str, Role], tuple[str, Links]] = field(default_factory=dict)
    _cookies: dict[tuple[str, Role], list[Any]] = field(default_factory=dict)

    async def console(self, name: str, role: Role) -> tuple[str, Links]:
        """Return the address of the console whose links sign somebody in, and the links."""
        if (name, role) not in self._consoles:
            links = Links(name, role)
            base = await self._open.enter_async_context(serve_console(self.sources, Access(links=links), port=0))
            self._consoles[name, role] = base, links
        return self._consoles[name, role]

    async def person(self, name: str = "ann", role: Role = Role.OPERATOR, **options: Any) -> Person:
        """Return somebody who is signed in, with a browser of their own; links are limited, so a session serves all."""
        base, links = await self.console(name, role)
        usual: dict[str, Any] = {"viewport": {"width": 1100, "height": 800}}
        context: BrowserContext = await self.browser.new_context(**{**usual, **options})
        context.set_default_timeout(WAIT_MS)
        self._open.push_async_callback(context.close)
        page = await context.new_page()
        signed_in = Person(name, page, base, self.screenshots)
        page.on("pageerror", lambda error: signed_in.errors.append(str(error)))
        page.on("dialog", lambda dialog: signed_in.errors.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda message: signed_in.errors.append(message.text) if "Content Security" in message.text else None,
        )
        if (name, role) in self._cookies:
            await context.add_cookies(self._cookies[name, role])
        else:
            await signed_in.open(links.path)
            self._cookies[name, role] = await context.cookies()
        return signed_in

    async def close(self) -> None:
        """Close everything."""
        await self._open.aclose()


@pytest.fixture(scope="session")
async def office(chromium_browser: Browser, desk_worker: Worker, screenshots: Path) -> AsyncIterator[Office]:
    """Return the office over the shared server."""
    running = office_over(chromium_browser, desk_worker.client, screenshots)
    yield running
    await running.close()


def office_over(browser: Browser, client: Client, screenshots: Path) -> Office:
    """Return an office whose console reads a server."""

    async def connect() -> Client:
        return client

    return Office(browser, Sources(connect, temporal_ui=TemporalUi(None, client.namespace)), screenshots)


async def begun(worker: Worker, pipeline: Any, id: str, goal: str = "Pay the invoice", **members: Any) -> Any:
    """Start a pipeline, and return its handle."""
    start = PipelineInput(goal=goal, **members)
    run = pipeline.run if hasattr(pipeline, "run") and pipeline.__module__.startswith("tests.handoff") else pipeline
    return await worker.client.start_workflow(run, start, id=id, task_queue=worker.task_queue)


@pytest.fixture
def quiet() -> Iterator[list[Person]]:
    """Return a list of people whose pages must have shown no error when the test ends."""
    people: list[Person] = []
    yield people
    assert [error for person in people for error in person.errors] == []
