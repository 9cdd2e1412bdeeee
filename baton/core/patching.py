"""How a patch becomes the next baton: merge-patch (RFC 7396), with the rules that protect what must not be lost.

A patch is applied whole or not at all. What breaks a rule is reported with every finding at once, so that the stage can
fix all of it in its next attempt; nothing is dropped silently.
"""

import copy
import difflib
from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global one by a slow one
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import JsonValue, ValidationError

from baton.core.baton import Baton, BatonPatch, BatonT
from baton.core.stages import field_set
from baton.core.verdict import MAX_FINDING_LENGTH, MAX_FINDINGS
from baton.errors import PatchError
from baton.wire.json_values import digest, find_excess
from baton.wire.text import list_faults


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with ``patch`` merged into it (RFC 7396 section 2).

    Objects merge member by member, a null member removes, and anything else, lists included, replaces
    what was there. Neither argument is changed. The result shares nothing with ``patch``; what the patch leaves
    alone are the very objects of ``target``.

    Example:
        >>> merge_patch({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]})
        {'a': {'c': 2}, 'd': [2]}
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same; unlike in Python, true is not 1 and false is not 0."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest merge-patch that leads from ``before`` to ``after``."""
    patch: dict[str, Any] = {}
    for key in sorted(before.keys() | after.keys()):
        if key not in after:
            patch[key] = None
        elif key not in before:
            patch[key] = after[key]
        elif isinstance(before[key], dict) and isinstance(after[key], dict):
            if nested := difference(before[key], after[key]):
                patch[key] = nested
        elif not same_json(before[key], after[key]):
            patch[key] = after[key]
    return patch


RawPatch: TypeAlias = BatonPatch | Mapping[str, JsonValue]

MAX_BATON_BYTES = 1024 * 1024
"""The most a baton may measure as JSON: hundreds of times what it is meant to, half of Temporal's limit."""

MIN_BULLETS, MAX_BULLETS = 3, 8  # a soft limit: it warns and never refuses


@dataclass(frozen=True)
class PatchRules:
    """What a patch must respect beyond the shape of the baton.

    Attributes:
        freeze_goal: Refuse a patch that changes the goal.
        protected: Fields whose entries may be added to but not removed, for example `constraints`.
        known_artifacts: Hash by id of every artifact the pipeline has ever seen.
    """

    freeze_goal: bool = False
    protected: frozenset[str] = frozenset()
    known_artifacts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PatchEffect:
    """What a patch did.

    Attributes:
        before: The baton the patch was applied to.
        baton: The baton that follows.
        change: The effective change, a merge-patch; of `decision_log` it holds the appended entries only.
        warnings: What is odd but allowed, a sentence each.
        removed_constraints: The constraints that are no longer there.
    """

    before: Baton
    baton: Baton
    change: dict[str, Any]
    warnings: list[str]
    removed_constraints: list[str]


def apply_patch(baton: BatonT, patch: RawPatch, rules: PatchRules | None = None) -> BatonT:
    """Return the baton that follows ``baton`` once ``patch`` is applied.

    Fields follow JSON merge-patch (RFC 7396): a field the stage set replaces the old value whole, lists
    included, and a field it left unset is kept; null empties a list, and objects of a derived baton merge
    member by member. ``decision_log`` is the one exception: its entries are appended, so no stage can erase
    what an earlier one decided.

    Example:
        >>> before = Baton(goal="Add login", decision_log=["Use JWT"])
        >>> apply_patch(before, BatonPatch(decision_log=["Use Postgres"])).decision_log
        ['Use JWT', 'Use Postgres']
    """
    after = patch_effect(baton, patch, rules).baton
    assert isinstance(after, type(baton))  # noqa: S101 - narrows for the type checker
    return after


def patch_effect(baton: Baton, patch: RawPatch, rules: PatchRules | None = None) -> PatchEffect:
    """Apply ``patch`` like `apply_patch` and tell what it changed."""
    rules = rules or PatchRules()
    field_set(rules.protected, type(baton), "protected")
    raw = patch.to_json_object() if isinstance(patch, BatonPatch) else dict(patch)
    check_bounds(raw)
    findings = _member_findings(baton, raw, rules)
    appended, warnings, log_findings = new_decisions(baton.decision_log, raw)
    findings += log_findings
    before = baton.to_json_object()
    rest = {name: value for name, value in raw.items() if name != "decision_log"}
    merged = merge_patch(before, rest)
    merged["decision_log"] = [*baton.decision_log, *appended]
    after, shape_findings = _validated(type(baton), merged, raw)
    named = {finding.split(":", 1)[0] for finding in findings}
    findings += [finding for finding in shape_findings if finding.split(":", 1)[0] not in named]
    if after is not None:
        findings += _protection_findings(baton, after, rules) + _size_findings(after)
    if findings or after is None:
        raise PatchError(shorten_findings(findings))
    change = difference(before, after.to_json_object())
    if appended:
        change["decision_log"] = appended
    warnings += _bullet_warnings(raw, after)
    kept = set(after.constraints)
    removed = [rule for rule in baton.constraints if rule not in kept]
    return PatchEffect(baton, after, change, warnings, removed)


def check_bounds(patch: Mapping[str, Any]) -> None:
    """Refuse a patch that holds too many values, before anything else looks at it."""
    if (found := find_excess(patch)) is not None:
        raise PatchError(shorten_findings([str(found) if found.path else f"baton: {found}"]))


def new_decisions(log: list[str], raw: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Return the decisions that a patch appends, the warnings and the findings."""
    if "decision_log" not in raw:
        return [], [], []
    value = raw["decision_log"]
    if value is None:
        return [], [], ["decision_log: only grows and may not be cleared; send the new entries, or leave it out"]
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return [], [], ["decision_log: must be a list of strings"]
    fresh = value[_echoed(log, value) :]
    if fresh and set(fresh) <= set(log):
        warning = "decision_log: every entry is in the log already; nothing was added, and nothing can be removed"
        return [], [warning], []
    return fresh, [], []


def _echoed(log: list[str], value: list[str]) -> int:
    """Return how many entries at the end of the log a value begins with: in one pass, however alike they are."""
    row = [*value, None, *log[max(0, len(log) - len(value)) :]]
    # How many entries up to each place are those that the row begins with (Knuth, Morris and Pratt, 1977).
    borders = [0] * len(row)
    for at in range(1, len(row)):
        length = borders[at - 1]
        while length and row[at] != row[length]:
            length = borders[length - 1]
        borders[at] = length + (row[at] == row[length])
    return borders[-1]


def without_echo(log: list[str], patch: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return ``patch`` with only the new decisions in its ``decision_log``."""
    fresh, _, findings = new_decisions(log, patch)
    return dict(patch) if findings or "decision_log" not in patch else {**patch, "decision_log": [*fresh]}


def undeclared_writes(patch: Mapping[str, JsonValue], writes: frozenset[str] | None) -> list[str]:
    """Return a finding for each field that a stage wrote without declaring it."""
    if writes is None:
        return []
    allowed = ", ".join(sorted(writes)) or "none"
    return shorten_findings(
        [
            f"{name}: the stage did not declare that it writes this field (declared: {allowed})"
            for name in patch
            if name not in writes
        ]
    )


def _member_findings(baton: Baton, raw: Mapping[str, Any], rules: PatchRules) -> list[str]:
    """Return the findings about members that may not appear, or not like this."""
    fields = type(baton).model_fields
    unknown = [] if _open_ended(type(baton)) else [name for name in raw if name not in fields]
    findings = []
    for name in unknown[: MAX_FINDINGS + 1]:
        near = difflib.get_close_matches(name, fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the members are {', '.join(fields)}"
        findings.append(f"{name}: a baton has no such member; {hint}")
    if "goal" in raw:
        goal = raw["goal"]
        if goal is None or (isinstance(goal, str) and not goal.strip()):
            findings.append("goal: may not be cleared; leave it out to keep it")
        elif rules.freeze_goal and goal != baton.goal:
            findings.append("goal: is frozen in this pipeline; leave it out")
    return findings


def shorten_findings(findings: list[str]) -> list[str]:
    """Return the findings cut to a length that a prompt and a payload can take, however odd the patch."""
    short = [
        one if len(one) <= MAX_FINDING_LENGTH else f"{one[:MAX_FINDING_LENGTH]}…" for one in findings[:MAX_FINDINGS]
    ]
    return short if len(short) == len(findings) else [*short, "there are more; fix these first"]


def _open_ended(kind: type[Baton]) -> bool:
    """Return whether the type takes members it does not declare, as `AnyBaton` does."""
    return kind.model_config.get("extra") == "allow"


def _validated(kind: type[BatonT], merged: Any, raw: Mapping[str, Any]) -> tuple[BatonT | None, list[str]]:
    """Return the baton made of ``merged``, or None and what is wrong with it, by member."""
    fields = kind.model_fields
    known = merged if _open_ended(kind) else {name: merged[name] for name in merged if name in fields}
    try:
        return kind.from_json_object(known), []
    except ValidationError as error:
        findings = []
        for fault in list_faults(error):
            where = ".".join(str(part) for part in fault["loc"]) or "baton"
            found = type(raw.get(str(fault["loc"][0]))).__name__ if fault["loc"] else "object"
            findings.append(f"{where}: {fault['msg']} (the patch has a {found} for this member)")
        return None, findings
    except ValueError as error:
        return None, [f"baton: the patch is not JSON: {error}"]


def _protection_findings(before: Baton, after: Baton, rules: PatchRules) -> list[str]:
    """Return the findings about entries that are protected, and about artifact ids used twice."""
    findings = []
    for name in sorted(rules.protected - {"decision_log"}):
        gone = len(_entries(before, name) - _entries(after, name))
        if gone:
            findings.append(f"{name}: is protected, and {gone} of its entries would be removed; keep them all")
    seen = dict(rules.known_artifacts) | {ref.id: ref.hash for ref in before.artifacts}
    for ref in after.artifacts:
        known = seen.setdefault(ref.id, ref.hash)
        if known != ref.hash:
            findings.append(
                f"artifacts: {ref.id!r} already names other bytes ({known[:12]}…, now {ref.short_hash}…); "
                "artifacts are immutable, a new version takes a new id"
            )
    return findings


def _entries(baton: Baton, name: str) -> set[str]:
    """Return the digests of what a protected field may not lose: its entries, or its one value."""
    value = baton.to_json_object().get(name)
    if isinstance(value, dict):
        return {digest([key, entry]) for key, entry in value.items()}
    if isinstance(value, list):
        return {digest(entry) for entry in value}
    return set() if value in (None, "") else {digest(value)}


def _size_findings(after: Baton) -> list[str]:
    """Return the finding about a baton that is too large for its purpose, and soon for Temporal."""
    size = len(after.model_dump_json().encode())
    if size <= MAX_BATON_BYTES:
        return []
    return [
        f"baton: would have {size:,} bytes, and {MAX_BATON_BYTES:,} is the most; "
        "put what was produced into an artifact and refer to it"
    ]


def _bullet_warnings(raw: Mapping[str, Any], after: Baton) -> list[str]:
    """Return the warning about a state that is too thin or too long, if the patch set it."""
    count = len(after.current_state)
    if "current_state" not in raw or MIN_BULLETS <= count <= MAX_BULLETS:
        return []
    bullets = "1 bullet" if count == 1 else f"{count} bullets"
    return [f"current_state: {bullets}; {MIN_BULLETS} to {MAX_BULLETS} tell best what is true now"]
