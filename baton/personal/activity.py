"""A stage's access to personal data, limited to the fields that it declares (EAAPL-MAG006 §12.3)."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import JsonValue

from baton.core.stages import Calls, step
from baton.errors import BatonError, ConfigurationError
from baton.personal.records import PersonalData
from baton.personal.store import Vault
from baton.wire.json_values import Json


class UndeclaredPersonalDataError(BatonError):
    """A stage requested personal data that it does not declare; a retry cannot succeed."""


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
        self.payload: dict[str, JsonValue] = dict(payload or {})

    def check(self) -> None:
        """Raise an error if a call was not awaited."""
        self._calls.check()

    @step
    async def read(self, *fields: str) -> PersonalData:
        """Return personal data by the subject's pseudonym, or `Erased` for an erased subject."""
        self._check(fields)
        return await self._require_vault().open(self.payload, self._task_id, fields or self._declared)

    @step
    async def write(self, subject: str, fields: Mapping[str, Json]) -> dict[str, Json]:
        """Seal personal data of a subject, and return the payload to hand on."""
        self._check(fields)
        async with self._write_lock:
            self.payload = await self._require_vault().seal(subject, self._task_id, fields, onto=self.payload)
            return self.payload

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
