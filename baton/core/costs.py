"""What a task has cost, and may still cost, as messages say it."""

from pydantic import Field

from baton.wire.money import Usd, UsdSpent, to_micro_usd
from baton.wire.records import Count, OpenRecord


class TokenSpent(OpenRecord):
    """Tokens that the task has used so far.

    Attributes:
        prompt: Tokens that models read.
        completion: Tokens that models wrote.
    """

    prompt: Count
    completion: Count


class CostTracking(OpenRecord):
    """What the task has cost up to this handoff, and what is left; together always the budget.

    Attributes:
        cost_spent_so_far_usd: Spent since the task began, US dollars; it only grows.
        cost_budget_remaining_usd: What is left, US dollars; at or below zero it may not be executed.
        token_spent: Tokens used since the task began.
    """

    cost_spent_so_far_usd: UsdSpent = Field(alias="costSpentSoFarUSD")
    cost_budget_remaining_usd: Usd = Field(alias="costBudgetRemainingUSD")
    token_spent: TokenSpent

    @property
    def spent_micro_usd(self) -> int:
        """What was spent, in millionths of a US dollar."""
        return to_micro_usd(self.cost_spent_so_far_usd)

    @property
    def remaining_micro_usd(self) -> int:
        """What is left, in millionths of a US dollar."""
        return to_micro_usd(self.cost_budget_remaining_usd)
