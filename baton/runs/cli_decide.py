"""`baton approve` and `baton deny`, and the same questions asked at the terminal of a run that works here."""

import asyncio
import contextlib
import json
import os
import shlex
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text
from temporalio.client import Client

from baton.artifacts.store import ArtifactStore
from baton.cli.output import block, format_time, plain, printable, stack
from baton.cli.session import (
    RunArgument,
    Session,
    Target,
    WhoOption,
    WhyOption,
    YesOption,
    command,
    current_user,
    resolve_user,
)
from baton.client import OpenApproval, RunRecord, StepStatus, decide, open_approvals_of
from baton.core.baton import AnyBaton
from baton.core.exhibits import EXCERPT_LENGTH
from baton.core.history import StepKind
from baton.core.messages import Decided, Waiting
from baton.errors import ArtifactError, BatonError, PipelineError
from baton.keys.store_keyring import read_file
from baton.runs.cli_show import asked_rows, baton_card, form_fields
from baton.runs.cli_watch import news_lines
from baton.runs.client_follow import follow
from baton.runs.client_waiting import answer_of, must_be_answerable
from baton.wire.json_values import digest

ApprovalArgument = Annotated[
    str | None, typer.Argument(metavar="APPROVAL", help="Its title; by default the only one that is open.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A field of the form that a yes fills in; JSON or text."),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        dir_okay=False,
        envvar="BATON_DECIDER_KEY",
        help="The key that signs the decision, as `baton keys decider` makes it.",
    ),
]
_MOST_CONTENT = 64 * 1024


@dataclass(frozen=True)
class _Word:
    """What a person says on the command line."""

    approved: bool
    why: str
    who: str | None
    key: Path | None
    fields: list[str]
    yes: bool


@command
async def approve(
    session: Session,
    run: RunArgument,
    approval: ApprovalArgument = None,
    why: WhyOption = "",
    who: WhoOption = None,
    fields: SetOption = None,
    key: KeyOption = None,
    yes: YesOption = False,
) -> None:
    """Approve what a run asks for.

    Shows what is being approved and asks for confirmation; without a terminal, --yes is required. The decision
    counts only for what was shown: if that changes before the decision arrives, the decision is refused. Where the
    approval asks for an answer, give its fields with --set, or at the prompts of a terminal.
    """
    await _decide(session, run, approval, _Word(True, why, who, key, fields or [], yes))


@command
async def deny(
    session: Session,
    run: RunArgument,
    approval: ApprovalArgument = None,
    why: WhyOption = "",
    who: WhoOption = None,
    key: KeyOption = None,
    yes: YesOption = False,
) -> None:
    """Deny what a run asks for.

    Shows what is being denied and asks for confirmation; without a terminal, --yes is required. The run fails
    unless the pipeline handles a denial.
    """
    await _decide(session, run, approval, _Word(False, why, who, key, [], yes))


async def _decide(session: Session, run: str, approval: str | None, word: _Word) -> None:
    """Show what is asked, and decide."""
    target = Target.of(run)
    if not word.why.strip():
        raise typer.BadParameter("say why; the reason stays in the run's history", param_hint="--why")
    signer = read_file(word.key) if word.key else None
    by = resolve_user(word.who or (signer.owner if signer else None))
    client = await session.client()
    with session.progress("asking the run"):
        asked = await answer_of(client, target.workflow_id, asked_now(client, target, approval))
    title = asked.waiting.name
    if not session.json:
        session.err.print(await asked_card(session.parts.artifacts, target, asked))
    answer = await _filled(session, asked.waiting, word.fields) if word.approved else None
    session.confirm(f"{'approve' if word.approved else 'deny'} {title!r}?", yes=word.yes)
    decision = asked.decision(approved=word.approved, who=by, why=word.why, answer=answer)
    with session.progress("deciding"):
        deciding = decide(client, target.workflow_id, decision, key=signer.keys[0] if signer else None)
        decided = await answer_of(client, target.workflow_id, deciding)
    if session.json:
        session.write_json({"workflow_id": target.workflow_id, **decided.model_dump(mode="json")})
        return
    session.show(outcome(decided))


async def _filled(session: Session, asked: Waiting, given: list[str]) -> dict[str, Any] | None:
    """Return the form that a yes fills in: what was given, and at a terminal what is asked for."""
    fields = form_fields(asked)
    if asked.answer is None and given:
        raise typer.BadParameter(f"approval {asked.name!r} asks for no answer", param_hint="--set")
    answer: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or name in answer or name not in fields:
            expected = ", ".join(fields) or "none"
            raise typer.BadParameter(f"{one!r}: give NAME=VALUE, once, of: {expected}", param_hint="--set")
        answer[name] = _value(fields[name], text)

    async def ask(question: str) -> str:
        if session.json or not (sys.stdin.isatty() and session.err.is_terminal):
            lacks = ", ".join(_missing(asked, answer))
            raise typer.BadParameter(f"the answer lacks {lacks}; give NAME=VALUE of each", param_hint="--set")
        text: str = typer.prompt(question, err=True)
        return text

    return await filled_in(asked, answer, ask)


async def filled_in(
    asked: Waiting, given: dict[str, Any], ask: Callable[[str], Awaitable[str]]
) -> dict[str, Any] | None:
    """Return the form that a yes fills in, each required field that was not given asked for; None without a form."""
    if asked.answer is None:
        return None
    earlier = asked.votes[0].answer if asked.votes and not given else None
    if isinstance(earlier, dict):
        return earlier  # it was shown; a quorum agrees on one answer
    fields, answer = form_fields(asked), dict(given)
    for name in _missing(asked, given):
        kind = fields[name].get("type") or " or ".join(map(str, fields[name].get("enum", []))) or "JSON"
        answer[name] = _value(fields[name], await ask(printable(f"{name} ({kind})")))
    return answer


def _missing(asked: Waiting, given: dict[str, Any]) -> list[str]:
    """Return the required fields of a form that were not given."""
    fields = form_fields(asked)
    return [name for name in (asked.answer or {}).get("required") or [] if name in fields and name not in given]


def _value(schema: dict[str, Any], text: str) -> Any:
    """Return the value of a field: text where the form says so, JSON where it is that, else text."""
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def asked_now(client: Client, target: Target, approval: str | None) -> OpenApproval:
    """Return the approval that is meant, and the baton as it is now."""
    await must_be_answerable(client, target.workflow_id, target.run_id)
    open_now = await open_approvals_of(client, target.workflow_id, whole=False)
    titles = ", ".join(repr(one.waiting.name) for one in open_now) or "none"
    found = [one for one in open_now if approval in (None, one.waiting.name)]
    if not found:
        what = f"no approval {approval!r}" if approval else "no approval"
        raise PipelineError(f"{target.workflow_id!r} has {what} open now; open: {titles}")
    if len(found) > 1:
        raise typer.BadParameter(f"several approvals are open, name one: {titles}", param_hint="APPROVAL")
    return found[0]


async def asked_card(store: ArtifactStore | None, target: Target, asked: OpenApproval) -> RenderableType:
    """Return what is asked, in the order in which one reads it: baton first, question last."""
    waiting = asked.waiting
    until = f", until {format_time(waiting.until)}" if waiting.until else ""
    return stack(
        baton_card(AnyBaton.model_validate(asked.baton)),
        "",
        Text.assemble(plain(target.workflow_id, "bold cyan"), " asks: ", plain(waiting.name, "bold yellow")),
        *asked_rows(target.workflow_id, await _with_contents(store, waiting)),
        plain(f"  step {waiting.seq}, since {format_time(waiting.since)}{until}", "dim"),
        plain(f"  baton {digest(asked.baton)[:19]}…", "dim"),
    )


async def _with_contents(store: ArtifactStore | None, asked: Waiting) -> Waiting:
    """Return what is asked with the texts of the artifacts that it shows, where the store has them."""
    shows = []
    for one in asked.shows:
        ref = one.artifact
        if store is not None and ref is not None and (ref.size or 0) <= _MOST_CONTENT:
            with contextlib.suppress(ArtifactError, UnicodeDecodeError, OSError):
                content = (await store.get(ref.hash)).decode()[:EXCERPT_LENGTH]
                one = one.model_copy(update={"text": f"{one.text}\n\n{content}"})
        shows.append(one)
    return asked.model_copy(update={"shows": shows})


def outcome(decided: Decided) -> Text:
    """Return how the approval ended."""
    verb, style = ("approved", "green") if decided.approved else ("denied", "red")
    left = f"; {decided.missing} more must approve" if decided.missing else ""
    why = f"{left}: {decided.why}" if decided.why else left
    by = plain(f" by {decided.who} at {format_time(decided.at)}{why}")
    return Text.assemble((verb, style), " ", plain(decided.approval, "bold"), by)


if sys.platform != "win32":
    import termios

_MOST_TYPED = 64 * 1024


@dataclass
class LiveView:
    """What happens in a run, line by line; while a person is asked, further lines wait for the answer."""

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
        decision = asked.decision(approved=approved, who=current_user(), why=why, answer=answer)
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

        The terminal is read by the event loop, which keeps working on the run meanwhile. What was typed before the
        question stood there does not answer it.
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
