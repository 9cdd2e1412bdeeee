"""The vault: personal data sealed under a key for each data subject, and erased by destroying that key."""

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
    MOST_ENCRYPTIONS,
    Context,
    KeyPlace,
    VaultFile,
    open_value,
    seal_value,
)
from baton.personal.store_subjects import Erasure, ErasureList, ErasureRecorder, Located, Place, check_proof

_RECORDED_AT_ONCE = 500
_FIELD: TypeAdapter[str] = TypeAdapter(FieldName)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class VaultOptions:
    """What a vault is opened with.

    Attributes:
        ledger: Where erasures are put on record; None leaves the records to a later call with a ledger.
        most_encryptions: How many values one key encrypts before the subject gets another one.
        clock: Gives the time.
        wait: For how many seconds to wait while another process writes.
        create: Make a file that is not there.
    """

    ledger: ErasureRecorder | None = None
    most_encryptions: int = MOST_ENCRYPTIONS
    clock: Callable[[], datetime] = _now
    wait: float = 15.0
    create: bool = True


class Vault:
    """The keys of all data subjects, and the index of where data of each was sealed (EAAPL-MAG006 §12.3)."""

    def __init__(self, where: str | Path, keyring: Keyring, options: VaultOptions | None = None) -> None:
        self._options = options or VaultOptions()
        self._keyring = keyring
        path = Path(where)
        self._file = VaultFile(path, wait=self._options.wait, create=self._options.create)
        self._list = ErasureList(path.with_name(path.name + ".erasures"))

    async def __aenter__(self) -> Self:
        await self._file.open()
        try:
            # A restored backup forgets again, before anything is served.
            await self._reapply_erasures()
        except BaseException:
            await self._file.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._file.close()

    async def pseudonym(self, subject: str) -> str:
        """Return what a subject is called in payloads, and in the ledger."""
        return (await self._file.read(lambda connection: self._locate(connection, subject))).pseudonym

    async def where_is(self, subject: str) -> list[Place]:
        """Return where data of a subject was sealed; empty if the vault has nothing of it, or it was erased."""

        def work(connection: sqlite3.Connection) -> list[Place]:
            found = self._locate(connection, subject)
            return [] if found.id is None else subjects.places(connection, found.id)

        return await self._file.read(work)

    async def hold(self, subject: str, why: str, actor: str) -> None:
        """Refuse to erase a subject from now on: a legal hold (GDPR Art. 17(3))."""
        at = self._options.clock()

        def work(connection: sqlite3.Connection) -> None:
            found = self._present(connection, subject)
            connection.execute(
                "INSERT OR REPLACE INTO hold VALUES (?, ?, ?, ?)",
                (subjects.admit(connection, found), why, actor, at.isoformat()),
            )
            subjects.journal(connection, "HELD", found.pseudonym, at, actor=actor, why=why)

        await self._file.write(work)

    async def release_hold(self, subject: str, why: str, actor: str) -> bool:
        """End a legal hold, and return whether there was one; a refused erasure has to be asked for again."""
        at = self._options.clock()

        def work(connection: sqlite3.Connection) -> bool:
            found = self._locate(connection, subject)
            if not connection.execute("DELETE FROM hold WHERE subject = ?", (found.id,)).rowcount:
                return False
            subjects.journal(connection, "RELEASED", found.pseudonym, at, actor=actor, why=why)
            return True

        return await self._file.write(work)

    async def erase(self, subject: str, request_id: str, actor: str | None = None) -> Erasure:
        """Destroy every key of a subject, and put that on record in each task that held data of it (§12.3)."""
        subjects.check_recordable(request_id, actor)
        at = self._options.clock()
        report, tasks = await self._file.write(lambda one: self._erase(one, subject, request_id, actor, at))
        if report.status == subjects.REFUSED:
            return await self._record_refusal(report, tasks, actor)
        if report.status == subjects.UNKNOWN:
            return report
        done = await self._record(report.subject)
        return replace(report, task_ids=tuple(done or ()), recorded=done is not None)

    async def finish_erasures(self) -> int:
        """Write the ledger's records that an earlier erasure owes, and return how many it was."""
        rows = await self._file.read(lambda one: one.execute("SELECT DISTINCT subject FROM unrecorded").fetchall())
        return sum([len(await self._record(row[0]) or ()) for row in rows])

    async def _reapply_erasures(self) -> None:
        """Erase again what a restored backup brought back."""
        at = self._options.clock()

        def work(connection: sqlite3.Connection) -> None:
            listed = {one.subject: one for one in self._list.read()}
            known = {row[0] for row in connection.execute("SELECT subject FROM erasure")}
            due = [
                one for one in listed.values() if one.subject not in known or subjects.is_there(connection, one.subject)
            ]
            for one in due:
                check_proof(one, self._keyring)
            for one in due:
                if subjects.apply(connection, one):
                    subjects.journal(connection, "REAPPLIED", one.subject, at, request_id=one.erasure_id)
            missing = sorted(known - listed.keys())
            if missing:
                self._list.append([subjects.notice_of(connection, one) for one in missing])

        await self._file.write(work)

    def _erase(
        self, connection: sqlite3.Connection, subject: str, request_id: str, actor: str | None, at: datetime
    ) -> tuple[Erasure, list[str]]:
        """Destroy the keys of a subject, and return the report; of a refusal also the tasks."""
        found = self._locate(connection, subject)
        if found.erased is not None:
            past = found.erased
            return Erasure(subjects.ERASED, past.subject, past.erasure_id, past.at, past.removed, repeated=True), []
        if found.id is None:
            return Erasure(subjects.UNKNOWN, found.pseudonym, request_id, at), []
        why = subjects.held(connection, found)
        if why is not None:
            subjects.journal(connection, subjects.REFUSED, found.pseudonym, at, request_id=request_id, actor=actor)
            tasks = {one.task_id for one in subjects.places(connection, found.id)}
            return Erasure(subjects.REFUSED, found.pseudonym, request_id, at, why=why), sorted(tasks)
        notice = subjects.erase(connection, self._keyring, found, request_id=request_id, actor=actor, at=at)
        self._list.append([notice])
        return Erasure(subjects.ERASED, notice.subject, request_id, at, notice.removed), []

    async def _record(self, pseudonym: str) -> list[str] | None:
        """Write the records that an erasure owes, and return the tasks; None if there is no ledger for it."""
        notice = await self._file.read(lambda connection: subjects.notice_of(connection, pseudonym))

        def recorded(connection: sqlite3.Connection) -> None:
            subjects.mark_recorded(connection, pseudonym, tasks)

        done: list[str] = []
        while tasks := await self._file.read(lambda one: subjects.unrecorded(one, pseudonym, _RECORDED_AT_ONCE)):
            if self._options.ledger is None:
                return None
            try:
                await self._options.ledger.append_all([subjects.entry_of(notice, one) for one in tasks])
            except LedgerError as error:
                raise ErasureUnrecordedError(
                    f"the keys of {pseudonym!r} are destroyed, but the ledger has not recorded that in every task: "
                    f"erase again, when this is repaired: {error}"
                ) from error
            await self._file.write(recorded)
            done += tasks
        return done

    async def _record_refusal(self, report: Erasure, tasks: list[str], actor: str | None) -> Erasure:
        """Put a refused erasure on record in each task that holds data of the subject."""
        ledger = self._options.ledger
        if ledger is not None:
            for at in range(0, len(tasks), _RECORDED_AT_ONCE):
                some = tasks[at : at + _RECORDED_AT_ONCE]
                await ledger.append_all([subjects.refusal_entry(report, one, actor) for one in some])
        recorded = ledger is not None or not tasks
        return replace(report, task_ids=tuple(tasks if ledger else ()), recorded=recorded)

    def _locate(self, connection: sqlite3.Connection, subject: str) -> Located:
        return subjects.locate(connection, self._keyring, subject)

    def _present(self, connection: sqlite3.Connection, subject: str) -> Located:
        """Return what the vault knows of a subject that may have data."""
        found = self._locate(connection, subject)
        if found.erased is not None:
            raise SubjectErasedError(
                f"{found.pseudonym!r} was erased by request {found.erased.erasure_id!r}, so nothing is sealed for it; "
                "if the person came back, use another name for them"
            )
        return found

    async def seal(
        self,
        subject: str,
        task_id: str,
        fields: Mapping[str, JsonValue],
        *,
        onto: Mapping[str, Any] | None = None,
    ) -> dict[str, JsonValue]:
        """Encrypt personal data of a subject and return the `personalDataPayload` that carries it."""
        if not fields:
            raise ValueError("there is nothing to seal: name at least one field")
        payload = read_payload(onto)
        contexts = [Context(task_id, _FIELD.validate_python(name)) for name in fields]
        key, place = await self._key_to_seal(subject, contexts)
        sealed = {
            context.name: seal_value(value, key, place, context)
            for context, value in zip(contexts, fields.values(), strict=True)
        }
        before = payload.get(place.subject)
        kept = before.fields if isinstance(before, SealedSubject) else {}
        payload[place.subject] = SealedSubject(fields={**kept, **sealed})
        return write_payload(payload)

    async def open(
        self, payload: Mapping[str, Any] | None, task_id: str, fields: Collection[str] | None = None
    ) -> PersonalData:
        """Return what a payload holds, by pseudonym; of erased subjects the mark of their erasure."""
        read = read_payload(payload)

        def work(connection: sqlite3.Connection) -> dict[str, Erased | dict[str, tuple[bytes, KeyPlace]]]:
            return {
                pseudonym: self._erasure_of(connection, pseudonym, entry)
                or {
                    field.kid: subjects.key_to_open(connection, self._keyring, pseudonym, field.kid)
                    for name, field in _fields(entry).items()
                    if fields is None or name in fields
                }
                for pseudonym, entry in read.items()
            }

        keys = await self._file.read(work)
        opened: PersonalData = {}
        for pseudonym, found in keys.items():
            opened[pseudonym] = (
                found
                if isinstance(found, Erased)
                else {
                    name: open_value(field, *found[field.kid], Context(task_id, name))
                    for name, field in _fields(read[pseudonym]).items()
                    if fields is None or name in fields
                }
            )
        return opened

    async def without_erased(self, payload: Mapping[str, Any] | None) -> dict[str, JsonValue]:
        """Return a payload with the mark of their erasure in place of the ciphertext of erased subjects."""
        read = read_payload(payload)

        def work(connection: sqlite3.Connection) -> list[Erased]:
            found = (subjects.erased(connection, self._keyring, pseudonym) for pseudonym in read)
            return [one for one in found if one is not None]

        for one in await self._file.read(work):
            read[one.subject] = ErasedSubject(erased=ErasureMark(erasure_id=one.erasure_id, at=one.at))
        return write_payload(read)

    async def rewrap(self) -> int:
        """Wrap every key again under the current WRAP key, after it was rotated, and return how many were."""
        total, after = 0, 0

        def page(connection: sqlite3.Connection) -> tuple[int, int | None]:
            return subjects.rewrap_page(connection, self._keyring, after)

        while True:
            count, last = await self._file.write(page)
            total += count
            if last is None:
                return total
            after = last

    async def _key_to_seal(self, subject: str, contexts: list[Context]) -> tuple[bytes, KeyPlace]:
        """Return a key for values of a subject, with their places in the index."""
        most = self._options.most_encryptions

        def work(connection: sqlite3.Connection) -> tuple[bytes, KeyPlace]:
            found = self._present(connection, subject)
            key, place = subjects.key_to_seal(connection, self._keyring, found, len(contexts), most)
            subjects.note(connection, found.pseudonym, contexts)
            return key, place

        return await self._file.write(work)

    def _erasure_of(
        self, connection: sqlite3.Connection, pseudonym: str, entry: SealedSubject | ErasedSubject
    ) -> Erased | None:
        """Return the mark of a subject's erasure, as the vault itself has it."""
        found = subjects.erased(connection, self._keyring, pseudonym)
        if found is None and isinstance(entry, ErasedSubject):
            raise VaultError(
                f"the payload says that {pseudonym!r} was erased, and the vault knows nothing of it: it is another "
                "vault, or a backup without its erasure list"
            )
        return found


def _fields(entry: SealedSubject | ErasedSubject) -> dict[str, Any]:
    """Return the sealed fields of an entry."""
    return dict(entry.fields) if isinstance(entry, SealedSubject) else {}
