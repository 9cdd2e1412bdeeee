"""Indexes of a run: where a value stands in the answers of its steps, what brought it into the baton, its events."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from baton.contract.records import SessionEvent
from baton.contract.session import imported_events
from baton.core.history import HistoryEntry, Outcome, StepKind, fold_change
from baton.runs.client_paths import Keys
from baton.runs.client_record import RunRecord


def value_key(value: Any) -> str:
    """Return a value as a text that only equal values have."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def is_common(value: Any) -> bool:
    """Return whether a value is so common that an equal one tells nothing about its origin."""
    return value in ("", [], {}) or value is None or isinstance(value, bool) or (isinstance(value, int) and value < 10)


def _values_in(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield each value in a JSON value with its path, outer ones first."""
    pending = deque([(path, value)])
    while pending:
        at, inner = pending.popleft()
        yield at, inner
        members = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ()
        pending.extend(((*at, key), member) for key, member in members)


@dataclass(frozen=True)
class ValuePlace:
    """Where a value was found: in the answer of a step, by the index of its outcome, or in the start (-1)."""

    index: int
    path: Keys


_MAX_PLACES = 5  # with an equal value; which one was taken is not known
_MAX_INDEXED, _MIN_SHARE = 50_000, 50  # values of a run and of each answer, outer ones first: a run may be large
_MAX_COMPARED = 100_000_000  # characters, about a second
_MIN_CONTAINED = 12  # characters of a text that another one may contain by more than chance


class IndexedRun:
    """A run with indexes of its values, changes and events.

    Attributes:
        prefix: Distinguishes its reasons from those of other runs.
        records: Its record, then those of the runs that it continues or forks, as far as they were read.
        is_complete: Whether the server has no more of them.
    """

    def __init__(self, record: RunRecord, prefix: str) -> None:
        self.record = record
        self.prefix = prefix
        self.records = [record]
        self.is_complete = False
        self._comparable = _MAX_COMPARED

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of its steps, in the order in which they ended."""
        return self.record.state.outcomes

    @cached_property
    def places(self) -> dict[str, list[ValuePlace]]:
        """Return by value where answers of steps and the start have it, the newest last."""
        start = self.record.start
        found: dict[str, list[ValuePlace]] = {}
        given = [(-1, {"input": start.inputs, "parameter": start.params})]
        share = max(_MIN_SHARE, _MAX_INDEXED // (len(self.outcomes) + 1))
        for index, value in [*given, *((number, outcome.value) for number, outcome in enumerate(self.outcomes))]:
            for path, inner in islice(_values_in(value), share):
                found.setdefault(value_key(inner), []).append(ValuePlace(index, path))
        return found

    @cached_property
    def texts(self) -> list[tuple[str, list[ValuePlace]]]:
        """Return the texts of `places` that another one may contain by more than chance."""
        decoded = ((json.loads(key), places) for key, places in self.places.items() if key.startswith('"'))
        return [(text, places) for text, places in decoded if len(text) >= _MIN_CONTAINED]

    @cached_property
    def changes(self) -> dict[tuple[str, str], list[tuple[int, HistoryEntry]]]:
        """Return by field and value the entries that brought it into the baton, the newest last."""
        members: dict[str, Any] = self.record.state.initial.to_json_object()
        brought: dict[tuple[str, str], list[tuple[int, HistoryEntry]]] = {}
        for index, outcome in enumerate(self.outcomes):
            for entry in outcome.entries:
                folded = fold_change(members, entry.effective)
                for name, value in entry.effective.items():
                    old = {} if name == "decision_log" else {*map(value_key, elements_of(members.get(name)))}
                    new = elements_of(value if name == "decision_log" else folded.get(name))
                    for element in (key for key in map(value_key, new) if key not in old):
                        brought.setdefault((name, element), []).append((index, entry))
                members = folded
        return brought

    @cached_property
    def events(self) -> dict[str, tuple[SessionEvent, int]]:
        """Return the session's events by id, each with the index of its step's outcome; -1 for imported ones."""
        events = {event.id: (event, -1) for event in imported_events(self.record.start.session)}
        for index, outcome in enumerate(self.outcomes):
            events |= {event["id"]: (SessionEvent.from_json_object(event), index) for event in outcome.events}  # type: ignore[misc]
        return events

    def find(self, value: Any, name: Keys, before: int | None) -> list[ValuePlace]:
        """Return the newest answers that have a value, best under the same name; a common value only there."""
        places = [place for place in self.places.get(value_key(value), ()) if before is None or place.index < before]
        named = [place for place in places if name and place.path[-1:] == name]
        found = {place.index: place for place in (named or ([] if is_common(value) else places))}
        return [*found.values()][-_MAX_PLACES:]

    def find_contained(self, value: Any, before: int | None) -> list[ValuePlace]:
        """Return the answers that have a text which a text contains, or is contained in, as far as there is time."""
        found: dict[int, ValuePlace] = {}
        if not isinstance(value, str) or len(value) < _MIN_CONTAINED:
            return []
        for text, places in self.texts:
            self._comparable -= max(len(text), len(value))
            if self._comparable < 0:
                break
            if text in value or value in text:
                found |= {place.index: place for place in places if before is None or place.index < before}
        return [found[index] for index in sorted(found)]

    def brought_by(self, name: str, element: Any, before: int | None = None) -> tuple[int, HistoryEntry] | None:
        """Return the entry that brought a value into a field, before an outcome; None if the run started with it."""
        known = self.changes.get((name, value_key(element)), ())
        index, entry = next((each for each in reversed(known) if before is None or each[0] < before), (-1, None))
        if entry is None or entry.kind is not StepKind.MERGE:
            return None if entry is None else (index, entry)
        branches = (each for each in self.outcomes[index].entries if each.kind is StepKind.BRANCH)
        own = next((each for each in branches if element in elements_of(each.patch.get(name))), entry)
        return index, own


def elements_of(value: Any) -> list[Any]:
    """Return the entries of a list; any other value as the only one."""
    return value if isinstance(value, list) else [] if value is None else [value]
