"""The schema gate: a received message against the published JSON Schema.

A compiled validator answers in microseconds, with a JSON pointer for each finding and never a value of the
message. It fetches nothing: a reference to another document is refused, and patterns are matched in linear time.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

import jsonschema_rs

from baton.core.verdict import MOST_FINDINGS, Code, Finding
from baton.handoff.schema import handoff_schema
from baton.wire.json_values import MOST_MESSAGE_VALUES, excess
from baton.wire.schemas import Path, SchemaReader, pointer

_MOST_ERRORS = 4 * MOST_FINDINGS  # a place can break several rules; a hostile message can break any number
_MOST_CHECKED = 200  # values of which all errors are made
_LONGEST_RULE = 300  # characters; a rule names what a schema lists, and members of the message that it does not know
_MOST_RULES = 3
_VALUE = "a value"


class SchemaGate:
    """A compiled JSON Schema that answers with findings."""

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        document = handoff_schema() if schema is None else dict(schema)
        self._reader = SchemaReader(document) if schema is None else None
        self._validator = jsonschema_rs.Draft202012Validator(
            document,
            validate_formats=True,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
            mask=_VALUE,
        )

    def __call__(self, message: Any) -> list[Finding]:
        """Return what is wrong with a message; nothing, if it is valid."""
        if (over := excess(message, MOST_MESSAGE_VALUES)) is not None:
            at = pointer(over.path)
            return [Finding(code=Code.SCHEMA_INVALID, at=at, text=f"{at!r} {over.text}")]
        if self._validator.is_valid(message):
            return []
        places: dict[tuple[str | int, ...], jsonschema_rs.ValidationError] = {}
        for error in islice(self._errors(message), _MOST_ERRORS):
            places.setdefault(_place(error), error)
        found = islice(places.items(), MOST_FINDINGS)
        if self._reader is None:
            return [_finding(place, error) for place, error in found]
        return [self._reader.finding(message, place) for place, _ in found]

    def _errors(self, message: Any) -> Iterator[jsonschema_rs.ValidationError]:
        """Yield errors of an invalid message: of a long one the first, and those of its beginning."""
        beginning, cut = _run_input(message)
        if not cut:
            yield from self._validator.iter_errors(message)
            return
        try:
            self._validator.validate(message)
        except jsonschema_rs.ValidationError as error:
            yield error
        for further in self._validator.iter_errors(beginning):
            at = tuple(further.instance_path)
            if not any(place[: len(at)] == at for place in cut):  # else it may be due to what was cut off
                yield further


def _run_input(message: Any) -> tuple[Any, list[Path]]:
    """Return the first values of a message, level by level, and the places of the containers that were cut."""
    cut: list[Path] = []
    left = _MOST_CHECKED
    whole = [message]
    level: list[tuple[Path, Any, Any, Any]] = [((), message, whole, 0)]
    while level:
        inner: list[tuple[Path, Any, Any, Any]] = []
        for path, value, parent, key in level:
            if not isinstance(value, (dict, list)):
                continue
            size = min(len(value), left)
            left -= size
            if size < len(value):
                cut.append(path)
            copy: Any = dict(islice(value.items(), size)) if isinstance(value, dict) else value[:size]
            parent[key] = copy
            members = copy.items() if isinstance(copy, dict) else enumerate(copy)
            inner += [((*path, name), one, copy, name) for name, one in members]
        level = inner
    return whole[0], cut


def _place(error: jsonschema_rs.ValidationError) -> tuple[str | int, ...]:
    """Return where the fault is; of a missing member, where it should be."""
    missing = (error.kind.property,) if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required) else ()
    return (*error.instance_path, *missing)


def _finding(place: tuple[str | int, ...], error: jsonschema_rs.ValidationError) -> Finding:
    """Return the finding of a broken rule."""
    at = pointer(place)
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return Finding(code=Code.SCHEMA_INVALID, at=at, text=f"{at!r} is missing; send it")
    rules = [error, *_nearest(error)]
    text = "; ".join(f"{_named(pointer(one.instance_path))}{_rule(one)}" for one in rules)
    return Finding(code=Code.SCHEMA_INVALID, at=at, text=text)


def _named(at: str) -> str:
    """Return how a place is called in a sentence."""
    return repr(at) if at else "the whole"


def _rule(error: jsonschema_rs.ValidationError) -> str:
    """Return what is wrong at a place, so that the place can stand before it."""
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.FalseSchema):
        return " is not allowed here"
    said = " ".join(error.message.split())[:_LONGEST_RULE]
    return said.removeprefix(_VALUE) if said.startswith(f"{_VALUE} ") else f": {said}"


def _nearest(error: jsonschema_rs.ValidationError) -> list[jsonschema_rs.ValidationError]:
    """Return what is wrong by the choice that comes nearest, where a schema has several and none fits."""
    choices: list[list[jsonschema_rs.ValidationError]] = [*filter(None, getattr(error.kind, "context", None) or ())]
    return min(choices, key=len)[:_MOST_RULES] if choices else []


@cache
def handoff_gate() -> SchemaGate:
    """Return the gate of the handoff message's current schema, compiled once (about 20 ms)."""
    return SchemaGate()
