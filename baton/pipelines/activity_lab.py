"""How a stage runs in the lab: nothing that it does leaves the worker.

What it writes stays in memory, unless later stages of its case read it; personal data is opened and never sealed,
people's notes are not read, no transcript is kept, and its tools are answered from the record. A stage that
cannot be held back is answered whole.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from baton.artifacts.activity import ArtifactAccess
from baton.artifacts.store import ArtifactStore, MemoryArtifactStore
from baton.contract.activity_lab import LabAnswers
from baton.core.lab import STAGE_CALL, LabReport, LabTerms, Overrides, RecordedCall, work_digest
from baton.core.messages import StageInput, StageResult
from baton.errors import ArtifactError, LabRefusedError
from baton.personal.records import PersonalData
from baton.personal.store import Vault
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_parts import WorkerParts

_CALLS = TypeAdapter(list[RecordedCall])


class AsideStore:
    """An artifact store that keeps what is put in memory, and reads the worker's own beside it."""

    def __init__(self, store: ArtifactStore | None) -> None:
        self._store = store
        self._aside = MemoryArtifactStore()

    async def put(self, data: bytes) -> str:
        """Keep ``data`` in memory, and return its SHA-256."""
        return await self._aside.put(data)

    async def get(self, sha256: str) -> bytes:
        """Return the bytes with this SHA-256."""
        if self._store is None or await self._aside.has(sha256):
            return await self._aside.get(sha256)
        return await self._store.get(sha256)

    async def has(self, sha256: str) -> bool:
        """Return whether either has ``sha256``."""
        return await self._aside.has(sha256) or (self._store is not None and await self._store.has(sha256))


class LabVault:
    """The worker's vault as a stage has it in the lab: it opens what the recorded task sealed, and seals nothing."""

    def __init__(self, vault: Vault, task_id: str) -> None:
        self._vault, self._task_id = vault, task_id

    async def open(self, payload: Mapping[str, Any], task_id: str, fields: Collection[str]) -> PersonalData:
        """Decrypt a payload of the recorded task."""
        return await self._vault.open(payload, self._task_id, fields)

    async def seal(self, subject: str, task_id: str, fields: object, *, onto: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload as it is."""
        return dict(onto)


async def recorded_result(given: StageInput, terms: LabTerms, store: ArtifactStore | None) -> StageResult | None:
    """Return the recorded result of a stage that the lab does not run, if it was asked the same."""
    asked = given.stage, STAGE_CALL, work_digest(given.baton, given.params, given.inputs)
    recorded = await _recorded(terms, store)
    found = next((call for call in recorded if (call.stage, call.tool, call.arguments) == asked), None)
    return None if found is None else StageResult.model_validate(found.result, strict=False)


async def enter_lab(context: StageContext[Any], terms: LabTerms) -> None:
    """Hold back what the stage of a context would do, before its function runs.

    Raises:
        LabRefusedError: Nobody named the stage, and no agent does it: its code may do anything. Or a candidate's
            model would get personal data.
    """
    spec, given, parts = context.spec, context.given, context.parts
    if not (spec.agent or spec.name in terms.allow):
        raise LabRefusedError(
            f"no agent does the stage {spec.name!r}, so the lab does not run it: its code may send, pay or write; "
            "if it does not, name the stage (`--allow`)",
            is_unheld=True,
        )
    if terms.overrides.stage not in (None, spec.name):  # the candidate changes another stage
        terms = terms.model_copy(update={"overrides": Overrides()})
    opens = spec.personal_data and given.personal_data and terms.sealed_for and spec.transcript != "off"
    if opens and terms.overrides.model is not None and spec.name not in terms.allow:
        raise LabRefusedError(
            f"the stage {spec.name!r} handles personal data, which the lab does not give to another model; if it may "
            "have it, name the stage (`--allow`)"
        )
    recorded = await _recorded(terms, parts.artifacts)
    context.lab = LabAnswers(terms, [call for call in recorded if call.stage in ("", spec.name)])
    aside = parts.artifacts if terms.hands_on and parts.artifacts else AsideStore(parts.artifacts)
    vault = parts.vault
    own: Any = LabVault(vault, terms.sealed_for) if opens and vault is not None else None
    context.parts = replace(parts, artifacts=aside, vault=own, transcripts=None)
    baton = context.baton
    context.artifacts = ArtifactAccess(aside, baton.artifacts, baton.work_scope, parts.counter)
    contract, most = given.contract, terms.overrides.facts
    if most is not None and contract is not None:
        facts: Any = contract.get("facts") or []
        contract = {**contract, "facts": facts[:most]}
    context.given = given.model_copy(update={"contract": contract, "steer": False, "lab": terms})


async def _recorded(terms: LabTerms, store: ArtifactStore | None) -> list[RecordedCall]:
    if terms.answers is None:
        return []
    if store is None:
        raise ArtifactError("the lab's recorded tool calls are an artifact, and this worker has no artifact store")
    return _CALLS.validate_json(await store.get(terms.answers))


async def lab_report(context: StageContext[Any], parts: WorkerParts, seconds: float) -> LabReport | None:
    """Return what a stage reports about its run in the lab; None elsewhere.

    Its prompt is in the worker's store, and the arguments of its calls are readable, unless its texts are not to be
    kept, or only sealed.
    """
    if context.lab is None:
        return None
    prompt, calls, store, spec = vars(context).get("prompt"), context.lab.calls, parts.artifacts, context.spec
    if parts.transcripts is None or spec.transcript != "kept" or spec.personal_data:
        prompt, calls = None, [call.model_copy(update={"shown": ""}) for call in calls]
    kept = None if prompt is None or store is None else await store.put(prompt.encode())
    return LabReport(milliseconds=round(seconds * 1000), calls=calls, prompt=kept)
