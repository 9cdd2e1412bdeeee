"""The roles of a ledger in Postgres: their rights, and how the owner grants them (§10.3)."""

import asyncio
from datetime import timedelta
from importlib import resources

import pytest

from baton.ledger.chain import Flaw, Verdict
from baton.ledger.records import (
    LedgerError,
    LedgerSchemaError,
)
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_schema import TABLES, VERSION_TABLE, VERSIONS, migrate, open_database, revision
from tests.ledger.material import KEYS, TASK, entry
from tests.ledger.proving import named
from tests.ledger_postgres.conftest import KEEPER, WRITER, Server, Urls, checkpoint, execute

ROW = "task_id, 9, previous_hash, record_hash, event_key, message_hash, recorded_at FROM handoff_audit"
COLUMNS = "(task_id, sequence, previous_hash, record_hash, event_key, message_hash, recorded_at)"

ATTEMPTS = [
    *(pytest.param(f"DELETE FROM {name}", id=f"delete from {name}") for name in TABLES),
    *(pytest.param(f"TRUNCATE {name} CASCADE", id=f"truncate {name}") for name in TABLES),
    pytest.param("UPDATE handoff_audit SET signature = NULL", id="update the index"),
    pytest.param("UPDATE handoff_audit_content SET bytes = ''", id="update the content"),
    pytest.param("UPDATE handoff_audit_ledger SET name = 'x'", id="rename the ledger"),
    pytest.param("UPDATE handoff_audit_checkpoint SET digest = ''", id="update a checkpoint"),
    pytest.param(
        "INSERT INTO handoff_audit_content SELECT position, codec, '' FROM handoff_audit_content "
        "ON CONFLICT (position, month) DO UPDATE SET bytes = ''",
        id="upsert the content",
    ),
]
ONLY_THE_WRITER = [
    pytest.param("DROP TABLE handoff_audit CASCADE", id="drop the table"),
    pytest.param("ALTER TABLE handoff_audit DISABLE TRIGGER ALL", id="disable the triggers"),
    pytest.param("DROP TRIGGER handoff_audit_no_change ON handoff_audit", id="drop a trigger"),
    pytest.param(f"UPDATE {VERSION_TABLE} SET version_num = '2'", id="change the revision"),
    pytest.param("INSERT INTO handoff_audit_segment VALUES (1, 99, 1, 'x', 'x')", id="pretend that records are cold"),
    pytest.param("SET session_replication_role = replica", id="switch triggers off for the session"),
    pytest.param("INSERT INTO handoff_audit_checkpoint VALUES (9, 9, '', '', 'x')", id="make a checkpoint"),
    pytest.param(
        f"INSERT INTO handoff_audit (position, {COLUMNS[1:]} OVERRIDING SYSTEM VALUE SELECT -1, {ROW}",
        id="stand before older records",
    ),
    pytest.param("SELECT setval('handoff_audit_position_seq', 1)", id="set the next position"),
]
FORKS = [
    pytest.param(f"INSERT INTO handoff_audit {COLUMNS} SELECT {ROW}", id="two records after one"),
    pytest.param(
        f"INSERT INTO handoff_audit {COLUMNS} SELECT "
        + ROW.replace("9, previous_hash", "sequence, sha256(record_hash)"),
        id="two records of one number",
    ),
    pytest.param(
        f"INSERT INTO handoff_audit {COLUMNS} SELECT {ROW.replace('previous_hash', 'sha256(record_hash)')}",
        id="an event twice",
    ),
    pytest.param(
        f"INSERT INTO handoff_audit {COLUMNS} SELECT "
        + ROW.replace("9, previous_hash", "9, ''").replace("event_key", "'x'"),
        id="a hash that is none",
    ),
]


class TestRoles:
    @pytest.mark.parametrize("statement", [*ATTEMPTS, *ONLY_THE_WRITER])
    async def test_the_writer_can_only_append_and_read(
        self, urls: Urls, options: LedgerOptions, statement: str
    ) -> None:
        """Stolen credentials of a worker do not change old records (S3-10.3-c, S3-6.2-g)."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append_all([entry(0), entry(1)])
            await checkpoint(urls, options)

            with pytest.raises(Exception, match=r"permission denied|must be owner"):
                await execute(urls.writer, statement)

            assert (await ledger.verify_all(verifier=KEYS)).checkpointed_through == 2

    @pytest.mark.parametrize("statement", ATTEMPTS)
    async def test_triggers_stop_the_owner_too(self, urls: Urls, options: LedgerOptions, statement: str) -> None:
        """The triggers refuse updates, deletes and truncation for every role (S3-6.2-g)."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append_all([entry(0), entry(1)])
            await checkpoint(urls, options)
            await execute(urls.owner, "INSERT INTO handoff_audit_segment VALUES (100, 200, 1, 'x', 'x')")

            with pytest.raises(Exception, match="append-only"):
                await execute(urls.owner, statement)

            assert (await ledger.verify_all(verifier=KEYS)).records == 2

    @pytest.mark.parametrize("statement", FORKS)
    async def test_constraints_prevent_forks(self, urls: Urls, options: LedgerOptions, statement: str) -> None:
        """The constraints apply to every role that can insert (C-26)."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append(entry(0))

            with pytest.raises(Exception, match=r"constraint|does not continue"):
                await execute(urls.writer, statement)

    async def test_only_the_keeper_moves_records(self, urls: Urls, options: LedgerOptions) -> None:
        """Only the keeper deletes bytes, and only after registering their segment (S3-9-g)."""
        async with Ledger(urls.writer, options) as ledger:
            heads = await ledger.append_all([entry(number) for number in range(5)])
            with pytest.raises(LedgerError, match=r"permission denied.* `archive` that of its keeper"):
                await ledger.move_to_cold(timedelta(0))
            with pytest.raises(Exception, match="append-only"):
                await execute(urls.keeper, "DELETE FROM handoff_audit_content")
            with pytest.raises(Exception, match="permission denied"):
                await execute(urls.keeper, "DELETE FROM handoff_audit")

            async with Ledger(urls.keeper, options) as keeper:
                [moved] = await keeper.move_to_cold(timedelta(0))

            assert moved.records == 5
            assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)
            assert (await ledger.append(entry(5))).sequence == 6

    async def test_the_keepers_temporary_tables_are_ignored(self, urls: Urls, options: LedgerOptions) -> None:
        """A temporary table named like the segments' table must not let it delete bytes (S3-6.2-g)."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append(entry(0))
            with pytest.raises(Exception, match="append-only"):
                await execute(
                    urls.keeper,
                    "CREATE TEMPORARY TABLE handoff_audit_segment AS SELECT 0 first_position, 9 last_position",
                    "DELETE FROM handoff_audit_content",
                )

            assert (await ledger.verify(TASK, verifier=KEYS)).signed_through == 1

    async def test_moved_records_get_no_new_bytes(self, urls: Urls, options: LedgerOptions) -> None:
        """The hot tier is read first, so new bytes would change old records (S3-10.3-c)."""
        async with Ledger(urls.writer, options) as ledger:
            await ledger.append(entry(0))
            async with Ledger(urls.keeper, options) as keeper:
                await keeper.move_to_cold(timedelta(0))
            with pytest.raises(Exception, match="append-only"):
                await execute(
                    urls.writer, "INSERT INTO handoff_audit_content SELECT position, 0, '' FROM handoff_audit"
                )
            await ledger.append(entry(1))

            assert (await ledger.verify(TASK, verifier=KEYS)).records == 2

    async def test_anchors_reveal_changes_by_the_owner(self, urls: Urls, options: LedgerOptions) -> None:
        """With triggers off and rows deleted, anchors outside reveal it (P2, P3)."""
        async with Ledger(urls.writer, options) as ledger:
            heads = [await ledger.append(entry(number)) for number in range(4)]
            kept_checkpoint = await checkpoint(urls, options)
            await execute(
                urls.owner,
                "ALTER TABLE handoff_audit DISABLE TRIGGER ALL",
                "ALTER TABLE handoff_audit_content DISABLE TRIGGER ALL",
                "DELETE FROM handoff_audit_content WHERE position > 2",
                "DELETE FROM handoff_audit WHERE sequence > 2",
            )

            chain = await ledger.verify(TASK, verifier=KEYS, anchors=heads)
            ledger_report = await ledger.verify_all(verifier=KEYS, checkpoints=[kept_checkpoint])

        assert named(chain) == (Verdict.INVALID, 3, Flaw.TRUNCATED)
        assert ledger_report.verdict is Verdict.INVALID


class TestMigrate:
    async def test_a_database_without_tables_is_not_a_ledger(self, server: Server) -> None:
        """A worker does not migrate, and the error names the command."""
        with pytest.raises(LedgerSchemaError, match="create them with `baton audit migrate`"):
            async with Ledger(server.url("postgres")):
                pass

    async def test_concurrent_migrations_wait_for_each_other(self, urls: Urls) -> None:
        """Deployments that start together wait for each other."""
        databases = [open_database(urls.owner) for _ in range(4)]

        await asyncio.gather(*(migrate(database) for database in databases))

        assert {await revision(database) for database in databases} == {VERSIONS["postgresql"]}
        await asyncio.gather(*(database.close() for database in databases))

    async def test_an_administrator_can_run_the_file(self, server: Server, urls: Urls) -> None:
        """`psql` makes the same tables, triggers and rights of it as `baton audit migrate`."""
        roles = ("-v", f"writer={WRITER}", "-v", f"keeper={KEEPER}")
        await execute(server.url("postgres"), "CREATE DATABASE by_hand")
        await execute(by_hand := server.url("by_hand"), "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        tables = str(resources.files("baton.ledger").joinpath("postgres.sql"))

        await asyncio.to_thread(server.output, "psql", by_hand, "-v", "ON_ERROR_STOP=1", *roles, "-f", tables)

        dumps = [await asyncio.to_thread(server.output, "pg_dump", "-s", url) for url in (by_hand, urls.owner)]
        made, migrated = ([line for line in dump.splitlines() if line[:1] not in "-\\"] for dump in dumps)
        assert made == migrated
        assert len(made) > 100
        await execute(server.url("postgres"), "DROP DATABASE by_hand")

    async def test_only_the_owner_can_grant_rights(self, urls: Urls) -> None:
        """Another role gets an error that names the owner, not a success without effect."""
        writer = open_database(urls.writer)

        with pytest.raises(LedgerError, match="only its owner can grant rights; migrate as postgres"):
            await migrate(writer, keeper="baton_keeper")

        await migrate(writer)  # nothing is to do, and nothing to give
        await writer.close()

    @pytest.mark.parametrize(
        "gives",
        [
            pytest.param("ALTER ROLE baton_other SUPERUSER", id="a superuser"),
            pytest.param("GRANT baton_group TO baton_other", id="a member of its owner"),
            pytest.param("GRANT DELETE ON handoff_audit_content TO PUBLIC", id="by what everybody may"),
        ],
    )
    async def test_a_role_with_other_rights_is_refused(self, server: Server, urls: Urls, gives: str) -> None:
        """Otherwise the owner would believe that workers can only insert and select."""
        roles = ("baton_other", "baton_group")
        await execute(server.url("postgres"), *(f"DROP ROLE IF EXISTS {name}" for name in roles))
        await execute(urls.owner, *(f"CREATE ROLE {name}" for name in roles))
        await execute(urls.owner, "ALTER TABLE handoff_audit OWNER TO baton_group", gives)
        owner = open_database(urls.owner)
        with pytest.raises(LedgerError, match=r"'baton_other' may change the table .* use a dedicated role"):
            await migrate(owner, writer="baton_other")
        await owner.close()
        await execute(
            urls.owner, "ALTER TABLE handoff_audit OWNER TO postgres", *(f"DROP ROLE {name}" for name in roles)
        )

    async def test_a_role_that_can_create_objects_in_the_schema_is_refused(self, urls: Urls) -> None:
        """The default before Postgres 15; a function that the owner calls by mistake would run as the owner."""
        await execute(urls.owner, "GRANT CREATE ON SCHEMA public TO PUBLIC")
        owner = open_database(urls.owner)
        with pytest.raises(LedgerError, match="first REVOKE CREATE ON SCHEMA public FROM PUBLIC"):
            await migrate(owner, writer=WRITER)
        await owner.close()

    async def test_default_privileges_are_revoked(self, urls: Urls) -> None:
        """Default privileges can include the position sequence."""
        await execute(urls.owner, f"GRANT ALL ON SEQUENCE handoff_audit_position_seq TO {WRITER}")
        owner = open_database(urls.owner)
        await migrate(owner, writer=WRITER)
        await owner.close()

        with pytest.raises(Exception, match="permission denied"):
            await execute(urls.writer, "SELECT setval('handoff_audit_position_seq', 1)")

    async def test_writer_and_keeper_must_differ(self, urls: Urls) -> None:
        """Otherwise the workers' credentials could delete bytes."""
        owner = open_database(urls.owner)
        with pytest.raises(ValueError, match="cannot be both writer and keeper"):
            await migrate(owner, writer=WRITER, keeper=WRITER)
        await owner.close()

    async def test_a_missing_role_is_named(self, urls: Urls) -> None:
        """A misspelt role is not reported as an outage."""
        owner = open_database(urls.owner)

        with pytest.raises(LedgerError, match=r'refused: role "baton_writerr" does not exist$'):
            await migrate(owner, writer="baton_writerr")

        await owner.close()

    @pytest.mark.parametrize("role", ["x; DROP TABLE handoff_audit", 'x"', "X", ""])
    async def test_a_malformed_role_name_is_refused(self, urls: Urls, role: str) -> None:
        """It becomes part of a statement."""
        owner = open_database(urls.owner)
        with pytest.raises(ValueError, match="name of a role"):
            await migrate(owner, writer=role)
        await owner.close()
