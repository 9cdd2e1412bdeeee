"""What `baton doctor` looks at of the safeguards: the keys, and the ledger. Neither is made by looking."""

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from temporalio.client import Client

from baton.cli.doctor_checks import Finding, Mark, no_room
from baton.cli.session import KEYS_FOLDER
from baton.errors import BatonError, HistoryError
from baton.keys.store_keyring import Keyring, KeyringError, Purpose, is_production
from baton.ledger.chain import ChainHead, HeadSigner
from baton.ledger.cli_sources import Keys, ledger_name, ledger_place
from baton.ledger.records import LedgerError, LedgerKeysError
from baton.ledger.store import Ledger, LedgerOptions
from baton.runs.client_list import RunFilter, list_runs
from baton.runs.client_reader import read_run
from baton.wire.text import counted

_LEAST_FREE = 100_000_000  # bytes
_RUNS_READ = 5


def keys(environment: Mapping[str, str]) -> Finding:
    """Check that a worker started here would have a current key for each purpose."""
    try:
        if not (is_production(environment) or Keyring.is_at_hand(environment, KEYS_FOLDER)):
            made = f"a worker with safeguards that is started here makes some in {KEYS_FOLDER}"
            return Finding("keys", Mark.OK, f"none yet; {made}")
        ring = Keyring.find_out(environment, KEYS_FOLDER)
        for purpose in Purpose:
            ring.current(purpose)
    except KeyringError as error:
        return Finding("keys", Mark.FAIL, str(error))
    if ring.is_development:
        return Finding("keys", Mark.OK, "those of a developer's machine; BATON_ENV=production refuses them")
    return Finding("keys", Mark.OK, "a current one for each purpose")


async def ledger() -> Finding:
    """Check that the ledger that the environment names can be opened and written, and is of this release."""
    where = ledger_place(None)
    if isinstance(where, Path) and (found := _of_file(where)):
        return found
    try:
        options = LedgerOptions(name=ledger_name(None), signer=_signer(), create=False)
        async with Ledger(where, options) as opened:
            if isinstance(where, str):
                await opened.check_writable()
            return Finding("ledger", Mark.OK, f"{opened.where} can be opened")
    except LedgerKeysError as error:
        return Finding("ledger", Mark.FAIL, str(error), "set BATON_KEYS to the keyring that the other workers have")
    except (LedgerError, ValueError) as error:
        return Finding("ledger", Mark.FAIL, str(error), "runs wait until it can be written; BATON_LEDGER names it")


async def records(client: Client) -> Finding:
    """Check that the ledger has the records for which the newest run on record got receipts."""
    check, where = "ledger records", ledger_place(None)
    for listed in await list_runs(client, RunFilter(children=True), _RUNS_READ):
        try:
            run = await read_run(client, listed.workflow_id, listed.run_id)
        except HistoryError:
            continue
        if not run.anchors or run.task_id is None:
            continue
        last = ChainHead.from_anchor(ledger_name(None), run.task_id, run.anchors[-1])
        remedy = "restore the ledger from its backup, or name the workers' one with BATON_LEDGER"
        if isinstance(where, Path) and not where.exists():
            mark = Mark.FAIL if os.environ.get("BATON_LEDGER") else Mark.WARN
            found = f"there is no {where}, but {listed.workflow_id!r} is on record: it was deleted, or is elsewhere"
            return Finding(check, mark, found, remedy)
        try:
            async with Ledger(where, LedgerOptions(name=ledger_name(None), create=False)) as opened:
                head = await opened.head(run.task_id)
        except (LedgerError, ValueError):
            return Finding(check, Mark.WARN, "not checked: the ledger cannot be opened")
        if head is None or head.sequence < last.sequence:
            has = head.sequence if head else 0
            found = f"of {listed.workflow_id!r} it has {has} of at least {counted(last.sequence, 'record')}"
            return Finding(check, Mark.FAIL, found, remedy)
        return Finding(check, Mark.OK, f"those of {listed.workflow_id!r} are there")
    return Finding(check, Mark.OK, "no run here is on record")


def _signer() -> HeadSigner | None:
    """Return what a worker started here would sign with; what is wrong with the keys is a finding of its own."""
    with contextlib.suppress(BatonError):
        return Keys.of(None).signer
    return None


def _of_file(file: Path) -> Finding | None:
    """Return what is to be said of a ledger's file, or None where it is there and has room."""
    if not file.exists():
        return Finding("ledger", Mark.OK, f"none yet; a worker with safeguards that is started here makes {file}")
    if shut := next((one for one in (file, file.parent) if not os.access(one, os.W_OK)), None):
        remedy = "give it to the workers' user: a ledger's file is written, and files beside it"
        return Finding("ledger", Mark.FAIL, f"{shut} cannot be written by this user", remedy)
    remedy = "make room, or move old records with `baton audit archive`; runs wait while it cannot be written"
    if full := no_room(file.parent):
        return Finding("ledger", Mark.FAIL, full, remedy)
    free = shutil.disk_usage(file.parent).free
    if free >= _LEAST_FREE:
        return None
    return Finding("ledger", Mark.WARN, f"{file} has {free // 1_000_000} MB left to grow", remedy)
