"""A real Postgres server for the ledger, with its three roles, on a socket in a temporary folder."""

import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from baton.client.faces import LocalArtifactStore
from baton.ledger.proof import Checkpoint
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_schema import migrate, open_database
from benchmarks.postgres import Server as Server
from benchmarks.postgres import programs
from tests.ledger.material import KEY

WRITER, KEEPER = "baton_writer", "baton_keeper"


@dataclass(frozen=True)
class Urls:
    """The addresses of one database, by role."""

    owner: str
    writer: str
    keeper: str


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Return a running Postgres server, or skip the test."""
    where = programs()
    if where is None:
        pytest.skip("there are no programs of Postgres (initdb, pg_ctl): install Postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    started = Server(folder, where)
    started.make()
    started.start()
    try:
        yield started
    finally:
        started.stop("immediate")
        shutil.rmtree(folder)


async def connect(url: str) -> psycopg.AsyncConnection:
    """Return an autocommit connection."""
    return await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None)


async def execute(url: str, *statements: str) -> None:
    """Execute statements, each in its own transaction."""
    async with await connect(url) as connection:
        for statement in statements:
            await connection.execute(statement)


@pytest.fixture
async def urls(server: Server) -> AsyncIterator[Urls]:
    """Return a new database with the ledger's tables and roles."""
    name = f"ledger_{uuid.uuid4().hex}"
    role = "DO $$ BEGIN CREATE ROLE {0} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    await execute(server.url("postgres"), role.format(WRITER), role.format(KEEPER), f"CREATE DATABASE {name}")
    urls = Urls(server.url(name), server.url(name, WRITER), server.url(name, KEEPER))
    await execute(urls.owner, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as Postgres 15 has it from the beginning
    owner = open_database(urls.owner)
    await migrate(owner, writer=WRITER, keeper=KEEPER)
    await owner.close()
    yield urls
    await execute(server.url("postgres"), f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def options(tmp_path: Path) -> LedgerOptions:
    """Return options with a signing key and an artifact store."""
    return LedgerOptions(signer=KEY, artifacts=LocalArtifactStore(tmp_path / "artifacts"))


async def checkpoint(urls: Urls, options: LedgerOptions) -> Checkpoint:
    async with Ledger(urls.keeper, options) as ledger:
        return await ledger.checkpoint()
