"""A change of the baton in words: what a person reads of a patch."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import JsonValue
from rich.table import Table
from rich.text import Text

from baton.cli.output import grid, plain
from baton.core.history import HistoryEntry, StepKind
from baton.core.patching import merge_patch, same_json
from baton.core.state import MergeStrategy
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

_KEEP_ALL = (MergeStrategy.UNION, MergeStrategy.MEMBERS)
"""The merges that lose nothing of what the branches wrote; of the others somebody should know."""


def changes(entry: HistoryEntry, before: Mapping[str, Any]) -> list[Text]:
    """Return what an entry changed, a line for each thing that came or went."""
    if entry.kind in (StepKind.APPROVAL, StepKind.SLEEP):
        return []
    if entry.kind is StepKind.BRANCH:
        return [Text(f"wrote {', '.join(entry.patch) or 'nothing'}", "dim")]
    lines: list[Text] = []
    for field, value in entry.effective.items():
        old = before.get(field)
        if field == "decision_log":
            lines += difference(field, [], value)
        elif isinstance(old, dict) and isinstance(value, dict):  # members that are left out stay (RFC 7396)
            lines += difference(field, old, merge_patch(old, value))
        else:
            lines += difference(field, old, value)
    return lines or [Text("no change", "dim")]


def difference(field: str, before: JsonValue, after: JsonValue, *, named: bool = True) -> Iterator[Text]:
    """Yield a line for each entry of a field that came or went; of a single value, for the old and the new one."""
    yield from _difference(field, _ONE.get(field, field.replace("_", " ")) if named else "", before, after)


def _difference(field: str, name: str, before: JsonValue, after: JsonValue) -> Iterator[Text]:
    """Yield what `difference` does, of what stands under ``name`` in a field."""
    if same_json(before, after):
        return
    label = f"{name}: " if name else ""
    if isinstance(before, dict | None) and isinstance(after, dict | None) and (before or after):
        old_members, new_members = before or {}, after or {}
        for key in {**old_members, **new_members}:
            path = f"{name}.{key}" if name else key
            yield from _difference(field, path, old_members.get(key), new_members.get(key))
        return
    if isinstance(before, list | None) and isinstance(after, list | None):
        old, new = _list(before), _list(after)
        yield from (_line("-", label, field, one) for one in old if one not in new)
        yield from (_line("+", label, field, one) for one in new if one not in old)
        if old != new and sorted(map(str, old)) == sorted(map(str, new)):
            yield plain(f"= {label}another order", "dim")
        return
    if before is not None:
        yield _line("-", label, field, before)
    if after is not None:
        yield _line("+", label, field, after)


def remarks(entry: HistoryEntry) -> list[Text]:
    """Return what an operator should notice about an entry: warnings, conflicts, constraints taken away."""
    lines = [plain(f"! {warning}", "yellow") for warning in entry.warnings]
    if entry.removed_constraints:
        lines.append(Text(f"! took away {quantity(len(entry.removed_constraints), 'constraint')}", "yellow"))
    for conflict in entry.conflicts:
        *others, last = conflict.values
        stages = f"{', '.join(others)} and {last}"
        all_kept = conflict.strategy in _KEEP_ALL
        sign, style = ("=", "dim") if all_kept else ("!", "yellow")
        lines.append(plain(f"{sign} {stages} wrote {conflict.field}; merged by {conflict.strategy}", style))
    return lines


def value_in_words(field: str, value: JsonValue) -> str:
    """Return one entry of a field on a line."""
    if field == "artifacts" and isinstance(value, dict):
        path = f" {value['path']}" if value.get("path") else ""
        return f"{value.get('id')} ({value.get('type')}, {str(value.get('hash'))[:12]}){path}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def hanging(lines: Iterable[Text]) -> Table:
    """Return the lines, each with its sign in a column of its own, so that long ones stay apart."""
    table = grid()
    for line in lines:
        signed = line.plain[1:2] == " "
        table.add_row(line[:1] if signed else "", line[2:] if signed else line)
    return table


def _line(sign: str, label: str, field: str, value: JsonValue) -> Text:
    style = {"+": "green", "-": "red"}[sign]
    return Text.assemble((f"{sign} ", style), plain(label, "dim"), plain(value_in_words(field, value)))


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
