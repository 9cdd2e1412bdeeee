"""An approval's page: everything that it shows readable and to be saved, and the commands that decide with a key."""

import html
import re
import shlex
from datetime import timedelta
from typing import Any

import pytest
from temporalio.worker import Worker

from baton import Pipeline, pipeline
from baton.client import decide, read_run
from baton.console.content import MAX_CHARACTERS
from baton.console.pages_inbox import approval_path
from baton.core.exhibits import MAX_EXHIBIT_BYTES
from baton.testing import pipeline_worker
from tests.console.conftest import Browser, started
from tests.console.console_pipelines import CHANGES, NOTES, Sizes, collect, png
from tests.support import until_waiting


@pipeline
async def shows(p: Pipeline) -> object:
    """Show a person one thing of each kind, and ask for a signed decision."""
    await p.stage(collect)
    kept: dict[str, Any] = {ref.id: ref for ref in p.baton.artifacts}
    plain = {"output": {"text": NOTES}, "lines": [{"item": "ink", "euros": 3}], "long": "x" * 200_000}
    await p.approve("it's all here", within=timedelta(days=1), shows={**kept, **plain}, answer=Sizes, proof=True)
    return None


@pytest.fixture(scope="module")
async def page(browser: Browser, worker: Worker) -> str:
    """Return the page of an approval that shows one thing of each kind."""
    async with pipeline_worker(worker.client, [shows], [collect]) as own:
        handle = await started(own, shows, "shows all")
        await until_waiting(handle, "it's all here")
        [one] = (await read_run(own.client, handle.id)).approvals
        path = approval_path(handle.id, one.id)
        answer = await browser.get(path)
        for address in re.findall(r'(?:href|src)="(/approval/exhibit[^"]*)"', answer.text):
            saved[address] = await browser.get(html.unescape(address))
        await handle.terminate()
    return answer.text


saved: dict[str, Any] = {}


@pytest.mark.parametrize(
    "readable",
    [
        pytest.param("<h4>Release notes</h4>", id="Markdown of an artifact, and of an output"),
        pytest.param('<span class="line plus">+    return session()', id="a diff"),
        pytest.param('<td class="level-error"><bdi>error</bdi></td>', id="SARIF"),
        pytest.param("<td><bdi>paper</bdi></td>", id="CSV"),
        pytest.param("&#34;b&#34;: null", id="JSON"),
        pytest.param("<td><bdi>ink</bdi></td>", id="a list of records"),
        pytest.param('<img class="picture" src="/approval/exhibit?', id="a picture"),
        pytest.param("x" * 200_000, id="a long text, whole"),
    ],
)
async def test_every_exhibit_is_readable(page: str, readable: str) -> None:
    """Artifacts too, not only their names."""
    assert readable in page


async def test_every_exhibit_can_be_saved(page: str) -> None:
    """Unchanged and under its name; only an image is displayed."""
    inline = [response for response in saved.values() if "content-disposition" not in response.headers]
    contents = [response.content for response in saved.values()]

    assert len(saved) == len({*saved}) == 10
    assert [(response.headers["content-type"], response.content) for response in inline] == [("image/png", png())]
    assert NOTES.encode() in contents
    assert CHANGES.encode() in contents
    assert {response.headers["content-security-policy"] for response in saved.values()} == {
        "default-src 'none'; sandbox"
    }


async def test_a_signed_decision_is_a_complete_command(page: str) -> None:
    """The key stays on its machine; the command names run, approval and answer fields."""
    commands = [html.unescape(command) for command in re.findall(r'<code class="command"[^>]*>([^<]*)</code>', page)]
    words = [shlex.split(command) for command in commands if "--key" in command]

    assert words == [
        ["baton", verb, "shows all", "it's all here", "--key", "KEY_FILE", "--why", "…"] for verb in ("approve", "deny")
    ]
    assert 'class="decide' not in page


@pipeline
async def asks_three(p: Pipeline) -> object:
    """Three people approve."""
    await p.approve("release", within=timedelta(days=1), needs=3)
    return None


async def test_who_has_voted_is_told_so_however_their_name_is_spelled(browser: Browser, worker: Worker) -> None:
    """The rules for answers take both spellings for one person, who can still change their answer."""
    async with pipeline_worker(worker.client, [asks_three], []) as own:
        handle = await started(own, asks_three, "asks three")
        await until_waiting(handle, "release")
        for who, has_voted in (("bob", False), ("\uff21\uff2e\uff2e", True)):
            [asked] = (await read_run(own.client, handle.id)).approvals
            await decide(own.client, handle.id, asked.answer("approve", who=who))
            page = await browser.get(approval_path(handle.id, asked.id))
            assert ("You have approved" in page.text) is has_voted
            assert 'class="decide' in page.text
        await handle.terminate()


def test_an_approval_shows_no_more_than_the_page_can() -> None:
    """Exhibits are always complete."""
    assert MAX_EXHIBIT_BYTES <= MAX_CHARACTERS
