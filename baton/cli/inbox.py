"""`baton inbox`: list and decide the handoffs that wait for a person."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import JsonValue
from rich.console import RenderableType
from temporalio.client import Client

from baton.cli.decide import Decision, report, report_several
from baton.cli.inbox_pages import (
    balance_line,
    cost_rows,
    entry_rows,
    handoff_card,
    handoff_page,
    inbox_table,
    reason_label,
)
from baton.cli.operations import fact_lines
from baton.cli.output import plain, stack
from baton.cli.session import (
    AllOption,
    LimitOption,
    OptionalRunArgument,
    PipelineOption,
    RunArgument,
    Session,
    Target,
    WhoOption,
    command,
    parse_json_object,
    parse_selection,
    parse_usd,
    resolve_user,
)
from baton.client import (
    Decide,
    DecidePreview,
    HandoffAction,
    Question,
    RunFilter,
    RunHandoffs,
    WaitingQuestion,
    count_runs,
    inbox,
    list_runs,
    read_handoffs,
    read_run,
)
from baton.client.faces import (
    SUSPENDED,
    InboxFilter,
    InboxPage,
    QuestionKind,
    cost_of,
    decide_several,
    describe,
    inbox_page,
    lacking,
    name_questions,
    select_questions,
    server_now,
)
from baton.errors import PipelineError
from baton.keys.store_keys import Key
from baton.wire.text import quantity

_PAGE = 100  # runs
_MAX_NAMED = 10

HandoffArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="HANDOFF", help="Its id, or the first eight characters of it; by default the only one that waits."
    ),
]


UsdOption = Annotated[
    str, typer.Option("--usd", metavar="AMOUNT", help="How much, in US dollars, such as 5.00.", show_default=False)
]
EditOption = Annotated[
    str,
    typer.Option("--patch", metavar="JSON|@FILE", help="A patch of the baton, or a file with it.", show_default=False),
]


MineOption = Annotated[
    bool, typer.Option("--mine", help="Only what you (--who, BATON_USER) may decide and have not decided yet.")
]
KindOption = Annotated[QuestionKind | None, typer.Option("--kind", help="Only questions of this kind.")]


@command
async def list_(
    session: Session,
    mine: MineOption = False,
    who: WhoOption = None,
    kind: KindOption = None,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", metavar="NAME", help="Only questions of this pipeline's runs.")
    ] = None,
    limit: LimitOption = _PAGE,
    page: Annotated[int, typer.Option(min=1, help="Which page of so many runs.")] = 1,
) -> None:
    """List what runs ask people, the nearest deadline first: approvals, and handoffs that wait.

    Read from the server's index and the runs' memos, so no worker is needed. The index may lag behind by a moment.
    --mine and --kind look through the nearest 1,000 runs. With --json each has its `kind`.
    """
    client = await session.client()
    wanted = InboxFilter(pipeline, kind, resolve_user(who) if mine else None)
    with session.progress("asking the server"):
        found = await inbox_page(client, wanted, limit=limit, skip=(page - 1) * limit)
    if session.json:
        session.write_json(found.entries)
    else:
        await _print_inbox(session, client, found)
    if found.soon and not session.json:
        session.say(f"{quantity(found.soon, 'run')} with a deadline within the hour", "bold red")
    if found.remaining or found.skipped:
        first = found.skipped + 1
        note = f"runs {first:,} to {found.skipped + found.runs:,} of {found.total:,}, by deadline"
        session.note(f"{note}; --page {page + 1} shows more" if found.remaining else note)
    if found.unsearched:
        session.note(f"{quantity(found.unsearched, 'run')} with later deadlines were not searched")


async def _print_inbox(session: Session, client: Client, found: InboxPage) -> None:
    now = await server_now(client)
    for entry in found.entries:
        if entry.approval is not None:
            session.show(*entry_rows(entry.workflow_id, entry.approval, now))
    await _note_suspended(session, client)
    others = [entry for entry in found.entries if entry.approval is None]
    if others:
        session.show(inbox_table(others, now))
    elif not found.entries:
        session.note("nothing more waits for a person" if found.skipped else "nothing waits for a person")
    for trouble in dict.fromkeys(f"{entry.workflow_id}: {entry.trouble}" for entry in found.entries if entry.trouble):
        session.note(trouble)
    if unserved := sorted({entry.workflow_id for entry in found.entries if not entry.has_worker}):
        further = len(unserved) - _MAX_NAMED
        names = ", ".join(unserved[:_MAX_NAMED]) + (f" and {further:,} more" if further > 0 else "")
        session.note(
            f"no worker polls for {names}: what is decided takes effect once one does; `baton show RUN` says what helps"
        )
    if others:
        session.say("baton inbox show RUN", "dim")


async def _note_suspended(session: Session, client: Client) -> None:
    """Count the suspended runs, and say what the first few need that no worker has."""
    suspended_runs = RunFilter(status=SUSPENDED, children=True)
    if not (suspended := await count_runs(client, suspended_runs)):
        return
    session.note(f"{quantity(suspended, 'run')} suspended: `baton list --all --status suspended`")
    async for run in list_runs(client, suspended_runs, limit=_MAX_NAMED):
        if text := lacking(await describe(client, run.workflow_id, run.run_id)):
            session.note(f"{run.workflow_id}: {text}")


@command
async def show(session: Session, run: RunArgument, handoff: HandoffArgument = None) -> None:
    """Show one handoff: why it waits, all findings, its message, and what can be decided.

    The message is shown as data inside a fence; control characters are escaped. Needs no worker.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("asking the run"):
        view = await _read_handoff(client, target, handoff)
    if session.json:
        session.write_json({**view.entry.to_json_object(), "message": view.message, "baton": view.baton})
        return
    costs = cost_of(view.handoffs.run, view.question).clauses
    session.show(handoff_page(view.entry, view.question, view.message, view.baton, costs))


CodeOption = Annotated[
    str | None,
    typer.Option("--code", metavar="CODE", help="With --all: only handoffs that wait for this reason, as listed."),
]


def _decision_command(action: HandoffAction, help: str) -> Callable[..., None]:
    """Return the command that decides one handoff, or with --all every selected one."""

    async def decide(
        session: Session,
        run: OptionalRunArgument = None,
        handoff: HandoffArgument = None,
        select_all: AllOption = False,
        code: CodeOption = None,
        pipeline: PipelineOption = None,
        limit: LimitOption = 100,
        *,
        decision: Decision,
    ) -> None:
        request = _Request.of(action, decision)
        target = parse_selection(run, select_all)
        if target is None:
            await _resolve_all(session, request, code, pipeline, limit)
        elif code or pipeline:
            raise typer.BadParameter("--code and --pipeline select among --all", param_hint="--all")
        else:
            await _resolve(session, target, handoff, request)

    decide.__doc__ = help
    return command(decide)


release = _decision_command(
    HandoffAction.RELEASE,
    """Declare a safety finding a false alarm; the handoff is audited again with your name.

    Only the texts that are shown are released. The same text passes in later handoffs of the run, any other one
    is rejected as before.
    """,
)
requeue = _decision_command(
    HandoffAction.REQUEUE,
    """Send a handoff again as it is; it is judged and audited again.

    For example once its receiver was repaired. What is still wrong with it is found again.
    """,
)
abandon = _decision_command(
    HandoffAction.ABANDON,
    """Give up a handoff: its stage fails.

    The run fails unless the pipeline handles that.
    """,
)


@command
async def edit(
    session: Session,
    run: RunArgument,
    patch: EditOption,
    handoff: HandoffArgument = None,
    *,
    decision: Decision,
) -> None:
    """Change the baton by a patch, and send the handoff with it.

    The edit is in the run's history with your name and reason. A patch that does not fit the baton is refused
    before anything is decided.
    """
    data = {"patch": parse_json_object(patch, "--patch")}
    request = _Request.of(HandoffAction.EDIT, decision, data)
    await _resolve(session, Target.of(run), handoff, request)


@command
async def top_up(
    session: Session,
    run: RunArgument,
    usd: UsdOption,
    handoff: HandoffArgument = None,
    *,
    decision: Decision,
) -> None:
    """Put money into a run's budget, and send the handoff that waits for it."""
    data = {"micro_usd": parse_usd(usd, "--usd")}
    request = _Request.of(HandoffAction.TOP_UP, decision, data)
    await _resolve(session, Target.of(run), handoff, request)


@dataclass(frozen=True)
class _Request:
    action: HandoffAction
    why: str
    by: str
    key: Key | None
    yes: bool
    data: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, action: HandoffAction, decision: Decision, data: Mapping[str, Any] | None = None) -> "_Request":
        """Return what the options ask for."""
        by, key = decision.author()
        return cls(action, decision.why, by, key, decision.yes, data)

    def operation(self, client: Client, workflow_id: str, question: str | None, run_id: str | None) -> Decide:
        """Return the operation."""
        return Decide(client, workflow_id, self.action, question, self.data, self.key, run_id)


@dataclass(frozen=True)
class _HandoffView:
    """One pending handoff, with its message and baton from the run's history."""

    entry: WaitingQuestion
    question: Question
    handoffs: RunHandoffs

    @property
    def message(self) -> dict[str, Any] | None:
        """The message as last sent, if the history has it."""
        return self.handoffs.messages.get(self.question.handoff.handoff_id) if self.question.handoff else None

    @property
    def baton(self) -> dict[str, Any]:
        """The baton before the handoff."""
        return self.handoffs.run.baton.to_json_object()


async def _read_handoff(client: Client, target: Target, handoff: str | None) -> _HandoffView:
    """Return the handoff that the arguments select; exactly one must match."""
    waiting = [entry async for entry in inbox(client, target.workflow_id, run_id=target.run_id)]
    questions = [entry.question for entry in waiting if entry.question is not None]
    matches = select_questions(questions, HandoffAction.ABANDON, handoff)
    if not matches:
        missing = f"no handoff {handoff!r}" if handoff else "no handoff"
        run = shlex.quote(target.workflow_id)
        hint = f"; `baton show {run} --asked` shows approvals" if questions else ""
        raise PipelineError(
            f"{target.workflow_id!r} has {missing} that waits for a person; open: {name_questions(questions)}{hint}"
        )
    if len(matches) > 1:
        raise typer.BadParameter(f"several handoffs wait, name one: {name_questions(matches)}", param_hint="HANDOFF")
    [entry] = [entry for entry in waiting if entry.question is matches[0]]
    return _HandoffView(entry, matches[0], await read_handoffs(client, entry.workflow_id, entry.run_id))


async def _resolve(session: Session, target: Target, handoff: str | None, request: _Request) -> None:
    operation = request.operation(await session.client(), target.workflow_id, handoff, target.run_id)
    with session.progress("looking"):
        preview = await operation.preview()
    if not session.json:
        session.err.print(_card(target.workflow_id, preview))
    verb, pending = request.action.value.replace("_", " "), preview.open.handoff if preview.open else None
    to = f" to {plain(pending.receiver).plain!r}" if pending else ""
    session.confirm(f"{verb} the handoff{to}?", yes=request.yes, otherwise=operation.nothing_done)
    operation = operation.pinned_to(preview)
    with session.progress("deciding"):
        settled = await operation.commit(preview.mark, by=request.by, why=request.why)
    if settled is None or not settled.micro_usd or settled.missing or pending is None:
        report(session, operation, settled, request.by, request.why)
        return
    run = await read_run(operation.client, target.workflow_id, preview.run.run_id)
    missing = max(0, pending.missing_micro_usd - settled.micro_usd)
    budget: dict[str, JsonValue] = {
        "micro_usd": run.ceiling_micro_usd,
        "left_micro_usd": run.left_micro_usd,
        "missing_micro_usd": missing,
    }
    report(session, operation, settled, request.by, request.why, budget=budget)
    if not session.json:
        session.show(balance_line(run, missing))


def _card(workflow_id: str, preview: DecidePreview) -> RenderableType:
    if preview.open is None:
        return stack(*fact_lines(preview))
    costs = cost_rows(cost_of(preview.run, preview.open).clauses)
    return stack(handoff_card(workflow_id, preview.open, preview.message), *costs)


async def _resolve_all(session: Session, request: _Request, code: str | None, pipeline: str | None, limit: int) -> None:
    """Show the selected handoffs that allow the decision, ask for confirmation once, and decide each."""
    client = await session.client()
    with session.progress("asking the runs"):
        found = await inbox_page(client, InboxFilter(pipeline), limit=limit)
        selected = [
            (entry, entry.question)
            for entry in found.entries
            if entry.question is not None
            and entry.handoff is not None
            and entry.has_worker
            and (code is None or _normalize_code(reason_label(entry.handoff)) == _normalize_code(code))
            and request.action in entry.handoff.actions
        ]
    if not selected:
        where = f" among the {limit:,} runs with the nearest deadlines (--limit)" if found.remaining else ""
        raise PipelineError(f"no selected handoff allows {request.action.value!r}{where}; `baton inbox` lists all")
    if not session.json:
        session.err.print(inbox_table([entry for entry, _ in selected], await server_now(client)))
    verb = request.action.value.replace("_", " ")
    session.confirm(f"{verb} {quantity(len(selected), 'handoff')}?", yes=request.yes)
    # Without a mark: the listed digest is older than the baton, and the id names exactly this question.
    operations = [
        (request.operation(client, entry.workflow_id, question.id, entry.run_id), None) for entry, question in selected
    ]
    with session.progress("deciding"):
        decided = await decide_several(operations, by=request.by, why=request.why)
    report_several(session, decided, "handoff", verb)


def _normalize_code(code: str) -> str:
    return code.upper().replace("-", "_").replace(" ", "_")
