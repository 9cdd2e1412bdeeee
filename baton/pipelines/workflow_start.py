"""What a run begins with: its first baton, its relay, and what is wrong with an input that it cannot use."""

import hashlib
from uuid import UUID

from pydantic import ValidationError
from temporalio import workflow

from baton.core.baton import Baton
from baton.core.messages import PipelineInput
from baton.errors import PipelineError
from baton.handoff.relay import HandoffTerms, Relay
from baton.handoff.workflow_relay import relay_for
from baton.wire.names import MEMO_FIELDS
from baton.wire.text import faults, mismatch, recorded_mismatch

_UNUSABLE = "(unusable input)"


class RunInput:
    """The input of a run.

    Attributes:
        start: The workflow's argument.
    """

    def __init__(self, start: PipelineInput | bytes | None) -> None:
        self._fault: Exception | None = None
        if start is None or isinstance(start, bytes):  # which the SDK takes for any type
            found = "null" if start is None else "bytes (encoding binary/plain)"
            self._fault = PipelineError(
                f'the pipeline was started with {found}; expected JSON: an object with a goal, such as {{"goal": "…"}}'
            )
            start = PipelineInput(goal=_UNUSABLE)
        self.start = start

    def task_id(self) -> str:
        """Return the task: the input's, or one of the run's own, which stays the same when the run is rolled back."""
        if self.start.task_id:
            return self.start.task_id
        info = workflow.info()
        named = f"baton task {info.namespace} {info.workflow_id} {info.original_execution_run_id}"
        return str(UUID(bytes=hashlib.sha256(named.encode()).digest()[:16], version=4))

    def baton(self, kind: type[Baton]) -> Baton:
        """Return the first baton."""
        try:
            return self.start.first_baton(kind)
        except ValidationError as error:
            if self.start.continued:
                recorded = recorded_mismatch(error, {**self.start.baton, "goal": self.start.goal})
                self._fault = changed_type(kind, recorded)
                return kind(goal=_UNUSABLE)
            why = mismatch(error)
            if any(fault["type"] == "extra_forbidden" for fault in faults(error)):
                why += f". Its batons are of type {kind.__name__}; fields of your own need `baton_type=…`"
            self._fault = PipelineError(f"the pipeline cannot start from this input: {why}")
            return kind(goal=_UNUSABLE)

    def relay(self, task_id: str, terms: HandoffTerms) -> Relay | None:
        """Return what makes the handoffs, if this worker seals what leaves it and the input can be used."""
        if self._fault is not None:
            return None
        try:
            return relay_for(self.start, task_id, terms)
        except PipelineError as error:
            self._fault = error
            return None

    def check(self) -> None:
        """Raise the fault of an unusable input."""
        if self._fault is not None:
            raise self._fault


def changed_type(kind: type[Baton], why: str) -> workflow.NondeterminismError:
    """Return the error that suspends a continued run until its workers have a fitting type of baton."""
    return workflow.NondeterminismError(
        f"the baton of the run that this one continues does not fit {kind.__name__}: {why}. The run resumes once "
        "workers have code that fits"
    )


def publish_fields(initial: Baton) -> None:
    """Leave in the history what a reader cannot know without the baton's type."""
    members = initial.to_json_object()
    further = {name: members[name] for name in members if name not in Baton.FIELDS}
    if further:
        workflow.upsert_memo({MEMO_FIELDS: further})
