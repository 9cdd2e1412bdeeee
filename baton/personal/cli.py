"""`baton erase`: destroy the keys of a data subject, or refuse to as long as the law says so."""

import os
import sys
import uuid
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from baton.cli.options import ExitCode
from baton.cli.output import format_time, make_table, plain, stack
from baton.cli.session import Session, YesOption, command, current_user
from baton.keys.store_keyring import Keyring
from baton.ledger.cli_sources import LedgerOption
from baton.ledger.cli_sources import open_ledger as ledger_at
from baton.personal.store import Vault, VaultOptions
from baton.personal.store_subjects import ERASED, REFUSED, Erasure, Place
from baton.wire.json_values import has_lone_surrogate
from baton.wire.text import quantity

DEFAULT_VAULT = ".baton/vault.db"
_PANEL = "Ledger"
_SHOWN = 20

SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="Who is erased, spelled as it was sealed; - reads it from the input, which keeps it out of the history "
        "of your shell.",
        show_default=False,
    ),
]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who you are. [BATON_USER, or your user name]")
]
WhyOption = Annotated[
    str, typer.Option("--why", help="The reason of a hold or its end, for the vault's journal.", show_default=False)
]
RequestOption = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="The id of the request, recorded for ever. [a new one]"),
]
HoldOption = Annotated[
    bool | None,
    typer.Option("--hold/--release", help="Do not erase: refuse to, from now on (a legal hold), or end that."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Do not erase; show what there is.")]
VaultOption = Annotated[
    Path | None,
    typer.Option("--vault", metavar="FILE", help=f"The vault. [BATON_VAULT, {DEFAULT_VAULT}]", rich_help_panel=_PANEL),
]


def vault_place(given: Path | None = None) -> Path:
    """Return where the vault is: as it was given, or as the environment says."""
    return given or Path(os.environ.get("BATON_VAULT") or DEFAULT_VAULT)


@command
async def erase(
    session: Session,
    subject: SubjectArgument,
    by: ByOption = None,
    why: WhyOption = "",
    request_id: RequestOption = None,
    hold: HoldOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    vault: VaultOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Erase a person: destroy the keys of all their personal data.

    What was sealed for them can't be read any more, wherever it lies, and no chain of the ledger changes: each
    task that held their data gets a record of the erasure. Erasing again is harmless, and completes what was
    interrupted. Asks for confirmation; without a terminal, --yes is required. Exit code 1: it was refused because
    of a legal hold.
    """
    if hold is not None and dry_run:
        raise typer.BadParameter("--hold, --release and --dry-run exclude each other")
    if hold is not None and not why.strip():
        raise typer.BadParameter("say why; the reason stays in the vault's journal", param_hint="--why")
    who = by or current_user()
    name = _read_name() if subject == "-" else subject
    if "\n" in name:
        raise typer.BadParameter("name one data subject, on one line of the input", param_hint="SUBJECT")
    if not name.strip():
        raise typer.BadParameter("name the data subject", param_hint="SUBJECT")
    keyring = Keyring.from_environment(os.environ)
    file = vault_place(vault)
    if hold is not None or dry_run:
        async with Vault(file, keyring, VaultOptions(create=False)) as opened:
            await (_show(session, opened, name) if hold is None else _hold(session, opened, name, who, why, hold))
        return
    # The ledger first: without it nothing is erased that could not be put on record.
    async with (
        ledger_at(session, ledger, None, signer=keyring.signer()) as records,
        Vault(file, keyring, VaultOptions(ledger=records, create=False)) as opened,
    ):
        await _erase(session, opened, name, request_id or f"erasure-{uuid.uuid4()}", who, yes=yes)


def _read_name() -> str:
    """Return the name in the input, without the mark that some editors begin a file with."""
    try:
        name = sys.stdin.read().removeprefix("\ufeff").strip()
    except UnicodeDecodeError:
        name = None
    if name is None or has_lone_surrogate(name):
        raise typer.BadParameter("the input is not UTF-8", param_hint="SUBJECT")
    return name


async def _erase(session: Session, vault: Vault, name: str, request_id: str, who: str, *, yes: bool) -> None:
    """Show what there is, ask, and erase."""
    if not yes and not session.json:
        session.err.print(_found(await vault.pseudonym(name), await vault.where_is(name)))
    session.confirm("destroy the keys? This cannot be undone", yes=yes, otherwise="nothing was erased")
    with session.progress("erasing"):
        report = await vault.erase(name, request_id, who)
    if session.json:
        session.write_json(_as_json(report))
    else:
        session.show(_told(report))
    if not report:
        raise typer.Exit(ExitCode.FAILURE)


async def _hold(session: Session, vault: Vault, name: str, who: str, why: str, hold: bool) -> None:
    """Put a subject under a legal hold, or end it."""
    if hold:
        await vault.hold(name, why, who)
        status, words = "HELD", "is held: its erasure is refused"
    elif await vault.release_hold(name, why, who):
        status, words = "RELEASED", "is released: it may be erased"
    else:
        status, words = "NOT_HELD", "was not held"
    pseudonym = await vault.pseudonym(name)
    if session.json:
        session.write_json({"subject": pseudonym, "status": status})
    else:
        session.show(plain(f"{pseudonym} {words}"))


async def _show(session: Session, vault: Vault, name: str) -> None:
    """Show where data of a subject is."""
    pseudonym, places = await vault.pseudonym(name), await vault.where_is(name)
    if session.json:
        session.write_json({"subject": pseudonym, "places": [asdict(one) for one in places]})
    else:
        session.show(_found(pseudonym, places))


def _as_json(report: Erasure) -> dict[str, Any]:
    """Return a report for programs."""
    return {**asdict(report), "at": report.at.isoformat(), "task_ids": list(report.task_ids)}


def _found(pseudonym: str, places: list[Place]) -> RenderableType:
    """Return what the vault has of a subject, by task."""
    if not places:
        return plain(f"the vault holds no data of {pseudonym}")
    fields = Counter(one.task_id for one in places)
    tasks = list(dict.fromkeys(one.task_id for one in places))
    table = make_table("TASK", "FIELDS", right=("FIELDS",), whole=("TASK",))
    for task in tasks[:_SHOWN]:
        table.add_row(plain(task, "cyan"), str(fields[task]))
    more = plain(f"and {quantity(len(tasks) - _SHOWN, 'task')} more", "dim") if len(tasks) > _SHOWN else None
    return stack(plain(pseudonym, "bold"), table, more)


def _told(report: Erasure) -> RenderableType:
    """Return what came of a request to erase."""
    if report.status == REFUSED:
        held = plain(f"  {report.why}", "bold") if report.why else None
        return stack(Text.assemble(("refused", "red"), plain(f": {report.subject} is under a legal hold")), held)
    if report.status != ERASED:
        return plain(f"the vault holds no data of {report.subject}; nothing was erased")
    keys, places = report.removed.get("keys", 0), report.removed.get("places", 0)
    when = f"already at {format_time(report.at)}, by request " if report.repeated else ""
    return stack(
        Text.assemble(("erased", "green"), " ", plain(report.subject, "bold"), plain(f" ({when}{report.request_id})")),
        plain(f"  {quantity(keys, 'key')} destroyed, {quantity(places, 'place')} forgotten"),
        plain(f"  recorded now in {quantity(len(report.task_ids), 'task')}"),
    )
