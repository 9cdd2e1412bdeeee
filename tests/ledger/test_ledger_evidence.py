"""Checkpoints for witnesses, and bundles for auditors."""

import asyncio
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from baton.core.verdict import HandoffStatus
from baton.ledger.chain import Verdict
from baton.ledger.entries import handoff_entry
from baton.ledger.records import (
    LedgerContinuityError,
    LedgerError,
    LedgerUnavailableError,
)
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import AnchorFile, verify_bundle
from baton.testing import opened_past_guards
from tests.ledger.material import KEY, KEYS, NOW, TASK, completion_entry, entry, message

VALID, UNVERIFIED, INVALID = Verdict.VALID, Verdict.UNVERIFIED, Verdict.INVALID


INDEX = (
    "SELECT position, task_id, sequence, record_hash, recorded_at, key_id, signature FROM handoff_audit "
    "WHERE position >= {first} AND position <= {last} ORDER BY position"
)


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class TestCheckpoint:
    async def test_a_witness_follows_a_growing_ledger(self, ledger: Ledger, tmp_path: Path) -> None:
        """Each checkpoint continues the last one that the witness has (P4, P5)."""
        witness = AnchorFile(tmp_path / "elsewhere" / "anchors.jsonl")
        made = []
        for number in range(3):
            await ledger.append_all([entry(number), entry(number, task_id="another")])
            made.append(await ledger.checkpoint(witness))
        same = await ledger.checkpoint(witness)

        assert [checkpoint.size for checkpoint in await ledger.checkpoints()] == [2, 4, 6]
        assert await ledger.checkpoints() == made
        assert witness.checkpoints() == [same] == made[2:], "a witness keeps the newest"
        report = await ledger.verify_all(verifier=KEYS, checkpoints=witness.checkpoints())
        assert (report.verdict, report.checkpointed_through, report.tasks) == (VALID, 6, 2)

    async def test_the_witness_detects_a_replaced_ledger(
        self, ledger: Ledger, tmp_path: Path, options: LedgerOptions
    ) -> None:
        """It detects a rolled back database, and another ledger of the same name and key (P5, T3)."""
        witness = AnchorFile(tmp_path / "anchors.jsonl")
        await ledger.append_all([entry(number) for number in range(3)])
        checkpoint = await ledger.checkpoint(witness)

        async with Ledger(tmp_path / "other.db", options) as replacement:
            for number in range(5):
                await replacement.append(entry(number, details="other"))
                if number in (1, 4):
                    with pytest.raises(LedgerError, match="does not continue"):
                        await replacement.checkpoint(witness)
            report = await replacement.verify_all(verifier=KEYS, checkpoints=witness.checkpoints())
            assert await replacement.checkpoints() == []  # or it would vouch, signed, for what the witness refused

        assert report.verdict is INVALID
        assert witness.checkpoints() == [checkpoint]

    async def test_two_workers_share_a_witness(self, path: Path, options: LedgerOptions, tmp_path: Path) -> None:
        """Comparing a checkpoint and keeping it are one step, so that no honest one is refused."""
        witnesses = [AnchorFile(tmp_path / "witness.jsonl") for _ in range(2)]
        async with Ledger(path, options) as first, Ledger(path, options) as second:
            for number in range(20):
                await first.append(entry(number))
                await asyncio.gather(
                    *(
                        ledger.checkpoint(witness, whole=False)
                        for ledger, witness in zip((first, second), witnesses, strict=True)
                    )
                )

        assert [checkpoint.size for checkpoint in witnesses[0].checkpoints()] == [20]

    async def test_a_worker_does_not_begin_a_ledger_anew_beside_its_witness(
        self, path: Path, options: LedgerOptions, tmp_path: Path
    ) -> None:
        """A deleted, replaced or cut ledger is noticed before the first record is added to it."""
        witness = AnchorFile(tmp_path / "witness.jsonl")
        async with Ledger(path, options) as ledger, ledger.witnessed(witness):
            await ledger.append_all([entry(number) for number in range(3)])
        for replaced in (0, 2, 5):
            for file in files(path.parent):
                file.unlink()
            async with Ledger(path, options) as ledger:
                for number in range(replaced):
                    await ledger.append(entry(number, details="another"))
                with pytest.raises(LedgerContinuityError, match="does not continue the checkpoint at 3 records"):
                    async with ledger.witnessed(witness):
                        pass

        assert [checkpoint.size for checkpoint in witness.checkpoints()] == [3]

    async def test_a_cut_below_the_own_checkpoint_is_noticed(self, ledger: Ledger, path: Path) -> None:
        """Without a witness too."""
        await ledger.append_all([entry(number) for number in range(3)])
        await ledger.checkpoint()
        await ledger.compare()
        with opened_past_guards(path) as database:
            database.execute("DELETE FROM handoff_audit_content WHERE position = 3")
            database.execute("DELETE FROM handoff_audit WHERE position = 3")

        for _ in ("cut", "continued"):
            with pytest.raises(LedgerContinuityError, match="does not continue the checkpoint at 3 records"):
                await ledger.compare()
            with pytest.raises(LedgerContinuityError):
                await ledger.checkpoint(whole=False)
            await ledger.append(entry(0, task_id="another"))

    async def test_the_witness_names_the_time_after_which_it_proves_nothing(
        self, ledger: Ledger, path: Path, tmp_path: Path
    ) -> None:
        """What was added after the last checkpoint and cut off again cannot be known."""
        witness = AnchorFile(tmp_path / "witness.jsonl")
        head = await ledger.append(entry(0))
        made_at = datetime.fromisoformat((await ledger.checkpoint(witness)).at)
        await ledger.append(entry(1))
        with opened_past_guards(path) as database:
            database.execute("DELETE FROM handoff_audit_content WHERE position = 2")
            database.execute("DELETE FROM handoff_audit WHERE position = 2")
        kept = witness.checkpoints()

        for report in (
            await ledger.verify_all(verifier=KEYS, checkpoints=kept),
            await ledger.verify(TASK, verifier=KEYS, checkpoints=kept),
        ):
            assert (report.verdict, report.compared_at) == (VALID, made_at)
        assert (await ledger.verify(TASK, verifier=KEYS, checkpoints=kept, anchors=[head])).compared_at is None

    async def test_a_checkpoint_reads_what_was_added_since_the_last_one(
        self, statements: list[str], ledger: Ledger, tmp_path: Path
    ) -> None:
        """A worker's minute does not grow with the ledger's age."""
        witness = AnchorFile(tmp_path / "witness.jsonl")
        await ledger.append_all([entry(number) for number in range(3)])
        await ledger.checkpoint(witness, whole=False)
        size = witness.path.stat().st_size
        await ledger.append(entry(3))
        statements.clear()

        await ledger.checkpoint(witness, whole=False)

        assert [text for text in statements if "position >=" in text] == [INDEX.format(first=3, last=4)]
        assert witness.path.stat().st_size == size

    async def test_a_checkpoint_refuses_unsigned_chains(
        self, ledger: Ledger, path: Path, options: LedgerOptions
    ) -> None:
        """The next checkpoint does not prove the records of a forger without the key (P1)."""
        await ledger.append(entry(0))
        await ledger.checkpoint()
        async with Ledger(path, replace(options, signer=None)) as forger:
            await forger.append(entry(0, task_id="forged"))

        with pytest.raises(LedgerError, match=r"record 1 of task 'forged' is not proved \(it is unsigned.*--unsigned"):
            await ledger.checkpoint()
        assert (await ledger.verify_all(verifier=KEYS)).verdict is Verdict.UNVERIFIED

        assert (await ledger.checkpoint(unsigned=True)).size == 2  # whoever means it

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            pytest.param(
                "signature = zeroblob(64)", r"was changed \(its signature does not count: bad", id="signature"
            ),
            pytest.param("position = 1", "does not continue the checkpoint at 2 records", id="position"),
            pytest.param("digest = zeroblob(31)", "is damaged", id="no digest"),
        ],
    )
    async def test_no_checkpoint_follows_a_changed_one(
        self, ledger: Ledger, path: Path, change: str, problem: str
    ) -> None:
        """Whoever can write the table does not decide what a new checkpoint vouches for (T3)."""
        await ledger.append_all([entry(0), entry(1)])
        await ledger.checkpoint()
        with sqlite3.connect(path) as database:
            database.execute("DROP TRIGGER handoff_audit_checkpoint_no_update")
            database.execute(f"UPDATE handoff_audit_checkpoint SET {change}")
        database.close()
        await ledger.append(entry(2))

        with pytest.raises(LedgerError, match=problem):
            await ledger.checkpoint(whole=False)

    async def test_concurrent_checkpoints_agree(self, ledger: Ledger) -> None:
        """Workers that make a checkpoint at the same time agree."""
        await ledger.append(entry(0))

        checkpoints = await asyncio.gather(*(ledger.checkpoint() for _ in range(5)))

        assert len({checkpoint.digest for checkpoint in checkpoints}) == 1
        assert len(await ledger.checkpoints()) == 1


class TestExport:
    async def test_a_bundle_verifies_without_the_ledger(
        self, path: Path, options: LedgerOptions, tmp_path: Path
    ) -> None:
        """One file, public keys, no database (P10, S3-12.1-b)."""
        bundle = tmp_path / "evidence.zst"
        async with Ledger(path, options) as opened:
            for number in range(3):
                await opened.append_all([entry(number), entry(number, task_id="another")])
            await opened.checkpoint()
            heads = await opened.append_all([entry(3)])
            await opened.export(bundle, [TASK], keys=[{"kty": "OKP", "kid": KEY.key_id}])
        for file in files(path.parent):
            file.unlink()

        report = verify_bundle(bundle, verifier=KEYS, anchors=heads)

        assert (report.verdict, report.records, report.signed_by) == (VALID, 4, KEY.key_id)

    async def test_a_task_without_records_cannot_be_exported(self, ledger: Ledger, tmp_path: Path) -> None:
        """A mistyped id is an error."""
        with pytest.raises(LedgerError, match="no records of task 'typo'"):
            await ledger.export(tmp_path / "b.zst", ["typo"])
        assert [file for file in files(tmp_path) if file.name.endswith(".zst")] == []

    async def test_a_bundle_that_cannot_be_written_leaves_the_old_one(self, ledger: Ledger, tmp_path: Path) -> None:
        """The error names the folder, and no partial file is left."""
        await ledger.append(entry(0))
        write(tmp_path / "file", b"x")

        with pytest.raises(LedgerUnavailableError, match="cannot write the bundle"):
            await ledger.export(tmp_path / "file" / "b.zst")


class TestCompliance:
    async def test_the_whole_trail_is_available_from_the_task_id(self, ledger: Ledger, tmp_path: Path) -> None:
        """The task id leads to inputs, cost, output and an offline proof (S3-12.1-a)."""
        for number in range(3):
            await ledger.append(
                handoff_entry(message(number), task_id=TASK, status=HandoffStatus.ACCEPTED, timestamp=NOW)
            )
        last = await ledger.append(completion_entry({"risk": "low"}))
        await ledger.export(tmp_path / "trail.zst", [TASK])

        trace = await ledger.trace(TASK, verifier=KEYS, expected_head=last)

        assert (len(trace.handoffs), trace.output, bool(trace.report)) == (3, {"risk": "low"}, True)
        assert verify_bundle(tmp_path / "trail.zst", verifier=KEYS, anchors=[last])

    async def test_records_have_the_ledgers_time_in_utc(self, ledger: Ledger) -> None:
        """By the ledger's clock, in UTC."""
        start = datetime.now(UTC)
        await ledger.append(entry(0))

        [record] = (await ledger.trace(TASK)).records
        assert start <= record.fields.recorded_at <= datetime.now(UTC)
