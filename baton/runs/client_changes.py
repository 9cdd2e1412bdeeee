"""What changed in a baton, entry by entry, for commands and pages to show."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from baton.core.baton import Baton
from baton.core.history import HistoryEntry, StepKind
from baton.core.messages import STARTING
from baton.core.patching import merge_patch, same_json
from baton.core.state import MergeStrategy
from baton.runs.client_record import RunRecord
from baton.wire.text import quantity

_ONE = {
    "current_state": "state",
    "decision_log": "decision",
    "constraints": "constraint",
    "work_scope": "scope",
    "artifacts": "artifact",
    "open_questions": "question",
    "acceptance": "acceptance",
}
"""What one entry of each field is called."""


Before = Mapping[str, JsonValue]
"""The fields that an entry changed, as they were right before it."""


@dataclass(frozen=True)
class Change:
    """One thing that changed in a baton, or a remark on a change.

    Attributes:
        sign: `+` what came, `-` what went, `=` what needs no attention, `!` what an operator should notice; empty for
            the fields that a branch wrote, which its merge changes.
        text: The entry on a line.
        label: What the entry is, such as `decision`.
    """

    sign: str
    text: str
    label: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {f'{self.label}: ' if self.label else ''}{self.text}".lstrip()


@dataclass(frozen=True)
class FieldChange:
    """A field that differs between two batons.

    Attributes:
        name: The field.
        changes: What came and what went.
        kept: How many entries are in both.
    """

    name: str
    changes: list[Change]
    kept: int


def for_display(baton: Baton) -> Baton:
    """Return a baton as people are shown it: without the current state while no stage has written one.

    Args:
        baton: The baton.
    """
    return baton.model_copy(update={"current_state": []}) if baton.current_state == STARTING else baton


def with_before(run: RunRecord) -> Iterator[tuple[HistoryEntry, Before]]:
    """Yield each history entry of a run with the fields that it changed, as they were right before it.

    No baton is made for it: a run may have thousands of entries.

    Args:
        run: The run.
    """
    members = run.state.initial.to_json_object()
    for entry in run.state.entries:
        yield entry, {field: members.get(field) for field in entry.effective}
        for field, value in entry.effective.items():
            if field != "decision_log":  # which only grows, so that what it was makes no difference
                members[field] = _after(members.get(field), value)


def _after(old: JsonValue, value: JsonValue) -> JsonValue:
    """Return a field after a change; members of an object that are left out stay (RFC 7396)."""
    return merge_patch(old, value) if isinstance(old, dict) and isinstance(value, dict) else value


def changes(entry: HistoryEntry, before: Before) -> list[Change]:
    """Return what a history entry changed: nothing for an approval or a sleep.

    Args:
        entry: The entry.
        before: The fields that it changed, as they were right before it.
    """
    if entry.kind in (StepKind.APPROVAL, StepKind.SLEEP):
        return []
    if entry.kind is StepKind.BRANCH:
        return [Change("", f"wrote {', '.join(entry.patch) or 'nothing'}")]
    lines: list[Change] = []
    for field, value in entry.effective.items():
        old = [] if field == "decision_log" else before.get(field)
        lines += difference(field, _ONE.get(field, field.replace("_", " ")), old, _after(old, value))
    return lines


def compare(left: Baton, right: Baton) -> list[FieldChange]:
    """Return the fields in which two batons differ.

    Args:
        left: The first baton; what only it has went.
        right: The second baton; what only it has came.
    """
    old, new = left.to_json_object(), right.to_json_object()
    return [
        FieldChange(name, [*difference(name, "", old.get(name), new.get(name))], _kept(old.get(name), new.get(name)))
        for name in {**old, **new}
        if not same_json(old.get(name), new.get(name))
    ]


def _kept(old: JsonValue, new: JsonValue) -> int:
    return sum(one in old for one in new) if isinstance(old, list) and isinstance(new, list) else 0


def difference(field: str, name: str, before: JsonValue, after: JsonValue) -> Iterator[Change]:
    """Yield each entry of a field that came or went, under a name; of a single value, the old and the new one."""
    if same_json(before, after):
        return
    if isinstance(before, dict | None) and isinstance(after, dict | None) and (before or after):
        old_members, new_members = before or {}, after or {}
        for key in {**old_members, **new_members}:
            path = f"{name}.{key}" if name else key
            yield from difference(field, path, old_members.get(key), new_members.get(key))
        return
    if isinstance(before, list | None) and isinstance(after, list | None):
        old, new = before or [], after or []
        yield from (Change("-", _in_words(field, one), name) for one in old if one not in new)
        yield from (Change("+", _in_words(field, one), name) for one in new if one not in old)
        if old != new and sorted(map(str, old)) == sorted(map(str, new)):
            yield Change("=", "another order", name)
        return
    if before is not None:
        yield Change("-", _in_words(field, before), name)
    if after is not None:
        yield Change("+", _in_words(field, after), name)


def _in_words(field: str, value: JsonValue) -> str:
    """Return one entry of a field on a line."""
    if field == "artifacts" and isinstance(value, dict):
        path = f" {value['path']}" if value.get("path") else ""
        return f"{value.get('id')} ({value.get('type')}, {str(value.get('hash'))[:12]}){path}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def remarks(entry: HistoryEntry) -> list[Change]:
    """Return what an operator should notice about an entry: warnings, conflicts, constraints taken away.

    Args:
        entry: The entry.
    """
    lines = [Change("!", warning) for warning in entry.warnings]
    if entry.removed_constraints:
        lines.append(Change("!", f"took away {quantity(len(entry.removed_constraints), 'constraint')}"))
    for conflict in entry.conflicts:
        *others, last = conflict.values
        sign = "=" if conflict.strategy == MergeStrategy.UNION else "!"  # which keeps all
        told = f"{', '.join(others)} and {last} wrote {conflict.field}; merged by {conflict.strategy}"
        lines.append(Change(sign, told))
    return lines
