"""Subjects, pseudonyms, keys and places: functions that run in one transaction on the vault's file.

A pseudonym is an HMAC under an INDEX key of the keyring, as is the proof of an erasure, since a plain hash of an
e-mail address can be guessed. Keep retired INDEX keys: without its key a name no longer leads to its pseudonym, so
the subject cannot be found to be erased.
"""

import contextlib
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
from baton.errors import HandoffError
from baton.keys.claims import HeadVerifier
from baton.keys.store_keyring import Key, Keyring, Purpose, UnknownKeyError
from baton.ledger.entries import Trace, erasure_entry
from baton.ledger.records import AuditEntry, Kind
from baton.personal.records import DataKeyMissingError, Erased, ErasureNotice, VaultError, VaultUnavailableError
from baton.personal.store_file import WRAPPED_BYTES, Context, KeyPlace, new_key, new_kid, unwrap, wrap
from baton.wire.json_values import JsonFields, pae

_SUBJECT, _NOTICE = "baton/vault-subject/v1", "baton/vault-erasure/v1"


@dataclass(frozen=True)
class LocatedSubject:
    """A subject looked up by name, with its row if it has one, and its erasure notice if it was erased."""

    pseudonym: str
    key_id: str
    id: int | None = None
    erased: ErasureNotice | None = None


def check_index_keys(keyring: Keyring, used: Iterable[str]) -> None:
    """Raise an error if an INDEX key of the vault is missing, so that some subjects cannot be looked up."""
    missing = sorted(key_id for key_id in set(used) if not _has_key(keyring, key_id))
    if missing:
        raise VaultError(
            f"the vault has subjects under the index key {', '.join(map(repr, missing))}, which the keyring lacks, so "
            "this subject may be among them; add the key to the keyring again, as retired"
        )


def _has_key(keyring: Keyring, key_id: str) -> bool:
    """Return whether a keyring has an INDEX key; `find` reads the file again for a key that is new."""
    try:
        keyring.find(Purpose.INDEX, key_id)
    except UnknownKeyError:
        return False
    return True


def add_proof(notice: ErasureNotice, keyring: Keyring) -> ErasureNotice:
    """Return an erasure notice with its proof."""
    return notice.model_copy(update={"proof": _proof(notice, keyring)})


def check_proof(notice: ErasureNotice, keyring: Keyring) -> None:
    """Raise an error unless a vault with this keyring made the erasure notice."""
    if not hmac.compare_digest(notice.proof, _proof(notice, keyring)):
        raise VaultError(
            f"the notice of erasure {notice.erasure_id!r} has no valid proof: it was changed, or belongs to another "
            "vault; find out who wrote it before you trust or repeat the erasure"
        )


def _proof(notice: ErasureNotice, keyring: Keyring) -> str:
    key = keyring.find(Purpose.INDEX, notice.index_key)
    return hmac.digest(key.secret, pae(_NOTICE, rfc8785.dumps(notice.statement())), hashlib.sha256).hex()


def _pseudonym(key: Key, subject: str) -> str:
    return "sub-" + hmac.digest(key.secret, pae(_SUBJECT, rfc8785.dumps(subject)), hashlib.sha256).hex()[:32]


PAGE_SIZE = 1_000
"""The number of keys rewrapped in one transaction."""


@dataclass(frozen=True)
class Place(JsonFields):
    """A task and a field in which data of a subject was sealed."""

    task_id: str
    name: str


def locate(connection: sqlite3.Connection, keyring: Keyring, subject: str) -> LocatedSubject:
    """Look up a subject by name, under every INDEX key."""
    if not subject.strip():
        raise ValueError("a data subject needs a name, such as a customer number; found an empty text")
    check_index_keys(keyring, (row[0] for row in connection.execute("SELECT id FROM index_key")))
    keyring.current(Purpose.INDEX)
    candidates = [LocatedSubject(_pseudonym(key, subject), key.id) for key in keyring.all_keys(Purpose.INDEX)]
    notices = (_read_notice(connection, candidate.pseudonym) for candidate in candidates)
    notice = next((notice for notice in notices if notice), None)
    if notice is not None:
        check_proof(notice, keyring)
        return LocatedSubject(notice.subject, notice.index_key, None, notice)
    for candidate in candidates:
        row = connection.execute("SELECT id FROM subject WHERE pseudonym = ?", (candidate.pseudonym,)).fetchone()
        if row is not None:
            return replace(candidate, id=row[0])
    return candidates[0]


def find_erased(connection: sqlite3.Connection, keyring: Keyring, pseudonym: str) -> Erased | None:
    """Return the proved erasure of a pseudonym, or None."""
    notice = _read_notice(connection, pseudonym)
    if notice is None:
        return None
    check_proof(notice, keyring)
    return Erased(notice.subject, notice.erasure_id, notice.at)


def recorded_notices(trace: Trace) -> dict[str, tuple[ErasureNotice, bool]]:
    """Return the erasures that a task's records claim, by pseudonym, without a proof; and whether each is proved."""
    notices = {}
    proved = {record.position for record in trace.linked[: trace.report.signed_through]}
    for record in trace.records:
        with contextlib.suppress(ValueError, HandoffError, TypeError, KeyError):  # verification reports what is damaged
            header, body = record.fields, record.body
            if (header.kind, header.status) == (Kind.ERASURE, ERASED):
                notice = ErasureNotice(
                    subject=body["subject"],
                    index_key="-",
                    erasure_id=header.event_id,
                    at=header.timestamp,
                    removed=body["removed"],
                    actor=header.actor,
                )
                notices[notice.subject] = notice, record.position in proved
    return notices


def find_index_key(connection: sqlite3.Connection, pseudonym: str) -> str | None:
    """Return the INDEX key of a subject that the vault has, or None."""
    row = connection.execute("SELECT index_key FROM subject WHERE pseudonym = ?", (pseudonym,)).fetchone()
    return None if row is None else str(row[0])


def locate_known(connection: sqlite3.Connection, pseudonym: str) -> LocatedSubject | None:
    """Return a subject that the vault has, by pseudonym."""
    query = "SELECT index_key, id FROM subject WHERE pseudonym = ?"
    row = connection.execute(query, (pseudonym,)).fetchone()
    return None if row is None else LocatedSubject(pseudonym, row[0], row[1])


def is_known(connection: sqlite3.Connection, pseudonym: str) -> bool:
    """Return whether the vault has a subject with this pseudonym."""
    return connection.execute("SELECT 1 FROM subject WHERE pseudonym = ?", (pseudonym,)).fetchone() is not None


def ensure_subject(connection: sqlite3.Connection, located: LocatedSubject) -> int:
    """Return the row of a subject, inserted if missing."""
    if located.id is not None:
        return located.id
    connection.execute("INSERT OR IGNORE INTO index_key VALUES (?)", (located.key_id,))
    row = (located.pseudonym, located.key_id)
    return int(connection.execute("INSERT INTO subject (pseudonym, index_key) VALUES (?, ?)", row).lastrowid or 0)


def key_to_seal(
    connection: sqlite3.Connection, keyring: Keyring, located: LocatedSubject, values: int, maximum: int
) -> tuple[bytes, KeyPlace]:
    """Return the subject's newest key, or a new one if ``values`` more would exceed the maximum per key."""
    subject = ensure_subject(connection, located)
    row = connection.execute(
        "SELECT id, kid, generation, used + ? <= ? FROM data_key WHERE subject = ? ORDER BY generation DESC LIMIT 1",
        (values, maximum, subject),
    ).fetchone()
    if row is not None and row[3]:
        connection.execute("UPDATE data_key SET used = used + ? WHERE id = ?", (values, row[0]))
        place = KeyPlace(located.pseudonym, row[1], row[2])
        return key_to_open(connection, keyring, place.subject, place.kid)
    place = KeyPlace(located.pseudonym, new_kid(), 1 if row is None else row[2] + 1)
    key, wrapping = new_key(), keyring.current(Purpose.WRAP)
    slot = connection.execute("INSERT INTO wrapped_key (bytes) VALUES (?)", (wrap(key, place, wrapping),)).lastrowid
    connection.execute(
        "INSERT INTO data_key (id, subject, kid, generation, wrapping, used) VALUES (?, ?, ?, ?, ?, ?)",
        (slot, subject, place.kid, place.generation, wrapping.id, values),
    )
    return key, place


def key_to_open(connection: sqlite3.Connection, keyring: Keyring, pseudonym: str, kid: str) -> tuple[bytes, KeyPlace]:
    """Return a key of a subject, unwrapped."""
    row = connection.execute(
        "SELECT generation, wrapping, bytes FROM data_key JOIN wrapped_key USING (id) "
        "JOIN subject ON subject.id = data_key.subject WHERE kid = ? AND pseudonym = ?",
        (kid, pseudonym),
    ).fetchone()
    if row is None:
        raise DataKeyMissingError(
            f"the vault has no key {kid!r} of {pseudonym!r}, which was not erased: this is another vault, or an old "
            "backup; restore the right one, then try again"
        )
    place = KeyPlace(pseudonym, kid, row[0])
    return unwrap(row[2], place, keyring.find(Purpose.WRAP, row[1])), place


def index_places(connection: sqlite3.Connection, pseudonym: str, contexts: list[Context]) -> None:
    """Record in the index where data of a subject is sealed."""
    connection.executemany(
        "INSERT OR IGNORE INTO place SELECT id, ?, ? FROM subject WHERE pseudonym = ?",
        [(context.task_id, context.name, pseudonym) for context in contexts],
    )


def list_places(connection: sqlite3.Connection, subject: int) -> list[Place]:
    """Return where data of a subject is sealed, by task and field."""
    rows = connection.execute("SELECT task_id, name FROM place WHERE subject = ? ORDER BY task_id, name", (subject,))
    return [Place(*row) for row in rows]


def rewrap_page(connection: sqlite3.Connection, keyring: Keyring, after: int) -> tuple[int, int | None]:
    """Rewrap a page of keys under the current WRAP key; return their number and the last id if more follow."""
    current = keyring.current(Purpose.WRAP)
    rows = connection.execute(
        "SELECT data_key.id, pseudonym, kid, generation, wrapping, bytes FROM data_key JOIN wrapped_key USING (id) "
        "JOIN subject ON subject.id = data_key.subject WHERE data_key.id > ? AND wrapping != ? "
        "ORDER BY data_key.id LIMIT ?",
        (after, current.id, PAGE_SIZE),
    ).fetchall()
    for slot, pseudonym, kid, generation, wrapping, wrapped in rows:
        place = KeyPlace(pseudonym, kid, generation)
        key = unwrap(wrapped, place, keyring.find(Purpose.WRAP, wrapping))
        connection.execute("UPDATE wrapped_key SET bytes = ? WHERE id = ?", (wrap(key, place, current), slot))
        connection.execute("UPDATE data_key SET wrapping = ? WHERE id = ?", (current.id, slot))
    return len(rows), rows[-1][0] if len(rows) == PAGE_SIZE else None


def destroy_keys(connection: sqlite3.Connection, subject: int) -> None:
    """Overwrite every key of a subject, and delete the subject and its places."""
    slots = connection.execute("SELECT id FROM data_key WHERE subject = ?", (subject,)).fetchall()
    blank = bytes(WRAPPED_BYTES)
    connection.executemany("UPDATE wrapped_key SET bytes = ? WHERE id = ?", [(blank, slot) for (slot,) in slots])
    connection.execute("DELETE FROM data_key WHERE subject = ?", (subject,))
    connection.execute("DELETE FROM place WHERE subject = ?", (subject,))
    connection.execute("DELETE FROM subject WHERE id = ?", (subject,))


def _read_notice(connection: sqlite3.Connection, pseudonym: str) -> ErasureNotice | None:
    row = connection.execute("SELECT notice FROM erasure WHERE subject = ?", (pseudonym,)).fetchone()
    try:
        return None if row is None else ErasureNotice.model_validate_json(row[0])
    except ValidationError:
        raise VaultError(
            f"the vault's notice of the erasure of {pseudonym!r} is damaged; restore the file, with its erasure list"
        ) from None


ERASED, UNKNOWN = "ERASED", "UNKNOWN"
_RECORDABLE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")


class ErasureRecorder(Protocol):
    """The part of the ledger that the vault uses."""

    async def append_all(self, entries: list[AuditEntry]) -> object:
        """Record entries; recording the same entry again has no effect."""

    async def erased_tasks(self) -> list[str]:
        """Return the tasks with a record of an erasure."""

    async def trace(self, task_id: str, *, verifier: HeadVerifier) -> Trace:
        """Return the records of a task, with the report on them."""


@dataclass(frozen=True)
class Erasure(JsonFields):
    """The result of a request to erase a data subject.

    Attributes:
        status: `ERASED`, or `UNKNOWN`: the vault has no data of the subject.
        subject: The pseudonym.
        request_id: The id of the request that destroyed the keys, which may be an earlier one.
        at: When the keys were destroyed.
        removed: The number of destroyed keys and of deleted places, by name.
        task_ids: The tasks whose chains got a record by this call.
        recorded: Whether every affected task has its record; false without a ledger.
        repeated: Whether the keys were destroyed before this call.
    """

    status: str
    subject: str
    request_id: str
    at: datetime
    removed: dict[str, int] = field(default_factory=dict)
    task_ids: tuple[str, ...] = ()
    recorded: bool = True
    repeated: bool = False


class ErasureList:
    """The erasure list: one line per erasure, durable before the keys are destroyed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[ErasureNotice]:
        """Return the notices. An incomplete last line, left by a crash, does not count."""
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
                f"the erasure list {str(self.path)!r} is damaged; restore it from a copy, since it lists what must "
                "stay erased"
            ) from None

    def append(self, notices: list[ErasureNotice]) -> None:
        """Append notices durably. The caller's write transaction on the vault excludes other writers."""
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
    """Refuse values that the ledger cannot record, before a key is destroyed."""
    for name, value in (("the request's id", request_id), ("the name of who erases", actor)):
        if value is not None and not _RECORDABLE.fullmatch(value):
            raise VaultError(
                f"{name} is recorded forever: give 1 to 200 characters in one line, without control characters; "
                "nothing was erased"
            )


def erase(
    connection: sqlite3.Connection,
    keyring: Keyring,
    located: LocatedSubject,
    *,
    request_id: str,
    actor: str | None,
    at: datetime,
) -> ErasureNotice:
    """Destroy the keys of a subject, queue the ledger's records, and return the notice."""
    if located.id is None:
        raise ValueError(f"the vault has no data of {located.pseudonym!r}")
    keys, places = connection.execute(
        "SELECT (SELECT count(*) FROM data_key WHERE subject = :id), (SELECT count(*) FROM place WHERE subject = :id)",
        {"id": located.id},
    ).fetchone()
    notice = ErasureNotice(
        subject=located.pseudonym,
        index_key=located.key_id,
        erasure_id=request_id,
        at=at,
        removed={"keys": keys, "places": places},
        actor=actor,
    )
    notice = add_proof(notice, keyring)
    apply_notice(connection, notice)
    return notice


def apply_notice(connection: sqlite3.Connection, notice: ErasureNotice) -> None:
    """Apply an erasure to the vault's file."""
    connection.execute("INSERT OR IGNORE INTO index_key VALUES (?)", (notice.index_key,))
    connection.execute(
        "INSERT OR IGNORE INTO erasure (subject, index_key, notice) VALUES (?, ?, ?)",
        (notice.subject, notice.index_key, notice.model_dump_json(by_alias=True)),
    )
    row = connection.execute("SELECT id FROM subject WHERE pseudonym = ?", (notice.subject,)).fetchone()
    if row is None:
        return
    connection.execute(
        "INSERT OR IGNORE INTO unrecorded SELECT DISTINCT ?, task_id FROM place WHERE subject = ?",
        (notice.subject, row[0]),
    )
    destroy_keys(connection, row[0])


def get_notice(connection: sqlite3.Connection, pseudonym: str) -> ErasureNotice:
    """Return the erasure notice of an erased pseudonym."""
    notice = _read_notice(connection, pseudonym)
    if notice is None:
        raise VaultError(f"the vault has no notice of the erasure of {pseudonym!r}")
    return notice


def unrecorded_tasks(connection: sqlite3.Connection, pseudonym: str, limit: int) -> list[str]:
    """Return tasks whose chains lack the record of an erasure."""
    rows = connection.execute(
        "SELECT task_id FROM unrecorded WHERE subject = ? ORDER BY task_id LIMIT ?", (pseudonym, limit)
    )
    return [row[0] for row in rows]


def mark_recorded(connection: sqlite3.Connection, pseudonym: str, task_ids: list[str]) -> None:
    """Delete the tasks of an erasure whose chains have its record."""
    connection.executemany(
        "DELETE FROM unrecorded WHERE subject = ? AND task_id = ?", [(pseudonym, task_id) for task_id in task_ids]
    )


def make_erasure_entry(notice: ErasureNotice, task_id: str) -> AuditEntry:
    """Return the ledger's entry of an erasure for one task."""
    return erasure_entry(
        notice.erasure_id,
        task_id=task_id,
        subject=notice.subject,
        removed=notice.removed,
        timestamp=notice.at,
        actor=notice.actor,
    )
