"""Attacks on a chain, as functions from its records to the forged ones.

The attacker can write whatever the ledger stores, hashes included, but has no signing key: what has to be
signed anew is signed with a key of the attacker's own. The attacks that need no records of other tasks and no keys
are the test kit's.
"""

from collections.abc import Sequence
from dataclasses import replace

from baton.ledger.records import AuditRecord, ChainLink
from tests.ledger.chain_attacks import MIDDLE
from tests.ledger.material import KEY, LEDGER, NOW, TASK, Key, bare, chain, entry, joined

Records = Sequence[AuditRecord]

THEIRS = Key("somebody-else")
IMPOSTOR = Key(KEY.key_id)
"""Another key under the ledger's own key id."""


def rechained(records: Records, start: int, signer: Key | None, *, skip: int = 0) -> list[AuditRecord]:
    """Return the chain rewritten from record ``start``, without the record ``skip``."""
    prefix = list(records[: start - 1])
    link = prefix[-1].link if prefix else ChainLink.genesis(LEDGER, TASK)
    for number in range(start, len(records) + 1):
        if number != skip:
            prefix.append(joined(entry(number - 1, details="nothing to see here"), link, signer, NOW))
            link = prefix[-1].link
    return bare(prefix)


def delete_and_rechain(records: Records) -> list[AuditRecord]:
    """Remove a record, and rewrite all later ones unsigned."""
    return rechained(records, MIDDLE, None, skip=MIDDLE)


def rechain_a_suffix(records: Records) -> list[AuditRecord]:
    """Rewrite the last records unsigned, without changing their number."""
    return rechained(records, MIDDLE, None)


def rechain_with_an_own_key(records: Records) -> list[AuditRecord]:
    """Rewrite the last records, signed by an unknown key."""
    return rechained(records, MIDDLE, THEIRS)


def rechain_as_an_impostor(records: Records) -> list[AuditRecord]:
    """Rewrite the last records, signed by another key under the ledger's key id."""
    return rechained(records, MIDDLE, IMPOSTOR)


def rechain_with_old_signatures(records: Records) -> list[AuditRecord]:
    """Rewrite the last records, with the genuine signatures."""
    forged = rechained(records, MIDDLE, IMPOSTOR)
    return [replace(new, signature=old.signature) for new, old in zip(forged, records, strict=True)]


def insert_a_forged_one(records: Records) -> list[AuditRecord]:
    """Insert a record that continues the one before it."""
    forged = joined(entry(50), records[MIDDLE - 2].link, THEIRS)
    return bare([*records[: MIDDLE - 1], forged, *records[MIDDLE - 1 :]])


def splice_from_another_task(records: Records) -> list[AuditRecord]:
    """Put the record of another task, signed by the ledger itself, in a record's place."""
    return _with(records, bare(chain(len(records), task_id="another task"))[MIDDLE - 1])


def replace_by_another_task(records: Records) -> list[AuditRecord]:
    return bare(chain(len(records), task_id="another task"))


def replace_by_another_ledger(records: Records) -> list[AuditRecord]:
    """Return the same task's chain in a test environment's ledger with the same keys."""
    return bare(chain(len(records), ledger="test"))


def rewrite_everything(records: Records) -> list[AuditRecord]:
    return rechained(records, 1, None)


def _with(records: Records, changed: AuditRecord) -> list[AuditRecord]:
    return [*records[: MIDDLE - 1], changed, *records[MIDDLE:]]
