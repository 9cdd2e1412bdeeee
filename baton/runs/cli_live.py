"""The live view of a run that this process works on: its news as lines, and its approvals asked at the terminal."""

import asyncio
import contextlib
import os
import shlex
import sys
import threading
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text
from temporalio.client import Client

from baton.artifacts.store import ArtifactStore
from baton.cli.output import block, plain
from baton.cli.session import user
from baton.cli.targets import Target
from baton.client import RunRecord, StepStatus, decide
from baton.core.history import StepKind
from baton.errors import BatonError
from baton.runs.cli_decide import asked_card, asked_now, filled_in, outcome
from baton.runs.cli_pages import news_lines
from baton.runs.client_answering import answer_of
from baton.runs.client_follow import follow

if sys.platform != "win32":
    import termios

_MOST_TYPED = 64 * 1024


@dataclass
class LiveView:
    """What happens in a run, line by line; while a person is asked, further lines wait for the answer.

    Attributes:
        client: A connected client.
        console: Where it is written.
        store: Where the artifacts are that an approval shows.
        asks: Whether to ask for approvals here (`can_ask`). Otherwise the lines name the command that decides.
    """

    client: Client
    console: Console
    store: ArtifactStore | None = None
    asks: bool = False
    _held: list[Text] = field(default_factory=list)
    _open: dict[tuple[str, int], str] = field(default_factory=dict)  # what is open now: run, step, and title
    _asked: list[tuple[str, int]] = field(default_factory=list)
    _asking: asyncio.Task[None] | None = None
    _is_sent: bool = False

    async def show(self, workflow_id: str) -> None:
        """Write what happens until the run has ended."""
        try:
            async for update in follow(self.client, workflow_id):
                if update.run is not None:
                    for line in news_lines(update.news, update.run):
                        self._write(line)
                    if self.asks:
                        await self._look(update.run)
        finally:
            await self._withdraw()

    async def _look(self, run: RunRecord) -> None:
        """Ask what is open and was not asked; stop asking what is decided."""
        self._open = {
            (run.run_id, step.seq): step.name
            for step in run.steps
            if step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING
        }
        if self._is_asking and self._asked[-1] not in self._open:
            if not self._is_sent:
                self._say("\ndecided elsewhere")
            await self._withdraw()
        if not self._is_asking:
            self._asking = asyncio.create_task(self._ask(run.workflow_id))

    @property
    def _is_asking(self) -> bool:
        return self._asking is not None and not self._asking.done()

    async def _withdraw(self) -> None:
        """Stop asking; a decision that was sent is still answered."""
        if self._asking is not None:
            if not self._is_sent:
                self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking
            self._release()

    def _write(self, line: Text) -> None:
        """Write a line, or keep it while a person is asked."""
        if self._is_asking:
            self._held.append(line)
        else:
            self.console.print(line, soft_wrap=True)

    def _release(self) -> None:
        """Write the lines that were kept."""
        while self._held:
            self.console.print(self._held.pop(0), soft_wrap=True)

    async def _ask(self, workflow_id: str) -> None:
        """Ask a person each thing that is open, until a decision counts or they leave it open."""
        target = Target(workflow_id, None)
        while new := [one for one in self._open if one not in self._asked]:
            self._asked.append(new[0])
            title = self._open[new[0]]
            try:
                while not await self._is_decided(target, title):
                    pass
            except EOFError:
                run, named = shlex.quote(workflow_id), shlex.quote(title)
                self._say(f"\nleft open; decide later: baton approve {run} {named} --why '…'")
            except BatonError as error:  # it cannot be asked any more
                self._say(str(error))
            self._release()

    async def _is_decided(self, target: Target, title: str) -> bool:
        """Show what is asked, ask, and decide; return False if the decision was refused, so that it is asked again."""
        asked = await answer_of(self.client, target.workflow_id, asked_now(self.client, target, title))
        self.console.print(await asked_card(self.store, target, asked))
        if asked.waiting.proof:
            raise EOFError  # it needs a key
        approved = (
            await self._typed(f"approve {title!r}? [y/n, Ctrl-D leaves it open]", "y", "yes", "n", "no")
        ).startswith("y")
        answer = await filled_in(asked.waiting, {}, self._typed) if approved else None
        why = await self._typed("why")
        decision = asked.decision(approved=approved, who=user(), why=why, answer=answer)
        self._is_sent = True
        try:
            decided = await answer_of(
                self.client, target.workflow_id, decide(self.client, target.workflow_id, decision)
            )
        except BatonError as error:
            self._say(str(error))
            return False
        finally:
            self._is_sent = False
        self.console.print(outcome(decided))
        return True

    def _say(self, text: str) -> None:
        """Write a remark below a question."""
        self.console.print(block(text, "yellow"), soft_wrap=True)

    async def _typed(self, question: str, *choices: str) -> str:
        """Return what a person types: something, and one of the choices if there are any.

        The terminal is read by the event loop, which goes on working on the run meanwhile. What was typed before the
        question stood there does not answer it.

        Raises:
            EOFError: They end the input (Ctrl-D).
        """
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        while True:
            self.console.print(plain(f"{question}: "), end="", soft_wrap=True)
            text = (await _line()).strip()
            if text and (not choices or text.lower() in choices):
                return text.lower() if choices else text


def can_ask() -> bool:
    """Return whether a person can be asked here: at a terminal, in the foreground, by the main thread."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return False
    try:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        fd = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError):  # closed, or not a file, as in a notebook
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # it controls no jobs
        return True


async def _line() -> str:
    """Return the next line that is typed."""
    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    typed = os.read(fd, _MOST_TYPED)
    if not typed:
        raise EOFError
    return typed.decode(errors="replace")
