"""The activity that compresses a history with the worker's model for summaries, or by rules.

A model that fails, returns nothing or would cost too much does not fail a handoff: the summary then consists of the
turns' own sentences, and the record says why. Its cost is always reported (EAAPL-MAG006 §6.4, §9).
"""

import asyncio
import secrets
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from baton.artifacts.activity import put_when_possible
from baton.artifacts.store import ArtifactStore
from baton.codec.failures import text_of
from baton.compression.rules import (
    COMPRESS,
    ONE_IN,
    Compressed,
    CompressInput,
    ContextTooLargeError,
    Plan,
    Summariser,
    SummaryFailedError,
    compression_prompt,
    cost_problem,
    is_within_share,
    plan,
)
from baton.core.history import Spend
from baton.handoff.activity_receive import current_run_name, record_or_warn
from baton.handoff.store_gate import Gate
from baton.ledger.records import AuditEntry
from baton.pipelines.activity_parts import current_parts
from baton.pipelines.activity_worker import heartbeats
from baton.wire.money import to_usd
from baton.wire.text import TokenEstimator, estimate_tokens


async def compress_history(
    request: CompressInput,
    summariser: Summariser | None = None,
    *,
    counter: TokenEstimator = estimate_tokens,
    store: ArtifactStore | None = None,
) -> Compressed:
    """Return a history that fits its receiver, with the cost; unchanged if it fits already.

    If lines with numbers have to be left out, the store gets the whole history, and the summary refers to it.
    """
    # In a thread, because a long history takes a tenth of a second in which no other stage could send heartbeats.
    planned = await asyncio.to_thread(partial(plan, request, counter, stores=store is not None))
    if planned is None:
        tokens = request.tokens(counter)
        return Compressed(
            summary=request.summary, verbatim=list(request.turns), before_tokens=tokens, after_tokens=tokens
        )
    if planned.artifact is not None and store is not None:
        await put_when_possible(store, request.transcript())
    text, spend, reason = await _ask_model(planned, summariser, counter)
    result = await asyncio.to_thread(planned.finish, text if reason is None else None, counter)
    warnings = list(result.warnings)
    if spend.micro_usd and not is_within_share(spend.micro_usd, request.upstream):
        warnings.append(
            f"the summary cost {to_usd(spend.micro_usd)} USD, which is not under {100 // ONE_IN} % of the "
            f"{to_usd(request.upstream.micro_usd)} USD upstream"
        )
    return result.model_copy(update={"spend": spend, "fallback_reason": reason, "warnings": warnings})


@activity.defn(name=COMPRESS)
async def compress(request: CompressInput) -> Compressed:
    """Compress a history with the worker's model for summaries and its token counter."""
    parts = current_parts()
    try:
        with heartbeats(activity.info().heartbeat_timeout):
            result = await compress_history(request, parts.summariser, counter=parts.counter, store=parts.artifacts)
            if parts.gate is not None and request.event is not None and result.spend:
                await _record_cost(parts.gate, request.event, result)
            return result
    except ContextTooLargeError as error:
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error


async def _record_cost(gate: Gate, event: AuditEntry, result: Compressed) -> None:
    """Record the cost of a summary: after a run that ends here, or in a fork, no handoff shows it."""
    cost = None if event.cost is None else event.cost.after(result.spend)
    update: dict[str, Any] = {"cost": cost, "details": result.fallback_reason, "run_id": current_run_name()}
    if result.artifact is not None:
        update["message"] = {"artifact": result.artifact.model_dump(mode="json", exclude_none=True)}
    entry = event.model_copy(update=update)
    await record_or_warn(lambda: gate.record(entry), f"a summary for {event.to_agent}")


async def _ask_model(
    planned: Plan, summariser: Summariser | None, counter: TokenEstimator
) -> tuple[str, Spend, str | None]:
    """Return a model's summary, its cost, and the reason for not using it, if any."""
    if summariser is None:
        return "", Spend(), "no model for summaries is set up"
    max_tokens, nonce = planned.room, secrets.token_hex(8)  # unknown to the speakers
    prompt = compression_prompt(planned.replaced, earlier_summary=planned.earlier, max_tokens=max_tokens, nonce=nonce)
    if reason := cost_problem(prompt, max_tokens, summariser.price, planned.request.upstream, counter=counter):
        return "", Spend(), reason
    try:
        answer = await summariser.model(prompt, max_tokens)
    except SummaryFailedError as error:
        return "", error.spend, f"the model for summaries failed: {text_of(error)}"
    except Exception as error:  # its message may quote the conversation
        return "", Spend(), f"the model for summaries failed with {type(error).__name__}"
    if not answer.text.strip():
        return "", answer.spend, "the model for summaries answered with nothing"
    return answer.text, answer.spend, None
