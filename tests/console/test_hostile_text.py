"""Text of agents is hostile: in every field it stays text, and leaves the page as it is."""

import re
from collections.abc import AsyncIterator
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, WorkerParts
from baton.client import read_run
from baton.client.faces import ArtifactStore
from baton.console.content import make_content, markdown, text_content, value_content, visible
from baton.console.pages_inbox import approval_path
from baton.console.report import report
from baton.console.sources import Sources
from baton.devserver import DevServer
from baton.testing import pipeline_worker
from tests.console.conftest import Browser, started
from tests.console.console_pipelines import PIPELINES, STAGES, echoes
from tests.support import Handle, events

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

MARKDOWN = (
    pytest.param("[bank.example](https://evil.example/login 'x\" onclick=alert(1)') <https://a.example>", id="links"),
    pytest.param(
        "![x](https://evil.example/p.png) [![y](https://evil.example/q)](https://evil.example)", id="pictures"
    ),
    pytest.param(
        "&#x202e;gnp.exe &#8294;b &#xfeff; &#7; `&#x202e;` [&#x202e;a](https://a.example/?q=&#x202e;)", id="entities"
    ),
    pytest.param('```js" onload=alert(1) class=x\n</code></pre><script>\n```', id="the language of code"),
    pytest.param("| a | b |\n|:-:|--:|\n| [x](https://a.example) | <b> |", id="a table"),
    pytest.param("> " * 200 + "deep\n\n" + "- " * 100 + "deeper", id="nested"),
    pytest.param("<div>\n\n</div>\n\n<!-- hidden -->\n\n[hidden]: https://evil.example 'x'", id="what would not show"),
)

_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "rect", "line", "path"}
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
    *("img", "br", "textarea", "fieldset", "legend", "figure", "figcaption", "line", "path"),
}


class _Page(HTMLParser):
    """Reads a page as a browser does, and notes what must not be there."""

    links: int

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.counts: dict[str, int] = {}
        self.links = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element, its handlers, and where it leads."""
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in _OURS:
            self.wrong.append(f"<{tag}>")
        is_link = tag == "a" and {("rel", "noopener noreferrer nofollow"), ("target", "_blank")} <= {*attrs}
        self.links += is_link
        for name, value in attrs:
            address = name in ("href", "src", "action", "formaction", "data")
            own_addresses = (
                ("http://", "https://") if is_link else ("/", "#", "data:image/png", "http://127.0.0.1:8233/")
            )
            if (
                name.startswith("on")
                or name in ("style", "srcdoc")
                or (address and not (value or "").startswith(own_addresses))
            ):
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


def _assert_harmless(text: str, *, scripts: int = 2) -> _Page:
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
    client = await Client.connect(
        server.address, plugins=[BatonPlugin(WorkerParts(artifacts=console_store), safeguards="off")]
    )
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        yield worker


async def _stands_still(handle: Handle) -> None:
    """Wait until a run asks a person, or has ended."""
    async for event in events(handle):
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            return


@pytest.mark.parametrize("text", NAUGHTY)
async def test_no_page_executes_or_breaks_on_hostile_text(
    browser: Browser, plain: Worker, sources: Sources, text: str
) -> None:
    """In goal, patch, output, artifact, question, exhibit and names; each page keeps its elements."""
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
    [asked] = (await read_run(plain.client, id)).approvals
    answer = await browser.get(approval_path(id, asked.id))
    assert answer.status_code == 200
    _assert_harmless(answer.text, scripts=3)
    [exhibit, *_] = re.findall(r'href="(/approval/exhibit[^"]*)"', answer.text)
    response = await browser.get(unescape(exhibit))
    assert response.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
    assert response.content.decode() == text
    answer = await browser.http.get("/run/artifact/raw", params={**named, "artifact": "echo"})
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
    assert answer.content.decode() == text
    _assert_harmless(await report(sources, id), scripts=0)


@pytest.mark.parametrize("path", ["/run?id=", "/run/step?step=1&id=", "/audit?task=", "/run/compare?id=", "/nowhere/"])
async def test_addresses_are_text_too(browser: Browser, path: str) -> None:
    """In the page for an address that names nothing."""
    answer = await browser.get(f"{path}%3Cscript%3Ealert(1)%3C%2Fscript%3E%E2%80%AE")

    assert answer.status_code == (200 if "/audit" in path else 404)
    _assert_harmless(answer.text)


class TestContent:
    """What is made readable."""

    @pytest.mark.parametrize("text", [*NAUGHTY, *MARKDOWN])
    def test_markdown_is_harmless(self, text: str) -> None:
        """No images, no HTML; only web links, each followed by its host."""
        markup = str(markdown(text))
        page = _assert_harmless(markup, scripts=0)

        assert {"img", "script", "style", "input"} & page.counts.keys() == set()
        assert page.counts.get("a", 0) == page.links
        for address in re.findall(r'href="([^"]*)"', markup):
            assert f"</a> ({urlsplit(address).netloc})" in markup

    @pytest.mark.parametrize(
        "address",
        [
            *(
                "javascript:alert(1)",
                "JaVaScRiPt:alert(1)",
                "&#106;avascript:alert(1)",
                "data:text/html,x",
                "vbscript:x",
            ),
            *("//evil.example", "/rollback?run=x", "?q=x", "#main", "file:///etc/passwd", "mailto:a@b.example"),
            *(
                "https://bank.example@evil.example/",
                "https://bank.example\\@evil.example",
                "http:evil.example",
                "http://",
            ),
        ],
    )
    def test_other_addresses_are_text(self, address: str) -> None:
        """Also one with a user name before the host."""
        assert "<a" not in str(markdown(f"[x]({address}) <{address}>"))

    @pytest.mark.parametrize("sign", ["[", "**a_", "*a ", "`a", "<a "])
    def test_text_that_is_slow_to_parse_stays_text(self, sign: str) -> None:
        """The console is blocked while it parses."""
        assert text_content(sign * 20_000, "markdown").form == "text"

    @pytest.mark.parametrize(
        ("value", "form"),
        [
            pytest.param([{"item": "ink", "euros": 3}, {"item": "paper"}], "table", id="records"),
            pytest.param([{"item": {"deep": 1}}], "json", id="deep records"),
            pytest.param({"notes": "# One\n\ntwo", "n": 1}, "members", id="an object with Markdown in it"),
            pytest.param({"n": 1, "text": "one line"}, "json", id="an object"),
            pytest.param("**bold**", "markdown", id="a text"),
        ],
    )
    def test_each_value_has_a_readable_form(self, value: Any, form: str) -> None:
        """An agent's output may be any JSON."""
        assert value_content(value).form == form

    @pytest.mark.parametrize(
        ("data", "form"),
        [
            pytest.param(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "text", id="a drawing"),
            pytest.param(b"\x00\x01\xff", "binary", id="bytes"),
            pytest.param(b'{"runs": 7}', "json", id="not SARIF"),
            pytest.param(b'{"runs": [{"results": [{"message": 7}]}]}', "json", id="broken SARIF"),
            pytest.param(b"[" * 100_000, "text", id="too deep"),
            pytest.param(b'{"pay": 1, "pay": 1000}', "text", id="a member twice"),
            pytest.param(b"[1.00000000000000000001]", "text", id="another number"),
            pytest.param(b'{"a": NaN}', "text", id="no JSON"),
            pytest.param(b'{"version": "2.1.0", "runs": []}', "json", id="SARIF without a finding"),
            pytest.param(b'{"runs": [{"results": [{}]}], "pay": 1}', "json", id="SARIF with more than that"),
            pytest.param(b"[" * 900 + b"1" + b",1" * 90_000 + b"]" * 900, "text", id="spaces without end"),
        ],
    )
    def test_content_that_does_not_match_its_name_is_text(self, data: bytes, form: str) -> None:
        """Whatever the name says."""
        assert make_content(data, type="sarif", path="x.png").form == form

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            pytest.param(
                "|a" * 400 + "|\n" + "|-" * 400 + "|\n" + "|a\n" * 9_000, "markdown", id="a table of millions"
            ),
            pytest.param("a," * 100_000 + "\n" + "b\n" * 500, "csv", id="as many columns"),
            pytest.param("--- a\n" + "\n" * 200_000, "diff", id="a diff of empty lines"),
        ],
    )
    def test_content_that_would_grow_on_rendering_stays_text(self, text: str, hint: str) -> None:
        """The size of a page is proportional to what it shows."""
        assert text_content(text, hint).form == "text"

    def test_no_cell_is_lost(self) -> None:
        """A row may have more cells than the header."""
        assert text_content("a\nb,hidden\n", "csv").rows == [["b", "hidden"]]

    def test_words_of_all_scripts_stay(self) -> None:
        """Joiners, accents and script directions are not an attack."""
        text = "é ñ Ω שלום مرحبا 你好 👩\u200d👧"

        assert visible(text) == text
