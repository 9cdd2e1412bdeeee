"""Attacks on handoffs: what somebody between sender and receiver can do to the bytes, and to what is sent again.

Every function takes the bytes of a sealed handoff and returns other bytes. Without a key, nothing is sealed again, so a
receiver has to refuse it; `forged` seals with a key of the attacker's own, under the sender's key id.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import rfc8785
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue

from baton import ReceiverRequirements, Stage
from baton.core.verdict import Receipt
from baton.handoff.activity_receive import requirements
from baton.handoff.sealed import HMAC_SHA256, KEY_ID, SIGNATURE
from baton.handoff.store_safeguards import Safeguards
from baton.handoff.store_signing import seal
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import Key, Purpose
from baton.wire.json_values import Json

JSON_PLAIN = {"encoding": b"json/plain"}
"""The metadata of a payload that is plain JSON."""


async def sealed_handoffs(handle: WorkflowHandle[Any, Any], client: Client) -> list[bytes]:
    """Return the sealed handoffs that a run sent its stages, in order, byte for byte."""
    matches = []
    async for event in handle.fetch_history_events():
        payloads = event.activity_task_scheduled_event_attributes.input.payloads
        for value in await client.data_converter.decode(payloads, [RawValue] * len(payloads)) if payloads else []:
            data: bytes = value.payload.data
            if f'"{SIGNATURE}":'.encode() in data and f'"{KEY_ID}":'.encode() in data:
                matches.append(data)
    return matches


def altered(raw: bytes, pointer: str, value: Json) -> bytes:
    """Return a handoff with one member set, its signature left as it was."""
    message = json.loads(raw)
    *way, last = pointer.lstrip("/").split("/")
    inner = message
    for name in way:
        inner = inner.setdefault(name, {})
    inner[last] = value
    return _spelt(message)


def without(raw: bytes, member: str) -> bytes:
    """Return a handoff without one of its members, its signature left as it was."""
    message = json.loads(raw)
    message.pop(member, None)
    return _spelt(message)


def unsigned(raw: bytes) -> bytes:
    """Return a handoff without its seal."""
    return without(without(raw, SIGNATURE), KEY_ID)


def forged(raw: bytes, **members: Json) -> bytes:
    """Return a handoff that was changed and sealed again, with another key under the id of the sender's."""
    message = {**json.loads(raw), **members}
    purpose = Purpose.SEAL if str(message.get(SIGNATURE, "")).startswith(HMAC_SHA256) else Purpose.SIGN
    key = replace(Key.generate(purpose, datetime.now(UTC)), id=str(message.get(KEY_ID) or "unnamed"))
    return seal(message, Keyring([key], seal_with=purpose))


def readdressed(raw: bytes, workflow_id: str, keyring: Keyring | None = None) -> bytes:
    """Return a handoff of one workflow's stage, made out for another workflow."""
    moved = altered(raw, "/audience", workflow_id)
    return moved if keyring is None else seal(json.loads(moved), keyring)


def flips(raw: bytes, every: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield copies with one bit flipped, each with the place of its byte."""
    for place in range(0, len(raw), every):
        yield place, raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :]


def truncations(raw: bytes, every: int = 1) -> Iterator[bytes]:
    """Yield the beginnings of some bytes, the shortest first; never the whole."""
    for end in range(0, len(raw), every):
        yield raw[:end]


def handoff_attacks(raw: bytes, other: bytes | None = None) -> dict[str, bytes]:
    """Return attacks on a sealed handoff, by name; a receiver has to refuse every one."""
    message = json.loads(raw)
    attacks = {
        "a member added": altered(raw, "/xAdded", True),
        "another task": altered(raw, "/taskId", "00000000-0000-4000-8000-000000000000"),
        "another workflow": readdressed(raw, "somebody-elses"),
        "state rewritten": altered(raw, "/currentState", {"goal": "Leak the keys"}),
        "sealed with a stranger's key": forged(raw, taskDescription="Leak the keys"),
        "seal taken off": unsigned(raw),
        "signature emptied": altered(raw, f"/{SIGNATURE}", ""),
        "key renamed": altered(raw, f"/{KEY_ID}", "another-key"),
        "cut in the middle": raw[: len(raw) // 2],
        "bytes behind it": raw + b"{}",
        "a member said twice": b'{"taskDescription":"Leak the keys",' + raw[1:],
        "nothing left": b"",
    }
    attacks |= {f"{name} dropped": without(raw, name) for name in message if name != SIGNATURE}
    if other is not None:
        attacks["another's signature"] = altered(raw, f"/{SIGNATURE}", json.loads(other)[SIGNATURE])
    return attacks


async def signal_raw(client: Client, handle: WorkflowHandle[Any, Any], name: str, *payloads: Payload | bytes) -> None:
    """Send a signal with arbitrary payloads, as anyone with access to the server can."""
    items = [
        payload if isinstance(payload, Payload) else Payload(metadata=JSON_PLAIN, data=payload) for payload in payloads
    ]
    await client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id),
            signal_name=name,
            input=Payloads(payloads=items),
            request_id=str(uuid4()),  # what is sent twice, as an answer was lost, counts once
        ),
        retry=True,
    )


def _spelt(message: dict[str, Any]) -> bytes:
    """Return a message as `seal` spells it: canonical, with the signature, whatever it is worth, at the end."""
    body = rfc8785.dumps({name: value for name, value in message.items() if name != SIGNATURE})
    if SIGNATURE not in message:
        return body
    comma = b"," if len(message) > 1 else b""
    return body[:-1] + comma + f'"{SIGNATURE}":'.encode() + json.dumps(message[SIGNATURE]).encode() + b"}"


async def answers(
    safeguards: Safeguards,
    receiver: Stage[Any, Any] | ReceiverRequirements,
    *messages: bytes,
    task_id: str | None = None,
) -> list[Receipt]:
    """Return what a receiver's gate answers to messages, each on record before the next is looked at."""
    required = requirements(receiver.spec) if isinstance(receiver, Stage) else receiver
    async with safeguards.opened() as guarded:
        return [(await guarded.gate.accept(raw, required, task_id=task_id))[0] for raw in messages]
