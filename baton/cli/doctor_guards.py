"""What `baton doctor` looks at of the safeguards: the keys, and the ledger. Neither is made by looking."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from baton.cli.doctor_checks import Finding, Mark
from baton.cli.session import KEYS_FOLDER
from baton.keys.store_keyring import Keyring, KeyringError, Purpose, is_production
from baton.ledger.cli_sources import ledger_name, ledger_place
from baton.ledger.errors import LedgerError
from baton.ledger.store import Ledger, LedgerOptions

_LEAST_FREE = 100_000_000  # bytes


def keys(environment: Mapping[str, str]) -> Finding:
    """Check that a worker started here would have a current key for each purpose.

    Args:
        environment: The variables that name the keys.
    """
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
        async with Ledger(where, LedgerOptions(name=ledger_name(None), create=False)) as opened:
            if isinstance(where, str):
                await opened.check_writable()
            return Finding("ledger", Mark.OK, f"{opened.where} can be opened")
    except (LedgerError, ValueError) as error:
        return Finding("ledger", Mark.FAIL, str(error), "runs wait until it can be written; BATON_LEDGER names it")


def _of_file(file: Path) -> Finding | None:
    """Return what is to be said of a ledger's file, or None where it is there and has room."""
    if not file.exists():
        return Finding("ledger", Mark.OK, f"none yet; a worker with safeguards that is started here makes {file}")
    if shut := next((one for one in (file, file.parent) if not os.access(one, os.W_OK)), None):
        remedy = "give it to the workers' user: a ledger's file is written, and files beside it"
        return Finding("ledger", Mark.FAIL, f"{shut} cannot be written by this user", remedy)
    free = shutil.disk_usage(file.parent).free
    if free >= _LEAST_FREE:
        return None
    remedy = "make room, or move old records with `baton audit archive`; runs wait while it cannot be written"
    return Finding("ledger", Mark.WARN, f"{file} has {free // 1_000_000} MB left to grow", remedy)
