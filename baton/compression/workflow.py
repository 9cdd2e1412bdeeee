"""The conversation that goes from stage to stage, compressed where it is too long for the next window."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from baton.budget.workflow import BudgetAccount
from baton.compression.rules import COMPRESS, Compressed, CompressInput
from baton.core.history import Spend
from baton.core.messages import StageInput, StageReturn
from baton.errors import StageFailedError
from baton.handoff.records import Turn
from baton.handoff.relay import HandoffTerms
from baton.handoff.workflow_attempt import OutgoingHandoff
from baton.ledger.entries import cost_of
from baton.ledger.records import AuditEntry, Kind
from baton.telemetry.metrics import COMPRESSED_AWAY, COMPRESSIONS, Metrics
from baton.wire.text import estimate_tokens

_COMPRESSION_TIMEOUT = timedelta(minutes=2)
_COMPRESSION_HEARTBEAT = timedelta(seconds=10)
_ENVELOPE_TOKENS = 600  # what a handoff costs beside baton and conversation


class Conversation:
    """What was said in the stages so far: the newest turns word for word, the older ones in a summary."""

    def __init__(self, account: BudgetAccount, metrics: Metrics, terms: HandoffTerms) -> None:
        self._account = account
        self._metrics = metrics
        self._terms = terms
        self._turns: list[Turn] = []
        self._summary = ""
        self._upstream = Spend()

    def carried(self) -> dict[str, JsonValue]:
        """Return what the next run needs when this one continues as new."""
        return {
            "turns": [turn.to_json_object() for turn in self._turns],
            "summary": self._summary,
            "upstream": self._upstream.model_dump(mode="json"),
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Take what the run before carried."""
        self._turns = [Turn.from_json_object(turn) for turn in carried.get("turns", [])]
        self._summary = carried.get("summary", "")
        self._upstream = Spend.model_validate(carried.get("upstream", {}))

    def heard(self, returned: StageReturn) -> None:
        """Add what was said in a stage."""
        self._turns = [*self._turns, *(Turn.from_json_object(turn) for turn in returned.turns)]
        self._upstream = returned.spend

    async def fit(
        self, outgoing: OutgoingHandoff, message: StageInput, task_queue: str | None, *, sender: str | None
    ) -> StageInput:
        """Return the stage's input with the conversation, compressed if it fills too much of the window."""
        if not self._turns:
            return message
        spec = outgoing.spec
        given = CompressInput(
            turns=self._turns,
            window=spec.window,
            other_tokens=estimate_tokens(str(message.baton)) + _ENVELOPE_TOKENS,
            summary=self._summary,
            threshold=self._terms.compress_above,
            keep=self._terms.verbatim_turns,
            upstream=self._upstream,
        )
        if given.exceeds():
            if sender is not None:
                given = given.model_copy(update={"event": self._event(outgoing, sender)})
            try:
                made: Compressed = await workflow.execute_activity(
                    COMPRESS,
                    given,
                    result_type=Compressed,
                    task_queue=task_queue,
                    start_to_close_timeout=_COMPRESSION_TIMEOUT,
                    heartbeat_timeout=_COMPRESSION_HEARTBEAT,
                    retry_policy=RetryPolicy(maximum_attempts=3),
                    summary=f"step {message.seq}: history compressed for {spec.name}"[:200],
                )
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError(f"the stage {spec.name!r} was cancelled") from error
                reason = f"the history for {spec.name!r} cannot be compressed: {error.cause or error}"
                raise StageFailedError(reason) from error
            self._account.charge(outgoing.key, f"compression {outgoing.sent}", made.spend)
            self._metrics.count(COMPRESSIONS, spec.name)
            self._metrics.count(COMPRESSED_AWAY, spec.name, by=made.before_tokens - made.after_tokens)
            self._turns, self._summary = made.verbatim, made.summary
        turns = [turn.to_json_object() for turn in self._turns]
        return message.model_copy(update={"turns": turns, "summary": self._summary})

    def _event(self, outgoing: OutgoingHandoff, sender: str) -> AuditEntry:
        """Return the event that the worker records for a summary: in a fork no handoff shows what it cost."""
        return AuditEntry(
            kind=Kind.SUMMARY,
            task_id=outgoing.stage_input.task_id,
            event_id=f"{outgoing.handoff_id}.{outgoing.sent}",
            status="WRITTEN",
            from_agent=sender,
            to_agent=outgoing.spec.name,
            timestamp=workflow.now(),
            cost=cost_of({"costTracking": self._account.budget.cost_tracking().to_json_object()}),
        )
