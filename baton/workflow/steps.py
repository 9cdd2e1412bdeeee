"""What a step of a pipeline was asked to be, and what it returned."""

from collections.abc import Callable
from typing import Any

from baton.protocol.history import Outcome, StepKind
from baton.protocol.messages import StageResult

_DEFINITION = "__temporal_workflow_definition"  # as the SDK marks both the class and its `run` method


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
    """Return the workflow type that a `run` method belongs to: the name that `@workflow.defn` gave it.

    Raises:
        TypeError: It is no workflow's.
    """
    name: str | None = getattr(getattr(run, _DEFINITION, None), "name", None)
    if name is None:
        raise TypeError(
            f"a pipeline is named by its `run` method or its workflow type; {run!r} is neither: "
            "its class needs @workflow.defn, and the method @workflow.run"
        )
    return name
