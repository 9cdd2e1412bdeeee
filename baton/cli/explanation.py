"""`baton explain` and `baton why`: what an agent was given, and where a value comes from."""

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markdown import Markdown
from rich.text import Text
from rich.tree import Tree

from baton import Keyring
from baton.cli.ledger_sources import LedgerOption, open_ledger
from baton.cli.output import format_time, plain, quoted
from baton.cli.personal import ByOption, VaultOption, vault_path
from baton.cli.session import RunArgument, Session, Target, WhyOption, command, current_user
from baton.client import (
    Provenance,
    ReadTranscript,
    Reason,
    ReasonKind,
    Vault,
    VaultOptions,
    read_run,
)
from baton.client import explain as read_explanation
from baton.client import why as read_reasons
from baton.client.faces import moments, open_transcripts, read_transcripts

StageArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STAGE", help="The stage: its name, its step's number, or name:2 for the second. By default the last."
    ),
]


OpenOption = Annotated[
    bool, typer.Option("--open", help="Open what is sealed like personal data; that, and why, is recorded.")
]


@command
async def explain(
    session: Session,
    run: RunArgument,
    stage: StageArgument = None,
    open: OpenOption = False,
    why: WhyOption = "",
    by: ByOption = None,
    vault: VaultOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Explain a stage: what its agent saw, was asked and answered, and what was left out and why.

    Each fact is listed with its source and its confidence, then the tools and the cost in tokens. Reads the run's
    history: no worker is needed, and ended runs are explained too. Events that were left out are listed with the
    reason, never with their content. What models were asked and answered, calls of tools and thoughts are in the
    artifact store, as long as workers keep them (30 days, if they do not say otherwise).

    The exit code is 1 if no stage was given a contract or made a prompt.
    """
    if open and not why.strip():
        raise typer.BadParameter("the opening is recorded: say why", param_hint="--why")
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        explanation = await read_explanation(client, target.workflow_id, stage, run_id=target.run_id)
    if open:
        keyring = Keyring.from_environment(os.environ)
        record = await read_run(client, target.workflow_id, target.run_id)
        async with (
            open_ledger(session, ledger, None, signer=keyring.signer()) as records,
            Vault(vault_path(vault), keyring, VaultOptions(create=False)) as opened,
        ):
            who = by or current_user()
            read = await open_transcripts(
                session.artifacts, explanation.transcripts, opened, records, record, by=who, why=why
            )
    else:
        read = await read_transcripts(session.artifacts, explanation.transcripts)
    if session.json:
        members = {"times_fewer": explanation.times_fewer, "transcripts": read}
        session.write_json({**explanation.to_json_object(), **members})
        return
    if session.out.is_terminal:
        session.show(Markdown(explanation.to_markdown()))
    else:
        session.write(explanation.to_markdown())
    for attempt, transcript in enumerate(read, 1):
        session.show("", *transcript_rows(transcript, f"attempt {attempt} of {len(read)}" if len(read) > 1 else ""))


def transcript_rows(read: ReadTranscript, attempt: str) -> Iterator[RenderableType]:
    """Yield what an agent was asked and answered, as lines."""
    yield plain(f"What it was asked and answered{f', {attempt}' if attempt else ''}", "bold")
    if read.transcript is None:
        hint = "; `--open --why …` opens it, and that is recorded" if read.is_sealed else ""
        yield plain(f"- not shown: {read.missing}{hint}", "dim")
        return
    for moment in moments(read.transcript):
        yield ""
        at = format_time(datetime.fromisoformat(moment.at)) if moment.at else ""
        yield Text.assemble(
            plain(moment.title, "bold cyan"), plain(f"  {', '.join(filter(None, [*moment.remarks, at]))}", "dim")
        )
        for label, text in moment.texts:
            if label:
                yield plain(f"  {label}:", "dim")
            yield quoted(text)


PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="`output` or a part of it (`output.items[0].price`), a field of the baton (`decision_log[2]`), a step's "
        "answer (`STAGE.output`), an artifact's id, an approval's title, or words of an entry of the baton.",
    ),
]

_KINDS = {
    ReasonKind.VALUE: "bold",
    ReasonKind.STEP: "cyan",
    ReasonKind.TOOL: "green",
    ReasonKind.APPROVAL: "yellow",
    ReasonKind.EDIT: "yellow",
    ReasonKind.CODE: "dim",
}


@command
async def why(session: Session, run: RunArgument, path: PathArgument = "output") -> None:
    """Tell where a value comes from: back over agents, facts, tools, models, costs and people to the sources.

    Each line rests on those below it. Reads histories only: the run's, those of its children, and of the run that it
    continues or forks. What the pipeline's code computed has no record; there, equal values are looked for, and the
    line says so.

    The exit code is 1 if the run has no such value.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        provenance = await read_reasons(client, target.workflow_id, path, run_id=target.run_id)
    if session.json:
        session.write_json(provenance)
    else:
        session.show(reason_tree(provenance))


def reason_tree(provenance: Provenance) -> RenderableType:
    """Return the reasons as a tree."""
    branches: list[Tree] = []
    for depth, reason, is_told in provenance.tree():
        line = _reason_line(reason, is_told=is_told)
        del branches[depth:]
        branches.append(branches[-1].add(line) if branches else Tree(line, guide_style="dim"))
    root = branches[0]
    if provenance.more:
        root.add(Text(f"{provenance.more:,} more reasons are left out", "dim"))
    return root


def _reason_line(reason: Reason, *, is_told: bool) -> Text:
    remarks = [*reason.remarks, *([format_time(reason.at)] if reason.at else []), *(["see above"] if is_told else [])]
    return Text.assemble(
        plain(reason.text, _KINDS.get(reason.kind, "")), plain(f"  {', '.join(remarks)}" if remarks else "", "dim")
    )
