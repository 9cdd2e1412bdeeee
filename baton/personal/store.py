"""The vault: personal data sealed under a key for each data subject, and erased by destroying that key."""

import asyncio
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import JsonValue, TypeAdapter

from baton.personal import store_subjects as subjects
from baton.personal.errors import SubjectErasedError, VaultError
from baton.personal.records import (
    Erased,
    ErasedSubject,
    ErasureMark,
    FieldName,
    PersonalData,
    SealedSubject,
    read_payload,
    write_payload,
)
from baton.personal.store_encryption import Context, KeyPlace, open_data, open_value, read_head, seal_data, seal_value
from baton.personal.store_registry import Registry

_FIELD: TypeAdapter[str] = TypeAdapter(FieldName)


class Vault(Registry):
    """The keys of all data subjects, and the index of where data of each was sealed (EAAPL-MAG006 §12.3)."""

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
        contexts = [Context(task_id, "field", _FIELD.validate_python(name)) for name in fields]
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
                    name: open_value(field, *found[field.kid], Context(task_id, "field", name))
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

    async def seal_bytes(self, subject: str, task_id: str, name: str, data: bytes) -> bytes:
        """Encrypt an artifact that is about a subject; put what this returns into the artifact store."""
        context = Context(task_id, "artifact", name)
        key, place = await self._key_to_seal(subject, [context])
        return await asyncio.to_thread(seal_data, data, key, place, context)

    async def open_bytes(self, sealed: bytes, task_id: str, name: str) -> bytes:
        """Return the bytes of an artifact that `seal_bytes` encrypted."""
        pseudonym, kid, _ = read_head(sealed)

        def work(connection: sqlite3.Connection) -> tuple[bytes, KeyPlace]:
            gone = subjects.erased(connection, self._keyring, pseudonym)
            if gone is not None:
                raise SubjectErasedError(
                    f"the artifact {name!r} cannot be read any more: {pseudonym!r} was erased "
                    f"by request {gone.erasure_id!r}"
                )
            return subjects.key_to_open(connection, self._keyring, pseudonym, kid)

        key, place = await self._file.read(work)
        return await asyncio.to_thread(open_data, sealed, key, place, Context(task_id, "artifact", name))

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
