"""The declared plan of a pipeline: which of its steps are left, for the receiver of a handoff.

A plan informs and binds nothing: the pipeline's code decides what runs, and a step outside of the plan is allowed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from baton.core.history import Outcome, StepKind
from baton.core.stages import HasSpec, spec_of
from baton.wire.json_values import has_lone_surrogate
from baton.wire.records import has_text

PlanEntry: TypeAlias = str | HasSpec | tuple[str | HasSpec, str]
"""A step of a plan: its name, or a stage; with a description, if its name or the stage's task is not enough."""

MAX_PLAN = 50
"""The most steps of a plan; every handoff carries those that are left."""
MAX_PLANNED_LENGTH = 200
"""The most characters of a planned step's name, and of its description."""


@dataclass(frozen=True)
class Planned:
    """A step of a plan.

    Attributes:
        number: Its place in the plan, from 1.
        name: The step's name, or its stage's.
        description: What it is to do.
    """

    number: int
    name: str
    description: str


def read_plan(entries: Iterable[PlanEntry]) -> list[Planned]:
    """Return the steps of a plan.

    Raises:
        TypeError: The plan is a text, or an entry is neither a name nor a stage.
        ValueError: There are too many steps, or a name or description is blank or too long.

    Example:
        >>> [step.description for step in read_plan(["research", ("write", "Write 300 words")])]
        ['research', 'Write 300 words']
    """
    if isinstance(entries, str):
        raise TypeError(f"plan={entries!r} is one text; write plan=[{entries!r}]")
    planned = []
    for number, entry in enumerate(entries, 1):
        named, description = entry if isinstance(entry, tuple) else (entry, None)
        name, task = (named, None) if isinstance(named, str) else (spec_of(named).name, spec_of(named).task)
        text = (task or name)[:MAX_PLANNED_LENGTH] if description is None else description
        for value in (name, text):
            if not has_text(value) or len(value) > MAX_PLANNED_LENGTH or has_lone_surrogate(value):
                raise ValueError(
                    f"step {number} of the plan has {value[:40]!r}; expected text of 1 to {MAX_PLANNED_LENGTH} "
                    "characters, without half a surrogate pair"
                )
        planned.append(Planned(number, name, text))
    if len(planned) > MAX_PLAN:
        raise ValueError(f"the plan has {len(planned)} steps; at most {MAX_PLAN}: name the larger parts of the work")
    return planned


class Plan:
    """The plan of a run. What is left follows from the recorded outcomes, so a continued or forked run knows it."""

    def __init__(self, entries: Iterable[PlanEntry], outcomes: Sequence[Outcome]) -> None:
        """Keep the plan.

        Args:
            entries: Its steps.
            outcomes: The outcomes of the run, which grow.
        """
        self._open = read_plan(entries)
        self._outcomes = outcomes
        self._read = 0

    def remaining(self, name: str, stage: str) -> tuple[Planned | None, list[Planned]]:
        """Return the entry of the step that begins now, if the plan has it, and all others that are left.

        Args:
            name: The step's name.
            stage: Its stage's name.
        """
        for outcome in self._outcomes[self._read :]:
            for names in _finished(outcome):
                if done := self._find(*names):
                    self._open.remove(done)
        self._read = len(self._outcomes)
        current = self._find(name, stage)
        return current, [planned for planned in self._open if planned is not current]

    def _find(self, *names: str | None) -> Planned | None:
        """Return the first open step with the first of the names that any has."""
        matches = (planned for name in names for planned in self._open if planned.name == name)
        return next(matches, None)


def _finished(outcome: Outcome) -> Iterator[tuple[str, str | None]]:
    """Yield the name and the stage of each planned step that an outcome may complete: of a fan-out its branches."""
    if outcome.failure is not None or outcome.kind is StepKind.EDIT:
        return
    stage = next((entry.stage for entry in outcome.entries), None)  # only a fan-out's branches have none of their own
    branches = [entry.stage_id for entry in outcome.entries if entry.kind is StepKind.BRANCH]
    if not branches or stage:
        yield outcome.name, stage
    else:
        yield from ((branch, None) for branch in branches)
