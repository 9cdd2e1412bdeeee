"""What a run that takes over recorded outcomes was billed before, beyond what those outcomes tell.

An outcome tells what the accepted attempt of a step cost. Refused attempts, runs that correct a handoff, stages and
children that failed were paid as well: a run that continues another one, or is forked from it, knows their sum.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from baton.budget.records import Budget
from baton.core.history import Outcome, Spend, StepKind
from baton.core.messages import PipelineInput

_CARRIED = "budget"  # the member of `PipelineInput.carried`
_BEYOND = "beyond"


@dataclass(frozen=True)
class Bill:
    """Something that was charged, as the event history tells of it.

    Attributes:
        seq: The number of the step for which it was charged.
        stage: The stage, or the child.
        spend: How much.
        event: The event that tells of it.
        at: When that was.
        models: What of it each model cost, as far as the stage said.
        elsewhere: Whether another run's history tells it too: that of a child, or of a run that was rolled back.
    """

    seq: int
    stage: str
    spend: Spend
    event: int
    at: datetime | None = None
    models: Mapping[str, Spend] = field(default_factory=dict)
    elsewhere: bool = False


def spent_in(outcomes: Iterable[Outcome]) -> Spend:
    """Return what a run charges that takes over these outcomes; edits are not steps."""
    entries = (entry for one in outcomes if one.kind is not StepKind.EDIT for entry in one.entries)
    return sum((entry.spend for entry in entries), start=Spend())


def beyond_outcomes(start: PipelineInput) -> Spend:
    """Return what a run without a budget was billed before it began, beyond what its outcomes tell."""
    told: Any = start.carried.get(_CARRIED, {})
    return Spend.model_validate(told.get(_BEYOND, {}))


def carried_beyond(beyond: Spend) -> dict[str, JsonValue]:
    """Return the member of `PipelineInput.carried` that tells it to the next run."""
    return {_CARRIED: {_BEYOND: beyond.model_dump(mode="json")}} if beyond else {}


def billed_before(start: PipelineInput) -> Spend:
    """Return what a run was billed for all that it takes over, by the time it executes a step by itself."""
    if start.budget is None:
        return spent_in(start.outcomes) + beyond_outcomes(start)
    return start.budget.own if start.continued else spent_in(start.outcomes) + start.budget.own


def forked_budget(
    start: PipelineInput, bills: Iterable[Bill], kept: Sequence[Outcome]
) -> tuple[Budget | None, dict[str, JsonValue]]:
    """Return the budget of a fork, and what it is to carry: what was charged, but for what it charges by itself."""
    taken = {one.seq for one in start.outcomes}
    budget = start.budget or Budget(initial_micro_usd=0, spent=beyond_outcomes(start))
    known = start.outcomes if start.budget is not None and start.continued else []
    for outcome in known:
        budget = budget.refund(outcome.name, spent_in([outcome]))
    for bill in bills:
        budget = budget.charge_unreserved(bill.stage, bill.spend)
    for outcome in kept:
        if outcome.seq not in taken:
            budget = budget.refund(outcome.name, spent_in([outcome]))
    return (None, carried_beyond(budget.spent)) if start.budget is None else (budget.closed(), {})
