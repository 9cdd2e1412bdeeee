"""What a worker does for pipelines that hand off: the gate, the seals of everything else, and the record."""

import asyncio
import base64
import re
from collections.abc import Mapping
from typing import Any

from temporalio import activity

from baton.artifacts.store import ArtifactStore
from baton.core.verdict import HandoffStatus
from baton.exchange.records import ADMIT, OPEN, AcceptRequest, Admission, Opened, message_digest, reply_to_of
from baton.handoff.activity_receive import current_run_name, require_gate
from baton.handoff.sealed import SealError
from baton.handoff.store_gate import MAX_BYTES_ON_LOOP, audience_check
from baton.handoff.store_signing import open_sealed
from baton.ledger.records import RECORD, AuditEntry
from baton.pipelines.activity_context import current_parts
from baton.telemetry.tracing import record_verdict
from baton.wire.json_values import MAX_MESSAGE_VALUES, find_excess

_SHA256 = re.compile("[0-9a-f]{64}")


@activity.defn(name=ADMIT)
async def admit(request: AcceptRequest) -> Admission:
    """Lead a handoff that a pipeline received through the worker's gate; the answer is on record when it returns.

    It does not look whether the pipeline has answered the handoff before: that the pipeline itself knows.

    Raises:
        LedgerUnavailableError: The answer could not be put on record; it is tried again.
    """
    gate = require_gate(current_parts().gate)
    strays = audience_check(request.audience)
    receipt, message = await gate.accept(request.message, request.receiver, run_id=current_run_name(), further=[strays])
    record_verdict(receipt.verdict.reason.value if receipt.verdict.reason else HandoffStatus.ACCEPTED.value)
    if not message:
        return Admission(receipt=receipt)
    sender = message.get("fromAgent")
    agent = sender.get("agentId") if isinstance(sender, Mapping) else None
    return Admission(
        receipt=receipt,
        digest=message_digest(message),
        sender=agent if isinstance(agent, str) else "",
        # Anyone who sends a copy on needs no key. Its sender waits for the one it asked, and our no would come first.
        reply_to=None if strays(message) else reply_to_of(message),
        message=dict(message) if receipt.verdict else None,
    )


@activity.defn(name=OPEN)
async def open_message(raw: str, scanned: bool = False) -> Opened:
    """Verify the seal of an answer, a chunk or a move; a seal that does not hold is a value and no exception.

    Args:
        raw: The message's bytes, in base64.
        scanned: Whether the safety scan looks at it as well: no gate sees a chunk.
    """
    sealed = base64.b64decode(raw)
    small = not scanned and len(sealed) <= MAX_BYTES_ON_LOOP  # a detector may ask a service
    said = _opened(sealed, scanned) if small else await asyncio.to_thread(_opened, sealed, scanned)
    if said.message is None:
        return said
    return said.model_copy(update={"missing": await _missing(said.message, current_parts().artifacts)})


def _opened(sealed: bytes, scanned: bool) -> Opened:
    """Return what a sealed message says, or why it is not opened."""
    gate = require_gate(current_parts().gate)
    try:
        message = dict(open_sealed(sealed, gate.keyring).message)
    except SealError as error:
        return Opened(fault=str(error))
    if (over := find_excess(message, MAX_MESSAGE_VALUES)) is not None:
        return Opened(fault=str(over))
    return Opened(message=message, unsafe=gate.unsafe(message) if scanned else [])


async def _missing(message: Mapping[str, Any], store: ArtifactStore | None) -> list[str]:
    """Return the hashes of artifacts in a move's patch that a store does not have; no later stage could read them."""
    patch = message.get("patch")
    refs = patch.get("artifacts") if isinstance(patch, Mapping) else None
    if store is None or not isinstance(refs, list):
        return []
    hashes = {ref.get("hash") for ref in refs if isinstance(ref, Mapping)}
    wanted = sorted(one for one in hashes if isinstance(one, str) and _SHA256.fullmatch(one))
    return [one for one in wanted if not await store.has(one)]


@activity.defn(name=RECORD)
async def record(event: AuditEntry) -> str:
    """Write what happened to a handoff to the ledger; return the head of the task's chain, or "" without a ledger."""
    gate = current_parts().gate
    return "" if gate is None else await gate.record(event.model_copy(update={"run_id": current_run_name()}))


EXCHANGE_ACTIVITIES = (admit, open_message)
"""The activities that every worker of exchanging pipelines has; the plugin registers them."""
