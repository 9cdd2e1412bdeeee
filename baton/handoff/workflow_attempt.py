"""A handoff to a stage on its way, with all that its attempts have left behind."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from baton.core.history import Spend
from baton.core.messages import StageInput, StageReturn
from baton.core.stages import StageSpec
from baton.errors import StageFailedError
from baton.handoff.records import Handoff


class StageExecutionError(StageFailedError):
    """A stage raised for good, or a child failed.

    Attributes:
        spend: What it had charged by then, in all its runs, as far as it told.
        is_outage: Whether it did not begin because the ledger could not be written.
        is_unknown: Whether it did not begin because its worker does not have the stage.
        topped_up_micro_usd: What people had added to the budget of a child.
    """

    def __init__(
        self,
        message: str,
        spend: Spend,
        *,
        is_outage: bool = False,
        is_unknown: bool = False,
        topped_up_micro_usd: int = 0,
    ) -> None:
        super().__init__(message)
        self.spend = spend
        self.is_outage = is_outage
        self.is_unknown = is_unknown
        self.topped_up_micro_usd = topped_up_micro_usd


@dataclass
class OutgoingHandoff:
    """One handoff on its way: from the sender's checkpoint until a receiver has accepted it.

    Attributes:
        spec: The receiving stage.
        given: Its input but for the baton.
        handoff_id: Names the handoff in all its attempts.
        receivers: Of a fan-out, all its stages.
        sent: How often it was sent.
        asked: How often a person was asked about it.
        outages: How often its stage could not begin for want of the ledger.
        unknown: How often its stage was given to a worker that does not have it.
        rejected: How often it was not accepted and its sender was to correct it.
        expired: How often its contract had expired when the receiver looked.
        corrected: What its sender answered meanwhile, to be recorded once the handoff is accepted.
        message: The message that was sent last.
        task_queue: Where the receiver's workers listen, or None for the pipeline's own queue.
    """

    spec: StageSpec
    given: StageInput
    handoff_id: str
    receivers: Sequence[str] = ()
    sent: int = 0
    asked: int = 0
    outages: int = 0
    unknown: int = 0
    rejected: int = 0
    expired: int = 0
    corrected: list[StageReturn] = field(default_factory=list)
    message: Handoff | None = None
    task_queue: str | None = None

    @property
    def key(self) -> str:
        """The name of its reservation in the budget."""
        return f"{self.given.seq}:{self.spec.name}"
