"""A service in another language that receives a handoff by signal and answers as the docs say, with its own seal."""

import hashlib
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import rfc8785
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker

from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import Purpose
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import EXCHANGES, HandsOff
from tests.support import Handle, event, start, until
from tests.support.tampering import JSON_PLAIN, signal_raw

MARKED = {**JSON_PLAIN, "baton-record": b"sealed-handoff"}


@pytest.fixture(scope="module")
async def client(server: DevServer, safeguards: Safeguards) -> Client:
    return await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards, compress=False)])


@pytest.fixture(scope="module")
async def exchange(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES) as worker:
        yield worker


async def hand_task(server: DevServer, exchange: Worker) -> tuple[Handle, dict[str, Any]]:
    """Hand off to a workflow without a Baton worker; return the sender and the received message."""
    elsewhere = await (await Client.connect(server.address)).start_workflow(
        "Elsewhere", id=f"elsewhere-{uuid.uuid4()}", task_queue="elsewhere"
    )
    sender = await start(exchange, HandsOff.run, to=elsewhere.id)
    signalled = await event(elsewhere, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
    [payload] = signalled.workflow_execution_signaled_event_attributes.input.payloads
    await elsewhere.terminate()
    return sender, json.loads(payload.data)


def digest(message: Mapping[str, Any]) -> str:
    """Return the digest of a message, as the docs say."""
    content = {name: value for name, value in message.items() if name not in ("keyId", "namespace", "signature")}
    return f"sha256:{hashlib.sha256(rfc8785.dumps(content)).hexdigest()}"


def answer(message: Mapping[str, Any], keyring: Keyring) -> bytes:
    """Return an answer to a message, sealed as the docs say, in a spelling that is not canonical."""
    key = keyring.current(Purpose.SEAL)
    members = {
        "handoffId": message["handoffId"],
        "digest": digest(message),
        "answer": "accepted",
        "by": "risk",
        "timestamp": "2026-11-22T18:43:57Z",
        "score": 1e21,
        "namespace": message["namespace"],
        "keyId": key.id,
    }
    mac = hmac.digest(key.secret, rfc8785.dumps(members), "sha256").hex()
    return json.dumps({**members, "signature": f"hmac-sha256:{mac}"}, indent=1).encode()


async def test_an_answer_made_as_the_docs_say_counts(
    server: DevServer, exchange: Worker, safeguards: Safeguards
) -> None:
    """It refers to the handoff and its content, and goes to the waiting workflow."""
    sender, message = await hand_task(server, exchange)
    assert message["step"]["replyTo"] == sender.id

    await signal_raw(
        exchange.client, sender, "handoff_answer", Payload(metadata=MARKED, data=answer(message, safeguards.keyring))
    )

    [ack] = (await sender.result()).output
    assert (ack["answer"], ack["score"]) == ("accepted", 1e21)
    await assert_replays(sender, [HandsOff], plugin=BatonPlugin(safeguards=safeguards))


async def test_a_faulty_answer_is_noted(server: DevServer, exchange: Worker, safeguards: Safeguards) -> None:
    """The run's status tells the author of the service why it does not count."""
    sender, message = await hand_task(server, exchange)
    good = answer(message, safeguards.keyring)
    await signal_raw(exchange.client, sender, "handoff_answer", good)
    forged = Payload(metadata=MARKED, data=good.replace(b"accepted", b"rejected"))
    await signal_raw(exchange.client, sender, "handoff_answer", forged)

    now = await until(sender, lambda told: len(told.notes) == 2)
    assert [
        any(note.endswith("marked as one by its payload's metadata 'baton-record'") for note in now.notes),
        any(note.startswith("refused an answer: its seal does not hold") for note in now.notes),
    ] == [True, True]
    await sender.terminate()
