"""Baton: durable multi-agent pipelines on Temporal.

A pipeline is a workflow whose state is a small record, the baton. Stages are activities that read the baton
and return a patch. This module is the front door: the records and rules, pure and light, safe to import in
a workflow. It loads neither Temporal nor any service library; the rest of the house is one import away:

* `baton.workflow`: what a workflow constructs, `Pipeline`
* `baton.activity`: what an activity uses, `@stage` and `StageContext`
* `baton.plugin`: `BatonPlugin`, for the Temporal client and worker
* `baton.client`: what services and operators call: connect, read, decide, roll back, fork
* `baton.devserver`: the embedded Temporal server
* `baton.testing`: what tests of your own pipelines use
* `baton.protocol`: the pure core behind this module
* `baton.integrations`: adapters for agents and tools of other frameworks
* `baton.edge`: artifact stores, compression, exact token counts
* `baton.cli`: the `baton` command

Example:
    >>> start = Baton(goal="Add OAuth2 login", current_state=["Workflow starting"])
    >>> after = apply_patch(start, BatonPatch(decision_log=["Chose JWT over sessions"]))
    >>> after.decision_log
    ['Chose JWT over sessions']
"""

from baton.protocol.artifacts import ArtifactRef
from baton.protocol.baton import Baton, BatonPatch
from baton.protocol.errors import (
    ApprovalDeniedError,
    ArtifactConflictError,
    ArtifactCorruptError,
    ArtifactError,
    ArtifactNotFoundError,
    BatonError,
    HistoryError,
    OutcomeMismatchError,
    PatchError,
    PipelineError,
    ServerError,
    StageFailedError,
)
from baton.protocol.fencing import fence
from baton.protocol.history import Conflict, HistoryEntry, Outcome, Spend, StepKind, snapshots
from baton.protocol.merge import merge_patch
from baton.protocol.merging import MergeStrategy
from baton.protocol.messages import (
    Decided,
    Decision,
    Overview,
    PipelineInput,
    PipelineResult,
    PipelineStatus,
    StageResult,
)
from baton.protocol.patching import PatchRules, apply_patch
from baton.protocol.rendering import render
from baton.protocol.stages import Retries
from baton.protocol.tokens import TokenEstimator, estimate_tokens

__version__ = "0.1.0"

__all__ = [
    "ApprovalDeniedError",
    "ArtifactConflictError",
    "ArtifactCorruptError",
    "ArtifactError",
    "ArtifactNotFoundError",
    "ArtifactRef",
    "Baton",
    "BatonError",
    "BatonPatch",
    "Conflict",
    "Decided",
    "Decision",
    "HistoryEntry",
    "HistoryError",
    "MergeStrategy",
    "Outcome",
    "OutcomeMismatchError",
    "Overview",
    "PatchError",
    "PatchRules",
    "PipelineError",
    "PipelineInput",
    "PipelineResult",
    "PipelineStatus",
    "Retries",
    "ServerError",
    "Spend",
    "StageFailedError",
    "StageResult",
    "StepKind",
    "TokenEstimator",
    "apply_patch",
    "estimate_tokens",
    "fence",
    "merge_patch",
    "render",
    "snapshots",
]
