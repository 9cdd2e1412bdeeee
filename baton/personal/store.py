"""The vault: personal data encrypted under a key per data subject, and erased by destroying that key."""

import functools
import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import JsonValue, TypeAdapter

from baton.keys.store_keyring import Keyring
from baton.ledger.records import LedgerError
from baton.personal import store_subjects as subjects
from baton.personal.records import (
    Erased,
    ErasedSubject,
    ErasureMark,
    ErasureNotice,
    ErasureUnrecordedError,
    FieldName,
    PersonalData,
    SealedSubject,
    SubjectErasedError,
    VaultError,
    read_payload,
    write_payload,
)
from baton.personal.store_file import (
    MAX_ENCRYPTIONS,
    Context,
    KeyPlace,
    VaultFile,
    open_value,
    seal_value,
)
from baton.personal.store_subjects import Erasure, ErasureList, ErasureRecorder, LocatedSubject, Place, check_proof

_RECORD_BATCH_SIZE = 500
_log = logging.getLogger(__name__)
_FIELD: TypeAdapter[str] = TypeAdapter(FieldName)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class VaultOptions:
    """The options of a vault.

    Attributes:
        ledger: The ledger that records erasures; with None, a later call with a ledger records them.
        max_encryptions: The number of values per key, after which the subject gets a new key.
        clock: Returns the current time.
        wait: Seconds to wait while another process writes.
        create: Whether to create a missing file.
    """

    ledger: ErasureRecorder | None = None
    max_encryptions: int = MAX_ENCRYPTIONS
    clock: Callable[[], datetime] = _now
    wait: float = 15.0
    create: bool = True


class Vault:
    """The keys of all data subjects, and the index of where their data was sealed (EAAPL-MAG006 §12.3)."""

    def __init__(self, where: str | Path, keyring: Keyring, options: VaultOptions | None = None) -> None:
        self._options = options or VaultOptions()
        self._keyring = keyring
        path = Path(where)
        self._file = VaultFile(path, wait=self._options.wait, create=self._options.create)
        self._list = ErasureList(path.with_name(path.name + ".erasures"))

    async def __aenter__(self) -> Self:
        await self._file.open()
        try:
            # Apply the erasure list to a restored backup before anything is served.
            await self._reapply_listed()
            if self._options.ledger is not None:
                await self.reapply_erasures(self._options.ledger)
        except BaseException:
            await self._file.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._file.close()

    async def pseudonym(self, subject: str) -> str:
        """Return a subject's pseudonym, as used in payloads and the ledger."""
        return (await self._file.read(lambda connection: self._locate(connection, subject))).pseudonym

    async def where_is(self, subject: str) -> list[Place]:
        """Return where data of a subject was sealed; empty if it is unknown or erased."""

        def work(connection: sqlite3.Connection) -> list[Place]:
            located = self._locate(connection, subject)
            return [] if located.id is None else subjects.list_places(connection, located.id)

        return await self._file.read(work)

    async def erase(self, subject: str, request_id: str, actor: str | None = None) -> Erasure:
        """Destroy every key of a subject, and record that in each task that held its data (§12.3)."""
        subjects.check_recordable(request_id, actor)
        at = self._options.clock()
        report = await self._file.write(lambda connection: self._erase(connection, subject, request_id, actor, at))
        if report.status == subjects.UNKNOWN:
            return report
        recorded_tasks = await self._record(report.subject)
        return replace(report, task_ids=tuple(recorded_tasks or ()), recorded=recorded_tasks is not None)

    async def finish_erasures(self) -> int:
        """Write the ledger records that earlier erasures still lack, and return their number."""
        query = "SELECT DISTINCT subject FROM unrecorded"
        rows = await self._file.read(lambda connection: connection.execute(query).fetchall())
        return sum([len(await self._record(row[0]) or ()) for row in rows])

    async def reapply_erasures(self, ledger: ErasureRecorder) -> int:
        """Erase again whom a restored backup brought back without its erasure list, and return their number.

        Opening the vault does it with the ledger of its options.

        Args:
            ledger: The ledger that recorded the erasures.

        Raises:
            VaultError: The ledger says that a person was erased, but the keys of this keyring do not prove it.
        """
        recorded_tasks = set(await ledger.erased_tasks())

        def find_held(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute("SELECT DISTINCT task_id FROM place") if recorded_tasks else ()
            return sorted(recorded_tasks.intersection(row[0] for row in rows))

        restored = 0
        for task_id in await self._file.read(find_held):
            trace = await ledger.trace(task_id, verifier=self._keyring.public())
            reapply = functools.partial(self._reapply, notices=subjects.recorded_notices(trace))
            restored += await self._file.write(reapply)
        if restored:
            _log.warning("%d people whom the ledger says were erased were in the vault; erased again", restored)
        return restored

    def _reapply(self, connection: sqlite3.Connection, notices: Mapping[str, tuple[ErasureNotice, bool]]) -> int:
        """Apply the notices of the ledger, each with whether it is proved, and return how many people they erased."""
        due = []
        for pseudonym, (notice, is_proved) in notices.items():
            index_key = subjects.find_index_key(connection, pseudonym)
            if index_key is None:
                continue
            if not is_proved:
                raise VaultError(
                    f"the vault has keys of {pseudonym!r}, and the ledger says that request {notice.erasure_id!r} "
                    "erased them, but the keys of this keyring do not prove that record: find out who wrote it "
                    "(`baton audit verify`), or restore the vault with its erasure list"
                )
            due.append(subjects.add_proof(notice.model_copy(update={"index_key": index_key}), self._keyring))
        self._list.append(due)
        for notice in due:
            subjects.apply_notice(connection, notice)
        return len(due)

    async def _reapply_listed(self) -> None:
        """Erase again what a restored backup brought back."""

        def work(connection: sqlite3.Connection) -> None:
            notices = {notice.subject: notice for notice in self._list.read()}
            applied = {row[0] for row in connection.execute("SELECT subject FROM erasure")}
            restored = {subject for subject in notices if subjects.is_known(connection, subject)}
            due = [notice for subject, notice in notices.items() if subject not in applied or subject in restored]
            for notice in due:
                check_proof(notice, self._keyring)
            for notice in due:
                subjects.apply_notice(connection, notice)
            if unlisted := sorted(applied - notices.keys()):
                self._list.append([subjects.get_notice(connection, pseudonym) for pseudonym in unlisted])

        await self._file.write(work)

    def _erase(
        self, connection: sqlite3.Connection, subject: str, request_id: str, actor: str | None, at: datetime
    ) -> Erasure:
        """Destroy the keys of a subject, and return the report."""
        located = self._locate(connection, subject)
        pseudonym, past = located.pseudonym, located.erased
        if past is not None:
            return Erasure(subjects.ERASED, past.subject, past.erasure_id, past.at, past.removed, repeated=True)
        if located.id is None:
            return Erasure(subjects.UNKNOWN, pseudonym, request_id, at)
        notice = subjects.erase(connection, self._keyring, located, request_id=request_id, actor=actor, at=at)
        self._list.append([notice])
        return Erasure(subjects.ERASED, notice.subject, request_id, at, notice.removed)

    async def _record(self, pseudonym: str) -> list[str] | None:
        """Write an erasure's missing ledger records, and return their tasks, or None without a ledger."""
        notice = await self._file.read(lambda connection: subjects.get_notice(connection, pseudonym))

        def next_batch(connection: sqlite3.Connection) -> list[str]:
            return subjects.unrecorded_tasks(connection, pseudonym, _RECORD_BATCH_SIZE)

        def mark(connection: sqlite3.Connection) -> None:
            subjects.mark_recorded(connection, pseudonym, tasks)

        recorded_tasks: list[str] = []
        while tasks := await self._file.read(next_batch):
            if self._options.ledger is None:
                return None
            try:
                await self._options.ledger.append_all([subjects.make_erasure_entry(notice, task) for task in tasks])
            except LedgerError as error:
                raise ErasureUnrecordedError(
                    f"the keys of {pseudonym!r} are destroyed, but the ledger has not recorded that in every task; "
                    f"repair the ledger and erase again: {error}"
                ) from error
            await self._file.write(mark)
            recorded_tasks += tasks
        return recorded_tasks

    def _locate(self, connection: sqlite3.Connection, subject: str) -> LocatedSubject:
        return subjects.locate(connection, self._keyring, subject)

    def _locate_present(self, connection: sqlite3.Connection, subject: str) -> LocatedSubject:
        """Look up a subject that was not erased."""
        located = self._locate(connection, subject)
        if located.erased is not None:
            raise SubjectErasedError(
                f"{located.pseudonym!r} was erased by request {located.erased.erasure_id!r}, so nothing can be sealed "
                "for it; if the person is back, use another name for them"
            )
        return located

    async def seal(
        self, subject: str, task_id: str, fields: Mapping[str, JsonValue], *, onto: Mapping[str, Any] | None = None
    ) -> dict[str, JsonValue]:
        """Encrypt personal data of a subject, and return the `personalDataPayload` ``onto`` with it."""
        if not fields:
            raise ValueError("there is nothing to seal: name at least one field")
        return await self._seal(lambda connection: self._locate_present(connection, subject), task_id, fields, onto)

    async def seal_known(
        self, pseudonym: str, task_id: str, fields: Mapping[str, JsonValue], *, onto: Mapping[str, Any] | None = None
    ) -> dict[str, JsonValue]:
        """Do the same for a subject that the vault has, by pseudonym.

        Raises:
            SubjectErasedError: The subject was erased, or the vault never had it.
        """

        def locate(connection: sqlite3.Connection) -> LocatedSubject:
            if (located := subjects.locate_known(connection, pseudonym)) is None:
                raise SubjectErasedError(
                    f"{pseudonym!r} was erased, or is of another vault; nothing can be sealed for it"
                )
            return located

        return await self._seal(locate, task_id, fields, onto)

    async def _seal(
        self,
        locate: Callable[[sqlite3.Connection], LocatedSubject],
        task_id: str,
        fields: Mapping[str, JsonValue],
        onto: Mapping[str, Any] | None,
    ) -> dict[str, JsonValue]:
        payload = read_payload(onto)
        contexts = [Context(task_id, _FIELD.validate_python(name)) for name in fields]
        key, place = await self._key_to_seal(locate, contexts)
        sealed = {
            context.name: seal_value(value, key, place, context)
            for context, value in zip(contexts, fields.values(), strict=True)
        }
        current = payload.get(place.subject)
        current_fields = current.fields if isinstance(current, SealedSubject) else {}
        payload[place.subject] = SealedSubject(fields={**current_fields, **sealed})
        return write_payload(payload)

    async def open(
        self, payload: Mapping[str, Any] | None, task_id: str, fields: Collection[str] | None = None
    ) -> PersonalData:
        """Decrypt a payload: return the fields of each subject, or `Erased`, by pseudonym."""
        entries = read_payload(payload)

        def work(connection: sqlite3.Connection) -> dict[str, Erased | dict[str, tuple[bytes, KeyPlace]]]:
            return {
                pseudonym: self._find_erased(connection, pseudonym, entry)
                or {
                    field.kid: subjects.key_to_open(connection, self._keyring, pseudonym, field.kid)
                    for name, field in _fields(entry).items()
                    if fields is None or name in fields
                }
                for pseudonym, entry in entries.items()
            }

        opened: PersonalData = {}
        for pseudonym, keys in (await self._file.read(work)).items():
            opened[pseudonym] = (
                keys
                if isinstance(keys, Erased)
                else {
                    name: open_value(field, *keys[field.kid], Context(task_id, name))
                    for name, field in _fields(entries[pseudonym]).items()
                    if fields is None or name in fields
                }
            )
        return opened

    async def without_erased(self, payload: Mapping[str, Any] | None) -> dict[str, JsonValue]:
        """Return a payload with an erasure mark in place of the ciphertext of each erased subject."""
        entries = read_payload(payload)

        def work(connection: sqlite3.Connection) -> list[Erased]:
            erasures = (subjects.find_erased(connection, self._keyring, pseudonym) for pseudonym in entries)
            return [erasure for erasure in erasures if erasure is not None]

        for erasure in await self._file.read(work):
            mark = ErasureMark(erasure_id=erasure.erasure_id, at=erasure.at)
            entries[erasure.subject] = ErasedSubject(erased=mark)
        return write_payload(entries)

    async def rewrap(self) -> int:
        """Rewrap every key under the current WRAP key, after a rotation, and return their number."""
        total, last_id = 0, 0

        def page(connection: sqlite3.Connection) -> tuple[int, int | None]:
            return subjects.rewrap_page(connection, self._keyring, last_id)

        while True:
            count, next_id = await self._file.write(page)
            total += count
            if next_id is None:
                return total
            last_id = next_id

    async def _key_to_seal(
        self, locate: Callable[[sqlite3.Connection], LocatedSubject], contexts: list[Context]
    ) -> tuple[bytes, KeyPlace]:
        """Return a key for values of a subject, and index their places."""
        maximum = self._options.max_encryptions

        def work(connection: sqlite3.Connection) -> tuple[bytes, KeyPlace]:
            located = locate(connection)
            key, place = subjects.key_to_seal(connection, self._keyring, located, len(contexts), maximum)
            subjects.index_places(connection, located.pseudonym, contexts)
            return key, place

        return await self._file.write(work)

    def _find_erased(
        self, connection: sqlite3.Connection, pseudonym: str, entry: SealedSubject | ErasedSubject
    ) -> Erased | None:
        """Return a subject's erasure from the vault, which overrides the payload's mark."""
        erasure = subjects.find_erased(connection, self._keyring, pseudonym)
        if erasure is None and isinstance(entry, ErasedSubject):
            raise VaultError(
                f"the payload says that {pseudonym!r} was erased, but the vault does not: this is another vault, or a "
                "backup without its erasure list"
            )
        return erasure


def _fields(entry: SealedSubject | ErasedSubject) -> dict[str, Any]:
    """Return the sealed fields of an entry."""
    return dict(entry.fields) if isinstance(entry, SealedSubject) else {}
