"""The tables: created once, and append-only for everyone but their owner."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from baton.ledger.records import LedgerError, LedgerSchemaError
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_database import Database
from baton.ledger.store_schema import TABLES, VERSION_TABLE, VERSIONS, migrate, open_database, revision
from tests.ledger.material import entry
from tests.support.processes import started

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    opened = open_database(path)
    yield opened
    await opened.close()


def dump(path: Path) -> str:
    """Return the content of an SQLite file as SQL."""
    connection = sqlite3.connect(path)
    dumped = "\n".join(connection.iterdump())
    connection.close()
    return dumped


class TestMigrate:
    async def test_a_new_ledger_has_every_table(self, path: Path, database: Database) -> None:
        """It also has the revision."""
        await migrate(database)

        assert [name for name in (*TABLES, VERSION_TABLE) if f"CREATE TABLE {name} " not in dump(path)] == []
        assert await revision(database) == VERSIONS["sqlite"]

    async def test_migrating_again_changes_nothing(self, ledger: Ledger, path: Path, database: Database) -> None:
        """It is idempotent, also with records."""
        await ledger.append(entry(0))
        tables = dump(path)

        await migrate(database)

        assert dump(path) == tables

    async def test_a_ledger_of_another_revision_is_left_alone(self, path: Path, database: Database) -> None:
        """Both a worker and an auditor refuse it."""
        await migrate(database)
        await database.write(lambda c: c.rows(f"UPDATE {VERSION_TABLE} SET version_num = '0'"))

        for create in (True, False):
            with pytest.raises(LedgerSchemaError, match="revision '0'"):
                async with Ledger(path, LedgerOptions(create=create)):
                    pass
        assert await revision(database) == "0"

    async def test_an_emptied_file_is_an_error_for_an_auditor(self, path: Path, database: Database) -> None:
        """The error does not blame the version: the records, or the log beside the file, are gone."""
        await migrate(database)
        await database.close()
        os.truncate(path, 0)

        with pytest.raises(
            LedgerSchemaError, match=r"no tables; open it with a worker .* or restore it with all of its files"
        ):
            async with Ledger(path, LedgerOptions(create=False)):
                pass

    async def test_a_newer_ledger_is_refused(self, path: Path, database: Database) -> None:
        """An old Baton does not change a newer ledger."""
        await migrate(database)
        await database.write(lambda c: c.rows(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))

        with pytest.raises(LedgerSchemaError, match="9999"):
            async with Ledger(path):
                pass

    async def test_roles_belong_to_postgres(self, database: Database) -> None:
        """A file has no roles, and asking for one is an error."""
        with pytest.raises(LedgerError, match="only Postgres has roles"):
            await migrate(database, writer="baton_writer")

    @pytest.mark.slow
    async def test_many_processes_can_migrate_concurrently(self, path: Path) -> None:
        """The first processes to open a new ledger do not conflict."""
        processes = [started("tests.ledger.appender", str(path), "p", "1", "1") for _ in range(6)]

        outputs = await asyncio.gather(*(asyncio.to_thread(process.communicate) for process in processes))

        assert len({output for output, _ in outputs}) == 1
        assert outputs[0][0].startswith("acknowledged")


ROW = "SELECT position, task_id, sequence, previous_hash, record_hash, event_key, message_hash, recorded_at, key_id, signature FROM handoff_audit"  # noqa: E501

ATTEMPTS = [
    *(pytest.param(f"DELETE FROM {name}", id=f"delete from {name}") for name in TABLES),
    pytest.param("UPDATE handoff_audit_ledger SET name = 'x'", id="rename the ledger"),
    pytest.param("UPDATE handoff_audit SET signature = NULL", id="update the index"),
    pytest.param("UPDATE handoff_audit_content SET bytes = x'00'", id="update the content"),
    pytest.param("UPDATE handoff_audit_segment SET segment = 'x'", id="update a segment"),
    pytest.param("UPDATE handoff_audit_checkpoint SET digest = x'00'", id="update a checkpoint"),
    pytest.param(f"INSERT OR REPLACE INTO handoff_audit {ROW}", id="replace a record"),
    pytest.param(f"REPLACE INTO handoff_audit {ROW}", id="replace a record, short"),
    pytest.param(
        f"INSERT OR REPLACE INTO handoff_audit {ROW.replace('position,', 'position + 100,', 1)}",
        id="replace a record by its sequence",
    ),
    pytest.param(
        "INSERT OR REPLACE INTO handoff_audit_content SELECT position, codec, x'00' FROM handoff_audit_content",
        id="replace the content",
    ),
    pytest.param(
        "INSERT INTO handoff_audit_content SELECT position, codec, x'00' FROM handoff_audit_content WHERE true "
        "ON CONFLICT (position) DO UPDATE SET bytes = x'00'",
        id="upsert the content",
    ),
    pytest.param("INSERT OR REPLACE INTO handoff_audit_ledger VALUES (1, 'x')", id="replace the name"),
    pytest.param("INSERT INTO handoff_audit_ledger VALUES (2, 'x')", id="a second name"),
    pytest.param(
        "INSERT OR REPLACE INTO handoff_audit_checkpoint SELECT size, 0, x'00', x'00', at, key_id, signature "
        "FROM handoff_audit_checkpoint",
        id="replace a checkpoint",
    ),
    pytest.param(
        f"INSERT INTO handoff_audit {ROW.replace('position, task_id, sequence, previous_hash', 'NULL, task_id, 9, previous_hash')}",  # noqa: E501
        id="fork a chain",
    ),
    pytest.param(
        f"INSERT INTO handoff_audit {ROW.replace('position, task_id, sequence, previous_hash', 'NULL, task_id, sequence, randomblob(32)')}",  # noqa: E501
        id="a second record of one number",
    ),
    pytest.param(
        f"INSERT INTO handoff_audit {ROW.replace('position, task_id, sequence, previous_hash', 'NULL, task_id, 9, randomblob(32)')}",  # noqa: E501
        id="an event twice",
    ),
    pytest.param(
        "INSERT INTO handoff_audit VALUES (NULL, 't', 0, randomblob(32), randomblob(32), 'e', x'', '', NULL, NULL)",
        id="a record without number",
    ),
    pytest.param(
        "INSERT INTO handoff_audit VALUES (NULL, 't', 1, x'00', randomblob(32), 'e', x'', '', NULL, NULL)",
        id="a hash that is none",
    ),
    pytest.param("INSERT INTO handoff_audit_content VALUES (999, 1, x'00')", id="content of no record"),
]


class TestAppendOnly:
    @pytest.mark.parametrize("statement", ATTEMPTS)
    async def test_nothing_is_changed_or_deleted(
        self, ledger: Ledger, path: Path, database: Database, statement: str
    ) -> None:
        """The triggers refuse updates, deletes, replacements and forks on the worker's connection (S3-6.2-g)."""
        await ledger.append_all([entry(0), entry(1)])
        await ledger.checkpoint()
        await database.write(
            lambda c: c.rows("INSERT INTO handoff_audit_segment VALUES (100, 200, 1, 'sha256:', '2026')")
        )
        tables = dump(path)

        with pytest.raises(LedgerError, match="refused"):
            await database.write(lambda connection: connection.rows(statement))

        assert dump(path) == tables

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE handoff_audit SET signature = NULL",
            "DELETE FROM handoff_audit_content",
            f"REPLACE INTO handoff_audit {ROW}",
        ],
    )
    async def test_other_programs_cannot_change_records_either(
        self, ledger: Ledger, path: Path, statement: str
    ) -> None:
        """The triggers are in the file, not in this library (S3-5.1-e)."""
        await ledger.append_all([entry(0), entry(1)])
        connection = sqlite3.connect(path)

        with pytest.raises(sqlite3.IntegrityError, match=r"append-only|already has such a row|does not continue"):
            connection.execute(statement)

        connection.close()

    async def test_bytes_are_deleted_only_after_a_segment_is_registered(
        self, ledger: Ledger, database: Database
    ) -> None:
        """Only a move to the cold tier deletes bytes from the hot tier (S3-9-g)."""
        await ledger.append_all([entry(0), entry(1), entry(2)])
        await database.write(lambda c: c.rows("INSERT INTO handoff_audit_segment VALUES (1, 2, 2, 'sha256:', '2026')"))

        await database.write(lambda c: c.rows("DELETE FROM handoff_audit_content WHERE position < 3"))

        with pytest.raises(LedgerError, match="append-only"):
            await database.write(lambda c: c.rows("DELETE FROM handoff_audit_content WHERE position = 3"))
