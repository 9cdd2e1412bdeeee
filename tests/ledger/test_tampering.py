"""Attacks by the owner of the database, who can drop every trigger and change every row.

The triggers are dropped first, as an owner can do; what is left are hashes, signatures and anchors.
"""

import contextlib
import shutil
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from baton.ledger.chain import ChainHead, Flaw, Verdict
from baton.ledger.proof import Checkpoint, Report
from baton.ledger.records import LedgerError, record_hash
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_schema import compress_record, restore_record
from baton.testing import opened_past_guards
from tests.ledger.material import KEYS, TASK, entry
from tests.ledger.proving import named
from tests.support.tampering import flips

LENGTH = 5


@pytest.fixture
async def written(path: Path, options: LedgerOptions) -> list[ChainHead]:
    """Write two interleaved tasks of five records each, and return the heads of the first."""
    async with Ledger(path, options) as ledger:
        heads = [
            (await ledger.append_all([entry(number), entry(number, task_id="another")]))[0] for number in range(LENGTH)
        ]
        await ledger.checkpoint()
    return heads


async def report(path: Path, options: LedgerOptions, heads: list[ChainHead]) -> tuple[Verdict, int | None, Flaw | None]:
    """Return the verdict on the task, the record it names and the flaw."""
    async with Ledger(path, options) as ledger:
        chain = await ledger.verify(TASK, verifier=KEYS, anchors=heads)
    return named(chain)


async def report_all(
    path: Path, options: LedgerOptions, heads: list[ChainHead], checkpoints: list[Checkpoint] | None = None
) -> Report:
    async with Ledger(path, options) as ledger:
        return await ledger.verify_all(verifier=KEYS, anchors=heads, checkpoints=checkpoints or [])


CHANGES = [
    pytest.param("UPDATE handoff_audit SET task_id = 'another task' WHERE position = 5", Flaw.SEQUENCE, id="task"),
    pytest.param("UPDATE handoff_audit SET sequence = 9 WHERE position = 5", Flaw.SEQUENCE, id="sequence"),
    pytest.param(
        "UPDATE handoff_audit SET previous_hash = randomblob(32) WHERE position = 5", Flaw.INDEX, id="previous"
    ),
    pytest.param("UPDATE handoff_audit SET record_hash = randomblob(32) WHERE position = 5", Flaw.INDEX, id="hash"),
    pytest.param("UPDATE handoff_audit SET event_key = 'x' WHERE position = 5", Flaw.INDEX, id="event"),
    pytest.param("UPDATE handoff_audit SET message_hash = randomblob(32) WHERE position = 5", Flaw.INDEX, id="message"),
    pytest.param(
        "UPDATE handoff_audit SET recorded_at = '2020-01-01T00:00:00.000000Z' WHERE position = 5", Flaw.INDEX, id="time"
    ),
    pytest.param("UPDATE handoff_audit SET key_id = 'other' WHERE position = 5", Flaw.INDEX, id="key"),
    pytest.param(
        "UPDATE handoff_audit SET signature = randomblob(64) WHERE position = 5", Flaw.SIGNATURE, id="signature"
    ),
    pytest.param("UPDATE handoff_audit SET signature = x'' WHERE position = 5", Flaw.SIGNATURE, id="empty signature"),
    pytest.param(
        "UPDATE handoff_audit SET task_id = CAST(x'ff' AS TEXT) WHERE position = 5", Flaw.SEQUENCE, id="task no text"
    ),
    pytest.param(
        "UPDATE handoff_audit SET recorded_at = CAST(x'ff' AS TEXT) WHERE position = 5", Flaw.GONE, id="no text"
    ),
    pytest.param("DELETE FROM handoff_audit WHERE position = 5", Flaw.SEQUENCE, id="row deleted"),
    pytest.param("DELETE FROM handoff_audit_content WHERE position = 5", Flaw.GONE, id="bytes deleted"),
    pytest.param("UPDATE handoff_audit_content SET bytes = x'' WHERE position = 5", Flaw.GONE, id="bytes emptied"),
    pytest.param("UPDATE handoff_audit_content SET codec = 7 WHERE position = 5", Flaw.GONE, id="another codec"),
    pytest.param(
        "UPDATE handoff_audit_content SET bytes = (SELECT bytes FROM handoff_audit_content WHERE position = 3) "
        "WHERE position = 5",
        Flaw.SEQUENCE,
        id="bytes of another record",
    ),
    pytest.param(
        "UPDATE handoff_audit_content SET bytes = (SELECT bytes FROM handoff_audit_content WHERE position = 6) "
        "WHERE position = 5",
        Flaw.INDEX,
        id="bytes of another task",
    ),
]


class TestTampering:
    @pytest.mark.parametrize(("change", "flaw"), CHANGES)
    async def test_a_changed_row_is_detected_and_named(
        self, path: Path, options: LedgerOptions, written: list[ChainHead], change: str, flaw: Flaw
    ) -> None:
        """Each column of the third record, and its bytes, one at a time (S3-10.3-b, P1)."""
        with opened_past_guards(path) as database:
            database.execute(change)

        verdict, sequence, reason = await report(path, options, written)
        ledger_report = await report_all(path, options, written)

        assert (verdict, sequence) == (Verdict.INVALID, 3)
        assert reason in (flaw, Flaw.INDEX)
        if flaw is not Flaw.SIGNATURE:  # the checkpoint covers the record, so its signature need not
            assert ledger_report.verdict is Verdict.INVALID

    @pytest.mark.parametrize(
        "change", ["size = -1", "digest = x''", "at = CAST(x'ff' AS TEXT)", "key_id = CAST(x'ff' AS TEXT)"]
    )
    async def test_a_damaged_checkpoint_is_detected_and_named(
        self, path: Path, options: LedgerOptions, written: list[ChainHead], change: str
    ) -> None:
        """Verification still checks the rest."""
        with opened_past_guards(path) as database:
            database.execute(f"UPDATE handoff_audit_checkpoint SET {change}")

        ledger_report = await report_all(path, options, written)

        assert (ledger_report.verdict, ledger_report.records, ledger_report.flaws) == (Verdict.INVALID, 10, 1)
        assert "is damaged" in ledger_report.findings[0].reason

    async def test_every_flipped_byte_of_stored_content_is_detected(
        self, path: Path, options: LedgerOptions, written: list[ChainHead], tmp_path: Path
    ) -> None:
        """Or the content is the same, because some bits of the compression have no effect (T1)."""
        with contextlib.closing(sqlite3.connect(path)) as database:
            [(codec, stored)] = database.execute("SELECT codec, bytes FROM handoff_audit_content WHERE position = 5")
        unnoticed = []
        for place, flipped in flips(stored, every=3):
            copy = tmp_path / "copy.db"
            shutil.copyfile(path, copy)
            with opened_past_guards(copy) as database:
                database.execute("UPDATE handoff_audit_content SET bytes = ? WHERE position = 5", [flipped])
            verdict, sequence, _ = await report(copy, options, written)
            if (verdict, sequence) != (Verdict.INVALID, 3) and restore_record(codec, flipped) != restore_record(
                codec, stored
            ):
                unnoticed.append(place)

        assert unnoticed == []

    async def test_anchors_reveal_a_truncated_chain(
        self, path: Path, options: LedgerOptions, written: list[ChainHead]
    ) -> None:
        """The rest is genuine, but the last head shows that records are missing (P2)."""
        with opened_past_guards(path) as database:
            database.execute("DELETE FROM handoff_audit WHERE task_id = ? AND sequence > 3", [TASK])

        async with Ledger(path, options) as ledger:
            assert (await ledger.verify(TASK, verifier=KEYS)).verdict is Verdict.UNANCHORED
            assert named(await ledger.verify(TASK, verifier=KEYS, expected_head=written[-1]))[1] == 4
        assert (await report(path, options, written))[2] is Flaw.TRUNCATED
        assert (await report_all(path, options, written[-1:])).verdict is Verdict.INVALID
        assert (await report_all(path, options, [])).verdict is Verdict.INVALID  # the checkpoint counts records

    async def test_anchors_reveal_a_truncation_below_new_records(
        self, path: Path, options: LedgerOptions, written: list[ChainHead]
    ) -> None:
        """New genuine records after a cut do not hide it (T3)."""
        with opened_past_guards(path) as database:
            database.execute("DELETE FROM handoff_audit WHERE task_id = ? AND sequence > 3", [TASK])
        async with Ledger(path, options) as ledger:
            await ledger.append_all([entry(number, details="after the cut") for number in range(10, 14)])

        assert await report(path, options, written) == (Verdict.INVALID, 4, Flaw.ANCHOR)

    async def test_a_deleted_chain_is_detected(
        self, path: Path, options: LedgerOptions, written: list[ChainHead]
    ) -> None:
        """No row of the task is left, but its anchor and the checkpoint are (P3)."""
        with opened_past_guards(path) as database:
            database.execute("DELETE FROM handoff_audit_content WHERE position % 2 = 1")
            database.execute("DELETE FROM handoff_audit WHERE task_id = ?", [TASK])

        by_anchor = await report_all(path, options, written)
        assert (by_anchor.verdict, by_anchor.findings[-1].task_id) == (Verdict.INVALID, TASK)
        assert "there are 5" in (await report_all(path, options, [])).findings[0].reason

    async def test_a_deleted_ledger_is_detected(
        self, path: Path, options: LedgerOptions, written: list[ChainHead]
    ) -> None:
        """Everything is gone including the checkpoints, but the anchors are elsewhere (P3)."""
        for file in files(path.parent):
            file.unlink()

        assert await report(path, options, written) == (Verdict.INVALID, 1, Flaw.TRUNCATED)
        assert (await report_all(path, options, written)).verdict is Verdict.INVALID
        assert (await report_all(path, options, [])).verdict is Verdict.UNVERIFIED

    async def test_an_older_copy_of_the_file_is_detected(
        self, path: Path, options: LedgerOptions, tmp_path: Path
    ) -> None:
        """A restored backup is genuine but too short (P5: sink and checkpoint rolled back together)."""
        backup = tmp_path / "backup.db"
        async with Ledger(path, options) as ledger:
            await ledger.append_all([entry(0), entry(1)])
            await ledger.checkpoint()
        shutil.copyfile(path, backup)
        async with Ledger(path, options) as ledger:
            head = await ledger.append(entry(2))
            checkpoint = await ledger.checkpoint()
        shutil.copyfile(backup, path)

        assert (await report_all(path, options, [])).verdict is Verdict.UNANCHORED  # the limit without an anchor
        assert (await report_all(path, options, [head])).verdict is Verdict.INVALID
        assert (await report_all(path, options, [], [checkpoint])).verdict is Verdict.INVALID

    async def test_a_forged_record_with_correct_hashes_is_detected(
        self, path: Path, options: LedgerOptions, written: list[ChainHead]
    ) -> None:
        """Record and index are rewritten with correct hashes, but without the key (6.3)."""
        with opened_past_guards(path) as database:
            [(codec, stored)] = database.execute("SELECT codec, bytes FROM handoff_audit_content WHERE position = 9")
            header, message = restore_record(codec, stored)
            forged = header.replace(b"ACCEPTED", b"REJECTED")
            database.execute(
                "UPDATE handoff_audit SET record_hash = ?, event_key = replace(event_key, 'ACCEPTED', 'REJECTED') "
                "WHERE position = 9",
                [record_hash(forged)],
            )
            database.execute(
                "UPDATE handoff_audit_content SET bytes = ? WHERE position = 9", [compress_record(forged, message)]
            )

        assert await report(path, options, []) == (Verdict.INVALID, 5, Flaw.SIGNATURE)
        assert (await report_all(path, options, [])).verdict is Verdict.INVALID

    async def test_no_column_takes_a_value_of_another_type(self, path: Path, written: list[ChainHead]) -> None:
        """The tables are STRICT: SQLite itself refuses text in place of bytes or numbers (C-26)."""
        with opened_past_guards(path) as database:
            for change in ("_content SET bytes = 'x'", " SET sequence = 'x'", " SET task_id = x'00'"):
                with pytest.raises(sqlite3.IntegrityError, match=r"cannot store|datatype mismatch"):
                    database.execute(f"UPDATE handoff_audit{change}")

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param("handoff_audit SET record_hash = x'00' WHERE position = 9", id="a short hash"),
            pytest.param("handoff_audit SET sequence = 1 << 62 WHERE position = 9", id="a number out of range"),
            pytest.param("handoff_audit SET recorded_at = '' WHERE position = 9", id="no time"),
            pytest.param("handoff_audit SET key_id = CAST(x'ff' AS TEXT) WHERE position = 9", id="a key of no text"),
            pytest.param("handoff_audit_checkpoint SET position = -1", id="a checkpoint at no position"),
            pytest.param("handoff_audit_segment SET segment = '', last_position = 10", id="a segment of no name"),
        ],
    )
    @pytest.mark.parametrize("signed", [True, False])
    async def test_a_damaged_row_never_raises_an_unexpected_error(
        self, path: Path, options: LedgerOptions, tmp_path: Path, change: str, signed: bool
    ) -> None:
        """Each operation returns a verdict or raises a `LedgerError` (C-26)."""
        options = options if signed else replace(options, signer=None)
        async with Ledger(path, options) as ledger:
            for number in range(LENGTH):
                await ledger.append_all([entry(number), entry(number, task_id="another")])
                if number == 2:
                    await ledger.move_to_cold(timedelta(0))
            checkpoint = await ledger.checkpoint(unsigned=True)
        with opened_past_guards(path) as database:
            database.execute("PRAGMA ignore_check_constraints = on")
            database.execute(f"UPDATE {change}")

        async with Ledger(path, options) as ledger:
            questions = (
                ledger.head(TASK),
                ledger.append(entry(LENGTH)),
                ledger.checkpoint(whole=False, unsigned=True),
                ledger.export(tmp_path / "some.zst", ["another"]),
                ledger.export(tmp_path / "all.zst"),
                ledger.move_to_cold(timedelta(0)),
            )
            for question in questions:
                with contextlib.suppress(LedgerError):
                    await question
            ledger_report = await ledger.verify_all(checkpoints=[checkpoint])
            chain = await ledger.verify(TASK, checkpoints=[checkpoint])

        if " handoff_audit " in f" {change}":
            assert (ledger_report.verdict, chain.verdict) == (Verdict.INVALID, Verdict.INVALID)

    async def test_a_rewritten_checkpoint_is_detected(
        self, path: Path, options: LedgerOptions, written: list[ChainHead]
    ) -> None:
        """A checkpoint in the ledger's own database needs a valid signature (T3)."""
        with opened_past_guards(path) as database:
            database.execute("DELETE FROM handoff_audit WHERE position > 8")
            database.execute("UPDATE handoff_audit_checkpoint SET size = 8, position = 8")

        ledger_report = await report_all(path, options, [])

        assert ledger_report.verdict is Verdict.INVALID
        assert "does not count: bad" in ledger_report.findings[0].reason


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())
