"""The bytes of a ledger in Postgres by month: what holds across months, how a month leaves, the upgrade to months."""

import asyncio
from datetime import timedelta

import pytest

from baton.ledger.chain import Verdict
from baton.ledger.records import LedgerConflictError, LedgerSchemaError
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_schema import migrate, open_database
from tests.ledger.material import KEYS, TASK, entry
from tests.ledger_postgres.conftest import KEEPER, WRITER, Urls, connect, execute

CONTENT = "handoff_audit_content"
THIS_MONTH = "date_trunc('month', now() AT TIME ZONE 'UTC')"
OLD_TABLE = (
    f"CREATE TABLE old AS SELECT position, codec, bytes FROM {CONTENT}",
    f"DROP TABLE {CONTENT}",
    "DROP FUNCTION handoff_audit_add_months(), handoff_audit_drop_months()",
    f"ALTER TABLE old RENAME TO {CONTENT}",
    f"ALTER TABLE {CONTENT} ADD PRIMARY KEY (position), "
    "ADD FOREIGN KEY (position) REFERENCES handoff_audit (position), "
    "ALTER codec TYPE SMALLINT, ALTER codec SET NOT NULL, ALTER bytes SET NOT NULL",
    f"CREATE TRIGGER {CONTENT}_no_delete BEFORE DELETE ON {CONTENT} "
    f"FOR EACH ROW EXECUTE FUNCTION {CONTENT}_no_delete()",
    f"CREATE TRIGGER {CONTENT}_no_return BEFORE INSERT ON {CONTENT} "
    f"FOR EACH ROW EXECUTE FUNCTION {CONTENT}_no_return()",
    f"CREATE TRIGGER {CONTENT}_no_change BEFORE UPDATE OR TRUNCATE ON {CONTENT} "
    "FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse()",
    f"GRANT SELECT, INSERT ON {CONTENT} TO {WRITER}",
    f"GRANT SELECT, INSERT, DELETE ON {CONTENT} TO {KEEPER}",
    "UPDATE handoff_audit_version SET version_num = '1'",
)
"""What makes the tables of revision 1, with one table of bytes, out of today's."""

LATE_RECORD = (
    "INSERT INTO handoff_audit (task_id, sequence, previous_hash, record_hash, event_key, message_hash, recorded_at) "
    "VALUES ('late', 1, decode(repeat('00', 32), 'hex'), decode(repeat('01', 32), 'hex'), 'late', '', '2020') "
    "RETURNING position"
)


async def until_one_waits(urls: Urls) -> None:
    """Wait until a connection to the database waits for a lock on a table."""
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation' "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    async with asyncio.timeout(20), await connect(urls.owner) as connection:
        while await (await connection.execute(waiting)).fetchone() == (0,):  # noqa: ASYNC110 - it has to be asked
            await asyncio.sleep(0.01)


async def begin_month(urls: Urls, month: str | None) -> None:
    """Have records go into the partition of a past month, such as `2020-01`, or of the present one."""
    default = f"DATE '{month}-01'" if month else THIS_MONTH
    await execute(urls.owner, f"ALTER TABLE {CONTENT} ALTER month SET DEFAULT {default}")
    if month:
        await execute(
            urls.owner,
            f"CREATE TABLE {CONTENT}_{month.replace('-', '_')} PARTITION OF {CONTENT} FOR VALUES FROM ('{month}-01') "
            f"TO ('{month}-28')",
        )


async def months(urls: Urls) -> list[tuple[str, int]]:
    """Return the past months, with the number of records whose bytes each has."""
    async with await connect(urls.owner) as connection:
        rows = await (
            await connection.execute(
                "SELECT right(inhrelid::regclass::text, 7) FROM pg_inherits WHERE inhparent = %s::regclass ORDER BY 1",
                [CONTENT],
            )
        ).fetchall()
        counted = []
        for (name,) in rows:
            count = await (await connection.execute(f"SELECT count(*) FROM {CONTENT}_{name}")).fetchone()
            counted.append((name, count[0] if count else 0))
        return counted


class TestMonths:
    async def test_a_month_without_a_partition_gets_one_with_its_first_record(
        self, urls: Urls, options: LedgerOptions
    ) -> None:
        """No append fails because a month began, and nobody has to prepare it."""
        await execute(urls.owner, *(f"DROP TABLE {CONTENT}_{name}" for name, _ in await months(urls)))
        async with Ledger(urls.writer, options) as ledger:
            heads = await ledger.append_all([entry(0), entry(1)])

            assert [count for _, count in await months(urls)] == [2, 0]
            assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)

    async def test_an_event_is_recorded_once_in_all_months(self, urls: Urls, options: LedgerOptions) -> None:
        """The index is one table, so neither an event nor a number of a chain repeats in another month (C-25, C-26)."""
        async with Ledger(urls.writer, options) as ledger, Ledger(urls.writer, options) as other:
            await begin_month(urls, "2020-01")
            first = await ledger.append(entry(0))
            await begin_month(urls, None)

            assert await other.append(entry(0)) == first
            with pytest.raises(LedgerConflictError):
                await other.append(entry(0, message={"number": 9}))
            assert (await other.append(entry(1))).sequence == 2
            assert [count for _, count in await months(urls)][:2] == [1, 1]
            assert (await ledger.verify_all(verifier=KEYS)).records == 2

    @pytest.mark.parametrize("role", ["owner", "writer", "keeper"])
    @pytest.mark.parametrize(
        "statement",
        [
            f"UPDATE {CONTENT}_2020_01 SET bytes = ''",
            f"DELETE FROM {CONTENT}_2020_01",
            f"TRUNCATE {CONTENT}_2020_01",
            f"DELETE FROM {CONTENT}",
            f"INSERT INTO {CONTENT} (position, codec, bytes) SELECT position, codec, '' FROM {CONTENT}",
        ],
    )
    async def test_no_month_is_changed(self, urls: Urls, options: LedgerOptions, role: str, statement: str) -> None:
        """The triggers refuse it in a partition too, and a record gets no second bytes in another month (S3-6.2-g)."""
        async with Ledger(urls.writer, options) as ledger:
            await begin_month(urls, "2020-01")
            await execute(
                urls.owner,
                f"CREATE TRIGGER {CONTENT}_no_change BEFORE UPDATE OR TRUNCATE ON {CONTENT}_2020_01 "
                "FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse()",
            )
            await ledger.append(entry(0))
            await begin_month(urls, None)

            with pytest.raises(Exception, match=r"append-only|permission denied"):
                await execute(getattr(urls, role), statement)

            assert (await ledger.verify_all(verifier=KEYS)).linked == 1

    async def test_every_partition_refuses_changes_by_statement(self, urls: Urls) -> None:
        """Postgres passes triggers for rows on to partitions, but not those for statements."""
        for name, _ in await months(urls):
            for change in ("TRUNCATE {}", "UPDATE {} SET codec = 2"):
                with pytest.raises(Exception, match="append-only"):
                    await execute(urls.owner, change.format(f"{CONTENT}_{name}"))


class TestArchive:
    async def test_a_month_that_the_cold_tier_holds_leaves_as_a_whole(self, urls: Urls, options: LedgerOptions) -> None:
        """The disk gets the room back at once, and every record is still read and verified (S3-9-g)."""
        async with Ledger(urls.writer, options) as ledger:
            await begin_month(urls, "2020-01")
            heads = await ledger.append_all([entry(number) for number in range(5)])
            await begin_month(urls, "2020-02")
            heads += await ledger.append_all([entry(number) for number in range(5, 8)])
            await begin_month(urls, None)
            async with Ledger(urls.keeper, options) as keeper:
                segments = await keeper.move_to_cold(timedelta(0), segment_records=3)
            heads.append(await ledger.append(entry(8)))

            assert [segment.records for segment in segments] == [3, 3, 2]
            assert [count for _, count in await months(urls)] == [1, 0]
            assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)
            assert (await ledger.verify_all(verifier=KEYS, anchors=heads)).verdict is Verdict.VALID

    async def test_a_month_with_a_record_that_is_not_archived_stays(self, urls: Urls, options: LedgerOptions) -> None:
        """Only the archived records of it leave; the function refuses the rest whoever calls it."""
        async with Ledger(urls.writer, options) as ledger, Ledger(urls.keeper, options) as keeper:
            await begin_month(urls, "2020-01")
            await ledger.append_all([entry(number) for number in range(4)])
            await keeper.move_to_cold(timedelta(0))
            await begin_month(urls, "2020-02")
            await ledger.append_all([entry(number) for number in range(4, 7)])
            await begin_month(urls, None)
            await execute(urls.keeper, "SELECT handoff_audit_drop_months()")

            assert [count for _, count in await months(urls)] == [3, 0, 0]
            assert (await ledger.verify_all(verifier=KEYS)).linked == 7

    async def test_a_month_with_a_record_that_commits_late_stays(self, urls: Urls) -> None:
        """A writer that began in the month's last second is waited for, and its record is not lost (S3-6.2-g)."""
        await begin_month(urls, "2020-01")
        async with await connect(urls.writer) as late:
            async with late.transaction():
                row = await (await late.execute(LATE_RECORD)).fetchone()
                await late.execute(f"INSERT INTO {CONTENT} (position, codec, bytes) VALUES (%s, 0, 'a')", row)
                dropping = asyncio.create_task(execute(urls.keeper, "SELECT handoff_audit_drop_months()"))
                await until_one_waits(urls)
            await dropping

        assert (await months(urls))[0] == ("2020_01", 1)

    async def test_a_writer_drops_no_month(self, urls: Urls) -> None:
        """Stolen credentials of a worker delete nothing (S3-10.3-c)."""
        with pytest.raises(Exception, match="permission denied"):
            await execute(urls.writer, "SELECT handoff_audit_drop_months()")


class TestUpgrade:
    async def test_an_existing_ledger_becomes_one_by_month(self, urls: Urls, options: LedgerOptions) -> None:
        """Every record stays where it is, the roles keep their rights, and new records go into this month."""
        async with Ledger(urls.writer, options) as ledger:
            heads = await ledger.append_all([entry(number) for number in range(4)])
        await execute(urls.owner, *OLD_TABLE)
        with pytest.raises(LedgerSchemaError, match="its owner upgrades them with `baton audit migrate`"):
            async with Ledger(urls.writer, options):
                pass

        owner = open_database(urls.owner)
        await migrate(owner)
        await migrate(owner)
        await owner.close()

        async with Ledger(urls.writer, options) as ledger, Ledger(urls.keeper, options) as keeper:
            heads.append(await ledger.append(entry(4)))
            assert await months(urls) == [("0001_01", 4), *((await months(urls))[1:])]
            assert [count for _, count in await months(urls)] == [4, 1, 0]
            assert (await ledger.verify_all(verifier=KEYS, anchors=heads)).verdict is Verdict.VALID
            for change in (f"DELETE FROM {CONTENT}_0001_01", f"UPDATE {CONTENT}_0001_01 SET bytes = ''"):
                with pytest.raises(Exception, match="append-only"):
                    await execute(urls.owner, change)

            await keeper.move_to_cold(timedelta(0))

            assert [count for _, count in await months(urls)] == [0, 0]
            assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)
