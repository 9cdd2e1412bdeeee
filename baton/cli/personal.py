"""`baton erase`: destroy the keys of a data subject."""

import os
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from baton import Keyring
from baton.cli.ledger_sources import LedgerOption
from baton.cli.ledger_sources import open_ledger as ledger_at
from baton.cli.operations import fact_lines, operate
from baton.cli.output import format_time, make_table, plain, stack
from baton.cli.session import Session, YesOption, command, current_user
from baton.client import Erase, Erasure, Vault, VaultOptions
from baton.client.faces import Place
from baton.wire.json_values import has_lone_surrogate
from baton.wire.text import quantity

DEFAULT_VAULT = ".baton/vault.db"
_PANEL = "Ledger"
_MAX_TASKS = 20
_ERASED = "ERASED"  # a status of `Erasure`

SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="The data subject's name, exactly as it was sealed; - reads it from stdin, which keeps it out of your "
        "shell's history.",
        show_default=False,
    ),
]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Your name. [BATON_USER, or your user name]")
]
RequestOption = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="The request's id, which is recorded permanently. [a new one]"),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Do not erase; show where the data is.")]
VaultOption = Annotated[
    Path | None,
    typer.Option("--vault", metavar="FILE", help=f"The vault. [BATON_VAULT, {DEFAULT_VAULT}]", rich_help_panel=_PANEL),
]


def vault_path(option: Path | None = None) -> Path:
    """Return the vault's path, from the option, the environment or the default."""
    return option or Path(os.environ.get("BATON_VAULT") or DEFAULT_VAULT)


@command
async def erase(
    session: Session,
    subject: SubjectArgument,
    by: ByOption = None,
    request_id: RequestOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    vault: VaultOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Erase a person: destroy the keys of all their personal data.

    Sealed data becomes unreadable wherever it is stored. No chain of the ledger changes: each task that held data
    of the person gets a record of the erasure. Erasing again is harmless and completes an interrupted erasure. Asks
    for confirmation; without a terminal, --yes is required.
    """
    who = by or current_user()
    name = _read_name() if subject == "-" else subject
    if "\n" in name:
        raise typer.BadParameter("name one data subject, on one line of the input", param_hint="SUBJECT")
    if not name.strip():
        raise typer.BadParameter("name the data subject", param_hint="SUBJECT")
    keyring = Keyring.from_environment(os.environ)
    file = vault_path(vault)
    if dry_run:
        async with Vault(file, keyring, VaultOptions(create=False)) as opened_vault:
            await _show(session, opened_vault, name)
        return
    # Open the ledger first: nothing is erased that cannot be recorded.
    async with (
        ledger_at(session, ledger, None, signer=keyring.signer()) as records,
        Vault(file, keyring, VaultOptions(ledger=records, create=False)) as opened_vault,
    ):
        await _erase(session, opened_vault, name, request_id or f"erasure-{uuid.uuid4()}", who, yes=yes)


def _read_name() -> str:
    """Read the name from stdin, without a byte order mark."""
    try:
        name = sys.stdin.read().removeprefix("\ufeff").strip()
    except UnicodeDecodeError:
        name = None
    if name is None or has_lone_surrogate(name):
        raise typer.BadParameter("the input is not UTF-8", param_hint="SUBJECT")
    return name


async def _erase(session: Session, vault: Vault, name: str, request_id: str, who: str, *, yes: bool) -> None:
    """Show where the data is, ask for confirmation, and erase."""
    operation = Erase(vault, name, request_id)
    report = await operate(
        session,
        operation,
        "destroy the keys? This cannot be undone",
        by=who,
        yes=yes,
        render=lambda preview: stack(_render_places(preview.pseudonym, preview.places), *fact_lines(preview)),
    )
    if session.json:
        session.write_json(report)
    else:
        session.show(_render_report(report))


async def _show(session: Session, vault: Vault, name: str) -> None:
    """Show where data of a subject was sealed."""
    pseudonym, places = await vault.pseudonym(name), await vault.where_is(name)
    if session.json:
        session.write_json({"subject": pseudonym, "places": places})
    else:
        session.show(_render_places(pseudonym, places))


def _render_places(pseudonym: str, places: list[Place]) -> RenderableType:
    """Return a table of a subject's data by task."""
    if not places:
        return plain(f"the vault holds no data of {pseudonym}")
    fields = Counter(place.task_id for place in places)
    tasks = list(dict.fromkeys(place.task_id for place in places))
    table = make_table("TASK", "FIELDS", right=("FIELDS",), whole=("TASK",))
    for task in tasks[:_MAX_TASKS]:
        table.add_row(plain(task, "cyan"), str(fields[task]))
    more = plain(f"and {quantity(len(tasks) - _MAX_TASKS, 'task')} more", "dim") if len(tasks) > _MAX_TASKS else None
    return stack(plain(pseudonym, "bold"), table, more)


def _render_report(report: Erasure) -> RenderableType:
    """Return the result of an erasure."""
    if report.status != _ERASED:
        return plain(f"the vault holds no data of {report.subject}; nothing was erased")
    keys, places = report.removed.get("keys", 0), report.removed.get("places", 0)
    when = f"already at {format_time(report.at)}, by request " if report.repeated else ""
    return stack(
        Text.assemble(("erased", "green"), " ", plain(report.subject, "bold"), plain(f" ({when}{report.request_id})")),
        plain(f"  {quantity(keys, 'key')} destroyed, {quantity(places, 'place')} forgotten"),
        plain(f"  recorded now in {quantity(len(report.task_ids), 'task')}"),
    )
