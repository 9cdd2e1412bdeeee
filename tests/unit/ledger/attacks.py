"""What attackers do to a chain, each as a function from its records to theirs.

The attacker can write whatever the ledger stores, hashes included, but has no signing key: what has to be
signed anew is signed with a key of the attacker's own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from baton.protocol.audit import AuditRecord, ChainLink
from tests.unit.ledger.material import KEY, LEDGER, NOW, TASK, Key, bare, chain, entry, joined

Records = Sequence[AuditRecord]
Attack = Callable[[list[AuditRecord]], list[AuditRecord]]

MIDDLE = 3
"""The record that most attacks are about, by its number."""
THEIRS = Key("somebody-else")
IMPOSTOR = Key(KEY.key_id)
"""Another key under the ledger's own key id."""


def with_header(record: AuditRecord, old: bytes, new: bytes) -> AuditRecord:
    """Return a record whose header was edited; it is not hashed or signed anew."""
    assert old in record.header
    return AuditRecord(record.header.replace(old, new, 1), record.message, record.signature, record.position)


def rechained(records: Records, start: int, signer: Key | None, *, skip: int = 0) -> list[AuditRecord]:
    """Return the chain with everything from record ``start`` on written anew, without the record ``skip``."""
    kept = list(records[: start - 1])
    link = kept[-1].link if kept else ChainLink.genesis(LEDGER, TASK)
    for number in range(start, len(records) + 1):
        if number != skip:
            kept.append(joined(entry(number - 1, details="nothing to see here"), link, signer, NOW))
            link = kept[-1].link
    return bare(kept)


def edit_a_message(records: list[AuditRecord]) -> list[AuditRecord]:
    """Change what an agent was told."""
    return _with(records, replace(records[MIDDLE - 1], message=b'{"number":99}'))


def edit_a_member(records: list[AuditRecord]) -> list[AuditRecord]:
    """Turn an acceptance into a rejection."""
    return _with(records, with_header(records[MIDDLE - 1], b"ACCEPTED", b"REJECTED"))


def edit_the_last_member(records: list[AuditRecord]) -> list[AuditRecord]:
    """Change the last record, which no other one names."""
    return [*records[:-1], with_header(records[-1], b"ACCEPTED", b"REJECTED")]


def edit_and_rehash_one(records: list[AuditRecord]) -> list[AuditRecord]:
    """Change a record and its own hash, wherever that is stored, and nothing else."""
    edited = with_header(records[MIDDLE - 1], b"ACCEPTED", b"REJECTED")
    return _with(records, replace(edited, claimed_hash=edited.hash))


def delete_the_middle(records: list[AuditRecord]) -> list[AuditRecord]:
    """Leave one record out."""
    return [*records[: MIDDLE - 1], *records[MIDDLE:]]


def delete_and_repair_one(records: list[AuditRecord]) -> list[AuditRecord]:
    """Leave one record out, and make the next one name the one before it."""
    before, gone, after = records[MIDDLE - 2 : MIDDLE + 1]
    repaired = with_header(after, gone.hash.hex().encode(), before.hash.hex().encode())
    return [*records[: MIDDLE - 1], repaired, *records[MIDDLE + 1 :]]


def delete_and_rechain(records: list[AuditRecord]) -> list[AuditRecord]:
    """Leave one record out, and write all later ones anew, unsigned."""
    return rechained(records, MIDDLE, None, skip=MIDDLE)


def rechain_a_suffix(records: list[AuditRecord]) -> list[AuditRecord]:
    """Write the last records anew, as many as there were, unsigned."""
    return rechained(records, MIDDLE, None)


def rechain_with_an_own_key(records: list[AuditRecord]) -> list[AuditRecord]:
    """Write the last records anew, signed by a key nobody knows."""
    return rechained(records, MIDDLE, THEIRS)


def rechain_as_an_impostor(records: list[AuditRecord]) -> list[AuditRecord]:
    """Write the last records anew, signed by another key under the ledger's key id."""
    return rechained(records, MIDDLE, IMPOSTOR)


def rechain_with_old_signatures(records: list[AuditRecord]) -> list[AuditRecord]:
    """Write the last records anew, and put the genuine signatures beside them."""
    forged = rechained(records, MIDDLE, IMPOSTOR)
    return [replace(new, signature=old.signature) for new, old in zip(forged, records, strict=True)]


def truncate(records: list[AuditRecord]) -> list[AuditRecord]:
    """Cut the end off: what is left is a genuine chain with a genuine head."""
    return records[: MIDDLE - 1]


def empty(records: list[AuditRecord]) -> list[AuditRecord]:
    """Leave nothing."""
    return []


def cut_the_beginning(records: list[AuditRecord]) -> list[AuditRecord]:
    """Cut the beginning off."""
    return records[MIDDLE - 1 :]


def swap(records: list[AuditRecord]) -> list[AuditRecord]:
    """Let two records change places."""
    changed = list(records)
    changed[MIDDLE - 1], changed[MIDDLE] = changed[MIDDLE], changed[MIDDLE - 1]
    return changed


def duplicate(records: list[AuditRecord]) -> list[AuditRecord]:
    """Put a record in twice."""
    return [*records[:MIDDLE], records[MIDDLE - 1], *records[MIDDLE:]]


def insert_a_forged_one(records: list[AuditRecord]) -> list[AuditRecord]:
    """Put a record in between that continues the one before it."""
    forged = joined(entry(50), records[MIDDLE - 2].link, THEIRS)
    return bare([*records[: MIDDLE - 1], forged, *records[MIDDLE - 1 :]])


def splice_from_another_task(records: list[AuditRecord]) -> list[AuditRecord]:
    """Put the record of another task, signed by the ledger itself, in a record's place."""
    return _with(records, bare(chain(len(records), task_id="another task"))[MIDDLE - 1])


def replace_by_another_task(records: list[AuditRecord]) -> list[AuditRecord]:
    """Show the whole chain of another task."""
    return bare(chain(len(records), task_id="another task"))


def replace_by_another_ledger(records: list[AuditRecord]) -> list[AuditRecord]:
    """Show the chain of the same task in the ledger of a test environment, which has the same keys."""
    return bare(chain(len(records), ledger="test"))


def renumber(records: list[AuditRecord]) -> list[AuditRecord]:
    """Give a record another number."""
    return _with(records, with_header(records[MIDDLE - 1], b'"sequence":3', b'"sequence":4'))


def rewrite_everything(records: list[AuditRecord]) -> list[AuditRecord]:
    """Write the whole chain anew, unsigned."""
    return rechained(records, 1, None)


def drop_the_signature(records: list[AuditRecord]) -> list[AuditRecord]:
    """Take the last signature away."""
    return [*records[:-1], replace(records[-1], signature=None)]


def empty_the_signature(records: list[AuditRecord]) -> list[AuditRecord]:
    """Put an empty signature in the last one's place."""
    return [*records[:-1], replace(records[-1], signature=b"")]


def _with(records: list[AuditRecord], changed: AuditRecord) -> list[AuditRecord]:
    return [*records[: MIDDLE - 1], changed, *records[MIDDLE:]]
