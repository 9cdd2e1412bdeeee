"""Attacks on a ledger's file by plain SQL, and the verdict of each command on them."""

import asyncio
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from baton.keys.store_keyring import Key, Keyring, Purpose
from baton.ledger.chain import ChainHead, head_statement
from baton.ledger.records import AuditEntry, AuditRecord, ChainLink, LedgerError, next_record
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_database import SqliteConnection
from baton.ledger.store_evidence import verify_bundle
from baton.ledger.store_schema import StoredRecord, insert

COMMANDS = ("verify --all", "verify --all --anchors", "verify TASK", "checkpoint", "bundle", "append")
"""The checks after an attack, which are the columns of the table. `append` is a worker that continues the task."""


@dataclass(frozen=True)
class Target:
    """The ledger's file and the record to attack."""

    file: Path
    record: AuditRecord
    retired: Key
    """A stolen key, which the deployment no longer signs with."""

    @property
    def key_id(self) -> str | None:
        """The key that signed the record."""
        return self.record.claims.key_id if self.record.claims else None

    @property
    def place(self) -> tuple[str, int]:
        """The record's task and sequence number."""
        return self.record.link.task_id, self.record.link.sequence


Attack = Callable[[Target], None]


@contextmanager
def opened_past_guards(ledger: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger's file as its owner can: drop the triggers that refuse changes.

    Args:
        ledger: The SQLite file. Close the ledger first, and work on a copy if you still need it.

    Yields:
        A connection, committed when the block ends without an exception.

    Example:
        ```python
        with opened_past_guards(path) as database:
            database.execute("DELETE FROM handoff_audit WHERE sequence > 3")
        ```
    """
    with closing(sqlite3.connect(ledger)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        connection.commit()


def forge_the_next_record(target: Target) -> None:
    """Add a record that continues the chain, under the real key's id, with 64 random bytes as its signature."""
    _add(target.file, _forge(target.record.link, target.key_id, os.urandom(64)))


def forge_two_records(target: Target) -> None:
    """Add two such records, the second of which continues the first."""
    first = _forge(target.record.link, target.key_id, os.urandom(64))
    _add(target.file, first)
    _add(target.file, _forge(first.link, target.key_id, os.urandom(64), event="forged-2"))


def forge_with_an_own_key(target: Target) -> None:
    """Add a record signed with the attacker's own key, under the real key's id."""
    record = _forge(target.record.link, target.key_id, b"")
    key = Ed25519PrivateKey.generate()
    statement = head_statement(record.link, target.key_id)
    _add(target.file, record.signed(key.sign(statement)))


def forge_with_an_old_signature(target: Target) -> None:
    """Add a record with the genuine signature of the previous record."""
    _add(target.file, _forge(target.record.link, target.key_id, target.record.signature))


def forge_without_a_signature(target: Target) -> None:
    """Add a record without a key id."""
    _add(target.file, _forge(target.record.link, None, None))


def forge_a_task(target: Target) -> None:
    """Add the first record of a nonexistent task, under the real key's id."""
    genesis = ChainLink.genesis(target.record.link.ledger, "forged")
    _add(target.file, _forge(genesis, target.key_id, os.urandom(64)))


def continue_with_a_retired_key(target: Target) -> None:
    """Add a record that continues the chain, signed with a retired key and dated before the retirement."""
    _add(target.file, _forge_backdated(target, target.record.link))


def forge_a_task_with_a_retired_key(target: Target) -> None:
    """Add such a record as the first of a nonexistent task."""
    _add(target.file, _forge_backdated(target, ChainLink.genesis(target.record.link.ledger, "forged")))


def cut_the_last_record(target: Target) -> None:
    """Delete the last record, and the checkpoints."""
    _delete(target.file, "task_id = ? AND sequence = ?", *target.place)


def cut_the_task(target: Target) -> None:
    """Delete all records of the task, and the checkpoints."""
    _delete(target.file, "task_id = ?", target.place[0])


def edit_a_message(target: Target) -> None:
    """Replace the last record's message only."""
    _change(target, replace(target.record, message=b'{"edited":true}'))


def edit_a_record(target: Target) -> None:
    """Replace the last record's status, with a matching hash and the old signature."""
    header = target.record.header.replace(b'"status":"', b'"status":"X', 1)
    _change(target, AuditRecord(header, target.record.message, target.record.signature))


def drop_the_signature(target: Target) -> None:
    """Remove the last record's signature."""
    with opened_past_guards(target.file) as database:
        database.execute("UPDATE handoff_audit SET signature = NULL WHERE task_id = ? AND sequence = ?", target.place)


def drop_the_signature_and_the_key(target: Target) -> None:
    """Remove the last record's signature and key id."""
    header = target.record.header.replace(f'"keyId":"{target.key_id}",'.encode(), b"", 1)
    _change(target, AuditRecord(header, target.record.message))


LEDGER_ATTACKS: Mapping[str, Attack] = {
    attack.__name__: attack
    for attack in (
        forge_the_next_record,
        forge_two_records,
        forge_with_an_own_key,
        forge_with_an_old_signature,
        forge_without_a_signature,
        forge_a_task,
        continue_with_a_retired_key,
        forge_a_task_with_a_retired_key,
        cut_the_last_record,
        cut_the_task,
        edit_a_message,
        edit_a_record,
        drop_the_signature,
        drop_the_signature_and_the_key,
    )
}
"""Every attack on a ledger's file, by name."""


async def verdicts(
    file: Path, keyring: Keyring, attack: Attack | None = None, *, name: str = "baton", task_id: str | None = None
) -> dict[str, str]:
    """Attack a copy of a ledger and return the verdict of each command. All records are read into memory.

    Before the attack the copy gets a checkpoint, two days after its last record, as a worker makes one a minute.
    """
    with tempfile.TemporaryDirectory(prefix="baton-attack-") as folder:
        copy = Path(folder) / "ledger.db"
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        options = LedgerOptions(name=name, signer=keyring.signer())
        async with Ledger(copy, options) as ledger:
            records = await ledger.newest(2**31)
        candidates = [item for item in records if task_id in (None, item.members["taskId"])]
        if not candidates:
            raise ValueError(f"the ledger {str(file)!r} has no records to attack")
        record = candidates[-1]
        last_at = datetime.fromisoformat(str(records[-1].members["recordedAt"]))
        retired = replace(Key.generate(Purpose.SIGN, last_at), retired_at=last_at)
        keyring = Keyring([*keyring.all_keys(), retired])
        options = LedgerOptions(name=name, signer=keyring.signer())
        async with Ledger(copy, replace(options, clock=lambda: last_at + timedelta(days=2))) as ledger:
            await ledger.checkpoint(unsigned=True, whole=False)
        # The heads of all chains, as kept outside the ledger.
        heads = [ChainHead.of(newest) for newest in {item.members["taskId"]: item for item in records}.values()]
        if attack is not None:
            attack(Target(copy, record, retired))
        async with Ledger(copy, options) as ledger:
            attacked_task = str(record.members["taskId"])
            return await _run_commands(ledger, keyring, attacked_task, heads, Path(folder) / "bundle.zst")


async def _run_commands(
    ledger: Ledger, keyring: Keyring, task_id: str, heads: Sequence[ChainHead], bundle: Path
) -> dict[str, str]:
    public = keyring.public()

    async def export_bundle() -> str:
        if await ledger.head(task_id) is None:
            return "refused"
        await ledger.export(bundle, [task_id])
        return verify_bundle(bundle, verifier=public).verdict.value

    async def append() -> str:
        entry = AuditEntry(
            kind="handoff", task_id=task_id, event_id="next", status="ACCEPTED", timestamp=datetime.now(UTC), message={}
        )
        await ledger.append(entry)
        return "recorded"

    async def make_checkpoint() -> str:
        await ledger.checkpoint()
        return "made"

    async def run(command: str) -> str:
        match command:
            case "verify --all":
                return (await ledger.verify_all(verifier=public)).verdict.value
            case "verify --all --anchors":
                return (await ledger.verify_all(verifier=public, anchors=heads)).verdict.value
            case "verify TASK":
                return (await ledger.verify(task_id, verifier=public)).verdict.value
            case "checkpoint":
                return await make_checkpoint()
            case "bundle":
                return await export_bundle()
            case _:
                return await append()

    results = {}
    for command in COMMANDS:
        try:
            results[command] = await run(command)
        except LedgerError:
            results[command] = "refused"
    return results


async def table(file: Path, keyring: Keyring, *, name: str = "baton") -> str:
    """Return the verdict of each command on each attack, as a Markdown table."""
    lines = [["attack", *(f"`{command}`" for command in COMMANDS)], ["---"] * (len(COMMANDS) + 1)]
    for attack_name, attack in {"none": None, **LEDGER_ATTACKS}.items():
        results = await verdicts(file, keyring, attack, name=name)
        lines.append([attack_name.replace("_", " "), *results.values()])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _forge_backdated(target: Target, link: ChainLink) -> AuditRecord:
    """Return a record by the retired key that is not younger than the key's retirement."""
    key = target.retired
    record = _forge(link, key.id, b"", at=key.created_at)
    return record.signed(key.private.sign(head_statement(record.link, key.id)))


def _forge(
    link: ChainLink, key_id: str | None, signature: bytes | None, *, event: str = "forged", at: datetime | None = None
) -> AuditRecord:
    entry = AuditEntry(
        kind="handoff",
        task_id=link.task_id,
        event_id=event,
        status="ACCEPTED",
        timestamp=datetime.now(UTC),
        message={"forged": True},
    )
    record = next_record(entry, link, recorded_at=at or datetime.now(UTC), key_id=key_id)
    return record if signature is None else record.signed(signature)


def _add(file: Path, record: AuditRecord) -> None:
    """Insert a record as a worker can, with all triggers active."""
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.row_factory = sqlite3.Row
        insert(SqliteConnection(database), [StoredRecord.of(record)])


def _delete(file: Path, condition: str, *values: object) -> None:
    with opened_past_guards(file) as database:
        positions = f"SELECT position FROM handoff_audit WHERE {condition}"  # noqa: S608 - our own conditions
        database.execute(f"DELETE FROM handoff_audit_content WHERE position IN ({positions})", values)  # noqa: S608
        database.execute(f"DELETE FROM handoff_audit WHERE {condition}", values)  # noqa: S608
        database.execute("DELETE FROM handoff_audit_checkpoint")


def _change(target: Target, changed: AuditRecord) -> None:
    """Replace the last record, with an index that matches its header."""
    stored = StoredRecord.of(changed)
    with opened_past_guards(target.file) as database:
        database.execute(
            "UPDATE handoff_audit SET record_hash = ?, event_key = ?, key_id = ?, signature = ? "
            "WHERE task_id = ? AND sequence = ?",
            (changed.hash, stored.index[4], stored.index[7], changed.signature, *target.place),
        )
        parameters = (*stored.content[2:], target.record.position)
        database.execute("UPDATE handoff_audit_content SET codec = ?, bytes = ? WHERE position = ?", parameters)


def main() -> None:
    """Print the table for the ledger named on the command line."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m baton.testing.ledger_attacks LEDGER")
    name = os.environ.get("BATON_LEDGER_NAME") or "baton"
    sys.stdout.write(asyncio.run(table(Path(sys.argv[1]), Keyring.from_environment(os.environ), name=name)))


if __name__ == "__main__":
    main()
