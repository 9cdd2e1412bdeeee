"""MCP's tasks, for clients that do not wait for a run. A task's id is its run's, and the history is the store."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from baton.doors.client_mcp_forms import elicitation
from baton.doors.client_mcp_runs import TASKS, RunTools, declares_tasks, result_of
from baton.doors.client_runs import cancel, may_answer, questions_by_key, read
from baton.errors import BatonError
from baton.lazy import needs_extra
from baton.runs.client_record import RunRecord, RunStatus
from baton.runs.client_standing import standing

with needs_extra("mcp", __name__):
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.extension import Extension, MethodBinding
    from mcp.server.mcpserver import require_client_extension
    from mcp.shared.exceptions import MCPError
    from mcp.types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, ElicitResult, RequestParams
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

POLL_MS = 1_000
"""How often a client should ask for a task, in milliseconds."""
_MODERN = frozenset(MODERN_PROTOCOL_VERSIONS)


class _Task(RequestParams):
    task_id: str = Field(alias="taskId")


class _Update(_Task):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class Tasks(Extension):
    """The extension `io.modelcontextprotocol/tasks` (SEP-2663) for the pipelines' tools.

    Args:
        runs: The tools.
    """

    identifier = TASKS

    def __init__(self, runs: RunTools) -> None:
        self._runs = runs

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods of a task."""
        return (
            MethodBinding("tasks/get", _Task, self._get, _MODERN),
            MethodBinding("tasks/update", _Update, self._update, _MODERN),
            MethodBinding("tasks/cancel", _Task, self._cancel, _MODERN),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Return a task for a run that has begun, to a client that takes tasks."""
        result = await call_next(ctx)
        takes_tasks = declares_tasks(ctx.session.client_capabilities, ctx.protocol_version)
        begun = result.structured_content if isinstance(result, CallToolResult) and not result.is_error else None
        if not takes_tasks or begun is None or params.name not in self._runs.names:
            return result
        return {"resultType": "task", **self._fields(await self._read(str(begun["run"])))}

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: _Task) -> HandlerResult:
        run = await self._find(ctx, params)
        fields = self._fields(run)
        if fields["status"] == "completed":
            fields["result"] = as_wire(result_of(run))
        return fields

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: _Update) -> HandlerResult:
        run = await self._find(ctx, params)
        for key, response in params.input_responses.items():
            given = ElicitResult.model_validate(response)
            if given.action == "accept":
                try:
                    await self._runs.answer(run, key, given)
                except BatonError as error:
                    raise MCPError(INVALID_PARAMS, str(error)) from error
        return {}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: _Task) -> HandlerResult:
        run = await self._find(ctx, params)
        if run.status is RunStatus.RUNNING:
            await cancel(self._runs.parts, self._runs.caller(), run.workflow_id)
        return {}

    async def _find(self, ctx: ServerRequestContext[Any, Any], params: _Task) -> RunRecord:
        require_client_extension(ctx, TASKS)
        return await self._read(params.task_id)

    async def _read(self, task_id: str) -> RunRecord:
        try:
            return await read(self._runs.parts, self._runs.caller(), task_id)
        except BatonError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from error

    def _fields(self, run: RunRecord) -> dict[str, Any]:
        """Return a run as a task."""
        caller = self._runs.caller()
        asked = {key: question for key, question in questions_by_key(run).items() if may_answer(question, caller)}
        status = "input_required" if asked else "working"
        if run.status is not RunStatus.RUNNING:
            status = "cancelled" if run.status.is_stopped else "completed"
        requests = {key: as_wire(elicitation(question)) for key, question in asked.items()}
        return {
            "taskId": run.workflow_id,
            "status": status,
            "statusMessage": standing(run).sentence,
            "createdAt": _iso(run.first_began or run.began or run.read_at),
            "lastUpdatedAt": _iso(run.read_at),
            "ttlMs": None,
            "pollIntervalMs": POLL_MS,
            **({"inputRequests": requests} if status == "input_required" else {}),
        }


def as_wire(model: BaseModel) -> dict[str, Any]:
    """Return a model of the SDK as JSON."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
