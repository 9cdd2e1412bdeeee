"""Applying a patch to a baton: merge-patch (RFC 7396), with rules that protect the goal, decisions and artifacts.

A patch is applied completely or not at all. All broken rules are reported at once, so that the next attempt of the
stage can fix them all; nothing is dropped silently.
"""

import copy
import difflib
from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global by a slow one
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import Field, JsonValue, ValidationError

from baton.core.baton import Baton, BatonPatch, BatonT
from baton.core.stages import field_set
from baton.core.verdict import MAX_FINDING_LENGTH, MAX_FINDINGS
from baton.errors import PatchError
from baton.wire.json_values import digest, find_excess
from baton.wire.records import CompactRecord
from baton.wire.text import list_faults


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with ``patch`` merged into it (RFC 7396 section 2).

    Objects merge member by member, null removes a member, and any other value, lists included, replaces the old
    one. The arguments are not changed. The result copies values of ``patch`` and shares unchanged ones with
    ``target``.

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


def same_json(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1 and false is not 0."""
    if left is right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest merge-patch that turns ``before`` into ``after``."""
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

MAX_BYTES = 1024 * 1024
"""The most bytes of a baton as JSON: hundreds of times its intended size, half of Temporal's limit."""

MAX_DECISIONS = 1_000
"""The most decisions in a baton; when more are made, the newer half stays, and the history has them all."""
MAX_DECISION_CHARACTERS = 200_000
"""The most characters of these decisions together, likewise."""

MIN_BULLETS, MAX_BULLETS = 3, 8  # outside these, a patch gets a warning


@dataclass(frozen=True)
class PatchRules:
    """Rules for patches beyond the baton's schema.

    Attributes:
        protected: Fields that may not lose an entry, for example `constraints`; a text such as `goal` may not change.
        known_artifacts: The hash of every artifact that the pipeline has had, by id.
    """

    protected: frozenset[str] = frozenset()
    known_artifacts: Mapping[str, str] = field(default_factory=dict)


class PublishedTerms(CompactRecord):
    """What a pipeline's code says about its baton, in the run's history for readers that do not have the code.

    Attributes:
        fields: The initial values of the fields that `Baton` does not have.
    """

    fields: dict[str, JsonValue] = Field(default_factory=dict)
    protected: list[str] = Field(default_factory=list)

    @property
    def rules(self) -> PatchRules:
        """The rules for patches."""
        return PatchRules(frozenset(self.protected))


@dataclass(frozen=True)
class PatchEffect:
    """The effect of a patch; in ``change``, a merge-patch, `decision_log` holds the appended entries only."""

    before: Baton
    baton: Baton
    change: dict[str, Any]
    warnings: list[str]
    removed_constraints: list[str]


def apply_patch(baton: BatonT, patch: RawPatch, rules: PatchRules | None = None) -> BatonT:
    """Return ``baton`` with ``patch`` applied.

    Fields follow JSON merge-patch (RFC 7396): a set field replaces the old value, lists included, and an unset
    field keeps it; null empties a list, and objects merge member by member. ``decision_log`` is the one
    exception: its entries are appended, so no stage can erase an earlier decision.

    Example:
        >>> before = Baton(goal="Add login", decision_log=["Use JWT"])
        >>> apply_patch(before, BatonPatch(decision_log=["Use Postgres"])).decision_log
        ['Use JWT', 'Use Postgres']
    """
    after = patch_effect(baton, patch, rules).baton
    assert isinstance(after, type(baton))  # noqa: S101 - narrows for the type checker
    return after


def patch_effect(baton: Baton, patch: RawPatch, rules: PatchRules | None = None) -> PatchEffect:
    """Apply ``patch`` like `apply_patch` and return the effect."""
    rules = rules or PatchRules()
    field_set(rules.protected, type(baton), "protected")
    raw = patch.to_json_object() if isinstance(patch, BatonPatch) else dict(patch)
    check_bounds(raw)
    findings = _member_findings(baton, raw)
    log_findings = _log_findings(raw)
    findings += log_findings
    appended: Any = [] if log_findings else raw.get("decision_log", [])
    before = baton.to_json_object()
    other_fields = {name: value for name, value in raw.items() if name != "decision_log"}
    merged = merge_patch(before, other_fields)
    merged["decision_log"], moved = append_decisions(baton.decision_log, appended)
    after, schema_findings = _parse_merged(type(baton), merged, raw)
    reported = {finding.split(":", 1)[0] for finding in findings}
    findings += [finding for finding in schema_findings if finding.split(":", 1)[0] not in reported]
    if after is not None:
        findings += _protection_findings(baton, after, rules) + _size_findings(after)
    if findings or after is None:
        raise PatchError(shorten_findings(findings))
    change = difference(before, after.to_json_object())
    if appended:
        change["decision_log"] = [*appended]
    warnings = _bullet_warnings(raw, baton, after)
    if moved:
        warnings.append(f"decision_log: the {moved:,} oldest entries left the baton; the history has them")
    constraints = set(after.constraints)
    removed = [rule for rule in baton.constraints if rule not in constraints]
    return PatchEffect(baton, after, change, warnings, removed)


def check_bounds(patch: Mapping[str, Any]) -> None:
    """Reject a patch with too many values, before any other check."""
    if (limit := find_excess(patch)) is not None:
        raise PatchError(shorten_findings([str(limit) if limit.path else f"baton: {limit}"]))


def _log_findings(raw: Mapping[str, Any]) -> list[str]:
    """Return the findings about the decisions of a patch."""
    if "decision_log" not in raw:
        return []
    value = raw["decision_log"]
    if value is None:
        return ["decision_log: only grows and may not be cleared; send the new entries, or leave it out"]
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return ["decision_log: must be a list of strings"]
    return []


def unknown_decisions(log: list[str], other: list[Any]) -> list[Any]:
    """Return the entries of another baton's log that this log lacks; one that was made twice counts twice.

    Example:
        >>> unknown_decisions(["Plan", "Failed"], ["Plan", "Failed", "Failed"])
        ['Failed']
    """
    known = Counter(log)
    unknown = []
    for entry in other:
        if isinstance(entry, str) and known[entry]:
            known[entry] -= 1
        else:
            unknown.append(entry)
    return unknown


def append_decisions(log: Sequence[str], appended: Sequence[str]) -> tuple[list[str], int]:
    """Return the log with new decisions, and how many old ones left it because it would have become too long.

    Example:
        >>> log, left = append_decisions([f"Decision {number}" for number in range(1_000)], ["One more"])
        >>> len(log), left, log[-1]
        (500, 501, 'One more')
    """
    decisions = [*log, *appended]
    fits = len(decisions) <= MAX_DECISIONS and sum(map(len, decisions)) <= MAX_DECISION_CHARACTERS
    if fits or not appended:
        return decisions, 0
    kept, room = 1, MAX_DECISION_CHARACTERS // 2 - len(decisions[-1])  # the newest stays, however long it is
    for decision in reversed(decisions[-MAX_DECISIONS // 2 : -1]):
        room -= len(decision)
        if room < 0:
            break
        kept += 1
    return decisions[-kept:], len(decisions) - kept


def _count_echoed(log: list[str], value: list[str]) -> int:
    """Return the length of the longest prefix of ``value`` that ends ``log``, in linear time."""
    entries = [*value, None, *log[max(0, len(log) - len(value)) :]]
    # The prefix function of Knuth, Morris and Pratt (1977).
    borders = [0] * len(entries)
    for index in range(1, len(entries)):
        length = borders[index - 1]
        while length and entries[index] != entries[length]:
            length = borders[length - 1]
        borders[index] = length + (entries[index] == entries[length])
    return borders[-1]


def without_echo(log: list[str], patch: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return an agent's patch without the part of the log that the agent was shown and sends back.

    Only a model does that; what code returns is new, also if it repeats an entry.

    Example:
        >>> without_echo(["d1", "d2"], {"decision_log": ["d1", "d2", "d3"]})
        {'decision_log': ['d3']}
    """
    if "decision_log" not in patch or _log_findings(patch):
        return dict(patch)
    value: Any = patch["decision_log"]
    appended = value[_count_echoed(log, value) :]
    return {**patch, "decision_log": [] if set(appended) <= set(log) else appended}


def undeclared_writes(patch: Mapping[str, JsonValue], writes: frozenset[str] | None) -> list[str]:
    """Return a finding for each field that a stage wrote and did not declare."""
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


def _member_findings(baton: Baton, raw: Mapping[str, Any]) -> list[str]:
    """Return the findings about unknown members and a cleared goal."""
    fields = type(baton).model_fields
    unknown = [] if _allows_extra(type(baton)) else [name for name in raw if name not in fields]
    findings = []
    for name in unknown[: MAX_FINDINGS + 1]:
        matches = difflib.get_close_matches(name, fields, n=1)
        hint = f"did you mean {matches[0]!r}?" if matches else f"the members are {', '.join(fields)}"
        findings.append(f"{name}: a baton has no such member; {hint}")
    if "goal" in raw:
        goal = raw["goal"]
        if goal is None or (isinstance(goal, str) and not goal.strip()):
            findings.append("goal: may not be cleared; leave it out to keep it")
    return findings


def shorten_findings(findings: list[str]) -> list[str]:
    """Return the findings cut to a number and length that fit a prompt and a payload."""
    limit = MAX_FINDING_LENGTH
    short = [text if len(text) <= limit else f"{text[:limit]}…" for text in findings[:MAX_FINDINGS]]
    return short if len(short) == len(findings) else [*short, "there are more; fix these first"]


def _allows_extra(kind: type[Baton]) -> bool:
    return kind.model_config.get("extra") == "allow"


def _parse_merged(kind: type[BatonT], merged: Any, raw: Mapping[str, Any]) -> tuple[BatonT | None, list[str]]:
    """Return the baton parsed from ``merged``, or None and the findings by member."""
    fields = kind.model_fields
    known = merged if _allows_extra(kind) else {name: merged[name] for name in merged if name in fields}
    try:
        return kind.from_json_object(known), []
    except ValidationError as error:
        findings = []
        for fault in list_faults(error):
            path = ".".join(str(part) for part in fault["loc"]) or "baton"
            actual = type(raw.get(str(fault["loc"][0]))).__name__ if fault["loc"] else "object"
            findings.append(f"{path}: {fault['msg']} (the patch has a {actual} for this member)")
        return None, findings
    except ValueError as error:
        return None, [f"baton: the patch is not JSON: {error}"]


def _protection_findings(before: Baton, after: Baton, rules: PatchRules) -> list[str]:
    """Return the findings about removed protected entries and reused artifact ids."""
    findings = []
    for name in sorted(rules.protected - {"decision_log"}):
        removed = len(_entry_digests(before, name) - _entry_digests(after, name))
        if removed and isinstance(getattr(before, name), list | dict):
            findings.append(f"{name}: is protected, and {removed} of its entries would be removed; keep them all")
        elif removed:
            findings.append(f"{name}: is protected, and would change; leave it out")
    hashes = {ref.id: ref.hash for ref in before.artifacts}
    for ref in after.artifacts:
        known = hashes.setdefault(ref.id, rules.known_artifacts.get(ref.id, ref.hash))
        if known != ref.hash:
            findings.append(
                f"artifacts: {ref.id!r} already names other bytes ({known[:12]}…, now {ref.short_hash}…); "
                "artifacts are immutable, a new version takes a new id"
            )
    return findings


def _entry_digests(baton: Baton, name: str) -> set[str]:
    """Return the digests of a field's entries, or of its single value."""
    value = baton.to_json_object().get(name)
    if isinstance(value, dict):
        return {digest([key, entry]) for key, entry in value.items()}
    if isinstance(value, list):
        return {digest(entry) for entry in value}
    return set() if value in (None, "") else {digest(value)}


def _size_findings(after: Baton) -> list[str]:
    size = len(after.model_dump_json().encode())
    if size <= MAX_BYTES:
        return []
    return [
        f"baton: would have {size:,} bytes, and {MAX_BYTES:,} is the most; "
        "write large content to an artifact and refer to it"
    ]


def _bullet_warnings(raw: Mapping[str, Any], before: Baton, after: Baton) -> list[str]:
    """Return a warning if a patch adds a long state, or one that lost most of what it had; a short one is normal."""
    count, known = len(after.current_state), set(before.current_state)
    has_shrunk = count < MIN_BULLETS <= len(before.current_state)
    added = sum(bullet not in known for bullet in after.current_state)
    if "current_state" not in raw or not (has_shrunk or added > MAX_BULLETS):
        return []
    bullets = "1 bullet" if count == 1 else f"{count} bullets"
    return [f"current_state: {bullets}; {MIN_BULLETS} to {MAX_BULLETS} are best"]
