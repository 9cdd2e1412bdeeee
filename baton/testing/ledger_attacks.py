"""Attacks on a ledger's file by plain SQL, and what each command makes of them."""

import asyncio
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from baton.keys.store_keyring import Keyring
from baton.ledger.chain import ChainHead, head_statement
from baton.ledger.records import AuditEntry, AuditRecord, ChainLink, LedgerError, next_record
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_database import SqliteConnection
from baton.ledger.store_evidence import verify_bundle
from baton.ledger.store_schema import StoredRecord, insert

COMMANDS = ("verify --all", "verify --all --anchors", "verify TASK", "checkpoint", "bundle", "append")
"""The columns of the table: what is asked after an attack. `append` is a worker that continues the task."""


@dataclass(frozen=True)
class Target:
    """What an attack is about."""

    file: Path
    record: AuditRecord

    @property
    def key_id(self) -> str | None:
        """The key that signed the record."""
        return self.record.claims.key_id if self.record.claims else None

    @property
    def place(self) -> tuple[str, int]:
        """The record's task, and its number there."""
        return self.record.link.task_id, self.record.link.sequence


Attack = Callable[[Target], None]


@contextmanager
def opened_past_guards(ledger: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger's file as its owner can: the triggers that refuse changes are dropped for good.

    Args:
        ledger: The SQLite file. Close the ledger first, and take a copy if you need it whole.

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
    _add(target.file, _forged(target.record.link, target.key_id, os.urandom(64)))


def forge_two_records(target: Target) -> None:
    """Add two of them: the second one continues the first."""
    first = _forged(target.record.link, target.key_id, os.urandom(64))
    _add(target.file, first)
    _add(target.file, _forged(first.link, target.key_id, os.urandom(64), event="forged-2"))


def forge_with_an_own_key(target: Target) -> None:
    """Add a record that a key of the attacker's own signed, under the real key's id."""
    record = _forged(target.record.link, target.key_id, b"")
    key = Ed25519PrivateKey.generate()
    link = target.record.link
    statement = head_statement(link.ledger, link.task_id, link.sequence + 1, record.hash, target.key_id)
    _add(target.file, record.signed(key.sign(statement)))


def forge_with_an_old_signature(target: Target) -> None:
    """Add a record with the genuine signature of the one before it."""
    _add(target.file, _forged(target.record.link, target.key_id, target.record.signature))


def forge_without_a_signature(target: Target) -> None:
    """Add a record that claims no key."""
    _add(target.file, _forged(target.record.link, None, None))


def forge_a_task(target: Target) -> None:
    """Add the first record of a task that there is not, under the real key's id."""
    genesis = ChainLink.genesis(target.record.link.ledger, "forged")
    _add(target.file, _forged(genesis, target.key_id, os.urandom(64)))


def cut_the_last_record(target: Target) -> None:
    """Delete the last record, and checkpoints that know of it."""
    _delete(target.file, "task_id = ? AND sequence = ?", *target.place)


def cut_the_task(target: Target) -> None:
    """Delete all records of the task, and checkpoints that know of them."""
    _delete(target.file, "task_id = ?", target.place[0])


def edit_a_message(target: Target) -> None:
    """Write another message for the last record, and leave the rest as it is."""
    _change(target, replace(target.record, message=b'{"edited":true}'))


def edit_a_record(target: Target) -> None:
    """Write the last record again with another status, and its hash; the signature stays."""
    header = target.record.header.replace(b'"status":"', b'"status":"X', 1)
    _change(target, AuditRecord(header, target.record.message, target.record.signature))


def drop_the_signature(target: Target) -> None:
    """Take the last record's signature away."""
    with opened_past_guards(target.file) as database:
        database.execute("UPDATE handoff_audit SET signature = NULL WHERE task_id = ? AND sequence = ?", target.place)


def drop_the_signature_and_the_key(target: Target) -> None:
    """Write the last record again as one that claims no key."""
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
        cut_the_last_record,
        cut_the_task,
        edit_a_message,
        edit_a_record,
        drop_the_signature,
        drop_the_signature_and_the_key,
    )
}
"""Every attack on a ledger's file, by its name."""


async def verdicts(
    file: Path, keyring: Keyring, attack: Attack | None = None, *, name: str = "baton", task_id: str | None = None
) -> dict[str, str]:
    """Return what each command makes of a ledger after an attack on a copy; it reads all records at once."""
    with tempfile.TemporaryDirectory(prefix="baton-attack-") as folder:
        copy = Path(folder) / "ledger.db"
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        options = LedgerOptions(name=name, signer=keyring.signer())
        async with Ledger(copy, options) as ledger:
            records = await ledger.newest(2**31)
        chosen = [one for one in records if task_id in (None, one.members["taskId"])]
        if not chosen:
            raise ValueError(f"the ledger {str(file)!r} has no records to attack")
        record = chosen[-1]
        # The heads of all chains, as somebody who kept them outside has them.
        heads = [ChainHead.of(one) for one in {one.members["taskId"]: one for one in records}.values()]
        if attack is not None:
            attack(Target(copy, record))
        async with Ledger(copy, options) as ledger:
            return await _asked(ledger, keyring, str(record.members["taskId"]), heads, Path(folder) / "bundle.zst")


async def _asked(
    ledger: Ledger, keyring: Keyring, task_id: str, heads: Sequence[ChainHead], bundle: Path
) -> dict[str, str]:
    public = keyring.public()

    async def bundled() -> str:
        if await ledger.head(task_id) is None:
            return "refused"
        await ledger.export(bundle, [task_id])
        return verify_bundle(bundle, verifier=public).verdict.value

    async def appended() -> str:
        entry = AuditEntry(
            kind="handoff", task_id=task_id, event_id="next", status="ACCEPTED", timestamp=datetime.now(UTC), message={}
        )
        await ledger.append(entry)
        return "recorded"

    async def checked() -> str:
        await ledger.checkpoint()
        return "made"

    async def asked(command: str) -> str:
        match command:
            case "verify --all":
                return (await ledger.verify_all(verifier=public)).verdict.value
            case "verify --all --anchors":
                return (await ledger.verify_all(verifier=public, anchors=heads)).verdict.value
            case "verify TASK":
                return (await ledger.verify(task_id, verifier=public)).verdict.value
            case "checkpoint":
                return await checked()
            case "bundle":
                return await bundled()
            case _:
                return await appended()

    found = {}
    for command in COMMANDS:
        try:
            found[command] = await asked(command)
        except LedgerError:
            found[command] = "refused"
    return found


async def table(file: Path, keyring: Keyring, *, name: str = "baton") -> str:
    """Return what each command makes of each attack, as a table in Markdown."""
    lines = [["attack", *(f"`{command}`" for command in COMMANDS)], ["---"] * (len(COMMANDS) + 1)]
    for said, attack in {"none": None, **LEDGER_ATTACKS}.items():
        found = await verdicts(file, keyring, attack, name=name)
        lines.append([said.replace("_", " "), *found.values()])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _forged(link: ChainLink, key_id: str | None, signature: bytes | None, *, event: str = "forged") -> AuditRecord:
    entry = AuditEntry(
        kind="handoff",
        task_id=link.task_id,
        event_id=event,
        status="ACCEPTED",
        timestamp=datetime.now(UTC),
        message={"forged": True},
    )
    record = next_record(entry, link, recorded_at=datetime.now(UTC), key_id=key_id)
    return record if signature is None else record.signed(signature)


def _add(file: Path, record: AuditRecord) -> None:
    """Insert a record as a worker can, with every trigger in force."""
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.row_factory = sqlite3.Row
        insert(SqliteConnection(database), [StoredRecord.of(record)])


def _delete(file: Path, condition: str, *values: object) -> None:
    with opened_past_guards(file) as database:
        chosen = f"SELECT position FROM handoff_audit WHERE {condition}"  # noqa: S608 - our own conditions
        database.execute(f"DELETE FROM handoff_audit_content WHERE position IN ({chosen})", values)  # noqa: S608
        database.execute(f"DELETE FROM handoff_audit WHERE {condition}", values)  # noqa: S608
        database.execute("DELETE FROM handoff_audit_checkpoint")


def _change(target: Target, changed: AuditRecord) -> None:
    """Write another record in the place of the last one, with an index that fits its header."""
    stored = StoredRecord.of(changed)
    with opened_past_guards(target.file) as database:
        database.execute(
            "UPDATE handoff_audit SET record_hash = ?, event_key = ?, key_id = ?, signature = ? "
            "WHERE task_id = ? AND sequence = ?",
            (changed.hash, stored.index[4], stored.index[7], changed.signature, *target.place),
        )
        where = (*stored.content[2:], target.record.position)
        database.execute("UPDATE handoff_audit_content SET codec = ?, bytes = ? WHERE position = ?", where)


def main() -> None:
    """Print the table for the ledger that the command line names."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m baton.testing.ledger_attacks LEDGER")
    name = os.environ.get("BATON_LEDGER_NAME") or "baton"
    sys.stdout.write(asyncio.run(table(Path(sys.argv[1]), Keyring.find_out(os.environ), name=name)))


if __name__ == "__main__":
    main()
