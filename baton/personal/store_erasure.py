"""Erases a person as an operation: where their data is, shown first, and their keys destroyed only as shown."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from baton.core.operations import Fact, Operation, Preview
from baton.personal.store import Vault
from baton.personal.store_subjects import Erasure, Place
from baton.wire.json_values import digest
from baton.wire.text import quantity


@dataclass(frozen=True)
class ErasePreview(Preview):
    """What an erasure would destroy now.

    Attributes:
        pseudonym: The person's pseudonym.
        places: Where their data was sealed.
    """

    pseudonym: str = field(kw_only=True)
    places: list[Place] = field(kw_only=True)


@dataclass(frozen=True)
class Erase(Operation[ErasePreview, Erasure]):
    """Destroy the keys of all personal data of a data subject, and record that in each task that held data of it.

    Erasing again is harmless and completes an interrupted erasure. `preview` and `commit` raise `VaultError`.

    Attributes:
        vault: The deployment's vault, opened with its ledger.
        subject: The data subject's name, exactly as it was sealed.
        request_id: The request's id, which is recorded for good.
    """

    vault: Vault
    subject: str
    request_id: str
    nothing_done = "nothing was erased"

    async def preview(self) -> ErasePreview:
        """Return where data of the person is."""
        pseudonym, places = await self.vault.pseudonym(self.subject), await self.vault.where_is(self.subject)
        tasks = Counter(place.task_id for place in places)
        facts = [Fact(f"The vault holds no data of {pseudonym}.")]
        if places:
            facts = [
                Fact(
                    f"The keys of {quantity(len(places), 'field')} in {quantity(len(tasks), 'task')} are destroyed; "
                    "what they sealed can never be read again.",
                    is_loss=True,
                )
            ]
        basis: dict[str, JsonValue] = {
            "subject": pseudonym,
            "fields": len(places),
            "tasks": len(tasks),
            "places": digest(sorted([place.task_id, place.name] for place in places)),
        }
        return ErasePreview(f"Erase {pseudonym}", facts, basis, pseudonym=pseudonym, places=places)

    async def _perform(self, preview: ErasePreview, by: str, why: str) -> Erasure:
        return await self.vault.erase(self.subject, self.request_id, by)

    def _changes(self, shown: Mapping[str, Any], preview: ErasePreview) -> list[str]:
        if shown["subject"] != preview.pseudonym:
            return [f"this is about {preview.pseudonym}"]
        if not preview.places:
            return ["the person was erased meanwhile"]
        fields, tasks = quantity(len(preview.places), "field"), quantity(int(str(preview.basis["tasks"])), "task")
        return [f"the vault holds {fields} in {tasks} now, and held {shown['fields']:,} in {shown['tasks']:,}"]
