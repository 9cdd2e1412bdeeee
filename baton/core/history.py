"""The record of each step: history entries for people, outcomes for resuming.

An entry says who changed what and when; `snapshots` derives the baton after each step from the entries. An outcome
is the complete result of a step. A run that starts with outcomes returns them instead of executing those steps
again; fork, continue-as-new and tests use this one mechanism.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field, JsonValue, ValidationError

from baton.core.baton import Baton
from baton.core.patching import append_decisions, merge_patch
from baton.core.steering import SteeringNote
from baton.errors import RecordedBatonError
from baton.wire.json_values import Json
from baton.wire.records import CompactRecord, Integer, Name, Timestamp
from baton.wire.text import describe_recorded_faults


class Spend(CompactRecord):
    """The cost of a step.

    Attributes:
        micro_usd: Money in millionths of a US dollar; an integer, so that sums are exact.
        prompt_tokens: Tokens that models read.
        completion_tokens: Tokens that models wrote.

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
        return bool(self.micro_usd or self.prompt_tokens or self.completion_tokens)

    def __add__(self, other: "Spend") -> "Spend":
        if not other:
            return self
        return Spend(
            micro_usd=self.micro_usd + other.micro_usd,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )

    @property
    def tokens(self) -> int:
        """All tokens, read and written."""
        return self.prompt_tokens + self.completion_tokens

    def minus(self, other: "Spend") -> "Spend":
        """Return this minus ``other``, each part at least zero.

        Example:
            >>> Spend(micro_usd=80_000).minus(Spend(micro_usd=30_000, prompt_tokens=7))
            Spend(micro_usd=50000, prompt_tokens=0, completion_tokens=0)
        """
        return Spend(
            micro_usd=max(0, self.micro_usd - other.micro_usd),
            prompt_tokens=max(0, self.prompt_tokens - other.prompt_tokens),
            completion_tokens=max(0, self.completion_tokens - other.completion_tokens),
        )


UNNAMED = "(not named)"
"""Replaces what a bill lacks: the model of a stage that charges by itself, the stage of a compression."""
SPENT = "baton_spent"
"""The member of heartbeat and failure details that holds what a failed or lost run has spent."""


def find_spend(details: Iterable[Any]) -> Spend:
    """Return what a run has spent, from the details of its heartbeat or failure."""
    for detail in details:
        if isinstance(detail, dict) and isinstance(detail.get(SPENT), dict):
            try:
                return Spend.model_validate(detail[SPENT])
            except ValidationError:
                return Spend()
    return Spend()


TRANSCRIPT = "baton_transcript"
"""The member of a failure's details with the digest of the transcript of the stage that failed."""


def find_transcript(details: Iterable[Any]) -> str | None:
    """Return the digest of the transcript of a stage that failed, from the details of its failure."""
    digests = (detail.get(TRANSCRIPT) for detail in details if isinstance(detail, dict))
    return next((digest for digest in digests if isinstance(digest, str)), None)


TOPPED_UP = "baton_topped_up_micro_usd"
"""The member beside it with the top-ups of a failed pipeline."""


def find_top_up(details: Iterable[Any]) -> int:
    """Return what people added to a pipeline's budget, from the details of its failure."""
    amounts = [detail.get(TOPPED_UP) for detail in details if isinstance(detail, dict)]
    return next((amount for amount in amounts if isinstance(amount, int) and amount > 0), 0)


class StepKind(StrEnum):
    """The kind of a step."""

    STAGE = "stage"
    BRANCH = "branch"
    MERGE = "merge"
    APPROVAL = "approval"
    CHILD = "child"
    SLEEP = "sleep"
    EDIT = "edit"


class Conflict(CompactRecord):
    """A field that branches of a fan-out wrote differently; recorded so that no value is lost silently.

    One of the field `decision_log` has a decision of one branch, and that by which another branch rejects it.

    Attributes:
        field: The field.
        strategy: How the merge resolved it.
        values: What each branch wrote, by stage id.
    """

    field: str
    strategy: str
    values: dict[str, Json]


DELIVERS = frozenset({"completed", "partial"})
"""The statuses of reports that deliver work."""


class Reported(CompactRecord):
    """What a stage's handoff report says of its work in brief.

    Attributes:
        status: completed, partial, blocked or failed.
        confidence: How sure its agent is, 0 to 100.
        readiness: Whether the next phase may begin: Yes, With caveats or No.
    """

    status: str
    confidence: Integer = Field(ge=0, le=100)
    readiness: str

    @property
    def may_proceed(self) -> bool:
        """Whether the report is ready, perhaps with caveats, and delivers work."""
        return self.status in DELIVERS and self.readiness != "No"

    def __str__(self) -> str:
        """Return it as a line of text.

        Example:
            >>> str(Reported(status="partial", confidence=60, readiness="With caveats"))
            'partial, confidence 60, ready: With caveats'
        """
        return f"{self.status}, confidence {self.confidence}, ready: {self.readiness}"


class HistoryEntry(CompactRecord):
    """One change of the baton: stage, time, patch.

    Attributes:
        seq: The step's number in the pipeline, from 1; the branches of a fan-out share it.
        stage_id: The name of the step: by default that of the stage, or the title of the approval.
        kind: The kind of step.
        timestamp: When the workflow recorded it (workflow time, UTC).
        patch: The patch exactly as the stage returned it; empty if it returned none.
        change: The effective change, if it differs from the patch; `decision_log` holds the appended entries.
        attempt: Which attempt was accepted, from 1.
        by: The person who decided or edited, if any.
        why: Their reason.
        warnings: What was unusual but allowed.
        removed_constraints: Constraints that this step removed.
        conflicts: Fields that the branches of a fan-out wrote differently, and decisions of one that another rejects.
        report: What the stage's handoff report says in brief, if it answered with one.
        spend: The cost of the step.
        stage: The stage, if the step has another name.
        failure: Why an item of a map failed; it changes nothing.
        steered: The notes of people that its agent was shown while it worked.
        agents: The agents that acted in the stage beside its own, and the tools that each called.
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
    report: Reported | None = None
    spend: Spend = Spend()
    stage: Name | None = None
    failure: str | None = None
    steered: list[SteeringNote] = Field(default_factory=list)
    agents: dict[str, list[str]] = Field(default_factory=dict)

    @property
    def effective(self) -> dict[str, Json]:
        """The change to the baton; empty for a branch, because its merge makes the change."""
        if self.kind is StepKind.BRANCH:
            return {}
        return self.patch if self.change is None else self.change


CANCELED_WITH_RUN = "canceled with the run"
"""The failure of a step that was in progress when its run was canceled."""


class Outcome(CompactRecord):
    """The complete result of a step, returned instead of executing the step again.

    Attributes:
        seq: The step's number, in the order in which the code starts steps.
        order: The step's position in the order in which steps ended, from 0; differs from `seq` in concurrent code.
        name: The step's name; resuming checks that the code still uses it.
        kind: The kind of step.
        entries: The step's history entries, in order.
        value: What the step returned to the pipeline's code, as JSON.
        failure: Why the step failed; the pipeline's code may have handled it.
        canceled: Whether the step was canceled, by the code or with the run.
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
    """A pipeline compensates external effects of its steps, or a compensation failed.

    Attributes:
        undone_since: The number of the first compensated step.
        by_hand: Which compensation failed, and why: a person has to undo its step.
    """

    undone_since: Integer = Field(ge=1)
    by_hand: str | None = None


def fold_change(members: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a baton with a recorded change applied, without checking anything again."""
    patch = {name: value for name, value in change.items() if name != "decision_log"}
    folded: dict[str, Any] = merge_patch(members, patch)
    if decisions := change.get("decision_log"):
        folded["decision_log"], _ = append_decisions(members["decision_log"], decisions)
    return folded


def restored_baton(kind: type[Baton], members: Mapping[str, Any]) -> Baton:
    """Return the baton of folded members.

    Raises:
        RecordedBatonError: They do not fit the type.
    """
    try:
        return kind.from_json_object(members)
    except ValidationError as error:
        raise RecordedBatonError(describe_recorded_faults(error, members)) from None


def apply_change(baton: Baton, change: Mapping[str, Any]) -> Baton:
    """Return ``baton`` with a recorded change applied, without checking it against the rules again."""
    if not change:
        return baton
    return restored_baton(type(baton), fold_change(baton.to_json_object(), change))


def snapshots(initial: Baton, entries: Iterable[HistoryEntry]) -> Iterator[tuple[HistoryEntry, Baton]]:
    """Yield each entry with the full baton after it: the `baton_history` of the pattern.

    Snapshots are derived from the entries. Stored, they would make the history grow quadratically.

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
