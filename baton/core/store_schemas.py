"""Checks of messages against their published JSON Schemas."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs

from baton.core.verdict import MAX_FINDINGS, Code, Finding
from baton.wire.json_values import MAX_MESSAGE_VALUES, find_excess
from baton.wire.schemas import Path, format_pointer

_MAX_ERRORS = 4 * MAX_FINDINGS  # a place can break several rules; a hostile message can break any number
_MAX_LISTED_VALUES = 200  # values whose errors are all listed
_MAX_RULE_LENGTH = 300  # a rule quotes the schema's choices and the message's unknown members
_MAX_RULES = 3
_MAX_PATTERN_LENGTH = 80  # a longer one is unreadable
_VALUE_MASK = "a value"


class SchemaGate:
    """A compiled JSON Schema that answers with findings."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = jsonschema_rs.Draft202012Validator(
            dict(schema),
            validate_formats=True,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
            mask=_VALUE_MASK,
        )

    def __call__(self, message: Any) -> list[Finding]:
        """Return the findings about a message, none if it is valid."""
        if (limit_excess := find_excess(message, MAX_MESSAGE_VALUES)) is not None:
            at = format_pointer(limit_excess.path)
            return [Finding(code=Code.SCHEMA_INVALID, at=at, text=f"{at!r} {limit_excess.text}")]
        if self._validator.is_valid(message):
            return []
        errors: dict[tuple[str | int, ...], jsonschema_rs.ValidationError] = {}
        for error in islice(self._errors(message), _MAX_ERRORS):
            errors.setdefault(_fault_path(error), error)
        return [_schema_finding(path, error) for path, error in islice(errors.items(), MAX_FINDINGS)]

    def _errors(self, message: Any) -> Iterator[jsonschema_rs.ValidationError]:
        """Yield the errors of an invalid message; of a long one, the first error and those of its beginning."""
        shortened, cut_paths = _truncate(message)
        if not cut_paths:
            yield from self._validator.iter_errors(message)
            return
        try:
            self._validator.validate(message)
        except jsonschema_rs.ValidationError as error:
            yield error
        for listed in self._validator.iter_errors(shortened):
            path = tuple(listed.instance_path)
            if not any(cut[: len(path)] == path for cut in cut_paths):  # else truncation may have caused it
                yield listed


def _truncate(message: Any) -> tuple[Any, list[Path]]:
    """Return the first values of a message, level by level, and the paths of the containers that were cut."""
    cut_paths: list[Path] = []
    remaining = _MAX_LISTED_VALUES
    root = [message]
    level: list[tuple[Path, Any, Any, Any]] = [((), message, root, 0)]
    while level:
        next_level: list[tuple[Path, Any, Any, Any]] = []
        for path, value, parent, key in level:
            if not isinstance(value, (dict, list)):
                continue
            size = min(len(value), remaining)
            remaining -= size
            if size < len(value):
                cut_paths.append(path)
            shortened: Any = dict(islice(value.items(), size)) if isinstance(value, dict) else value[:size]
            parent[key] = shortened
            members = shortened.items() if isinstance(shortened, dict) else enumerate(shortened)
            next_level += [((*path, name), member, shortened, name) for name, member in members]
        level = next_level
    return root[0], cut_paths


def _fault_path(error: jsonschema_rs.ValidationError) -> tuple[str | int, ...]:
    """Return the path of the fault; of a missing member, where it should be."""
    missing = (error.kind.property,) if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required) else ()
    return (*error.instance_path, *missing)


def _schema_finding(path: tuple[str | int, ...], error: jsonschema_rs.ValidationError) -> Finding:
    at = format_pointer(path)
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return Finding(code=Code.SCHEMA_INVALID, at=at, text=f"{at!r} is missing; send it")
    rules = [error, *_closest_errors(error)]
    return Finding(code=Code.SCHEMA_INVALID, at=at, text="; ".join(map(_render_error, rules)))


def _render_error(error: jsonschema_rs.ValidationError) -> str:
    """Return a sentence about a schema error: its place, and the rule it breaks."""
    at, kind = format_pointer(error.instance_path), error.kind
    place = repr(at) if at else "the whole"
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.FalseSchema):
        return f"{place} is not allowed here"
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Pattern) and len(kind.pattern) > _MAX_PATTERN_LENGTH:
        return f"{place} does not have the form that its schema asks for"
    text = " ".join(error.message.split())[:_MAX_RULE_LENGTH]
    return f"{place}{text.removeprefix(_VALUE_MASK)}" if text.startswith(f"{_VALUE_MASK} ") else f"{place}: {text}"


def _closest_errors(error: jsonschema_rs.ValidationError) -> list[jsonschema_rs.ValidationError]:
    """Return the errors of the closest alternative if the schema has several (`anyOf`, `oneOf`)."""
    choices: list[list[jsonschema_rs.ValidationError]] = [*filter(None, getattr(error.kind, "context", None) or ())]
    return min(choices, key=len)[:_MAX_RULES] if choices else []
