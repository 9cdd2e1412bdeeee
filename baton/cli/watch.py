"""`baton watch`: follows a run, as lines of news or as a page that updates itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError

from baton import HistoryEntry, StepKind
from baton.cli.history import change_lines
from baton.cli.output import FoldedPage, format_time, json_text, make_table, plain
from baton.cli.session import RunArgument, Session, Target, command
from baton.cli.show import glyph, heading, repair_hints, waits_card
from baton.client import (
    Cursor,
    Followed,
    News,
    NewsKind,
    RunRecord,
    RunStatus,
    Step,
    StepStatus,
    Waits,
    follow,
    waits,
)
from baton.client.faces import Before, changes, describe_news, remarks, with_before
from baton.wire.text import cut_line, elapsed, format_duration

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
    """Follow a run to its end.

    On a terminal it is a page that updates itself, otherwise a line for each event. It waits for a server that
    restarts, and follows the newer run after a roll-back or a continue-as-new. At the end it prints the run's output.

    With --json each line is an object; to resume after an interruption, give the last line's `cursor` to --from.
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
        last = await _write_json(session, updates)
    elif session.out.is_terminal:
        last = await _show_page(session, client, updates)
    else:
        last = await _write_lines(session, updates)
    if last is None or last.status is not RunStatus.COMPLETED:
        raise typer.Exit(1)
    output = last.result.output if last.result else None
    if output is not None and not session.json:
        session.show("", plain(output if isinstance(output, str) else json_text(output, lines=True)))


async def _write_json(session: Session, updates: AsyncIterator[Followed]) -> RunRecord | None:
    """Write an object for each piece of news, all pieces of an update at once."""
    run: RunRecord | None = None
    async for update in updates:
        run = update.run or run
        if run is not None and update.news:
            position = {"event": run.last_event, "workflow_id": run.workflow_id, "run_id": run.run_id}
            pairs = zip(update.cursors, update.news, strict=True)
            session.write_json_lines(
                {"cursor": str(cursor), **position, **news.to_json_object(), **_output(run, news)}
                for cursor, news in pairs
            )
    return run


def _output(run: RunRecord, news: News) -> dict[str, Any]:
    return {"output": run.result.output} if run.result and news.kind is NewsKind.RUN_ENDED else {}


async def _write_lines(session: Session, updates: AsyncIterator[Followed]) -> RunRecord | None:
    run: RunRecord | None = None
    is_lost = False
    async for update in updates:
        if update.lost and not is_lost:
            session.note(f"the server is unreachable ({update.lost}); waiting for it")
        is_lost = update.lost is not None
        run = update.run or run
        if run is not None:
            for line in news_lines(update.news, run):
                session.out.print(line, soft_wrap=True)
    return run


async def _show_page(session: Session, client: Client, updates: AsyncIterator[Followed]) -> RunRecord | None:
    """Update a page while the run is open, and print it whole at the end."""
    page = Page(session.out)
    with Live(page, console=session.out, refresh_per_second=_REFRESH_PER_SECOND, transient=True):
        polling = asyncio.create_task(page.poll_waits(client))
        try:
            async for update in updates:
                page.take(update)
        finally:
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await polling
    session.show(page.whole())
    return page.run


_POLL_SECONDS = 2.0
_MIN_ROWS = 3
_MAX_STREAM_LINES = 6
_MAX_LINE_LENGTH = 80
_NAME_WIDTH = 28

Changes = dict[int, list[tuple[HistoryEntry, Before]]]
"""By step number: the history entries, and the old values of the fields they changed."""

_SIGNS = {
    NewsKind.RUN_STARTED: ("▶", "bold"),
    NewsKind.RUN_REPLACED: ("↺", "yellow"),
    NewsKind.RUN_SUSPENDED: ("!", "yellow"),
    NewsKind.RUN_PAUSED: ("‖", "yellow"),
    NewsKind.RUN_UNPAUSED: ("▶", "yellow"),
    NewsKind.WAITS_FOR_WORKER: ("!", "yellow"),
    NewsKind.RUN_ENDED: ("■", "bold"),
    NewsKind.STEP_STARTED: ("●", "cyan"),
    NewsKind.STEP_REFUSED: ("!", "yellow"),
    NewsKind.HANDOFF_WAITS: ("!", "yellow"),
    NewsKind.WAITS_OUTSIDE: ("!", "yellow"),
    NewsKind.STEP_DONE: ("✓", "green"),
    NewsKind.STEP_FAILED: ("✗", "bold red"),
    NewsKind.STEP_UNDONE: ("↺", "yellow"),
    NewsKind.REUSED: ("↷", "dim"),
    NewsKind.EDITED: ("✎", "yellow"),
    NewsKind.NOTE: ("!", "yellow"),
    NewsKind.TEXT: ("…", "dim"),
    NewsKind.TOOL_CALLED: ("→", "cyan"),
    NewsKind.TOOL_ANSWERED: ("←", "cyan"),
    NewsKind.STREAM_RESTARTED: ("↺", "yellow"),
}


def news_lines(news: Sequence[News], run: RunRecord) -> Iterator[Text]:
    """Yield a line for each piece of news, and below it the indented changes."""
    befores = {id(entry): before for entry, before in with_before(run)} if any(piece.entries for piece in news) else {}
    for piece in news:
        denied = piece.kind is NewsKind.STEP_DONE and piece.step is not None and piece.step.approved is False
        sign, style = _SIGNS[NewsKind.STEP_FAILED if denied else piece.kind]
        at = f"{format_time(piece.at, run.now)} "
        yield Text.assemble((at, "dim"), (f"{sign} ", style), plain(describe_news(piece, run)))
        for entry in piece.entries:
            if entry.kind is not StepKind.BRANCH:
                lines = change_lines([*changes(entry, befores[id(entry)]), *remarks(entry)])
                yield from (Text.assemble(" " * len(at), "  ", line) for line in lines)


class Page:
    """The page of a watched run; rich renders it several times a second."""

    def __init__(self, console: Console) -> None:
        self.run: RunRecord | None = None
        self._console = console
        self._changes: Changes | None = None  # of the run, once the page has shown it
        self._waits: Waits | None = None
        self._lost: str | None = None
        self._changed = asyncio.Event()
        self._streamed: dict[int, str] = {}

    def take(self, update: Followed) -> None:
        """Update the page."""
        self._lost = update.lost
        if update.run is not None and update.run is not self.run:
            self.run, self._changes = update.run, None
        for piece in update.news:
            self._collect_output(piece)
        if update.news:
            self._changed.set()

    def _collect_output(self, news: News) -> None:
        """Collect the output of a step while it streams."""
        seq = news.step.seq if news.step else 0
        match news.kind:
            case NewsKind.TEXT:
                self._streamed[seq] = self._streamed.get(seq, "") + news.text
            case NewsKind.TOOL_CALLED | NewsKind.TOOL_ANSWERED:
                sign, _ = _SIGNS[news.kind]
                line = f"{sign} {news.tool} {cut_line(news.text, _MAX_LINE_LENGTH)}"
                self._streamed[seq] = f"{self._streamed.get(seq, '')}\n{line}\n"
            case NewsKind.STEP_DONE | NewsKind.STEP_FAILED | NewsKind.STEP_REFUSED | NewsKind.STREAM_RESTARTED:
                self._streamed.pop(seq, None)

    async def poll_waits(self, client: Client) -> None:
        """Poll the server for what the run waits for: failed tries of a stage are not in its history."""
        while True:
            if self.run is not None:
                with contextlib.suppress(RPCError):
                    self._waits = await waits(client, self.run)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._changed.wait()

    def __rich__(self) -> RenderableType:
        """Return the page, cut to the height of the terminal."""
        if self.run is None:
            return plain(f"the server is unreachable ({self._lost})" if self._lost else "reading the history …", "dim")
        return FoldedPage(self._page(self.run, self._max_rows(self.run)))

    def whole(self) -> RenderableType:
        """Return the page with all steps."""
        return self._page(self.run, None) if self.run else Group()

    def _max_rows(self, run: RunRecord) -> int:
        """Return how many steps fit on the terminal beside the rest of the page."""
        frame = self._console.render_lines(FoldedPage(self._page(run, 0)), pad=False)
        return max(_MIN_ROWS, self._console.size.height - len(frame) - 2)

    def _page(self, run: RunRecord, limit: int | None) -> RenderableType:
        """Return the page with at most ``limit`` steps, the newest."""
        pending = self._waits if run.status is RunStatus.RUNNING else None
        self._changes = _changes_by_step(run) if self._changes is None else self._changes
        rows: list[RenderableType] = [heading(run, pending), "", *_steps_table(run, self._changes, limit)]
        for seq, text in self._streamed.items() if run.status is RunStatus.RUNNING else ():
            lines = [line for line in text.splitlines() if line.strip()][-_MAX_STREAM_LINES:]
            rows += ["", *(plain(f"{seq if index == 0 else ' '} │ {line}", "dim") for index, line in enumerate(lines))]
        if pending:
            rows += ["", waits_card(run, pending)]
        rows += repair_hints(run)
        if self._lost:
            rows.append(plain(f"the server is unreachable ({self._lost}); waiting for it", "yellow"))
        return Group(*rows)


def _changes_by_step(run: RunRecord) -> Changes:
    """Return a run's changes by step, without people's edits and branches."""
    steps: Changes = {}
    for entry, before in with_before(run):
        if entry.kind not in (StepKind.EDIT, StepKind.BRANCH):
            steps.setdefault(entry.seq, []).append((entry, before))
    return steps


def _steps_table(run: RunRecord, all_changes: Changes, limit: int | None) -> Iterator[RenderableType]:
    steps = run.steps if limit is None else run.steps[len(run.steps) - limit :] if limit else []
    if len(steps) < len(run.steps):
        yield Text(f"(+{len(run.steps) - len(steps)} earlier)", "dim")
    headings = ("", "#", "step", "took", "what changed")
    table = make_table(*headings, right=("#", "took"), whole=headings)
    table.expand = True
    table.columns[2].max_width = _NAME_WIDTH
    table.columns[4].ratio = 1
    for step in steps:
        end = step.ended or (run.now if step.status is StepStatus.RUNNING else None)
        took = "" if step.status is StepStatus.REUSED else format_duration(elapsed(step.began, end))
        attempts = f" ×{step.attempts}" if step.attempts > 1 else ""
        name = Text.assemble(plain(step.name, "bold"), (attempts, "yellow"))
        table.add_row(glyph(step), str(step.seq), name, took, _summarise(step, all_changes.get(step.seq, [])))
    yield table


def _summarise(step: Step, entries: list[tuple[HistoryEntry, Before]]) -> Text:
    """Return a step's changes on one line, additions first."""
    if step.failure and step.status is not StepStatus.DONE:
        return plain(step.failure, "red" if step.status is StepStatus.FAILED else "yellow")
    if step.kind is StepKind.APPROVAL:
        decisions = [f"{step.verdict} by {entry.by}{f': {entry.why}' if entry.why else ''}" for entry, _ in entries]
        return plain("; ".join(decisions), "italic")
    all_of_step = [change for entry, before in entries for change in changes(entry, before)]
    return Text("  ").join(change_lines(sorted(all_of_step, key=lambda change: change.sign == "-")))
