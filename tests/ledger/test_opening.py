"""Opening a database by its address, and what messages show of the address."""

import asyncio
from pathlib import Path

import pytest

from baton.ledger.records import LedgerUnavailableError
from baton.ledger.store import Ledger
from baton.ledger.store_schema import open_database

PASSWORD = "t0psecret"


@pytest.mark.parametrize(
    "rest",
    [
        *(f"//baton:{PASSWORD}{sign}{PASSWORD}@db/ledger" for sign in ("@", "/", "?", "#", "[", "=#", "?x=@", "%%")),
        pytest.param(f"//baton:{PASSWORD}", id="no host"),
        pytest.param(f"baton:{PASSWORD}@db/ledger", id="no slashes"),
        pytest.param(f"/baton:{PASSWORD}@db/ledger", id="one slash"),
        pytest.param(f"//db/ledger?user=baton;password={PASSWORD}", id="another sign between parameters"),
    ],
)
def test_an_unescaped_password_is_neither_parsed_nor_shown(rest: str) -> None:
    """The driver raised an error that quoted a part of it."""
    with pytest.raises(ValueError, match="percent-encoded") as refused:
        open_database(f"postgresql:{rest}")

    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("postgresql://baton:a%23b:c@db.example:5432/ledger?sslmode=require", id="all of it"),
        pytest.param("postgres://baton@/ledger?host=%2Frun%2Fpostgresql", id="a socket"),
        pytest.param("postgresql:///ledger?host=/run&user=baton&password=a@b", id="all but the database by name"),
        pytest.param("postgresql://baton:a@[::1]:5432/ledger", id="an address of version 6"),
        pytest.param("postgresql://baton@db.example/ledger?sslmode=verify-full&channel_binding=require", id="TLS"),
        pytest.param("postgresql://one:5432,two/ledger?target_session_attrs=primary", id="several hosts"),
    ],
)
def test_addresses_of_the_driver_are_accepted(url: str) -> None:
    """Every form in its documentation."""
    assert open_database(url).dialect == "postgresql"


def test_parameters_of_other_drivers_are_refused() -> None:
    """They would be ignored silently, like a misspelt `sslmode`."""
    with pytest.raises(ValueError, match="parameters of libpq"):
        open_database("postgresql://baton@db.example/ledger?sslmod=verify-full")


@pytest.mark.parametrize("name", ["password", "pass%77ord", "sslpassword", "oauth_client_secret", "scram_client_key"])
def test_a_named_secret_is_not_shown(name: str) -> None:
    """It can also be in the query string."""
    database = open_database(f"postgresql://db:5433/ledger?{name}={PASSWORD}&user=baton")
    assert database.where == "host=db port=5433 user=baton dbname=ledger"


async def test_damage_in_the_text_of_the_tables_is_an_error_of_the_ledger(path: Path) -> None:
    """SQLite quotes the damage in its message, which Python cannot decode."""
    async with Ledger(path):
        pass
    damaged = await asyncio.to_thread(path.read_bytes)
    damaged = damaged.replace(b"handoff_audit_no_fork UNIQUE", b"handoff_audit_no_fork \x8eNIQUE")
    await asyncio.to_thread(path.write_bytes, damaged)

    with pytest.raises(LedgerUnavailableError, match="its file is damaged"):
        await Ledger(path).__aenter__()
