"""The state of a pipeline as plain data and rules, and the merge of a fan-out's branches.

A workflow records the results of its stages; a reader records the same results from the event history and gets the
same baton. This module uses no clock, no random ids and no Temporal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from pydantic import JsonValue

from baton.core.baton import Baton
from baton.core.history import Conflict, HistoryEntry, Outcome, Spend, StepKind, fold_change, restored_baton
from baton.core.messages import PipelineResult, StageReturn
from baton.core.patching import (
    PatchEffect,
    PatchRules,
    check_bounds,
    patch_effect,
    same_json,
)
from baton.core.questions import Settled
from baton.core.stages import field_set
from baton.errors import PatchError, RecordedBatonError
from baton.wire.json_values import digest
from baton.wire.text import quantity

NO_ROOM = "the prompt had no room for all"
"""How the warning begins that a stage's prompt left something out."""
_MAX_NAMED = 10  # of the failed items in a warning
_MAX_ANSWERS = 64  # that an input is compared with: no work of a workflow task grows with the age of its run


class MergeStrategy(StrEnum):
    """How the values of several branches for one field are merged.

    `UNION` keeps each list entry once, in branch order. `FIRST` and `LAST` take the value of the first or last branch
    that wrote the field. `REFUSE` rejects differing values, and so the whole fan-out.
    """

    UNION = "union"
    FIRST = "first"
    LAST = "last"
    REFUSE = "refuse"


DEFAULT_STRATEGIES: Mapping[str, MergeStrategy] = {
    "goal": MergeStrategy.REFUSE,
    "current_state": MergeStrategy.UNION,
    "constraints": MergeStrategy.UNION,
    "work_scope": MergeStrategy.UNION,
    "artifacts": MergeStrategy.UNION,
    "open_questions": MergeStrategy.UNION,
    "acceptance": MergeStrategy.UNION,
}
"""The strategies of the eight fields except `decision_log`, which always gets the new entries of every branch."""


@dataclass(frozen=True)
class MergedReports:
    """What the branches of a fan-out reported; without decisions or a state, the branches' own lists count.

    Attributes:
        decisions: Their new decisions, with their authors.
        state: Their current state, where the union would be too long.
        disputes: Decisions of one that another rejects.
        remarks: How many more there are.
    """

    decisions: Sequence[str] = ()
    state: Sequence[str] = ()
    disputes: Sequence[Conflict] = ()
    remarks: Sequence[str] = ()


def merge_branches(
    patches: Sequence[tuple[str, Mapping[str, JsonValue]]],
    strategies: Mapping[str, MergeStrategy] = DEFAULT_STRATEGIES,
) -> tuple[dict[str, JsonValue], list[Conflict]]:
    """Return the merged patch of all branches, and the conflicts."""
    stages = [stage for stage, _ in patches]
    if len(set(stages)) < len(stages):
        raise ValueError(f"each branch needs a unique name; got {stages}")
    merged: dict[str, JsonValue] = {}
    conflicts: list[Conflict] = []
    findings: list[str] = []
    decisions: list[JsonValue] = []
    for name in dict.fromkeys(field for _, patch in patches for field in patch):
        written = {stage: patch[name] for stage, patch in patches if name in patch}
        if name == "decision_log":
            for stage, log in written.items():
                if isinstance(log, list):
                    decisions += log
                else:
                    findings.append(f"decision_log: {stage} did not write a list; send the new entries as a list")
            continue
        values = list(written.values())
        if all(same_json(value, values[0]) for value in values):
            merged[name] = values[0]
            continue
        strategy = MergeStrategy(strategies.get(name, MergeStrategy.REFUSE))
        conflicts.append(Conflict(field=name, strategy=strategy, values=written))
        try:
            merged[name] = _MERGES[strategy](values)
        except ValueError as error:
            findings.append(f"{name}: {', '.join(written)} wrote different values; {error}")
    if findings:
        raise PatchError(findings)
    if decisions:
        merged["decision_log"] = decisions
    return merged, conflicts


def _union(values: list[JsonValue]) -> JsonValue:
    """Return each entry once, in order; null counts as an empty list."""
    entries: dict[str, Any] = {}
    for value in values:
        if value is not None and not isinstance(value, list):
            raise ValueError("a union is for lists; declare another strategy for this field")
        for entry in value or []:
            entries.setdefault(digest(_without_nulls(entry)), entry)
    return list(entries.values())


def _without_nulls(entry: JsonValue) -> JsonValue:
    """Drop the null members of an object, because null and absent mean the same in a record."""
    return {name: value for name, value in entry.items() if value is not None} if isinstance(entry, dict) else entry


def _refuse(values: list[JsonValue]) -> JsonValue:
    raise ValueError(f"declare how its {len(values)} values merge, or let one stage write it")


_MERGES: dict[MergeStrategy, Callable[[list[JsonValue]], JsonValue]] = {
    MergeStrategy.UNION: _union,
    MergeStrategy.FIRST: lambda values: values[0],
    MergeStrategy.LAST: lambda values: values[-1],
    MergeStrategy.REFUSE: _refuse,
}


@dataclass(frozen=True)
class FailedItem:
    """An item of a map whose stage failed.

    Attributes:
        title: The name of the item.
        stage: The stage.
        failure: Why it failed.
    """

    title: str
    stage: str
    failure: str


class PipelineState:
    """The baton, its history and the outcomes of the steps so far.

    Attributes:
        spend_without_edits: The same without edits and corrections, as `spent_in` counts it.
        report_misfit: Takes why the baton that the restored steps made does not fit the type.
    """

    def __init__(self, initial: Baton, rules: PatchRules | None = None) -> None:
        self.initial = initial
        self._baton = initial
        self._folded: dict[str, JsonValue] | None = None
        self.report_misfit: Callable[[str], None] | None = None
        self.rules = rules or PatchRules()
        self.entries: list[HistoryEntry] = []
        self.outcomes: list[Outcome] = []
        self.spend = self.spend_without_edits = Spend()
        field_set(self.rules.protected, type(initial), "protected")
        self._artifacts = {**self.rules.known_artifacts, **{ref.id: ref.hash for ref in initial.artifacts}}

    @property
    def baton(self) -> Baton:
        """The current baton; where a misfit is reported, the last one that fits the type.

        Raises:
            RecordedBatonError: The restored steps made a baton that does not fit the type, and nobody is told.
        """
        if self._folded is not None:
            try:
                self._baton = restored_baton(type(self.initial), self._folded)
            except RecordedBatonError as error:
                if self.report_misfit is None:
                    raise
                self.report_misfit(str(error))
            self._folded = None
        return self._baton

    def base(self) -> tuple[Baton, int]:
        """Return the current baton and how many steps have ended."""
        return self.baton, len(self.outcomes)

    def copy(self) -> "PipelineState":
        """Return a state to which steps can be added without a change of this one."""
        state = copy(self)
        state.entries, state.outcomes, state._artifacts = [*self.entries], [*self.outcomes], {**self._artifacts}
        return state

    def stage_rules(self) -> PatchRules:
        """Return the rules for the next patch: the pipeline's own and all known artifacts."""
        return replace(self.rules, known_artifacts=self._artifacts)

    def record_stage(self, returned: StageReturn, at: datetime, *, base: Baton | None = None) -> Outcome:
        """Apply the patch of a stage.

        Args:
            returned: The result of the stage.
            at: The workflow time.
            base: The baton that the stage got, if other steps may have changed the baton since.
        """
        check_bounds(returned.baton_patch)
        patch, warnings = self._rebase(returned.baton_patch, base)
        effect = patch_effect(self.baton, patch, self.stage_rules())
        return self._finish([_stage_entry(returned, at, effect, warnings)], effect, returned.output, returned.events)

    def record_fan_out(
        self,
        seq: int,
        name: str,
        results: Sequence[StageReturn | FailedItem],
        at: datetime,
        *,
        strategies: Mapping[str, MergeStrategy] = DEFAULT_STRATEGIES,
        reports: MergedReports | None = None,
    ) -> Outcome:
        """Apply the patches of a fan-out's branches, or of a map's items, as one change.

        Args:
            seq: The step's number.
            name: The step's name.
            results: The results of the branches; a failed item of a map changes nothing.
            at: The workflow time.
            strategies: How each field is merged.
            reports: What the branches reported.
        """
        branches = [result for result in results if isinstance(result, StageReturn)]
        for branch in branches:
            check_bounds(branch.baton_patch)
        patches = [(branch.title, branch.baton_patch) for branch in branches]
        merged, conflicts = merge_branches(patches, strategies)
        reported = reports or MergedReports()
        if reported.decisions:
            merged["decision_log"] = [*reported.decisions]
        if reported.state and strategies.get("current_state") == MergeStrategy.UNION:
            merged["current_state"] = [*reported.state]
        effect = patch_effect(self.baton, merged, self.stage_rules())
        entries = [_branch_entry(seq, at, result) for result in results]
        entries.append(
            HistoryEntry(
                seq=seq,
                stage_id=name,
                kind=StepKind.MERGE,
                timestamp=at,
                patch=effect.change,
                warnings=[*effect.warnings, *reported.remarks, *_failed_items(results)],
                removed_constraints=effect.removed_constraints,
                conflicts=[*conflicts, *reported.disputes],
            )
        )
        value: list[JsonValue] = [result.output if isinstance(result, StageReturn) else None for result in results]
        events = [event for branch in branches for event in branch.events]
        return self._finish(entries, effect, value, events)

    def record_decision(self, seq: int, settled: Settled) -> Outcome:
        """Record how a question was answered; it changes no field of the baton."""
        entry = HistoryEntry(
            seq=seq,
            stage_id=settled.title,
            kind=StepKind.APPROVAL,
            timestamp=settled.at,
            by=settled.who,
            why=settled.why,
        )
        return self._finish([entry], value=settled.model_dump(mode="json"))

    def record_sleep(self, seq: int, name: str, at: datetime) -> Outcome:
        """Record that a sleep ended; it changes no field of the baton."""
        return self._finish([HistoryEntry(seq=seq, stage_id=name, kind=StepKind.SLEEP, timestamp=at)])

    def record_child(
        self, seq: int, name: str, result: PipelineResult, patch: Mapping[str, JsonValue], at: datetime
    ) -> Outcome:
        """Apply the patch from a child pipeline."""
        effect = patch_effect(self.baton, patch, self.stage_rules())
        entry = _entry(seq, name, at, patch, effect, kind=StepKind.CHILD, spend=result.spend)
        return self._finish([entry], effect, result.model_dump(mode="json"))

    def record_edit(self, patch: Mapping[str, JsonValue], at: datetime, by: str, why: str) -> Outcome:
        """Apply a person's edit, made when the run was forked."""
        effect = patch_effect(self.baton, patch, self.stage_rules())
        seq = max((outcome.seq for outcome in self.outcomes), default=0) + 1
        entry = _entry(seq, "edit", at, patch, effect, kind=StepKind.EDIT, by=by or None, why=why or None)
        return self._finish([entry], effect)

    def record_amendment(self, returned: StageReturn, at: datetime, why: str) -> Outcome:
        """Apply a stage's correction of a handoff that was rejected."""
        effect = patch_effect(self.baton, returned.baton_patch, self.stage_rules())
        entry = _stage_entry(returned, at, effect, kind=StepKind.EDIT, why=why)
        return self._finish([entry], effect, events=returned.events)

    def record_failure(self, seq: int, name: str, kind: StepKind, failure: str, *, canceled: bool = False) -> Outcome:
        """Record that a step failed or was canceled; the baton is unchanged."""
        outcome = Outcome(seq=seq, order=len(self.outcomes), name=name, kind=kind, failure=failure, canceled=canceled)
        self._append(outcome)
        return outcome

    def find_authors(self, inputs: Mapping[str, JsonValue]) -> dict[str, str]:
        """Return the stage or child that answered an input, by the input's name; other inputs are the pipeline's own.

        An input is compared with the newest answers, so it may be the result of a step or only the output in it.
        """
        answers = [*islice((pair for outcome in reversed(self.outcomes) for pair in _answers(outcome)), _MAX_ANSWERS)]
        given = {name: value for name, value in inputs.items() if isinstance(value, str | list | dict) and value}
        found = {name: next((by for by, answer in answers if answer == value), "") for name, value in given.items()}
        return {name: author for name, author in found.items() if author}

    def restore(self, outcome: Outcome) -> None:
        """Apply a recorded step exactly as it happened; what it made is validated when `baton` is read."""
        for entry in outcome.entries:
            if change := entry.effective:
                members = self._baton.to_json_object() if self._folded is None else self._folded
                self._folded = fold_change(members, change)
                self._know_artifacts(change.get("artifacts"))
        self._append(outcome)

    def _rebase(self, patch: dict[str, JsonValue], base: Baton | None) -> tuple[dict[str, JsonValue], list[str]]:
        """Return the patch adapted to what concurrent steps changed since ``base``, and warnings."""
        if base is None or base is self.baton or base == self.baton:
            return patch, []
        current, original = self.baton.to_json_object(), base.to_json_object()
        replaceable = [name for name in patch if name != "decision_log"]
        changed = [name for name in replaceable if not same_json(current.get(name), original.get(name))]
        replaced = [name for name in changed if name != "artifacts"]
        warnings = [f"{name}: a concurrent step wrote it too; this patch replaced that" for name in replaced]
        if "artifacts" in changed:
            branches = [("current", {"artifacts": current["artifacts"]}), ("patch", {"artifacts": patch["artifacts"]})]
            patch = {**patch, "artifacts": merge_branches(branches)[0]["artifacts"]}
        return patch, warnings

    def _finish(
        self,
        entries: list[HistoryEntry],
        effect: PatchEffect | None = None,
        value: JsonValue = None,
        events: Sequence[dict[str, JsonValue]] = (),
    ) -> Outcome:
        """Create and append the outcome of a step from its entries; the last entry is the step's own."""
        step, order = entries[-1], len(self.outcomes)
        outcome = Outcome(
            seq=step.seq,
            order=order,
            name=step.stage_id,
            kind=step.kind,
            entries=entries,
            value=value,
            events=list(events),
        )
        if effect is not None:
            self._baton = effect.baton
            self._know_artifacts(effect.change.get("artifacts"))
        self._append(outcome)
        return outcome

    def _append(self, outcome: Outcome) -> None:
        spend = sum((entry.spend for entry in outcome.entries), start=Spend())
        self.spend += spend
        if outcome.kind is not StepKind.EDIT:
            self.spend_without_edits += spend
        self.outcomes.append(outcome)
        self.entries.extend(outcome.entries)

    def _know_artifacts(self, artifacts: JsonValue) -> None:
        """Note the artifacts that a step wrote, whose ids are used up for good."""
        for ref in artifacts if isinstance(artifacts, list) else ():
            match ref:
                case {"id": str(id), "hash": str(hash)}:
                    self._artifacts[id] = hash


def _entry(
    seq: int, name: str, at: datetime, patch: Mapping[str, JsonValue], effect: PatchEffect, **further: Any
) -> HistoryEntry:
    return HistoryEntry(
        seq=seq,
        stage_id=name,
        timestamp=at,
        patch=dict(patch),
        change=None if same_json(effect.change, dict(patch)) else effect.change,
        removed_constraints=effect.removed_constraints,
        **{"warnings": effect.warnings, **further},
    )


def _failed_items(results: Sequence[StageReturn | FailedItem]) -> list[str]:
    """Return the warning that names the failed items of a map, if there are any."""
    failed = [result.title for result in results if isinstance(result, FailedItem)]
    more = f" and {len(failed) - _MAX_NAMED} more" if len(failed) > _MAX_NAMED else ""
    named = f"{', '.join(failed[:_MAX_NAMED])}{more}"
    return [f"{len(failed)} of {quantity(len(results), 'item')} failed: {named}"] if failed else []


def _branch_entry(seq: int, at: datetime, result: StageReturn | FailedItem) -> HistoryEntry:
    further: dict[str, Any] = {"stage": None if result.stage == result.title else result.stage}
    if isinstance(result, FailedItem):
        further |= {"failure": result.failure}
    else:
        further |= {"patch": result.baton_patch, "attempt": result.attempt, "warnings": _stage_warnings(result)}
        further |= {"report": result.report, "spend": result.spend, "agents": _other_agents(result)}
        further |= {"steered": result.steered}
    return HistoryEntry(seq=seq, stage_id=result.title, kind=StepKind.BRANCH, timestamp=at, **further)


def _stage_entry(
    returned: StageReturn, at: datetime, effect: PatchEffect, warnings: Sequence[str] = (), **further: Any
) -> HistoryEntry:
    further |= {"attempt": returned.attempt, "spend": returned.spend, "report": returned.report}
    further |= {"stage": None if returned.stage == returned.title else returned.stage}
    further |= {"agents": _other_agents(returned), "steered": returned.steered}
    all_warnings = [*effect.warnings, *warnings, *_stage_warnings(returned)]
    return _entry(returned.seq, returned.title, at, returned.baton_patch, effect, warnings=all_warnings, **further)


def _other_agents(returned: StageReturn) -> dict[str, list[str]]:
    """Return the agents other than the stage's own that its session names, and the tools that each called."""
    agents: dict[str, list[str]] = {}
    for event in returned.events:
        name, tool = event.get("agent"), event.get("toolName")
        if isinstance(name, str) and name != returned.stage:
            called = agents.setdefault(name, [])
            if event.get("type") == "tool_call" and isinstance(tool, str) and tool not in called:
                called.append(tool)
    return agents


def _stage_warnings(returned: StageReturn) -> list[str]:
    return [
        *returned.warnings,
        *(f"{NO_ROOM}: {part.why}" for part in returned.prompt if part.why),
    ]


def _answers(outcome: Outcome) -> Iterator[tuple[str, JsonValue]]:
    """Yield the authors and answers of a step: of a fan-out all answers together, then each."""
    value, authors = outcome.value, [entry.stage or entry.stage_id for entry in outcome.entries]
    if outcome.kind is StepKind.STAGE:
        yield from zip(authors, [value], strict=False)
    elif outcome.kind is StepKind.CHILD and isinstance(value, dict):
        yield outcome.name, value.get("output")
    elif outcome.kind is StepKind.MERGE and isinstance(value, list):
        yield outcome.name, value
        yield from zip(authors, value, strict=False)
