"""`baton approve` and `baton deny`, and the same questions at the terminal of `baton.run`."""

import asyncio
import contextlib
import json
import os
import shlex
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import JsonValue
from rich.console import Console, RenderableType
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError

from baton import StepKind
from baton.cli.inbox_pages import cost_rows, entry_rows
from baton.cli.options import ExitCode, OptionGroup
from baton.cli.output import block, format_time, plain, printable, stack
from baton.cli.session import (
    AllOption,
    LimitOption,
    OptionalRunArgument,
    PipelineOption,
    Session,
    Target,
    WhoOption,
    WhyOption,
    YesOption,
    command,
    current_user,
    parse_selection,
    resolve_user,
)
from baton.cli.show import approval_rows, baton_card, form_fields
from baton.cli.watch import news_lines
from baton.client import (
    Decide,
    DecidePreview,
    HandoffAction,
    Question,
    RunRecord,
    Settled,
    StepStatus,
    follow,
)
from baton.client.faces import (
    APPROVE,
    DENY,
    AnyBaton,
    ArtifactStore,
    Decided,
    InboxFilter,
    QuestionKind,
    cost_of,
    decide_several,
    decision_commands,
    inbox_page,
    server_now,
)
from baton.errors import ArtifactError, BatonError, PipelineError
from baton.keys.store_keyring import read_file
from baton.keys.store_keys import Key
from baton.wire.json_values import digest
from baton.wire.text import quantity

ApprovalArgument = Annotated[
    str | None, typer.Argument(metavar="APPROVAL", help="Its title; by default the only one that is open.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A field of the answer that an approval asks for; JSON or text."),
]
_MAX_CONTENT = 64 * 1024
_EXCERPT_LENGTH = 4_000  # characters of an artifact
_JSON_KINDS = {"array": 'a list as JSON, ["…"]', "object": 'JSON, {"…": "…"}'}


@dataclass(frozen=True)
class Decision(OptionGroup):
    """The options of a decision."""

    why: WhyOption = ""
    who: WhoOption = None
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            dir_okay=False,
            envvar="BATON_DECIDER_KEY",
            help="The key that signs the decision, as `baton keys decider` makes it.",
        ),
    ] = None
    yes: YesOption = False

    def author(self) -> tuple[str, Key | None]:
        """Return who decides, and the key; refuse a missing reason, and a name that cannot be recorded."""
        if not self.why.strip():
            raise typer.BadParameter("say why; the reason stays on record", param_hint="--why")
        signer = read_file(self.key) if self.key else None
        return resolve_user(self.who or (signer.owner if signer else None)), signer.keys[0] if signer else None


TitleOption = Annotated[
    str | None, typer.Option("--title", metavar="TITLE", help="With --all: only approvals of this title.")
]


@command
async def approve(
    session: Session,
    run: OptionalRunArgument = None,
    approval: ApprovalArgument = None,
    fields: SetOption = None,
    select_all: AllOption = False,
    title: TitleOption = None,
    pipeline: PipelineOption = None,
    limit: LimitOption = 100,
    *,
    decision: Decision,
) -> None:
    """Approve what a run asks for.

    Shows what is being approved and asks for confirmation; without a terminal, --yes is required. The decision
    counts only for what was shown: if that changes before the decision arrives, the decision is refused. If the
    approval asks for an answer, give its fields with --set, or at the prompts of a terminal. With --all, all that
    the options select are shown and decided after one question, each by itself.
    """
    selected = parse_selection(run, select_all)
    if selected is None:
        await _decide_all(session, APPROVE, decision, InboxFilter(pipeline, title=title), limit, fields or [])
    else:
        _refuse_selection(title, pipeline)
        await _decide(session, selected, approval, APPROVE, decision, fields or [])


@command
async def deny(
    session: Session,
    run: OptionalRunArgument = None,
    approval: ApprovalArgument = None,
    select_all: AllOption = False,
    title: TitleOption = None,
    pipeline: PipelineOption = None,
    limit: LimitOption = 100,
    *,
    decision: Decision,
) -> None:
    """Deny what a run asks for.

    Shows what is being denied and asks for confirmation; without a terminal, --yes is required. The run fails
    unless the pipeline handles a denial. With --all, as `baton approve`.
    """
    selected = parse_selection(run, select_all)
    if selected is None:
        await _decide_all(session, DENY, decision, InboxFilter(pipeline, title=title), limit)
    else:
        _refuse_selection(title, pipeline)
        await _decide(session, selected, approval, DENY, decision)


def _refuse_selection(title: str | None, pipeline: str | None) -> None:
    if title or pipeline:
        raise typer.BadParameter("--title and --pipeline select among --all", param_hint="--all")


async def _decide_all(
    session: Session,
    choice: str,
    decision: Decision,
    wanted: InboxFilter,
    limit: int,
    fields: Sequence[str] = (),
) -> None:
    """Show the approvals that are selected, ask for confirmation once, and decide each as it was shown."""
    by, key = decision.author()
    client = await session.client()
    operations: list[tuple[Decide, str | None]] = []
    questions: list[tuple[str, Question]] = []
    with session.progress("reading the runs"):
        found = await inbox_page(client, replace(wanted, kind=QuestionKind.APPROVAL), limit=limit)
        for entry in found.entries:
            asked = entry.question
            operation = Decide(
                client, entry.workflow_id, choice, asked.id if asked else None, key=key, run_id=entry.run_id
            )
            with contextlib.suppress(PipelineError, RPCError):  # decided meanwhile, paused or ended
                preview = await operation.preview()
                if preview.open is not None:
                    operations.append((operation, preview.mark))
                    questions.append((entry.workflow_id, preview.open))
    if not questions:
        raise PipelineError("no open approval is like this; `baton inbox --kind approval` lists all")
    if any(question.forms != questions[0][1].forms for _, question in questions) and choice == APPROVE:
        titles = ", ".join(sorted({question.title for _, question in questions}))
        raise typer.BadParameter(f"these ask for different answers: {titles}; select by --title", param_hint="--all")
    if not session.json:
        now = await server_now(client)
        for workflow_id, question in questions:
            session.err.print(stack(*entry_rows(workflow_id, question.excerpt, now)))
    answer = await _read_answer(session, questions[0][1], fields) if choice == APPROVE else None
    session.confirm(f"{choice} {quantity(len(questions), 'approval')}?", yes=decision.yes)
    with session.progress("deciding"):
        shown = [(replace(operation, data=answer), mark) for operation, mark in operations]
        decided = await decide_several(shown, by=by, why=decision.why)
    report_several(session, decided, "approval", choice)


def report_several(session: Session, decided: Sequence[Decided], noun: str, verb: str) -> None:
    """Print what became of several decisions; one that does not count, or is left, ends the command."""
    if session.json:
        session.write_json(decided)
    else:
        count = quantity(sum(made.outcome == "decided" for made in decided), noun)
        session.show(plain(f"{count} decided: {verb}", "green"))
        for made in decided:
            if made.missing:
                session.show(plain(f"{made.workflow_id}: counted, {made.missing} more must agree", "yellow"))
    open_still = [made for made in decided if made.outcome in ("left", "refused")]
    for made in open_still:
        session.say(f"{made.workflow_id}: {made.refused or left_note(made.workflow_id)}", "red")
    if open_still:
        raise typer.Exit(ExitCode.FAILURE)


async def _decide(
    session: Session, target: Target, approval: str | None, choice: str, decision: Decision, fields: Sequence[str] = ()
) -> None:
    by, key = decision.author()
    client = await session.client()
    operation = Decide(client, target.workflow_id, choice, approval, key=key, run_id=target.run_id)
    with session.progress("reading the run"):
        preview = await operation.preview()
    question = shown_question(preview)
    if not session.json:
        session.err.print(await approval_card(session.artifacts, target, preview))
    answer = await _read_answer(session, question, fields) if choice == APPROVE else None
    session.confirm(f"{choice} {question.title!r}?", yes=decision.yes, otherwise=operation.nothing_done)
    operation = replace(operation.pinned_to(preview), data=answer)
    with session.progress("deciding"):
        result = await operation.commit(preview.mark, by=by, why=decision.why)
    report(session, operation, result, by, decision.why)


def report(session: Session, operation: Decide, settled: Settled | None, by: str, why: str, **more: JsonValue) -> None:
    """Print how a question was answered, in JSON with more; an answer that no worker took up ends the command."""
    if settled is None:
        if session.json:
            sent = {"question": operation.question, "choice": operation.choice, "who": by, "why": why}
            session.write_json({"workflow_id": operation.workflow_id, "left": True, **sent})
        session.note(left_note(operation.workflow_id))
        raise typer.Exit(ExitCode.UNVERIFIED)
    if session.json:
        session.write_json({"workflow_id": operation.workflow_id, **settled.to_json_object(), **more})
    else:
        session.show(render_outcome(settled))


async def _read_answer(session: Session, waiting: Question, set_options: Sequence[str]) -> dict[str, Any] | None:
    """Return the answer of an approval from the options, and at a terminal from prompts."""
    fields = form_fields(waiting)
    if waiting.form is None and set_options:
        raise typer.BadParameter(f"approval {waiting.title!r} asks for no answer", param_hint="--set")
    answer: dict[str, Any] = {}
    for option in set_options:
        name, equals, text = option.partition("=")
        if not equals or name in answer or name not in fields:
            expected = ", ".join(fields) or "none"
            raise typer.BadParameter(
                f"{option!r}: give each of these fields once, as NAME=VALUE: {expected}", param_hint="--set"
            )
        answer[name] = _parse_value(fields[name], text)

    async def ask(question: str) -> str:
        if session.json or not (sys.stdin.isatty() and session.err.is_terminal):
            missing = ", ".join(_missing_fields(waiting, answer))
            raise typer.BadParameter(f"the answer lacks {missing}; give each as NAME=VALUE", param_hint="--set")
        text: str = typer.prompt(question, err=True)
        return text

    return await fill_form(waiting, answer, ask)


async def fill_form(
    waiting: Question, values: dict[str, Any], ask: Callable[[str], Awaitable[str]]
) -> dict[str, Any] | None:
    """Return an approval's answer, asking for missing required fields; None if the approval has no form."""
    if waiting.form is None:
        return None
    earlier_answer = waiting.leading.data if waiting.leading and not values else None
    if isinstance(earlier_answer, dict):
        return earlier_answer  # with which a quorum agrees by default; it was shown
    fields, answer = form_fields(waiting), dict(values)
    for name in _missing_fields(waiting, values):
        kind = (
            _JSON_KINDS.get(str(fields[name].get("type")))
            or fields[name].get("type")
            or " or ".join(map(str, fields[name].get("enum", [])))
            or "JSON"
        )
        answer[name] = _parse_value(fields[name], await ask(printable(f"{name} ({kind})")))
    return answer


def _missing_fields(waiting: Question, values: dict[str, Any]) -> list[str]:
    fields = form_fields(waiting)
    return [name for name in (waiting.form or {}).get("required") or [] if name in fields and name not in values]


def _parse_value(schema: dict[str, Any], text: str) -> Any:
    """Return the value of a field: text if the form says so or if it is not JSON."""
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def shown_question(preview: DecidePreview) -> Question:
    """Return the question of a preview that names no decided one: it is open."""
    if preview.open is None:
        raise PipelineError(preview.title)
    return preview.open


async def approval_card(store: ArtifactStore | None, target: Target, preview: DecidePreview) -> RenderableType:
    """Return an open approval for a terminal: baton first, question last."""
    waiting, baton = shown_question(preview), preview.run.baton.to_json_object()
    return stack(
        baton_card(AnyBaton.model_validate(baton)),
        "",
        Text.assemble(plain(target.workflow_id, "bold cyan"), " asks: ", plain(waiting.title, "bold yellow")),
        *approval_rows(target.workflow_id, await _with_contents(store, waiting)),
        *cost_rows(cost_of(preview.run, waiting).clauses),
        plain(f"  step {waiting.seq}, since {format_time(waiting.since)}, until {format_time(waiting.until)}", "dim"),
        plain(f"  baton {digest(baton)[:19]}…", "dim"),
    )


async def _with_contents(store: ArtifactStore | None, waiting: Question) -> Question:
    """Return an approval with the texts of the artifacts that it shows, if the store has them."""
    shows = []
    for shown in (exhibit.excerpt for exhibit in waiting.shows):
        ref = shown.artifact
        if store is not None and ref is not None and (ref.size or 0) <= _MAX_CONTENT:
            with contextlib.suppress(ArtifactError, UnicodeDecodeError, OSError):
                content = (await store.get(ref.hash)).decode()[:_EXCERPT_LENGTH]
                shown = shown.model_copy(update={"text": f"{shown.text}\n\n{content}"})
        shows.append(shown)
    return waiting.model_copy(update={"shows": shows})


def left_note(workflow_id: str) -> str:
    """Return what became of a decision that no worker answered in time."""
    return (
        "sent, but no worker has answered yet: the server holds the decision, and it counts once a worker whose code "
        "fits takes it up, if nothing has changed until then. "
        f"baton show {shlex.quote(workflow_id)} says whether it did, and what the run waits for"
    )


def render_outcome(result: Settled) -> Text:
    """Return how a question was answered, for a terminal."""
    verb, style = result.verb, "red" if result.choice in (DENY, HandoffAction.ABANDON) else "green"
    more = f"{result.missing} more must {'agree' if result.handoff_id else 'approve'}"
    remaining = f"; {more}" if result.missing else ""
    why = f": {result.why}" if result.why else ""
    by = plain(f" by {result.who} at {format_time(result.at)}{remaining}{why}")
    return Text.assemble((verb, style), " ", plain(result.title, "bold"), by)


if sys.platform != "win32":
    import termios

_MAX_LINE = 64 * 1024


@dataclass
class LiveView:
    """Prints a run's news line by line, and asks about open approvals; lines wait while a person answers."""

    client: Client
    console: Console
    store: ArtifactStore | None = None
    asks: bool = False
    _pending_lines: list[Text] = field(default_factory=list)
    _open_titles: dict[tuple[str, int], str] = field(default_factory=dict)  # of open approvals, by run and step
    _approvals: dict[str, Question] = field(default_factory=dict)  # the open ones, by title
    _asked_steps: list[tuple[str, int]] = field(default_factory=list)
    _asking: asyncio.Task[None] | None = None
    _is_sent: bool = False

    async def show(self, workflow_id: str) -> None:
        """Print the news until the run has ended."""
        try:
            async for update in follow(self.client, workflow_id):
                if update.run is not None:
                    for line in news_lines(update.news, update.run):
                        self._write(line)
                    if self.asks:
                        await self._update_questions(update.run)
        finally:
            await self._withdraw()

    async def _update_questions(self, run: RunRecord) -> None:
        """Ask about open approvals; stop asking about decided ones."""
        self._open_titles = {
            (run.run_id, step.seq): step.name
            for step in run.steps
            if step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING
        }
        self._approvals = {approval.title: approval for approval in run.approvals}
        if self._is_asking and self._asked_steps[-1] not in self._open_titles:
            if not self._is_sent:
                self._remark("\ndecided elsewhere")
            await self._withdraw()
        if not self._is_asking:
            self._asking = asyncio.create_task(self._ask(run.workflow_id))

    @property
    def _is_asking(self) -> bool:
        return self._asking is not None and not self._asking.done()

    async def _withdraw(self) -> None:
        """Stop asking; if a decision was sent, await its answer."""
        if self._asking is not None:
            if not self._is_sent:
                self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking
            self._flush()

    def _write(self, line: Text) -> None:
        if self._is_asking:
            self._pending_lines.append(line)
        else:
            self.console.print(line, soft_wrap=True)

    def _flush(self) -> None:
        while self._pending_lines:
            self.console.print(self._pending_lines.pop(0), soft_wrap=True)

    async def _ask(self, workflow_id: str) -> None:
        """Ask a person about each open approval, until a decision counts or they leave it open."""
        target = Target(workflow_id, None)
        while unasked := [key for key in self._open_titles if key not in self._asked_steps]:
            self._asked_steps.append(unasked[0])
            title = self._open_titles[unasked[0]]
            try:
                while not await self._try_to_decide(target, title):
                    pass
            except EOFError:
                command_line, _ = decision_commands(workflow_id, title, self._approvals.get(title))
                self._remark(f"\nleft open; decide later: {command_line}")
            except BatonError as error:  # it is no longer open
                self._remark(str(error))
            self._flush()

    async def _try_to_decide(self, target: Target, title: str) -> bool:
        """Show an approval, ask, and decide; return False if the decision was refused."""
        operation = Decide(self.client, target.workflow_id, APPROVE, title)
        preview = await operation.preview()
        waiting = shown_question(preview)
        self.console.print(await approval_card(self.store, target, preview))
        if waiting.proof:
            raise EOFError  # it needs a key
        approved = (
            await self._prompt(f"approve {title!r}? [y/n, Ctrl-D leaves it open]", "y", "yes", "n", "no")
        ).startswith("y")
        answer = await fill_form(waiting, {}, self._prompt) if approved else None
        why = await self._prompt("why")
        operation = replace(operation.pinned_to(preview), choice=APPROVE if approved else DENY, data=answer)
        self._is_sent = True
        try:
            result = await operation.commit(preview.mark, by=current_user(), why=why)
        except BatonError as error:
            self._remark(str(error))
            return False
        finally:
            self._is_sent = False
        if result is None:
            self._remark(left_note(target.workflow_id))
        else:
            self.console.print(render_outcome(result))
        return True

    def _remark(self, text: str) -> None:
        self.console.print(block(text, "yellow"), soft_wrap=True)

    async def _prompt(self, question: str, *choices: str) -> str:
        """Return a non-empty line from the person, one of the choices if there are any.

        The event loop reads the terminal, so the run continues meanwhile. Input typed before the question is dropped.
        """
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        while True:
            self.console.print(plain(f"{question}: "), end="", soft_wrap=True)
            text = (await _read_line()).strip()
            if text and (not choices or text.lower() in choices):
                return text.lower() if choices else text


def can_ask() -> bool:
    """Return whether this is the main thread of a foreground process at a terminal."""
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
    except OSError:  # a terminal without job control
        return True


async def _read_line() -> str:
    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    line = os.read(fd, _MAX_LINE)
    if not line:
        raise EOFError
    return line.decode(errors="replace")
