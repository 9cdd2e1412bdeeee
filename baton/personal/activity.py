"""A stage's access to personal data, limited to the fields that it declares (EAAPL-MAG006 §12.3)."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from baton.core.stages import Calls, step
from baton.core.transcript import SealedText
from baton.errors import BatonError, ConfigurationError
from baton.personal.records import Erased, PersonalData, SealedSubject, read_payload
from baton.personal.store import Vault
from baton.personal.store_texts import seal_text
from baton.wire.json_values import Json

MIN_SEARCHED_LENGTH = 4
"""Shorter texts are not searched for: they stand in ordinary words."""


class UndeclaredPersonalDataError(BatonError):
    """A stage requested personal data that it does not declare; a retry cannot succeed.

    Declare the field in the stage's `personal_data`.
    """


class PersonalDataAccess:
    """A stage's access to the declared fields of the personal data in its handoff."""

    def __init__(
        self,
        vault: Vault | None,
        stage: str,
        declared: Collection[str],
        task_id: str,
        payload: Mapping[str, Any] | None = None,
    ) -> None:
        self._vault = vault
        self._calls = Calls("the stage", shows_arguments=False)
        self._stage = stage
        self._declared = frozenset(declared)
        self._task_id = task_id
        self._write_lock = asyncio.Lock()  # each write extends the payload of the previous one
        self._in_clear: dict[str, set[str]] = {}  # by field, what the stage has read or written
        self.payload: dict[str, JsonValue] = dict(payload or {})

    def check(self) -> None:
        """Raise an error if a call was not awaited."""
        self._calls.check()

    @step
    async def read(self, *fields: str) -> PersonalData:
        """Return personal data by the subject's pseudonym, or `Erased` for an erased subject."""
        self._check(fields)
        opened = await self._require_vault().open(self.payload, self._task_id, fields or self._declared)
        for subject in opened.values():
            if not isinstance(subject, Erased):
                self._note(subject)
        return opened

    @step
    async def write(self, subject: str, fields: Mapping[str, Json]) -> dict[str, Json]:
        """Seal personal data of a subject, and return the payload to hand on."""
        self._check(fields)
        self._note(fields)
        async with self._write_lock:
            self.payload = await self._require_vault().seal(subject, self._task_id, fields, onto=self.payload)
            return self.payload

    async def seal_text(self, text: str) -> SealedText:
        """Seal a text that may speak of the people in the handoff, and of those of whom the stage wrote."""
        vault = self._require_vault()
        entries = read_payload(await vault.without_erased(self.payload)).items()
        people = [pseudonym for pseudonym, entry in entries if isinstance(entry, SealedSubject)]
        return await seal_text(vault, self._task_id, people, text)

    def warnings(self, returned: JsonValue) -> list[str]:
        """Return a warning if what the stage stores holds, in clear, personal data that it has read or written."""
        texts = [*_texts(returned)] if self._in_clear else []
        fields = sorted(
            field for field, known in self._in_clear.items() if any(part in text for part in known for text in texts)
        )
        names = ", ".join(map(repr, fields))
        return (
            [f"it returned or recorded personal data in clear ({names}): name the subject's pseudonym instead"]
            if fields
            else []
        )

    def _note(self, fields: Mapping[str, Json]) -> None:
        for field, value in fields.items():
            self._in_clear.setdefault(field, set()).update(
                text for text in _texts(value) if len(text) >= MIN_SEARCHED_LENGTH
            )

    def _check(self, fields: Collection[str]) -> None:
        """Raise an error if the stage does not declare these fields."""
        missing = sorted(set(fields) - self._declared)
        if self._declared and not missing:
            return
        declared = ", ".join(map(repr, sorted(self._declared))) or "none"
        example = sorted({*self._declared, *missing}) or ["email"]
        raise UndeclaredPersonalDataError(
            f"stage {self._stage!r} may not handle personal data {', '.join(map(repr, missing)) or 'of any kind'}: it "
            f"declares {declared}; declare each field that it reads or writes, such as @stage(personal_data={example})"
        )

    def _require_vault(self) -> Vault:
        if self._vault is None:
            raise ConfigurationError(
                f"stage {self._stage!r} handles personal data, but this worker has no vault; pass one with "
                "Safeguards(vault=…)"
            )
        return self._vault


def _texts(value: Json) -> Iterator[str]:
    """Yield every text in a value, member names included, and every number as text."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield name
            yield from _texts(member)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
