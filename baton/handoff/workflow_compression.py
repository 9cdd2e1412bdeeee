"""The conversation that travels from stage to stage, compressed when it is too long for the next window."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from baton.compression.rules import COMPRESS, Compressed, CompressInput
from baton.core.artifacts import ArtifactRef
from baton.core.history import Spend
from baton.core.messages import StageInput, StageReturn
from baton.core.stages import StageSpec
from baton.core.turns import Turn
from baton.errors import StageFailedError
from baton.handoff.relay import HandoffTerms
from baton.ledger.records import AuditCost, AuditEntry, Kind
from baton.runtime.workflow_run import Run
from baton.telemetry.metrics import COMPRESSED_AWAY, COMPRESSIONS
from baton.wire.text import estimate_tokens

_COMPRESSION_TIMEOUT = timedelta(minutes=2)
_COMPRESSION_HEARTBEAT = timedelta(seconds=10)
_ENVELOPE_TOKENS = 600  # the cost of a handoff without baton and conversation


class Conversation:
    """The conversation of the stages so far: the newest turns verbatim, older ones as a summary."""

    def __init__(self, run: Run, terms: HandoffTerms) -> None:
        self._run = run
        self._terms = terms
        self._turns: list[Turn] = []
        self._summary = ""
        self._older: list[ArtifactRef] = []
        self._upstream = Spend()

    def carried(self) -> dict[str, JsonValue]:
        """Return the state for the next run after continue-as-new."""
        return {
            "turns": [turn.to_json_object() for turn in self._turns],
            "summary": self._summary,
            "older": [ref.model_dump(mode="json") for ref in self._older],
            "upstream": self._upstream.model_dump(mode="json"),
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Restore the state that the previous run carried."""
        self._turns = [Turn.from_json_object(turn) for turn in carried.get("turns", [])]
        self._summary = carried.get("summary", "")
        self._older = [ArtifactRef.model_validate(ref) for ref in carried.get("older", [])]
        self._upstream = Spend.model_validate(carried.get("upstream", {}))

    def add_turns(self, returned: StageReturn) -> None:
        """Add the turns of a stage."""
        self._turns = [*self._turns, *(Turn.from_json_object(turn) for turn in returned.turns)]
        self._upstream = returned.spend

    async def fit(
        self, spec: StageSpec, message: StageInput, task_queue: str | None, handoff_id: str, sender: str | None
    ) -> StageInput:
        """Return the stage's input with the conversation, compressed if it exceeds its share of the window."""
        if not self._turns:
            return message
        request = CompressInput(
            turns=self._turns,
            window=spec.window,
            other_tokens=estimate_tokens(str(message.baton)) + _ENVELOPE_TOKENS,
            summary=self._summary,
            threshold=self._terms.compress_above,
            keep=self._terms.verbatim_turns,
            upstream=self._upstream,
        )
        if request.exceeds():
            if sender is not None:
                request = request.model_copy(update={"event": self._event(message, handoff_id, sender)})
            try:
                result: Compressed = await workflow.execute_activity(
                    COMPRESS,
                    request,
                    result_type=Compressed,
                    task_queue=task_queue,
                    start_to_close_timeout=_COMPRESSION_TIMEOUT,
                    heartbeat_timeout=_COMPRESSION_HEARTBEAT,
                    retry_policy=RetryPolicy(maximum_attempts=3),
                    summary=f"step {message.seq}: history compressed for {message.title}"[:200],
                )
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError(f"the stage {spec.name!r} was cancelled") from error
                reason = f"the history for {spec.name!r} cannot be compressed: {error.cause or error}"
                raise StageFailedError(reason) from error
            self._run.account.charge(f"{message.seq}:{message.title}", f"compression {message.attempt}", result.spend)
            self._run.metrics.count(COMPRESSIONS, spec.name)
            self._run.metrics.count(COMPRESSED_AWAY, spec.name, by=result.before_tokens - result.after_tokens)
            self._turns, self._summary = result.verbatim, result.summary
            older = [*self._older, *([result.artifact] if result.artifact else [])]
            self._older = [ref for ref in older if ref.id in result.summary]  # an artifact names those before it
        turns = [turn.to_json_object() for turn in self._turns]
        return message.model_copy(update={"turns": turns, "summary": self._summary, "older": self._older})

    def _event(self, message: StageInput, handoff_id: str, sender: str) -> AuditEntry:
        """Return the event that the worker records for a summary, because in a fork no handoff shows its cost."""
        return AuditEntry(
            kind=Kind.SUMMARY,
            task_id=message.task_id,
            event_id=handoff_id,
            attempt=message.attempt,
            status="WRITTEN",
            from_agent=sender,
            to_agent=message.stage,
            timestamp=workflow.now(),
            cost=AuditCost.of(self._run.account.budget.cost_tracking()),
        )
