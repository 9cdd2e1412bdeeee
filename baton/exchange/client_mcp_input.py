"""What a coding agent writes on an MCP server's standard input, with whole characters only.

A model may leave off in the middle of a character, and JSON can spell the half of one. The framework takes no line
with one, and leaves its request without an answer: the agent would wait for as long as it has patience. Nor does it
answer a line that is no JSON, or JSON that is not a message, as JSON-RPC has it: so this does.
"""

import json
import re
import sys
from collections.abc import Awaitable, Callable

from anyio import AsyncFile
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic_core import ValidationError, from_json

from baton.wire.json_values import repaired

_SPELLED = re.compile(r"\\u[dD][89a-fA-F]")


class Lines(AsyncFile[str]):
    """Standard input by lines, as `mcp.server.stdio.stdio_server` reads it."""

    def __init__(self) -> None:
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]  # it is no other stream
        super().__init__(sys.stdin)
        self.answer: Callable[[SessionMessage], Awaitable[None]] | None = None
        """Sends what a line is answered that is not a message; none of them is answered without it."""

    async def readline(self) -> str:
        """Return the next line; an empty one at the end."""
        line = whole(await super().readline())
        if self.answer is not None and line.strip() and (refusal := _refusal(line)) is not None:
            await self.answer(SessionMessage(refusal))
        return line


def whole(line: str) -> str:
    """Return a line of JSON in which halves of characters are replaced; one that is no JSON stays as it is."""
    if not _SPELLED.search(line):
        return line
    try:
        return json.dumps(repaired(json.loads(line)))
    except (ValueError, RecursionError):
        return line


def _refusal(line: str) -> JSONRPCError | None:
    """Return what a line is answered that the framework would leave without an answer; None for every other one."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)  # as the framework reads it
        if isinstance(message, JSONRPCNotification) and "id" in from_json(line):  # it takes no other for a request's
            return _error(INVALID_REQUEST, "a request's id is a whole number or a text; send one of these")
    except ValidationError:
        try:
            found = from_json(line)
        except ValueError:
            return _error(PARSE_ERROR, "this line is no JSON; write each message as JSON on one line")
        members = found if isinstance(found, dict) else {}
        if "method" not in members and members.keys() & {"result", "error"}:  # nobody answers an answer
            return None
        told = 'this is no JSON-RPC message; write {"jsonrpc": "2.0", "id": …, "method": …, "params": {…}}, one a line'
        return _error(INVALID_REQUEST, told, members.get("id"))
    return None


def _error(code: int, told: str, request: object = None) -> JSONRPCError:
    """Return an error in answer to a request, by its id where it has one."""
    known = request if isinstance(request, int | str) and not isinstance(request, bool) else None
    return JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=told))
