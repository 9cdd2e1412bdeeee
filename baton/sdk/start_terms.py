"""What a client does with a pipeline that it starts: its task, search attributes and priority, and who it works for."""

from typing import Any
from uuid import uuid4

from temporalio import client
from temporalio.common import Priority

from baton.codec.secrets import mask_values
from baton.core.messages import PipelineInput
from baton.core.people import requester_refusal
from baton.errors import PipelineError
from baton.sdk.search import add_attributes, start_attributes
from baton.wire.text import disarm

_MAX_SUMMARY_LENGTH = 200  # the server accepts 400 bytes


class StartTerms(client.Interceptor):
    """Gives new pipelines the priority of their input; stages and children get it from the server.

    A start whose requester has a secret among the claims is refused: it would be in the history for good.
    """

    def __init__(self, *, searchable: bool) -> None:
        """Set up the interceptor; ``searchable`` gives runs a task, search attributes and a summary as well."""
        self._searchable = searchable

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        """Wrap the client's calls."""
        return _StartTermsClient(next, self._searchable)


class _StartTermsClient(client.OutboundInterceptor):
    def __init__(self, next: client.OutboundInterceptor, searchable: bool) -> None:
        super().__init__(next)
        self._searchable = searchable

    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:
        self._apply_terms(input)
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self, input: client.StartWorkflowUpdateWithStartInput
    ) -> client.WorkflowUpdateHandle[Any]:
        self._apply_terms(input.start_workflow_input)
        return await super().start_update_with_start_workflow(input)

    async def create_schedule(self, input: client.CreateScheduleInput) -> client.ScheduleHandle:
        action = input.schedule.action
        start = action.args[0] if isinstance(action, client.ScheduleActionStartWorkflow) and action.args else None
        if isinstance(action, client.ScheduleActionStartWorkflow) and isinstance(start, PipelineInput):
            _check_requester(start)
            action.priority = _combine(action.priority, start)
            if self._searchable:  # each run is its own task and sets the task's search attribute itself
                attributes = [pair for pair in start_attributes(action.workflow, "") if pair.value]
                action.typed_search_attributes = add_attributes(action.typed_search_attributes, attributes)
                action.static_summary = action.static_summary or _summary(start)
        return await super().create_schedule(input)

    def _apply_terms(self, input: client.StartWorkflowInput | client.UpdateWithStartStartWorkflowInput) -> None:
        """Give the start of a pipeline what its input says, or refuse it."""
        start = input.args[0] if len(input.args) == 1 else None
        if not isinstance(start, PipelineInput):
            return
        _check_requester(start)
        input.priority = _combine(input.priority, start)
        if self._searchable:
            start = start.model_copy(update={"task_id": start.task_id or str(uuid4())})
            input.args = [start]
            attributes = start_attributes(input.workflow, start.task_id)
            input.search_attributes = add_attributes(input.search_attributes, attributes)
            input.static_summary = input.static_summary or _summary(start)


def _summary(start: PipelineInput) -> str:
    return disarm(start.goal[:_MAX_SUMMARY_LENGTH])


def _combine(given: Priority, start: PipelineInput) -> Priority:
    """Return the caller's priority, with the members that it lacks from a pipeline's input."""
    return Priority(
        priority_key=given.priority_key or start.priority,
        fairness_key=given.fairness_key or start.fairness_key,
        fairness_weight=given.fairness_weight,
    )


def _check_requester(start: PipelineInput) -> None:
    """Refuse a requester that is no person, or has a secret."""
    if start.requester is None:
        return
    if refusal := requester_refusal(start.requester.id):
        raise PipelineError(refusal)
    given = start.requester.to_json_object()
    if mask_values(given) != given:
        raise PipelineError(
            "a claim of the run's requester looks like a secret, and claims are in the history and in every handoff: "
            "leave it out; a stage that needs a token fetches it (docs/security.md)"
        )
