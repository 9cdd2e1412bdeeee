"""`baton serve`, as a process: agents outside reach it with their tokens."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import httpx
from mcp.types import CallToolResult

from baton.devserver import DevServer
from tests.doors.clients.desks import desk_at

TOKEN = "0123456789abcdef-reviewer"


async def test_the_service_is_a_command(own_server: DevServer, tmp_path: Path) -> None:
    """It serves agents with a token, refuses others, and stops on SIGTERM."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'reviewer = "{TOKEN}"\n', encoding="utf-8")
    keys = tmp_path / "keys.toml"
    make = await asyncio.create_subprocess_exec(sys.executable, "-m", "baton", "keys", "new", str(keys))
    assert await make.wait() == 0
    environment = {
        **os.environ,
        "TEMPORAL_ADDRESS": own_server.address,
        "BATON_KEYS": str(keys),
        "BATON_LEDGER": str(tmp_path / "ledger.db"),
    }
    command = (sys.executable, "-m", "baton", "serve", "--agents", "--tokens", str(tokens), "--port", "0")
    serving = await asyncio.create_subprocess_exec(*command, stderr=PIPE, stdout=PIPE, env=environment, cwd=tmp_path)
    try:
        assert serving.stderr is not None
        while b"serving agents outside at" not in (line := await serving.stderr.readline()):
            assert line, "it ended"
        url = line.decode().split()[-1]
        async with desk_at(url, TOKEN) as client:
            listed = await client.call_tool("list_mine", {})
        assert isinstance(listed, CallToolResult)
        assert listed.structured_content == {"result": []}
        async with httpx.AsyncClient() as http:
            stranger = await http.post(f"{url}/mcp", headers={"authorization": "Bearer another-token-of-16"}, json={})
        assert stranger.status_code == 401
    finally:
        serving.terminate()
    assert await serving.wait() == 0
