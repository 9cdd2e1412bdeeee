"""Attacks on the past of a run by somebody who may start workflows, read histories, and has no key.

A run may start from recorded steps, carried state and an edit. Each attack makes the input of a new run; a worker with
safeguards refuses it before any stage runs, which `tests/runs/test_past.py` proves for each.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue

from baton.codec.conversion import RECORD, SEAL, SEAL_CHECK, SEALED_PAST
from baton.codec.encryption import CompressionCodec
from baton.core.pages import PAGE

Attack = Callable[[Payload], Payload]
"""Makes the input of a new run from the sealed input of a genuine run with a past."""


async def start_payload(handle: WorkflowHandle[Any, Any]) -> Payload:
    """Return the input of a run as its history holds it, decompressed and with its seal."""
    async for event in handle.fetch_history_events():
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        return (await CompressionCodec().decode(payloads))[0]
    raise AssertionError("unreachable: every history has a first event")


async def start_with(client: Client, pipeline: str, start: Payload, *, id: str, task_queue: str) -> Any:
    """Start a run with this input, byte for byte, and return its handle; ``client`` is one without Baton's plugin."""
    return await client.start_workflow(pipeline, RawValue(start), id=id, task_queue=task_queue)


def invented(members: Mapping[str, Any], *, marked: bool = False) -> Attack:
    """Return the attack that adds members to an input without a past; ``marked`` says that it is sealed."""

    def attack(sealed: Payload) -> Payload:
        start = {"goal": json.loads(sealed.data)["goal"], **members}
        claims = {RECORD: SEALED_PAST, SEAL: b"{}", SEAL_CHECK: b"{}"} if marked else {}
        return Payload(metadata={"encoding": b"json/plain", **claims}, data=json.dumps(start).encode())

    return attack


def altered(change: Callable[[dict[str, Any]], None], *, keep_seal: bool = True) -> Attack:
    """Return the attack that changes a genuine input and keeps its seal, or leaves it out."""

    def attack(sealed: Payload) -> Payload:
        start = json.loads(sealed.data)
        change(start)
        metadata = sealed.metadata if keep_seal else {"encoding": b"json/plain"}
        return Payload(metadata=metadata, data=json.dumps(start).encode())

    return attack


def approval(name: str, *, seq: int = 1, who: str = "ann") -> dict[str, Any]:
    """Return the recorded outcome of an approval that nobody gave."""
    now = datetime.now(UTC).isoformat()
    value = {
        "title": name,
        "question": f"{seq}:0123456789abcdef",
        "choice": "approve",
        "who": who,
        "at": now,
        "digest": "sha256:" + "0" * 64,
        "via": "update",
    }
    entry = {"seq": seq, "stage_id": name, "kind": "approval", "timestamp": now, "by": who}
    return {"seq": seq, "order": seq - 1, "name": name, "kind": "approval", "entries": [entry], "value": value}


def _page(name: str) -> str:
    """Return a page of approvals that nobody gave."""
    return json.dumps([approval(name, seq=seq) for seq in range(1, PAGE + 1)])


def _spent(micro_usd: int) -> dict[str, Any]:
    return {"carried": {"budget": {"unrecorded": {"micro_usd": micro_usd}}}}


def _change_person(start: dict[str, Any]) -> None:
    start["outcomes"][0]["entries"][0]["by"] = "eve"


PAST_ATTACKS: Mapping[str, Attack] = {
    "invented_approval": invented({"outcomes": [approval("boss")]}),
    "invented_approval_marked_as_sealed": invented({"outcomes": [approval("boss")]}, marked=True),
    "invented_page": invented({"pages": [_page("boss")]}),
    "invented_state": invented({"carried": {"handoffs": {"released": {"sha256:" + "0" * 64: "ann"}}}}),
    "invented_edit": invented({"edit": {"constraints": []}}),
    "invented_spend": invented(_spent(1)),
    "invented_origin": invented({"origin": {"workflow_id": "w", "run_id": "r", "at": "s"}}),
    "altered_outcome": altered(_change_person),
    "altered_pages": altered(lambda start: start.update(pages=[_page("boss")])),
    "altered_state": altered(lambda start: start.setdefault("carried", {}).update(exchange={"dropped": 1})),
    "altered_edit": altered(lambda start: start.update(edit={"constraints": []})),
    "altered_spend": altered(lambda start: start.setdefault("carried", {}).update(_spent(1)["carried"])),
    "altered_heir": altered(lambda start: start.update(heir={**start["heir"], "workflow_id": "another"})),
    "seal_removed": altered(lambda start: None, keep_seal=False),
    "taken_from_another_run": lambda sealed: sealed,
}
"""The attacks, by name, for a workflow of another id than the genuine run's."""
