"""`baton approve` and `baton deny`: a person's word, bound to what they were shown."""

import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text
from temporalio.client import Client

from baton.artifacts.store import ArtifactStore
from baton.cli.output import moment, plain, printable, stack
from baton.cli.session import Session, command, who_is
from baton.cli.targets import RunArgument, Target, WhoOption, WhyOption, YesOption
from baton.client import decide
from baton.core.baton import AnyBaton
from baton.core.exhibits import EXCERPT
from baton.core.messages import Decided, Decision, Overview, Waiting
from baton.errors import ArtifactError, PipelineError
from baton.keys.store_keyring import read_file
from baton.runs.cli_cards import asked_rows, baton_card, form_fields
from baton.runs.client_answering import answer_of, must_be_answerable
from baton.wire.canonical import digest
from baton.wire.names import QUERY_BATON, QUERY_STATUS

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
class Asked:
    """What a person is asked, and the baton they are asked about."""

    waiting: Waiting
    baton: dict[str, Any]

    def decision(self, *, approved: bool, who: str, why: str, answer: dict[str, Any] | None) -> Decision:
        """Return a decision on exactly this."""
        return Decision(
            approval=self.waiting.name,
            question=self.waiting.question,
            approved=approved,
            who=who,
            why=why,
            digest=self.waiting.digest_with(digest(self.baton)),
            answer=answer,
        )


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
    by = who_is(word.who or (signer.owner if signer else None))
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


async def asked_now(client: Client, target: Target, approval: str | None) -> Asked:
    """Return the approval that is meant, and the baton as it is now."""
    await must_be_answerable(client, target.workflow_id, target.run_id)
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
    return Asked(found[0], baton)


async def asked_card(store: ArtifactStore | None, target: Target, asked: Asked) -> RenderableType:
    """Return what is asked, in the order in which one reads it: baton first, question last."""
    waiting = asked.waiting
    until = f", until {moment(waiting.until)}" if waiting.until else ""
    return stack(
        baton_card(AnyBaton.model_validate(asked.baton)),
        "",
        Text.assemble(plain(target.workflow_id, "bold cyan"), " asks: ", plain(waiting.name, "bold yellow")),
        *asked_rows(target.workflow_id, await _with_contents(store, waiting)),
        plain(f"  step {waiting.seq}, since {moment(waiting.since)}{until}", "dim"),
        plain(f"  baton {digest(asked.baton)[:19]}…", "dim"),
    )


async def _with_contents(store: ArtifactStore | None, asked: Waiting) -> Waiting:
    """Return what is asked with the texts of the artifacts that it shows, where the store has them."""
    shows = []
    for one in asked.shows:
        ref = one.artifact
        if store is not None and ref is not None and (ref.size or 0) <= _MOST_CONTENT:
            with contextlib.suppress(ArtifactError, UnicodeDecodeError, OSError):
                content = (await store.get(ref.hash)).decode()[:EXCERPT]
                one = one.model_copy(update={"text": f"{one.text}\n\n{content}"})
        shows.append(one)
    return asked.model_copy(update={"shows": shows})


def outcome(decided: Decided) -> Text:
    """Return how the approval ended."""
    verb, style = ("approved", "green") if decided.approved else ("denied", "red")
    left = f"; {decided.missing} more must approve" if decided.missing else ""
    why = f"{left}: {decided.why}" if decided.why else left
    return Text.assemble(
        (verb, style), " ", plain(decided.approval, "bold"), plain(f" by {decided.who} at {moment(decided.at)}{why}")
    )
