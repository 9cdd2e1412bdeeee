"""What A2A adds to a run: processor time of the service, and how late its caller learns what happens."""

import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import new_text_message
from a2a.types import a2a_pb2 as pb

from baton import PipelineInput
from baton.client import follow
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Crew, Rig, process_seconds, production_environment, stop

_TOKEN = "a-token-of-16-characters-or-more"


async def a2a_cost(rig: Rig, effort: Effort) -> Findings:
    """Measure the service's processor time a run, less that of a program that starts and follows the run itself."""
    crew = await rig.crew("baton")
    runs = 5 if effort.quick else 40
    added, late = list[float](), list[float]()
    async with _served(crew, rig) as (client, pid):
        for _ in range(3):
            await _call(client)
        for _ in range(effort.rounds):
            before = process_seconds(pid)
            for _ in range(runs):
                late += await _call(client)
            own = time.process_time()
            for _ in range(runs):
                await _follow(crew)
            direct = time.process_time() - own
            added.append((process_seconds(pid) - before - direct) / runs * 1_000)
    findings = Findings("A run over A2A", ("", "ms"))
    findings.values["a2a_added_ms"] = max(0.0, statistics.median(added))
    findings.values["a2a_event_ms"] = statistics.quantiles(late, n=20)[-1]
    findings.rows.append(("processor time that the service adds", f"{findings.values['a2a_added_ms']:.1f}"))
    findings.rows.append(
        ("an event at the caller after it is in the history (p95)", f"{findings.values['a2a_event_ms']:.0f}")
    )
    return findings


@contextlib.asynccontextmanager
async def _served(crew: Crew, rig: Rig) -> AsyncIterator[tuple[Client, int]]:
    """Serve the pipeline by the command, and yield a client and the service's process."""
    tokens = rig.folder / "tokens.toml"
    tokens.write_text(f'ann = "{_TOKEN}"\n', encoding="utf-8")
    arguments = ["serve", "Delivery", "--json", "--port", "0", "--tokens", str(tokens), "--task-queue", crew.queue]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "baton", *arguments, "--address", crew.server.address),
        cwd=rig.folder,
        env=production_environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        url = json.loads(await process.stdout.readline())["url"]
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {_TOKEN}"}, timeout=60) as http:
            card = await A2ACardResolver(http, url).get_agent_card()
            yield ClientFactory(ClientConfig(httpx_client=http)).create(card), process.pid
    finally:
        await stop(process)


async def _call(client: Client) -> list[float]:
    """Run the pipeline over A2A; return how late each event came, in milliseconds."""
    late = []
    request = pb.SendMessageRequest(message=new_text_message("Add login", role=pb.ROLE_USER))
    async for event in client.send_message(request):
        if event.HasField("status_update") and event.status_update.status.HasField("timestamp"):
            at = event.status_update.status.timestamp.ToDatetime(UTC)
            late.append((datetime.now(UTC) - at).total_seconds() * 1_000)
    return late


async def _follow(crew: Crew) -> None:
    """Start the pipeline, and follow it to its end."""
    handle = await crew.start("Delivery", PipelineInput(goal="Add login", task_id=str(uuid4())))
    async for _ in follow(crew.client, handle.id):
        pass
