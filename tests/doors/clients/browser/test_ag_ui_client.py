"""AG-UI's own client in Chromium, on a page of another site: a run, its question, its answer, its state."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.async_api import Browser, Error
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route

from baton.client import Access, ServiceParts, Tokens, serve_service, service
from baton.codec.server import serving
from tests.doors.clients.conftest import CALLERS, TOKENS
from tests.doors.clients.door_pipelines import WORDS
from tests.doors.clients.npm import installed, output_of

PACKAGES = ("@ag-ui/client@1.0.0", "esbuild@0.28.2")
CLIENT = """
import { HttpAgent } from "@ag-ui/client";

window.talk = async (url, token, payload) => {
  const messages = [{ id: "1", role: "user", content: "Batons" }];
  const agent = new HttpAgent({ url, headers: { Authorization: `Bearer ${token}` }, initialMessages: messages });
  const types = [];
  const listener = { onEvent: ({ event }) => { types.push(event.type); } };
  await agent.runAgent({}, listener);
  const asked = agent.pendingInterrupts;
  const before = structuredClone(agent.state);
  const resume = asked.map(({ id }) => ({ interruptId: id, status: "resolved", payload }));
  const { result } = await agent.runAgent({ resume }, listener);
  return { asked, before, after: agent.state, messages: agent.messages, types, result };
};
"""


@pytest.fixture(scope="module")
async def page_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Return the address of a page with the client, bundled."""
    folder = tmp_path_factory.mktemp("npm")
    commands = await installed(folder, *PACKAGES)
    (folder / "client.js").write_text(CLIENT, encoding="utf-8")
    code, said = await output_of(
        *(commands / "esbuild", "client.js", "--bundle", "--format=iife", "--outfile=page.js"), folder=folder
    )
    assert code == 0, said
    script = (folder / "page.js").read_text(encoding="utf-8")
    routes = [
        Route("/", lambda _: HTMLResponse("<!doctype html><script src=page.js></script>")),
        Route("/page.js", lambda _: PlainTextResponse(script, media_type="text/javascript")),
    ]
    async with serving(Starlette(routes=routes), "the page") as url:
        yield url


async def test_a_chat_front_end_of_another_site_runs_a_pipeline(
    chromium_browser: Browser, page_url: str, parts: ServiceParts
) -> None:
    """Its client checks the order of the events, applies the patches, and resumes from the interrupt."""
    allowed = replace(parts, access=Access(tokens=Tokens(CALLERS), origins=[page_url]))
    payload = {"choice": "approve", "why": "good", "data": {"copies": 2}}
    page = await chromium_browser.new_page()
    await page.goto(page_url)
    async with serve_service(service(allowed), port=0) as url, serve_service(service(parts), port=0) as closed:
        talk = "([url, token, payload]) => window.talk(url, token, payload)"
        seen: Any = await page.evaluate(talk, [f"{url}/ag-ui/article", TOKENS["ann"], payload])
        with pytest.raises(Error, match="fetch"):
            await page.evaluate(talk, [f"{closed}/ag-ui/article", TOKENS["ann"], payload])
        with pytest.raises(Error, match="401"):
            await page.evaluate(talk, [f"{url}/ag-ui/article", "another-token-0123456789", payload])
    await page.close()

    assert [one["reason"] for one in seen["asked"]] == ["approval"]
    assert (seen["before"]["status"], seen["after"]["status"]) == ("WAITING", "COMPLETED")
    assert seen["after"]["baton"]["decision_log"] == ["Write about batons"]
    spoken = [message.get("content") for message in seen["messages"] if message["role"] == "assistant"]
    assert [text for text in spoken if text] == [*WORDS, "2 red copies for nobody"]
    assert [message["content"] for message in seen["messages"] if message["role"] == "tool"] == ["found"]
    assert (seen["types"].count("RUN_STARTED"), seen["types"].count("RUN_FINISHED")) == (2, 2)
    assert "STATE_DELTA" in seen["types"]
