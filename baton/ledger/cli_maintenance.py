"""`baton audit migrate`, `checkpoint`, `archive`, and `baton keys rewrap`: what ledger and vault need over time."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from baton.artifacts.store import MemoryArtifactStore
from baton.cli.command import command
from baton.cli.session import Session
from baton.keys.store_keyring import Keyring
from baton.ledger.cli_sources import Keys, LedgerOption, NameOption, ledger_place, opened
from baton.ledger.errors import LedgerError
from baton.ledger.store import Ledger
from baton.ledger.store_anchors import AnchorFile
from baton.ledger.store_archive import FlawedRecordsError, SegmentManifest
from baton.ledger.store_schema import migrate as migrated
from baton.ledger.store_schema import open_database
from baton.personal.cli import DEFAULT_VAULT, VaultOption
from baton.personal.store import Vault
from baton.personal.store_registry import VaultOptions
from baton.wire.text import counted


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
        session.show(f"{counted(made.size, 'record')} under {made.root}{kept}")


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

    It is made of compressed segments in the artifact store; verifying and exporting know them too. The digest of
    the last segment's manifest, which this tells, leads to all of them: keep it.
    """
    if isinstance(session.parts.artifacts, MemoryArtifactStore):
        raise typer.BadParameter(
            "records moved to memory would be lost; name a folder or a bucket", param_hint="--artifacts"
        )
    async with opened(session, ledger, name) as open_ledger:
        with session.progress("moving records"):
            flawed, moved = await _moved(open_ledger, timedelta(days=older_than))
    records = sum(one.records for one in moved)
    last = moved[-1].digest if moved else None
    if session.json:
        segments = [one.model_dump(mode="json") for one in moved]
        session.write_json({"records": records, "segments": segments, "last_manifest": last})
    else:
        session.show(f"{counted(records, 'record')} moved, in {counted(len(moved), 'segment')}")
        if last is not None:
            session.show(f"the last one's manifest is {last}")
    if flawed is not None:
        raise flawed


async def _moved(ledger: Ledger, older_than: timedelta) -> tuple[FlawedRecordsError | None, Sequence[SegmentManifest]]:
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
    file = vault or Path(os.environ.get("BATON_VAULT") or DEFAULT_VAULT)
    async with Vault(file, Keyring.find_out(os.environ), VaultOptions(create=False)) as opened_vault:
        count = await opened_vault.rewrap()
    if session.json:
        session.write_json({"vault": str(file), "rewrapped": count})
    else:
        session.show(f"{file}: {counted(count, 'key')} wrapped again")
