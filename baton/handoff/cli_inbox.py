"""`baton inbox`: the handoffs that wait for a person, and the person's word about each."""

import asyncio
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from pydantic import JsonValue, ValidationError
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError

from baton.cli.options import ExitCode
from baton.cli.output import Command, format_time, plain
from baton.cli.session import (
    AllOption,
    LimitOption,
    OptionalRunArgument,
    PipelineOption,
    RunArgument,
    Session,
    Target,
    WhoOption,
    WhyOption,
    YesOption,
    command,
    parse_json_object,
    parse_selection,
    parse_usd,
    resolve_user,
)
from baton.client import WaitingHandoff, read_run, resolve_handoff, run_inbox
from baton.client import inbox as all_inboxes
from baton.core.patching import patch_effect
from baton.errors import PipelineError
from baton.handoff.cli_inbox_pages import (
    Balance,
    balance_line,
    chosen,
    decided_line,
    handoff_card,
    handoff_page,
    inbox_table,
    named,
    reason,
)
from baton.handoff.client_inbox import open_approvals, run_approvals
from baton.handoff.pending import HandoffAction, HandoffDecision, PendingHandoff, refusal
from baton.runs.cli_show import asked_rows
from baton.runs.client_handoffs import RunHandoffs, read_handoffs
from baton.runs.client_list import SUSPENDED, RunFilter
from baton.runs.client_waiting import answer_of, must_be_answerable, nobody
from baton.wire.text import quantity

_AT_ONCE = 8

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


@command
async def list_(session: Session, limit: LimitOption = 100) -> None:
    """List the handoffs that wait for a person, the oldest first, and the open approvals.

    The worker of each run is asked; where none answers, the run's history is read. The server's
    index may lag behind by a moment. With --json each has a `kind`, `handoff` or `approval`.
    """
    client = await session.client()
    with session.progress("asking the runs"):
        waiting = await all_inboxes(client, limit=limit)
        approvals = await open_approvals(client, limit=limit)
    if session.json:
        rows = [{"kind": "handoff", **one.to_json_object()} for one in waiting]
        rows += [{"workflow_id": id, **one.model_dump(mode="json")} for id, one in approvals]
        session.write_json(rows)
        return
    for workflow_id, asked in approvals:
        session.show(
            Text.assemble(
                plain(workflow_id, "bold"),
                *(" asks: ", plain(asked.name, "bold yellow"), "  ", (f"since {format_time(asked.since)}", "dim")),
            ),
            *asked_rows(workflow_id, asked),
            Command(f"  baton approve {shlex.quote(workflow_id)} {shlex.quote(asked.name)} --why '…'"),
        )
    if suspended := (await client.count_workflows(RunFilter(status=SUSPENDED, children=True).query())).count:
        session.note(f"{quantity(suspended, 'run')} suspended: `baton list --all --status suspended`")
    if not waiting:
        session.note("no handoff waits for a person" if approvals else "nothing waits for a person")
        return
    session.show(inbox_table(waiting, datetime.now(UTC)))
    for told in dict.fromkeys(f"{one.workflow_id}: {one.trouble}" for one in waiting if one.trouble):
        session.note(told)
    silent = sorted({one.workflow_id for one in waiting if not one.answered and not one.trouble})
    if silent:
        session.note(f"no worker answers for {', '.join(silent)}; shown is what the history tells")
    if len({one.workflow_id for one in waiting}) >= limit:
        session.note(f"the first {quantity(limit, 'run')}; --limit asks more")
    session.say("baton inbox show RUN", "dim")


@command
async def show(session: Session, run: RunArgument, handoff: HandoffArgument = None) -> None:
    """Show one: why it waits, all findings, its message, and what can be decided.

    The message is shown as data inside a fence, with all that could steer a terminal made visible. Needs no
    worker; without one it is what the run's history tells.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("asking the run"):
        looked = await _look(client, target, handoff)
    if session.json:
        session.write_json({**looked.one.to_json_object(), "message": looked.message, "baton": looked.baton})
        return
    session.show(handoff_page(looked.one, looked.pending, looked.message, looked.baton))


CodeOption = Annotated[
    str | None,
    typer.Option("--code", metavar="CODE", help="With --all: only handoffs that wait for this reason, as listed."),
]


def _decision(action: HandoffAction, help: str) -> Callable[..., None]:
    """Return the command that decides so about one handoff, or about all that are selected."""

    async def decide(
        session: Session,
        run: OptionalRunArgument = None,
        handoff: HandoffArgument = None,
        why: WhyOption = "",
        who: WhoOption = None,
        yes: YesOption = False,
        every: AllOption = False,
        code: CodeOption = None,
        pipeline: PipelineOption = None,
        limit: LimitOption = 100,
    ) -> None:
        wanted = _Wanted(action, why, who, yes=yes)
        target = parse_selection(run, every)
        if target is None:
            await _resolve_all(session, wanted, code, pipeline, limit)
        elif code or pipeline:
            raise typer.BadParameter("--code and --pipeline select among --all", param_hint="--all")
        else:
            await _resolve(session, target, handoff, wanted)

    decide.__doc__ = help
    return command(decide)


release = _decision(
    HandoffAction.RELEASE,
    """Declare a safety finding a false alarm; the handoff is audited again with your name.

    Only the texts that are shown are released. The same text passes in later handoffs of the run, any other one
    is rejected as before.
    """,
)
requeue = _decision(
    HandoffAction.REQUEUE,
    """Send a handoff again as it is; it is judged and audited again.

    For example once its receiver was repaired. What is still wrong with it is found again.
    """,
)
abandon = _decision(
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
    why: WhyOption = "",
    who: WhoOption = None,
    yes: YesOption = False,
) -> None:
    """Change the baton by a patch, and send what follows from it.

    The edit is in the run's history with your name and reason. A patch that does not fit the baton is refused
    before anything is decided.
    """
    wanted = _Wanted(HandoffAction.EDIT, why, who, yes=yes, edit=parse_json_object(patch, "--patch"))
    await _resolve(session, Target.of(run), handoff, wanted)


@command
async def top_up(
    session: Session,
    run: RunArgument,
    usd: UsdOption,
    handoff: HandoffArgument = None,
    why: WhyOption = "",
    who: WhoOption = None,
    yes: YesOption = False,
) -> None:
    """Put money into a run's budget, and send the handoff that waits for it."""
    wanted = _Wanted(HandoffAction.TOP_UP, why, who, yes=yes, micro_usd=parse_usd(usd, "--usd"))
    await _resolve(session, Target.of(run), handoff, wanted)


@dataclass(frozen=True)
class _Wanted:
    """What a person wants to decide."""

    action: HandoffAction
    why: str
    who: str | None
    yes: bool
    edit: Mapping[str, JsonValue] | None = None
    micro_usd: int = 0

    def check(self) -> None:
        """Refuse a missing reason, and a name that cannot be recorded."""
        if not self.why.strip():
            raise typer.BadParameter("say why; the reason stays on record", param_hint="--why")
        resolve_user(self.who)

    def decision(self, pending: PendingHandoff) -> HandoffDecision:
        """Return the decision about a handoff, as the person was shown it."""
        try:
            return HandoffDecision(
                handoff_id=pending.handoff_id,
                action=self.action,
                who=resolve_user(self.who),
                why=self.why,
                edit=None if self.edit is None else dict(self.edit),
                micro_usd=self.micro_usd,
                since=pending.since,
            )
        except ValidationError as error:
            raise typer.BadParameter(error.errors()[0]["msg"], param_hint="--who") from error


@dataclass(frozen=True)
class _Looked:
    """One handoff, and what its run's history has of it."""

    one: WaitingHandoff
    pending: PendingHandoff
    read: RunHandoffs

    @property
    def message(self) -> dict[str, Any] | None:
        """The message as it was sent last, if the history has it."""
        return self.read.messages.get(self.pending.handoff_id)

    @property
    def baton(self) -> dict[str, Any]:
        """The baton as it was before the handoff."""
        return self.read.run.baton.to_json_object()


async def _look(client: Client, target: Target, handoff: str | None) -> _Looked:
    """Return the handoff that is meant."""
    waiting = await run_inbox(client, target.workflow_id, target.run_id)
    pending = [one.handoff for one in waiting if one.handoff is not None]
    found = chosen(pending, handoff)
    if not found:
        what = f"no handoff {handoff!r}" if handoff else "no handoff"
        asked = ", ".join([repr(one.name) for one in await run_approvals(client, target.workflow_id, target.run_id)])
        run = shlex.quote(target.workflow_id)
        also = f". It waits for approval {asked}: `baton show {run} --asked` shows it" if asked else ""
        raise PipelineError(
            f"{target.workflow_id!r} has {what} that waits for a person; waiting: {named(pending)}{also}"
        )
    if len(found) > 1:
        raise typer.BadParameter(f"several handoffs wait, name one: {named(found)}", param_hint="HANDOFF")
    [one] = [one for one in waiting if one.handoff is found[0]]
    return _Looked(one, found[0], await read_handoffs(client, one.workflow_id, one.run_id))


async def _resolve(session: Session, target: Target, handoff: str | None, wanted: _Wanted) -> None:
    """Show the handoff, ask once more, and decide."""
    wanted.check()
    client = await session.client()
    with session.progress("asking the run"):
        task_queue = await must_be_answerable(client, target.workflow_id, target.run_id)
        looked = await _look(client, target, handoff)
    if not looked.one.answered:
        raise PipelineError(looked.one.trouble) if looked.one.trouble else nobody(task_queue)
    decision = wanted.decision(looked.pending)
    refused = refusal(decision, looked.pending)
    if refused:
        raise PipelineError(refused)
    if wanted.edit is not None:
        patch_effect(looked.read.run.baton, wanted.edit, looked.read.run.state.stage_rules())
    if not session.json:
        session.err.print(handoff_card(looked.one, looked.pending, looked.message))
    question = f"{wanted.action.value.replace('_', ' ')} the handoff to {plain(looked.pending.receiver).plain!r}?"
    session.confirm(question, yes=wanted.yes)
    with session.progress("deciding"):
        decided = await answer_of(
            client, target.workflow_id, resolve_handoff(client, target.workflow_id, decision, looked.one.run_id)
        )
        balance = await _balance(client, looked, decided.micro_usd) if decided.micro_usd else None
    if session.json:
        told = {"workflow_id": target.workflow_id, **decided.model_dump(mode="json")}
        session.write_json(told if balance is None else {**told, "budget": asdict(balance)})
        return
    session.show(decided_line(looked.pending, decided))
    if balance is not None:
        session.show(balance_line(balance, target.workflow_id))


async def _balance(client: Client, looked: _Looked, micro_usd: int) -> Balance:
    """Return what the budget has after a top-up, and what the handoff still lacks."""
    run = await read_run(client, looked.one.workflow_id, looked.one.run_id)
    return Balance(run.ceiling_micro_usd, run.left_micro_usd, max(0, looked.pending.missing_micro_usd - micro_usd))


async def _resolve_all(session: Session, wanted: _Wanted, code: str | None, pipeline: str | None, limit: int) -> None:
    """Show every handoff that is selected and takes the decision, ask once, and decide about each."""
    wanted.check()
    client = await session.client()
    with session.progress("asking the runs"):
        selected = [
            (one, one.handoff)
            for one in await all_inboxes(client, limit=limit)
            if one.handoff is not None
            and one.answered
            and pipeline in (None, one.pipeline)
            and (code is None or _spelt(reason(one.handoff)) == _spelt(code))
            and wanted.action in one.handoff.actions
        ]
    if not selected:
        raise PipelineError(f"no such handoff waits that takes {wanted.action.value!r}; `baton inbox` lists all")
    if not session.json:
        session.err.print(inbox_table([one for one, _ in selected], datetime.now(UTC)))
    verb, count = wanted.action.value.replace("_", " "), quantity(len(selected), "handoff")
    session.confirm(f"{verb} {count}?", yes=wanted.yes)
    turn = asyncio.Semaphore(_AT_ONCE)

    async def decided(one: WaitingHandoff, pending: PendingHandoff) -> str | None:
        async with turn:
            try:
                deciding = resolve_handoff(client, one.workflow_id, wanted.decision(pending), one.run_id)
                await answer_of(client, one.workflow_id, deciding)
            except (PipelineError, RPCError) as error:
                return str(error)
        return None

    with session.progress("deciding"):
        refused = await asyncio.gather(*(decided(one, pending) for one, pending in selected))
    rows = [
        {"workflow_id": one.workflow_id, "handoff_id": pending.handoff_id, "refused": why}
        for (one, pending), why in zip(selected, refused, strict=True)
    ]
    if session.json:
        session.write_json(rows)
    else:
        session.show(plain(f"{quantity(refused.count(None), 'handoff')} decided: {verb}", "green"))
    for row in rows:
        if row["refused"]:
            session.say(f"{row['workflow_id']}: {row['refused']}", "red")
    if any(refused):
        raise typer.Exit(ExitCode.FAILURE)


def _spelt(code: str) -> str:
    """Return a code in one spelling."""
    return code.upper().replace("-", "_").replace(" ", "_")
