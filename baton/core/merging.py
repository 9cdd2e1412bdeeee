"""How the patches of a fan-out's branches become one: a declared strategy for each field, conflicts kept."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import JsonValue

from baton.core.history import Conflict
from baton.core.merge import same_json
from baton.errors import PatchError
from baton.wire.canonical import digest


class MergeStrategy(StrEnum):
    """What happens when several branches write the same field.

    `UNION` keeps every entry once, in the order of the branches; it is for lists. `MEMBERS` keeps every member that
    a branch wrote, at every depth, and refuses where two wrote the same one differently; it is for objects.
    `FIRST` and `LAST` take the value of the first or last branch that wrote the field. `REFUSE` refuses differing
    values, and with them the whole fan-out.
    """

    UNION = "union"
    MEMBERS = "members"
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
    """Return one patch for the patches of all branches, and where they disagreed.

    All branches were handed the same baton. A field that one branch wrote is taken as it is; one that
    several wrote differently is merged by its strategy, and what each wrote is kept in a `Conflict`.
    Every branch's decisions are appended, in the order of the branches.

    Args:
        patches: Stage name and patch of each branch, in the order the fan-out names them.
        strategies: The strategy of each field; a field that is not there is refused on conflict.

    Returns:
        The merged patch, and the conflicts.

    Raises:
        PatchError: Branches disagree about a field whose strategy is `REFUSE` or about a member of one whose
            strategy is `MEMBERS`, a strategy is asked of values that it is not for, or a branch would clear
            `decision_log`.
        ValueError: Two branches have the same name, or a strategy is none.

    Example:
        >>> merged, conflicts = merge_branches([("test", {"current_state": ["12 pass"]}),
        ...                                     ("review", {"current_state": ["Reads well"]})])
        >>> merged, conflicts[0].field
        ({'current_state': ['12 pass', 'Reads well']}, 'current_state')
    """
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


def _members(values: list[JsonValue]) -> JsonValue:
    """Return an object with every member that one of the objects has; null in a patch takes a member away."""
    merged: JsonValue = {}
    for value in values:
        if not isinstance(value, dict):
            raise ValueError("members are those of objects; declare another strategy for this field")
        merged = _joined(merged, value, "")
    return merged


def _joined(one: JsonValue, other: JsonValue, path: str) -> JsonValue:
    """Return both objects as one, or the value that is the same in both."""
    if isinstance(one, dict) and isinstance(other, dict):
        shared = {name: _joined(one[name], value, f"{path}/{name}") for name, value in other.items() if name in one}
        return {**one, **other, **shared}
    if not same_json(one, other):
        raise ValueError(f"{path} can have one value only; let one stage write it")
    return one


def _refuse(values: list[JsonValue]) -> JsonValue:
    """Refuse whatever the values are."""
    raise ValueError(f"declare how its {len(values)} values merge, or let one stage write it")


_MERGES: dict[MergeStrategy, Callable[[list[JsonValue]], JsonValue]] = {
    MergeStrategy.UNION: _union,
    MergeStrategy.MEMBERS: _members,
    MergeStrategy.FIRST: lambda values: values[0],
    MergeStrategy.LAST: lambda values: values[-1],
    MergeStrategy.REFUSE: _refuse,
}
