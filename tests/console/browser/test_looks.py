"""Every page for everybody: no violation that axe finds, and no text that runs, hides or breaks the page."""

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser
from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from baton.client import read_run
from baton.console.pages_inbox import approval_path
from baton.console.pages_operate import fork_path, rollback_path
from baton.console.rendering import run_path
from baton.console.report import report
from baton.console.sources import Sources
from tests.console.browser.conftest import Office, Person, begun
from tests.console.browser.desk_pipelines import asks
from tests.console.browser.test_deciding import asked, fill, fits, held, pay, press
from tests.console.conftest import started
from tests.console.console_pipelines import EMAIL, failing, maps, nested, registers, release
from tests.handoff.handoff_pipelines import FourAgents
from tests.support import until_waiting

_RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}

HOSTILE = (
    "<script>window.owned=1</script>",
    '<img src=x onerror="window.owned=1">',
    "'\"><svg onload=window.owned=1>",
    "</textarea></title></style></pre><script>window.owned=1</script><h1>",
    "{{ 7*7 }}{% raw %}${7*7}",
    "javascript:window.owned=1",
    '[x](javascript:window.owned=1) <a href="javascript:window.owned=1">y</a>',
    "\u202egnp.exe\u2066\u200b\ufeff",
    "a\u0301" + "\u0301" * 60,
    "W" * 600,
    "\x1b[31m\x07\x08\x7f",
    "اختبار " * 30,
    "<!--",
    "]]>",
    "&lt;b&gt;&#x0;",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<form action=//evil.example><button>Approve</button></form>",
)


async def assert_clean(person: Person, name: str) -> None:
    """Assert that axe finds nothing, in light and in dark."""
    for scheme in ("light", "dark"):
        await person.page.emulate_media(color_scheme=scheme)
        results = await Axe().run(person.page, options=_RULES)
        violations = [
            (violation["id"], [node["html"][:200] for node in violation["nodes"]])
            for violation in results.response["violations"]
        ]
        assert (name, scheme, violations) == (name, scheme, [])
    await person.shot(f"{name}-dark")
    await person.page.emulate_media(color_scheme="light")
    await person.shot(name)


async def test_28_axe_finds_no_violation(office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
    """On each page, with forms, faults and refusals, in light and in dark."""
    ann = await office.person()
    quiet.append(ann)
    handle = await begun(
        desk_worker, asks, "axe-1", params={"needs": 2, "text": "Hello", "list": ["a"], "deep": {"a": 1}}
    )
    approval = await asked(handle, "payment")
    letter = await begun(desk_worker, FourAgents, "axe-2", params={"poisoned": True})
    dead = await held(letter)
    await ann.open("/")
    await ann.page.get_by_role("link", name="axe-1").first.wait_for()
    await assert_clean(ann, "28-runs")
    await ann.open("/inbox")
    await ann.page.locator("li", has_text="axe-2").wait_for()
    await assert_clean(ann, "28-inbox")
    for name, path in {
        "approval": approval,
        "handoff": dead,
        "rollback": rollback_path(handle.id, 1),
        "fork": fork_path(handle.id, 2),
        "start": "/start?pipeline=asks",
        "run": run_path(handle.id),
        "missing": "/approval?run=axe-1&question=9:none",
    }.items():
        await ann.open(path)
        await assert_clean(ann, f"28-{name}")
    await ann.open(dead)
    await ann.page.get_by_label("Edit").check()
    await ann.page.get_by_label("Patch of the baton").fill("{")
    await ann.sees("this is not JSON")
    await fill(ann, Why="x")
    await press(ann, "Decide")
    await ann.sees("Nothing was sent.")
    await assert_clean(ann, "28-faults")
    await ann.open(approval)
    await pay(ann)
    await ann.sees("You have approved")
    await assert_clean(ann, "28-voted")
    await handle.terminate()
    await letter.terminate()


async def test_29_hostile_text_is_text(office: Office, desk_worker: Worker, quiet: list[Person]) -> None:
    """In every field of these pages: nothing runs, nothing is fetched, and the layout stays."""
    ann = await office.person()
    quiet.append(ann)
    elsewhere: list[str] = []
    ann.page.on("request", lambda request: None if request.url.startswith(ann.base) else elsewhere.append(request.url))
    everything = "\n".join(HOSTILE)
    params: dict[str, Any] = {"text": everything, "asks": everything[:1_900], "title": "".join(HOSTILE)}
    handle = await begun(desk_worker, asks, 'hostile-"><script>window.owned=1</script>', everything, params=params)
    now = await until_waiting(handle, params["title"][:150])
    question = now.questions[0].id
    path = await asked(handle, params["title"][:150])
    for name, page in {
        "inbox": "/inbox",
        "approval": path,
        "rollback": rollback_path(handle.id, 1),
        "fork": fork_path(handle.id, 2),
        "start": "/start?pipeline=asks",
    }.items():
        await ann.open(page)
        if name == "inbox":
            await ann.page.locator("li", has_text="hostile-").wait_for()
        assert await ann.page.evaluate("window.owned === undefined")
        await fits(ann)
        await ann.shot(f"29-hostile-{name}")
        alive = "main script, main svg[onload], main img[onerror], main base, main meta"
        assert await ann.page.locator(alive).count() == 0
    await ann.open(path)
    await pay(ann, why=everything)
    await ann.sees("by ann")
    assert await ann.page.evaluate("window.owned === undefined")
    await fits(ann)
    assert elsewhere == []
    assert question
    await handle.result()


async def test_30_axe_finds_no_violation_on_other_pages(
    chromium_browser: Browser, screenshots: Path, sources: Sources, worker: Worker, quiet: list[Person], tmp_path: Path
) -> None:
    """Steps, artifacts of every kind, a comparison, an audit, personal data, the printed report."""
    office = Office(chromium_browser, sources, screenshots)
    ann = await office.person()
    quiet.append(ann)
    handle = await started(worker, release, "axe-read", "Write the notes of 1.2")
    waits = await until_waiting(handle, "release manager")
    knows = await started(worker, registers, "axe-person", "Register a person")
    await knows.result()
    counts = await started(worker, maps, "axe-maps", "Count the letters", items=50)
    await counts.result()
    fails = await started(worker, failing, "axe-fails", "Fail late", steps=130)
    with pytest.raises(WorkflowFailureError):
        await fails.result()
    run = await read_run(worker.client, handle.id)
    for name, path in {
        "run": run_path(handle.id),
        "branches": run_path(counts.id),
        "long": f"{run_path(fails.id)}&from=0",
        "failed": run_path(fails.id, only="failed"),
        "agent": run_path(handle.id, None, "/step", step=2),
        "artifacts": run_path(handle.id, None, "/step", step=3),
        "artifact": run_path(handle.id, None, "/artifact", artifact="findings"),
        "compare": run_path(handle.id, None, "/compare", a=1, b=3),
        "audit": f"/audit?task={run.task_id}&id={handle.id}",
        "approval": approval_path(handle.id, waits.questions[0].id),
        "personal": run_path(knows.id, None, "/personal"),
    }.items():
        await ann.open(path)
        await fits(ann)
        await assert_clean(ann, f"30-{name}")
    await fill(ann, Why="a complaint")
    await press(ann, "Open")
    await ann.sees(EMAIL)
    await fits(ann)
    await assert_clean(ann, "30-personal-opened")
    saved = tmp_path / "run.html"
    saved.write_text(await report(sources, handle.id), encoding="utf-8")
    await ann.page.goto(saved.as_uri())
    await fits(ann)
    await assert_clean(ann, "30-report")
    await ann.page.emulate_media(media="print")
    await ann.page.pdf(path=screenshots / "30-report.pdf")
    await ann.shot("30-report-print")
    await ann.page.emulate_media(media="screen")
    phone = await office.person(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    quiet.append(phone)
    for name, path in {
        "runs": "/",
        "run": run_path(handle.id),
        "branches": run_path(counts.id),
        "step": run_path(handle.id, None, "/step", step=3),
    }.items():
        await phone.open(path)
        await fits(phone)
        await phone.shot(f"30-phone-{name}")
        await phone.page.eval_on_selector("html", "it => { it.dir = 'rtl'; }")
        await fits(phone)
        await phone.shot(f"30-phone-{name}-rtl")
    await handle.terminate()
    await office.close()


async def test_31_a_run_inside_opens_in_place(
    chromium_browser: Browser, screenshots: Path, sources: Sources, worker: Worker, quiet: list[Person]
) -> None:
    """Level by level, without leaving the page; without scripts it is a link."""
    office = Office(chromium_browser, sources, screenshots)
    ann, bob = await office.person(), await office.person("bob", java_script_enabled=False)
    quiet += [ann, bob]
    handle = await started(worker, nested, "inside-1", "Nest", depth=2)
    await handle.result()
    await ann.open(run_path(handle.id))
    await ann.page.locator("details[data-part] > summary").click()
    await ann.page.locator(".part details[data-part] > summary").click()
    await ann.page.locator(".part .part").get_by_text("Completed: 1 step").wait_for()
    await fits(ann)
    await assert_clean(ann, "31-inside")
    await bob.open(run_path(handle.id))
    await bob.page.locator("details[data-part] > summary").click()
    await bob.page.get_by_role("link", name="Open inside-1").click()
    await bob.sees("Level 2")
    await office.close()
