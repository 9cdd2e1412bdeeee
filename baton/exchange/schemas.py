"""The published JSON Schemas (draft 2020-12) of everything that crosses the wire, made of the records themselves.

A schema accepts a document exactly when the record does, given a validator that also checks formats. The number
at the end of an `$id` goes up when a document that was valid no longer is.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from baton.artifacts.records import ArtifactRef
from baton.budget.records import Budget
from baton.contract.explanation import Explanation, LeftOut
from baton.core.baton import Baton, BatonPatch
from baton.core.exhibits import Exhibit
from baton.core.history import CompensationRecord, Conflict, HistoryEntry, Outcome, Spend
from baton.core.messages import (
    Decided,
    Decision,
    Origin,
    Overview,
    PipelineInput,
    PipelineResult,
    PromptPart,
    Selected,
    StageInput,
    StageResult,
    StageReturn,
    Vote,
    Waiting,
)
from baton.core.verdict import Finding, Verdict
from baton.handoff.pending import HandoffDecision, PendingHandoff
from baton.report.records import HandoffReport
from baton.wire.records import Record
from baton.wire.schemas import Published

SCHEMAS: Mapping[str, type[Record]] = {
    "baton": Baton,
    "baton-patch": BatonPatch,
    "stage-result": StageResult,
    "artifact-ref": ArtifactRef,
    "history-entry": HistoryEntry,
    "outcome": Outcome,
    "undone": CompensationRecord,
    "pipeline-input": PipelineInput,
    "pipeline-result": PipelineResult,
    "stage-input": StageInput,
    "stage-return": StageReturn,
    "decision": Decision,
    "decided": Decided,
    "overview": Overview,
    "waiting": Waiting,
    "exhibit": Exhibit,
    "vote": Vote,
    "spend": Spend,
    "conflict": Conflict,
    "selected": Selected,
    "prompt-part": PromptPart,
    "origin": Origin,
    "budget": Budget,
    "verdict": Verdict,
    "finding": Finding,
    "pending-handoff": PendingHandoff,
    "handoff-decision": HandoffDecision,
    "handoff-report": HandoffReport,
    "explanation": Explanation,
    "left-out": LeftOut,
}
"""Every record with a published schema, by the schema's name; `stage-result` is the `{"baton_patch": …}` of S1 L51."""


def schema_names() -> list[str]:
    """Return the names that `schema` knows."""
    return list(SCHEMAS)


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a record."""
    if name not in SCHEMAS:
        near = difflib.get_close_matches(name, SCHEMAS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(SCHEMAS)}"
        raise ValueError(f"there is no schema {name!r}; {hint}")
    body = SCHEMAS[name].model_json_schema(mode="validation", schema_generator=Published)
    return {"$schema": Published.schema_dialect, "$id": f"urn:baton:schema:{name}:1", **body}
