"""The ledger in Postgres: chains that do not fork, a server that goes away (§10.3)."""

import asyncio
import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest

from baton.cli import storage_checks as guard_checks
from baton.client.faces import CheckMark as Mark
from baton.ledger.chain import ChainHead, Verdict
from baton.ledger.records import (
    LedgerConflictError,
    LedgerError,
    LedgerUnavailableError,
)
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_database import Connection, scalar
from baton.ledger.store_evidence import verify_bundle
from baton.ledger.store_schema import migrate, open_database
from tests.ledger.material import KEYS, TASK, entry
from tests.ledger_postgres.conftest import WRITER, Server, Urls, checkpoint, connect, execute


class TestConcurrency:
    async def test_sixteen_appenders_on_four_connections_pools_make_chains_without_forks(
        self, urls: Urls, options: LedgerOptions
    ) -> None:
        """4 ledgers as 4 processes have them, 16 appenders, 640 records, 3 chains (T6)."""
        ledgers = [Ledger(urls.writer, options) for _ in range(4)]
        for ledger in ledgers:
            await ledger.__aenter__()

        async def work(writer: int) -> list[ChainHead]:
            return [
                await ledgers[writer % 4].append(
                    entry(number, event_id=f"{writer}-{number}", task_id=f"t-{number % 3}")
                )
                for number in range(40)
            ]

        heads = [head for chain_heads in await asyncio.gather(*map(work, range(16))) for head in chain_heads]
        report = await ledgers[0].verify_all(verifier=KEYS, anchors=heads)
        for ledger in ledgers:
            await ledger.__aexit__(None, None, None)

        assert (report.verdict, report.records, report.tasks) == (Verdict.VALID, 640, 3)
        assert len({(head.task_id, head.sequence) for head in heads}) == 640

    async def test_checkpoints_among_appends_miss_nothing(self, urls: Urls, options: LedgerOptions) -> None:
        """Positions are assigned before commits, so a smaller one can appear later; checkpoints wait for it."""
        async with Ledger(urls.writer, options) as first, Ledger(urls.keeper, options) as second:
            checkpoints = []

            async def work(ledger: Ledger, writer: int) -> None:
                for number in range(25):
                    await ledger.append(entry(number, task_id=f"t-{writer}"))

            async def check() -> None:
                for _ in range(10):
                    checkpoints.append(await second.checkpoint())

            await asyncio.gather(*(work((first, second)[number % 2], number) for number in range(8)), check())
            report = await first.verify_all(verifier=KEYS, checkpoints=checkpoints)

        assert report.verdict in (Verdict.VALID, Verdict.UNANCHORED)
        assert report.records == 200

    async def test_the_same_event_from_many_is_recorded_once(self, urls: Urls, options: LedgerOptions) -> None:
        """Two workers believe that they run the same activity (C-25)."""
        async with Ledger(urls.writer, options) as first, Ledger(urls.writer, options) as second:
            heads = await asyncio.gather(*((first, second)[number % 2].append(entry(0)) for number in range(16)))
            with pytest.raises(LedgerConflictError):
                await second.append(entry(0, message={"number": 99}))

        assert len(set(heads)) == 1

    async def test_a_repeatable_read_default_causes_no_conflict(self, urls: Urls, options: LedgerOptions) -> None:
        """Otherwise a writer that waited for a chain would see its old end, and report a false conflict (C-25)."""
        await execute(
            urls.owner,
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation TO %L', "
            "current_database(), 'repeatable read'); END $$",
        )
        ledgers = [Ledger(urls.writer, options) for _ in range(8)]
        for ledger in ledgers:
            await ledger.__aenter__()

        heads = await asyncio.gather(
            *(
                ledgers[writer].append(entry(number, event_id=f"{writer}-{number}"))
                for writer in range(8)
                for number in range(5)
            )
        )
        report = await ledgers[0].verify(TASK, verifier=KEYS, anchors=heads)
        for ledger in ledgers:
            await ledger.__aexit__(None, None, None)

        assert (report.verdict, report.records) == (Verdict.VALID, 40)

    async def test_workers_that_start_together_name_a_new_ledger_once(self, urls: Urls, options: LedgerOptions) -> None:
        """The others wait for the first, and do not fail."""

        async def start() -> ChainHead:
            async with Ledger(urls.writer, options) as ledger:
                return await ledger.append(entry(0))

        async with await connect(urls.owner) as connection, connection.transaction():
            await connection.execute("INSERT INTO handoff_audit_ledger VALUES (1, 'baton')")
            starting = asyncio.create_task(start())
            while not (await connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted")).rowcount:
                assert not starting.done()

        assert (await starting).sequence == 1


class TestAsOne:
    async def test_a_bundle_of_a_postgres_ledger_verifies(
        self, urls: Urls, options: LedgerOptions, tmp_path: Path
    ) -> None:
        """Evidence files do not depend on the database (S3-10.3-b)."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append_all([entry(number) for number in range(4)])
            kept_checkpoint = await checkpoint(urls, options)
            await ledger.export(tmp_path / "b.zst")

        assert verify_bundle(tmp_path / "b.zst", verifier=KEYS, checkpoints=[kept_checkpoint])

    async def test_a_ledger_keeps_its_name(self, urls: Urls, options: LedgerOptions) -> None:
        """The name is in the database."""
        async with Ledger(urls.writer, options):
            pass
        with pytest.raises(LedgerError, match="is named 'baton'"):
            async with Ledger(urls.writer, LedgerOptions(name="test")):
                pass


class TestUnavailable:
    async def test_appends_fail_during_an_outage_and_work_after_it(
        self, server: Server, urls: Urls, options: LedgerOptions
    ) -> None:
        """Acknowledged records exist, and survive a crash (S3-11-f, F13, P9)."""
        async with Ledger(urls.writer, options) as ledger:
            heads = [await ledger.append(entry(number)) for number in range(5)]
            await asyncio.to_thread(server.stop, "immediate")
            with pytest.raises(LedgerUnavailableError, match="nothing was recorded"):
                await ledger.append(entry(5))
            with pytest.raises(LedgerUnavailableError, match="check the database, and the rights to read it"):
                await ledger.newest(1)
            await asyncio.to_thread(server.start)

            heads.append(await ledger.append(entry(5)))

            assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)
            assert heads[-1].sequence == 6

    async def test_connections_closed_by_the_server_are_replaced(self, urls: Urls, options: LedgerOptions) -> None:
        """A firewall or failover closes idle connections; no handoff fails."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append(entry(0))
            await execute(
                urls.owner,
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE application_name = 'baton-ledger' AND datname = current_database()",
            )

            assert (await ledger.append(entry(1))).sequence == 2
            assert await ledger.head(TASK) is not None

    async def test_a_repeatedly_lost_connection_is_an_outage(self, urls: Urls) -> None:
        """Each transaction is retried once on a new connection, not forever."""
        tries = []

        def work(connection: Connection) -> None:
            tries.append(scalar(connection, "SELECT pg_backend_pid()"))
            if len(tries) > 1:
                connection.rows("SELECT pg_terminate_backend(pg_backend_pid())")

        database = open_database(urls.writer)
        await database.write(work)
        with pytest.raises(LedgerUnavailableError, match="terminating connection"):
            await database.write(work)
        await database.close()
        assert tries[0] == tries[1] != tries[2]
        assert len(tries) == 3

    async def test_a_connection_whose_server_hangs_is_replaced(
        self, urls: Urls, options: LedgerOptions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A hanging server enforces no timeout, so the client must."""
        monkeypatch.setattr("baton.ledger.store_postgres._ANSWER_SECONDS", 3)
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append(entry(0))
            async with await connect(urls.owner) as owner:
                query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'baton-ledger' AND usename = %s"
                pids = [pid for (pid,) in await (await owner.execute(query, [WRITER])).fetchall()]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                assert (await ledger.append(entry(1))).sequence == 2
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)

    async def test_a_stale_position_sequence_is_an_outage(self, urls: Urls, options: LedgerOptions) -> None:
        """A logical replica has the records but not the sequence, which is not a handoff's fault."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append_all([entry(number) for number in range(4)])
            await execute(urls.owner, "SELECT setval('handoff_audit_position_seq', 1)")
            with pytest.raises(LedgerUnavailableError, match="its owner corrects it with SELECT setval") as caught:
                await ledger.append(entry(4))
            await execute(urls.owner, str(caught.value).partition("corrects it with ")[2])

            assert (await ledger.append(entry(4))).sequence == 5

    async def test_revoked_rights_are_an_outage(self, urls: Urls, options: LedgerOptions) -> None:
        """Runs wait, and a finished stage does not run again."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append(entry(0))
            await execute(urls.owner, f"REVOKE INSERT ON handoff_audit FROM {WRITER}")
            with pytest.raises(LedgerUnavailableError, match=r"permission denied.*`baton audit migrate --writer"):
                await ledger.append(entry(1))
            await execute(urls.owner, f"GRANT INSERT ON handoff_audit TO {WRITER}")

            assert (await ledger.append(entry(1))).sequence == 2

    @pytest.mark.parametrize(
        ("spoil", "reason"),
        [
            pytest.param(
                "EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only TO on', current_database())",
                "read-only transaction",
                id="a server that only reads, as a standby does",
            ),
            pytest.param(
                f"REVOKE INSERT ON ALL TABLES IN SCHEMA public FROM {WRITER}", "permission denied", id="a reader"
            ),
        ],
    )
    async def test_a_worker_does_not_start_with_a_read_only_ledger(
        self,
        urls: Urls,
        options: LedgerOptions,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        spoil: str,
        reason: str,
    ) -> None:
        """It would accept stages and fail each without a record; doctor reports it, and auditors can still read."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append(entry(0))
        await execute(urls.owner, f"DO $$ BEGIN {spoil}; END $$")

        with pytest.raises(LedgerUnavailableError, match=reason):
            async with Ledger(urls.writer, options):
                pass
        monkeypatch.setenv("BATON_LEDGER", urls.writer)
        monkeypatch.chdir(tmp_path)  # where no keys are
        findings = await guard_checks.check_ledger()
        assert (findings.mark, reason in findings.found) == (Mark.FAIL, True)
        async with Ledger(urls.writer, LedgerOptions(create=False)) as auditors:
            assert (await auditors.verify_all(verifier=KEYS)).records == 1

    async def test_doctor_reports_a_ledger_cut_below_its_own_checkpoint(
        self, urls: Urls, options: LedgerOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Without a file beside it that knows more."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append_all([entry(0), entry(1)])
        await checkpoint(urls, options)
        monkeypatch.setenv("BATON_LEDGER", urls.writer)
        monkeypatch.chdir(tmp_path)
        intact = await guard_checks.check_ledger()
        await execute(
            urls.owner,
            "ALTER TABLE handoff_audit DISABLE TRIGGER USER; ALTER TABLE handoff_audit_content DISABLE TRIGGER USER; "
            "DELETE FROM handoff_audit_content WHERE position = 2; DELETE FROM handoff_audit WHERE position = 2",
        )
        cut = await guard_checks.check_ledger()

        assert [finding.mark for finding in (intact, cut)] == [Mark.OK, Mark.FAIL]

    async def test_connecting_to_a_hanging_server_times_out(self) -> None:
        """The address can set the timeout."""
        # A folder whose name is short enough for a socket's.
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as silent:
            silent.bind(f"{folder}/.s.PGSQL.5432")
            silent.listen()
            with pytest.raises(LedgerUnavailableError, match="connection timeout expired; check"):
                async with Ledger(f"postgresql://baton@/ledger?host={folder}&connect_timeout=2"):
                    pass

    async def test_migrating_an_unreachable_database_does_not_suggest_appending(self, tmp_path: Path) -> None:
        """A misspelt database, or a wrong password, in the command of its owner."""
        database = open_database(f"postgresql://baton@/ledger?host={tmp_path}")
        with pytest.raises(LedgerUnavailableError, match="check the database") as caught:
            await migrate(database)
        await database.close()
        assert "append" not in str(caught.value)

    async def test_an_unreachable_server_is_named_without_its_password(self, tmp_path: Path) -> None:
        """The message names the place and the remedy."""
        with pytest.raises(LedgerUnavailableError, match="cannot be used") as caught:
            async with Ledger(f"postgresql://baton:secret@/ledger?host={tmp_path}"):
                pass
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("role", "remedy"),
        [
            pytest.param("postgres", "check the database, and the rights to read it", id="the database is gone"),
            pytest.param("baton_nobody", "with `baton audit migrate --writer", id="the role may not read"),
        ],
    )
    async def test_a_failed_read_does_not_suggest_appending(
        self, server: Server, urls: Urls, options: LedgerOptions, role: str, remedy: str
    ) -> None:
        """The error has the remedy for reading."""
        await execute(server.url("postgres"), "DROP ROLE IF EXISTS baton_nobody", "CREATE ROLE baton_nobody LOGIN")
        database = urls.owner.replace("/ledger_", "/gone_") if role == "postgres" else urls.owner
        with pytest.raises(LedgerError) as caught:
            async with Ledger(database.replace("postgres@", f"{role}@"), options):
                pass
        assert "append" not in str(caught.value)
        assert remedy in str(caught.value)
