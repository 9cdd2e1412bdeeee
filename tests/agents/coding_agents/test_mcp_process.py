"""`baton mcp` as a coding agent starts it: a process that speaks on its standard input and output."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from temporalio.worker import Worker

from baton import __version__
from baton.client import HandoffTools, handoff_server
from baton.report.rendering import render_report
from tests.agents.coding_agents.calling import REPORT, call, listed, waiting

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
