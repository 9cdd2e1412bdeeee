"""An agent behind a command line: a program that gets the prompt and writes a report or a patch to stdout."""

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
from baton.codec.secrets import hold_secret, mask
from baton.core.stages import name_set
from baton.devserver.processes import group_bound_to_parent
from baton.errors import AgentError, ConfigurationError, PatchError
from baton.pipelines.prompt import FILES, Reads
from baton.wire.text import single_line

INHERITED_VARIABLES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT")
"""The variables of the worker's environment that every program inherits."""

_CODE_FENCE = re.compile(r"^```(?P<language>[\w-]*)[ \t]*$", re.MULTILINE)
_OBJECT_START = re.compile(r"^\{", re.MULTILINE)
# Colours, titles, links and resets.
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-?])")
_REPORT_HEADING = re.compile(r"^## Agent Handoff Report\b", re.MULTILINE)
_MAX_OBJECTS = 100  # so many lines of JSON logs may follow an answer
_MAX_REASON_LENGTH = 200
_MAX_NOTE_LENGTH = 2_000
_PROMPT_FILE = "{prompt_file}"
_HEARTBEAT_INTERVAL = 1.0  # seconds
_DRAIN_TIMEOUT = 1.0  # seconds to read the remaining output if a process outside the group holds the pipe


@dataclass(frozen=True)
class SubprocessAgent:
    """An agent behind a command line.

    Attributes:
        name: The agent's name.
        command: The program and its arguments, without a shell. In an argument, `{prompt_file}` is replaced by the path
            of a file with the prompt, which otherwise comes on stdin, `{tools}` by the allowed tools, separated by
            commas, and `{handoff_id}` by the handoff's id.
        directory: The program's working directory. A relative program path that the worker does not find is tried here.
        environment: The names of further variables of the worker's environment that it gets, such as its keys.
        seconds: The longest run time; by default a little less than the stage's timeout.
        grace: The seconds between SIGTERM and SIGKILL.
        most_bytes: The most bytes that it may write to stdout, and to stderr.
        permanent: The exit codes after which a retry would not help.
        stream: Stream the lines that it writes to stdout, like `p.stage(…, stream=True)`.
        of_output: Makes the answer from stdout, for a program with a format of its own.
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
        """Refuse a command that is not a list, and a string as `environment`."""
        hold_secret(*name_set(self.environment, "environment"))
        if isinstance(self.command, str) or not self.command:
            raise ValueError("command: expected a list of the program and its arguments, because no shell parses it")

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the program to its end.

        Raises:
            AgentError: The program cannot be started, failed, wrote too much, or did not finish in time.
            PatchError: Its output is not an answer.
            asyncio.CancelledError: The stage was cancelled; the program and its child processes were terminated.
        """
        prompt = f"{work.instructions}\n\n{work.user_turn(with_schema=True)}".lstrip()
        with tempfile.TemporaryDirectory(prefix="baton-") as folder:  # only this user can read it
            prompt_path = Path(folder, "prompt.md")
            in_file = any(_PROMPT_FILE in argument for argument in self.command)
            if in_file:
                await asyncio.to_thread(prompt_path.write_text, prompt, encoding="utf-8")
            command = self._build_command(work, prompt_path)
            environment = {**self._build_environment(work), **await _export_files(work, Path(folder, "files"))}
            secrets = [environment[name] for name in self.environment if name in environment]
            output = _OutputProtocol(self.most_bytes, work, secrets)
            stdin = b"" if in_file else prompt.encode()
            code = await self._execute(command, environment, stdin, output, work)
        # The output goes into the history, which must not contain keys.
        stdout, stderr = (mask(output.text(fd), secrets) for fd in (1, 2))
        if code != 0:
            ending = f"exit code {code}" if code > 0 else f"signal {-code}"
            message = f"agent {self.name!r} ended with {ending}{_last_line(stdout, stderr)}"
            raise AgentError(message, permanent=code in self.permanent)
        if self.of_output is None and not stdout.strip():
            raise PatchError([f"the program wrote no answer to stdout{_last_line(stderr)}"])
        return self._read_answer(stdout, work)

    def _read_answer(self, text: str, work: AgentWork) -> AgentAnswer:
        """Parse the answer in stdout, ignoring text around it."""
        if self.of_output is not None:
            return self.of_output(text)
        text = _strip_terminal_codes(text)
        if work.form is AnswerForm.REPORT:
            heading = _REPORT_HEADING.search(text)
            return work.read(text[heading.start() :] if heading else text)
        if work.form is AnswerForm.TEXT:
            return work.read(text)
        block = _last_block(text)
        candidate = text if block is None or text.lstrip().startswith("{") else block
        try:
            return work.read(candidate)
        except PatchError:
            member = "output" if work.form is AnswerForm.TYPED else "baton_patch"
            last = _last_object(text, member)  # the block may show a command, and the answer may stand outside it
            if last in ("", candidate.strip()):
                raise
            return work.read(last)

    def _build_command(self, work: AgentWork, prompt_path: Path) -> list[str]:
        """Return the command with its placeholders filled and the program's absolute path."""
        values = {
            _PROMPT_FILE: str(prompt_path),
            "{tools}": ",".join(sorted(work.context.tools.names or ())),
            "{handoff_id}": work.handoff_id,
        }
        # A single pass: placeholders in the values stay as they are.
        pattern = re.compile("|".join(map(re.escape, values)))
        program, *arguments = [pattern.sub(lambda match: values[match[0]], argument) for argument in self.command]
        path = shutil.which(program)
        if path is None and self.directory is not None and os.path.dirname(program):  # not for a bare name
            path = shutil.which(self.directory / program)
        if path is None and os.path.dirname(program) and os.path.isfile(Path(self.directory or ".", program)):
            raise AgentError(f"agent {self.name!r}: {program!r} is not executable for this worker; make it executable")
        if path is None:
            message = f"agent {self.name!r}: the program {program!r} is not on this worker; install it"
            raise ConfigurationError(message)
        # An absolute path, because the program's working directory differs.
        return group_bound_to_parent([os.path.abspath(path), *arguments])

    def _build_environment(self, work: AgentWork) -> dict[str, str]:
        missing = [name for name in self.environment if not os.environ.get(name)]
        if missing:
            message = f"agent {self.name!r}: the environment of this worker has no {', '.join(missing)}; set it"
            raise ConfigurationError(message)
        names = (*INHERITED_VARIABLES, *self.environment)
        return {name: os.environ[name] for name in names if name in os.environ} | {
            "BATON_HANDOFF_ID": work.handoff_id,
            "BATON_STAGE": work.context.given.stage,
            "BATON_TASK_ID": work.context.given.task_id,
        }

    async def _execute(
        self, command: list[str], environment: dict[str, str], stdin: bytes, output: "_OutputProtocol", work: AgentWork
    ) -> int:
        """Run a command to its end, and return its exit code; no process of its group survives."""
        seconds = min(limit for limit in (self.seconds, work.limits.seconds, float("inf")) if limit is not None)
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.subprocess_exec(
                lambda: output,
                *command,
                env=environment,
                cwd=self.directory,
                start_new_session=True,
            )
        except OSError as error:
            is_missing = self.directory is not None and not self.directory.is_dir()
            reason = f": {str(self.directory)!r} is not a folder" if is_missing else ""
            raise AgentError(f"agent {self.name!r} cannot be started{reason} ({type(error).__name__})") from None
        group = transport.get_pid()
        try:
            output.feed(stdin)
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await output.ended.wait()
            if output.too_much:
                raise AgentError(f"agent {self.name!r} wrote more than {self.most_bytes} bytes, and was terminated")
            return int(transport.get_returncode() or 0)
        except TimeoutError:
            raise AgentError(f"agent {self.name!r} did not finish within {seconds:g} s, and was terminated") from None
        finally:
            # Shielded, so that a stage that is cancelled twice leaves no process.
            await asyncio.shield(loop.create_task(_terminate(group, output, self.grace)))
            transport.close()


class _OutputProtocol(asyncio.SubprocessProtocol):
    """Collects a program's output; ``ended`` is set when it exits or has written too much."""

    def __init__(self, max_bytes: int, work: AgentWork, secrets: Sequence[str]) -> None:
        self._max_bytes = max_bytes
        self._work = work
        self._secrets = [line for secret in secrets for line in secret.splitlines()]  # output is streamed by lines
        self._partial_line = b""
        self._buffers: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self._last_heartbeat = time.monotonic()
        self._transport: Any = None
        self.too_much = False
        self.ended = asyncio.Event()
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def feed(self, data: bytes) -> None:
        """Write all of stdin; the program may leave it unread."""
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.write(data)
            stdin.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Collect output up to the limit, stream stdout, and send a heartbeat once a second."""
        buffer = self._buffers[fd]
        buffer += data[: self._max_bytes - len(buffer) + 1]
        if len(buffer) > self._max_bytes:
            self.too_much = True
            self.ended.set()
        elif fd == 1 and self._work.context.stream.wanted:
            lines, newline, self._partial_line = (self._partial_line + data).rpartition(b"\n")
            self._stream(lines + newline)
        if time.monotonic() - self._last_heartbeat >= _HEARTBEAT_INTERVAL:
            self._last_heartbeat = time.monotonic()
            self._work.context.heartbeat({"stdout": len(self._buffers[1]), "stderr": len(self._buffers[2])})

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Stream the last line, which may lack a line break."""
        if fd == 1:
            self._stream(self._partial_line)

    def _stream(self, lines: bytes) -> None:
        text = _strip_terminal_codes(lines.decode(errors="replace"))
        self._work.context.stream.text(mask(text, self._secrets))

    def process_exited(self) -> None:
        """Set `exited`; other processes of the group may still hold the pipes."""
        self.exited.set()
        asyncio.get_running_loop().call_soon(self.ended.set)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def text(self, fd: int) -> str:
        """Return the output of a file descriptor."""
        return self._buffers[fd].decode(errors="replace")


async def _terminate(group: int, output: _OutputProtocol, grace: float) -> None:
    """Terminate a process group: by SIGTERM if its leader still runs, then by SIGKILL."""
    if not output.exited.is_set():
        _signal_group(group, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await output.exited.wait()
    else:
        with contextlib.suppress(TimeoutError):  # the last output may still be in the pipe
            async with asyncio.timeout(_DRAIN_TIMEOUT):
                await output.closed.wait()
    _signal_group(group, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    await output.exited.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            await output.closed.wait()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(group, number)
        else:
            os.killpg(group, number)


def _last_line(*texts: str) -> str:
    """Return the last line of the texts, as the end of a message."""
    lines = [line for text in texts for line in _strip_terminal_codes(text).strip().splitlines()]
    return f": {single_line(lines[-1])[:_MAX_REASON_LENGTH]}" if lines else ""


def _strip_terminal_codes(text: str) -> str:
    """Remove terminal codes, byte order marks and carriage returns."""
    return _TERMINAL.sub("", text).removeprefix("\ufeff").replace("\r\n", "\n")


def _last_block(text: str) -> str | None:
    """Return the content of the last closed code fence, found in one pass."""
    block = opening = None
    for fence in _CODE_FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif not fence["language"]:
            block, opening = text[opening.end() + 1 : fence.start()], None
    return block


def _last_object(text: str, member: str) -> str:
    """Return the last JSON object that starts a line, if possible with a member; if one is broken, the rest."""
    last = ""
    for match in list(_OBJECT_START.finditer(text))[: -_MAX_OBJECTS - 1 : -1]:
        start = match.start()
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            return last or text[start:].strip()
        rest = text[end:].lstrip(" \t")
        candidate = text[start : end if rest.startswith("\n") else len(text)].strip()
        if member in value:
            return candidate
        last = last or candidate
    return last


async def _export_files(work: AgentWork, folder: Path) -> dict[str, str]:
    """Write what the handoff names into files, and return the variable with their folder."""
    if not work.readable:
        return {}
    texts = {id: await work.context.readable_text(id) for id in sorted(work.readable)}
    await asyncio.to_thread(_write_files, texts, folder)
    work.context.session.internal_note(f"files: {', '.join(texts)}"[:_MAX_NOTE_LENGTH])
    return {FILES: str(folder)}


def _write_files(texts: Mapping[str, str | None], folder: Path) -> None:
    """Write texts and an index into a new folder. An agent chose the ids, so they are not used as file names."""
    folder.mkdir()
    index: list[dict[str, Any]] = []
    for number, (id, text) in enumerate(texts.items(), start=1):
        if text is None:
            index.append({"id": id, "error": "it is not text, or is not in this worker's store"})
            continue
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
        index.append({"id": id, "file": f"{number}.txt", "characters": len(text)})
    (folder / "index.json").write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")
