"""`baton mcp` as a coding agent starts it: a process that speaks on its standard input and output."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from temporalio.worker import Worker

from baton import __version__
from baton.exchange.client_mcp import HandoffTools, handoff_server
from baton.report.rendering import render_report
from tests.agents.coding_agents.calling import REPORT, call, listed, waiting

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
TELLING = """\
import os, sys
open("pid", "w").write(str(os.getpid()))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Becomes `baton mcp`, after it has written down which process that is."""


async def ended(pid: int, number: int) -> None:
    """Send a process a signal, and wait until it has ended."""
    process, gone = os.pidfd_open(pid), asyncio.Event()
    asyncio.get_running_loop().add_reader(process, gone.set)
    os.kill(pid, number)
    await gone.wait()
    asyncio.get_running_loop().remove_reader(process)
    os.close(process)


async def serving(command: StdioServerParameters) -> asyncio.subprocess.Process:
    """Start the server, to write to its input and read its output as they are."""
    return await asyncio.create_subprocess_exec(
        command.command,
        *command.args,
        env=command.env,
        cwd=command.cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


class TestProcess:
    async def test_it_serves_over_standard_input_and_output(
        self, exchange: Worker, server_command: StdioServerParameters
    ) -> None:
        """The agent's name comes from the command line and the keys from the environment; every step works."""
        handle = await waiting(exchange)
        async with McpClient(server_command) as client:
            assert client.server_info is not None
            assert client.server_info.version == __version__
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "### Summary" in repr(tools["propose_report"].input_schema)
            handoff_id = await listed(client, handle)
            assert (await call(client, "accept", handoff_id=handoff_id))["accepted"]
            assert "Review the contract" in await call(client, "read_contract", handoff_id=handoff_id)
            await call(client, "propose_report", handoff_id=handoff_id, report=render_report(REPORT))

        result = await handle.result()
        assert result.output["holder"] == "editor"
        assert result.baton["decision_log"] == ["Clause 4.2 is fine — because it is usual"]

    async def test_half_a_character_in_a_request_is_replaced(
        self, exchange: Worker, server_command: StdioServerParameters
    ) -> None:
        """The model left off in the middle of one; the request had no answer at all."""
        handle = await waiting(exchange)
        half = chr(0xD83D)
        process = await serving(server_command)
        assert process.stdin is not None
        assert process.stdout is not None
        wrong = {"name": "give_back", "arguments": {"handoff_id": f"no such {half}"}}
        sent: list[dict[str, Any]] = [
            {"method": "initialize", "id": 0, "params": HELLO},
            {"method": "notifications/initialized"},
            {"method": "tools/call", "id": 1, "params": wrong},
        ]
        for one in sent:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n")
        answers = [json.loads(await process.stdout.readline()) for _ in range(2)]
        process.stdin.close()

        assert await process.wait() == 0
        assert "no handoff 'no such \ufffd' waits for you" in answers[1]["result"]["content"][0]["text"]
        await handle.terminate()

    async def test_a_line_that_is_no_json_is_answered(self, server_command: StdioServerParameters) -> None:
        """With JSON-RPC's parse error; what comes behind it is served as ever."""
        process = await serving(server_command)
        hello = json.dumps({"jsonrpc": "2.0", "method": "initialize", "id": 0, "params": HELLO})
        out, _ = await process.communicate(f"\n{{not JSON\n{hello}\n".encode())
        wrong, greeting = map(json.loads, out.splitlines())

        assert (wrong["id"], wrong["error"]["code"]) == (None, -32700)
        assert "no JSON" in wrong["error"]["message"]
        assert greeting["id"] == 0

    @pytest.mark.parametrize(
        ("line", "id"),
        [
            pytest.param('{"method": "tools/list", "id": 7}', 7, id="without a version"),
            pytest.param('{"jsonrpc": "2.0", "id": "a", "method": 1}', "a", id="a method that is no name"),
            pytest.param('[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', None, id="several in a list"),
            pytest.param("7", None, id="a number"),
            pytest.param('{"jsonrpc": "2.0", "id": 0.25, "method": "tools/list"}', None, id="an id that is a fraction"),
            pytest.param('{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', None, id="an id that is null"),
        ],
    )
    async def test_json_that_is_no_message_is_answered(
        self, server_command: StdioServerParameters, line: str, id: int | str | None
    ) -> None:
        """With JSON-RPC's invalid request, under its id; an answer that nobody can read gets none."""
        process = await serving(server_command)
        hello = json.dumps({"jsonrpc": "2.0", "method": "initialize", "id": 0, "params": HELLO})
        out, _ = await process.communicate(f'{line}\n{{"id": 1, "result": {{}}}}\n{hello}\n'.encode())
        wrong, greeting = map(json.loads, out.splitlines())

        assert (wrong["id"], wrong["error"]["code"]) == (id, -32600)
        assert greeting["id"] == 0

    async def test_it_gives_back_when_its_input_ends(
        self, exchange: Worker, ann: HandoffTools, server_command: StdioServerParameters
    ) -> None:
        """An editor that is closed does not keep a handoff."""
        handle = await waiting(exchange)
        async with McpClient(server_command) as client:
            handoff_id = await listed(client, handle)
            await call(client, "accept", handoff_id=handoff_id)
        async with McpClient(handoff_server(ann)) as client:
            await listed(client, handle)
            assert (await call(client, "claim", handoff_id=handoff_id))["reserved_for"] == "ann"
        await handle.terminate()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_it_gives_back_before_a_signal_ends_it(
        self, exchange: Worker, ann: HandoffTools, server_command: StdioServerParameters, folder: Path, number: int
    ) -> None:
        """An editor, or a container, that stops it with its input still open does not keep a handoff."""
        handle = await waiting(exchange)
        told = server_command.model_copy(update={"args": ["-c", TELLING, *server_command.args]})
        async with McpClient(told) as client, McpClient(handoff_server(ann)) as other:
            handoff_id = await listed(client, handle)
            await call(client, "accept", handoff_id=handoff_id)
            await ended(int((folder / "pid").read_text()), number)
            await listed(other, handle)
            assert (await call(other, "claim", handoff_id=handoff_id))["reserved_for"] == "ann"
        await handle.terminate()
