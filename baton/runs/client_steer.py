"""Sends a note of a person to an agent at work, as an operation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import JsonValue, ValidationError
from temporalio.client import Client, WorkflowUpdateFailedError

from baton.codec.secrets import mask_values
from baton.core.messages import StageInput
from baton.core.operations import Fact, Operation, Preview
from baton.core.steering import NoteRequest, SteeringNote, no_agent, note_refusal
from baton.errors import PipelineError
from baton.runs.client_executions import refusal_of
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunRecord
from baton.runs.client_waiting import ANSWER_SECONDS, answer_of, must_be_open
from baton.wire.names import STEER
from baton.wire.text import describe_faults


@dataclass(frozen=True)
class SteerPreview(Preview):
    """Who would get a note now.

    Attributes:
        run: The run.
        target: The input of the stage whose agent gets it.
    """

    run: RunRecord = field(kw_only=True)
    target: StageInput = field(kw_only=True)


@dataclass(frozen=True)
class Steer(Operation[SteerPreview, SteeringNote]):
    """Send a note to an agent at work, which is shown it before its next request. The result is the note.

    `preview` and `commit` raise `PipelineError` if no stage at work takes notes (`steer=True`), several do and none is
    named, the text is empty, too long (500 characters) or looks like a secret, or the run has ended or is paused.
    `commit` raises it also if the worker's safety scan rejects the text, or the step has ended. Of a later record
    `RunRecord.was_shown` says whether the note was shown: one that came too late is recorded as not shown.

    Attributes:
        client: A connected client.
        workflow_id: The pipeline.
        text: The note.
        step: The name of the step, branch or item; by default the only one at work that takes notes.
        run_id: The run, which must be the newest; any by default.
        within: How long to wait for a worker's answer, in seconds.
        key: The sender's own id of the note: sent again, it is the same note.

    Example:
        ```python
        operation = Steer(client, "order-1", "use EUR")
        note = await operation.commit(by="ann")
        ```
    """

    client: Client
    workflow_id: str
    text: str
    step: str | None = None
    run_id: str | None = None
    within: float = ANSWER_SECONDS
    key: str | None = None
    nothing_done = "nothing was sent"

    async def preview(self) -> SteerPreview:
        """Return the stage whose agent would be shown the note."""
        self._request("-")
        if mask_values(self.text) != self.text:
            raise PipelineError(f"the note looks like a secret; leave it out: {self.nothing_done}")
        execution = await must_be_open(self.client, self.workflow_id, self.run_id)
        run = await read_run(self.client, self.workflow_id, execution.run_id)
        target = self._target(run)
        facts = [
            Fact(f"The agent of {target.title!r} is shown it before its next request."),
            Fact("It gives the agent no tools, and stays in the history."),
            Fact("If the step ends before, the note is recorded as not shown."),
        ]
        basis: dict[str, JsonValue] = {"run": run.run_id, "seq": target.seq, "step": target.title}
        return SteerPreview(f"Send {target.title!r} of {self.workflow_id} a note", facts, basis, run=run, target=target)

    def pinned_to(self, preview: SteerPreview) -> Self:
        """Return the operation on the step that was shown."""
        return replace(self, step=preview.target.title)

    def _request(self, who: str) -> NoteRequest:
        try:
            request = NoteRequest(text=self.text, who=who, step=self.step)
        except ValidationError as error:
            raise PipelineError(f"the note cannot be sent: {describe_faults(error)}") from None
        if refusal := note_refusal(request):
            raise PipelineError(f"the note cannot be sent: {refusal}")
        return request

    def _target(self, run: RunRecord) -> StageInput:
        """Return the input of the stage that the note is for."""
        at_work = run.at_work
        fitting = [sent for sent in at_work if sent.steer and self.step in (None, sent.title)]
        if len(fitting) == 1:
            return fitting[0]
        taking = [sent.title for sent in at_work if sent.steer]
        raise PipelineError(f"{self.workflow_id}: {no_agent(self.step, taking, [sent.title for sent in at_work])}")

    async def _perform(self, preview: SteerPreview, by: str, why: str) -> SteeringNote:
        handle = self.client.get_workflow_handle(self.workflow_id, run_id=preview.run.run_id)
        request = self._request(by).model_copy(update={"step": preview.target.title})
        sending = handle.execute_update(STEER, request, id=self.key, result_type=SteeringNote)
        try:
            note: SteeringNote = await answer_of(self.client, self.workflow_id, sending, within=self.within)
        except WorkflowUpdateFailedError as error:
            raise refusal_of(error) from error
        return note

    def _changes(self, shown: Mapping[str, Any], preview: SteerPreview) -> list[str]:
        return [f"{preview.target.title!r} is at work now"]
