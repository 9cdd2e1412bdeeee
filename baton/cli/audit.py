"""`baton audit`: traces, verification, evidence bundles, and maintenance of ledger and vault."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from baton import Keyring, MemoryArtifactStore
from baton.cli.ledger_sources import (
    Anchors,
    AnchorsOption,
    Keys,
    KeysOption,
    LedgerOption,
    NameOption,
    RunOption,
    WholeOptions,
    find_bundle,
    find_task,
    find_witness,
    ledger_name,
    ledger_place,
    open_ledger,
    read_heads,
    read_run_heads,
)
from baton.cli.options import ExitCode, ForceOption, refuse_overwrite
from baton.cli.output import Command, format_age, format_time, json_text, make_table, plain, quoted, stack
from baton.cli.personal import VaultOption, vault_path
from baton.cli.session import Session, command
from baton.client import (
    Ledger,
    LedgerError,
    Report,
    TaskCost,
    Trace,
    Vault,
    VaultOptions,
    verify_bundle,
)
from baton.client.faces import (
    AnchorFile,
    AuditCost,
    AuditHeader,
    Finding,
    FlawedRecordsError,
    Segment,
    Verdict,
    migrate_ledger,
)
from baton.wire.money import format_cost
from baton.wire.text import quantity

_STYLES = {
    Verdict.VALID: "bold green",
    Verdict.UNANCHORED: "bold yellow",
    Verdict.UNVERIFIED: "bold yellow",
    Verdict.INVALID: "bold red",
}
_UNANCHORED = (
    "  records cut off after these would not be noticed; give `audit verify` anchors from outside (--anchors, --run)"
)
_MIN_NAME_WIDTH = 18
_MAX_NAMED = 3  # tasks of a bundle
_MAX_OUTPUT_LENGTH = 2_000  # characters
_OUTPUT = ("Output: ", "bold")
_UNSIGNED = "  the bundle is not signed: whole chains may be missing"
_STATUSES = {"ACCEPTED": "green", "REJECTED": "red", "COMPLETED": "green"}


def chain_page(report: Report) -> RenderableType:
    """Return the verdict on a task's chain, and what proves it."""
    proved = [f"signed through {report.signed_through}"] if report.signed_through else []
    proved += [f"anchored through {report.anchored_through}"] if report.anchored_through else []
    facts = [quantity(report.linked, "record"), *proved]
    return stack(
        _render_title(report.verdict, f"task {report.task_id}"),
        plain("  " + " · ".join(facts), "dim"),
        *(
            plain(f"  record {finding.sequence}: {finding.reason}" if finding.sequence else f"  {finding.reason}")
            for finding in report.findings
        ),
        _render_compared(report.compared_at),
        _render_unanchored(report.verdict, report.linked - report.anchored_through, "record"),
    )


def ledger_page(report: Report, where: str) -> RenderableType:
    """Return the verdict on a whole ledger, with the chains that are not valid."""
    facts = [quantity(report.records, "record"), quantity(report.tasks, "task")]
    if report.verified_at is not None:
        new = report.records - report.verified_before
        facts = [
            quantity(new, "new record"),
            f"{quantity(report.tasks, 'task')} read",
            f"{report.verified_before:,} verified on {format_time(report.verified_at)}",
        ]
    if report.checkpointed_through:
        facts.append(f"checkpoint at {report.checkpointed_through:,}")
    unlisted = report.flaws - len(report.findings)
    return stack(
        _render_title(report.verdict, f"ledger {report.ledger} in {where}"),
        plain("  " + " · ".join(facts), "dim"),
        plain("  no records, and no anchor or checkpoint covers any") if not report.records else None,
        *map(_render_finding, report.findings),
        plain(f"  and {unlisted:,} more", "dim") if unlisted else None,
        _render_compared(report.compared_at),
        _render_unanchored(report.verdict, report.unanchored, "task"),
    )


def bundle_page(report: Report, file: str) -> RenderableType:
    """Return the verdict on a bundle, with its tasks, which the file's name may not tell."""
    signed = [f"signed by key {report.signed_by}"] if report.signed_by else []
    created = [f"created {format_time(report.created_at)}"] if report.created_at else []
    unlisted = report.tasks - _MAX_NAMED
    more = f" and {quantity(unlisted, 'task')} more" if unlisted > 0 else ""
    tasks = ", ".join(report.task_ids[:_MAX_NAMED]) + more
    return stack(
        ledger_page(report, file),
        plain(f"  tasks: {tasks}") if tasks else None,
        plain("  " + " · ".join([*created, *signed]), "dim") if created else None,
        plain(_UNSIGNED, "yellow") if report.verdict is not Verdict.INVALID and not report.signed_by else None,
    )


def trace_page(trace: Trace) -> RenderableType:
    """Return a task's records, cost and output."""
    table = make_table("#", "recorded", "what", "spent", "from → to, why", right=("#", "spent"), whole=("recorded",))
    names = [name for header in trace.headers for name in _render_parties(header).split(" ")]
    table.columns[4].min_width = min(max(map(len, names), default=0), _MIN_NAME_WIDTH)
    start = trace.headers[0].recorded_at if trace.headers else None
    for header in trace.headers:
        reason = " ".join(part for part in (header.reason, _first_line(header.details)) if part)
        table.add_row(
            str(header.sequence),
            format_time(header.recorded_at, start),
            _render_event(header),
            _render_spent(header.cost) if header.cost else "",
            stack(*(plain(line) for line in (_render_parties(header), reason) if line)),
        )
    return stack(
        chain_page(trace.report),
        plain(f"  started {format_time(start)}", "dim") if start else None,
        "",
        table,
        "",
        _render_cost(trace.cost),
        *(plain(f"! {finding}", "yellow") for finding in trace.cost.findings),
        *_output_rows(trace),
    )


def _output_rows(trace: Trace) -> list[RenderableType]:
    """Return the task's output as the agent answered it, or what the last agent wrote if there is none."""
    record = trace.output
    if not isinstance(record, dict) or "output" not in record:  # of another writer
        return [] if record is None else [Text.assemble(_OUTPUT, plain(json_text(record, lines=True)))]
    output, patch = record["output"], record.get("baton_patch")
    if output is None:
        fields = ", ".join(patch) if isinstance(patch, dict) else ""
        return [Text.assemble(_OUTPUT, plain(f"none; the last agent wrote {fields or 'nothing'}"))]
    text = output if isinstance(output, str) else json_text(output, lines=True)
    rows: list[RenderableType] = [Text(*_OUTPUT), quoted(text[:_MAX_OUTPUT_LENGTH])]
    if (rest := len(text) - _MAX_OUTPUT_LENGTH) > 0:
        rows += [
            plain(f"  … and {rest:,} characters more, in the last message of", "dim"),
            Command(f"  baton audit trace {trace.task_id} --json"),
        ]
    return rows


def _render_title(verdict: Verdict, subject: str) -> Text:
    first, comma, rest = verdict.value.partition(",")
    return Text.assemble((f"{first.upper()}{comma}{rest}", _STYLES[verdict]), "  ", plain(subject, "bold"))


def _render_compared(at: datetime | None) -> RenderableType | None:
    """Say what a checkpoint does not prove."""
    if at is None:
        return None
    now = datetime.now(UTC)
    message = f"  compared with the checkpoint of {format_time(at)} ({format_age(at, now)}): what was added since then"
    return plain(f"{message} and cut off again is noticed only by the heads in the histories of runs", "dim")


def _render_unanchored(verdict: Verdict, count: int, unit: str) -> RenderableType | None:
    if verdict is not Verdict.UNANCHORED:
        return None
    ends = "the last" if unit == "record" else "the end of"
    was = "was" if count == 1 else "were"
    message = f"  {ends} {quantity(count, unit)} {was} not compared with anything outside the ledger"
    return stack(plain(message, "yellow"), plain(_UNANCHORED, "yellow"))


def _render_finding(finding: Finding) -> Text:
    where = "  " if finding.task_id is None else f"  task {finding.task_id}, record {finding.sequence}: "
    return Text.assemble(plain(where, _STYLES[finding.verdict]), plain(finding.reason))


def _render_event(header: AuditHeader) -> Text:
    attempt = f", attempt {header.attempt}" if header.attempt > 1 else ""
    attempt += f", execution {header.execution}" if header.execution > 1 else ""
    return Text.assemble(
        plain(f"{header.kind} "), plain(header.status, _STATUSES.get(header.status, "")), plain(attempt, "dim")
    )


def _render_parties(header: AuditHeader) -> str:
    """Return sender and receiver, and the person who decided."""
    hop = " → ".join(agent for agent in (header.from_agent, header.to_agent) if agent)
    return f"{hop} by {header.actor}".strip() if header.actor else hop


def _render_spent(cost: AuditCost) -> str:
    return format_cost(cost.spent_micro_usd, cost.prompt_tokens + cost.completion_tokens)


def _render_cost(cost: TaskCost) -> RenderableType:
    by_agent = ", ".join(f"{agent} ${amount.normalize():f}" for agent, amount in cost.by_agent.items() if amount)
    so_far = "" if cost.complete else " so far"
    tokens = f", {cost.prompt_tokens:,} tokens read, {cost.completion_tokens:,} written" if cost.prompt_tokens else ""
    amount = format_cost(cost.micro_usd, cost.prompt_tokens + cost.completion_tokens)
    return Text.assemble(
        ("Cost: ", "bold"),
        plain(f"{amount}{so_far}{tokens}{f' ({by_agent})' if by_agent else ''}"),
    )


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


class ExportFormat(StrEnum):
    """What `baton audit export` writes."""

    BUNDLE = "bundle"
    IN_TOTO = "in-toto"


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
    """Show the history of a task from the ledger.

    It lists the handoffs in the chain's order, rejections with their reasons, the cost, and the output. With --json
    every record includes its message. If the chain is invalid, the exit code is 1 and only the records before the
    first bad one are shown.
    """
    loaded_keys, loaded_anchors = Keys.of(keys), Anchors.of(find_witness(anchors, session.connection))
    async with open_ledger(session, ledger, name) as audit_ledger:
        task_id = await find_task(session, audit_ledger, task)
        with session.progress("reading the records"):
            result = await audit_ledger.trace(
                task_id,
                verifier=loaded_keys.public,
                anchors=loaded_anchors.heads,
                checkpoints=loaded_anchors.checkpoints,
            )
    if session.json:
        session.write_json(result)
    else:
        session.show(trace_page(result))
    if result.report.verdict is Verdict.INVALID:
        raise typer.Exit(ExitCode.FAILURE)


@command
async def verify(
    session: Session,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TASK|BUNDLE", help="A task's id, a run's workflow id, or a file of evidence."),
    ] = None,
    *,
    scale: WholeOptions,
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

    It verifies every signature, and that no record was changed, added or moved. Only a comparison with anchors
    outside the ledger shows whether records were cut off: the heads in the histories of runs, read from the server
    if it answers, and --anchors. A bundle is verified offline, with the public keys and --anchors. Exit codes: 0 if
    every record is proved and each chain's end was compared (valid); 4 if an end was not compared (valid,
    completeness not checked; --allow-unanchored makes it 0) or a record is not proved (unverified); 1 if something
    is wrong (invalid), with the first bad record; 5 if the verdict is valid and the heads of a run were not compared,
    because its records are malformed. With --run the task defaults to the run's.

    --new continues where the last verification with --state ended: it verifies the new records, and each chain that
    they continue from its first record. Run --all now and then: only it finds changes of older records.
    """
    whole, own_name = scale.everything or scale.new, ledger_name(name, session.connection)
    if ((target or run) is None) is not whole or (scale.everything and scale.new):
        raise typer.BadParameter("name a task, a bundle or --run, or use --all or --new", param_hint="TASK|BUNDLE")
    if not whole and (scale.state is not None or scale.processes > 1):
        raise typer.BadParameter("they go with --all or --new", param_hint="--state, --processes")
    bundle = find_bundle(target) if target is not None else None
    anchors_file = anchors if bundle is not None else find_witness(anchors, session.connection)
    loaded_keys, loaded_anchors, run_task = Keys.of(keys), Anchors.of(anchors_file), None
    if run is not None:
        run_task, heads = await read_run_heads(session, run, own_name)
        target, loaded_anchors = target or run_task, loaded_anchors.with_heads(heads)
    elif whole and not no_runs:
        loaded_anchors = loaded_anchors.with_runs(await read_heads(session, own_name))
    report, page, malformed = (
        _verify_bundle(bundle, own_name, loaded_keys, loaded_anchors)
        if bundle is not None
        else await _verify_ledger(
            session,
            target,
            loaded_keys,
            loaded_anchors,
            (ledger, name),
            run_task,
            runs=run is None and not no_runs,
            scale=scale,
        )
    )
    if session.json:
        session.write_json(report)
    else:
        session.show(page)
    accepted = allow_unanchored and report.verdict is Verdict.UNANCHORED
    code = ExitCode.OK if accepted else _EXITS[report.verdict]
    raise typer.Exit(ExitCode.UNREADABLE if malformed and code is ExitCode.OK else code)


@command
async def export(
    session: Session,
    task: Annotated[
        list[str] | None,
        typer.Argument(metavar="TASK|RUN", help="Tasks, or runs of them; --all for the whole ledger."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", dir_okay=False, help="The file to write. [evidence.zst, evidence.jsonl]"
        ),
    ] = None,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="A bundle for `audit verify`, or attestations for other verifiers.")
    ] = ExportFormat.BUNDLE,
    everything: Annotated[bool, typer.Option("--all", help="The whole ledger.")] = False,
    force: ForceOption = False,
    ledger: LedgerOption = None,
    name: NameOption = None,
    keys: KeysOption = None,
) -> None:
    """Write an evidence bundle, which others can verify without the ledger.

    It contains the records as stored, the signed heads, of the whole ledger also its newest checkpoint, and the public
    keys for information. The keyring of this machine, if any, signs the bundle.

    With --format in-toto the file has a DSSE envelope a line, signed by that keyring: a statement for each record,
    whose subjects are the digests of its artifacts, and the provenance of a branch that a stage offered.
    """
    if bool(task) is everything:
        raise typer.BadParameter("name the tasks, or use --all", param_hint="TASK|RUN")
    if everything and form is ExportFormat.IN_TOTO:
        raise typer.BadParameter("attestations are of tasks; name them", param_hint="--format")
    output = output or Path("evidence.zst" if form is ExportFormat.BUNDLE else "evidence.jsonl")
    refuse_overwrite(output, force, "--output")
    loaded_keys = Keys.of(keys)
    signer = loaded_keys.signer if form is ExportFormat.BUNDLE else Keys.of(None).signer
    async with open_ledger(session, ledger, name, signer=signer) as audit_ledger:
        tasks = None if everything else [await find_task(session, audit_ledger, named) for named in task or []]
        if form is ExportFormat.IN_TOTO:
            await _export_attestations(session, audit_ledger, tasks or [], output, loaded_keys)
            return
        with session.progress("writing the bundle"):
            manifest = await audit_ledger.export(output, tasks, keys=loaded_keys.as_jwks, verifier=loaded_keys.public)
    summary = {"file": str(output), "ledger": manifest.ledger, "records": manifest.records, "tasks": tasks}
    if session.json:
        session.write_json(summary)
        return
    session.show(f"{output}: {quantity(manifest.records, 'record')} of the ledger {manifest.ledger!r}")
    session.say(f"check it with `baton audit verify {output} --keys FILE`", "dim")


async def _export_attestations(session: Session, ledger: Ledger, tasks: list[str], output: Path, keys: Keys) -> None:
    lines = await ledger.attest(tasks, verifier=keys.public)
    _write_lines(output, lines)
    if session.json:
        session.write_json({"file": str(output), "ledger": ledger.name, "attestations": len(lines), "tasks": tasks})
    else:
        session.show(f"{output}: {quantity(len(lines), 'attestation')} of the ledger {ledger.name!r}")


def _write_lines(output: Path, lines: list[bytes]) -> None:
    try:
        output.write_bytes(b"".join(lines))
    except OSError as error:
        raise LedgerError(f"cannot write {str(output)!r}: {error.strerror}") from error


Verification = tuple[Report, RenderableType, Sequence[str]]
"""The report, its page, and the workflow ids of runs whose malformed histories were not compared."""


def _verify_bundle(bundle: Path, ledger: str, keys: Keys, anchors: Anchors) -> Verification:
    report = verify_bundle(
        bundle, verifier=keys.public, ledger=ledger, anchors=anchors.heads, checkpoints=anchors.checkpoints
    )
    return report, bundle_page(report, str(bundle)), ()


async def _verify_ledger(
    session: Session,
    target: str | None,
    keys: Keys,
    anchors: Anchors,
    place: tuple[str | None, str | None],
    run_task: str | None,
    *,
    runs: bool,
    scale: WholeOptions,
) -> Verification:
    """Verify a task's chain, or the whole ledger without a ``target``; return the report and its page."""
    ledger, name = place
    async with open_ledger(session, ledger, name) as audit_ledger:
        if target is not None:
            task_id = target if anchors.has_task(target) else await find_task(session, audit_ledger, target)
            if run_task not in (None, task_id):
                raise LedgerError(f"the run is of task {run_task!r}, so its heads prove nothing about task {task_id!r}")
            if runs:
                anchors = anchors.with_runs(await read_heads(session, ledger_name(name, session.connection), task_id))
            chain = await audit_ledger.verify(
                task_id, verifier=keys.public, anchors=anchors.heads, checkpoints=anchors.checkpoints
            )
            return chain, chain_page(chain), anchors.malformed
        with session.progress("verifying the ledger"):
            report = await audit_ledger.verify_all(
                verifier=keys.public,
                anchors=anchors.heads,
                checkpoints=anchors.checkpoints,
                verified=scale.verified_file(),
                new_only=scale.new,
                processes=scale.processes,
            )
        return report, ledger_page(report, audit_ledger.where), anchors.malformed


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
    """Create or upgrade the tables of a ledger in Postgres, as its owner.

    The roles get the rights they need and lose all others. A ledger in a file is migrated when it is opened. The
    command is idempotent, and safe to run concurrently.
    """
    try:
        await migrate_ledger(ledger_place(ledger, session.connection), writer=writer, keeper=keeper)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ledger, --writer, --keeper") from error
    if session.json:
        session.write_json({"migrated": True, "writer": writer, "keeper": keeper})
    else:
        session.show("the ledger has the tables of this version")


@command
async def checkpoint(
    session: Session,
    witness: Annotated[
        Path | None,
        typer.Option("--witness", metavar="FILE", dir_okay=False, help="Also append it to this anchor file."),
    ] = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Cover unsigned records too.")] = False,
    ledger: LedgerOption = None,
    name: NameOption = None,
) -> None:
    """Make a signed checkpoint of the whole ledger, to keep outside it.

    Make one regularly and store it with --witness: then `baton audit verify --all --anchors FILE` also detects the
    loss of a whole chain. The ledger is verified first. The command fails if the checkpoint does not continue the
    witness's last one, or if a record has no valid signature, because a checkpoint proves every record it covers.
    """
    keys = Keys.of(None)
    signer = keys.signer
    if signer is None:
        raise LedgerError("a checkpoint needs a signing key, but there is no keyring; set BATON_KEYS to the keyring")
    async with open_ledger(session, ledger, name, signer=signer) as audit_ledger:
        result = await audit_ledger.checkpoint(AnchorFile(witness) if witness else None, unsigned=unsigned)
    if session.json:
        session.write_json(result)
    else:
        note = f", stored in {witness}" if witness else ""
        session.show(f"{quantity(result.size, 'record')} under {result.digest}{note}")


@command
async def archive(
    session: Session,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Move records of at least this age.")
    ] = 30.0,
    ledger: LedgerOption = None,
    name: NameOption = None,
) -> None:
    """Move old records to the cold tier: compressed segments in the artifact store.

    Traces, verification and exports still include them.
    """
    if isinstance(session.artifacts, MemoryArtifactStore):
        raise typer.BadParameter(
            "records moved to memory would be lost; name a folder or a bucket", param_hint="--artifacts"
        )
    async with open_ledger(session, ledger, name) as audit_ledger:
        with session.progress("moving records"):
            flawed, segments = await _move_to_cold(audit_ledger, timedelta(days=older_than))
    records = sum(segment.records for segment in segments)
    if session.json:
        session.write_json({"records": records, "segments": segments})
    else:
        session.show(f"{quantity(records, 'record')} moved, in {quantity(len(segments), 'segment')}")
    if flawed is not None:
        raise flawed


async def _move_to_cold(ledger: Ledger, older_than: timedelta) -> tuple[FlawedRecordsError | None, Sequence[Segment]]:
    try:
        return None, await ledger.move_to_cold(older_than)
    except FlawedRecordsError as error:
        return error, error.moved


@command
async def rewrap(session: Session, vault: VaultOption = None) -> None:
    """Wrap the keys of personal data with the current wrapping key.

    Run it after `baton keys rotate wrap`. Then the old wrapping key can be removed. No personal data is changed.
    """
    file = vault_path(vault)
    async with Vault(file, Keyring.from_environment(os.environ), VaultOptions(create=False)) as opened_vault:
        count = await opened_vault.rewrap()
    if session.json:
        session.write_json({"vault": str(file), "rewrapped": count})
    else:
        session.show(f"{file}: {quantity(count, 'key')} rewrapped")
