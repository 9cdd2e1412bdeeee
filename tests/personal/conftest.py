"""Vaults and ledgers in files, opened for a test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from baton.keys.store_keyring import Keyring
from baton.ledger.store import Ledger, LedgerOptions
from baton.personal.records import SEALED_ONLY
from baton.personal.store import Vault, VaultOptions


@pytest.fixture
def keyring() -> Keyring:
    return Keyring.generate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vault" / "vault.db"


@pytest.fixture
async def ledger(tmp_path: Path, keyring: Keyring) -> AsyncIterator[Ledger]:
    options = LedgerOptions(signer=keyring.signer(), policy=SEALED_ONLY)
    async with Ledger(tmp_path / "ledger" / "ledger.db", options) as opened:
        yield opened


@pytest.fixture
async def vault(path: Path, keyring: Keyring, ledger: Ledger) -> AsyncIterator[Vault]:
    """Return an empty vault that records in the ledger."""
    async with Vault(path, keyring, VaultOptions(ledger=ledger)) as opened:
        yield opened
