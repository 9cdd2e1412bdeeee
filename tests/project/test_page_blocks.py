"""The Python blocks of the docs run: each page's blocks are put into a program that has what they count on.

The program is `tests/data/pages/PAGE.txt`. A line `## block: TEXT` stands for the page's lines from the one that begins
with the text to the end of its block, or to a line that another such line names. The tutorial, the skill, the README,
the page on agents and that on testing are whole programs: other tests run them as they are.
"""

import asyncio
import os
import re
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest
from temporalio.client import Client

from baton import BatonPlugin
from baton.devserver import DevServer

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "data" / "pages"
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
HOLE = re.compile(r"^( *)## block: (.+)\n", re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TYPED = {"schedules", "ledger"}
WHOLE_PROGRAMS = {"agents", "skill", "testing", "tutorial"}
PAGES = sorted(path.stem for path in PROGRAMS.glob("*.txt"))

each_page = pytest.mark.parametrize("page", PAGES)


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return [textwrap.dedent(body) for _, body in BLOCK.findall(text)]


def filled(page: str) -> str:
    """Return the program of a page, with all blocks of the page in it.

    Raises:
        AssertionError: A block, or the beginning of one, has no place in the program.
    """
    program = (PROGRAMS / f"{page}.txt").read_text(encoding="utf-8")
    wanted = [named for _, named in HOLE.findall(program)]
    pieces: dict[str, str] = {}
    for block in blocks(page):
        here = ""
        for line in block.splitlines(keepends=True):
            here = next((one for one in wanted if one not in pieces and line.startswith(one)), here)
            assert here, f"nothing runs the block of {page}.md that begins with {line!r}"
            pieces[here] = pieces.get(here, "") + line
    assert [one for one in wanted if one not in pieces] == []
    return HOLE.sub(lambda found: textwrap.indent(pieces[found[2]].rstrip() + "\n", found[1]), program)


def typed_lines(page: str) -> list[str]:
    """Return the lines that the page has a reader type, without those that never end."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return [line for body in SHELL.findall(text) for line in body.splitlines()] if page in TYPED else []


async def type_in(line: str) -> None:
    """Type a line into a shell, which must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = await asyncio.create_subprocess_shell(
        line,
        env={**os.environ, "PATH": path},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await ended.communicate()
    assert ended.returncode == 0, f"{line}: {printed.decode()}"


def module_of(page: str) -> str:
    """Return the name of a page's module."""
    return f"{page.replace('-', '_')}_page"


def write(page: str, folder: Path) -> Path:
    """Write the program of a page."""
    file = folder / f"{module_of(page)}.py"
    file.write_text(filled(page), encoding="utf-8")
    return file


def test_every_page_with_blocks_is_run() -> None:
    """A new page needs a program here, or has to be one."""
    with_blocks = {path.stem for path in (ROOT / "docs").glob("*.md") if blocks(path.stem)}

    assert with_blocks == {*PAGES} | WHOLE_PROGRAMS


@each_page
async def test_the_blocks_of_a_page_run(
    page: str, server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real server, and what they do is checked."""
    write(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    client = await Client.connect(server.address, plugins=[BatonPlugin()])

    await import_module(module_of(page)).main(client)
    for line in typed_lines(page):
        await type_in(line)
