"""What a pipeline remembers of each step: history entries for people, outcomes for resuming.

An entry says who changed what and when; the baton after every step follows from the entries
(`snapshots`). An outcome is a whole step as it happened. A run that is handed outcomes returns them instead
of executing those steps again: fork, continue-as-new and tests all rest on this one mechanism.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from pydantic import Field, JsonValue, ValidationError

from baton.core.baton import Baton
from baton.core.patching import merge_patch
from baton.errors import RecordedBatonError
from baton.wire.json_values import Json
from baton.wire.records import CompactRecord, Integer, Name, Timestamp
from baton.wire.text import describe_recorded_faults


class Spend(CompactRecord):
    """What a step cost.

    Attributes:
        micro_usd: Money in millionths of a US dollar; an integer, so that sums are exact.
        prompt_tokens: Tokens read by models.
        completion_tokens: Tokens written by models.

    Example:
        >>> Spend(micro_usd=80_000, prompt_tokens=4200) + Spend(micro_usd=20_000)
        Spend(micro_usd=100000, prompt_tokens=4200, completion_tokens=0)
        >>> bool(Spend()), bool(Spend(prompt_tokens=1))
        (False, True)
    """

    micro_usd: Integer = Field(default=0, ge=0)
    prompt_tokens: Integer = Field(default=0, ge=0)
    completion_tokens: Integer = Field(default=0, ge=0)

    def __bool__(self) -> bool:
        """Return whether anything was spent."""
        return bool(self.micro_usd or self.prompt_tokens or self.completion_tokens)

    def __add__(self, other: "Spend") -> "Spend":
        """Return the sum of both."""
        if not other:
            return self
        return Spend(
            micro_usd=self.micro_usd + other.micro_usd,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )

    def beyond(self, other: "Spend") -> "Spend":
        """Return what this is more than another one, from nothing up.

        Example:
            >>> Spend(micro_usd=80_000).beyond(Spend(micro_usd=30_000, prompt_tokens=7))
            Spend(micro_usd=50000, prompt_tokens=0, completion_tokens=0)
        """
        return Spend(
            micro_usd=max(0, self.micro_usd - other.micro_usd),
            prompt_tokens=max(0, self.prompt_tokens - other.prompt_tokens),
            completion_tokens=max(0, self.completion_tokens - other.completion_tokens),
        )


SPENT = "baton_spent"
"""The member under which a run that raised, or was lost, tells what it had spent: in heartbeats and failures."""


def find_spend(details: Iterable[Any]) -> Spend:
    """Return what a run told that it had spent, in the details of its heartbeat or of its failure."""
    for one in details:
        if isinstance(one, dict) and isinstance(one.get(SPENT), dict):
            try:
                return Spend.model_validate(one[SPENT])
            except ValidationError:
                return Spend()
    return Spend()


TOPPED_UP = "baton_topped_up_micro_usd"
"""The member beside that, by which a pipeline that failed tells what people had added to its budget."""


def find_top_up(details: Iterable[Any]) -> int:
    """Return what people had added to the budget of a pipeline, as the details of its failure tell it."""
    told = [one.get(TOPPED_UP) for one in details if isinstance(one, dict)]
    return next((one for one in told if isinstance(one, int) and one > 0), 0)


class StepKind(StrEnum):
    """What kind of step an entry or outcome belongs to."""

    STAGE = "stage"
    BRANCH = "branch"
    MERGE = "merge"
    APPROVAL = "approval"
    CHILD = "child"
    SLEEP = "sleep"
    EDIT = "edit"


class Conflict(CompactRecord):
    """Two branches of a fan-out wrote the same field differently; kept, so that nothing is lost silently.

    Attributes:
        field: The field both wrote.
        strategy: How the merge settled it.
        values: What each branch wrote, by stage id.
    """

    field: str
    strategy: str
    values: dict[str, Json]


class HistoryEntry(CompactRecord):
    """One change of the baton: stage, time, patch.

    Attributes:
        seq: The step's number in the pipeline, from 1; the branches of a fan-out share it.
        stage_id: The stage's name, or of an approval its title.
        kind: What kind of step it was.
        timestamp: When the workflow recorded it (workflow time, UTC).
        patch: The patch exactly as the stage returned it; empty where it returned none.
        change: What it did, where that is not the patch itself: of `decision_log` the appended entries.
        attempt: Which attempt was accepted, from 1.
        by: The person who decided or edited, if it was one.
        why: Their reason.
        warnings: What was odd but allowed.
        removed_constraints: Constraints that this step took away.
        conflicts: What the branches of a fan-out disagreed about.
        spend: What the step cost.
    """

    seq: Integer = Field(ge=1)
    stage_id: Name
    kind: StepKind = Field(default=StepKind.STAGE, strict=False)
    timestamp: Timestamp
    patch: dict[str, Json] = Field(default_factory=dict)
    change: dict[str, Json] | None = None
    attempt: Integer = Field(default=1, ge=1)
    by: str | None = None
    why: str | None = None
    warnings: list[str] = Field(default_factory=list)
    removed_constraints: list[str] = Field(default_factory=list)
    conflicts: list[Conflict] = Field(default_factory=list)
    spend: Spend = Spend()

    @property
    def effective(self) -> dict[str, Json]:
        """What the step did to the baton; a branch does nothing by itself, its merge does."""
        if self.kind is StepKind.BRANCH:
            return {}
        return self.patch if self.change is None else self.change


CANCELED_WITH_RUN = "canceled with the run"
"""The failure of a step that was under way when its run was asked to cancel."""


class Outcome(CompactRecord):
    """A whole step as it happened, to be returned instead of executing it again.

    Attributes:
        seq: The step's number, in the order in which the code asks for steps.
        order: Its place in the order in which steps ended, from 0; differs from `seq` in concurrent code.
        name: The step's name; resuming checks that the code still asks for it.
        kind: What kind of step it is.
        entries: The history entries it made, in order.
        value: What the step returned to the pipeline's code, as JSON.
        failure: Why the step failed; the pipeline's code may have gone on by another way.
        canceled: The code itself canceled the step, for example because another one was faster; or somebody the run.
        events: The session events that its stages recorded, for the contracts of later stages.
    """

    seq: Integer = Field(ge=1)
    order: Integer = Field(ge=0)
    name: Name
    kind: StepKind = Field(default=StepKind.STAGE, strict=False)
    entries: list[HistoryEntry] = Field(default_factory=list)
    value: JsonValue = None
    failure: str | None = None
    canceled: bool = False
    events: list[dict[str, JsonValue]] = Field(default_factory=list)


class CompensationRecord(CompactRecord):
    """That a pipeline undoes what some of its steps did outside, or that a compensation of them failed.

    Attributes:
        undone_since: The number of the first of these steps.
        by_hand: What a person has to see to: which compensation failed, and why.
    """

    undone_since: Integer = Field(ge=1)
    by_hand: str | None = None


def apply_change(baton: Baton, change: dict[str, Any]) -> Baton:
    """Return ``baton`` with a recorded effective change applied; no rules, they were checked back then."""
    if not change:
        return baton
    merged = merge_patch(
        baton.to_json_object(), {name: value for name, value in change.items() if name != "decision_log"}
    )
    merged["decision_log"] = [*baton.decision_log, *change.get("decision_log", [])]
    try:
        return type(baton).from_json_object(merged)
    except ValidationError as error:
        raise RecordedBatonError(describe_recorded_faults(error, merged)) from None


def snapshots(initial: Baton, entries: Iterable[HistoryEntry]) -> Iterator[tuple[HistoryEntry, Baton]]:
    """Yield every entry with the full baton after it: the `baton_history` of the pattern.

    Snapshots are not stored, which would make history grow with the square of its length; they follow
    exactly from the entries.

    Example:
        >>> from datetime import UTC, datetime
        >>> at = datetime(2026, 11, 21, tzinfo=UTC)
        >>> entry = HistoryEntry(seq=1, stage_id="plan", timestamp=at, patch={"current_state": ["Planned"]})
        >>> [baton.current_state for _, baton in snapshots(Baton(goal="g"), [entry])]
        [['Planned']]
    """
    baton = initial
    for entry in entries:
        baton = apply_change(baton, entry.effective)
        yield entry, baton
