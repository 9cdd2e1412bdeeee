"""Cancels, pauses and unpauses a run as operations: only the run that was shown is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest, UnpauseWorkflowExecutionRequest
from temporalio.client import Client

from baton.core.operations import Fact, Operation, Preview
from baton.errors import PipelineError
from baton.runs.client_executions import Execution, describe
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord, RunStatus


@dataclass(frozen=True)
class CancelPreview(Preview):
    """What a cancellation would stop now.

    Attributes:
        run: The run.
    """

    run: RunRecord = field(kw_only=True)


@dataclass(frozen=True)
class Cancel(Operation[CancelPreview, str]):
    """Ask a run to cancel: its compensations run, and its children are asked too. The result is the run's id.

    Steps that begin while a person reads do not change the mark: a run that continues should still be stopped.

    `preview` and `commit` raise `PipelineError` if the run has ended. It takes effect once a worker has the run.

    Attributes:
        client: A connected client.
        workflow_id: The pipeline.
        run_id: The run; the newest by default.
    """

    client: Client
    workflow_id: str
    run_id: str | None = None
    nothing_done = "nothing was canceled"

    async def preview(self) -> CancelPreview:
        """Return the run that would be asked to cancel."""
        run = await read_run(self.client, self.workflow_id, self.run_id)
        if run.status is not RunStatus.RUNNING:
            raise PipelineError(f"{self.workflow_id!r} cannot be canceled: it is {run.status.value}")
        facts = [
            Fact("The run stops at its current step.", is_loss=True),
            Fact("Compensations of the steps that it took run, if it has any."),
            *(Fact(f"Child {child} is asked to cancel if it is open.", run=child) for child in _open_children(run)),
        ]
        basis: dict[str, JsonValue] = {"run": run.run_id}
        return CancelPreview(f"Cancel {self.workflow_id}", facts, basis, run=run)

    async def _perform(self, preview: CancelPreview, by: str, why: str) -> str:
        run_id = preview.run.run_id
        await self.client.get_workflow_handle(self.workflow_id, run_id=run_id).cancel(reason=f"{why} (by {by})")
        return run_id

    def _changes(self, shown: Mapping[str, Any], preview: CancelPreview) -> list[str]:
        return [continued(preview.run)]


def continued(run: RunRecord) -> str:
    """Return in words that another run than the one that was shown continues it, and who rolled it back."""
    note = f" ({run.notes[-1].text})" if run.resets else ""
    return f"the run continues as another run{note}"


def _open_children(run: RunRecord) -> list[str]:
    return [child for child, _, initiated in run.children if initiated not in run.ended_children]


@dataclass(frozen=True)
class PausePreview(Preview):
    """What pausing or unpausing a run would do now.

    Attributes:
        run: The run.
    """

    run: Execution = field(kw_only=True)


@dataclass(frozen=True)
class _PauseOperation(Operation[PausePreview, str]):
    client: Client
    workflow_id: str
    run_id: str | None = None

    async def _describe_open(self) -> tuple[Execution, dict[str, JsonValue]]:
        run = await describe(self.client, self.workflow_id, self.run_id)
        if run.close_time is not None:
            raise PipelineError(f"{self.workflow_id!r} has ended: it is {run.status}; {self.nothing_done}")
        since = run.pause.since.isoformat() if run.pause else ""
        return run, {"run": run.run_id, "since": since}

    def _request(self, preview: PausePreview, by: str, why: str) -> dict[str, Any]:
        """Return the members of the server's request, the same for both."""
        return {
            "namespace": self.client.namespace,
            "workflow_id": self.workflow_id,
            "run_id": preview.run.run_id,
            "identity": by,
            "reason": why,
            "request_id": str(uuid4()),
        }

    def _changes(self, shown: Mapping[str, Any], preview: PausePreview) -> list[str]:
        if shown["run"] != preview.run.run_id:
            return ["the run continues as another run"]
        return ["it was paused again meanwhile"]


@dataclass(frozen=True)
class Pause(_PauseOperation):
    """Pause a run, on a server that allows it (`frontend.WorkflowPauseEnabled`). The result is the run's id.

    `preview` and `commit` raise `PipelineError` if the run has ended or is paused, and `temporalio.service.RPCError`
    if the run does not exist or the server refuses.

    Attributes:
        client: A connected client.
        workflow_id: The pipeline.
        run_id: The run; the newest by default.
    """

    nothing_done = "nothing was paused"

    async def preview(self) -> PausePreview:
        """Return the run, and what pausing it means."""
        run, basis = await self._describe_open()
        if pause := run.pause:
            raise PipelineError(f"{self.workflow_id!r} was paused before, by {pause.by}; {self.nothing_done}")
        facts = [
            Fact("No step begins and nothing can be decided until it is unpaused.", is_loss=True),
            Fact("Stages at work finish."),
        ]
        return PausePreview(f"Pause {self.workflow_id}", facts, basis, run=run)

    async def _perform(self, preview: PausePreview, by: str, why: str) -> str:
        service = self.client.workflow_service
        await service.pause_workflow_execution(PauseWorkflowExecutionRequest(**self._request(preview, by, why)))
        return preview.run.run_id


@dataclass(frozen=True)
class Unpause(_PauseOperation):
    """Resume a paused run. The result is the run's id.

    `preview` and `commit` raise `PipelineError` if the run has ended or is not paused, and
    `temporalio.service.RPCError` if the run does not exist or the server refuses.

    Attributes:
        client: A connected client.
        workflow_id: The pipeline.
        run_id: The run; the newest by default.
    """

    nothing_done = "nothing was unpaused"

    async def preview(self) -> PausePreview:
        """Return the run, and who paused it."""
        run, basis = await self._describe_open()
        pause = run.pause
        if pause is None:
            raise PipelineError(f"{self.workflow_id!r} is not paused; {self.nothing_done}")
        why = f": {pause.why}" if pause.why else ""
        facts = [Fact(f"It was paused by {pause.by}{why}."), Fact("It continues where it was.")]
        return PausePreview(f"Unpause {self.workflow_id}", facts, basis, run=run)

    async def _perform(self, preview: PausePreview, by: str, why: str) -> str:
        service = self.client.workflow_service
        await service.unpause_workflow_execution(UnpauseWorkflowExecutionRequest(**self._request(preview, by, why)))
        return preview.run.run_id
