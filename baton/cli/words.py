"""A change of the baton in words: what a person reads of a patch."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue
from rich.text import Text

from baton.cli.output import plain
from baton.protocol.history import HistoryEntry, StepKind

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


def changes(entry: HistoryEntry, before: Mapping[str, Any]) -> list[Text]:
    """Return what an entry changed, a line for each thing that came or went.

    Args:
        entry: The entry.
        before: The baton before it, as JSON.

    Returns:
        Lines, each beginning with `+`, `-` or `=`; one that says so where nothing changed.
    """
    if entry.kind is StepKind.APPROVAL:
        return []
    lines: list[Text] = []
    for field, value in entry.effective.items():
        if field == "decision_log":
            lines += [_line("+", field, one) for one in _list(value)]
        else:
            lines += list(difference(field, before.get(field), value))
    if not lines and entry.kind is not StepKind.BRANCH:
        lines = [Text("no change", "dim")]
    return lines


def difference(field: str, before: JsonValue, after: JsonValue) -> Iterable[Text]:
    """Yield a line for each entry of a field that came or went; of a single value, for the old and the new one."""
    if isinstance(before, list | None) and isinstance(after, list | None):
        old, new = _list(before), _list(after)
        yield from (_line("-", field, one) for one in old if one not in new)
        yield from (_line("+", field, one) for one in new if one not in old)
        if old != new and sorted(map(str, old)) == sorted(map(str, new)):
            yield Text(f"= {_one(field)}: another order", "dim")
        return
    if before is not None:
        yield _line("-", field, before)
    if after is not None:
        yield _line("+", field, after)


def remarks(entry: HistoryEntry) -> list[Text]:
    """Return what an operator should notice about an entry: warnings, conflicts, constraints taken away."""
    lines = [plain(f"! {warning}", "yellow") for warning in entry.warnings]
    if entry.removed_constraints:
        gone = "; ".join(entry.removed_constraints)
        lines.append(plain(f"! took away {len(entry.removed_constraints)} of the constraints: {gone}", "yellow"))
    for conflict in entry.conflicts:
        stages = " and ".join(conflict.values)
        lines.append(plain(f"! {stages} both wrote {conflict.field}; merged by {conflict.strategy}", "yellow"))
    return lines


def value_in_words(field: str, value: JsonValue) -> str:
    """Return one entry of a field on a line.

    Example:
        >>> value_in_words("artifacts", {"id": "art-1", "type": "plan", "hash": "a3f8" * 16, "path": "p.md"})
        'art-1 (plan, a3f8a3f8a3f8) p.md'
    """
    if field == "artifacts" and isinstance(value, dict):
        path = f" {value['path']}" if value.get("path") else ""
        return f"{value.get('id')} ({value.get('type')}, {str(value.get('hash'))[:12]}){path}"
    return value if isinstance(value, str) else str(value)


def _line(sign: str, field: str, value: JsonValue) -> Text:
    style = {"+": "green", "-": "red"}[sign]
    return Text.assemble((f"{sign} ", style), (f"{_one(field)}: ", "dim"), plain(value_in_words(field, value)))


def _one(field: str) -> str:
    return _ONE.get(field, field.replace("_", " "))


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
