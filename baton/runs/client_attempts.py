"""The attempts of a run's stages, and the branches of its steps: when each began and ended, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from baton.core.history import Spend
from baton.core.lab import LabReport
from baton.core.messages import StageInput, StageReturn
from baton.runs.client_record import RunRecord, Step, StepStatus

NOTHING = Spend()


@dataclass(frozen=True)
class StageAttempt:
    """One attempt of a stage, as an activity of the history.

    Attributes:
        sent: Its input.
        scheduled: When the pipeline sent it.
        began: When a worker began its last try; None before that try has ended, since the history tells it only then.
        ended: When it ended; None while it is open.
        tries: How often a worker tried it.
        returned: What it returned, if it did.
        failure: Why it failed; empty if it did not.
        spend: What it cost, also if it was refused or failed.
        lab: What it reported of its run in the lab, also if it failed.
    """

    sent: StageInput
    scheduled: datetime
    began: datetime | None = None
    ended: datetime | None = None
    tries: int = 1
    returned: StageReturn | None = None
    failure: str = ""
    spend: Spend = NOTHING
    lab: LabReport | None = None

    def begin(self, at: datetime, tries: int) -> "StageAttempt":
        """Return it begun by a worker."""
        return replace(self, began=at, tries=tries)

    def end(
        self, at: datetime, returned: StageReturn | None, failure: str, spend: Spend, lab: LabReport | None = None
    ) -> "StageAttempt":
        """Return it ended: by what it returned, or by a failure and what was spent until then."""
        if returned is None:
            return replace(self, ended=at, failure=failure, spend=spend, lab=lab)
        return replace(self, ended=at, returned=returned, spend=returned.spend, lab=returned.lab)

    @property
    def seconds(self) -> float:
        """How long its last try took; 0 while it is open."""
        began = self.began or self.scheduled
        return ((self.ended or began) - began).total_seconds()

    @property
    def findings(self) -> list[str]:
        """Why it was refused by its worker; empty if it was not. The pipeline may have refused it all the same."""
        if self.returned is None:
            return []
        verdict = self.returned.verdict
        return self.returned.findings if verdict is None else [f"{verdict.reason}: {verdict.details}"]


@dataclass(frozen=True)
class Branch:
    """One stage of a step: the stage itself, a branch of a fan-out, or an item of a map.

    Attributes:
        title: The name of the step, or of the branch or item.
        status: Whether it runs, is done or failed.
        attempts: Its attempts, in order.
        ended: When its last attempt ended, or its step; None while it runs.
    """

    title: str
    status: StepStatus
    attempts: Sequence[StageAttempt]
    ended: datetime | None

    @property
    def began(self) -> datetime:
        """When its first attempt was sent."""
        return self.attempts[0].scheduled

    @property
    def spend(self) -> Spend:
        """What all its attempts cost."""
        return reduce(Spend.__add__, (attempt.spend for attempt in self.attempts))

    @property
    def failure(self) -> str:
        """Why its last attempt failed or was refused; empty if it did not and was not."""
        last = self.attempts[-1]
        return last.failure or "; ".join(last.findings)


def find_branches(run: RunRecord) -> dict[int, list[Branch]]:
    """Return the stages of each step by its number, in the order in which they were sent.

    A step that a fork reused, or that is not a stage, has none.

    Args:
        run: The run.
    """
    attempts: dict[tuple[int, str], list[StageAttempt]] = {}
    for attempt in run.attempts.values():
        attempts.setdefault((attempt.sent.seq, attempt.sent.title), []).append(attempt)
    steps = {step.seq: step for step in run.steps}
    branches: dict[int, list[Branch]] = {}
    for (seq, title), own in attempts.items():
        if (step := steps.get(seq)) is not None:
            branches.setdefault(seq, []).append(_branch(step, title, own))
    return branches


def _branch(step: Step, title: str, attempts: Sequence[StageAttempt]) -> Branch:
    """Return a branch; a step that ended has ended its branches, whatever became of them."""
    last = attempts[-1]
    ended = last.ended or step.ended
    if last.failure or (last.ended is None and step.status is StepStatus.FAILED):
        status = StepStatus.FAILED
    elif last.ended is None and step.ended is None:
        status = StepStatus.RUNNING
    elif last.findings:
        status = step.status if step.status is not StepStatus.DONE else StepStatus.FAILED
        ended = None if status is StepStatus.RUNNING else ended
    else:
        status = StepStatus.DONE
    return Branch(title, status, attempts, ended)
