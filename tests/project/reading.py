"""A reader of the docs: does what each block says, in an empty folder, against a real server."""

import asyncio
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from pathlib import Path

from temporalio.client import Client
from typer.testing import CliRunner

from baton import StepKind
from baton.cli.app import make_app
from baton.cli.supervision import worker_module
from baton.client import StepStatus, follow

ROOT = Path(__file__).parents[2]
PLACES = {"README": ROOT / "README.md"} | {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|ini|toml))\n")
_INSERT = re.compile(r"# ([\w.]+), before `(.+)`\n")
_ASSIGNED = re.compile(r"\w+=")
_SERVICES = (
    ["baton", "dev"],
    ["baton", "console"],
    ["baton", "serve"],
    ["python", "-m", "baton.worker"],
    ["python", "deploy/codec_server.py"],
)
_SHELLS_OWN = {*"|<>;&$`"}
_HAVE_PORTS = ("console", "serve")


@dataclass(frozen=True)
class Block:
    """A block of a page: its language and its text."""

    page: str
    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page, in its order."""
    text = PLACES[page].read_text(encoding="utf-8")
    return [Block(page, kind, textwrap.dedent(body)) for _, kind, body in _BLOCK.findall(text)]


def commands(block: Block) -> list[str]:
    """Return the commands of a block for the shell; one may take several lines."""
    found, piece = [], ""
    for line in block.text.splitlines(keepends=True):
        piece += line
        if not line.endswith("\\\n") and _is_whole(piece):
            found.append(piece.replace("\\\n", " ").strip())
            piece = ""
    assert piece == "", f"the shell does not take {piece!r}"
    return [item for item in found if item and not item.startswith("#")]


def _is_whole(text: str) -> bool:
    """Whether the shell takes a text as one or more whole commands."""
    return subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False).returncode == 0


def _prints(printed: str, promised: str) -> bool:
    """Whether it prints what a page says; `…` stands for what differs from run to run, and a terminal breaks lines."""
    pattern = ".*?".join(re.escape(part) for part in " ".join(promised.split()).split("…"))
    return re.search(pattern, " ".join(printed.split())) is not None


@dataclass
class Reader:
    """Somebody who does what a page says.

    Attributes:
        folder: Where they are.
        variables: The environment of their commands.
        client: A client of the server that stands for that of `baton dev`.
        place: What stands for `/path/to` in commands.
        printed: What the last block of commands printed.
    """

    folder: Path
    variables: dict[str, str]
    client: Client
    place: Path
    printed: str = ""
    _looked: str = ""
    _looks: int = 60
    _services: dict[str, tuple[asyncio.subprocess.Process, bytes, asyncio.Task[bytes]]] = field(default_factory=dict)

    async def read(self, page: str, given: list[Block]) -> None:
        """Do the blocks of a page that are to be done, in its order.

        Python that does not say which file it stands in is one program of the page's name, run at the end.
        """
        program = ""
        for block in given:
            if block.kind == "sh":
                exported = {**self.variables}  # a block is a terminal: what it exports is its own
                lines = commands(block)
                self.printed = "".join([await self.run(line) for line in lines])
                self._looked = lines[-1] if lines[-1].startswith("baton show ") else ""
                self.variables = exported
            elif block.kind == "text":
                while not _prints(self.printed, block.text) and self._looked and self._looks:
                    self._looks -= 1  # a run gets there in its own time, and a person looks again
                    self.printed = await self.run(self._looked)
                assert _prints(self.printed, block.text), f"{page} promises {block.text}, and got {self.printed}"
            elif not await self.save(block):
                assert block.kind == "python", f"{page} does not say where {block.text!r} goes"
                program += block.text
        if program:
            (self.folder / f"{page}.py").write_text(program, encoding="utf-8")
            await self.run(f"python {page}.py")

    async def save(self, block: Block) -> bool:
        """Save a file, or put lines into one, if the block says which; a worker of the file starts again."""
        if match := _INSERT.match(block.text):
            name, path = match[1], self.folder / match[1]
            before, after = path.read_text(encoding="utf-8").split(f"    {match[2]}")
            text = before + block.text[match.end() :] + f"    {match[2]}" + after
        elif match := _FILE.match(block.text):
            name, text = match[1], block.text
        else:
            return False
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")
        for line in [line for line in self._services if name in line.split()]:
            await self.serve(line)
        return True

    async def run(self, line: str) -> str:
        """Type a command, which has to succeed, and return what it printed."""
        line = line.replace("/path/to", str(self.place))
        words = shlex.split(line, comments=True)
        plain = [*dropwhile(_ASSIGNED.match, words)]
        if plain[:2] == ["pip", "install"]:  # the packages are those of this checkout
            return ""
        if words[0] == "cd":
            self.folder /= words[1]
            return ""
        if any(plain[: len(service)] == service for service in _SERVICES):
            await self.serve(line)
            return ""
        if plain[:2] == ["baton", "approve"]:
            await self._is_asked(plain[2])
        if words[0] == "export":
            name = words[1].split("=")[0]
            self.variables[name] = await self._type(f'{line}\nprintf %s "${name}"')
            return ""
        if plain[0] == "baton" and plain[1] != "replay" and words == plain and not _SHELLS_OWN & {*line}:
            return await asyncio.to_thread(self._call, words[1:])
        return await self._type(line)

    def _call(self, words: list[str]) -> str:
        """Run a `baton` command within this process, which has loaded it: a process of its own takes a second."""
        absent: dict[str, str | None] = {name: None for name in os.environ if name not in self.variables}
        with contextlib.chdir(self.folder):
            wide = {"COLUMNS": "120"} if words[0] == "lab" else {}  # its tables have a column for each candidate
            ended = CliRunner().invoke(make_app(), words, env={**absent, **self.variables, **wide}, prog_name="baton")
        assert ended.exit_code == 0, f"baton {words}\n{ended.output}\n{ended.exception!r}"
        return ended.stdout

    async def _type(self, line: str) -> str:
        ended = await asyncio.create_subprocess_shell(
            line,
            cwd=self.folder,
            env=self.variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, beside = await ended.communicate()
        assert ended.returncode == 0, f"{line}\n{printed.decode()}\n{beside.decode()}"
        return printed.decode()

    async def _is_asked(self, run: str) -> None:
        """Wait until a run asks for an approval."""
        async for update in follow(self.client, run):
            if update.run and any(
                step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING for step in update.run.steps
            ):
                return

    async def serve(self, line: str) -> None:
        """Start what serves until it is stopped, in place of the one before, and wait until it says that it does.

        `baton dev` is a worker alone, on the reader's server; and ports that the page does not name are free ones.
        """
        await self._end([line])
        words = shlex.split(line, comments=True)
        own = dict(word.split("=", 1) for word in takewhile(_ASSIGNED.match, words))
        plain = words[len(own) :]
        if plain[:2] == ["baton", "dev"]:
            name = plain[2]
            plain = ["python", "-m", *(["baton.worker", name] if name.endswith(".py") else [worker_module(name)])]
        elif plain[1] in _HAVE_PORTS and "--port" not in plain:
            plain += ["--port", "0"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable if word == "python" else word for word in plain),
            cwd=self.folder,
            env={**self.variables, **own},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        first = await process.stdout.readline()
        self._services[line] = process, first, asyncio.create_task(process.stdout.read())

    async def _end(self, lines: list[str]) -> None:
        """Stop what serves, which has to have served until now."""
        ended = []
        for line in [line for line in lines if line in self._services]:
            process, first, rest = self._services.pop(line)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            ended.append((line, await process.wait(), (first + await rest).decode()))
        for line, code, told in ended:
            print(f"{line}\n{told}")
            assert code == -signal.SIGKILL, f"{line} ended by itself, with {code}: {told}"

    async def stop(self) -> None:
        """Stop all that serves."""
        await self._end([*self._services])
