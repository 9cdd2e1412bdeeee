"""Where a stage reads and writes personal data, if its contract says that it may (EAAPL-MAG006 §12.3)."""

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
    """A stage asked for personal data that its declaration does not name; another run would not change that."""


class PersonalDataAccess:
    """A stage's view of the personal data that came with its handoff: the declared fields, and no others."""

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
        self._writing = asyncio.Lock()  # each write takes up what the one before it sealed
        self.payload: dict[str, JsonValue] = dict(payload or {})

    def check(self) -> None:
        """Raise an error if a call was never awaited: what it was to do did not happen."""
        self._calls.check()

    @step
    async def read(self, *fields: str) -> PersonalData:
        """Return personal data by the pseudonym of each subject; of erased ones the mark `Erased`."""
        self._check(fields)
        return await self._require_vault().open(self.payload, self._task_id, fields or self._declared)

    @step
    async def write(self, subject: str, fields: Mapping[str, Json]) -> dict[str, Json]:
        """Seal personal data of a subject, and return the payload to be handed on with it."""
        self._check(fields)
        async with self._writing:
            self.payload = await self._require_vault().seal(subject, self._task_id, fields, onto=self.payload)
            return self.payload

    def _check(self, fields: Collection[str]) -> None:
        """Make sure that the stage declared what it asks for."""
        missing = sorted(set(fields) - self._declared)
        if self._declared and not missing:
            return
        declared = ", ".join(map(repr, sorted(self._declared))) or "none"
        wanted = sorted({*self._declared, *missing}) or ["email"]
        raise UndeclaredPersonalDataError(
            f"stage {self._stage!r} may not handle personal data {', '.join(map(repr, missing)) or 'of any kind'}: it "
            f"declares {declared}; declare every field that it reads or writes, such as @stage(personal_data={wanted})"
        )

    def _require_vault(self) -> Vault:
        """Return the worker's vault."""
        if self._vault is None:
            raise ConfigurationError(
                f"stage {self._stage!r} handles personal data, and this worker has no vault; give it one: "
                "Safeguards(vault=…)"
            )
        return self._vault
