"""Starts a run as an operation: an id that is taken starts nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton.core.messages import PipelineInput
from baton.core.operations import Fact, Operation, Preview
from baton.runs.client_connection import DEFAULT_TASK_QUEUE
from baton.runs.client_executions import Execution, describe
from baton.runs.client_waiting import has_pollers
from baton.wire.money import format_usd

_MAX_SUMMARY = 200  # the server takes no more


@dataclass(frozen=True)
class StartPreview(Preview):
    """What a start would do now.

    Attributes:
        has_worker: Whether a worker polls the task queue: without one, the run begins once one does.
    """

    has_worker: bool = field(kw_only=True)


@dataclass(frozen=True)
class Start(Operation[StartPreview, WorkflowHandle[Any, Any]]):
    """Start a pipeline. The result is the new run's handle; Temporal's UI shows who started it.

    `preview` and `commit` raise `temporalio.exceptions.WorkflowAlreadyStartedError` if the id is taken.

    Attributes:
        client: A connected client, with `BatonPlugin`.
        pipeline: The workflow's type.
        start: Its input.
        workflow_id: The new workflow id.
        task_queue: The task queue of its workers.
        again: Whether an ended run may have the id.

    Example:
        ```python
        operation = Start(client, "Delivery", PipelineInput(goal="Add login"), "delivery-1")
        handle = await operation.commit(by="ann")
        ```
    """

    client: Client
    pipeline: str
    start: PipelineInput
    workflow_id: str
    task_queue: str = DEFAULT_TASK_QUEUE
    again: bool = False
    nothing_done = "nothing was started"

    async def preview(self) -> StartPreview:
        """Return what would start, and whether a worker would begin it."""
        earlier = await self._find_earlier()
        has_worker = await has_pollers(self.client, self.task_queue)
        queue, budget = f"task queue {self.task_queue!r}", self.start.budget
        facts = [
            Fact(f"A run of {self.pipeline!r} starts, for the workers of {queue}."),
            *([Fact(f"It may spend {format_usd(budget.ceiling_micro_usd)}.")] if budget else []),
            *([Fact(f"It works for {self.start.requester.id}.")] if self.start.requester else []),
            *([Fact("An ended run has the same id; it stays as it is.")] if earlier else []),
            *([] if has_worker else [Fact(f"No worker polls {queue}; the run begins once one does.")]),
        ]
        basis = {"after": earlier.run_id if earlier else ""}
        return StartPreview(f"Start {self.workflow_id}", facts, basis, has_worker=has_worker)

    async def _find_earlier(self) -> Execution | None:
        """Return the ended run with this id; raise if the id is taken."""
        try:
            earlier = await describe(self.client, self.workflow_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return None
        if earlier.close_time is None or not self.again:
            raise WorkflowAlreadyStartedError(self.workflow_id, earlier.workflow_type, run_id=earlier.run_id)
        return earlier

    async def _perform(self, preview: StartPreview, by: str, why: str) -> WorkflowHandle[Any, Any]:
        policy = WorkflowIDReusePolicy
        return await self.client.start_workflow(
            self.pipeline,
            self.start,
            id=self.workflow_id,
            task_queue=self.task_queue,
            id_reuse_policy=policy.ALLOW_DUPLICATE if preview.basis["after"] else policy.REJECT_DUPLICATE,
            static_summary=f"started by {by}{f': {why}' if why else ''}"[:_MAX_SUMMARY],
        )

    def _changes(self, shown: Mapping[str, Any], preview: StartPreview) -> list[str]:
        return ["a run with this id has started and ended meanwhile"]
