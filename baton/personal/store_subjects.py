"""Subjects, their pseudonyms, their keys and their places, as functions on the vault's file within one transaction.

A pseudonym is an HMAC under an INDEX key of the keyring, as is the proof of an erasure. A bare hash of an e-mail
address can be guessed; an HMAC only by who has the key. Keep INDEX keys when they are retired: without its key, no
name leads to a pseudonym any more, and its subjects cannot be found to be erased.
"""

import hashlib
import hmac
import os
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

import rfc8785
from pydantic import ValidationError

from baton.artifacts.store import sync_folder
from baton.keys.store_keyring import Key, Keyring, Purpose, UnknownKeyError
from baton.ledger.entries import erasure_entry
from baton.ledger.records import AuditEntry, Kind, stamp
from baton.personal.records import DataKeyMissingError, Erased, ErasureNotice, VaultError, VaultUnavailableError
from baton.personal.store_file import WRAPPED_BYTES, Context, KeyPlace, new_key, new_kid, unwrap, wrap
from baton.wire.json_values import pae

_SUBJECT, _NOTICE = "baton/vault-subject/v1", "baton/vault-erasure/v1"


@dataclass(frozen=True)
class Located:
    """What the vault knows of a subject that was asked for by name.

    Attributes:
        pseudonym: What the subject is called outside.
        key_id: The INDEX key that made the pseudonym.
        id: Its row, if it has one.
        erased: The notice of its erasure, if it was erased.
    """

    pseudonym: str
    key_id: str
    id: int | None = None
    erased: ErasureNotice | None = None


def check_index_keys(keyring: Keyring, used: Iterable[str]) -> None:
    """Make sure that every subject of the vault can be found by name."""
    missing = sorted(one for one in set(used) if not _has(keyring, one))
    if missing:
        raise VaultError(
            f"the vault has subjects under the index key {', '.join(map(repr, missing))}, which the keyring has not, "
            "so no one can tell whether this subject is among them; put the key back into the keyring, retired"
        )


def _has(keyring: Keyring, key_id: str) -> bool:
    """Return whether a keyring has an INDEX key; one that another worker took up just now is looked for in the file."""
    try:
        keyring.find(Purpose.INDEX, key_id)
    except UnknownKeyError:
        return False
    return True


def proved(notice: ErasureNotice, keyring: Keyring) -> ErasureNotice:
    """Return an erasure notice with its proof."""
    return notice.model_copy(update={"proof": _proof(notice, keyring)})


def check_proof(notice: ErasureNotice, keyring: Keyring) -> None:
    """Make sure that an erasure notice was made by a vault of this keyring."""
    if not hmac.compare_digest(notice.proof, _proof(notice, keyring)):
        raise VaultError(
            f"the notice of the erasure {notice.erasure_id!r} does not prove it: it was changed, or is of another "
            "vault; look into who wrote it before anything is erased or taken for erased"
        )


def _proof(notice: ErasureNotice, keyring: Keyring) -> str:
    key = keyring.find(Purpose.INDEX, notice.index_key)
    return hmac.digest(key.secret, pae(_NOTICE, rfc8785.dumps(notice.statement())), hashlib.sha256).hex()


def _pseudonym(key: Key, subject: str) -> str:
    return "sub-" + hmac.digest(key.secret, pae(_SUBJECT, rfc8785.dumps(subject)), hashlib.sha256).hex()[:32]


PAGE = 1_000
"""How many keys are wrapped again in one transaction."""


@dataclass(frozen=True)
class Place:
    """A place where data of a subject was sealed."""

    task_id: str
    name: str


def locate(connection: sqlite3.Connection, keyring: Keyring, subject: str) -> Located:
    """Return what the vault knows of a subject, whichever INDEX key it was first indexed with."""
    if not subject.strip():
        raise ValueError("a data subject needs a name, such as a customer number; found an empty text")
    check_index_keys(keyring, (row[0] for row in connection.execute("SELECT id FROM index_key")))
    keyring.current(Purpose.INDEX)
    names = [Located(_pseudonym(key, subject), key.id) for key in keyring.all_keys(Purpose.INDEX)]
    past = next((found for one in names if (found := _erasure(connection, one.pseudonym))), None)
    if past is not None:
        check_proof(past, keyring)
        return Located(past.subject, past.index_key, None, past)
    for one in names:
        row = connection.execute("SELECT id FROM subject WHERE pseudonym = ?", (one.pseudonym,)).fetchone()
        if row is not None:
            return replace(one, id=row[0])
    return names[0]


def erased(connection: sqlite3.Connection, keyring: Keyring, pseudonym: str) -> Erased | None:
    """Return the mark of a pseudonym's erasure, proved; None if it was not erased."""
    notice = _erasure(connection, pseudonym)
    if notice is None:
        return None
    check_proof(notice, keyring)
    return Erased(notice.subject, notice.erasure_id, notice.at)


def is_there(connection: sqlite3.Connection, pseudonym: str) -> bool:
    """Return whether the vault has a subject of that pseudonym, with keys or without."""
    return connection.execute("SELECT 1 FROM subject WHERE pseudonym = ?", (pseudonym,)).fetchone() is not None


def admit(connection: sqlite3.Connection, found: Located) -> int:
    """Return the row of a subject, made now if there is none."""
    if found.id is not None:
        return found.id
    connection.execute("INSERT OR IGNORE INTO index_key VALUES (?)", (found.key_id,))
    made = connection.execute(
        "INSERT INTO subject (pseudonym, index_key) VALUES (?, ?)", (found.pseudonym, found.key_id)
    )
    return int(made.lastrowid or 0)


def key_to_seal(
    connection: sqlite3.Connection, keyring: Keyring, found: Located, values: int, most: int
) -> tuple[bytes, KeyPlace]:
    """Return the subject's key for so many more values: its newest, or a new one where that is used up."""
    subject = admit(connection, found)
    row = connection.execute(
        "SELECT id, kid, generation, used + ? <= ? FROM data_key WHERE subject = ? ORDER BY generation DESC LIMIT 1",
        (values, most, subject),
    ).fetchone()
    if row is not None and row[3]:
        connection.execute("UPDATE data_key SET used = used + ? WHERE id = ?", (values, row[0]))
        place = KeyPlace(found.pseudonym, row[1], row[2])
        return key_to_open(connection, keyring, place.subject, place.kid)
    place = KeyPlace(found.pseudonym, new_kid(), 1 if row is None else row[2] + 1)
    key, wrapping = new_key(), keyring.current(Purpose.WRAP)
    slot = connection.execute("INSERT INTO wrapped_key (bytes) VALUES (?)", (wrap(key, place, wrapping),)).lastrowid
    connection.execute(
        "INSERT INTO data_key (id, subject, kid, generation, wrapping, used) VALUES (?, ?, ?, ?, ?, ?)",
        (slot, subject, place.kid, place.generation, wrapping.id, values),
    )
    return key, place


def key_to_open(connection: sqlite3.Connection, keyring: Keyring, pseudonym: str, kid: str) -> tuple[bytes, KeyPlace]:
    """Return a key of a subject that was not erased."""
    row = connection.execute(
        "SELECT generation, wrapping, bytes FROM data_key JOIN wrapped_key USING (id) "
        "JOIN subject ON subject.id = data_key.subject WHERE kid = ? AND pseudonym = ?",
        (kid, pseudonym),
    ).fetchone()
    if row is None:
        raise DataKeyMissingError(
            f"the vault has no key {kid!r} of {pseudonym!r}, and no erasure that explains it: it is another vault, or "
            "an old backup of this one; restore the right one, then try again"
        )
    place = KeyPlace(pseudonym, kid, row[0])
    return unwrap(row[2], place, keyring.find(Purpose.WRAP, row[1])), place


def note(connection: sqlite3.Connection, pseudonym: str, contexts: list[Context]) -> None:
    """Put into the subject index where data of a subject is sealed."""
    connection.executemany(
        "INSERT OR IGNORE INTO place SELECT id, ?, ? FROM subject WHERE pseudonym = ?",
        [(one.task_id, one.name, pseudonym) for one in contexts],
    )


def places(connection: sqlite3.Connection, subject: int) -> list[Place]:
    """Return where data of a subject is sealed, in order."""
    rows = connection.execute("SELECT task_id, name FROM place WHERE subject = ? ORDER BY task_id, name", (subject,))
    return [Place(*row) for row in rows]


def rewrap_page(connection: sqlite3.Connection, keyring: Keyring, after: int) -> tuple[int, int | None]:
    """Wrap a page of keys again under the current WRAP key."""
    current = keyring.current(Purpose.WRAP)
    rows = connection.execute(
        "SELECT data_key.id, pseudonym, kid, generation, wrapping, bytes FROM data_key JOIN wrapped_key USING (id) "
        "JOIN subject ON subject.id = data_key.subject WHERE data_key.id > ? AND wrapping != ? "
        "ORDER BY data_key.id LIMIT ?",
        (after, current.id, PAGE),
    ).fetchall()
    for slot, pseudonym, kid, generation, wrapping, wrapped in rows:
        place = KeyPlace(pseudonym, kid, generation)
        key = unwrap(wrapped, place, keyring.find(Purpose.WRAP, wrapping))
        connection.execute("UPDATE wrapped_key SET bytes = ? WHERE id = ?", (wrap(key, place, current), slot))
        connection.execute("UPDATE data_key SET wrapping = ? WHERE id = ?", (current.id, slot))
    return len(rows), rows[-1][0] if len(rows) == PAGE else None


def destroy(connection: sqlite3.Connection, subject: int) -> None:
    """Overwrite every key of a subject, and forget its places and itself."""
    slots = connection.execute("SELECT id FROM data_key WHERE subject = ?", (subject,)).fetchall()
    blank = bytes(WRAPPED_BYTES)
    connection.executemany("UPDATE wrapped_key SET bytes = ? WHERE id = ?", [(blank, slot) for (slot,) in slots])
    connection.execute("DELETE FROM data_key WHERE subject = ?", (subject,))
    connection.execute("DELETE FROM place WHERE subject = ?", (subject,))
    connection.execute("DELETE FROM hold WHERE subject = ?", (subject,))
    connection.execute("DELETE FROM subject WHERE id = ?", (subject,))


def _erasure(connection: sqlite3.Connection, pseudonym: str) -> ErasureNotice | None:
    row = connection.execute("SELECT notice FROM erasure WHERE subject = ?", (pseudonym,)).fetchone()
    try:
        return None if row is None else ErasureNotice.model_validate_json(row[0])
    except ValidationError:
        raise VaultError(
            f"the vault's notice of the erasure of {pseudonym!r} is damaged; restore the file, with its erasure list"
        ) from None


ERASED, REFUSED, UNKNOWN = "ERASED", "REFUSED", "UNKNOWN"
LEGAL_HOLD = "LEGAL_HOLD"
"""The reason that the ledger has for a refusal; the hold's own words stay in the vault."""
_RECORDABLE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")


class ErasureRecorder(Protocol):
    """What the vault needs of the ledger."""

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
        index_key=found.key_id,
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


def notice_of(connection: sqlite3.Connection, pseudonym: str) -> ErasureNotice:
    """Return the notice of the erasure of a pseudonym that was erased."""
    notice = _erasure(connection, pseudonym)
    if notice is None:
        raise VaultError(f"the vault has no notice of the erasure of {pseudonym!r}")
    return notice


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


def entry_of(notice: ErasureNotice, task_id: str) -> AuditEntry:
    """Return the ledger's entry of an erasure, for one task's chain."""
    return erasure_entry(
        notice.erasure_id,
        task_id=task_id,
        subject=notice.subject,
        removed=notice.removed,
        timestamp=notice.at,
        actor=notice.actor,
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
