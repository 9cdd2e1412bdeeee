"""Cancels a run as an operation: only the run that was shown is asked to stop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue
from temporalio.client import Client

from baton.core.operations import Fact, Operation, Preview
from baton.errors import PipelineError
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

    Steps that begin while a person reads do not change the mark: a run that goes on is to be stopped all the more.

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
        note = f" ({preview.run.notes[-1].text})" if preview.run.resets else ""
        return [f"the run goes on as another one{note}"]


def _open_children(run: RunRecord) -> list[str]:
    return [child for child, _, initiated in run.children if initiated not in run.ended_children]
