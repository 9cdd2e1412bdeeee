"""Agents outside whose service is killed in the midst of a call: they call again, and nothing is done twice."""

import asyncio
import json
import os
import random
import urllib.error
import urllib.request
from asyncio.subprocess import Process
from contextlib import AbstractAsyncContextManager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

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

TOKEN = "reviewer-token-0123456789"
HOLDERS = ("ann", "bob", "eve")
REFUSED, UNAVAILABLE = 409, 503
PIPELINES = 8


def service(server: DevServer, folder: Path, port: int) -> AbstractAsyncContextManager[Process]:
    """Run the service for the block, and kill it at the end."""
    command = ("-m", "tests.acceptance.outside_service", server.address, str(folder), str(port))
    environment = {**os.environ, TOKENS: json.dumps({"reviewer": TOKEN})}
    return working(*command, once="ready", environment=environment)


async def call(url: str, body: Any = None) -> tuple[int, Any]:
    """Repeat a call until it is answered, and return status and JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"authorization": f"Bearer {TOKEN}"})

    def send() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    while True:
        with suppress(OSError, ValueError, HTTPException):  # it was killed before, or in the midst of its answer
            status, answer = await asyncio.to_thread(send)
            if status != UNAVAILABLE:
                return status, answer
        await asyncio.sleep(0.05)


async def work(url: str, holder: str, done: dict[str, list[str]], told: asyncio.Event) -> None:
    """Accept and return pending handoffs forever; the only allowed rejection is that another agent was faster."""
    while True:
        _, rows = await call(f"{url}/handoffs")
        random.shuffle(rows)
        for row in rows:

            async def act(verb: str, row: Any = row, **members: Any) -> tuple[int, Any]:
                at = f"{url}/handoffs/{row['handoff_id']}/{verb}?workflow={row['workflow']}"
                return await call(at, {"holder": holder, **members})

            status, answer = await act("claim")
            if status == REFUSED:
                continue
            assert status == 200, answer
            status, answer = await act("accept")
            assert (status, answer.get("verdict")) == (200, {"valid": True}), answer
            status, answer = await act("patch", patch={"decision_log": [f"{holder} was here"]})
            assert status == 200, answer
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
        handles = [await start(worker, HandsOutside.run, seconds=900) for _ in range(PIPELINES)]
        async with asyncio.TaskGroup() as agents:
            works = [agents.create_task(work(f"http://127.0.0.1:{port}", holder, done, told)) for holder in HOLDERS]
            results = asyncio.gather(*(handle.result() for handle in handles))
            lifetime = 0.3
            while not results.done():
                async with service(server, tmp_path, port):
                    await asyncio.wait([results], timeout=random.uniform(0.05, lifetime))
                lifetime *= 1.1  # on a slow machine, too, it lives long enough at last
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
