"""An operator at night: finds the runs that matter, operates on one, starts another like it, and leaves."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton.client import Connection, Role, connect, read_run
from baton.console.pages_operate import start_path
from baton.console.rendering import run_path
from baton.console.sources import Sources
from baton.devserver import DevServer
from tests.console.browser.conftest import WAIT_MS, Office, Person, begun
from tests.console.browser.desk_pipelines import asks, relay
from tests.console.browser.test_deciding import fits, press
from tests.console.browser.test_looks import assert_clean
from tests.console.conftest import started
from tests.console.console_pipelines import checks, failing, release
from tests.support import until_waiting


async def listed(person: Person, *ids: str) -> None:
    """Wait until the list shows some runs: the server's index lags behind, and the page follows."""
    for workflow_id in ids:
        await person.page.get_by_role("link", name=workflow_id, exact=True).wait_for()


def rows(person: Person, part: str) -> Any:
    """Return the table of a part of the list."""
    return person.page.locator(f"table[aria-labelledby={part}]")


class TestFinding:
    """The list of runs."""

    async def test_31_what_needs_somebody_comes_first_then_what_failed(
        self, chromium_browser: Browser, sources: Sources, worker: Worker, screenshots: Any, quiet: list[Person]
    ) -> None:
        """With how long each waits; deadlines are relative, and in the reader's zone when pointed at."""
        office = Office(chromium_browser, sources, screenshots)
        ann = await office.person(timezone_id="America/New_York", viewport={"width": 1280, "height": 900})
        quiet.append(ann)
        waits = await started(worker, release, "night-waits", "Write the notes of 1.2")
        await until_waiting(waits, "release manager")
        fails = await started(worker, failing, "night-fails", "Fail at night")
        with pytest.raises(WorkflowFailureError):
            await fails.result()
        done = await started(worker, checks, "night-done", "End at night")
        await done.result()
        await ann.open("/")
        await listed(ann, "night-waits", "night-fails", "night-done")
        needs = rows(ann, "needs-you").locator("tr", has_text="night-waits")
        await expect(needs).to_contain_text("a decision: release manager of ann, group:release", timeout=WAIT_MS)
        await expect(needs.locator(".for")).to_have_text(re.compile(r"for \d+ (s|min)"))
        deadline = needs.locator("time.until")
        await expect(deadline).to_have_text(re.compile(r"in (2 d|47 h)"))
        local = datetime.now(UTC) + timedelta(days=2) - timedelta(hours=5)
        await expect(deadline).to_have_attribute("title", re.compile(rf"{local:%Y-%m-%d} \d\d:\d\d:\d\d (EST|GMT-5)"))
        trouble = rows(ann, "failed-or-suspended").locator("tr", has_text="night-fails")
        await expect(trouble).to_contain_text("the model is gone", timeout=WAIT_MS)
        await expect(trouble.locator(".for")).to_have_text(re.compile(r"for \d+ (s|min)"))
        assert await rows(ann, "others").locator("tr", has_text="night-done").count() == 1
        await ann.page.get_by_role("navigation", name="Runs by status").get_by_role("link", name="failed").click()
        await listed(ann, "night-fails")
        assert await ann.page.get_by_role("link", name="night-waits", exact=True).count() == 0
        await assert_clean(ann, "31-failed")
        await waits.terminate()
        await office.close()

    @pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
    async def test_32_filters_orders_columns_and_pages(
        self, office: Office, desk_worker: Worker, quiet: list[Person], scripts: bool
    ) -> None:
        """By the form and the links alone."""
        ann = await office.person(java_script_enabled=scripts)
        quiet.append(ann)
        handles = [await begun(desk_worker, asks, f"many-{scripts}-{n}", params={"who": ["carol"]}) for n in range(5)]
        for handle in handles:
            await until_waiting(handle, "payment")
        await ann.open("/")
        await ann.page.get_by_label("Search").fill(f"many-{scripts}")
        await ann.page.get_by_text("More filters and columns").click()
        await ann.page.get_by_label("Person or group").fill("Carol")
        await ann.page.get_by_label("Order").select_option(label="oldest")
        await ann.page.get_by_role("checkbox", name="Deadline").uncheck()
        await ann.page.get_by_role("checkbox", name="Task").check()
        await press(ann, "Filter")
        await ann.page.wait_for_url(lambda url: "person=Carol" in url)
        while await ann.page.locator("[data-row]").count() < 5:
            await ann.page.reload()
        shown = await ann.page.locator("[data-row]").all_inner_texts()
        assert shown == [handle.id for handle in handles]
        headings = await ann.page.locator("thead th").all_inner_texts()
        assert ("Deadline" in headings, "Task" in headings) == (False, True)
        if scripts:  # axe is one
            await assert_clean(ann, "32-filtered")
        await ann.open("/?pipeline=asks&status=WAITING&limit=2&sort=-began")
        seen: list[str] = []
        while True:
            await ann.page.locator("[data-row]").first.wait_for()
            seen += await ann.page.locator("[data-row]").all_inner_texts()
            following = ann.page.get_by_role("link", name="Next page")
            if not await following.count():
                break
            before = ann.page.url
            await following.click()
            await expect(ann.page).not_to_have_url(before, timeout=WAIT_MS)
        assert len(seen) == len({*seen})
        assert {handle.id for handle in handles} <= {*seen}
        await ann.page.get_by_role("link", name="First page").click()
        await ann.page.wait_for_url(lambda url: "after=" not in url)
        for handle in handles:
            await handle.terminate()

    async def test_33_a_wrong_time_is_said_at_its_field(self, office: Office, quiet: list[Person]) -> None:
        """The rest of the list is shown."""
        ann = await office.person()
        quiet.append(ann)
        await ann.open("/")
        await ann.page.get_by_label("From").fill("yesterday")
        await press(ann, "Filter")
        await ann.sees("'yesterday' is not a date, a time or an age")
        assert await ann.page.get_by_label("From").get_attribute("aria-invalid") == "true"
        await assert_clean(ann, "33-wrong-time")


class TestOperating:
    """From the page of a run."""

    async def test_34_paused_unpaused_and_canceled(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """Each after a preview and with a reason; the page then says what the run is."""
        ann = await office.person()
        quiet.append(ann)
        handle = await begun(desk_worker, relay, "operate-1", params={"text": "Hello"})
        await until_waiting(handle, "publication")
        await ann.open(run_path(handle.id))
        for verb, says in (("Pause", "Paused by ann"), ("Unpause", "Waits for the decision"), ("Cancel", "Cancel")):
            await ann.page.get_by_role("link", name=verb, exact=True).click()
            await ann.page.get_by_label("Why").fill("a test")
            await ann.shot(f"34-{verb.lower()}")
            await press(ann, verb)
            await ann.page.wait_for_url(lambda url: "/run?" in url)
            await ann.sees(says)
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert [change.by for change in (await read_run(desk_worker.client, handle.id)).pauses] == ["ann", "ann"]

    async def test_35_a_run_starts_with_the_values_of_an_earlier_one(
        self, office: Office, desk_worker: Worker, quiet: list[Person]
    ) -> None:
        """From the earlier one's page; what is changed is the new run's own."""
        ann = await office.person()
        quiet.append(ann)
        params = {"text": "An invoice", "who": ["ann", "bob"], "needs": 2}
        earlier = await begun(desk_worker, asks, "like-1", params=params, baton={"constraints": ["In euros"]})
        await ann.open(run_path(earlier.id))
        await ann.page.get_by_role("link", name="Start with its values").click()
        await ann.sees("The values are those of run")
        assert await ann.page.get_by_label("text").input_value() == "An invoice"
        assert await ann.page.get_by_label("who").input_value() == "ann\nbob"
        await ann.page.get_by_label("Goal").fill("Pay the other invoice")
        await ann.page.get_by_label("Id of the run").fill("like-2")
        await assert_clean(ann, "35-start-like")
        await press(ann, "Start")
        await ann.page.wait_for_url(lambda url: "/run?" in url)
        run = await read_run(desk_worker.client, "like-2")
        assert (run.start.goal, run.start.params) == ("Pay the other invoice", params)
        assert run.start.baton == {"constraints": ["In euros"]}
        for workflow_id in ("like-1", "like-2"):
            await desk_worker.client.get_workflow_handle(workflow_id).terminate()
        viewer = await office.person("vera", Role.VIEWER)
        await viewer.open(run_path(earlier.id))
        assert await viewer.page.get_by_role("link", name="Start with its values").count() == 0
        assert (await viewer.page.request.get(f"{viewer.base}{start_path('asks', 'like-1')}")).status == 403


class TestLeaving:
    """The end of a session."""

    async def test_36_signed_out_is_said_instead_of_unreachable(
        self, chromium_browser: Browser, desk_worker: Worker, screenshots: Any, quiet: list[Person]
    ) -> None:
        """In the tab where she signs out, and in the one that she has left open."""

        async def connected() -> Client:
            return desk_worker.client

        office = Office(chromium_browser, Sources(connected), screenshots)
        ann = await office.person("ann-leaves")
        quiet.append(ann)
        other = await ann.page.context.new_page()
        for path in ("/", "/inbox"):
            await other.goto(f"{ann.base}{path}")
            await expect(other.locator("#live")).to_have_text("live", timeout=WAIT_MS)
            await ann.open("/start")
            if path == "/inbox":
                await assert_clean(ann, "36-signed-in")
                await press(ann, "Sign out")
                await ann.sees("You are signed out")
                await assert_clean(ann, "36-signed-out")
                await other.bring_to_front()
                await expect(other.locator("#live")).to_have_text("signed out: sign in again", timeout=WAIT_MS)
                await other.screenshot(path=screenshots / "36-other-tab.png")
                await other.get_by_role("link", name="sign in again").click()
                await expect(other.locator("h1")).to_have_text("You are signed out", timeout=WAIT_MS)
        _, links = await office.console("ann-leaves", Role.OPERATOR)
        await ann.open(links.path)
        await ann.page.get_by_role("heading", name="Runs").wait_for()
        await office.close()


class TestFaults:
    """The server behind the console."""

    async def test_37_a_page_names_the_cause(
        self, chromium_browser: Browser, server: DevServer, screenshots: Any, quiet: list[Person]
    ) -> None:
        """A missing namespace is not an unreachable server, and neither is an address that is none."""
        for connection, title in (
            (Connection("127.0.0.1:1"), "No Temporal server answers"),
            (Connection(server.address, "nowhere"), "The namespace does not exist"),
        ):
            office = Office(chromium_browser, Sources(lambda connection=connection: connect(connection)), screenshots)  # type: ignore[misc]
            ann = await office.person("ann")
            quiet.append(ann)
            await ann.page.get_by_role("heading", name=title).wait_for()
            await fits(ann)
            await assert_clean(ann, f"37-{title.split()[-1]}")
            await office.close()


class TestPhone:
    """At 390 pixels."""

    async def test_38_runs_and_audit_are_readable(
        self, chromium_browser: Browser, sources: Sources, worker: Worker, screenshots: Any, quiet: list[Person]
    ) -> None:
        """No wider than the screen, in both directions of writing, and each record is a card of its own."""
        office = Office(chromium_browser, sources, screenshots)
        handle = await started(worker, release, "phone-1", "Write the notes of 1.2")
        await until_waiting(handle, "release manager")
        task = (await read_run(worker.client, handle.id)).task_id
        phone = await office.person(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
        quiet.append(phone)
        for name, path in {"runs": "/", "audit": f"/audit?task={task}&id={handle.id}"}.items():
            await phone.open(path)
            await phone.page.locator("table").first.wait_for()
            for direction in ("ltr", "rtl"):
                await phone.page.eval_on_selector("html", "(it, dir) => { it.dir = dir; }", direction)
                await fits(phone)
            await phone.page.eval_on_selector("html", "it => { it.dir = 'ltr'; }")
            await assert_clean(phone, f"38-{name}")
        record = phone.page.locator(".records tbody tr").first
        for cell in ("seq", "kind", "at"):
            box = await record.locator(f".{cell}").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        await record.locator("summary").click()
        await fits(phone)
        await handle.terminate()
        await office.close()
