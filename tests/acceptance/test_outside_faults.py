"""Agents outside whose service is killed in the midst of a call: they call again, and nothing is done twice."""

import asyncio
import json
import os
import random
from asyncio.subprocess import Process
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from temporalio.client import Client

from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.ledger.chain import Verdict
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.acceptance.handoff_errands import safeguards, trace_of
from tests.acceptance.outside_service import TOKENS
from tests.exchange.exchange_pipelines import HandsOutside
from tests.support import start
from tests.support.processes import working

REVISION = "2026-07-28"
HOLDERS = ("reviewer/ann", "reviewer/bob", "reviewer/eve")
AGENTS = {holder: f"{holder}-token-0123456789" for holder in HOLDERS}
PIPELINES = 8
_LIMIT = timedelta(minutes=6)  # a busy machine takes minutes for so many restarts


def service(server: DevServer, folder: Path, port: int) -> AbstractAsyncContextManager[Process]:
    """Run the service for the block, and kill it at the end."""
    command = ("-m", "tests.acceptance.outside_service", server.address, str(folder), str(port))
    environment = {**os.environ, TOKENS: json.dumps(AGENTS)}
    return working(*command, once="ready", environment=environment)


async def call(url: str, holder: str, tool: str, **arguments: Any) -> Any:
    """Repeat a call until it is answered; an answer that the pipeline did not answer is none."""
    meta = {"io.modelcontextprotocol/protocolVersion": REVISION, "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = {
        **{"authorization": f"Bearer {AGENTS[holder]}", "accept": "application/json, text/event-stream"},
        **{"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": tool},
    }
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        while True:
            with suppress(httpx.HTTPError, ValueError, KeyError):  # it was killed before, or in the midst of its answer
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                result = (await http.post(f"{url}/mcp", json=body)).json()["result"]
                text = result["content"][0]["text"] if result["content"] else ""
                if not result.get("isError"):
                    return result["structuredContent"]
                if "did not answer" not in text and "no worker answers" not in text:
                    return text
            await asyncio.sleep(0.05)


async def work(url: str, holder: str, done: dict[str, list[str]], told: asyncio.Event) -> None:
    """Accept and return pending handoffs forever; the only allowed rejection is that another agent was faster."""
    while True:
        rows = (await call(url, holder, "list_mine"))["result"]
        random.shuffle(rows)
        for row in rows:
            name = row["handoff_id"]
            if isinstance(answer := await call(url, holder, "claim", handoff_id=name), str):
                assert any(text in answer for text in ("has claimed", "is done", "waits for", "has ended")), answer
                continue
            answer = await call(url, holder, "accept", handoff_id=name)
            assert not isinstance(answer, str), answer
            assert answer["accepted"] is True, answer
            patch = {"decision_log": [f"{holder} was here"]}
            answer = await call(url, holder, "propose_patch", handoff_id=name, patch=patch)
            assert not isinstance(answer, str), answer
            assert answer["done"] is True, answer
            done.setdefault(row["workflow"], []).append(holder)
            if len(done) == PIPELINES:
                told.set()
        await asyncio.sleep(0.01)


async def test_the_service_is_killed_repeatedly(server: DevServer, tmp_path: Path, port: int) -> None:
    """Each handoff is accepted once on record, and the work of the accepted agent counts."""
    guards = safeguards(tmp_path)
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=guards)])
    done: dict[str, list[str]] = {}
    told = asyncio.Event()
    async with pipeline_worker(client, [HandsOutside], EXCHANGE_ACTIVITIES) as worker:
        handles = [await start(worker, HandsOutside.run, seconds=900, limit=_LIMIT) for _ in range(PIPELINES)]
        async with asyncio.TaskGroup() as agents:
            works = [agents.create_task(work(f"http://127.0.0.1:{port}", holder, done, told)) for holder in HOLDERS]
            results = asyncio.gather(*(handle.result() for handle in handles))
            lifetime = 1.0
            while not results.done():
                async with service(server, tmp_path, port):
                    await asyncio.wait([results], timeout=random.uniform(0.05, lifetime))
                lifetime *= 1.3  # on a slow machine, too, it soon lives long enough
            async with service(server, tmp_path, port):
                await told.wait()  # who lost the last answers is told them again
            for worker_task in works:
                worker_task.cancel()

        for handle, result in zip(handles, await results, strict=True):
            assert done[handle.id] == [result.output["holder"]]
            assert result.baton["decision_log"] == [f"{result.output['holder']} was here"]
            task = await trace_of(tmp_path, result.task_id)
            assert task.report.verdict is not Verdict.INVALID
            assert [record.fields.status for record in task.records] == ["ACCEPTED"]
            await assert_replays(handle, [HandsOutside], plugin=BatonPlugin(safeguards=guards))
