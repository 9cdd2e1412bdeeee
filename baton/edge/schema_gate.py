"""The schema gate: a received message against the published JSON Schema, and the proof that schemas are compatible.

A compiled validator answers in microseconds, with a JSON pointer for each finding and never a value of the
message. It fetches nothing: a reference to another document is refused, and patterns are matched in linear time.
"""

from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any

import jsonschema_rs
from jsonschema_rs.canonical import Containment

from baton.protocol.handoff_schema import handoff_schema
from baton.protocol.schema_reading import SchemaReader
from baton.protocol.verdict import MOST_FINDINGS, Finding

_MOST_ERRORS = 4 * MOST_FINDINGS  # a place can break several rules; a hostile message can break any number


class SchemaGate:
    """A compiled JSON Schema that answers with findings.

    Args:
        schema: The JSON Schema, draft 2020-12; the handoff message's current one by default.

    Raises:
        ValueError: The schema is none, or refers to another document.

    Example:
        >>> [finding.at for finding in SchemaGate({"required": ["taskId"]})({})]
        ['/taskId']
    """

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        document = handoff_schema() if schema is None else dict(schema)
        self._reader = SchemaReader(document)
        self._validator = jsonschema_rs.Draft202012Validator(
            document,
            validate_formats=True,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
            mask="a value",
        )

    def __call__(self, message: Any) -> list[Finding]:
        """Return what is wrong with a message; nothing, if it is valid.

        Args:
            message: The message as `loads_strict` read it.

        Returns:
            At most `MOST_FINDINGS` findings with the code SCHEMA_INVALID, one for each place. They quote
            names and examples of the schema, never values of the message.
        """
        if self._validator.is_valid(message):
            return []
        errors = islice(self._validator.iter_errors(message), _MOST_ERRORS)
        places = dict.fromkeys(_place(error) for error in errors)
        return [self._reader.finding(message, place) for place in islice(places, MOST_FINDINGS)]


def _place(error: jsonschema_rs.ValidationError) -> tuple[str | int, ...]:
    """Return where the fault is; of a missing member, where it should be."""
    missing = (error.kind.property,) if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required) else ()
    return (*error.instance_path, *missing)


@cache
def handoff_gate() -> SchemaGate:
    """Return the gate of the handoff message's current schema, compiled once (about 20 ms)."""
    return SchemaGate()


def covers(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether it is proved that whatever the old schema accepts the new one accepts as well.

    Args:
        new: The schema to be released.
        old: The schema of the release before.

    Returns:
        True if it is proved; False if it is refuted or cannot be decided.

    Example:
        >>> covers({"type": ["string", "null"]}, {"type": "string"}), covers({"minLength": 2}, {"minLength": 1})
        (True, False)
    """
    answer = jsonschema_rs.canonicalize(dict(new)).covers(jsonschema_rs.canonicalize(dict(old)))
    return answer is Containment.YES
