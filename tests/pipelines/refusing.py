"""Workflows that reject updates, in their own module because the sandbox reloads it."""

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from baton.core.pending import PendingHandoff
from baton.core.verdict import Code, Disposition
from baton.wire.names import QUERY_INBOX, RESOLVE_HANDOFF

SINCE = datetime(2026, 11, 22, tzinfo=UTC)
"""Since when the handoff of `DecidesAsBefore` waits."""


@workflow.defn
class Refuses:
    """Accepts one update `say` after the signal `listen`, then ends."""

    def __init__(self) -> None:
        self._listens = False
        self._heard = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self._heard) and workflow.all_handlers_finished())
        return self._heard

    @workflow.signal
    def listen(self) -> None:
        """Accept updates from now on."""
        self._listens = True

    @workflow.update
    async def say(self, what: str) -> str:
        """Accept the update."""
        self._heard = what
        return f"heard {what}"

    @say.validator
    def _refuse(self, what: str) -> None:
        if not self._listens:
            raise ApplicationError("nobody listens yet", type="DecisionRefused", non_retryable=True)


class HandoffDecision(BaseModel):
    """A decision without the member `since`, as in earlier releases."""

    model_config = ConfigDict(extra="forbid")

    handoff_id: str
    action: str
    who: str
    why: str = ""


@workflow.defn
class DecidesAsBefore:
    """Waits for a decision on a handoff, as workers of earlier releases did."""

    def __init__(self) -> None:
        self._decided: HandoffDecision | None = None

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self._decided is not None and workflow.all_handlers_finished())
        return self._decided.action if self._decided else ""

    @workflow.query(name=QUERY_INBOX)
    def inbox(self) -> list[PendingHandoff]:
        """Return the waiting handoffs."""
        reason, fate = Code.SAFETY_VIOLATION, Disposition.DEAD_LETTER
        return [
            PendingHandoff(
                handoff_id="h", seq=1, sender="a", receiver="b", reason=reason, fate=fate, details="", since=SINCE
            )
        ]

    @workflow.update(name=RESOLVE_HANDOFF)
    async def decide(self, decision: HandoffDecision) -> HandoffDecision:
        """Accept the decision."""
        self._decided = decision
        return decision
