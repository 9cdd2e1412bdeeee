"""The service for agents outside as a process: `python -m tests.acceptance.outside_service ADDRESS FOLDER PORT`.

Its agents' tokens are in the environment, as JSON. It says `ready` when it answers, and answers until it is killed.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from temporalio.client import Client

from baton.outside.client_external import OutsideAgents
from baton.plugin import BatonPlugin
from tests.acceptance.handoff_errands import safeguards
from tests.doors.clients.desks import served

TOKENS = "BATON_TEST_TOKENS"
"""Environment variable: the tokens, by the agent's name."""


async def serve(address: str, folder: str, port: int) -> None:
    guards = safeguards(Path(folder))
    client = await Client.connect(address, plugins=[BatonPlugin(safeguards=guards)])
    async with guards.opened() as guarded:
        agents = OutsideAgents(client, guarded.gate)
        async with served(agents, json.loads(os.environ[TOKENS]), port=port):
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
