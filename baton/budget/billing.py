"""What a run was billed before it started, beyond its recorded outcomes.

An outcome has the cost of a step's accepted attempt. Rejected attempts, corrections of a handoff, and failed stages and
children cost money as well; a continued or forked run knows their sum.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from baton.core.budget import Budget
from baton.core.history import Outcome, Spend, StepKind
from baton.core.messages import PipelineInput, StageReturn

_CARRIED = "budget"  # the member of `PipelineInput.carried`
_UNRECORDED = "unrecorded"


@dataclass(frozen=True)
class Bill:
    """A charge, as recorded in the event history.

    Attributes:
        seq: The step's number.
        stage: The stage; empty for a compression.
        spend: The cost.
        event: The event that has it.
        at: When.
        elsewhere: Whether another run's history records it too.
        returned: What the stage returned; None if it failed, or is not a stage.
    """

    seq: int
    stage: str
    spend: Spend
    event: int
    at: datetime | None = None
    elsewhere: bool = False
    returned: StageReturn | None = None


def spent_in(outcomes: Iterable[Outcome]) -> Spend:
    """Return the cost of outcomes, without edits, which are not steps."""
    entries = (entry for outcome in outcomes if outcome.kind is not StepKind.EDIT for entry in outcome.entries)
    return sum((entry.spend for entry in entries), start=Spend())


def unrecorded_spend(start: PipelineInput) -> Spend:
    """Return what a run without a budget was billed before it started, beyond its outcomes."""
    budget: Any = start.carried.get(_CARRIED, {})
    return Spend.model_validate(budget.get(_UNRECORDED, {}))


def carry_unrecorded(spend: Spend) -> dict[str, JsonValue]:
    """Return that sum as a member of `PipelineInput.carried` for the next run."""
    return {_CARRIED: {_UNRECORDED: spend.model_dump(mode="json")}} if spend else {}


def billed_before(start: PipelineInput) -> Spend:
    """Return what a run was billed before it executes its first own step."""
    if start.budget is None:
        return spent_in(start.outcomes) + unrecorded_spend(start)
    return start.budget.own if start.continued else spent_in(start.outcomes) + start.budget.own


def forked_budget(
    start: PipelineInput, bills: Iterable[Bill], outcomes: Sequence[Outcome], topped_up_micro_usd: int
) -> tuple[Budget | None, dict[str, JsonValue]]:
    """Return the budget and the carried member of a fork: all bills, minus those of the outcomes that it reuses.

    Top-ups before the step are kept.
    """
    known_seqs = {outcome.seq for outcome in start.outcomes}
    budget = start.budget or Budget(initial_micro_usd=0, spent=unrecorded_spend(start))
    included = start.outcomes if start.budget is not None and start.continued else []
    for outcome in included:
        budget = budget.refund(outcome.name, spent_in([outcome]))
    for bill in bills:
        budget = budget.charge_unreserved(bill.stage, bill.spend)
    for outcome in outcomes:
        if outcome.seq not in known_seqs:
            budget = budget.refund(outcome.name, spent_in([outcome]))
    if start.budget is None:
        return None, carry_unrecorded(budget.spent)
    if added := topped_up_micro_usd - budget.topped_up_micro_usd:
        budget = budget.top_up(added)
    return budget.closed(), {}
