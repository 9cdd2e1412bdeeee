"""The fault that Baton's guard prevents, with Temporal alone: `python -m tests.storm.plain [guarded]`.

A workflow is signalled and sent updates, and queried all the time, by two workers with small caches that are stopped
by SIGSTOP and killed at random. Some runs then do not fit their own history, and some never end. With `guarded` the
workers drop a run that they were asked early about (`baton.sdk.early_queries`), and neither happens.
"""

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateStage
from temporalio.exceptions import TemporalError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

QUEUE, MESSAGES, RUNS = "plain", 12, 64


@activity.defn
async def check(text: str) -> str:
    """Take a moment."""
    await asyncio.sleep(random.random() * 0.02)
    return text.upper()


@workflow.defn
class Listens:
    """Checks each message by an activity, beside work of its own."""

    @workflow.init
    def __init__(self) -> None:
        self.heard: list[str] = []

    async def _check(self, text: str) -> str:
        return await workflow.execute_activity(check, text, start_to_close_timeout=timedelta(seconds=20))

    @workflow.signal
    async def say(self, text: str) -> None:
        """Hear a message."""
        self.heard.append(await self._check(text))

    @workflow.update
    async def put(self, text: str) -> int:
        """Receive a message, and return their number."""
        self.heard.append(await self._check(text))
        return len(self.heard)

    @put.validator
    def refuse(self, text: str) -> None:
        """Refuse a message: its workflow task leaves no trace in the history."""
        if text.startswith("refused"):
            raise ValueError(text)

    @workflow.query
    def count(self) -> int:
        """Return the number of messages."""
        return len(self.heard)

    @workflow.run
    async def run(self) -> int:
        """Work until all messages are heard."""
        for number in range(6):
            with suppress(asyncio.TimeoutError):
                expected = (number + 1) * MESSAGES // 6
                await workflow.wait_condition(lambda: len(self.heard) >= expected, timeout=timedelta(seconds=0.05))  # noqa: B023
            await asyncio.gather(self._check("one"), self._check("two"))
        await workflow.wait_condition(lambda: len(self.heard) >= MESSAGES)
        return len(self.heard)


async def work(address: str, guarded: bool) -> None:
    """Work until killed."""
    from baton.sdk.early_queries import RunCache  # noqa: PLC0415 - without the guard nothing of Baton runs
    from baton.sdk.runner import GuardedRunner  # noqa: PLC0415

    plain, kept_in = UnsandboxedWorkflowRunner(), RunCache()
    worker = Worker(
        await Client.connect(address),
        task_queue=QUEUE,
        workflows=[Listens],
        activities=[check],
        workflow_runner=GuardedRunner(plain, kept_in) if guarded else plain,
        max_cached_workflows=3,
    )
    kept_in.attach(worker)
    async with worker:
        print("up", flush=True)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the SDK logs there too, and nobody reads more of it
        await asyncio.Event().wait()


async def spawned(address: str, mode: str) -> asyncio.subprocess.Process:
    """Start a worker process."""
    command = [sys.executable, "-m", "tests.storm.plain", mode, address]
    worker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout is not None
    await worker.stdout.readline()
    return worker


async def trouble(workers: list[asyncio.subprocess.Process], address: str, mode: str) -> None:
    """Kill or stop a worker sometimes."""
    while True:
        await asyncio.sleep(random.uniform(0.5, 2))
        place = random.randrange(len(workers))
        if random.random() < 0.15:
            workers[place].kill()
            await workers[place].wait()
            workers[place] = await spawned(address, mode)
        else:
            workers[place].send_signal(signal.SIGSTOP)
            await asyncio.sleep(random.uniform(0.3, 4))
            workers[place].send_signal(signal.SIGCONT)


async def run_one(client: Client, number: int) -> WorkflowHandle[Any, Any]:
    """Start a run, send it messages and ask it until it ends, or a minute and a half is over."""
    handle = await client.start_workflow(Listens.run, id=f"plain-{number}", task_queue=QUEUE)

    async def ask() -> None:
        while True:
            with suppress(TemporalError):
                await handle.query(Listens.count, rpc_timeout=timedelta(seconds=6))
            await asyncio.sleep(random.random() * 0.02)

    tasks: list[asyncio.Future[Any]] = [asyncio.create_task(ask()) for _ in range(2)]
    for message in range(MESSAGES):
        if message % 3 == 2:
            putting = handle.start_update(Listens.put, f"update {message}", wait_for_stage=WorkflowUpdateStage.ACCEPTED)
            tasks.append(asyncio.ensure_future(putting))
            with suppress(TemporalError):
                await handle.execute_update(Listens.put, "refused", rpc_timeout=timedelta(seconds=6))
        else:
            await handle.signal(Listens.say, f"signal {message}")
        await asyncio.sleep(random.random() * 0.1)
    with suppress(asyncio.TimeoutError, TemporalError):
        await asyncio.wait_for(handle.result(), 90)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return handle


async def main(mode: str) -> None:
    """Start the runs, eight at a time, and check their histories."""
    from baton.testing import local_server  # noqa: PLC0415

    async with local_server() as server:
        client = await Client.connect(server.address)
        workers = [await spawned(server.address, mode) for _ in range(2)]
        troubled = asyncio.create_task(trouble(workers, server.address, mode))
        runs: list[WorkflowHandle[Any, Any]] = []
        for first in range(0, RUNS, 8):
            runs += await asyncio.gather(*(run_one(client, first + number) for number in range(8)))
        troubled.cancel()
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
            worker.kill()
        replayer = Replayer(workflows=[Listens], workflow_runner=UnsandboxedWorkflowRunner())
        stuck = unfit = 0
        for run in runs:
            stuck += (await run.describe()).close_time is None
            replay = await replayer.replay_workflow(await run.fetch_history(), raise_on_replay_failure=False)
            unfit += replay.replay_failure is not None
        print(f"{mode or 'plain'}: {len(runs)} runs, {stuck} stuck, {unfit} do not replay", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(work(sys.argv[2], sys.argv[1] == "guarded"))
    else:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "plain"))
    os._exit(0)  # temporalio can abort while the interpreter ends, after all work is done
