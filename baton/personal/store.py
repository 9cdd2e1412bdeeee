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
    """The keys of all data subjects, and the index of where data of each was sealed (EAAPL-MAG006 §12.3).

    Use it as an asynchronous context manager; any number of processes may use one vault. No key stays in memory
    between two calls, so an erasure holds for every process at once.

    After `erase` no process can open what was sealed for the subject, wherever it lies: ledger, cold tier, workflow
    history, bundles, artifacts and old copies of all these. **Not promised:** a copy of the vault's own file from
    before the erasure, together with the WRAP key of that time, still opens it. So keep backups of the vault no
    longer than erasure may take, or rotate the WRAP key, `rewrap`, and destroy the old one: that makes every older
    copy of the vault worthless. Nor does it reach what somebody opened and wrote elsewhere.

    Args:
        where: The vault's file.
        keyring: The keys: WRAP for the subjects' keys, INDEX for their pseudonyms.
        options: See `VaultOptions`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from baton.keys.store_keyring import Keyring
        >>> async def example() -> None:
        ...     async with Vault(Path(tempfile.mkdtemp()) / "vault.db", Keyring.generate()) as vault:
        ...         payload = await vault.seal("customer-7", "t-1", {"email": "jane@example.org"})
        ...         opened = await vault.open(payload, "t-1")
        ...         print("jane" in str(payload), list(opened.values()))
        ...         print((await vault.erase("customer-7", "request-1")).removed)
        ...         print([type(one).__name__ for one in (await vault.open(payload, "t-1")).values()])
        >>> asyncio.run(example())
        False [{'email': 'jane@example.org'}]
        {'keys': 1, 'places': 1}
        ['Erased']
    """

    async def seal(
        self,
        subject: str,
        task_id: str,
        fields: Mapping[str, JsonValue],
        *,
        onto: Mapping[str, Any] | None = None,
    ) -> dict[str, JsonValue]:
        """Encrypt personal data of a subject and return the `personalDataPayload` that carries it.

        The key is on the disk before this returns, so that no ciphertext is ever left without one.

        Args:
            subject: Who it is about, as the organisation names them, spelled alike everywhere.
            task_id: The task that it is for; it opens nowhere else.
            fields: The values by name. Names stay readable for ever.
            onto: A payload to add them to; fields of the same name are replaced.

        Raises:
            SubjectErasedError: The subject was erased and not readmitted.
            PersonalDataError: ``onto`` is not a payload.
            ValueError: There are no fields, or a name is not of letters, digits and underscores.
        """
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
        """Return what a payload holds, by pseudonym; of erased subjects the mark of their erasure.

        Args:
            payload: The member `personalDataPayload`.
            task_id: The task that it came with.
            fields: Which fields to decrypt; None for all.

        Raises:
            PersonalDataError: It is not a payload.
            ForeignCiphertextError: A value was changed, or moved from another subject, task or field.
            DataKeyMissingError: A key is missing, and no erasure explains it; it may come back.
            VaultError: It says that somebody was erased of whose erasure the vault knows nothing.
        """
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
        """Encrypt an artifact that is about a subject; put what this returns into the artifact store.

        Args:
            subject: Who it is about.
            task_id: The task that it belongs to.
            name: The artifact's id.
            data: Its bytes, less than 2 GiB.

        Raises:
            SubjectErasedError: The subject was erased and not readmitted.
        """
        context = Context(task_id, "artifact", name)
        key, place = await self._key_to_seal(subject, [context])
        return await asyncio.to_thread(seal_data, data, key, place, context)

    async def open_bytes(self, sealed: bytes, task_id: str, name: str) -> bytes:
        """Return the bytes of an artifact that `seal_bytes` encrypted.

        Raises:
            SubjectErasedError: The subject was erased.
            ForeignCiphertextError: They were changed, or belong to another task or artifact.
            DataKeyMissingError: The key is missing, and no erasure explains it.
        """
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
        """Wrap every key again under the current WRAP key, after it was rotated, and return how many were.

        Once the old WRAP key is destroyed, older copies of the vault's file open nothing any more.
        """
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
