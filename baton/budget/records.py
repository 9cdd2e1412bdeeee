"""The budget relay: one budget for a whole chain of agents, kept by reservation and settlement.

Before anything costs money, an amount is reserved; what it really cost is charged bill by bill, and settling gives
the rest back. So agents that run at the same time cannot spend the same money twice, a retry is paid like a first
attempt, and a child or an outside agent is given a part of the budget and not the whole. The record is plain data
in whole millionths of a dollar: it survives replay, a pause of weeks and continue-as-new without losing any.
"""

from enum import StrEnum

from pydantic import Field

from baton.core.history import Spend
from baton.handoff.records import CostTracking, TokenSpent
from baton.wire.money import to_usd
from baton.wire.records import CompactRecord, Count, Name


class OnExhaustion(StrEnum):
    """What a pipeline declares to do when its budget is used up."""

    PAUSE = "pause"
    """Wait, and ask a person for more; the default."""
    WRAP_UP = "wrap_up"
    """Run only stages that close the work, out of what was set aside for them."""
    STOP = "stop"
    """Fail the pipeline."""


class Reservation(CompactRecord):
    """Money that is set apart for something under way.

    Attributes:
        stage: The stage that it is for.
        micro_usd: How much was set apart.
        charged: Which bills came in so far.
        charged_micro_usd: What they amount to.
    """

    stage: Name
    micro_usd: Count
    charged: list[Name] = Field(default_factory=list)
    charged_micro_usd: Count = 0

    @property
    def held_micro_usd(self) -> int:
        """What is still set apart."""
        return max(0, self.micro_usd - self.charged_micro_usd)


class Shortage(CompactRecord):
    """Why something may not begin for want of money, and what was declared for that.

    Attributes:
        text: A sentence for people.
        missing_micro_usd: How much more would do.
        then: What to do.
    """

    text: str
    missing_micro_usd: Count
    then: OnExhaustion = Field(strict=False)


class Budget(CompactRecord):
    """A budget and everything that was reserved and charged; frozen, each change makes a new one.

    At any moment `spent_micro_usd + remaining_micro_usd == ceiling_micro_usd`.

    Attributes:
        initial_micro_usd: What the chain was given, what others had spent before included.
        topped_up_micro_usd: What people added since.
        set_aside_micro_usd: What only closing stages may use, for `OnExhaustion.WRAP_UP`.
        then: What happens when it is used up.
        limits: The most that a stage may spend in all its attempts, by name.
        spent: What was charged, and what others of the chain had spent before.
        before: What of it others had spent.
        by_stage: What each stage with a limit has spent.
        open: What is under way, by the name given to `reserve`.

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
        """All the money there is for the chain."""
        return self.initial_micro_usd + self.topped_up_micro_usd

    @property
    def spent_micro_usd(self) -> int:
        """What was charged so far."""
        return self.spent.micro_usd

    @property
    def own(self) -> Spend:
        """What was charged here, without what others of the chain had spent."""
        return self.spent.beyond(self.before)

    @property
    def remaining_micro_usd(self) -> int:
        """What is left, reservations not counted; below zero once bills were higher than what was reserved."""
        return self.ceiling_micro_usd - self.spent_micro_usd

    @property
    def free_micro_usd(self) -> int:
        """What is left for something new: neither reserved nor set aside; never below zero."""
        return max(0, self._uncommitted() - self.set_aside_micro_usd)

    def shortage(self, stage: str, micro_usd: int = 0, *, closing: bool = False) -> Shortage | None:
        """Return why a stage may not begin, or None if there is money for it.

        Example:
            >>> lack = Budget(initial_micro_usd=50_000).shortage("extract", 60_000)
            >>> lack.missing_micro_usd, lack.then.value
            (10000, 'pause')
        """
        wanted = max(1, micro_usd)
        free = max(0, self._uncommitted()) if closing else self.free_micro_usd
        then = OnExhaustion.STOP if closing and self.then is OnExhaustion.WRAP_UP else self.then
        if wanted > free:
            text = f"{stage!r} needs {to_usd(wanted)} USD of the budget and {to_usd(free)} USD are free"
            return Shortage(text=text, missing_micro_usd=wanted - free, then=then)
        allowed = self.limits.get(stage)
        committed = self.by_stage.get(stage, 0) + self._held(stage)
        if allowed is not None and committed + wanted > allowed:
            text = f"{stage!r} may spend {to_usd(allowed)} USD and has spent or reserved {to_usd(committed)} USD"
            return Shortage(text=text, missing_micro_usd=committed + wanted - allowed, then=then)
        return None

    def reserve(self, name: str, stage: str, micro_usd: int = 0, *, closing: bool = False) -> "Budget":
        """Return the budget with money set apart for something that is about to begin."""
        if name in self.open:
            raise ValueError(f"{name!r} is reserved already; settle it first")
        if lack := self.shortage(stage, micro_usd, closing=closing):
            raise ValueError(f"{lack.text}; ask shortage() first")
        return self._with(open={**self.open, name: Reservation(stage=stage, micro_usd=micro_usd)})

    def open_unreserved(self, name: str, stage: str) -> "Budget":
        """Return the budget with something under way for which nothing could be set apart; its bills still count."""
        return self._with(open={**self.open, name: Reservation(stage=stage, micro_usd=0)})

    def charge(self, name: str, bill: str, spend: Spend) -> "Budget":
        """Return the budget after a bill, charged in full even if less was reserved: it is a fact.

        The bill is named within its reservation; one that is charged already changes nothing.
        """
        held = self._reservation(name)
        if bill in held.charged:
            return self
        charged = {"charged": [*held.charged, bill], "charged_micro_usd": held.charged_micro_usd + spend.micro_usd}
        grown = held.model_copy(update=charged)
        return self.charge_unreserved(held.stage, spend)._with(open={**self.open, name: grown})

    def charge_unreserved(self, stage: str, spend: Spend) -> "Budget":
        """Return the budget after a bill for which nothing is reserved any more, such as one of a lost attempt."""
        by_stage = self.by_stage
        if stage in self.limits:
            by_stage = {**by_stage, stage: by_stage.get(stage, 0) + spend.micro_usd}
        return self._with(spent=self.spent + spend, by_stage=by_stage)

    def refund(self, stage: str, spend: Spend) -> "Budget":
        """Return the budget without a bill that `charge_unreserved` had charged.

        Example:
            >>> bill = Spend(micro_usd=80_000)
            >>> start = Budget(initial_micro_usd=400_000)
            >>> start.charge_unreserved("a", bill).refund("a", bill) == start
            True
        """
        by_stage = self.by_stage
        if stage in by_stage:
            by_stage = {**by_stage, stage: max(0, by_stage[stage] - spend.micro_usd)}
        return self._with(spent=self.spent.beyond(spend), by_stage=by_stage)

    def closed(self) -> "Budget":
        """Return the budget with nothing under way, for a run that begins with it."""
        return self._with(open={})

    def settle(self, name: str) -> "Budget":
        """Return the budget once something is over; what was reserved and not charged is free again."""
        self._reservation(name)
        return self._with(open={other: held for other, held in self.open.items() if other != name})

    def top_up(self, micro_usd: int) -> "Budget":
        """Return the budget with more money in it."""
        if micro_usd <= 0:
            raise ValueError(f"a top-up of {micro_usd} millionths of a dollar; it must be above zero")
        return self._with(topped_up_micro_usd=self.topped_up_micro_usd + micro_usd)

    def relayed(self, cost: CostTracking, *, comes_back: bool = False) -> "Budget":
        """Return the budget of a pipeline that receives the chain's money with a handoff: it continues the sender's.

        No more is left than the handoff says, nor than there was.

        Example:
            >>> sent = Budget(initial_micro_usd=400_000).charge_unreserved("a", Spend(micro_usd=80_000))
            >>> mine = Budget(initial_micro_usd=900_000).relayed(sent.cost_tracking())
            >>> mine = mine.charge_unreserved("b", Spend(micro_usd=5_000))
            >>> mine.spent_micro_usd, mine.own.micro_usd, mine.free_micro_usd
            (85000, 5000, 315000)
        """
        tokens = cost.token_spent
        chain = Spend(micro_usd=cost.spent_micro_usd, prompt_tokens=tokens.prompt, completion_tokens=tokens.completion)
        others = self.before + (chain.beyond(self.own) if comes_back else chain).beyond(self.before)
        spent = self.own + others
        ceiling = spent.micro_usd + min(self.remaining_micro_usd, cost.remaining_micro_usd)
        topped_up = min(self.topped_up_micro_usd, max(0, ceiling))
        changes = {"initial_micro_usd": ceiling - topped_up, "topped_up_micro_usd": topped_up}
        return Budget.model_validate({**dict(self), **changes, "spent": spent, "before": others})

    def cost_tracking(self) -> CostTracking:
        """Return the figures that a handoff carries; spent and left together are the ceiling."""
        tokens = TokenSpent(prompt=self.spent.prompt_tokens, completion=self.spent.completion_tokens)
        return CostTracking(
            cost_spent_so_far_usd=to_usd(self.spent_micro_usd),
            cost_budget_remaining_usd=to_usd(self.remaining_micro_usd),
            token_spent=tokens,
        )

    def _with(self, **changes: object) -> "Budget":
        """Return a changed copy; the rules above keep it valid."""
        return self.model_copy(update=changes)

    def _uncommitted(self) -> int:
        """Return what is left and not reserved."""
        return self.remaining_micro_usd - sum(held.held_micro_usd for held in self.open.values())

    def _held(self, stage: str) -> int:
        """Return what is set apart for a stage."""
        return sum(held.held_micro_usd for held in self.open.values() if held.stage == stage)

    def _reservation(self, name: str) -> Reservation:
        if name not in self.open:
            raise ValueError(f"nothing is reserved under {name!r}; reserve first, settle last")
        return self.open[name]
