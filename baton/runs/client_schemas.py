"""The published JSON Schemas (draft 2020-12) of the records that runs, reports and decisions are made of.

A schema is generated from the record's class and accepts the same documents, given a validator that also checks
formats. The number at the end of an `$id` goes up when a document that was valid no longer is.
"""

from collections.abc import Callable, Mapping
from typing import Any

from baton.contract.records import Explanation, LeftOut
from baton.contract.validation import contract_schema
from baton.core.artifacts import ArtifactRef
from baton.core.baton import Baton, BatonPatch
from baton.core.budget import Budget
from baton.core.exhibits import Exhibit
from baton.core.history import CompensationRecord, Conflict, HistoryEntry, Outcome, Reported, Spend
from baton.core.messages import (
    Origin,
    Overview,
    PipelineInput,
    PipelineResult,
    PromptPart,
    Selected,
    StageInput,
    StageResult,
    StageReturn,
    Waiting,
)
from baton.core.pending import PendingHandoff
from baton.core.questions import Answer, Choice, Question, Settled, Vote
from baton.core.requester import Requester
from baton.core.steering import NoteRequest, SteeringNote
from baton.core.verdict import Finding, Verdict
from baton.handoff.records import handoff_schema
from baton.report.records import HandoffReport
from baton.wire.records import Record
from baton.wire.schemas import PublishedSchema

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
    "question": Question,
    "choice": Choice,
    "answer": Answer,
    "settled": Settled,
    "overview": Overview,
    "note-request": NoteRequest,
    "steering-note": SteeringNote,
    "requester": Requester,
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
    "handoff-report": HandoffReport,
    "reported": Reported,
    "explanation": Explanation,
    "left-out": LeftOut,
}
"""Every record with a published schema, by the schema's name; `stage-result` is the `{"baton_patch": …}` of S1 L51."""


MESSAGES: Mapping[str, Callable[[], dict[str, Any]]] = {"handoff": handoff_schema, "contract": contract_schema}
"""The messages between agents, whose schemas have versions of their own, by the schema's name."""


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a record or a message, with its `$schema` and `$id`.

    Args:
        name: One of `SCHEMAS` or `MESSAGES`.

    Raises:
        KeyError: The name is unknown.
    """
    if name in MESSAGES:
        return MESSAGES[name]()
    body = SCHEMAS[name].model_json_schema(mode="validation", schema_generator=PublishedSchema)
    return {"$schema": PublishedSchema.schema_dialect, "$id": f"urn:baton:schema:{name}:1", **body}
