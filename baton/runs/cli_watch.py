"""`baton watch`: a run while it happens, as lines of news or as a page that keeps itself up to date."""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError

from baton.cli.output import FoldedPage, format_time, json_text, make_table, plain
from baton.cli.session import RunArgument, Session, Target, command
from baton.client import RunRecord, RunStatus, Step, StepStatus
from baton.core.history import HistoryEntry, StepKind
from baton.runs.cli_history import change_lines
from baton.runs.cli_show import glyph, heading, repair_hints, verdict, waits_card
from baton.runs.client_changes import Before, changes, remarks, with_before
from baton.runs.client_follow import Cursor, Followed, follow
from baton.runs.client_news import News, NewsKind
from baton.runs.client_standing import lacks, suspended
from baton.runs.client_waiting import Waits, waits
from baton.wire.text import elapsed, format_duration

_REFRESH_PER_SECOND = 4


@command
async def watch(
    session: Session,
    run: RunArgument,
    cursor: Annotated[
        str | None,
        typer.Option("--from", metavar="CURSOR", help="Resume after the line of --json that has this cursor."),
    ] = None,
) -> None:
    """Follow a run while it happens, to its end.

    On a terminal it is a page that keeps itself up to date, otherwise a line for each thing that happens. It
    waits for a server that restarts, and follows the newer run after a roll-back or a continue-as-new. At the end it
    prints the run's output.

    With --json each line is an object; to resume where it was interrupted, give the last line's `cursor` to --from.
    The exit code is 1 if the run does not complete.
    """
    try:
        since = Cursor.parse(cursor) if cursor else None
    except ValueError as error:
        raise typer.BadParameter(f"{cursor!r} is not the `cursor` of a line of --json", param_hint="--from") from error
    client = await session.client()
    await follow_to_the_end(session, client, Target.of(run), since)


async def follow_to_the_end(session: Session, client: Client, target: Target, since: Cursor | None = None) -> None:
    """Follow a run to its end, in the form that suits the output."""
    updates = follow(client, target.workflow_id, target.run_id, cursor=since)
    if session.json:
        last = await _as_json(session, updates)
    elif session.out.is_terminal:
        last = await _as_page(session, client, updates)
    else:
        last = await _as_lines(session, updates)
    if last is None or last.status is not RunStatus.COMPLETED:
        raise typer.Exit(1)
    output = last.result.output if last.result else None
    if output is not None and not session.json:
        session.show("", plain(output if isinstance(output, str) else json_text(output, lines=True)))


async def _as_json(session: Session, updates: AsyncIterator[Followed]) -> RunRecord | None:
    """Write an object for each piece of news; those of one moment in one piece, so that none is lost halfway."""
    run: RunRecord | None = None
    async for update in updates:
        run = update.run or run
        if run is not None and update.news:
            place = {"event": run.last_event, "workflow_id": run.workflow_id, "run_id": run.run_id}
            told = zip(update.cursors, update.news, strict=True)
            session.write_json_lines(
                {"cursor": str(at), **place, **one.to_json_object(), **_output(run, one)} for at, one in told
            )
    return run


def _output(run: RunRecord, news: News) -> dict[str, Any]:
    """Return what the run returned, beside the news of its end."""
    return {"output": run.result.output} if run.result and news.kind is NewsKind.RUN_ENDED else {}


async def _as_lines(session: Session, updates: AsyncIterator[Followed]) -> RunRecord | None:
    """Write a line for each piece of news."""
    run: RunRecord | None = None
    is_lost = False
    async for update in updates:
        if update.lost and not is_lost:
            session.note(f"the server is out of reach ({update.lost}); waiting for it")
        is_lost = update.lost is not None
        run = update.run or run
        if run is not None:
            for line in news_lines(update.news, run):
                session.out.print(line, soft_wrap=True)
    return run


async def _as_page(session: Session, client: Client, updates: AsyncIterator[Followed]) -> RunRecord | None:
    """Keep a page up to date, and leave it there, whole, at the end."""
    page = Page(session.out)
    with Live(page, console=session.out, refresh_per_second=_REFRESH_PER_SECOND, transient=True):
        looking = asyncio.create_task(page.look(client))
        try:
            async for update in updates:
                page.take(update)
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
    session.show(page.whole())
    return page.run


_LOOK_EVERY_SECONDS = 2.0
_FEWEST_ROWS = 3
_LINES_SAID = 6
_LONGEST_SHOWN = 80
_NAME_WIDTH = 28

Changes = dict[int, list[tuple[HistoryEntry, Before]]]
"""What each step changed, with the baton before it, by the step's number."""

_SIGNS = {
    NewsKind.RUN_STARTED: ("▶", "bold"),
    NewsKind.RUN_GOES_ON: ("↺", "yellow"),
    NewsKind.RUN_SUSPENDED: ("!", "yellow"),
    NewsKind.WAITS_FOR_WORKER: ("!", "yellow"),
    NewsKind.RUN_ENDED: ("■", "bold"),
    NewsKind.STEP_STARTED: ("●", "cyan"),
    NewsKind.STEP_REFUSED: ("!", "yellow"),
    NewsKind.HANDOFF_WAITS: ("!", "yellow"),
    NewsKind.STEP_DONE: ("✓", "green"),
    NewsKind.STEP_FAILED: ("✗", "bold red"),
    NewsKind.STEP_UNDONE: ("↺", "yellow"),
    NewsKind.TAKEN_OVER: ("↷", "dim"),
    NewsKind.EDITED: ("✎", "yellow"),
    NewsKind.NOTE: ("!", "yellow"),
    NewsKind.TEXT: ("…", "dim"),
    NewsKind.TOOL_CALLED: ("→", "cyan"),
    NewsKind.TOOL_ANSWERED: ("←", "cyan"),
    NewsKind.STREAM_RESTARTED: ("↺", "yellow"),
}


def news_lines(news: Sequence[News], run: RunRecord) -> Iterator[Text]:
    """Yield the lines for news: what happened, and below it what that changed, indented."""
    befores = {id(entry): before for entry, before in with_before(run)} if any(one.entries for one in news) else {}
    for one in news:
        denied = one.kind is NewsKind.STEP_DONE and one.step is not None and one.step.approved is False
        sign, style = _SIGNS[NewsKind.STEP_FAILED if denied else one.kind]
        at = f"{format_time(one.at, datetime.now(UTC))} "
        yield Text.assemble((at, "dim"), (f"{sign} ", style), plain(_said(one, run)))
        for entry in one.entries:
            if entry.kind is not StepKind.BRANCH:
                lines = change_lines([*changes(entry, befores[id(entry)]), *remarks(entry)])
                yield from (Text.assemble(" " * len(at), "  ", line) for line in lines)


def _said(news: News, run: RunRecord) -> str:
    """Return what happened, in words."""
    step = news.step
    name = f"{step.seq} {step.name}" if step else ""
    match news.kind:
        case NewsKind.RUN_STARTED:
            return f"{run.pipeline} {run.workflow_id}: {news.text}"
        case NewsKind.RUN_SUSPENDED:
            return suspended(news.text)
        case NewsKind.WAITS_FOR_WORKER:
            return lacks(news.text)
        case NewsKind.STEP_STARTED if step and step.kind is StepKind.APPROVAL:
            return f"{name}: waits for a decision (baton approve {shlex.quote(run.workflow_id)} --why '…')"
        case NewsKind.STEP_STARTED:
            return f"{name}: begins"
        case NewsKind.STEP_REFUSED:
            return f"{name}: refused, attempt {step.attempts if step else 0} begins: {news.text}"
        case NewsKind.HANDOFF_WAITS:
            why = f": {news.text}" if news.text else ""
            return f"{name}: waits for a person (baton inbox show {shlex.quote(run.workflow_id)}){why}".lstrip(": ")
        case NewsKind.STEP_DONE if step and step.kind is StepKind.APPROVAL:
            decided = news.entries[-1]
            return f"{name}: {verdict(step)} by {decided.by}{f': {decided.why}' if decided.why else ''}"
        case NewsKind.STEP_DONE if step:
            attempts = f", at attempt {step.attempts}" if step.attempts > 1 else ""
            return f"{name}: done in {format_duration(elapsed(step.began, step.ended))}{attempts}"
        case NewsKind.STEP_FAILED:
            return f"{name}: failed: {news.text}" if news.text else f"{name}: the run ended before it did"
        case NewsKind.STEP_UNDONE:
            return f"{name}: undone"
        case NewsKind.TAKEN_OVER:
            return f"taken over: {news.text}"
        case NewsKind.EDITED:
            by = f" by {news.entries[-1].by}" if news.entries[-1].by else ""
            return f"the baton was edited{by}"
        case NewsKind.TEXT:
            return f"{name}: {news.text}"
        case NewsKind.TOOL_CALLED:
            return f"{name}: calls {news.tool} {_short(news.text)}"
        case NewsKind.TOOL_ANSWERED:
            return f"{name}: {news.tool} answered {_short(news.text)}"
        case NewsKind.STREAM_RESTARTED:
            return f"{name}: begins again; what it said before does not count"
        case NewsKind.RUN_ENDED:
            told = (step.failure for step in run.steps if step.status is StepStatus.FAILED and step.failure)
            return next((news.text.removesuffix(f": {why}") for why in told if news.text.endswith(why)), news.text)
        case _:
            return news.text


class Page:
    """The page of a watched run; rich asks it what it looks like several times a second."""

    def __init__(self, console: Console) -> None:
        self.run: RunRecord | None = None
        self._console = console
        self._changes: Changes = {}
        self._waits: Waits | None = None
        self._lost: str | None = None
        self._changed = asyncio.Event()
        self._said: dict[int, str] = {}

    def take(self, update: Followed) -> None:
        """Take over an update."""
        self._lost = update.lost
        if update.run is not None and update.run is not self.run:
            self.run, self._changes = update.run, _by_step(update.run)
        for one in update.news:
            self._hear(one)
        if update.news:
            self._changed.set()

    def _hear(self, news: News) -> None:
        """Keep what a step says, as long as it works."""
        seq = news.step.seq if news.step else 0
        match news.kind:
            case NewsKind.TEXT:
                self._said[seq] = self._said.get(seq, "") + news.text
            case NewsKind.TOOL_CALLED | NewsKind.TOOL_ANSWERED:
                sign, _ = _SIGNS[news.kind]
                self._said[seq] = f"{self._said.get(seq, '')}\n{sign} {news.tool} {_short(news.text)}\n"
            case NewsKind.STEP_DONE | NewsKind.STEP_FAILED | NewsKind.STEP_REFUSED | NewsKind.STREAM_RESTARTED:
                self._said.pop(seq, None)

    async def look(self, client: Client) -> None:
        """Keep asking the server what the run waits for: failed tries of a stage are not in its history."""
        while True:
            if self.run is not None:
                with contextlib.suppress(RPCError):
                    self._waits = await waits(client, self.run)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_SECONDS):
                    await self._changed.wait()

    def __rich__(self) -> RenderableType:
        """Return the page as it is now, cut to what the terminal can show."""
        if self.run is None:
            return plain(f"the server is out of reach ({self._lost})" if self._lost else "reading the history …", "dim")
        return FoldedPage(self._page(self.run, self._room(self.run)))

    def whole(self) -> RenderableType:
        """Return the page with all steps."""
        return self._page(self.run, None) if self.run else Group()

    def _room(self, run: RunRecord) -> int:
        """Return how many steps the terminal can show beside the rest of the page."""
        rest = self._console.render_lines(FoldedPage(self._page(run, 0)), pad=False)
        return max(_FEWEST_ROWS, self._console.size.height - len(rest) - 2)

    def _page(self, run: RunRecord, most: int | None) -> RenderableType:
        """Return the page with the newest steps, ``most`` of them."""
        pending = self._waits if run.status is RunStatus.RUNNING else None
        rows: list[RenderableType] = [heading(run, pending), "", *_steps(run, self._changes, most)]
        for seq, said in self._said.items() if run.status is RunStatus.RUNNING else ():
            lines = [line for line in said.splitlines() if line.strip()][-_LINES_SAID:]
            rows += ["", *(plain(f"{seq if at == 0 else ' '} │ {line}", "dim") for at, line in enumerate(lines))]
        if pending:
            rows += ["", waits_card(run, pending)]
        rows += repair_hints(run)
        if self._lost:
            rows.append(plain(f"the server is out of reach ({self._lost}); waiting for it", "yellow"))
        return Group(*rows)


def _short(text: str) -> str:
    """Return a text on one line, as short as a line is."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_SHOWN else f"{line[: _LONGEST_SHOWN - 1]}…"


def _by_step(run: RunRecord) -> Changes:
    """Return a run's changes by step; a person's edits and what branches wrote belong to none."""
    steps: Changes = {}
    for entry, before in with_before(run):
        if entry.kind not in (StepKind.EDIT, StepKind.BRANCH):
            steps.setdefault(entry.seq, []).append((entry, before))
    return steps


def _steps(run: RunRecord, done: Changes, most: int | None) -> Iterator[RenderableType]:
    """Yield the table of the newest steps, a line for each."""
    steps = run.steps if most is None else run.steps[len(run.steps) - most :] if most else []
    if len(steps) < len(run.steps):
        yield Text(f"(+{len(run.steps) - len(steps)} earlier)", "dim")
    headings = ("", "#", "step", "took", "what changed")
    table = make_table(*headings, right=("#", "took"), whole=headings)
    table.expand = True
    table.columns[2].max_width = _NAME_WIDTH
    table.columns[4].ratio = 1
    for step in steps:
        ended = step.ended or (datetime.now(UTC) if step.status is StepStatus.RUNNING else None)
        took = "" if step.status is StepStatus.TAKEN_OVER else format_duration(elapsed(step.began, ended))
        attempts = f" ×{step.attempts}" if step.attempts > 1 else ""
        name = Text.assemble(plain(step.name, "bold"), (attempts, "yellow"))
        table.add_row(glyph(step), str(step.seq), name, took, _summary(step, done.get(step.seq, [])))
    yield table


def _summary(step: Step, mine: list[tuple[HistoryEntry, Before]]) -> Text:
    """Return what a step changed, on one line: what came before what went."""
    if step.failure and step.status is not StepStatus.DONE:
        return plain(step.failure, "red" if step.status is StepStatus.FAILED else "yellow")
    if step.kind is StepKind.APPROVAL:
        said = [f"{verdict(step)} by {entry.by}{f': {entry.why}' if entry.why else ''}" for entry, _ in mine]
        return plain("; ".join(said), "italic")
    found = [one for entry, before in mine for one in changes(entry, before)]
    return Text("  ").join(change_lines(sorted(found, key=lambda one: one.sign == "-")))
