"""Ledgers in files, opened for a test."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baton.client.faces import LocalArtifactStore
from baton.ledger.store import Ledger, LedgerOptions
from tests.ledger.material import KEY


@pytest.fixture
def options(tmp_path: Path) -> LedgerOptions:
    """Return options with a signing key and an artifact store."""
    return LedgerOptions(signer=KEY, artifacts=LocalArtifactStore(tmp_path / "artifacts"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "ledger.db"


@pytest.fixture
async def ledger(path: Path, options: LedgerOptions) -> AsyncIterator[Ledger]:
    async with Ledger(path, options) as opened:
        yield opened


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record every statement that SQLite executes."""
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return statements
