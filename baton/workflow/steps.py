"""What a step of a pipeline was asked to be, and what it returned."""

from collections.abc import Callable
from typing import Any

from baton.protocol.history import Outcome, StepKind
from baton.protocol.messages import StageResult


def results_of(outcome: Outcome) -> list[StageResult]:
    """Return what the stages of a step returned: one, or the branches of a fan-out in order."""
    if outcome.kind is not StepKind.MERGE:
        entry = outcome.entries[0]
        return [StageResult(baton_patch=entry.effective, output=outcome.value, spend=entry.spend)]
    outputs = outcome.value if isinstance(outcome.value, list) else []
    return [
        StageResult(baton_patch=entry.patch, output=output, spend=entry.spend)
        for entry, output in zip(outcome.entries, outputs, strict=False)
    ]


def workflow_type(run: Callable[..., Any]) -> str:
    """Return the workflow type that a `run` method belongs to."""
    definition = getattr(run, "__temporal_workflow_run_name__", None)
    return definition or run.__qualname__.split(".")[-2]
