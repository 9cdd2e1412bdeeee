"""The changes of a baton, entry by entry, for commands and pages."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from baton.core.baton import Baton
from baton.core.history import HistoryEntry, StepKind
from baton.core.messages import STARTING
from baton.core.notes import NO_REASONS
from baton.core.patching import merge_patch, same_json
from baton.core.state import NO_ROOM, MergeStrategy
from baton.runs.client_record import RunRecord
from baton.wire.json_values import JsonFields
from baton.wire.text import quantity

_LABELS = {
    "current_state": "state",
    "decision_log": "decision",
    "constraints": "constraint",
    "work_scope": "scope",
    "artifacts": "artifact",
    "open_questions": "question",
    "acceptance": "acceptance",
}
"""The label of one entry of each field."""

_ROUTINE = (NO_REASONS, NO_ROOM, "current_state: ", "decision_log: ")
"""The beginnings of warnings that are recorded and need no attention."""

Before = Mapping[str, JsonValue]
"""The fields that an entry changed, as they were right before it."""


@dataclass(frozen=True)
class Change(JsonFields):
    """One thing that changed in a baton, or a remark on a change.

    Attributes:
        sign: `+` added, `-` removed, `=` harmless, `!` needs an operator's attention; empty for the fields that a
            branch wrote: its merge changes them.
        text: The entry on one line.
        label: The kind of entry, such as `decision`.
    """

    sign: str
    text: str
    label: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {f'{self.label}: ' if self.label else ''}{self.text}".lstrip()


@dataclass(frozen=True)
class FieldChange(JsonFields):
    """A field that differs between two batons.

    Attributes:
        name: The field.
        changes: The added and removed entries.
        kept: How many entries are in both.
    """

    name: str
    changes: list[Change]
    kept: int


def for_display(baton: Baton) -> Baton:
    """Return a baton without its current state, if no stage has written one yet.

    Args:
        baton: The baton.
    """
    return baton.model_copy(update={"current_state": []}) if baton.current_state == STARTING else baton


def with_before(run: RunRecord) -> Iterator[tuple[HistoryEntry, Before]]:
    """Yield each history entry of a run with the previous values of the fields it changed.

    Builds no batons: a run may have thousands of entries.

    Args:
        run: The run.
    """
    members = run.state.initial.to_json_object()
    for entry in run.state.entries:
        yield entry, {field: members.get(field) for field in entry.effective}
        for field, value in entry.effective.items():
            if field != "decision_log":  # it only grows, so its old value is not needed
                members[field] = _apply(members.get(field), value)


def _apply(old: JsonValue, value: JsonValue) -> JsonValue:
    """Return a field's value after a change; objects are merged (RFC 7396)."""
    return merge_patch(old, value) if isinstance(old, dict) and isinstance(value, dict) else value


def changes(entry: HistoryEntry, before: Before) -> list[Change]:
    """Return the changes of a history entry; none for an approval or a sleep.

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
        lines += difference(field, _LABELS.get(field, field.replace("_", " ")), old, _apply(old, value))
    return lines


def compare(left: Baton, right: Baton) -> list[FieldChange]:
    """Return the fields in which two batons differ.

    Args:
        left: The first baton; entries only it has are removed.
        right: The second baton; entries only it has are added.
    """
    old, new = left.to_json_object(), right.to_json_object()
    return [
        FieldChange(
            name, [*difference(name, "", old.get(name), new.get(name))], _count_common(old.get(name), new.get(name))
        )
        for name in {**old, **new}
        if not same_json(old.get(name), new.get(name))
    ]


def _count_common(old: JsonValue, new: JsonValue) -> int:
    return sum(entry in old for entry in new) if isinstance(old, list) and isinstance(new, list) else 0


def difference(field: str, name: str, old_value: JsonValue, new_value: JsonValue) -> Iterator[Change]:
    """Yield the removed and added entries of a field; for a single value, the old and the new value."""
    if same_json(old_value, new_value):
        return
    if isinstance(old_value, dict | None) and isinstance(new_value, dict | None) and (old_value or new_value):
        old_members, new_members = old_value or {}, new_value or {}
        for key in {**old_members, **new_members}:
            path = f"{name}.{key}" if name else key
            yield from difference(field, path, old_members.get(key), new_members.get(key))
        return
    if isinstance(old_value, list | None) and isinstance(new_value, list | None):
        old, new = old_value or [], new_value or []
        yield from (Change("-", _render_entry(field, entry), name) for entry in old if entry not in new)
        yield from (Change("+", _render_entry(field, entry), name) for entry in new if entry not in old)
        if old != new and sorted(map(str, old)) == sorted(map(str, new)):
            yield Change("=", "another order", name)
        return
    if old_value is not None:
        yield Change("-", _render_entry(field, old_value), name)
    if new_value is not None:
        yield Change("+", _render_entry(field, new_value), name)


def _render_entry(field: str, value: JsonValue) -> str:
    if field == "artifacts" and isinstance(value, dict):
        path = f" {value['path']}" if value.get("path") else ""
        return f"{value.get('id')} ({value.get('type')}, {str(value.get('hash'))[:12]}){path}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def remarks(entry: HistoryEntry) -> list[Change]:
    """Return the warnings, conflicts and removed constraints of an entry.

    Args:
        entry: The entry.
    """
    lines = [Change("=" if warning.startswith(_ROUTINE) else "!", warning) for warning in entry.warnings]
    if entry.failure is not None:
        lines.append(Change("!", f"failed: {entry.failure}"))
    if entry.report is not None:
        lines.append(Change("=" if entry.report.may_proceed else "!", f"its report says {entry.report}"))
    lines += [
        Change("=", f"the agent {name} acted in it" + (f"; it called {', '.join(tools)}" if tools else ""))
        for name, tools in entry.agents.items()
    ]
    if entry.removed_constraints:
        lines.append(Change("!", f"took away {quantity(len(entry.removed_constraints), 'constraint')}"))
    for conflict in entry.conflicts:
        *stages, last = conflict.values
        sign = "=" if conflict.strategy == MergeStrategy.UNION else "!"  # a union keeps all values
        text = f"{', '.join(stages)} and {last} wrote {conflict.field}; merged by {conflict.strategy}"
        if conflict.field == "decision_log":
            sign, text = (
                "!",
                f"{last} rejects what {stages[0]} decided: {' / '.join(map(str, conflict.values.values()))}",
            )
        lines.append(Change(sign, text))
    return lines
