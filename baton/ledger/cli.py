"""`baton audit`: a task's records, their verification, evidence bundles, and the upkeep of ledger and vault."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from baton.artifacts.store import MemoryArtifactStore
from baton.cli.options import ExitCode, ForceOption, refuse_overwrite
from baton.cli.output import format_time, json_text, make_table, plain, stack
from baton.cli.session import Session, command
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import ChainReport, Verdict
from baton.ledger.cli_sources import (
    Anchors,
    AnchorsOption,
    Keys,
    KeysOption,
    LedgerOption,
    NameOption,
    RunOption,
    bundle_of,
    heads_of_run,
    heads_of_runs,
    ledger_name,
    ledger_place,
    opened,
    task_of,
    witness_of,
)
from baton.ledger.entries import TaskCost, Trace
from baton.ledger.evidence import EvidenceReport
from baton.ledger.proof import LedgerReport
from baton.ledger.records import AuditHeader, LedgerError
from baton.ledger.store import Ledger
from baton.ledger.store_evidence import AnchorFile, verify_bundle
from baton.ledger.store_reader import FlawedRecordsError, Segment
from baton.ledger.store_schema import migrate as migrated
from baton.ledger.store_schema import open_database
from baton.personal.cli import VaultOption, vault_place
from baton.personal.store import Vault, VaultOptions
from baton.wire.money import format_usd
from baton.wire.text import quantity

_STYLES = {
    Verdict.VALID: "bold green",
    Verdict.UNANCHORED: "bold yellow",
    Verdict.UNVERIFIED: "bold yellow",
    Verdict.INVALID: "bold red",
}
_UNANCHORED = (
    "  records cut off behind these would not be noticed; `audit verify` takes what was kept outside (--anchors, --run)"
)
_NAME_AT_LEAST = 18
_NAMED = 3  # tasks of a bundle
_UNSIGNED = "  not signed as a whole: who passed it on can have left out whole chains"
_STATUSES = {"ACCEPTED": "green", "REJECTED": "red", "COMPLETED": "green"}


def chain_page(report: ChainReport) -> RenderableType:
    """Return the verdict on a task's chain, and what it rests on."""
    proved = [f"signed through {report.signed_through}"] if report.signed_through else []
    proved += [f"anchored through {report.anchored_through}"] if report.anchored_through else []
    facts = [quantity(report.records, "record"), *proved]
    return stack(
        _title(report.verdict, f"task {report.task_id}"),
        plain("  " + " · ".join(facts), "dim"),
        plain(f"  record {report.sequence or report.records}: {report.reason}") if report.reason else None,
        _unanchored(report.verdict, report.records - report.anchored_through, "record"),
    )


def ledger_page(report: LedgerReport, where: str) -> RenderableType:
    """Return the verdict on a whole ledger, with the chains that are not valid."""
    facts = [quantity(report.records, "record"), quantity(report.tasks, "task")]
    if report.checkpointed_through:
        facts.append(f"checkpoint at {report.checkpointed_through:,}")
    more = report.flaws - len(report.flawed)
    return stack(
        _title(report.verdict, f"ledger {report.ledger} in {where}"),
        plain("  " + " · ".join(facts), "dim"),
        plain("  it has no records, and nothing that knows of any") if not report.records else None,
        *(plain(f"  {reason}") for reason in report.reasons),
        *(_flawed(one) for one in report.flawed),
        plain(f"  and {quantity(more, 'task')} more", "dim") if more else None,
        _unanchored(report.verdict, report.unanchored, "task"),
    )


def bundle_page(report: EvidenceReport, file: str) -> RenderableType:
    """Return the verdict on a bundle, with the tasks that it is of: its name may say another one."""
    vouched = [f"signed by key {report.signed_by}"] if report.signed_by else []
    made = [f"made {format_time(report.created_at)}"] if report.created_at else []
    others = report.tasks - _NAMED
    named = ", ".join(report.task_ids[:_NAMED]) + (f" and {quantity(others, 'task')} more" if others > 0 else "")
    proved = [f"{quantity(len(report.witnessed), 'task')} proved to stand in a checkpoint"] if report.witnessed else []
    return stack(
        ledger_page(report, file),
        plain(f"  of {named}") if named else None,
        plain("  " + " · ".join([*made, *vouched, *proved]), "dim") if made else None,
        plain(_UNSIGNED, "yellow") if report.verdict is not Verdict.INVALID and not report.signed_by else None,
    )


def trace_page(trace: Trace) -> RenderableType:
    """Return everything that happened to a task, on a page."""
    table = make_table("#", "recorded", "what", "spent", "from → to, why", right=("#", "spent"), whole=("recorded",))
    names = [name for header in trace.headers for name in _who(header).split(" ")]
    table.columns[4].min_width = min(max(map(len, names), default=0), _NAME_AT_LEAST)
    began = trace.headers[0].recorded_at if trace.headers else None
    for header in trace.headers:
        why = " ".join(one for one in (header.reason, _first_line(header.details)) if one)
        table.add_row(
            str(header.sequence),
            format_time(header.recorded_at, began),
            _what(header),
            format_usd(header.cost.spent_micro_usd) if header.cost else "",
            stack(*(plain(one) for one in (_who(header), why) if one)),
        )
    output = trace.output
    return stack(
        chain_page(trace.report),
        plain(f"  begun {format_time(began)}", "dim") if began else None,
        "",
        table,
        "",
        _cost(trace.cost),
        *(plain(f"! {finding}", "yellow") for finding in trace.cost.findings),
        None if output is None else Text.assemble(("Output: ", "bold"), plain(json_text(output, lines=True))),
    )


def _title(verdict: Verdict, what: str) -> Text:
    first, comma, rest = verdict.value.partition(",")
    return Text.assemble((f"{first.upper()}{comma}{rest}", _STYLES[verdict]), "  ", plain(what, "bold"))


def _unanchored(verdict: Verdict, count: int, what: str) -> RenderableType | None:
    if verdict is not Verdict.UNANCHORED:
        return None
    ends = "the last" if what == "record" else "the end of"
    was = "was" if count == 1 else "were"
    found = f"  {ends} {quantity(count, what)} {was} not compared with anything outside"
    return stack(plain(found, "yellow"), plain(_UNANCHORED, "yellow"))


def _flawed(report: ChainReport) -> Text:
    where = f"  task {report.task_id}, record {report.sequence}: "
    return Text.assemble(plain(where, _STYLES[report.verdict]), plain(report.reason or ""))


def _what(header: AuditHeader) -> Text:
    attempt = f", attempt {header.attempt}" if header.attempt > 1 else ""
    return Text.assemble(
        plain(f"{header.kind} "), plain(header.status, _STATUSES.get(header.status, "")), plain(attempt, "dim")
    )


def _who(header: AuditHeader) -> str:
    """Return who handed to whom, or who decided."""
    hop = " → ".join(one for one in (header.from_agent, header.to_agent) if one)
    return f"{hop} by {header.actor}".strip() if header.actor else hop


def _cost(cost: TaskCost) -> RenderableType:
    """Return what the task cost and who spent it."""
    by_agent = ", ".join(f"{agent} ${amount.normalize():f}" for agent, amount in cost.by_agent.items() if amount)
    so_far = "" if cost.complete else " so far"
    tokens = f", {cost.prompt_tokens:,} tokens read, {cost.completion_tokens:,} written" if cost.prompt_tokens else ""
    return Text.assemble(
        ("Cost: ", "bold"),
        plain(f"{format_usd(cost.micro_usd)}{so_far}{tokens}{f' ({by_agent})' if by_agent else ''}"),
    )


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


_EXITS = {
    Verdict.VALID: ExitCode.OK,
    Verdict.UNANCHORED: ExitCode.UNVERIFIED,
    Verdict.UNVERIFIED: ExitCode.UNVERIFIED,
    Verdict.INVALID: ExitCode.FAILURE,
}

TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK|RUN", help="A task's id, or the workflow id of a run of it.", show_default=False)
]


@command
async def trace(
    session: Session,
    task: TaskArgument,
    ledger: LedgerOption = None,
    name: NameOption = None,
    keys: KeysOption = None,
    anchors: AnchorsOption = None,
) -> None:
    """Tell everything that happened to a task, from the ledger.

    Which agent handed what to which, in the chain's order, what was rejected and why, what it cost, and what
    came out. With --json every record comes with its whole message. The exit code is 1 if the chain is not
    whole; the records before the first bad one are shown then.
    """
    known, kept = Keys.of(keys), Anchors.of(witness_of(anchors))
    async with opened(session, ledger, name) as open_ledger:
        task_id = await task_of(session, open_ledger, task)
        with session.progress("reading the records"):
            found = await open_ledger.trace(
                task_id, verifier=known.public, anchors=kept.heads, checkpoints=kept.checkpoints
            )
    if session.json:
        session.write_json(found.to_json_object())
    else:
        session.show(trace_page(found))
    if found.report.verdict is Verdict.INVALID:
        raise typer.Exit(ExitCode.FAILURE)


@command
async def verify(
    session: Session,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TASK|BUNDLE", help="A task's id, a run's workflow id, or a file of evidence."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="The whole ledger, every chain of it.")] = False,
    run: RunOption = None,
    ledger: LedgerOption = None,
    name: NameOption = None,
    keys: KeysOption = None,
    anchors: AnchorsOption = None,
    no_runs: Annotated[
        bool, typer.Option("--no-runs", help="Do not compare with the heads in the histories of runs.")
    ] = False,
    allow_unanchored: Annotated[
        bool,
        typer.Option("--allow-unanchored", help="Exit with 0 also where completeness was not checked."),
    ] = False,
) -> None:
    """Verify a task, the whole ledger, or an evidence bundle.

    Every signature is verified, and that nothing on record was changed, added or moved. Whether records were cut off
    only shows by comparison with what was kept outside the ledger: the heads in the histories of runs, which are
    read from the server if one answers, and --anchors. A bundle is verified offline: with the public keys and
    --anchors, without ledger and server. Exit codes: 0 if every record is proved and each chain's end was compared
    (valid); 4 if an end was not compared (valid, completeness not checked; --allow-unanchored makes it 0); 4 if
    nothing proves a record (unverified); 1 if something is wrong, and the first bad record is named (invalid).
    With --run the task is the run's, if none is named.
    """
    if ((target or run) is None) is not everything:
        raise typer.BadParameter("name a task, a bundle or --run, or else say --all", param_hint="TASK|BUNDLE")
    bundle = bundle_of(target) if target is not None else None
    kept_in = anchors if bundle is not None else witness_of(anchors)
    known, file, of_run = Keys.of(keys), Anchors.of(kept_in), None
    kept = file
    if run is not None:
        of_run, heads = await heads_of_run(session, run, ledger_name(name))
        target, kept = target or of_run, file.with_heads(heads)
    elif everything and not no_runs:
        kept = file.with_heads(await heads_of_runs(session, ledger_name(name)))
    report, page = (
        _verified_bundle(bundle, ledger_name(name), known, kept)
        if bundle is not None
        else await _verified_ledger(
            session, target, known, kept, ledger, name, of_run, runs=run is None and not no_runs
        )
    )
    if session.json:
        session.write_json(report.model_dump(mode="json", exclude_none=True))
    else:
        session.show(page)
    accepted = allow_unanchored and report.verdict is Verdict.UNANCHORED
    raise typer.Exit(ExitCode.OK if accepted else _EXITS[report.verdict])


@command
async def export(
    session: Session,
    task: Annotated[
        list[str] | None,
        typer.Argument(metavar="TASK|RUN", help="Tasks, or runs of them; --all for the whole ledger."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Where the bundle goes.")
    ] = Path("evidence.zst"),
    everything: Annotated[bool, typer.Option("--all", help="The whole ledger.")] = False,
    force: ForceOption = False,
    ledger: LedgerOption = None,
    name: NameOption = None,
    keys: KeysOption = None,
) -> None:
    """Write the evidence of a task into one file.

    Others check that file without the ledger. It holds the records as they are stored, the signed heads, a
    signed checkpoint with the proofs that these records stand in it, and the public keys for reading. A keyring
    at hand signs the bundle as a whole.
    """
    if bool(task) is everything:
        raise typer.BadParameter("name the tasks, or say --all", param_hint="TASK|RUN")
    refuse_overwrite(output, force, "--output")  # what was given to others is kept
    known = Keys.of(keys)
    async with opened(session, ledger, name, signer=known.signer) as open_ledger:
        tasks = None if everything else [await task_of(session, open_ledger, one) for one in task or []]
        with session.progress("writing the bundle"):
            manifest = await open_ledger.export(output, tasks, keys=known.as_jwks, verifier=known.public)
    about = {"file": str(output), "ledger": manifest.ledger, "records": manifest.records, "tasks": tasks}
    if session.json:
        session.write_json(about)
        return
    session.show(f"{output}: {quantity(manifest.records, 'record')} of the ledger {manifest.ledger!r}")
    session.say(f"check it with `baton audit verify {output} --keys FILE`", "dim")


Verified = tuple[ChainReport | LedgerReport, RenderableType]


def _verified_bundle(bundle: Path, ledger: str, known: Keys, kept: Anchors) -> Verified:
    report = verify_bundle(
        bundle, verifier=known.public, ledger=ledger, anchors=kept.heads, checkpoints=kept.checkpoints
    )
    return report, bundle_page(report, str(bundle))


async def _verified_ledger(
    session: Session,
    target: str | None,
    known: Keys,
    kept: Anchors,
    ledger: str | None,
    name: str | None,
    of_run: str | None,
    *,
    runs: bool,
) -> Verified:
    """Return the report on a task's chain, or on the whole ledger if none is named, and its page."""
    async with opened(session, ledger, name) as open_ledger:
        if target is not None:
            task_id = target if kept.knows(target) else await task_of(session, open_ledger, target)
            if of_run not in (None, task_id):
                raise LedgerError(f"the run is one of task {of_run!r}, whose heads tell nothing of task {task_id!r}")
            if runs:
                kept = kept.with_heads(await heads_of_runs(session, ledger_name(name), task_id))
            chain = await open_ledger.verify(
                task_id, verifier=known.public, anchors=kept.heads, checkpoints=kept.checkpoints
            )
            return chain, chain_page(chain)
        with session.progress("verifying the ledger"):
            whole = await open_ledger.verify_all(
                verifier=known.public, anchors=kept.heads, checkpoints=kept.checkpoints
            )
        return whole, ledger_page(whole, open_ledger.where)


@command
async def migrate(
    session: Session,
    ledger: LedgerOption = None,
    writer: Annotated[
        str | None, typer.Option("--writer", metavar="ROLE", help="The workers' role: it may insert and select.")
    ] = None,
    keeper: Annotated[
        str | None,
        typer.Option("--keeper", metavar="ROLE", help="The role that makes checkpoints and archives."),
    ] = None,
) -> None:
    """Make or upgrade the tables of a ledger in Postgres, as its owner.

    The roles get their rights, and every other right is taken from them. A ledger in a file is migrated when it is
    opened. Doing it again changes nothing, and several may do it at once.
    """
    where = ledger_place(ledger)
    if isinstance(where, Path):
        raise LedgerError(f"the ledger {str(where)!r} is a file, which is migrated when it is opened; name a database")
    try:
        database = open_database(where)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ledger") from error
    try:
        await migrated(database, writer=writer, keeper=keeper)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--writer, --keeper") from error
    finally:
        await database.close()
    if session.json:
        session.write_json({"migrated": True, "writer": writer, "keeper": keeper})
    else:
        session.show("the ledger has the tables of this version")


@command
async def checkpoint(
    session: Session,
    witness: Annotated[
        Path | None,
        typer.Option("--witness", metavar="FILE", dir_okay=False, help="Append it to this file of anchors as well."),
    ] = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Cover records that claim no signature as well.")
    ] = False,
    ledger: LedgerOption = None,
    name: NameOption = None,
) -> None:
    """Make a signed checkpoint of the whole ledger, to keep outside it.

    Make one regularly, and keep it with --witness: then `baton audit verify --all --anchors FILE`
    also notices that a whole chain is gone. The ledger is verified first. A checkpoint that does not continue the
    witness's last one is refused, and so is one over a record whose signature does not count, or that has none: what
    a checkpoint covers counts as proved.
    """
    known = Keys.of(None)
    signer = known.signer
    if signer is None:
        raise LedgerError("a checkpoint is signed, and there are no keys to sign it; set BATON_KEYS to the keyring")
    async with opened(session, ledger, name, signer=signer) as open_ledger:
        made = await open_ledger.checkpoint(AnchorFile(witness) if witness else None, unsigned=unsigned)
    if session.json:
        session.write_json(made.model_dump(mode="json"))
    else:
        kept = f", kept in {witness}" if witness else ""
        session.show(f"{quantity(made.size, 'record')} under {made.root}{kept}")


@command
async def archive(
    session: Session,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Move records of at least this age.")
    ] = 30.0,
    ledger: LedgerOption = None,
    name: NameOption = None,
) -> None:
    """Move old records to the cold tier, where they are read as before.

    It is made of compressed segments in the artifact store; verifying and exporting know them too.
    """
    if isinstance(session.parts.artifacts, MemoryArtifactStore):
        raise typer.BadParameter(
            "records moved to memory would be lost; name a folder or a bucket", param_hint="--artifacts"
        )
    async with opened(session, ledger, name) as open_ledger:
        with session.progress("moving records"):
            flawed, moved = await _moved(open_ledger, timedelta(days=older_than))
    records = sum(one.records for one in moved)
    if session.json:
        session.write_json({"records": records, "segments": [asdict(one) for one in moved]})
    else:
        session.show(f"{quantity(records, 'record')} moved, in {quantity(len(moved), 'segment')}")
    if flawed is not None:
        raise flawed


async def _moved(ledger: Ledger, older_than: timedelta) -> tuple[FlawedRecordsError | None, Sequence[Segment]]:
    try:
        return None, await ledger.move_to_cold(older_than)
    except FlawedRecordsError as error:
        return error, error.moved


@command
async def rewrap(session: Session, vault: VaultOption = None) -> None:
    """Wrap the keys of personal data again, after a rotation.

    Run it after `baton keys rotate wrap`. The key that wrapped them before is needed no more then, and can be
    removed. No personal data is touched.
    """
    file = vault_place(vault)
    async with Vault(file, Keyring.find_out(os.environ), VaultOptions(create=False)) as opened_vault:
        count = await opened_vault.rewrap()
    if session.json:
        session.write_json({"vault": str(file), "rewrapped": count})
    else:
        session.show(f"{file}: {quantity(count, 'key')} wrapped again")
