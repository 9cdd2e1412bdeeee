"""Holds a pipeline's code back in the lab: of all that it could send, only its stages' messages leave it.

What a stage does there is held back by its worker (`baton.pipelines.activity_lab`).
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from temporalio import worker, workflow
from temporalio.api.common.v1 import Payload

from baton.compression.rules import COMPRESS
from baton.core.lab import LAB, LAB_RUN, LAB_STAGE, LabTerms
from baton.core.messages import PipelineInput, StageInput
from baton.errors import LabRefusedError
from baton.handoff.records import Handoff
from baton.ledger.records import RECORD
from baton.wire.names import ROLLED_BACK, WAIT_FOR_WORKER

LAB_MARK = {LAB: Payload(data=b"1")}
"""The header of what runs in the lab: its runs and their activities."""
OWN_IN_LAB = frozenset({COMPRESS, RECORD, ROLLED_BACK, WAIT_FOR_WORKER})
"""The activities with which Baton serves a run's stages, also in the lab."""


class LabOutbound(worker.WorkflowOutboundInterceptor):
    """Marks what the lab starts; in a pipeline that it started, lets stages out, and refuses every other command."""

    _terms: LabTerms | None = None

    def begin(self, args: Sequence[Any]) -> None:
        """Learn how the run's stages run: the messages of others stay in."""
        start = args[0] if args else None
        self._terms = start.lab.terms if isinstance(start, PipelineInput) and start.lab else None

    def start_activity(self, input: worker.StartActivityInput) -> workflow.ActivityHandle[Any]:
        """Start a stage, or what Baton does for it."""
        if in_lab() or _is_lab():
            is_stage = input.activity.startswith(LAB_STAGE) and self._is_stage(input.args)
            if in_lab() and not (input.activity in OWN_IN_LAB or is_stage):
                _refuse(f"the activity {input.activity!r}, which is not a stage of the lab")
            input.headers = {**input.headers, **LAB_MARK}
        return super().start_activity(input)

    def start_local_activity(self, input: worker.StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        """Start a local activity."""
        return _refuse(f"the local activity {input.activity!r}") if in_lab() else super().start_local_activity(input)

    async def start_child_workflow(
        self, input: worker.StartChildWorkflowInput
    ) -> workflow.ChildWorkflowHandle[Any, Any]:
        """Start a child; the lab itself starts the pipelines of its cases."""
        if in_lab():
            _refuse(f"the child {input.workflow!r}: what it does is a run of its own; make a cohort of such runs")
        if _is_lab():
            input.headers = {**input.headers, **LAB_MARK}
        return await super().start_child_workflow(input)

    async def signal_child_workflow(self, input: worker.SignalChildWorkflowInput) -> None:
        """Send a signal to a child."""
        return _refuse(f"the signal {input.signal!r}") if in_lab() else await super().signal_child_workflow(input)

    async def signal_external_workflow(self, input: worker.SignalExternalWorkflowInput) -> None:
        """Send a signal to another workflow."""
        return _refuse(f"the signal {input.signal!r}") if in_lab() else await super().signal_external_workflow(input)

    async def start_nexus_operation(self, input: Any) -> Any:
        """Start an operation of another service."""
        return _refuse("an operation of another service") if in_lab() else await super().start_nexus_operation(input)

    async def start_system_nexus_operation(self, input: Any) -> Any:
        """Start an operation of the server."""
        if in_lab():
            _refuse("an operation of the server")
        return await super().start_system_nexus_operation(input)

    def continue_as_new(self, input: worker.ContinueAsNewInput) -> NoReturn:
        """Continue as new."""
        if in_lab():
            _refuse("to continue as new")
        super().continue_as_new(input)

    def _is_stage(self, args: Sequence[Any]) -> bool:
        """Return whether an activity's arguments are the message to a stage with the lab's orders for the run."""
        message = args[0] if len(args) == 1 else None
        if isinstance(message, Handoff):
            message = message.stage_input()
        if self._terms is None or not isinstance(message, StageInput) or message.lab is None:
            return False
        left = {"case_micro_usd": message.lab.case_micro_usd}  # each stage is told what the case has left
        return message.lab == self._terms.model_copy(update=left)


def in_lab() -> bool:
    """Return whether the running workflow is one that the lab started."""
    return LAB in workflow.info().headers


def _is_lab() -> bool:
    return workflow.info().workflow_type == LAB_RUN


def _refuse(what: str) -> NoReturn:
    raise LabRefusedError(f"the pipeline's code wants {what}, and the lab does not let it out")
