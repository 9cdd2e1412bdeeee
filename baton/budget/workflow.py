"""The budget of a running pipeline: reserved before a stage, charged by what it returns, settled after it."""

from collections.abc import Iterable

from pydantic import JsonValue

from baton.budget.billing import beyond_outcomes, carried_beyond, spent_in
from baton.budget.records import Budget, Shortage
from baton.core.history import Outcome, Spend
from baton.core.messages import PipelineInput, PipelineResult
from baton.core.stages import StageSpec
from baton.handoff.records import CostTracking
from baton.wire.money import MICRO_PER_USD

NO_LIMIT_MICRO_USD = 1_000_000 * MICRO_PER_USD
"""What a handoff says is left where a pipeline was given no budget."""


class BudgetAccount:
    """What a pipeline may spend, and has spent: retries, refused attempts, branches and children included.

    Attributes:
        budget: The budget now; plain data that survives replay, a pause and continuing as new.
        limited: Whether the pipeline was given a budget; without one nothing is ever refused.
    """

    def __init__(self, start: PipelineInput) -> None:
        self.limited = start.budget is not None
        self.budget = start.budget or Budget(initial_micro_usd=NO_LIMIT_MICRO_USD)
        self._continued = start.continued > 0 and self.limited  # then the budget came with what was spent
        if not self.limited:
            self.charge_unreserved("", beyond_outcomes(start))

    def shortage(self, spec: StageSpec) -> Shortage | None:
        """Return why a stage may not begin for want of money, or None."""
        return self.budget.shortage(spec.name, spec.reserve_micro_usd, closing=spec.closing) if self.limited else None

    def reserve(self, name: str, spec: StageSpec) -> None:
        """Set apart what a stage declared; a stage that takes more than was set apart is charged in full."""
        if self.shortage(spec) is None:
            self.budget = self.budget.reserve(name, spec.name, spec.reserve_micro_usd, closing=spec.closing)
        else:
            self.budget = self.budget.open_unreserved(name, spec.name)

    def charge(self, name: str, bill: str, spend: Spend) -> None:
        """Charge a bill to what was set apart; the same bill is charged once."""
        if spend:
            self.budget = self.budget.charge(name, bill, spend)

    def billed(self, spend: Spend) -> Spend | None:
        """Return what was charged in all, or None where that is what the accepted steps cost."""
        return None if self.budget.own == spend else self.budget.own

    def carried(self, outcomes: Iterable[Outcome]) -> dict[str, JsonValue]:
        """Return what the next run is to know of the money; a budget is handed on by itself."""
        return {} if self.limited else carried_beyond(self.budget.own.beyond(spent_in(outcomes)))

    def charge_unreserved(self, stage: str, spend: Spend) -> None:
        """Charge what was spent by something for which nothing is set apart."""
        self.budget = self.budget.charge_unreserved(stage, spend)

    def settle_child(self, seq: int, name: str, spend: Spend, *, topped_up_micro_usd: int = 0) -> None:
        """Charge a child's total cost and release what it did not use; credit the top-ups made to it first."""
        key = _of_child(seq, name)
        if topped_up_micro_usd:
            self.top_up(topped_up_micro_usd)
        if key not in self.budget.open:
            self.budget = self.budget.open_unreserved(key, name)
        self.charge(key, "child", spend)
        self.settle(key)

    def settle_child_result(self, seq: int, name: str, result: PipelineResult) -> None:
        """Charge what a child that completed cost, and continue with what it left."""
        spend = result.spend if result.billed is None else result.billed
        self.settle_child(seq, name, spend, topped_up_micro_usd=result.topped_up_micro_usd)

    def settle(self, name: str) -> None:
        """Give back what was set apart and not used."""
        self.budget = self.budget.settle(name)

    def top_up(self, micro_usd: int) -> None:
        """Put more money in."""
        self.budget = self.budget.top_up(micro_usd)

    def relay(self, cost: CostTracking, *, comes_back: bool, recorded: bool) -> None:
        """Go on with the money of the chain that a handoff brought, within what it says is left."""
        if recorded and self._continued:
            return
        self.budget = self.budget.relayed(cost, comes_back=comes_back)
        self.limited = self.limited or cost.spent_micro_usd + cost.remaining_micro_usd < NO_LIMIT_MICRO_USD

    def reserve_child(self, seq: int, name: str) -> Budget | None:
        """Return the budget of a child: all that is free now, which is set apart until the child ends.

        Another one of its name may run at the same time, as another step.
        """
        if not self.limited:
            return None
        free = self.budget.free_micro_usd
        if lack := self.budget.shortage(name, free):  # a limit may allow it less
            free = max(0, free - lack.missing_micro_usd)
        self.budget = self.budget.reserve(_of_child(seq, name), name, free) if free else self.budget
        return Budget(initial_micro_usd=free, then=self.budget.then)

    def charge_recorded(self, outcome: Outcome) -> None:
        """Charge what a step of an earlier run had cost, unless the budget came with that."""
        spend = spent_in([outcome])
        if not self._continued and spend:
            self.charge_unreserved(outcome.name, spend)


def _of_child(seq: int, name: str) -> str:
    """Return the name of a child's reservation."""
    return f"{seq}:{name}"
