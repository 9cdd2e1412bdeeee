"""Paths to the values of a run: `output.items[0].price`, `decision_log[2]`, `quote.output`, the id of an artifact."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from baton.core.questions import Settled
from baton.errors import HistoryError
from baton.runs.client_record import RunRecord, Step
from baton.wire.text import cut_line

OUTPUT, BATON = "output", "baton"
"""The first words of paths into the output of a run or a step, and into the baton."""
_KEY = re.compile(r"\[(?P<index>\d+)\]|\.?(?P<name>[^.\[\]]+)")
_MIN_HASH_LENGTH = 8
_MAX_NAMED, _MAX_LENGTH = 10, 60

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class ValuePath:
    """Where a value of a run is.

    Attributes:
        title: The path in its usual form.
        value: The value.
        keys: The names and numbers that lead to it from the output or the field.
        field: The field of the baton; empty for an output.
        step: The number of the step whose output it is in; None for the run's.
        question: The answered approval, if it is one; then the value is None.
    """

    title: str
    value: Any
    keys: Keys = ()
    field: str = ""
    step: int | None = None
    question: Settled | None = None


def parse_path(run: RunRecord, path: str) -> ValuePath:
    """Return the value of a run that a path names.

    Raises:
        HistoryError: It has no such value.
    """
    keys = _split(path)
    baton = run.baton.to_json_object()
    if keys[:1] == (OUTPUT,):
        if run.result is None or run.result.output is None:
            state = "has ended without an output" if run.ended else "has not ended, so it has no output yet"
            raise HistoryError(f"run {run.workflow_id!r} {state}; a step's is `STEP.output`")
        return _resolve(run.result.output, OUTPUT, keys[1:])
    if (found := _find_artifact(run, path)) is not None:
        return found
    keys = keys[1:] if keys[:1] == (BATON,) and len(keys) > 1 else keys
    if keys and keys[0] in baton:
        name = str(keys[0])
        return _resolve(baton[name], name, keys[1:], field=name)
    reference, ending, rest = path.partition(f".{OUTPUT}")
    if ending and (step := _find_step(run, reference)) is not None:
        outcome = next((outcome for outcome in run.state.outcomes if outcome.seq == step.seq), None)
        if outcome is None:
            raise HistoryError(f"step {step.seq} ({step.name!r}) has not ended; its status is {step.status.value}")
        return _resolve(outcome.value, f"{step.name}.{OUTPUT}", _split(rest), step=step.seq)
    return _find_words(run, path)


def _find_step(run: RunRecord, reference: str) -> Step | None:
    try:
        return run.step(reference)
    except HistoryError:
        return None


def _find_artifact(run: RunRecord, name: str) -> ValuePath | None:
    """Return the newest artifact with an id, or with a hash that begins so."""
    refs = [ref for ref in run.baton.to_json_object().get("artifacts") or [] if isinstance(ref, dict)]
    is_hash = len(name) >= _MIN_HASH_LENGTH
    for ref in reversed(refs):
        if ref.get("id") == name or (is_hash and str(ref.get("hash")).startswith(name)):
            return ValuePath(f"artifact {ref.get('id')}", ref, (refs.index(ref),), "artifacts")
    return None


def _find_words(run: RunRecord, words: str) -> ValuePath:
    """Return the answered approval with a title, or the one entry of the baton that has some words."""
    settled = [answer for answer in run.answers if answer.title == words]
    if settled:
        return ValuePath(words, None, question=settled[-1])
    entries = [
        ValuePath(f"{name}[{index}]", entry, (index,), name)
        for name, value in run.baton.to_json_object().items()
        for index, entry in enumerate(value if isinstance(value, list) else ())
        if isinstance(entry, str) and words.casefold() in entry.casefold()
    ]
    if len(entries) > 1:
        named = _list(f"{entry.title} “{cut_line(entry.value, _MAX_LENGTH)}”" for entry in entries)
        raise HistoryError(f"{len(entries)} entries of the baton have the words {words!r}: {named}; name one of them")
    if not entries:
        fields = _list(name for name, value in run.baton.to_json_object().items() if value)
        steps = _list(f"{step.name}.{OUTPUT}" for step in run.steps) or "none yet"
        raise HistoryError(
            f"run {run.workflow_id!r} has no value {words!r}; it has `{OUTPUT}`, the fields {fields}, and of its steps "
            f"{steps}; a part is named like `{OUTPUT}.items[0].price`, an artifact by its id, an approval by its title"
        )
    return entries[0]


def _split(path: str) -> Keys:
    """Return the names and numbers of a path."""
    return tuple(int(match["index"]) if match["index"] else match["name"] for match in _KEY.finditer(path))


def inner_path(path: str, key: str | int) -> str:
    """Return the path of a member or an item of what a path names."""
    return f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}"


def _resolve(value: Any, title: str, keys: Keys, **more: Any) -> ValuePath:
    """Return the value that keys lead to; the number of an item may stand behind a point too."""
    found: list[str | int] = []
    for key in keys:
        if isinstance(value, dict) and str(key) in value:
            found.append(str(key))
        elif isinstance(value, list) and str(key).isdecimal() and int(key) < len(value):
            found.append(int(key))
        else:
            members = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            raise HistoryError(f"{title} has no {key!r}; it has: {_list(map(str, members)) or 'nothing inside'}")
        value, title = value[found[-1]], inner_path(title, found[-1])
    return ValuePath(title, value, tuple(found), **more)


def _list(names: Iterable[str]) -> str:
    """Return names as a list, the first ones if there are many."""
    listed = [*names]
    more = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
    return ", ".join(listed[:_MAX_NAMED]) + more
