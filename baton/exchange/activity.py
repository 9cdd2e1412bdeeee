"""The worker's activities for exchanging pipelines: the gate, the seals of other messages, and the record."""

import asyncio
import base64
import re
from collections.abc import Mapping
from typing import Any

from temporalio import activity

from baton.artifacts.store import ArtifactStore
from baton.core.verdict import HandoffStatus
from baton.exchange.records import (
    ADMIT,
    OPEN,
    AcceptRequest,
    Admission,
    OpenedMessage,
    check_requester,
    message_digest,
)
from baton.handoff.activity_receive import current_run_name, find_run_chain, require_gate
from baton.handoff.sealed import SealError
from baton.handoff.store_gate import MAX_BYTES_ON_LOOP, REPLAY, audience_check
from baton.handoff.store_signing import open_sealed
from baton.ledger.records import RECORD, AuditEntry
from baton.pipelines.activity_parts import current_parts
from baton.telemetry.verdicts import record_verdict
from baton.wire.json_values import MAX_MESSAGE_VALUES, find_excess

_SHA256 = re.compile("[0-9a-f]{64}")


@activity.defn(name=ADMIT)
async def admit(request: AcceptRequest) -> Admission:
    """Pass a received handoff through the worker's gate; on return the answer is recorded.

    It does not check whether the pipeline has already answered the handoff.

    Raises:
        LedgerUnavailableError: The answer could not be recorded; the activity is retried.
    """
    gate = require_gate(current_parts().gate)
    here, run_chain = activity.info(), await find_run_chain(request.run_chain)
    audience_findings = audience_check(here.workflow_id or "", here.workflow_namespace or "", run_chain)
    receipt, judgement = await gate.accept(
        request.message,
        request.receiver,
        run_id=current_run_name(),
        run_chain=run_chain,
        extra_checks=[audience_findings, check_requester],
    )
    record_verdict(receipt.verdict.reason.value if receipt.verdict.reason else HandoffStatus.ACCEPTED.value)
    message, outline = judgement.message, judgement.outline
    if not message:
        return Admission(receipt=receipt)
    is_replay = audience_findings(outline) or any(finding.rule == REPLAY for finding in receipt.verdict.findings)
    return Admission(
        receipt=receipt,
        digest=message_digest(message),
        sender=outline.from_agent.agent_id or "",
        # Anyone can forward a copy without a key; our rejection must not reach the sender before the real answer.
        reply_to=None if is_replay else outline.step.reply_to,
        message=dict(message) if receipt.verdict else None,
    )


@activity.defn(name=OPEN)
async def open_message(raw: str, scanned: bool = False) -> OpenedMessage:
    """Verify the seal of an answer, a chunk or an action; a seal that does not hold is a value, not an exception.

    Args:
        raw: The message's bytes, in base64.
        scanned: Whether to run the safety scan, as for chunks, which pass no gate.
    """
    sealed = base64.b64decode(raw)
    is_quick = not scanned and len(sealed) <= MAX_BYTES_ON_LOOP  # a detector may ask a service
    opened = _open(sealed, scanned) if is_quick else await asyncio.to_thread(_open, sealed, scanned)
    if opened.message is None:
        return opened
    return opened.model_copy(update={"missing": await _missing_artifacts(opened.message, current_parts().artifacts)})


def _open(sealed: bytes, scanned: bool) -> OpenedMessage:
    gate = require_gate(current_parts().gate)
    try:
        message = dict(open_sealed(sealed, gate.keyring, activity.info().workflow_namespace).message)
    except SealError as error:
        return OpenedMessage(fault=str(error))
    if (excess := find_excess(message, MAX_MESSAGE_VALUES)) is not None:
        return OpenedMessage(fault=str(excess))
    return OpenedMessage(message=message, unsafe=gate.unsafe(message) if scanned else [])


async def _missing_artifacts(message: Mapping[str, Any], store: ArtifactStore | None) -> list[str]:
    patch = message.get("patch")
    refs = patch.get("artifacts") if isinstance(patch, Mapping) else None
    if store is None or not isinstance(refs, list):
        return []
    hashes = {ref.get("hash") for ref in refs if isinstance(ref, Mapping)}
    needed = sorted(hash for hash in hashes if isinstance(hash, str) and _SHA256.fullmatch(hash))
    return [hash for hash in needed if not await store.has(hash)]


@activity.defn(name=RECORD)
async def record(event: AuditEntry) -> str:
    """Write an event to the ledger; return the anchor of the task's chain, or "" without a ledger."""
    gate = current_parts().gate
    return "" if gate is None else await gate.record(event.model_copy(update={"run_id": current_run_name()}))


EXCHANGE_ACTIVITIES = (admit, open_message)
"""The activities of every worker with exchanging pipelines; the plugin registers them."""
