"""The running budget of a pipeline: reserve before a stage, charge each attempt, settle afterwards."""

from pydantic import JsonValue

from baton.budget.billing import carry_unrecorded, spent_in, unrecorded_spend
from baton.core.budget import Budget, Shortage
from baton.core.costs import NO_LIMIT, CostTracking
from baton.core.history import Outcome, Spend
from baton.core.messages import PipelineInput, PipelineResult
from baton.core.stages import StageSpec


class BudgetAccount:
    """The budget of a running pipeline, if it has one; retries, rejected attempts, branches, children are charged."""

    def __init__(self, start: PipelineInput) -> None:
        self.limited = start.budget is not None
        self.budget = start.budget or Budget(initial_micro_usd=NO_LIMIT)
        self._continued = start.continued > 0 and self.limited  # then the budget includes what was spent
        if not self.limited:
            self.charge_unreserved("", unrecorded_spend(start))

    def shortage(self, spec: StageSpec) -> Shortage | None:
        """Return why a stage cannot be afforded, or None."""
        return self.budget.shortage(spec.name, spec.reserve_micro_usd, closing=spec.closing) if self.limited else None

    def reserve(self, name: str, spec: StageSpec) -> None:
        """Reserve what a stage declares; a stage that costs more is charged in full."""
        if self.shortage(spec) is None:
            self.budget = self.budget.reserve(name, spec.name, spec.reserve_micro_usd, closing=spec.closing)
        else:
            self.budget = self.budget.open_unreserved(name, spec.name)

    def charge(self, name: str, bill: str, spend: Spend) -> None:
        """Charge a bill to a reservation; charging it again has no effect."""
        if spend:
            self.budget = self.budget.charge(name, bill, spend)

    def billed(self, spend: Spend) -> Spend | None:
        """Return the total charged, or None if it equals ``spend``, the cost of the accepted steps."""
        return None if self.budget.own == spend else self.budget.own

    def carried(self, spend: Spend) -> dict[str, JsonValue]:
        """Return the state for the next run of a pipeline without a budget, whose recorded steps cost ``spend``."""
        return {} if self.limited else carry_unrecorded(self.budget.own.minus(spend))

    def charge_unreserved(self, stage: str, spend: Spend) -> None:
        """Charge spend that has no reservation, such as a lost attempt."""
        self.budget = self.budget.charge_unreserved(stage, spend)

    def settle_child(self, seq: int, name: str, spend: Spend, *, topped_up_micro_usd: int = 0) -> None:
        """Charge a child's total cost and release what it did not use; credit its top-ups first."""
        key = _child_key(seq, name)
        if topped_up_micro_usd:
            self.top_up(topped_up_micro_usd)
        if key not in self.budget.open:
            self.budget = self.budget.open_unreserved(key, name)
        self.charge(key, "child", spend)
        self.settle(key)

    def settle_child_result(self, seq: int, name: str, result: PipelineResult) -> None:
        """Settle a child that completed."""
        spend = result.spend if result.billed is None else result.billed
        self.settle_child(seq, name, spend, topped_up_micro_usd=result.topped_up_micro_usd)

    def settle(self, name: str) -> None:
        """Release what was reserved and not charged."""
        self.budget = self.budget.settle(name)

    def top_up(self, micro_usd: int) -> None:
        """Add money to the budget."""
        self.budget = self.budget.top_up(micro_usd)

    def relay(self, cost: CostTracking, *, comes_back: bool, recorded: bool) -> None:
        """Continue with the chain's budget from a handoff, unless a continued run has it already."""
        if recorded and self._continued:
            return
        self.budget = self.budget.relayed(cost, comes_back=comes_back)
        self.limited = self.limited or cost.has_limit

    def reserve_child(self, seq: int, name: str) -> Budget | None:
        """Reserve all that is free and return it as a child's budget, with one reservation for each step."""
        if not self.limited:
            return None
        free = self.budget.free_micro_usd
        if shortage := self.budget.shortage(name, free):  # the stage's limit may be lower
            free = max(0, free - shortage.missing_micro_usd)
        self.budget = self.budget.reserve(_child_key(seq, name), name, free) if free else self.budget
        return Budget(initial_micro_usd=free, then=self.budget.then)

    def charge_recorded(self, outcome: Outcome) -> None:
        """Charge the cost of a recorded step, unless the budget includes it."""
        spend = spent_in([outcome])
        if not self._continued and spend:
            self.charge_unreserved(outcome.name, spend)


def _child_key(seq: int, name: str) -> str:
    return f"{seq}:{name}"
