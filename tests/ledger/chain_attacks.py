"""Attacks on the ledger: on the records of a chain, and on the file behind its triggers.

The attacker can write whatever the ledger stores, hashes included, but has no signing key. Each attack is a function
from a task's records, four or more, to the attacker's. A verifier with the public keys and the
chain's last head refuses every one but `drop_the_signature`, after which the chain is whole and only signed less far.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from baton.ledger.records import AuditRecord

Attack = Callable[[Sequence[AuditRecord]], list[AuditRecord]]

MIDDLE = 3
"""The record that most attacks are about, by its number."""


def edited(record: AuditRecord, old: bytes, new: bytes) -> AuditRecord:
    """Return a record with a text in its header replaced, neither signed nor linked again.

    Raises:
        ValueError: The header does not have that text.
    """
    if old not in record.header:
        raise ValueError(f"the header has no {old!r} to replace")
    return AuditRecord(record.header.replace(old, new, 1), record.message, record.signature, record.position)


def edit_a_message(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Change an agent's input."""
    return _with(records, replace(records[MIDDLE - 1], message=b'{"number":99}'))


def edit_a_member(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Turn an acceptance into a rejection, or a rejection into an acceptance."""
    return _with(records, _turned(records[MIDDLE - 1]))


def edit_the_last_member(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Change the last record, which no other record refers to."""
    return [*records[:-1], _turned(records[-1])]


def edit_and_rehash_one(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Change a record and its own hash, but nothing else."""
    turned = _turned(records[MIDDLE - 1])
    return _with(records, replace(turned, claimed_hash=turned.hash))


def edit_and_rehash_the_rest(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Change a record, and relink all later ones; their signatures stay."""
    changed = _with(records, _turned(records[MIDDLE - 1]))
    for place in range(MIDDLE, len(changed)):
        old, new = records[place - 1].hash.hex().encode(), changed[place - 1].hash.hex().encode()
        changed[place] = edited(changed[place], old, new)
    return changed


def delete_the_middle(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Remove a record."""
    return [*records[: MIDDLE - 1], *records[MIDDLE:]]


def delete_and_repair_one(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Remove a record, and link the next one to the one before it."""
    previous, removed, following = records[MIDDLE - 2 : MIDDLE + 1]
    repaired = edited(following, removed.hash.hex().encode(), previous.hash.hex().encode())
    return [*records[: MIDDLE - 1], repaired, *records[MIDDLE + 1 :]]


def truncate(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Cut the end off: the rest is a genuine chain with a genuine head."""
    return list(records[: MIDDLE - 1])


def empty(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Remove all records."""
    return []


def cut_the_beginning(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Cut the beginning off."""
    return list(records[MIDDLE - 1 :])


def swap(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Swap two records."""
    return [*records[: MIDDLE - 1], records[MIDDLE], records[MIDDLE - 1], *records[MIDDLE + 1 :]]


def duplicate(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Duplicate a record."""
    return [*records[:MIDDLE], records[MIDDLE - 1], *records[MIDDLE:]]


def renumber(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Give a record another number."""
    number = b'"sequence":%d'
    sequence = records[MIDDLE - 1].members["sequence"]
    return _with(records, edited(records[MIDDLE - 1], number % sequence, number % (sequence + 1)))


def drop_the_signature(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Remove the last signature."""
    return [*records[:-1], replace(records[-1], signature=None)]


def empty_the_signature(records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Replace the last signature with an empty one."""
    return [*records[:-1], replace(records[-1], signature=b"")]


CHAIN_ATTACKS: Mapping[str, Attack] = {
    attack.__name__: attack
    for attack in (
        edit_a_message,
        edit_a_member,
        edit_the_last_member,
        edit_and_rehash_one,
        edit_and_rehash_the_rest,
        delete_the_middle,
        delete_and_repair_one,
        truncate,
        empty,
        cut_the_beginning,
        swap,
        duplicate,
        renumber,
        drop_the_signature,
        empty_the_signature,
    )
}
"""Every attack on a chain of signed records, by its name."""


def _with(records: Sequence[AuditRecord], changed: AuditRecord) -> list[AuditRecord]:
    return [*records[: MIDDLE - 1], changed, *records[MIDDLE:]]


def _turned(record: AuditRecord) -> AuditRecord:
    """Return a record with the opposite status."""
    if b"ACCEPTED" in record.header:
        return edited(record, b"ACCEPTED", b"REJECTED")
    return edited(record, b"REJECTED", b"ACCEPTED")
