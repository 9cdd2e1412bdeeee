"""The codec server with Temporal's own command line."""

import json
import uuid
from dataclasses import replace

from temporalio.client import Client
from temporalio.converter import DataConverter

from baton.codec.encryption import CompressionCodec
from baton.codec.server import serve_codec
from baton.devserver import DevServer
from baton.devserver.processes import find_temporal
from tests.support.processes import ran

GOAL = "Add OAuth2 login. " * 60
TOKEN = "open sesame"


async def _cli(*arguments: str) -> str:
    code, output, beside = await ran(str(find_temporal()), *arguments)
    assert code == 0, output + beside
    return output


class TestCodecEndpoint:
    async def test_operators_read_and_write_what_is_compressed(self, server: DevServer) -> None:
        """The history shows the goal only with the codec server, which also encodes a signal."""
        client = await Client.connect(
            server.address, data_converter=replace(DataConverter.default, payload_codec=CompressionCodec())
        )
        workflow_id = str(uuid.uuid4())
        handle = await client.start_workflow("Delivery", {"goal": GOAL}, id=workflow_id, task_queue=workflow_id)
        there = ("--address", server.address, "--workflow-id", workflow_id)
        async with serve_codec([CompressionCodec()], origins=["http://localhost:8233"], token=TOKEN) as url:
            through = ("--codec-endpoint", url, "--codec-auth", f"Bearer {TOKEN}")
            assert GOAL.strip() not in await _cli("workflow", "show", *there, "--detailed")
            output = await _cli("workflow", "show", *there, "--detailed", *through)
            typed = json.dumps({"note": GOAL})
            await _cli("workflow", "signal", *there, "--name", "note", "--input", typed, *through)
        assert GOAL.strip() in output
        events = (await handle.fetch_history()).events
        [payload] = events[-1].workflow_execution_signaled_event_attributes.input.payloads
        assert payload.metadata["encoding"] == b"binary/zstd-1"
        assert await client.data_converter.decode([payload]) == [{"note": GOAL}]
