"""Erasure, holds and the journal, as functions on the vault's file; and the erasure list beside it.

The list is a second, append-only file. The vault's file may be restored from a backup, and then holds keys again
that were destroyed; the list tells which, and who opens the vault erases them again before anything is served.
"""

import os
import re
import sqlite3
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from baton.artifacts.store import sync_folder
from baton.keys.store_keyring import Keyring
from baton.ledger.records import AuditEntry, Kind, stamp
from baton.personal.records import ErasureNotice, VaultError, VaultUnavailableError
from baton.personal.store_subjects import Located, destroy, proved

ERASED, REFUSED, UNKNOWN = "ERASED", "REFUSED", "UNKNOWN"
LEGAL_HOLD = "LEGAL_HOLD"
"""The reason that the ledger has for a refusal; the hold's own words stay in the vault."""
_RECORDABLE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")


class ErasureRecorder(Protocol):
    """What the vault needs of the ledger."""

    async def record_erasure(
        self,
        erasure_id: str,
        *,
        subject: str,
        task_ids: list[str],
        removed: dict[str, int],
        actor: str | None = None,
    ) -> object:
        """Put an erasure on record in the chain of each task; the same one again changes nothing."""

    async def append_all(self, entries: list[AuditEntry]) -> object:
        """Put events on record; the same ones again change nothing."""


@dataclass(frozen=True)
class Erasure:
    """What came of a request to erase a data subject; true if the subject's data can't be read any more.

    Attributes:
        status: `ERASED`, `REFUSED` because of a legal hold, or `UNKNOWN`: the vault has nothing of the subject.
        subject: The pseudonym.
        request_id: The id of the request that destroyed the keys; of an earlier one if this is a repetition.
        at: When that was.
        removed: How many keys were destroyed, and how many places in the index forgotten.
        task_ids: The tasks whose chains got a record by this call.
        recorded: Whether every affected task has its record; without a ledger it has not.
        repeated: Whether the keys were gone before this call.
        why: Why it was refused.
    """

    status: str
    subject: str
    request_id: str
    at: datetime
    removed: dict[str, int] = field(default_factory=dict)
    task_ids: tuple[str, ...] = ()
    recorded: bool = True
    repeated: bool = False
    why: str = ""

    def __bool__(self) -> bool:
        return self.status != REFUSED


class ErasureList:
    """The erasure list: one line for each erasure, on the disk before the keys are gone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[ErasureNotice]:
        """Return the notices; what a crash cut off at the end was never an erasure."""
        try:
            *lines, _ = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise VaultUnavailableError(f"the erasure list {str(self.path)!r} cannot be read: {error}") from error
        try:
            return [ErasureNotice.model_validate_json(line) for line in lines]
        except ValidationError:
            raise VaultError(
                f"the erasure list {str(self.path)!r} is damaged; restore it from a copy, or no one can tell what "
                "has to stay erased"
            ) from None

    def append(self, notices: list[ErasureNotice]) -> None:
        """Add notices, durably. The caller is in a writing transaction of the vault, so no one else adds one."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, "r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
            file.seek(0, os.SEEK_END)
            for notice in notices:
                file.write(notice.model_dump_json(by_alias=True).encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        sync_folder(self.path.parent)


def check_recordable(request_id: str, actor: str | None) -> None:
    """Refuse what could not be put on record, as long as no key is destroyed."""
    for what, word in (("the id of the request", request_id), ("the name of who erases", actor)):
        if word is not None and not _RECORDABLE.fullmatch(word):
            raise VaultError(
                f"{what} is recorded forever: give 1 to 200 characters in one line, without control characters; "
                "nothing was erased"
            )


def erase(
    connection: sqlite3.Connection,
    keyring: Keyring,
    found: Located,
    *,
    request_id: str,
    actor: str | None,
    at: datetime,
) -> ErasureNotice:
    """Destroy the keys of a subject that is not held, note which tasks are to be told, and return the notice."""
    if found.id is None:
        raise ValueError(f"the vault has nothing of {found.pseudonym!r}")
    keys, places = connection.execute(
        "SELECT (SELECT count(*) FROM data_key WHERE subject = :id), (SELECT count(*) FROM place WHERE subject = :id)",
        {"id": found.id},
    ).fetchone()
    notice = ErasureNotice(
        subject=found.pseudonym,
        index_key=found.named.key_id,
        erasure_id=request_id,
        at=at,
        removed={"keys": keys, "places": places},
        actor=actor,
    )
    notice = proved(notice, keyring)
    apply(connection, notice)
    journal(connection, ERASED, found.pseudonym, at, request_id=request_id, actor=actor)
    return notice


def apply(connection: sqlite3.Connection, notice: ErasureNotice) -> bool:
    """Make the vault's file what it is after an erasure, and return whether it held anything of the subject."""
    connection.execute("INSERT OR IGNORE INTO index_key VALUES (?)", (notice.index_key,))
    connection.execute(
        "INSERT OR IGNORE INTO erasure (subject, index_key, notice) VALUES (?, ?, ?)",
        (notice.subject, notice.index_key, notice.model_dump_json(by_alias=True)),
    )
    row = connection.execute("SELECT id FROM subject WHERE pseudonym = ?", (notice.subject,)).fetchone()
    if row is None:
        return False
    connection.execute(
        "INSERT OR IGNORE INTO unrecorded SELECT DISTINCT ?, task_id FROM place WHERE subject = ?",
        (notice.subject, row[0]),
    )
    destroy(connection, row[0])
    return True


def notices(connection: sqlite3.Connection) -> list[ErasureNotice]:
    """Return the notices of all erasures in the vault's file."""
    rows = connection.execute("SELECT notice FROM erasure ORDER BY subject")
    return [ErasureNotice.model_validate_json(row[0]) for row in rows]


def notice_of(connection: sqlite3.Connection, pseudonym: str) -> ErasureNotice:
    """Return the notice of the erasure of a pseudonym that was erased."""
    row = connection.execute("SELECT notice FROM erasure WHERE subject = ?", (pseudonym,)).fetchone()
    return ErasureNotice.model_validate_json(row[0])


def unrecorded(connection: sqlite3.Connection, pseudonym: str, most: int) -> list[str]:
    """Return tasks whose chains do not have the record of an erasure yet."""
    rows = connection.execute(
        "SELECT task_id FROM unrecorded WHERE subject = ? ORDER BY task_id LIMIT ?", (pseudonym, most)
    )
    return [row[0] for row in rows]


def mark_recorded(connection: sqlite3.Connection, pseudonym: str, task_ids: list[str]) -> None:
    """Forget which tasks an erasure concerned, now that their chains say so."""
    connection.executemany(
        "DELETE FROM unrecorded WHERE subject = ? AND task_id = ?", [(pseudonym, task_id) for task_id in task_ids]
    )


def held(connection: sqlite3.Connection, found: Located) -> str | None:
    """Return why the erasure of a subject is refused; None if it is not."""
    row = connection.execute("SELECT why FROM hold WHERE subject = ?", (found.id,)).fetchone()
    return None if row is None else str(row[0])


def journal(
    connection: sqlite3.Connection,
    event: str,
    pseudonym: str,
    at: datetime,
    *,
    request_id: str | None = None,
    actor: str | None = None,
    why: str | None = None,
) -> None:
    """Note in the vault what was done about a subject, and who did it."""
    connection.execute(
        "INSERT INTO journal (at, event, subject, request_id, actor, why) VALUES (?, ?, ?, ?, ?, ?)",
        (stamp(at), event, pseudonym, request_id, actor, why),
    )


def refusal_entry(report: Erasure, task_id: str, actor: str | None) -> AuditEntry:
    """Return the ledger's entry of a refused erasure, for one task's chain (GDPR Art. 17(3))."""
    return AuditEntry(
        kind=Kind.ERASURE,
        task_id=task_id,
        event_id=report.request_id,
        status=REFUSED,
        timestamp=report.at,
        reason=LEGAL_HOLD,
        actor=actor,
        message={"subject": report.subject},
    )
