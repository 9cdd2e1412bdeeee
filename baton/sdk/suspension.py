"""Fails the workflow tasks of a run whose code does not fit it, so that nothing of the code leaves the worker."""

from typing import Any

from temporalio.worker import WorkflowInstance
from temporalio.workflow import NondeterminismError

from baton.core.fit import Fit
from baton.sdk.early_queries import GuardedInstance, RunCache


class SuspendingInstance(GuardedInstance):
    """A guarded instance that sends nothing once its code does not fit."""

    def __init__(self, inner: WorkflowInstance, cache: RunCache | None, fit: Fit) -> None:
        super().__init__(inner, cache)
        self._fit = fit

    def activate(self, act: Any) -> Any:
        """Forward; fail the task instead of answering it if the code does not fit."""
        completion = super().activate(act)
        is_eviction = any(job.HasField("remove_from_cache") for job in act.jobs)  # which has to succeed
        if self._fit.misfit and not is_eviction:
            raise NondeterminismError(self._fit.misfit)
        return completion
