"""The activity that compresses a history: by the agent's own cheap model, or by rules where that is not used.

A model that fails, says nothing or would cost too much does not fail a handoff: the summary is then made of the
turns' own sentences, and the record says why. What was paid is reported in any case (EAAPL-MAG006 §6.4, §9).
"""

import asyncio
import secrets

from temporalio import activity
from temporalio.exceptions import ApplicationError

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
    plan,
    too_dear,
    within_share,
)
from baton.core.history import Spend
from baton.handoff.activity_receive import current_run_name, record_or_warn
from baton.handoff.store_gate import Gate
from baton.ledger.entries import cost_with
from baton.ledger.records import AuditEntry
from baton.pipelines.activity_context import current_parts
from baton.pipelines.activity_worker import heartbeats
from baton.wire.money import to_usd
from baton.wire.text import TokenEstimator, estimate_tokens


async def compress_history(
    given: CompressInput,
    summariser: Summariser | None = None,
    *,
    counter: TokenEstimator = estimate_tokens,
) -> Compressed:
    """Return a history that fits its receiver, with its cost; it is the given one if that fits already."""
    # In a thread: a long history takes a tenth of a second, and other stages send heartbeats.
    made = await asyncio.to_thread(plan, given, counter)
    if made is None:
        before = given.tokens(counter)
        return Compressed(summary=given.summary, verbatim=list(given.turns), before_tokens=before, after_tokens=before)
    text, spend, reason = await _by_model(made, summariser, counter)
    done = await asyncio.to_thread(made.finish, text if reason is None else None, counter)
    warnings = list(done.warnings)
    if spend.micro_usd and not within_share(spend.micro_usd, given.upstream):
        warnings.append(
            f"the summary cost {to_usd(spend.micro_usd)} USD, which is not under {100 // ONE_IN} % of the "
            f"{to_usd(given.upstream.micro_usd)} USD upstream"
        )
    return done.model_copy(update={"spend": spend, "fallback_reason": reason, "warnings": warnings})


@activity.defn(name=COMPRESS)
async def compress(given: CompressInput) -> Compressed:
    """Compress a history with the worker's model for summaries and its token counter."""
    parts = current_parts()
    try:
        with heartbeats(activity.info().heartbeat_timeout):
            made = await compress_history(given, parts.summariser, counter=parts.counter)
            if parts.gate is not None and given.event is not None and made.spend:
                await _record(parts.gate, given.event, made)
            return made
    except ContextTooLargeError as error:
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error


async def _record(gate: Gate, event: AuditEntry, made: Compressed) -> None:
    """Record what a model was paid: a run that ends here, or a fork, has no handoff that says so."""
    cost = None if event.cost is None else cost_with(event.cost, made.spend)
    about = {"cost": cost, "details": made.fallback_reason, "run_id": current_run_name()}
    entry = event.model_copy(update=about)
    await record_or_warn(lambda: gate.record(entry), f"a summary for {event.to_agent}")


async def _by_model(
    made: Plan, summariser: Summariser | None, counter: TokenEstimator
) -> tuple[str, Spend, str | None]:
    """Return what a model wrote, what that cost, and why it is not to be used, if so."""
    if summariser is None:
        return "", Spend(), "no model for summaries is set up"
    most, nonce = made.room, secrets.token_hex(8)  # unknown to the speakers
    prompt = compression_prompt(made.replaced, earlier_summary=made.earlier, max_tokens=most, nonce=nonce)
    if reason := too_dear(prompt, most, summariser.price, made.given.upstream, counter=counter):
        return "", Spend(), reason
    try:
        answer = await summariser.model(prompt, most)
    except SummaryFailedError as error:
        return "", error.spend, f"the model for summaries gave none: {error}"
    except Exception as error:  # its text may quote the conversation
        return "", Spend(), f"the model for summaries failed with {type(error).__name__}"
    if not answer.text.strip():
        return "", answer.spend, "the model for summaries answered with nothing"
    return answer.text, answer.spend, None
