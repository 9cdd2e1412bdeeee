"""What a task has cost, and may still cost, as messages say it."""

from typing import Self

from pydantic import Field

from baton.core.history import Spend
from baton.wire.money import MICRO_PER_USD, Usd, UsdSpent, to_micro_usd, to_usd
from baton.wire.records import Count, OpenRecord

NO_LIMIT = 1_000_000 * MICRO_PER_USD
"""What messages say is left without a budget, in millionths of a US dollar, because their schema wants a number.

Readers take a message for one without a budget if spent and remaining amount to this or more.
"""


class TokenSpent(OpenRecord):
    """Tokens that the task has used so far.

    Attributes:
        prompt: Tokens that models read.
        completion: Tokens that models wrote.
    """

    prompt: Count
    completion: Count


class CostTracking(OpenRecord):
    """The cost of the task so far and the remaining budget; they add up to the budget.

    Attributes:
        cost_spent_so_far_usd: Spent since the task began, US dollars; it only grows.
        cost_budget_remaining_usd: What is left, US dollars; at or below zero it may not be executed. It says nothing
            unless `has_limit`.
        token_spent: Tokens used since the task began.
    """

    cost_spent_so_far_usd: UsdSpent = Field(alias="costSpentSoFarUSD")
    cost_budget_remaining_usd: Usd = Field(alias="costBudgetRemainingUSD")
    token_spent: TokenSpent

    @classmethod
    def of(cls, spent: Spend, remaining_micro_usd: int) -> Self:
        """Return the amounts as a message says them."""
        return cls(
            cost_spent_so_far_usd=to_usd(spent.micro_usd),
            cost_budget_remaining_usd=to_usd(remaining_micro_usd),
            token_spent=TokenSpent(prompt=spent.prompt_tokens, completion=spent.completion_tokens),
        )

    @property
    def spent(self) -> Spend:
        """What the task has cost so far."""
        return Spend(
            micro_usd=self.spent_micro_usd,
            prompt_tokens=self.token_spent.prompt,
            completion_tokens=self.token_spent.completion,
        )

    @property
    def has_limit(self) -> bool:
        """Whether the task has a budget."""
        return self.spent_micro_usd + self.remaining_micro_usd < NO_LIMIT

    def after(self, spend: Spend) -> "CostTracking":
        """Return the amounts with an agent's own cost deducted."""
        return CostTracking.of(self.spent + spend, self.remaining_micro_usd - spend.micro_usd) if spend else self

    @property
    def spent_micro_usd(self) -> int:
        """What was spent, in millionths of a US dollar."""
        return to_micro_usd(self.cost_spent_so_far_usd)

    @property
    def remaining_micro_usd(self) -> int:
        """What is left, in millionths of a US dollar."""
        return to_micro_usd(self.cost_budget_remaining_usd)
