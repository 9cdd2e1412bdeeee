"""Workflows that refuse updates; apart, because the sandbox loads them again by their names."""

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from baton.core.verdict import Code, Disposition
from baton.handoff.pending import PendingHandoff
from baton.wire.names import QUERY_INBOX, RESOLVE_HANDOFF

SINCE = datetime(2026, 11, 22, tzinfo=UTC)
"""Since when the handoff of `DecidesAsBefore` waits."""


@workflow.defn
class Refuses:
    """Takes one update `say`, once it has heard the signal `listen`; ends then."""

    def __init__(self) -> None:
        self._listens = False
        self._heard = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self._heard) and workflow.all_handlers_finished())
        return self._heard

    @workflow.signal
    def listen(self) -> None:
        """Take updates from now on."""
        self._listens = True

    @workflow.update
    async def say(self, what: str) -> str:
        """Take what is said."""
        self._heard = what
        return f"heard {what}"

    @say.validator
    def _refuse(self, what: str) -> None:
        if not self._listens:
            raise ApplicationError("nobody listens yet", type="DecisionRefused", non_retryable=True)


class HandoffDecision(BaseModel):
    """What a person decides, as it was before it had the member `since`."""

    model_config = ConfigDict(extra="forbid")

    handoff_id: str
    action: str
    who: str
    why: str = ""


@workflow.defn
class DecidesAsBefore:
    """Waits for a decision about a handoff, as workers did when a decision did not tell for which wait it is."""

    def __init__(self) -> None:
        self._decided: HandoffDecision | None = None

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self._decided is not None and workflow.all_handlers_finished())
        return self._decided.action if self._decided else ""

    @workflow.query(name=QUERY_INBOX)
    def inbox(self) -> list[PendingHandoff]:
        """What waits."""
        reason, fate = Code.SAFETY_VIOLATION, Disposition.DEAD_LETTER
        return [
            PendingHandoff(
                handoff_id="h", seq=1, sender="a", receiver="b", reason=reason, fate=fate, details="", since=SINCE
            )
        ]

    @workflow.update(name=RESOLVE_HANDOFF)
    async def decide(self, decision: HandoffDecision) -> HandoffDecision:
        """Take the decision."""
        self._decided = decision
        return decision
