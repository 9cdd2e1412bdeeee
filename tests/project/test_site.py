"""The site of the docs: built strictly, whole, offline, searchable, and accessible in light and dark."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Request, async_playwright

from baton import errors
from baton.cli.app import COMMANDS
from baton.cli.options import ExitCode
from baton.core.verdict import Code
from baton.worker import Settings
from benchmarks.report import GOALS

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH: pages are not looked at in a browser")
SERIOUS = {"serious", "critical"}
SCHEMES = {"light": "default", "dark": "slate"}
CONTRAST = "color-contrast"
THIN_OUT = """() => {
    const seen = new Map();
    for (const one of document.querySelectorAll("pre span, article li, article tr, .doc-object, .md-nav__item")) {
        const kind = `${one.tagName}.${one.className}`;
        seen.set(kind, (seen.get(kind) ?? 0) + 1);
        if (seen.get(kind) > 20) one.remove();
    }
}"""
"""Leaves of what looks alike, tokens of code, rows, names, the first twenty: contrast takes axe minutes otherwise."""


class Links(HTMLParser):
    """What a page offers and asks for: ids, links, and what a browser loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of what a tag names."""
        attributes = dict(attrs)
        self.ids |= {attributes[name] or "" for name in ("id", "name") if name in attributes}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"] or "")
        elif tag == "link" and attributes.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(attributes.get("href") or "")
        elif tag in ("script", "img", "iframe", "source", "video") and attributes.get("src"):
            self.loaded.append(attributes["src"] or "")


def read(page: Path) -> Links:
    """Return the links of a page."""
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site, built as `make docs` does; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> list[Path]:
    """Return the pages of the site."""
    return sorted(site.rglob("*.html"))


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Return the address of a web server for the site."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(site))

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Return Chromium, without a window."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


def test_every_link_leads_to_a_page_and_an_anchor(site: Path, pages: list[Path]) -> None:
    """Generated pages included, and the files of the checkout that pages link to."""
    read_pages = {page: read(page) for page in pages}
    dead = []
    for page, links in read_pages.items():
        for link in links.links:
            target, anchor = urldefrag(unquote(link))
            if urlsplit(target).scheme:
                continue
            there = (page.parent / target).resolve() if target else page
            if there.is_dir():
                there /= "index.html"
            anchors = read_pages[there].ids if there in read_pages else set()
            if not there.is_file() or (anchor and not anchor.startswith("__") and anchor not in anchors):
                dead.append(f"{page.relative_to(site)}: {link}")

    assert dead == []


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: list[Path]) -> None:
    """No font server, no CDN: neither named in a page, nor in a style sheet."""
    loaded = [(page.name, source) for page in pages for source in read(page).loaded]
    styles = [text for sheet in site.rglob("*.css") for text in re.findall(r"url\(([^)]*)\)", sheet.read_text())]

    assert [item for item in loaded if urlsplit(item[1]).netloc] == []
    assert [text for text in styles if re.match(r"""["']?(https?:)?//""", text)] == []


def test_each_page_is_there_as_markdown_and_llms_txt_lists_it(site: Path, pages: list[Path]) -> None:
    """A language model reads what a person reads, without the navigation."""
    listed = re.findall(r"(?m)^- \[.+\]\((.+)\): .", (site / "llms.txt").read_text(encoding="utf-8"))
    expected = {page.relative_to(site).with_suffix(".md").as_posix() for page in pages}

    assert set(listed) == expected
    assert all((site / name).stat().st_size > 100 for name in listed)
    assert "def " not in (site / "reference" / "baton.md").read_text()[:20]


def test_the_reference_has_every_exported_name(site: Path) -> None:
    """What can be imported from a front door is described on its page."""
    for door in ("baton", "baton.agents", "baton.client", "baton.lab", "baton.protocol", "baton.testing"):
        module = __import__(door, fromlist=["__all__"])
        text = (site / "reference" / f"{door.removeprefix('baton.')}.html").read_text(encoding="utf-8")

        assert [name for name in module.__all__ if name not in text] == []


def note(asked: list[str], request: Request) -> None:
    """Remember the address that a page asks."""
    asked.append(request.url)


def test_the_reference_has_every_setting_figure_and_command(site: Path) -> None:
    """They are made from what the worker, the benchmarks and the command have."""
    pages = {
        name: (site / "reference" / f"{name}.md").read_text(encoding="utf-8") for name in ("settings", "figures", "cli")
    }

    assert [name for name in Settings.model_fields if f"| `BATON_{name.upper()}` |" not in pages["settings"]] == []
    assert [name for name in GOALS if f"| `{name}` |" not in pages["figures"]] == []
    assert [listed for listed in COMMANDS if f"`baton {listed.name}`" not in pages["cli"]] == []


def test_the_reference_says_of_each_error_and_code_what_to_do(site: Path) -> None:
    """It is made from the docstrings: one without a second sentence leaves the reader alone."""
    page = (site / "reference" / "errors.md").read_text(encoding="utf-8")
    cells = [[cell.strip("` ") for cell in row.strip("|").split("|")] for row in re.findall(r"(?m)^\| .+\|$", page)]
    last = {row[0].partition("`")[0]: row[-1] for row in cells}
    public = [name for name in vars(errors) if name.endswith("Error")]

    assert [name for name in [*public, *Code, *map(str, map(int, ExitCode))] if name not in last] == []
    assert [name for name, remedy in last.items() if len(remedy) < 7] == []


@IN_BROWSER
async def test_the_search_works_from_a_server_and_from_a_file(site: Path, address: str, browser: Browser) -> None:
    """A reader finds the page on approvals by its word, and no request leaves the machine."""
    for start in (f"{address}/index.html", (site / "index.html").as_uri()):
        page = await browser.new_page()
        queries: list[str] = []
        page.on("request", partial(note, queries))
        await page.goto(start)
        await page.keyboard.press("/")
        await page.locator("input.md-search__input").press_sequentially("quorum")
        await page.locator(".md-search-result__link").first.wait_for()
        results = await page.locator(".md-search-result__link").evaluate_all("all => all.map(one => one.href)")

        assert any("approvals.html" in link for link in results)
        assert [url for url in queries if not url.startswith((address, "file:", "data:", "blob:"))] == []
        await page.close()


@IN_BROWSER
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(
    site: Path, pages: list[Path], address: str, browser: Browser, scheme: Any
) -> None:
    """Names of controls and structure of every whole page; in both schemes the contrast of each kind of text on it."""
    page = await (await browser.new_context(color_scheme=scheme)).new_page()
    members = {"rules": {CONTRAST: {"enabled": False}}}
    contrast = {"runOnly": {"type": "rule", "values": [CONTRAST]}}
    faults = []
    for path in pages:
        await page.goto(f"{address}/{path.relative_to(site).as_posix()}")
        matches = [] if scheme == "dark" else await violations(page, members)
        await page.evaluate(THIN_OUT)
        matches += await violations(page, contrast)
        faults += [
            f"{path.name}: {fault['id']}: {fault['nodes'][0]['html'][:150]} ({len(fault['nodes'])})"
            for fault in matches
        ]

    assert faults == []
    assert await page.locator("body").get_attribute("data-md-color-scheme") == SCHEMES[scheme]


async def violations(page: Page, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what axe finds on a page that is serious."""
    results = await Axe().run(page, options={"resultTypes": ["violations"], **options})
    return [fault for fault in results.response["violations"] if fault["impact"] in SERIOUS]
