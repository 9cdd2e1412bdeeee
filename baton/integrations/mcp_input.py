"""What a coding agent writes on an MCP server's standard input, with whole characters only.

A model may leave off in the middle of a character, and JSON can spell the half of one. The framework takes no line
with one, and leaves its request without an answer: the agent would wait for as long as it has patience. Nor does it
answer a line that is no JSON, as JSON-RPC has it: so this does.
"""

import json
import re
import sys
from collections.abc import Awaitable, Callable

from anyio import AsyncFile
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError
from pydantic_core import from_json

from baton.protocol.json_values import mended

_SPELLED = re.compile(r"\\u[dD][89a-fA-F]")


class Lines(AsyncFile[str]):
    """Standard input by lines, as `mcp.server.stdio.stdio_server` reads it."""

    def __init__(self) -> None:
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]  # it is no other stream
        super().__init__(sys.stdin)
        self.answer: Callable[[SessionMessage], Awaitable[None]] | None = None
        """Sends what a line is answered that is no JSON; none of them is answered without it."""

    async def readline(self) -> str:
        """Return the next line; an empty one at the end."""
        line = whole(await super().readline())
        if self.answer is not None and line.strip() and not _is_json(line):
            told = ErrorData(code=PARSE_ERROR, message="this line is no JSON; write each message as JSON on one line")
            await self.answer(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=told)))
        return line


def whole(line: str) -> str:
    r"""Return a line of JSON in which halves of characters are replaced; one that is no JSON stays as it is.

    Example:
        >>> print(whole(r'{"patch": "done \ud83d", "face": "\ud83d\ude00"}'))
        {"patch": "done \ufffd", "face": "\ud83d\ude00"}
        >>> print(whole(r"no JSON \ud83d"))
        no JSON \ud83d
    """
    if not _SPELLED.search(line):
        return line
    try:
        return json.dumps(mended(json.loads(line)))
    except (ValueError, RecursionError):
        return line


def _is_json(line: str) -> bool:
    """Return whether a line is JSON, as the framework reads it."""
    try:
        from_json(line)
    except ValueError:
        return False
    return True
