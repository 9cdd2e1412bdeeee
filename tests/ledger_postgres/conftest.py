"""A real Postgres server for the ledger, with its three roles, on a socket in a temporary folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from baton.client.faces import LocalArtifactStore
from baton.ledger.proof import Checkpoint
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_schema import migrate, open_database
from tests.ledger.material import KEY

WRITER, KEEPER = "baton_writer", "baton_keeper"


@dataclass(frozen=True)
class Urls:
    """The addresses of one database, by role."""

    owner: str
    writer: str
    keeper: str


class Server:
    """A Postgres server in a folder, reached through a socket there.

    Args:
        folder: The folder.
        programs: Where `initdb` and `pg_ctl` are; they refuse to run as root, and then run as nobody.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self._nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._nobody is not None:
            os.chown(folder, self._nobody.pw_uid, self._nobody.pw_gid)

    def make(self) -> None:
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "-D", self.data)

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c shared_buffers=32MB"
        self._run("pg_ctl", "start", "-w", "-D", self.data, "-l", str(self.folder / "log"), "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` cleanly, `immediate` like a crash."""
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", self.data)

    def output(self, program: str, *arguments: str) -> str:
        """Run a client program and return what it prints."""
        return subprocess.run([self.programs / program, *arguments], check=True, capture_output=True, text=True).stdout

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def url(self, database: str, role: str = "postgres") -> str:
        return f"postgresql://{role}@/{database}?host={quote(str(self.folder))}"

    def _run(self, program: str, *arguments: str) -> None:
        result = subprocess.run(
            [str(self.programs / program), *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would be inherited by the server, and never end
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            cwd=self.folder,
            user=self._nobody and self._nobody.pw_uid,
            group=self._nobody and self._nobody.pw_gid,
            extra_groups=self._nobody and [],
        )
        assert result.returncode == 0, f"{program}: {(result.stderr or b'').decode()}"


def programs() -> Path | None:
    """Return the folder of the newest Postgres programs, or None."""
    packaged = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if (folder / "pg_ctl").exists()]
    if packaged:
        return max(packaged, key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("pg_ctl")
    return Path(on_path).parent if on_path else None


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
