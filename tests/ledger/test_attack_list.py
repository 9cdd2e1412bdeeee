"""The list of attacks on an audit chain (requirements.md 6.3), a row for each, on a ledger's file.

The attacker owns the database: the guards are dropped, both tables are written anew, and the index is made to fit what
it lists. What each attack looks like to verifiers with less than the public keys and an anchor is the table of
`test_audit_proof.py`; single columns and bytes are `test_tampering.py`'s.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from baton.client import Vault, VaultOptions
from baton.keys.claims import HeadVerifier
from baton.keys.store_keyring import Keyring
from baton.ledger.chain import ChainHead, Flaw, Verdict
from baton.ledger.records import AuditRecord, LedgerError
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_evidence import verify_bundle
from baton.ledger.store_schema import StoredRecord
from baton.personal.records import SEALED_ONLY
from tests.ledger import attacks
from tests.ledger import chain_attacks as chains
from tests.ledger.chain_attacks import MIDDLE, Attack
from tests.ledger.material import KEY, KEYS, NOW, TASK, Key, PublicKeys, bare, chain, entry, joined
from tests.ledger.proving import named
from tests.personal.material import MARKER, SUBJECT, found_in

LENGTH = 5
CONTENT = "INSERT INTO handoff_audit_content (position, codec, bytes) VALUES (?, ?, ?)"


def rewrite(path: Path, records: list[AuditRecord]) -> None:
    """Replace the task's records with these, numbered so that the index looks intact."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM handoff_audit_content")
        database.execute("DELETE FROM handoff_audit")
        columns = [row[1] for row in database.execute("PRAGMA table_info(handoff_audit)")]
        for place, record in enumerate(records, 1):
            stored = StoredRecord.of(record)
            repeated = record in records[: place - 1]  # then the tables want another event and another predecessor
            row = {
                "position": place,
                "task_id": TASK,
                "sequence": place,
                "previous_hash": bytes(32) if repeated else stored.index[2],
                "record_hash": stored.index[3],
                "event_key": stored.index[4] + "#" * repeated,
                "message_hash": stored.index[5],
                "recorded_at": stored.index[6],
                "key_id": stored.index[7],
                "signature": stored.index[8],
            }
            names = [name for name in columns if name in row]
            marks = ", ".join("?" * len(names))
            database.execute(
                f"INSERT INTO handoff_audit ({', '.join(names)}) VALUES ({marks})",
                [row[name] for name in names],
            )
            database.execute(CONTENT, [place, *stored.content[2:]])


def change_a_column(path: Path) -> None:
    """Change an index column, which no hash covers."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute(
            "UPDATE handoff_audit SET recorded_at = '2020-01-01T00:00:00.000000Z' WHERE sequence = ?", [MIDDLE]
        )


def attacked(attack: Attack) -> Callable[[Path, list[AuditRecord]], None]:
    """Turn an attack on records into an attack on a file."""
    return lambda path, records: rewrite(path, attack(bare(records)))


MUST_FAIL = [
    pytest.param(attacked(chains.edit_a_member), MIDDLE, id="edit a member"),
    pytest.param(attacked(chains.edit_a_message), MIDDLE, id="edit a member of the message"),
    pytest.param(attacked(chains.edit_and_rehash_one), MIDDLE, id="edit and recompute that record's hash only"),
    pytest.param(
        attacked(chains.delete_and_repair_one), MIDDLE, id="delete a middle record and repair one previousRecordHash"
    ),
    pytest.param(attacked(attacks.delete_and_rechain), MIDDLE, id="delete and recompute all later hashes"),
    pytest.param(attacked(chains.truncate), MIDDLE, id="truncate the tail"),
    pytest.param(attacked(chains.empty), 1, id="empty the log"),
    pytest.param(attacked(chains.swap), MIDDLE, id="swap two records"),
    pytest.param(attacked(chains.duplicate), MIDDLE + 1, id="duplicate a record"),
    pytest.param(
        attacked(attacks.replace_by_another_task), 1, id="replace the whole log by a valid log of another task"
    ),
    pytest.param(lambda path, _: change_a_column(path), MIDDLE, id="change a header member outside the hashed body"),
    pytest.param(attacked(attacks.rechain_with_an_own_key), MIDDLE, id="unknown key id"),
]
"""By name as in 6.3, with the record at which a verifier with keys and anchors must see it."""


async def written(path: Path, options: LedgerOptions, *signers: Key) -> tuple[list[AuditRecord], list[ChainHead]]:
    """Write records with one signer after another, and return them with their heads."""
    heads: list[ChainHead] = []
    for signer in signers or (KEY,):
        async with Ledger(path, replace(options, signer=signer, clock=lambda: NOW)) as ledger:
            for number in range(len(heads), len(heads) + LENGTH):
                heads.append(await ledger.append(entry(number)))
    async with Ledger(path, replace(options, signer=None)) as ledger:
        return list((await ledger.trace(TASK)).records), heads


async def verified(
    path: Path, options: LedgerOptions, heads: list[ChainHead], verifier: HeadVerifier = KEYS
) -> tuple[Verdict, int | None, Flaw | None]:
    """Return the verdict on the task, the record it names and the flaw."""
    async with Ledger(path, replace(options, signer=None)) as ledger:
        chain = await ledger.verify(TASK, verifier=verifier, anchors=heads)
        ledger_report = await ledger.verify_all(verifier=verifier, anchors=heads)
    assert ledger_report.verdict is chain.verdict, "a task alone and the whole ledger are verified alike"
    return named(chain)


class TestAttackList:
    async def test_an_unchanged_ledger_is_valid(self, path: Path, options: LedgerOptions) -> None:
        """Rewriting the same records is valid too, so the attacks below fail for their change alone."""
        records, heads = await written(path, options)
        assert await verified(path, options, heads) == (Verdict.VALID, None, None)

        rewrite(path, bare(records))

        assert await verified(path, options, heads) == (Verdict.VALID, None, None)

    @pytest.mark.parametrize(("attack", "named"), MUST_FAIL)
    async def test_the_attack_is_detected(
        self,
        path: Path,
        options: LedgerOptions,
        attack: Callable[[Path, list[AuditRecord]], None],
        named: int,
    ) -> None:
        """With public keys and the run's heads the chain is invalid, and the record is named (C-26)."""
        records, heads = await written(path, options)

        attack(path, records)

        verdict, sequence, flaw = await verified(path, options, heads)
        assert (verdict, sequence) == (Verdict.INVALID, named), flaw

    async def test_records_of_the_previous_key_are_valid(self, path: Path, options: LedgerOptions) -> None:
        """After a rotation the old key's signatures still verify (P7, T4)."""
        old = Key("ed-2025")
        new = Key("ed-2026", old)
        _, heads = await written(path, options, old, new)
        keys = PublicKeys.of(old, new, retired={"ed-2025": NOW + timedelta(seconds=1)})

        assert await verified(path, options, heads, keys) == (Verdict.VALID, None, None)

    async def test_erasing_personal_data_keeps_the_chain_valid(
        self, path: Path, options: LedgerOptions, tmp_path: Path
    ) -> None:
        """Destroying the key changes no hash; the erasure is one more record (C-24, P8)."""
        async with (
            Ledger(path, replace(options, policy=SEALED_ONLY)) as ledger,
            Vault(tmp_path / "vault.db", Keyring.generate(), VaultOptions(ledger=ledger)) as vault,
        ):
            payload = await vault.seal(SUBJECT, TASK, {"email": MARKER})
            heads = [await ledger.append(entry(0, message={"personalDataPayload": payload}))]
            original = (await ledger.trace(TASK)).records
            await vault.erase(SUBJECT, "r-1", "dpo")
            erased = (await ledger.trace(TASK)).records

        assert [record.header for record in erased[:1]] == [record.header for record in original]
        assert erased[-1].fields.kind == "erasure"
        assert found_in(tmp_path, [MARKER.encode()]) == 0
        heads.append(ChainHead.of(erased[-1]))
        assert await verified(path, options, heads) == (Verdict.VALID, None, None)

    async def test_a_record_before_position_1_is_verified(self, path: Path, options: LedgerOptions) -> None:
        """Positions start at 1, but a forger can use smaller ones; verification includes them."""
        await written(path, options)
        async with Ledger(path, replace(options, signer=None)) as forger:
            await forger.append(entry(0, task_id="forged"))
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            for table in ("handoff_audit", "handoff_audit_content"):
                database.execute(f"DROP TRIGGER {table}_no_update")
                database.execute(f"UPDATE {table} SET position = ? WHERE position = ?", [-(2**63), LENGTH + 1])

        async with Ledger(path, options) as ledger:
            report = await ledger.verify_all(verifier=KEYS)
            with pytest.raises(LedgerError, match="task 'forged' is not proved"):
                await ledger.checkpoint()

        assert (report.verdict, report.records) == (Verdict.UNVERIFIED, LENGTH + 1)
        assert [chain.task_id for chain in report.findings] == ["forged"]

    async def test_an_unsigned_record_below_signed_ones_is_detected(
        self, path: Path, options: LedgerOptions, tmp_path: Path
    ) -> None:
        """A forger without a key adds a record that an honest writer then extends (P1)."""
        async with Ledger(path, options) as ledger:
            await ledger.append(entry(0))
        records = chain(3)
        forged = joined(entry(1), records[0].link, None)
        rewrite(path, bare([records[0], forged, joined(entry(2), forged.link, KEY)]))
        async with Ledger(path, options) as ledger:
            end = await ledger.head(TASK)
            assert end is not None
            anchors = [end]
            chain_report = await ledger.verify(TASK, verifier=KEYS, anchors=anchors)
            ledger_report = await ledger.verify_all(verifier=KEYS, anchors=anchors)
            await ledger.export(tmp_path / "evidence.zst", [TASK])
            bundle = verify_bundle(tmp_path / "evidence.zst", verifier=KEYS)
            with pytest.raises(LedgerError, match=r"record 2 of task .* is not proved"):
                await ledger.checkpoint()

        for report in (chain_report, ledger_report, bundle):
            assert named(report) == (Verdict.UNVERIFIED, 2, Flaw.UNSIGNED)
            assert report.linked == 3
