"""Calling the tools of an MCP server as a model does, and what is handed over and returned by them."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from mcp import Client as McpClient
from mcp.types import CallToolResult, TextContent
from temporalio.worker import Worker

from baton import PipelineStatus
from baton.contract.records import Confidence, Fact, HandoffContract, SourceProvenance
from baton.report.records import Readiness, ReportContext, ReportDecision
from tests.exchange.exchange_pipelines import HandsOutside
from tests.report.report_material import report
from tests.support import Handle, start, until

REPORT = report(
    sender="reviewer",
    receiver="legal",
    task="Review the contract",
    readiness=Readiness.YES,
    context=ReportContext(decisions=[ReportDecision(decision="Clause 4.2 is fine", rationale="it is usual")]),
    blockers=["Who signs?"],
)
"""What a reviewer returns."""


class RefusedError(Exception):
    """The answer of a tool was an error; its text is what the model reads."""


async def call(client: McpClient, tool: str, **arguments: Any) -> Any:
    """Call a tool as a model does, and return what it answers: structured, or as text."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    text = "".join(one.text for one in result.content if isinstance(one, TextContent))
    if result.is_error:
        raise RefusedError(text)
    structured = result.structured_content
    return text if structured is None else structured.get("result", structured)


async def waiting(exchange: Worker, **params: Any) -> Handle:
    """Start a pipeline and wait until its handoff waits outside."""
    handle = await start(exchange, HandsOutside.run, **params)
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    return handle


async def listed(client: McpClient, handle: Handle) -> str:
    """Return the id of the pipeline's handoff as the server lists it; visibility lags a little."""
    while True:
        for row in await mine(client):
            if row["workflow"] == handle.id:
                return str(row["handoff_id"])
        await asyncio.sleep(0.02)


async def mine(client: McpClient) -> list[Any]:
    """Return what is listed; nothing while a worker that has just begun does not answer within its two seconds."""
    try:
        rows: list[Any] = await call(client, "list_mine")
    except RefusedError as error:
        if "no worker answers for" not in str(error):
            raise
        return []
    return rows


def contract(handoff_id: str = "review-1", **members: Any) -> dict[str, Any]:
    now = members.get("created_at", datetime.now(UTC))
    source = SourceProvenance(source="crm.lookup", timestamp=now, method="api_call")
    made = {
        "handoff_id": handoff_id,
        "receiving_agent": "reviewer",
        "task": "Review clause 4.2 only",
        "facts": [Fact(claim="They signed the DPA.", source=source, confidence=Confidence.HIGH, event_id="evt-1")],
        "excluded_context": ["type:brainstorm"],
        "allowed_tools": ["policy.search"],
        "forbidden_tools": ["email.send"],
        "created_at": now,
        "trace_id": "t-1",
    }
    return HandoffContract(**{**made, **members}).to_json_object()
