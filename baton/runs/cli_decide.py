"""`baton approve` and `baton deny`: a person's word, bound to the baton they were shown."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text
from temporalio.client import Client

from baton.cli.output import moment, plain, quoted, stack
from baton.cli.session import Session, command, who_is
from baton.cli.targets import RunArgument, Target, WhoOption, WhyOption, YesOption
from baton.client import decide
from baton.core.baton import AnyBaton
from baton.core.messages import Decided, Decision, Overview, Waiting
from baton.errors import PipelineError
from baton.runs.cli_asking import answer_of, must_be_answerable
from baton.runs.cli_cards import baton_card
from baton.wire.canonical import digest
from baton.wire.names import QUERY_BATON, QUERY_STATUS

ApprovalArgument = Annotated[
    str | None, typer.Argument(metavar="APPROVAL", help="Its title; by default the only one that is open.")
]


@dataclass(frozen=True)
class _Asked:
    """What a person is asked, and the baton they are asked about."""

    waiting: Waiting
    baton: dict[str, Any]


@command
async def approve(
    session: Session,
    run: RunArgument,
    approval: ApprovalArgument = None,
    why: WhyOption = "",
    who: WhoOption = None,
    yes: YesOption = False,
) -> None:
    """Approve what a run asks for.

    Shows what is being approved and asks for confirmation; without a terminal, --yes is required. The decision
    counts only for the baton that was shown: if it changes before the decision arrives, the decision is refused.
    """
    await _decide(session, run, approval, why, who, approved=True, yes=yes)


@command
async def deny(
    session: Session,
    run: RunArgument,
    approval: ApprovalArgument = None,
    why: WhyOption = "",
    who: WhoOption = None,
    yes: YesOption = False,
) -> None:
    """Deny what a run asks for.

    Shows what is being denied and asks for confirmation; without a terminal, --yes is required. The run fails
    unless the pipeline handles a denial.
    """
    await _decide(session, run, approval, why, who, approved=False, yes=yes)


async def _decide(
    session: Session, run: str, approval: str | None, why: str, who: str | None, *, approved: bool, yes: bool
) -> None:
    """Show what is asked, and decide."""
    target = Target.of(run)
    if not why.strip():
        raise typer.BadParameter("say why; the reason stays in the run's history", param_hint="--why")
    by = who_is(who)
    client = await session.client()
    with session.progress("asking the run"):
        asked = await answer_of(client, target, _asked(client, target, approval))
    title = asked.waiting.name
    verb = "approve" if approved else "deny"
    if not session.json:
        session.err.print(_card(target, asked))
    session.confirm(f"{verb} {title!r}?", yes=yes)
    question = asked.waiting.question
    decision = Decision(
        approval=title, question=question, approved=approved, who=by, why=why, digest=digest(asked.baton)
    )
    with session.progress("deciding"):
        decided = await answer_of(client, target, decide(client, target.workflow_id, decision))
    if session.json:
        session.write_json({"workflow_id": target.workflow_id, **decided.model_dump(mode="json")})
        return
    session.show(_outcome(decided))


async def _asked(client: Client, target: Target, approval: str | None) -> _Asked:
    """Return the approval that is meant, and the baton as it is now."""
    await must_be_answerable(client, target)
    handle = client.get_workflow_handle(target.workflow_id)
    baton = await handle.query(QUERY_BATON)
    overview = await handle.query(QUERY_STATUS, result_type=Overview)
    open_now = [one for one in overview.waiting_for if one.kind == "approval"]
    titles = ", ".join(repr(one.name) for one in open_now) or "none"
    found = [one for one in open_now if approval in (None, one.name)]
    if not found:
        what = f"no approval {approval!r}" if approval else "no approval"
        raise PipelineError(f"{target.workflow_id!r} has {what} open now; open: {titles}")
    if len(found) > 1:
        raise typer.BadParameter(f"several approvals are open, name one: {titles}", param_hint="APPROVAL")
    return _Asked(found[0], baton)


def _card(target: Target, asked: _Asked) -> RenderableType:
    """Return what is asked, in the order in which one reads it: baton first, question last."""
    waiting = asked.waiting
    until = f", until {moment(waiting.until)}" if waiting.until else ""
    return stack(
        baton_card(AnyBaton.model_validate(asked.baton)),
        "",
        Text.assemble(plain(target.workflow_id, "bold cyan"), " asks: ", plain(waiting.name, "bold yellow")),
        quoted(waiting.asks, "bold") if waiting.asks else None,
        plain(f"  step {waiting.seq}, since {moment(waiting.since)}{until}", "dim"),
        plain(f"  baton {digest(asked.baton)[:19]}…", "dim"),
    )


def _outcome(decided: Decided) -> Text:
    """Return how the approval ended."""
    verb, style = ("approved", "green") if decided.approved else ("denied", "red")
    why = f": {decided.why}" if decided.why else ""
    return Text.assemble(
        (verb, style), " ", plain(decided.approval, "bold"), plain(f" by {decided.who} at {moment(decided.at)}{why}")
    )
