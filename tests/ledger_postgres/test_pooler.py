"""The ledger in Postgres behind PgBouncer, which assigns connections per transaction."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from baton.ledger.chain import Verdict
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_database import Connection, scalar
from baton.ledger.store_schema import open_database
from tests.ledger.material import KEYS, TASK, entry
from tests.ledger_postgres.conftest import KEEPER, WRITER, Server, Urls, connect, execute

PORT = 6432
SETTINGS = ("synchronous_commit", "idle_in_transaction_session_timeout")


class Pooler:
    """PgBouncer in a folder of its own, reached through a socket there.

    Args:
        program: Where it is.
        folder: The folder.
        server: The server behind it.
        ignored: The settings of a session that it passes over in silence; it refuses others.
    """

    def __init__(self, program: str, folder: Path, server: Server, ignored: str) -> None:
        self._folder = folder
        users = "".join(f'"{role}" ""\n' for role in ("postgres", WRITER, KEEPER))
        (folder / "users").write_text(users)
        (folder / "settings").write_text(
            f"[databases]\n* = host={server.folder}\n[pgbouncer]\npool_mode = transaction\nlisten_addr =\n"
            f"listen_port = {PORT}\nunix_socket_dir = {folder}\nauth_type = trust\nauth_file = {folder}/users\n"
            f"logfile = {folder}/log\nignore_startup_parameters = {ignored}\n"
        )
        nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
        if nobody is not None:
            for path in (folder, *folder.iterdir()):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        self.process = subprocess.Popen(
            [program, str(folder / "settings")],
            stderr=subprocess.DEVNULL,
            user=nobody and nobody.pw_uid,
            group=nobody and nobody.pw_gid,
            extra_groups=nobody and [],
        )

    async def answers(self) -> None:
        async with asyncio.timeout(60):
            while not (self._folder / f".s.PGSQL.{PORT}").exists():
                assert self.process.poll() is None, (self._folder / "log").read_text()
                await asyncio.sleep(0.02)

    def before(self, url: str) -> str:
        """Return the address of a database through this pooler."""
        there = urlsplit(url)
        return f"postgresql://{there.username}@{there.path}?host={self._folder}&port={PORT}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose name is short enough for a socket's."""
    folder = Path(tempfile.mkdtemp(prefix="pgb-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["", ", ".join(SETTINGS)], ids=["as it is installed", "that passes over settings"])
async def pooler(request: pytest.FixtureRequest, server: Server, folder: Path) -> AsyncIterator[Pooler]:
    """Return a pooler for the server, or skip the test."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no PgBouncer: install pgbouncer")
    running = Pooler(program, folder, server, request.param)
    await running.answers()
    yield running
    running.process.kill()
    running.process.wait()


async def test_each_transaction_can_use_another_connection(pooler: Pooler, urls: Urls, options: LedgerOptions) -> None:
    """A statement prepared in one transaction is missing in the next, so none is prepared."""
    async with Ledger(pooler.before(urls.writer), options) as ledger:
        heads = [await ledger.append(entry(0))]
        async with await connect(pooler.before(urls.writer)) as connection:
            async with connection.transaction():  # it holds the one connection that there is by now
                await connection.execute("SELECT 1")
                heads.append(await ledger.append(entry(1)))
            heads.append(await ledger.append(entry(2)))

        assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)
        assert [head.sequence for head in heads] == [1, 2, 3]


async def test_writers_make_chains_without_forks(pooler: Pooler, urls: Urls, options: LedgerOptions) -> None:
    """Locks and transactions work through a pooler (T6)."""
    ledgers = [Ledger(pooler.before(url), options) for url in (urls.writer, urls.writer, urls.keeper)]
    for ledger in ledgers:
        await ledger.__aenter__()

    async def work(writer: int) -> None:
        for number in range(10):
            await ledgers[writer % 3].append(entry(number, event_id=f"{writer}-{number}", task_id=f"t-{number % 3}"))

    await asyncio.gather(*map(work, range(12)))
    checkpoint = await ledgers[2].checkpoint()
    report = await ledgers[0].verify_all(verifier=KEYS, checkpoints=[checkpoint])
    for ledger in ledgers:
        await ledger.__aexit__(None, None, None)

    assert (report.verdict, report.records, report.tasks) == (Verdict.VALID, 120, 3)


async def test_transactions_override_the_servers_defaults(pooler: Pooler, urls: Urls) -> None:
    """Acknowledged records are durable, and a writer that waited for a lock sees what was committed meanwhile."""
    name = urlsplit(urls.owner).path.strip("/")
    defaults = "synchronous_commit TO off", "default_transaction_isolation TO 'serializable'"
    await execute(urls.owner, *(f"ALTER DATABASE {name} SET {setting}" for setting in defaults))

    def shown(connection: Connection) -> list[str]:
        names = ("transaction_isolation", "statement_timeout", *SETTINGS)
        return [scalar(connection, f"SHOW {name}") for name in names]

    database = open_database(pooler.before(urls.writer))
    settings = await database.write(shown)
    await database.close()

    assert settings == ["read committed", "15s", "on", "15s"]
