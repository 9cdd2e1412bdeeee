"""Two batons side by side, field by field."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from baton import Baton
from baton.client import RunRecord
from baton.errors import HistoryError

START, NOW = "start", "now"
"""What stands for the baton before the first step, and as it is now."""


@dataclass(frozen=True)
class Side:
    """One entry of a field on one side.

    Attributes:
        text: The entry.
        mark: `minus` where it is on the left only, `plus` on the right only, else nothing.
    """

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Field:
    """One field of two batons.

    Attributes:
        name: The field.
        rows: Entry beside entry; None where one side has none.
        same: How many entries at the beginning are alike and left out.
    """

    name: str
    rows: list[tuple[Side | None, Side | None]]
    same: int = 0

    @property
    def differs(self) -> bool:
        """Whether the sides differ."""
        return any((left and left.mark) or (right and right.mark) for left, right in self.rows)


def baton_at(run: RunRecord, point: str) -> tuple[str, Baton]:
    """Return the title and the baton of a point of a run: `start`, `now`, or the number of a step.

    Raises:
        HistoryError: There is no such step, or it has not ended.
    """
    if point == START:
        return "before the first step", run.state.initial
    if point in ("", NOW):
        return "now" if run.ended is None else "at the end", run.baton
    if not point.isdecimal():
        raise HistoryError(f"{point[:50]!r} is not a point: expected a step's number, {START!r} or {NOW!r}")
    step = run.step(point)
    return f"after step {step.seq} {step.name}", run.baton_after(step)


def compare(left: Baton, right: Baton) -> list[Field]:
    """Return the fields of two batons, those that differ first."""
    old, new = left.to_json_object(), right.to_json_object()
    fields = [_field(name, old.get(name), new.get(name)) for name in {**old, **new}]
    return sorted(fields, key=lambda one: not one.differs)


def _field(name: str, old: Any, new: Any) -> Field:
    before, after = _entries(old), _entries(new)
    rows: list[tuple[Side | None, Side | None]] = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += [(Side(one), Side(one)) for one in before[i:j]]
            continue
        gone, come = [Side(one, "minus") for one in before[i:j]], [Side(one, "plus") for one in after[k:m]]
        most = max(len(gone), len(come))
        rows += [
            (gone[place] if place < len(gone) else None, come[place] if place < len(come) else None)
            for place in range(most)
        ]
    same = next((place for place, (one, other) in enumerate(rows) if not (one and other and not one.mark)), len(rows))
    hidden = same if same > _KEPT and same < len(rows) else 0
    return Field(name, rows[hidden:], hidden)


_KEPT = 5


def _entries(value: Any) -> list[str]:
    """Return the entries of a field as texts."""
    if value is None:
        return []
    if isinstance(value, list):
        return [_text(one) for one in value]
    if isinstance(value, Mapping):
        return [f"{name}: {_text(one)}" for name, one in value.items()]
    return [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, dict) and "id" in value and "hash" in value:
        path = f" {value['path']}" if value.get("path") else ""
        return f"{value['id']} ({value.get('type')}, {str(value['hash'])[:12]}){path}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
