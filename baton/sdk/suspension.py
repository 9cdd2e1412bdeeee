"""Fails the workflow tasks of a run whose code does not fit it, so that nothing of the code leaves the worker."""

from typing import Any

from temporalio.worker import WorkflowInstance
from temporalio.workflow import NondeterminismError

from baton.core.fit import Fit
from baton.sdk.early_queries import GuardedInstance, RunCache

_WORK = frozenset(
    {
        "schedule_activity",
        "schedule_local_activity",
        "schedule_nexus_operation",
        "start_child_workflow_execution",
        "signal_external_workflow_execution",
        "request_cancel_external_workflow_execution",
    }
)


class SuspendingInstance(GuardedInstance):
    """A guarded instance that sends nothing once its code does not fit."""

    def __init__(self, inner: WorkflowInstance, cache: RunCache | None, fit: Fit) -> None:
        super().__init__(inner, cache)
        self._fit = fit

    def activate(self, act: Any) -> Any:
        """Forward; fail the task instead of answering it if the code does not fit."""
        completion = super().activate(act)
        if any(job.HasField("remove_from_cache") for job in act.jobs):  # which has to succeed
            self._fit.release()
            return completion
        is_first = any(job.HasField("initialize_workflow") for job in act.jobs)
        if is_first and self._fit.waiting and not self._begins_work(completion):
            self._fit.suspend(next(iter(self._fit.waiting.values())))
        if self._fit.misfit:
            raise NondeterminismError(self._fit.misfit)
        return completion

    def _begins_work(self, completion: Any) -> bool:
        """Return whether the code waits for more than the time limits of the waiting steps."""
        kinds = [command.WhichOneof("variant") for command in completion.successful.commands]
        return kinds.count("start_timer") > len(self._fit.waiting) or any(kind in _WORK for kind in kinds)
