"""The tutorial and the skill file, followed step by step in an empty folder, on a real server."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.client import Client

from baton import BatonPlugin, StepKind
from baton.client import StepStatus, follow
from baton.devserver import DevServer

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("tutorial", "skill")}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./]+\.(?:py|ini))\n")
INSERT = re.compile(r"# ([\w.]+), before `(.+)`\n")


@dataclass
class Reader:
    """Somebody who does what a page says.

    Attributes:
        folder: Their folder.
        variables: The environment of their commands.
        client: A client of the server that stands for that of `baton dev`.
        printed: What the last block of commands printed.
    """

    folder: Path
    variables: dict[str, str]
    client: Client
    printed: str = ""
    done: list[str] = field(default_factory=list)
    _served: str = ""
    _worker: subprocess.Popen[bytes] | None = None

    async def follow(self, page: str) -> None:
        """Do every block of a page in its order."""
        for kind, text in BLOCK.findall(page):
            if kind in ("python", "ini"):
                self.write(text)
            elif kind == "sh":
                self.printed = "".join([await self.run(line.split("  #")[0].strip()) for line in text.splitlines()])
            else:
                assert kind == "text", f"nobody checks blocks of {kind}"
                assert text.strip() in self.printed

    def write(self, text: str) -> None:
        """Save a file, or put lines into one; a worker that runs begins again, as that of `baton dev` does."""
        if found := INSERT.match(text):
            path = self.folder / found[1]
            before, after = path.read_text(encoding="utf-8").split(f"    {found[2]}")
            path.write_text(before + text[found.end() :] + f"    {found[2]}" + after, encoding="utf-8")
        else:
            file = FILE.match(text)
            assert file, f"what file is this? {text[:80]}"
            (self.folder / file[1]).write_text(text, encoding="utf-8")
        if self._worker:
            self.serve(self._served)

    async def run(self, line: str) -> str:
        """Type a line, and return what it printed."""
        if not line or line.startswith("pip install"):  # the packages are those of this checkout
            return ""
        self.done.append(line)
        words = line.split()
        if words[:2] == ["baton", "dev"]:
            self.serve(words[2])
            return ""
        if words[:2] == ["baton", "approve"]:
            await self.is_asked(words[2])
        ended = await asyncio.to_thread(self.type, line)
        assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line of the shell, with nobody at the terminal."""
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    async def is_asked(self, run: str) -> None:
        """Wait until a run asks for an approval."""
        async for update in follow(self.client, run):
            if update.run and any(
                step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING for step in update.run.steps
            ):
                return

    def serve(self, file: str) -> None:
        """Start a worker for a file, in place of the one before."""
        self.stop()
        self._served = file
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "baton.worker", file], cwd=self.folder, env=self.variables
        )

    def stop(self) -> None:
        """Stop the worker."""
        if self._worker:
            self._worker.kill()
            self._worker.wait()


@pytest.fixture
async def reader(tmp_path: Path, server: DevServer, request: pytest.FixtureRequest) -> AsyncIterator[Reader]:
    """Return a reader in an empty folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BATON_", "TEMPORAL_", "PYTEST"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    queue = f"followed-{request.node.callspec.id}"
    variables = {**kept, "PATH": path, "TEMPORAL_ADDRESS": server.address, "BATON_TASK_QUEUE": queue}
    client = await Client.connect(server.address, plugins=[BatonPlugin()])
    reader = Reader(tmp_path, variables, client)
    yield reader
    reader.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("page", "last"), [("tutorial", "python -m pytest -q"), ("skill", "baton artifact cat")])
async def test_a_page_can_be_followed(reader: Reader, page: str, last: str) -> None:
    """Every file is written, every command succeeds, and prints what the page says that it prints."""
    await reader.follow(PAGES[page])

    assert reader.done[-1].startswith(last)
