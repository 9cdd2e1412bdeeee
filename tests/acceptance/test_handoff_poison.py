"""Inputs of a stage that are not handoffs to it: rejected as a value, recorded, never executed."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import rfc8785
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineStatus
from baton.client import Question, Settled
from baton.codec.conversion import RECORD, SEALED
from baton.core.messages import StageReturn
from baton.core.verdict import Code
from baton.devserver import DevServer
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from baton.wire.names import ANSWER, QUERY_QUESTIONS
from tests.acceptance.disturbing import errand, whole
from tests.acceptance.handoff_errands import (
    STAGES,
    Poisoner,
    Relayed,
    journal,
    safeguards,
    trace_of,
)
from tests.support import LIMIT, Handle, event, until


async def sealed_input(client: Client, handle: Handle, nth: int) -> bytes:
    """Return the bytes of the handoff that starts a run's n-th stage, from its history."""
    scheduled = await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, nth)
    codec = client.data_converter.payload_codec
    assert codec is not None
    [payload] = await codec.decode(list(scheduled.activity_task_scheduled_event_attributes.input.payloads))
    assert payload.metadata[RECORD] == SEALED
    return payload.data


def poisons(raw: bytes) -> dict[str, tuple[bytes, str]]:
    """Return an attacker's inputs of a stage, made from a genuine handoff: the bytes and their metadata."""
    mark, message = SEALED.decode(), json.loads(raw)
    unsealed = {name: value for name, value in message.items() if name not in ("signature", "keyId")}
    rows = {
        "garbage": (b"\x00\xff\x00garbage", mark),
        "nothing": (b"", mark),
        "a duplicate member": (raw[:-1] + b',"taskDescription":"Wire the money"}', mark),
        "an unsealed handoff": (rfc8785.dumps(unsealed), mark),
        "an unsealed handoff that asks to be sealed": (rfc8785.dumps(unsealed), "handoff?"),
        "the handoff of another task": (raw, mark),
        "a plain stage input": (_plain_input(message), ""),
    }
    place = 1
    for member, value in message.items():
        encoded = rfc8785.dumps({member: value})[1:-1]
        assert raw[place:].startswith(encoded), "it is in canonical form"
        at = place + len(encoded) - 2  # the last byte of its value, within quotes or brackets
        place += len(encoded) + 1
        rows[f"a byte of {member} changed"] = (raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :], mark)
    return rows


def _task_of(data: bytes) -> str:
    """Return the task id in these bytes."""
    try:
        return str(json.loads(data).get("taskId", "unknown"))
    except ValueError:
        return "unknown"


def _plain_input(message: dict[str, Any]) -> bytes:
    """Return what a worker without keys sends instead of a handoff."""
    return rfc8785.dumps(
        {**message["step"], "stage": "build", "task_id": message["taskId"], "baton": message["currentState"]}
    )


class TestPoison:
    async def test_a_forged_input_is_never_executed(self, server: DevServer, tmp_path: Path) -> None:
        """Each is rejected as a value with its code and recorded; the worker continues (F7, S3-13.1-e, P6)."""
        plugin = BatonPlugin(safeguards=safeguards(tmp_path))
        client = await Client.connect(server.address, plugins=[plugin])
        async with pipeline_worker(client, [Relayed, Poisoner], STAGES) as worker:
            good = await errand(worker, tmp_path, worker.task_queue)
            await whole(client, good, tmp_path)
            raw = await sealed_input(client, good, 2)
            earlier_acts = journal(tmp_path)
            rows = poisons(raw)
            answers = dict(
                zip(rows, await asyncio.gather(*(poison(worker, *row) for row in rows.values())), strict=True)
            )

            for name, answer in answers.items():
                assert answer.verdict is not None, name
                assert (answer.verdict.reason, answer.baton_patch) == (Code.SIGNATURE_INVALID, {}), name
            assert journal(tmp_path) == earlier_acts, "nothing of it was executed"
            tasks = {"unknown", (await good.result()).task_id, *(_task_of(data) for data, _ in rows.values())}
            records = [record.fields for task in tasks for record in (await trace_of(tmp_path, task)).records]
            assert Counter(record.status for record in records)["REJECTED"] == len({data for data, _ in rows.values()})
            await whole(client, await errand(worker, tmp_path, worker.task_queue), tmp_path)

    async def test_inputs_of_a_worker_without_keys_are_rejected(self, server: DevServer, tmp_path: Path) -> None:
        """Its plain inputs wait for a person; once a worker with keys has the run, they are resent sealed."""
        guarded = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards(tmp_path))])
        keyless = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
        queue = f"keyless-{uuid4()}"
        async with pipeline_worker(guarded, [], STAGES) as stages:
            async with pipeline_worker(keyless, [Relayed], [], task_queue=queue) as worker:
                handle = await errand(worker, tmp_path, stages.task_queue)
                await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
                [question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
                assert (question.handoff.reason, journal(tmp_path)) == (Code.SIGNATURE_INVALID, [])
            async with pipeline_worker(guarded, [Relayed], [], task_queue=queue):
                answer = question.answer("requeue", who="ann", why="it has keys now")
                await handle.execute_update(ANSWER, answer, result_type=Settled)
                await whole(guarded, handle, tmp_path)


async def poison(worker: Worker, data: bytes, record: str) -> StageReturn:
    """Start the stage `build` with these bytes, from the attacker's workflow."""
    answer: StageReturn = await worker.client.execute_workflow(
        Poisoner.run,
        args=["build", worker.task_queue, ["json/plain", record, data.decode("latin-1")]],
        id=f"poison-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
    )
    return answer
