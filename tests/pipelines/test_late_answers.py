"""Runs that are queried constantly while they work, receive messages and get decisions."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from baton import Overview
from baton.client import Question
from baton.codec.conversion import RECORD, SEALED
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays
from baton.wire.names import ANSWER, HANDOFF, HANDOFF_ANSWER, QUERY_QUESTIONS, QUERY_STATUS
from tests.exchange.exchange_pipelines import HandsOff
from tests.exchange.test_exchange_of_runs import output
from tests.patience import IN_TIME
from tests.pipelines.stages import check, document, sort, tidy
from tests.pipelines.working_pipelines import ReceivesAfterWork, ReceivesOutsideTheSandbox, WorksAndReceives
from tests.support import Handle, sealing_worker, start
from tests.support.tampering import JSON_PLAIN, signal_raw

STRAY = Payload(metadata={**JSON_PLAIN, RECORD: SEALED}, data=b'{"stray":true}')


async def ask(run: Handle, query: str, answers: list[str]) -> None:
    """Query a run again and again, and store the answers."""
    while True:
        with suppress(RPCError):  # one of so many may come too late
            try:
                answer = await run.query(query, result_type=Overview)
            except WorkflowQueryFailedError as error:
                answers.append(str(error))
            else:
                answers.append(answer.task_id)


@pytest.mark.parametrize(
    ("query", "pipeline", "runner"),
    [
        (QUERY_STATUS, ReceivesAfterWork, SandboxedWorkflowRunner()),
        ("nobody knows this one", ReceivesAfterWork, SandboxedWorkflowRunner()),
        (QUERY_STATUS, ReceivesOutsideTheSandbox, SandboxedWorkflowRunner()),
        (QUERY_STATUS, ReceivesAfterWork, UnsandboxedWorkflowRunner()),
    ],
    ids=["a query", "an unknown query", "a pipeline without the sandbox", "a worker without it"],
)
async def test_a_queried_run_receives_messages_in_a_replayable_order(
    server: DevServer, safeguards: Safeguards, query: str, pipeline: type[ReceivesAfterWork], runner: WorkflowRunner
) -> None:
    """Any worker replays stages and messages in the same order."""
    pipelines = [pipeline, HandsOff]
    async with Worker(
        await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)]),
        task_queue=f"late-{uuid4()}",
        workflows=pipelines,
        activities=[sort, check, *EXCHANGE_ACTIVITIES],
        workflow_runner=runner,
    ) as worker:
        receiver = await start(worker, pipeline.run, times=12)
        answers: list[str] = []
        asking = asyncio.create_task(ask(receiver, query, answers))
        for number in range(30):
            for signal in (HANDOFF, HANDOFF_ANSWER):
                for _ in range(1 + number % 3):
                    await signal_raw(worker.client, receiver, signal, STRAY)
            await asyncio.sleep(number * 7 % 5 / 200)
        sender = await start(worker, HandsOff.run, to=receiver.id, seconds=IN_TIME.total_seconds())
        received = await output(receiver)
        asking.cancel()

        assert received == (await output(sender))[0]["handoffId"]
        assert answers
        await assert_replays(receiver, pipelines, plugin=BatonPlugin(safeguards=safeguards))


async def test_concurrent_commands_have_a_replayable_order(server: DevServer, safeguards: Safeguards) -> None:
    """Commands of several kinds that follow each other by chance do so in a replay as well."""
    chance, senders = random.Random(7), 4
    pipelines = [WorksAndReceives, HandsOff]
    stages: list[Callable[..., Any]] = [sort, check, document, tidy, *EXCHANGE_ACTIVITIES]

    async def decide(run: Handle) -> None:
        while True:
            await asyncio.sleep(chance.random() / 10)
            with suppress(
                RPCError, WorkflowQueryFailedError, WorkflowUpdateFailedError
            ):  # somebody else was faster, or the time is up
                for question in await run.query(QUERY_QUESTIONS, result_type=list[Question]):
                    yes = question.answer("approve", who="ann", why="it is well")
                    await (run.signal(ANSWER, yes) if chance.random() < 0.5 else run.execute_update(ANSWER, yes))

    async def one_run() -> list[Handle]:
        receiver = await start(worker, WorksAndReceives.run, times=6, senders=senders)
        beside = [asyncio.create_task(coroutine) for coroutine in (ask(receiver, QUERY_STATUS, []), decide(receiver))]
        sent = []
        for _ in range(senders):
            await asyncio.sleep(chance.random() / 2)
            await signal_raw(worker.client, receiver, HANDOFF, STRAY)
            sent.append(await start(worker, HandsOff.run, to=receiver.id, seconds=IN_TIME.total_seconds()))
        assert len(await output(receiver)) == senders
        for task in beside:
            task.cancel()
        return [receiver, *sent]

    async with sealing_worker(server, safeguards, pipelines, stages) as worker:
        for _ in range(6):
            for run in await one_run():
                await assert_replays(run, pipelines, plugin=BatonPlugin(safeguards=safeguards))
