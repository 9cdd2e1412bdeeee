"""The search attributes of a pipeline's start, and the client's interceptor that sets them."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from temporalio import client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from baton.core.messages import PipelineInput
from baton.wire.names import ATTRIBUTE_PIPELINE, ATTRIBUTE_TASK, ATTRIBUTE_UNTIL, NOT_WAITING
from baton.wire.text import disarm

_PIPELINE = SearchAttributeKey.for_keyword(ATTRIBUTE_PIPELINE)
_TASK = SearchAttributeKey.for_keyword(ATTRIBUTE_TASK)
_UNTIL = SearchAttributeKey.for_datetime(ATTRIBUTE_UNTIL)
_MAX_SUMMARY_LENGTH = 200  # the server accepts 400 bytes


def start_attributes(pipeline: str, task_id: str | None) -> list[SearchAttributePair[Any]]:
    """Return the search attributes for the start of a pipeline."""
    return [
        SearchAttributePair(_PIPELINE, pipeline),
        SearchAttributePair(_TASK, task_id or ""),
        SearchAttributePair(_UNTIL, NOT_WAITING),
    ]


class SearchAttributes(client.Interceptor):
    """Sets the task id and search attributes of new pipelines."""

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        """Wrap the client's calls."""
        return _SearchAttributesClient(next)


class _SearchAttributesClient(client.OutboundInterceptor):
    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:
        start = input.args[0] if len(input.args) == 1 else None
        if isinstance(start, PipelineInput):
            start = start.model_copy(update={"task_id": start.task_id or str(uuid4())})
            input.args = [start]
            input.search_attributes = _add_attributes(
                input.search_attributes, start_attributes(input.workflow, start.task_id)
            )
            input.static_summary = input.static_summary or disarm(start.goal[:_MAX_SUMMARY_LENGTH])
        return await super().start_workflow(input)

    async def create_schedule(self, input: client.CreateScheduleInput) -> client.ScheduleHandle:
        action = input.schedule.action
        start = action.args[0] if isinstance(action, client.ScheduleActionStartWorkflow) and action.args else None
        if isinstance(action, client.ScheduleActionStartWorkflow) and isinstance(start, PipelineInput):
            # Each run is its own task and sets the task's search attribute itself.
            attributes = [pair for pair in start_attributes(action.workflow, "") if pair.value]
            action.typed_search_attributes = _add_attributes(action.typed_search_attributes, attributes)
            action.static_summary = action.static_summary or disarm(start.goal[:_MAX_SUMMARY_LENGTH])
        return await super().create_schedule(input)


def _add_attributes(existing: object, added: Sequence[SearchAttributePair[Any]]) -> TypedSearchAttributes:
    """Return the caller's search attributes with Baton's added."""
    if existing is not None and not isinstance(existing, TypedSearchAttributes):
        raise TypeError("search_attributes must be TypedSearchAttributes for a pipeline; found the untyped form")
    names = {pair.key.name for pair in added}
    return TypedSearchAttributes([*(pair for pair in existing or () if pair.key.name not in names), *added])
