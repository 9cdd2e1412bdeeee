"""Text of agents is hostile: in every field it stays text, and leaves the page as it is."""

from collections.abc import AsyncIterator
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, WorkerParts
from baton.artifacts.store import ArtifactStore
from baton.console.content import content_of, markdown
from baton.console.report import report
from baton.console.sources import Sources
from baton.console.words import visible
from baton.devserver import DevServer
from baton.testing import pipeline_worker
from tests.console.conftest import Browser, started
from tests.console.console_pipelines import PIPELINES, STAGES, echoes
from tests.support import Handle

NAUGHTY = (
    pytest.param("<script>document.body.dataset.owned = 1</script><img src=x onerror=alert(1)>", id="markup"),
    pytest.param("\"><svg/onload=alert(1)> ' onmouseover='alert(1)", id="out of an attribute"),
    pytest.param("</title></textarea></style></script></pre></main><h1>owned</h1>", id="ends of elements"),
    pytest.param("[x](javascript:alert(1)) ![y](http://evil.example/p.png) <http://evil.example>", id="Markdown links"),
    pytest.param("[x]: javascript:alert(1)\n\n[x] `</code>` | a | b |\n|---|---|\n| <b>c</b> | d |", id="Markdown"),
    pytest.param("{{ 7 * 7 }} {% raw %} ${7*7} #{7*7} <!-- --> ]]> <![CDATA[", id="templates"),
    pytest.param("a\u202egnp.exe \u2066b\u2069 \u200f\u061c \ufeff \u0007 \u001b[31mred", id="turned and hidden"),
    pytest.param("Z" + "\u0300\u0301\u0302\u0303\u0304\u0305" * 60, id="towers of marks"),
    pytest.param("مرحبا بالعالم <b>שלום</b> 你好 👩\u200d👩\u200d👧", id="other scripts"),
    pytest.param("W" * 4_000, id="one endless word"),
    pytest.param("a\n" * 300 + "data: x\n\nevent: changed", id="many lines"),
    pytest.param("'; DROP TABLE runs; -- %00 %0d%0aset-cookie:x=1", id="other languages"),
)

_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "rect"}
_OURS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "link",
        "script",
        "style",
        "body",
        "a",
        "header",
        "nav",
        "span",
        "output",
        "main",
    ),
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "code", "dl", "div", "dt", "dd", "section", "article", "table", "thead"),
    *("tbody", "tr", "th", "td", "svg", "rect", "form", "input", "label", "button", "select", "option", "abbr", "ul"),
    *(
        "ol",
        "li",
        "bdi",
        "pre",
        "details",
        "summary",
        "time",
        "meter",
        "strong",
        "em",
        "del",
        "ins",
        "blockquote",
        "hr",
    ),
    *("img", "br"),
}


class _Page(HTMLParser):
    """Reads a page as a browser does, and notes what must not be there."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.counts: dict[str, int] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element, its handlers, and where it leads."""
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in _OURS:
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            address = name in ("href", "src", "action", "formaction", "data")
            ours = ("/", "#", "data:image/png", "http://127.0.0.1:8233/")
            if name.startswith("on") or name in ("style", "srcdoc") or (address and not (value or "").startswith(ours)):
                self.wrong.append(f"{tag} {name}={value}")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that ends itself."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """Note an element that ends what is not open."""
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> in {self.open[-1:]}")
        else:
            self.open.pop()


def _assert_harmless(text: str, *, scripts: int = 1) -> _Page:
    """Assert that a page has nothing of its agents' making but text."""
    page = _Page(text)
    assert page.wrong == []
    assert page.open == []
    assert page.counts.get("script", 0) == scripts
    assert not any(sign in text for sign in "\u202e\u2066\u2069\u200f\u061c\ufeff\u0007\x1b")
    return page


@pytest.fixture(scope="module")
async def plain(server: DevServer, console_store: ArtifactStore) -> AsyncIterator[Worker]:
    """Return a worker without safeguards, whose scan would let none of these texts pass."""
    client = await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(artifacts=console_store))])
    async with pipeline_worker(client, PIPELINES, STAGES) as it:
        yield it


async def _stands_still(handle: Handle) -> None:
    """Wait until a run asks a person, or has ended."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            return


@pytest.mark.parametrize("text", NAUGHTY)
async def test_no_page_executes_or_breaks(browser: Browser, plain: Worker, sources: Sources, text: str) -> None:
    """Goal, patch, output, artifact, question, exhibit and names alike; each page has the elements it always has."""
    id = f"hostile-{sha256(text.encode()).hexdigest()[:8]}-{text[:40]}"
    await _stands_still(await started(plain, echoes, id, text, text=text))
    named = {"id": id}
    pages: dict[str, dict[str, Any]] = {
        "/run": named,
        "/run/step": {**named, "step": 1},
        "/run/compare": {**named, "a": "start", "b": "now"},
        "/run/artifact": {**named, "artifact": "echo"},
        "/": {"q": text[:100], "pipeline": text, "stage": text, "task": text},
    }
    for path, parameters in pages.items():
        answer = await browser.http.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        page = _assert_harmless(answer.text)
        assert page.counts["main"] == page.counts["h1"] == 1
    answer = await browser.http.get("/run/artifact/raw", params={**named, "artifact": "echo"})
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
    assert answer.content.decode() == text
    _assert_harmless(await report(sources, id), scripts=0)


@pytest.mark.parametrize("path", ["/run?id=", "/run/step?step=1&id=", "/audit?task=", "/run/compare?id=", "/nowhere/"])
async def test_addresses_are_text_too(browser: Browser, path: str) -> None:
    """What a page says of an address that names nothing."""
    answer = await browser.get(f"{path}%3Cscript%3Ealert(1)%3C%2Fscript%3E%E2%80%AE")

    assert answer.status_code == (200 if "/audit" in path else 404)
    _assert_harmless(answer.text)


class TestContent:
    """What is made readable."""

    @pytest.mark.parametrize("text", NAUGHTY)
    def test_markdown_is_harmless(self, text: str) -> None:
        """It has no link, no picture, no HTML of its author's."""
        page = _Page(str(markdown(text)))

        assert page.wrong == []
        assert {"a", "img", "script"} & page.counts.keys() == set()

    @pytest.mark.parametrize(
        ("data", "form"),
        [
            pytest.param(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "text", id="a drawing"),
            pytest.param(b"\x00\x01\xff", "binary", id="bytes"),
            pytest.param(b'{"runs": 7}', "json", id="not SARIF"),
            pytest.param(b'{"runs": [{"results": [{"message": 7}]}]}', "json", id="broken SARIF"),
            pytest.param(b"[" * 100_000, "text", id="too deep"),
        ],
    )
    def test_what_is_not_what_it_claims_is_text(self, data: bytes, form: str) -> None:
        """Whatever its name says."""
        assert content_of(data, type="sarif", path="x.png").form == form

    def test_words_of_all_scripts_stay(self) -> None:
        """Joiners, accents and directions by script are no attack."""
        text = "é ñ Ω שלום مرحبا 你好 👩\u200d👧"

        assert visible(text) == text
