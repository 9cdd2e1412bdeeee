"""The budget of a whole chain of agents: reserve, charge, settle.

An amount is reserved before anything costs money, bills are charged as they arrive, and settling releases the rest. So
concurrent agents cannot spend the same money, retries are paid like first attempts, and a child or external agent gets
part of the budget. The record is plain data in whole millionths of a dollar, which survives replay, long pauses and
continue-as-new.
"""

from enum import StrEnum

from pydantic import Field

from baton.core.costs import CostTracking
from baton.core.history import Spend
from baton.wire.money import to_usd
from baton.wire.records import CompactRecord, Count, Name


class OnExhaustion(StrEnum):
    """What a pipeline does when its budget is used up."""

    PAUSE = "pause"
    """Wait for a person's top-up; the default."""
    WRAP_UP = "wrap_up"
    """Run only closing stages, with the money set aside for them."""
    STOP = "stop"
    """Fail the pipeline."""


class Reservation(CompactRecord):
    """Money that is reserved for a stage or child in progress.

    Attributes:
        stage: The stage.
        micro_usd: The reserved amount.
        charged: The names of the bills charged so far.
        charged_micro_usd: The sum of these bills.
    """

    stage: Name
    micro_usd: Count
    charged: list[Name] = Field(default_factory=list)
    charged_micro_usd: Count = 0

    @property
    def held_micro_usd(self) -> int:
        """The rest of the reservation."""
        return max(0, self.micro_usd - self.charged_micro_usd)


class Shortage(CompactRecord):
    """Why a stage cannot be afforded, in a sentence for people, and what to do then."""

    text: str
    missing_micro_usd: Count
    then: OnExhaustion = Field(strict=False)


class Budget(CompactRecord):
    """A budget with its reservations and charges; frozen, each change returns a new one.

    At any moment `spent_micro_usd + remaining_micro_usd == ceiling_micro_usd`.

    Attributes:
        initial_micro_usd: The initial amount of the chain, including what earlier pipelines spent.
        topped_up_micro_usd: What people added.
        set_aside_micro_usd: The amount for closing stages only, for `OnExhaustion.WRAP_UP`.
        then: What happens when the budget is used up.
        limits: The most that a stage may spend in all its attempts, by name.
        spent: What the chain has spent.
        before: The part of it that earlier pipelines spent.
        by_stage: What each stage with a limit has spent.
        open: The open reservations, by name.

    Example:
        >>> budget = Budget(initial_micro_usd=400_000).reserve("3", "extract", 100_000)
        >>> budget = budget.charge("3", "1", Spend(micro_usd=80_000)).settle("3")
        >>> budget.spent_micro_usd, budget.remaining_micro_usd, budget.free_micro_usd
        (80000, 320000, 320000)
    """

    initial_micro_usd: Count
    topped_up_micro_usd: Count = 0
    set_aside_micro_usd: Count = 0
    then: OnExhaustion = Field(default=OnExhaustion.PAUSE, strict=False)
    limits: dict[str, Count] = Field(default_factory=dict)
    spent: Spend = Spend()
    before: Spend = Spend()
    by_stage: dict[str, Count] = Field(default_factory=dict)
    open: dict[str, Reservation] = Field(default_factory=dict)

    @property
    def ceiling_micro_usd(self) -> int:
        """The total amount of the chain."""
        return self.initial_micro_usd + self.topped_up_micro_usd

    @property
    def spent_micro_usd(self) -> int:
        """What the chain has spent."""
        return self.spent.micro_usd

    @property
    def own(self) -> Spend:
        """What this pipeline has spent, without earlier ones of the chain."""
        return self.spent.minus(self.before)

    @property
    def remaining_micro_usd(self) -> int:
        """The rest, reservations included; negative if bills exceeded the budget."""
        return self.ceiling_micro_usd - self.spent_micro_usd

    @property
    def free_micro_usd(self) -> int:
        """The amount for new work, neither reserved nor set aside; never negative."""
        return max(0, self._uncommitted() - self.set_aside_micro_usd)

    def shortage(self, stage: str, micro_usd: int = 0, *, closing: bool = False) -> Shortage | None:
        """Return why a stage cannot be afforded, or None.

        Example:
            >>> shortage = Budget(initial_micro_usd=50_000).shortage("extract", 60_000)
            >>> shortage.missing_micro_usd, shortage.then.value
            (10000, 'pause')
        """
        needed = max(1, micro_usd)
        free = max(0, self._uncommitted()) if closing else self.free_micro_usd
        then = OnExhaustion.STOP if closing and self.then is OnExhaustion.WRAP_UP else self.then
        if needed > free:
            text = f"{stage!r} needs {to_usd(needed)} USD of the budget and {to_usd(free)} USD are free"
            return Shortage(text=text, missing_micro_usd=needed - free, then=then)
        allowed = self.limits.get(stage)
        committed = self.by_stage.get(stage, 0) + self._reserved(stage)
        if allowed is not None and committed + needed > allowed:
            text = f"{stage!r} may spend {to_usd(allowed)} USD and has spent or reserved {to_usd(committed)} USD"
            return Shortage(text=text, missing_micro_usd=committed + needed - allowed, then=then)
        return None

    def reserve(self, name: str, stage: str, micro_usd: int = 0, *, closing: bool = False) -> "Budget":
        """Return the budget with a reservation."""
        if name in self.open:
            raise ValueError(f"{name!r} is already reserved; settle it first")
        if shortage := self.shortage(stage, micro_usd, closing=closing):
            raise ValueError(f"{shortage.text}; call shortage() first")
        return self._with(open={**self.open, name: Reservation(stage=stage, micro_usd=micro_usd)})

    def open_unreserved(self, name: str, stage: str) -> "Budget":
        """Return the budget with an empty reservation, for work that cannot be afforded but is charged."""
        return self._with(open={**self.open, name: Reservation(stage=stage, micro_usd=0)})

    def charge(self, name: str, bill: str, spend: Spend) -> "Budget":
        """Return the budget with a bill charged to a reservation, in full even if less was reserved.

        Charging a bill of the same name again has no effect.
        """
        reservation = self._reservation(name)
        if bill in reservation.charged:
            return self
        bills, total = [*reservation.charged, bill], reservation.charged_micro_usd + spend.micro_usd
        updated = reservation.model_copy(update={"charged": bills, "charged_micro_usd": total})
        return self.charge_unreserved(reservation.stage, spend)._with(open={**self.open, name: updated})

    def charge_unreserved(self, stage: str, spend: Spend) -> "Budget":
        """Return the budget with a bill that has no reservation, such as that of a lost attempt."""
        by_stage = self.by_stage
        if stage in self.limits:
            by_stage = {**by_stage, stage: by_stage.get(stage, 0) + spend.micro_usd}
        return self._with(spent=self.spent + spend, by_stage=by_stage)

    def refund(self, stage: str, spend: Spend) -> "Budget":
        """Return the budget without a bill that `charge_unreserved` charged.

        Example:
            >>> bill = Spend(micro_usd=80_000)
            >>> start = Budget(initial_micro_usd=400_000)
            >>> start.charge_unreserved("a", bill).refund("a", bill) == start
            True
        """
        by_stage = self.by_stage
        if stage in by_stage:
            by_stage = {**by_stage, stage: max(0, by_stage[stage] - spend.micro_usd)}
        return self._with(spent=self.spent.minus(spend), by_stage=by_stage)

    def closed(self) -> "Budget":
        """Return the budget without reservations, for a run that starts with it."""
        return self._with(open={})

    def settle(self, name: str) -> "Budget":
        """Return the budget without a reservation, releasing what was not charged."""
        self._reservation(name)
        return self._with(open={key: reservation for key, reservation in self.open.items() if key != name})

    def top_up(self, micro_usd: int) -> "Budget":
        """Return the budget with a top-up."""
        if micro_usd <= 0:
            raise ValueError(f"a top-up of {micro_usd} millionths of a dollar; expected more than zero")
        return self._with(topped_up_micro_usd=self.topped_up_micro_usd + micro_usd)

    def relayed(self, cost: CostTracking, *, comes_back: bool = False) -> "Budget":
        """Return the budget of a pipeline that continues the sender's budget from a handoff.

        The rest is the smaller of the handoff's and this budget's.

        Example:
            >>> sent = Budget(initial_micro_usd=400_000).charge_unreserved("a", Spend(micro_usd=80_000))
            >>> received = Budget(initial_micro_usd=900_000).relayed(sent.cost_tracking())
            >>> received = received.charge_unreserved("b", Spend(micro_usd=5_000))
            >>> received.spent_micro_usd, received.own.micro_usd, received.free_micro_usd
            (85000, 5000, 315000)
        """
        others = self.before + (cost.spent.minus(self.own) if comes_back else cost.spent).minus(self.before)
        spent = self.own + others
        ceiling = spent.micro_usd + min(self.remaining_micro_usd, cost.remaining_micro_usd)
        topped_up = min(self.topped_up_micro_usd, max(0, ceiling))
        changes = {"initial_micro_usd": ceiling - topped_up, "topped_up_micro_usd": topped_up}
        return Budget.model_validate({**dict(self), **changes, "spent": spent, "before": others})

    def cost_tracking(self) -> CostTracking:
        """Return the amounts for a handoff; spent and remaining add up to the ceiling."""
        return CostTracking.of(self.spent, self.remaining_micro_usd)

    def _with(self, **changes: object) -> "Budget":
        """Return a changed copy without validation."""
        return self.model_copy(update=changes)

    def _uncommitted(self) -> int:
        """Return the rest that is not reserved."""
        return self.remaining_micro_usd - sum(reservation.held_micro_usd for reservation in self.open.values())

    def _reserved(self, stage: str) -> int:
        return sum(reservation.held_micro_usd for reservation in self.open.values() if reservation.stage == stage)

    def _reservation(self, name: str) -> Reservation:
        if name not in self.open:
            raise ValueError(f"nothing is reserved under {name!r}; reserve first, settle last")
        return self.open[name]
