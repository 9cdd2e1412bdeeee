"""An agent behind a command line: a program gets the prompt and writes a report, or a patch, on stdout."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from baton.agents.answers import AgentAnswer, AnswerForm
from baton.agents.port import AgentWork
from baton.core.stages import name_set
from baton.devserver.processes import group_bound_to_parent
from baton.errors import AgentError, ConfigurationError, PatchError
from baton.pipelines.prompt import FILES, Reads
from baton.wire.json_values import json_spellings
from baton.wire.text import single_line

USUAL_VARIABLES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT")
"""The variables of the worker's environment that every program gets, where they are set."""

_FENCE = re.compile(r"^```(?P<language>[\w-]*)[ \t]*$", re.MULTILINE)
_OBJECT = re.compile(r"^\{", re.MULTILINE)
# Colours, titles, links, and what resets them.
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-?])")
_REPORT = re.compile(r"^## Agent Handoff Report\b", re.MULTILINE)
_MOST_OBJECTS = 100  # so many lines of a log may follow an answer
_LONGEST_REASON = 200
_LONGEST_NOTE = 2_000
_SHORTEST_SECRET = 6
_PROMPT_FILE = "{prompt_file}"
_BEAT = 1.0  # seconds between two heartbeats with the progress
_DRAIN = 1.0  # seconds for the last of the output, where somebody outside the group holds the pipe


@dataclass(frozen=True)
class SubprocessAgent:
    """An agent behind a command line.

    Attributes:
        name: The agent's name.
        command: The program and its arguments; no shell reads them. In an argument, `{prompt_file}` stands for a file
            with the prompt, which comes on stdin otherwise, `{tools}` for the allowed tools with commas between,
            `{handoff_id}` for the handoff.
        directory: Where the program runs. A path to it that leads nowhere from the worker's own directory begins here.
        environment: Further variables of the worker's environment that it gets, by name: its keys, for example.
        seconds: How long it may run; by default a little less than the stage's timeout.
        grace: How many seconds it gets to end by itself once it was asked to.
        most_bytes: How much it may write, on stdout and on stderr each.
        permanent: The exit codes after which another run would not help.
        stream: Show the lines that it writes on stdout to those who follow the run, as `p.stage(…, stream=True)` does.
        of_output: Makes the answer of what it wrote on stdout, for a program with a form of its own.
    """

    name: str
    command: Sequence[str]
    directory: Path | None = None
    environment: Sequence[str] = ()
    seconds: float | None = None
    grace: float = 5.0
    most_bytes: int = 4 * 1024 * 1024
    permanent: frozenset[int] = frozenset({2, 126, 127})
    of_output: Callable[[str], AgentAnswer] | None = None
    stream: bool = False
    reads: ClassVar[Reads] = "files"

    def __post_init__(self) -> None:
        """Refuse a command that is none, and a lone name of a variable."""
        name_set(self.environment, "environment")
        if isinstance(self.command, str) or not self.command:
            raise ValueError("command: a list of the program and its arguments is expected, for no shell reads it")

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the program to its end.

        Raises:
            AgentError: It cannot be started, failed, wrote too much, or did not end in time.
            PatchError: What it wrote is not an answer.
            asyncio.CancelledError: The stage was cancelled; the program and all it started are ended.
        """
        prompt = f"{work.instructions}\n\n{work.user_turn(with_schema=True)}".lstrip()
        with tempfile.TemporaryDirectory(prefix="baton-") as folder:  # only this user can read it
            path = Path(folder, "prompt.md")
            in_file = any(_PROMPT_FILE in one for one in self.command)
            if in_file:
                await asyncio.to_thread(path.write_text, prompt, encoding="utf-8")
            command = self._command(work, path)
            environment = {**self._environment(work), **await _files(work, Path(folder, "files"))}
            secrets = [environment[name] for name in self.environment if name in environment]
            written = _Written(self.most_bytes, work, secrets)
            data = b"" if in_file else prompt.encode()
            code = await self._executed(command, environment, data, written, work)
        # What it wrote goes into the history, where no key may stand.
        said, aside = (_without(written.text(fd), secrets) for fd in (1, 2))
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            told = _last_line(said, aside)
            raise AgentError(f"agent {self.name!r} ended with {how}{told}", permanent=code in self.permanent)
        if self.of_output is None and not said.strip():
            told = _last_line(aside)
            raise PatchError([f"the program wrote nothing on stdout, where its answer is expected{told}"])
        return self._answer(said, work)

    def _answer(self, text: str, work: AgentWork) -> AgentAnswer:
        """Return the answer in what was written on stdout; what a program says around it is passed over."""
        if self.of_output is not None:
            return self.of_output(text)
        text = _plain(text)
        if work.form is AnswerForm.REPORT:
            heading = _REPORT.search(text)
            return work.read(text[heading.start() :] if heading else text)
        if work.form is AnswerForm.TEXT:
            return work.read(text)
        block = _last_block(text)
        first = text if block is None or text.lstrip().startswith("{") else block
        try:
            return work.read(first)
        except PatchError:
            last = _last_object(text)  # a block may show a command, beside an answer that stands in none
            if last in ("", first.strip()):
                raise
            return work.read(last)

    def _command(self, work: AgentWork, path: Path) -> list[str]:
        """Return the command with its placeholders filled, found on the worker's own search path or where it runs."""
        values = {
            _PROMPT_FILE: str(path),
            "{tools}": ",".join(sorted(work.context.tools.names or ())),
            "{handoff_id}": work.handoff_id,
        }
        # Each argument is read once, so a value with a placeholder in it stays as it is.
        pattern = re.compile("|".join(map(re.escape, values)))
        program, *arguments = [pattern.sub(lambda found: values[found[0]], one) for one in self.command]
        where = shutil.which(program)
        if where is None and self.directory is not None and os.path.dirname(program):  # a bare name is never one here
            where = shutil.which(self.directory / program)
        if where is None and os.path.dirname(program) and os.path.isfile(Path(self.directory or ".", program)):
            raise AgentError(f"agent {self.name!r}: {program!r} may not be run by this worker; make it executable")
        if where is None:
            told = f"agent {self.name!r}: the program {program!r} is not on this worker; install it"
            raise ConfigurationError(told)
        # Whole, for the program starts in a directory of its own.
        return group_bound_to_parent([os.path.abspath(where), *arguments])

    def _environment(self, work: AgentWork) -> dict[str, str]:
        """Return the variables that the program gets: the usual ones, those named, and what it acts under."""
        missing = [name for name in self.environment if not os.environ.get(name)]
        if missing:
            told = f"agent {self.name!r}: the environment of this worker has no {', '.join(missing)}; set it"
            raise ConfigurationError(told)
        given = {name: os.environ[name] for name in (*USUAL_VARIABLES, *self.environment) if name in os.environ}
        acting: Mapping[str, str] = {
            "BATON_HANDOFF_ID": work.handoff_id,
            "BATON_STAGE": work.context.given.stage,
            "BATON_TASK_ID": work.context.given.task_id,
        }
        return {**given, **acting}

    async def _executed(
        self, command: list[str], environment: dict[str, str], data: bytes, written: "_Written", work: AgentWork
    ) -> int:
        """Run a command to its end, and return its exit code; nothing of its group is left behind."""
        seconds = min(one for one in (self.seconds, work.limits.seconds, float("inf")) if one is not None)
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.subprocess_exec(
                lambda: written,
                *command,
                env=environment,
                cwd=self.directory,
                start_new_session=True,
            )
        except OSError as error:
            where = (
                ""
                if self.directory is None or self.directory.is_dir()
                else f": {str(self.directory)!r} is not a folder"
            )
            raise AgentError(f"agent {self.name!r} cannot be started{where} ({type(error).__name__})") from None
        group = transport.get_pid()
        try:
            written.feed(data)
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await written.ended.wait()
            if written.too_much:
                raise AgentError(f"agent {self.name!r} wrote more than {self.most_bytes} bytes, and was ended")
            return int(transport.get_returncode() or 0)
        except TimeoutError:
            raise AgentError(f"agent {self.name!r} did not end within {seconds:g} seconds, and was ended") from None
        finally:
            # Shielded: a cancelled stage must not leave a process, not even when it is cancelled twice.
            await asyncio.shield(loop.create_task(_end(group, written, self.grace)))
            transport.close()


class _Written(asyncio.SubprocessProtocol):
    """What a program writes; ``ended`` is set when it exits, or has written too much."""

    def __init__(self, most: int, work: AgentWork, secrets: Sequence[str]) -> None:
        self._most = most
        self._work = work
        self._secrets = [line for one in secrets for line in one.splitlines()]  # output is shown by lines
        self._line = b""
        self._pieces: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self._told = time.monotonic()
        self._transport: Any = None
        self.too_much = False
        self.ended = asyncio.Event()
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        """Keep the transport, to write to its stdin."""
        self._transport = transport

    def feed(self, data: bytes) -> None:
        """Write the whole of stdin; a program may leave it unread."""
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.write(data)
            stdin.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep what was written, up to the limit, and tell Temporal once a second how much it is."""
        kept = self._pieces[fd]
        kept += data[: self._most - len(kept) + 1]
        if len(kept) > self._most:
            self.too_much = True
            self.ended.set()
        elif fd == 1 and self._work.context.stream.wanted:
            lines, newline, self._line = (self._line + data).rpartition(b"\n")
            self._say(lines + newline)
        if time.monotonic() - self._told >= _BEAT:
            self._told = time.monotonic()
            self._work.context.heartbeat({"stdout": len(self._pieces[1]), "stderr": len(self._pieces[2])})

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Tell the last line, which may have no end."""
        if fd == 1:
            self._say(self._line)

    def _say(self, lines: bytes) -> None:
        """Tell those who follow the run what the program wrote, without colours and keys."""
        self._work.context.stream.text(_without(_plain(lines.decode(errors="replace")), self._secrets))

    def process_exited(self) -> None:
        """Note that the program itself has ended; others of its group may still hold its pipes."""
        self.exited.set()
        asyncio.get_running_loop().call_soon(self.ended.set)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it has ended and all it wrote has been read."""
        self.closed.set()

    def text(self, fd: int) -> str:
        """Return what was written to a descriptor."""
        return self._pieces[fd].decode(errors="replace")


async def _end(group: int, written: _Written, grace: float) -> None:
    """End a process group: asked first, unless its leader is gone already, and then killed."""
    if not written.exited.is_set():
        _signal(group, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await written.exited.wait()
    else:
        with contextlib.suppress(TimeoutError):  # what it wrote last may still be in the pipe
            async with asyncio.timeout(_DRAIN):
                await written.closed.wait()
    _signal(group, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    await written.exited.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN):
            await written.closed.wait()


def _signal(group: int, number: int) -> None:
    """Send a signal to all of a group that are left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(group, number)
        else:
            os.killpg(group, number)


def _without(text: str, secrets: Sequence[str]) -> str:
    """Return a text in which no value stands of a variable that was named for the program, nor one as JSON has it."""
    spelled = {one for secret in secrets for one in json_spellings(secret) if len(one) >= _SHORTEST_SECRET}
    for one in sorted(spelled, key=len, reverse=True):  # of two values, one may begin as the other
        text = text.replace(one, "[withheld]")
    return text


def _last_line(*texts: str) -> str:
    """Return the last line of the last text that has one, as the end of a sentence."""
    lines = [line for text in texts for line in _plain(text).strip().splitlines()]
    return f": {single_line(lines[-1])[:_LONGEST_REASON]}" if lines else ""


def _plain(text: str) -> str:
    """Return a text without what was meant for a terminal or another system: colours, a byte order mark, CRs."""
    return _TERMINAL.sub("", text).removeprefix("\ufeff").replace("\r\n", "\n")


def _last_block(text: str) -> str | None:
    """Return what stands in the last fence that is closed, if there is one; in one pass, however many there are."""
    block = opening = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif not fence["language"]:
            block, opening = text[opening.end() + 1 : fence.start()], None
    return block


def _last_object(text: str) -> str:
    """Return the last object of JSON that begins a line, without the lines behind it; all the rest if it is broken."""
    last = ""
    for found in list(_OBJECT.finditer(text))[: -_MOST_OBJECTS - 1 : -1]:
        begin = found.start()
        try:
            value, end = json.JSONDecoder().raw_decode(text, begin)
        except (ValueError, RecursionError):
            return last or text[begin:].strip()
        behind = text[end:].lstrip(" \t")
        one = text[begin : end if behind.startswith("\n") else len(text)].strip()
        if "baton_patch" in value:
            return one
        last = last or one
    return last


async def _files(work: AgentWork, folder: Path) -> dict[str, str]:
    """Put what the handoff names into files, and return the variable that names their folder."""
    if not work.readable:
        return {}
    texts = {id: await work.context.readable_text(id) for id in sorted(work.readable)}
    await asyncio.to_thread(_write_files, texts, folder)
    work.context.session.internal_note(f"files: {', '.join(texts)}"[:_LONGEST_NOTE])
    return {FILES: str(folder)}


def _write_files(texts: Mapping[str, str | None], folder: Path) -> None:
    """Write texts into a new folder, and an index: an id is of an agent's making, so it names no file itself."""
    folder.mkdir()
    index: list[dict[str, Any]] = []
    for number, (id, text) in enumerate(texts.items(), start=1):
        if text is None:
            index.append({"id": id, "error": "it is not text, or is not in this worker's store"})
            continue
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
        index.append({"id": id, "file": f"{number}.txt", "characters": len(text)})
    (folder / "index.json").write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")
