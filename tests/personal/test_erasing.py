"""Erasing a data subject: what is gone, what stays, and what is on record (`security.md` §3.3, proofs a to g)."""

import secrets
import shutil
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from baton.client import verify_bundle
from baton.client.faces import LocalArtifactStore
from baton.core.verdict import HandoffStatus
from baton.keys.claims import HeadVerifier
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import Verdict
from baton.ledger.entries import Trace, erasure_entry, handoff_entry
from baton.ledger.records import AuditEntry, LedgerUnavailableError
from baton.ledger.store import Ledger, LedgerOptions
from baton.personal.records import (
    SEALED_ONLY,
    Erased,
    ErasureUnrecordedError,
    SubjectErasedError,
    VaultError,
    VaultUnavailableError,
    is_payload,
)
from baton.personal.store import Vault, VaultOptions
from baton.personal.store_subjects import ErasureList, destroy_keys
from tests.personal.material import MARKER, NOW, SUBJECT, TASK, everything_in, found_in


async def hand_on(ledger: Ledger, payload: dict[str, Any], task_id: str = TASK, number: int = 0) -> None:
    """Put a handoff with a payload on record."""
    message = {"handoffId": f"h-{number}", "personalDataPayload": payload, "taskDescription": "Score"}
    await ledger.append(handoff_entry(message, task_id=task_id, status=HandoffStatus.ACCEPTED, timestamp=NOW))


async def keys_in(vault: Vault) -> int:
    """Return how many keys the vault's file holds: an erased subject is refused by its mark also if its keys stayed."""
    count = "SELECT count(*) FROM wrapped_key WHERE bytes <> zeroblob(length(bytes))"
    return await vault._file.read(lambda connection: int(connection.execute(count).fetchone()[0]))


class TestErase:
    async def test_nothing_remains_in_any_file(
        self, vault: Vault, ledger: Ledger, tmp_path: Path, keyring: Keyring
    ) -> None:
        """(a) No byte of a value, of a subject's name, or of a key is in the vault or the ledger (S3-12.3-a)."""
        payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        await hand_on(ledger, payload)
        wrapped = [
            row[0]
            for row in await vault._file.read(
                lambda connection: list(connection.execute("SELECT bytes FROM wrapped_key"))
            )
        ]
        assert found_in(tmp_path, wrapped) == 1

        assert (await vault.erase(SUBJECT, "r-1", "dpo")).status == "ERASED"

        assert found_in(tmp_path, [*wrapped, MARKER.encode(), SUBJECT.encode()]) == 0
        assert sorted(file.name for file in (tmp_path / "vault").iterdir()) == ["vault.db", "vault.db.erasures"]

    async def test_no_key_of_many_remains_in_the_file(self, path: Path, keyring: Keyring) -> None:
        """(a) SQLite leaves copies when it moves rows; keys in slots of one size are not moved (S3-12.3-a)."""
        async with Vault(path, keyring) as vault:
            keys: dict[int, bytes] = {}

            def fill(connection: sqlite3.Connection) -> None:
                for number in range(3_000):
                    key = secrets.token_bytes(40)
                    slot = connection.execute("INSERT INTO wrapped_key (bytes) VALUES (?)", (key,)).lastrowid
                    connection.execute("INSERT INTO subject (pseudonym, index_key) VALUES (?, 'k')", (f"s-{number}",))
                    row = (slot, number + 1, f"dk-{number}", "k" * (number % 40))
                    connection.execute("INSERT INTO data_key VALUES (?, ?, ?, 1, ?, 0)", row)
                    keys[slot or 0] = key

            await vault._file.write(lambda connection: connection.execute("INSERT INTO index_key VALUES ('k')"))
            await vault._file.write(fill)
            gone = [slot for slot in keys if slot % 3]
            for slot in gone:
                keys[-slot] = keys.pop(slot)

            def forget(connection: sqlite3.Connection) -> None:
                for slot in gone:
                    connection.execute("UPDATE data_key SET used = used + 100000 WHERE id = ?", (slot,))
                    destroy_keys(connection, slot)  # of a new file, so the subject of a slot has its number

            await vault._file.write(forget)

        hay = everything_in(path.parent)
        assert [slot for slot, key in keys.items() if (key in hay) != (slot > 0)] == []

    async def test_every_chain_is_unchanged_but_for_one_record(
        self, vault: Vault, ledger: Ledger, keyring: Keyring, path: Path
    ) -> None:
        """(b, f) Each task's chain verifies from the same head, with one more record (S3-12.3-d, C-24)."""
        heads = {}
        for number, task in enumerate(("t-1", "t-2")):
            await hand_on(ledger, await vault.seal(SUBJECT, task, {"email": MARKER}), task, number)
            heads[task] = await ledger.head(task)
        await hand_on(ledger, await vault.seal("somebody else", "t-3", {"email": MARKER}), "t-3")

        report = await vault.erase(SUBJECT, "r-1", "dpo")

        assert (report.status, report.removed, report.task_ids, report.recorded, report.repeated) == (
            "ERASED",
            {"keys": 1, "places": 2},
            ("t-1", "t-2"),
            True,
            False,
        )
        for task, head in heads.items():
            assert head is not None
            trace = await ledger.trace(task, verifier=keyring.public(), anchors=[head])
            assert trace.report.verdict is Verdict.UNANCHORED
            assert "sha256:" + trace.records[-2].hash.hex() == head.record_hash
            last = trace.records[-1].fields
            assert (last.kind, last.status, last.event_id, last.actor) == ("erasure", "ERASED", "r-1", "dpo")
            assert trace.records[-1].body == {"removed": report.removed, "subject": report.subject}
        assert len((await ledger.trace("t-3")).records) == 1

    async def test_cold_tier_and_bundles_are_erased_with_the_key(
        self, tmp_path: Path, path: Path, keyring: Keyring
    ) -> None:
        """(a, b) Archived segments and exported evidence still verify, and reveal nothing (S3-12.3-d, C-24)."""
        options = LedgerOptions(
            signer=keyring.signer(), policy=SEALED_ONLY, artifacts=LocalArtifactStore(tmp_path / "cold")
        )
        before, after = tmp_path / "before.zst", tmp_path / "after.zst"
        async with (
            Ledger(tmp_path / "ledger.db", options) as ledger,
            Vault(path, keyring, VaultOptions(ledger=ledger)) as vault,
        ):
            await hand_on(ledger, await vault.seal(SUBJECT, TASK, {"email": MARKER}))
            await ledger.move_to_cold(timedelta(0))
            await ledger.export(before)
            await vault.erase(SUBJECT, "r-1")
            await ledger.export(after)

            for bundle in (before, after):
                assert verify_bundle(bundle, verifier=keyring.public(), ledger="baton").verdict is Verdict.UNANCHORED
            assert await keys_in(vault) == 0
            first, last = (await ledger.trace(TASK, verifier=keyring.public())).records
            assert (first.absence, last.fields.status) == (None, "ERASED")
            assert [type(value) for value in (await vault.open(first.body["personalDataPayload"], TASK)).values()] == [
                Erased
            ]
        assert found_in(tmp_path, [MARKER.encode(), SUBJECT.encode()]) == 0

    async def test_other_subjects_stay(self, vault: Vault) -> None:
        """(a) In one payload the erased subject becomes a mark, and the other stays readable (S3-12.3-d)."""
        payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        payload = await vault.seal("neighbour", TASK, {"email": "n@x"}, onto=payload)
        report = await vault.erase(SUBJECT, "r-1")
        mark = Erased(report.subject, "r-1", report.at)

        assert list((await vault.open(payload, TASK)).values()) == [mark, {"email": "n@x"}]
        marked = await vault.without_erased(payload)
        assert is_payload(marked)
        assert list((await vault.open(marked, TASK)).values()) == [mark, {"email": "n@x"}]
        assert await vault.where_is(SUBJECT) == []

    async def test_copies_of_everything_but_the_vault_reveal_nothing(
        self, vault: Vault, ledger: Ledger, tmp_path: Path
    ) -> None:
        """(c) An old copy of the ledger does not open with the current keys (C-24)."""
        await hand_on(ledger, await vault.seal(SUBJECT, TASK, {"email": MARKER}))
        record = (await ledger.trace(TASK)).records[0]
        copied = record.body["personalDataPayload"]
        assert await keys_in(vault) == 1
        await vault.erase(SUBJECT, "r-1")

        assert await keys_in(vault) == 0
        assert [type(value) for value in (await vault.open(copied, TASK)).values()] == [Erased]

    async def test_an_old_copy_of_the_vault_still_opens_it(
        self, vault: Vault, path: Path, tmp_path: Path, keyring: Keyring
    ) -> None:
        """Not promised: an old vault without its list, with the WRAP key of that time, still opens it (C-24)."""
        payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        shutil.copy(path, tmp_path / "stolen.db")
        await vault.erase(SUBJECT, "r-1")

        async with Vault(tmp_path / "stolen.db", keyring) as stolen:
            assert list((await stolen.open(payload, TASK)).values()) == [{"email": MARKER}]

    async def test_erasing_again_changes_nothing(self, vault: Vault, ledger: Ledger, path: Path) -> None:
        """(f) It is idempotent, and reports the earlier erasure (S3-12.3-a)."""
        await vault.seal(SUBJECT, TASK, {"email": MARKER})
        first = await vault.erase(SUBJECT, "r-1", "dpo")
        before = (everything_in(path.parent), await ledger.head(TASK))
        repeated = await vault.erase(SUBJECT, "r-2", "somebody")

        assert (repeated.repeated, repeated.request_id, repeated.at, repeated.removed) == (
            True,
            "r-1",
            first.at,
            first.removed,
        )
        assert before == (everything_in(path.parent), await ledger.head(TASK))

    async def test_an_unknown_subject_is_reported_as_such(self, vault: Vault, ledger: Ledger) -> None:
        """Nothing is recorded about an unknown subject (S3-12.3-a)."""
        report = await vault.erase("nobody", "r-1")

        assert (report.status, report.removed) == ("UNKNOWN", {})

    @pytest.mark.parametrize(
        ("request_id", "actor"),
        [
            pytest.param("r-1", "Ann\nSmith", id="a name of two lines"),
            pytest.param("r-1", "x" * 201, id="a name that is too long"),
            pytest.param("r-1", "J\udcfcrgen", id="a name that is no text"),
            pytest.param("r\t1", "ann", id="an id with a tab"),
            pytest.param("", "ann", id="no id"),
        ],
    )
    async def test_what_cannot_be_recorded_erases_nothing(
        self, vault: Vault, ledger: Ledger, path: Path, request_id: str, actor: str
    ) -> None:
        """Keys are destroyed before records are written, so an invalid record is refused first."""
        payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        await hand_on(ledger, payload)

        with pytest.raises(VaultError, match="nothing was erased"):
            await vault.erase(SUBJECT, request_id, actor)
        assert await vault.finish_erasures() == 0
        assert {"email": MARKER} in (await vault.open(payload, TASK)).values()
        assert (await vault.erase(SUBJECT, "r-2", "ann")).status == "ERASED"
        assert len((await ledger.trace(TASK)).records) == 2

    async def test_a_running_pipeline_cannot_restore_it(self, vault: Vault) -> None:
        """(e) Data in a stage's memory cannot be sealed again (C-24)."""
        before = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        await vault.erase(SUBJECT, "r-1")

        with pytest.raises(SubjectErasedError, match="use another name"):
            await vault.seal(SUBJECT, TASK, {"email": MARKER}, onto=before)

    async def test_the_number_of_keys_does_not_grow_with_the_records(self, path: Path, keyring: Keyring) -> None:
        """(g) 100,000 values sealed in 1,000 tasks: one key is destroyed (S3-12.3-a)."""
        async with Vault(path, keyring) as vault:
            await vault.seal(SUBJECT, TASK, {"email": MARKER})
            rows = [(f"t-{number % 1_000}", f"f{number // 1_000}") for number in range(100_000)]
            await vault._file.write(
                lambda connection: connection.executemany("INSERT INTO place VALUES (1, ?, ?)", rows)
            )
            writes: list[str] = []

            def trace(connection: sqlite3.Connection) -> None:
                connection.set_trace_callback(writes.append)

            await vault._file.write(trace)
            report = await vault.erase(SUBJECT, "r-1")

            assert report.removed == {"keys": 1, "places": 100_001}
            assert sum("UPDATE wrapped_key" in statement for statement in writes) == 1
            assert len(writes) < 40


@dataclass
class Failing:
    """A ledger that is down for its first calls, and passes the others on."""

    ledger: Ledger
    failures: int

    async def append_all(self, entries: list[AuditEntry]) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise LedgerUnavailableError("the ledger is down")
        await self.ledger.append_all(entries)

    async def erased_tasks(self) -> list[str]:
        return await self.ledger.erased_tasks()

    async def trace(self, task_id: str, *, verifier: HeadVerifier) -> Trace:
        return await self.ledger.trace(task_id, verifier=verifier)


class TestRecords:
    async def test_an_unavailable_ledger_does_not_stop_the_destruction(
        self, path: Path, keyring: Keyring, ledger: Ledger
    ) -> None:
        """The keys are destroyed first; erasing again writes the missing record (S3-11-f, S3-12.3-a)."""
        async with Vault(path, keyring, VaultOptions(ledger=Failing(ledger, 1))) as vault:
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
            with pytest.raises(ErasureUnrecordedError, match="erase again"):
                await vault.erase(SUBJECT, "r-1")
            assert await keys_in(vault) == 0
            assert [type(value) for value in (await vault.open(payload, TASK)).values()] == [Erased]
            assert await ledger.head(TASK) is None

            repeated = await vault.erase(SUBJECT, "r-1")
            assert (repeated.repeated, repeated.task_ids, repeated.recorded) == (True, (TASK,), True)
            assert len((await ledger.trace(TASK)).records) == 1

    async def test_without_a_ledger_the_records_are_written_later(
        self, path: Path, keyring: Keyring, ledger: Ledger
    ) -> None:
        """Missing records are not forgotten (S3-11-f, S3-12.3-a)."""
        async with Vault(path, keyring) as vault:
            for number in range(3):
                await vault.seal(SUBJECT, f"t-{number}", {"email": MARKER})
            report = await vault.erase(SUBJECT, "r-1")
            assert (report.recorded, report.task_ids) == (False, ())
        async with Vault(path, keyring, VaultOptions(ledger=ledger)) as vault:
            assert await vault.finish_erasures() == 3
            assert await vault.finish_erasures() == 0
        assert [len((await ledger.trace(f"t-{number}")).records) for number in range(3)] == [1, 1, 1]

    async def test_many_tasks_are_recorded_in_batches(
        self, vault: Vault, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An erasure of any size writes one record in each task (S3-12.3-a)."""
        monkeypatch.setattr("baton.personal.store._RECORD_BATCH_SIZE", 2)
        for number in range(5):
            await vault.seal(SUBJECT, f"t-{number}", {"email": MARKER})

        assert len((await vault.erase(SUBJECT, "r-1")).task_ids) == 5
        assert [len((await ledger.trace(f"t-{number}")).records) for number in range(5)] == [1] * 5


class TestRestore:
    async def test_opening_a_restored_vault_erases_again(
        self, path: Path, tmp_path: Path, keyring: Keyring, ledger: Ledger
    ) -> None:
        """(d) The erasure list is applied before anything is served, and nothing is recorded twice (C-24)."""
        options = VaultOptions(ledger=ledger)
        async with Vault(path, keyring, options) as vault:
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
            shutil.copy(path, tmp_path / "backup.db")
            await vault.seal(SUBJECT, "later", {"phone": "1"})
            await vault.erase(SUBJECT, "r-1")
        head = await ledger.head(TASK)
        shutil.copy(tmp_path / "backup.db", path)

        async with Vault(path, keyring, options) as vault:
            assert [type(value) for value in (await vault.open(payload, TASK)).values()] == [Erased]
            assert await vault.finish_erasures() == 1
            assert await ledger.head(TASK) == head

    async def test_a_vault_restored_without_its_list_is_compared_with_the_ledger(
        self, path: Path, tmp_path: Path, keyring: Keyring, ledger: Ledger
    ) -> None:
        """The ledger knows of the erasure, and nobody is served before it is repeated (C-24)."""
        async with Vault(path, keyring, VaultOptions(ledger=ledger)) as vault:
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
            await vault.seal("somebody else", TASK, {"email": "x"})
            shutil.copy(path, tmp_path / "backup.db")
            await vault.erase(SUBJECT, "r-1", "dpo")
        head = await ledger.head(TASK)
        for opened_with in (ledger, None):
            shutil.copy(tmp_path / "backup.db", path)
            vault._list.path.unlink()
            async with Vault(path, keyring, VaultOptions(ledger=opened_with)) as vault:
                if opened_with is None:
                    assert await vault.reapply_erasures(ledger) == 1
                assert [type(value) for value in (await vault.open(payload, TASK)).values()] == [Erased]
                with pytest.raises(SubjectErasedError):
                    await vault.seal(SUBJECT, TASK, {"email": MARKER})
                await vault.finish_erasures()
                assert await vault.reapply_erasures(ledger) == 0
                assert len(await vault.where_is("somebody else")) == 1
            assert await ledger.head(TASK) == head

    async def test_a_record_that_is_not_proved_erases_nobody_and_is_not_ignored(
        self, path: Path, tmp_path: Path, keyring: Keyring
    ) -> None:
        """Who can write the ledger's file can neither destroy a key nor hide that it was to be destroyed."""
        async with Vault(path, keyring) as vault:
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
            pseudonym = await vault.pseudonym(SUBJECT)
        async with Ledger(tmp_path / "forged.db", LedgerOptions(policy=SEALED_ONLY)) as forged:
            entry = erasure_entry("r-1", task_id=TASK, subject=pseudonym, removed={}, timestamp=datetime.now(UTC))
            await forged.append(entry)
            with pytest.raises(VaultError, match="'r-1' erased them, but the keys of this keyring do not prove"):
                await Vault(path, keyring, VaultOptions(ledger=forged)).__aenter__()

        async with Vault(path, keyring) as vault:
            assert await vault.open(payload, TASK) == {pseudonym: {"email": MARKER}}

    async def test_a_forged_list_erases_nothing(self, path: Path, tmp_path: Path, keyring: Keyring) -> None:
        """(d) Only a holder of the keys can erase (C-24)."""
        async with Vault(path, keyring) as vault:
            await vault.seal(SUBJECT, TASK, {"email": MARKER})
            shutil.copy(path, tmp_path / "backup.db")
            await vault.erase(SUBJECT, "r-1")
        [notice] = ErasureList(path.with_name("vault.db.erasures")).read()
        forged = notice.model_copy(update={"erasure_id": "r-9"})
        ErasureList(tmp_path / "backup.db.erasures").append([forged])

        with pytest.raises(VaultError, match="has no valid proof"):
            async with Vault(tmp_path / "backup.db", keyring):
                pass

    async def test_a_lost_list_is_written_again(self, path: Path, keyring: Keyring) -> None:
        """(d) The vault restores its list, and the list the vault (C-24)."""
        file = path.with_name("vault.db.erasures")
        async with Vault(path, keyring) as vault:
            await vault.seal(SUBJECT, TASK, {"email": MARKER})
            await vault.erase(SUBJECT, "r-1")
        before = file.read_bytes()
        file.write_bytes(before[:-20])
        async with Vault(path, keyring):
            assert file.read_bytes() == before

    async def test_a_damaged_list_is_an_error(self, path: Path, keyring: Keyring) -> None:
        """(d) A vault without a readable erasure list serves nothing (C-24)."""
        async with Vault(path, keyring) as vault:
            await vault.seal(SUBJECT, TASK, {"email": MARKER})
            await vault.erase(SUBJECT, "r-1")
        file = path.with_name("vault.db.erasures")
        file.write_bytes(b"x" + file.read_bytes())

        with pytest.raises(VaultError, match="is damaged"):
            await Vault(path, keyring).__aenter__()

    async def test_a_list_that_cannot_be_written_stops_the_erasure(self, path: Path, keyring: Keyring) -> None:
        """(d) No key is destroyed that a backup could restore unnoticed (C-24)."""
        async with Vault(path, keyring) as vault:
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
            path.with_name("vault.db.erasures").mkdir()
            with pytest.raises(VaultUnavailableError):
                await vault.erase(SUBJECT, "r-1")
            assert list((await vault.open(payload, TASK)).values()) == [{"email": MARKER}]

    async def test_a_forged_row_is_not_an_erasure(self, vault: Vault) -> None:
        """Only a proved erasure becomes a mark (C-24)."""
        payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
        await vault.erase(SUBJECT, "r-1")
        await vault._file.write(
            lambda connection: connection.execute("UPDATE erasure SET notice = replace(notice, 'r-1', 'r-2')")
        )

        with pytest.raises(VaultError, match="has no valid proof"):
            await vault.open(payload, TASK)
