"""The state of a pipeline as plain data and rules, and how the branches of a fan-out merge.

A workflow feeds it what stages return; a reader feeds it the same things out of the event history and arrives at the
same baton. No clock, no ids, no Temporal in here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import JsonValue

from baton.core.baton import Baton
from baton.core.history import Conflict, HistoryEntry, Outcome, Spend, StepKind, apply_change
from baton.core.messages import Decided, PipelineResult, StageReturn
from baton.core.patching import (
    PatchEffect,
    PatchRules,
    check_bounds,
    new_decisions,
    patch_effect,
    same_json,
    without_echo,
)
from baton.core.stages import field_set
from baton.errors import PatchError
from baton.wire.json_values import digest


class MergeStrategy(StrEnum):
    """What happens when several branches write the same field.

    `UNION` keeps every entry once, in the order of the branches; it is for lists. `FIRST` and `LAST` take the value of
    the first or last branch that wrote the field. `REFUSE` refuses differing values, and with them the whole fan-out.
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
"""The strategies of the eight fields, `decision_log` aside: it always gets every branch's new entries."""


def merge_branches(
    patches: Sequence[tuple[str, Mapping[str, JsonValue]]],
    strategies: Mapping[str, MergeStrategy] = DEFAULT_STRATEGIES,
) -> tuple[dict[str, JsonValue], list[Conflict]]:
    """Return one patch for the patches of all branches, and where they disagreed."""
    stages = [stage for stage, _ in patches]
    if len(set(stages)) < len(stages):
        raise ValueError(f"each branch needs a name of its own; got {stages}")
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
                    findings.append(f"decision_log: {stage} wrote no list; it only grows, by a list of new entries")
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
    """Return every entry once, in order; null counts as the empty list."""
    entries: dict[str, Any] = {}
    for value in values:
        if value is not None and not isinstance(value, list):
            raise ValueError("a union is for lists; declare another strategy for this field")
        for entry in value or []:
            entries.setdefault(digest(_without_null(entry)), entry)
    return list(entries.values())


def _without_null(entry: JsonValue) -> JsonValue:
    """Return an object without its null members: absent and null say the same in a record."""
    return {name: value for name, value in entry.items() if value is not None} if isinstance(entry, dict) else entry


def _refuse(values: list[JsonValue]) -> JsonValue:
    """Refuse whatever the values are."""
    raise ValueError(f"declare how its {len(values)} values merge, or let one stage write it")


_MERGES: dict[MergeStrategy, Callable[[list[JsonValue]], JsonValue]] = {
    MergeStrategy.UNION: _union,
    MergeStrategy.FIRST: lambda values: values[0],
    MergeStrategy.LAST: lambda values: values[-1],
    MergeStrategy.REFUSE: _refuse,
}


class PipelineState:
    """The baton, its history and the outcomes of the steps so far.

    Attributes:
        initial: The baton the pipeline began with.
        baton: The baton now.
        entries: One history entry for each change, in the order they happened.
        outcomes: One outcome for each finished step, in the order they finished.
        rules: The pipeline's own rules.
        spend: What all steps cost together.
    """

    def __init__(self, initial: Baton, rules: PatchRules | None = None) -> None:
        self.initial = initial
        self.baton = initial
        self.rules = rules or PatchRules()
        self.entries: list[HistoryEntry] = []
        self.outcomes: list[Outcome] = []
        self.spend = Spend()
        field_set(self.rules.protected, type(initial), "protected")
        self._artifacts = {**self.rules.known_artifacts, **{ref.id: ref.hash for ref in initial.artifacts}}

    def stage_rules(self) -> PatchRules:
        """Return the rules a patch must respect now: the pipeline's own, and every artifact id in use."""
        return replace(self.rules, known_artifacts=self._artifacts)

    def record_stage(self, returned: StageReturn, at: datetime, *, base: Baton | None = None) -> Outcome:
        """Apply what a stage returned."""
        check_bounds(returned.baton_patch)
        patch, warnings = self._overtaken(returned.baton_patch, base)
        effect = patch_effect(self.baton, patch, self.stage_rules())
        return self._finish([_stage_entry(returned, at, effect, warnings)], effect, returned.output, returned.events)

    def record_fan_out(
        self,
        seq: int,
        name: str,
        branches: Sequence[StageReturn],
        at: datetime,
        *,
        strategies: Mapping[str, MergeStrategy] = DEFAULT_STRATEGIES,
    ) -> Outcome:
        """Apply what the branches of a fan-out returned, as one change."""
        for branch in branches:
            check_bounds(branch.baton_patch)
        log = self.baton.decision_log
        patches = [(branch.stage, without_echo(log, branch.baton_patch)) for branch in branches]
        merged, conflicts = merge_branches(patches, strategies)
        effect = patch_effect(self.baton, merged, self.stage_rules())
        entries = [
            HistoryEntry(
                seq=seq,
                stage_id=branch.stage,
                kind=StepKind.BRANCH,
                timestamp=at,
                patch=branch.baton_patch,
                attempt=branch.attempt,
                warnings=[*new_decisions(log, branch.baton_patch)[1], *_left_out(branch)],
                spend=branch.spend,
            )
            for branch in branches
        ]
        entries.append(
            HistoryEntry(
                seq=seq,
                stage_id=name,
                kind=StepKind.MERGE,
                timestamp=at,
                patch=effect.change,
                warnings=effect.warnings,
                removed_constraints=effect.removed_constraints,
                conflicts=conflicts,
            )
        )
        value: list[JsonValue] = [branch.output for branch in branches]
        events = [event for branch in branches for event in branch.events]
        return self._finish(entries, effect, value, events)

    def record_decision(self, seq: int, decided: Decided) -> Outcome:
        """Record how an approval ended; it changes no field of the baton."""
        entry = HistoryEntry(
            seq=seq,
            stage_id=decided.approval,
            kind=StepKind.APPROVAL,
            timestamp=decided.at,
            by=decided.who,
            why=decided.why,
        )
        return self._finish([entry], value=decided.model_dump(mode="json"))

    def record_sleep(self, seq: int, name: str, at: datetime) -> Outcome:
        """Record that a wait of the pipeline's own is over; it changes no field of the baton."""
        return self._finish([HistoryEntry(seq=seq, stage_id=name, kind=StepKind.SLEEP, timestamp=at)])

    def record_child(
        self, seq: int, name: str, result: PipelineResult, patch: Mapping[str, JsonValue], at: datetime
    ) -> Outcome:
        """Apply what a child pipeline brought back."""
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
        """Apply what a stage answered when its handoff was not accepted and it was asked to fix that."""
        effect = patch_effect(self.baton, returned.baton_patch, self.stage_rules())
        entry = _stage_entry(returned, at, effect, kind=StepKind.EDIT, why=why)
        return self._finish([entry], effect, events=returned.events)

    def record_failure(self, seq: int, name: str, kind: StepKind, failure: str, *, canceled: bool = False) -> Outcome:
        """Record that a step failed or was canceled; the baton is as it was before it."""
        outcome = Outcome(seq=seq, order=len(self.outcomes), name=name, kind=kind, failure=failure, canceled=canceled)
        self._take(outcome, self.baton)
        return outcome

    def restore(self, outcome: Outcome) -> None:
        """Take over a step that happened before, exactly as it happened."""
        after = self.baton
        for entry in outcome.entries:
            after = apply_change(after, entry.effective)
        self._take(outcome, after)

    def _overtaken(self, patch: dict[str, JsonValue], base: Baton | None) -> tuple[dict[str, JsonValue], list[str]]:
        """Return the patch and warnings for what concurrent steps changed since it was asked for."""
        if base is None or base is self.baton or base == self.baton:
            return patch, []
        patch = without_echo(base.decision_log, patch)
        now, then = self.baton.to_json_object(), base.to_json_object()
        both = [name for name in patch if name != "decision_log" and not same_json(now.get(name), then.get(name))]
        replaced = [name for name in both if name != "artifacts"]
        warnings = [f"{name}: a concurrent step wrote it too; this patch replaced that" for name in replaced]
        if "artifacts" in both:
            theirs = [("now", {"artifacts": now["artifacts"]}), ("patch", {"artifacts": patch["artifacts"]})]
            patch = {**patch, "artifacts": merge_branches(theirs)[0]["artifacts"]}
        return patch, warnings

    def _finish(
        self,
        entries: list[HistoryEntry],
        effect: PatchEffect | None = None,
        value: JsonValue = None,
        events: Sequence[dict[str, JsonValue]] = (),
    ) -> Outcome:
        """Make the outcome of a step from its entries, the last of which is its own, and take it over."""
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
        self._take(outcome, self.baton if effect is None else effect.baton)
        return outcome

    def _take(self, outcome: Outcome, after: Baton) -> None:
        """Make ``after`` the baton, and remember how it came to be."""
        self.spend = sum((entry.spend for entry in outcome.entries), start=self.spend)
        self.baton = after
        self.outcomes.append(outcome)
        self.entries.extend(outcome.entries)
        self._artifacts.update((ref.id, ref.hash) for ref in after.artifacts)


def _entry(
    seq: int, name: str, at: datetime, patch: Mapping[str, JsonValue], effect: PatchEffect, **further: Any
) -> HistoryEntry:
    """Return the history entry of a step that changed the baton."""
    return HistoryEntry(
        seq=seq,
        stage_id=name,
        timestamp=at,
        patch=dict(patch),
        change=None if same_json(effect.change, dict(patch)) else effect.change,
        removed_constraints=effect.removed_constraints,
        **{"warnings": effect.warnings, **further},
    )


def _stage_entry(
    returned: StageReturn, at: datetime, effect: PatchEffect, warnings: Sequence[str] = (), **further: Any
) -> HistoryEntry:
    """Return the history entry of a stage."""
    further |= {"attempt": returned.attempt, "spend": returned.spend}
    told = [*effect.warnings, *warnings, *_left_out(returned)]
    return _entry(returned.seq, returned.stage, at, returned.baton_patch, effect, warnings=told, **further)


def _left_out(returned: StageReturn) -> list[str]:
    """Return what the prompt of a stage did not have room for."""
    return [f"the prompt had no room for all: {part.why}" for part in returned.prompt if part.why]
