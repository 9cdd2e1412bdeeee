"""What is wrong with values that do not fit a type, in one line for people and models."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from baton.wire.json_values import json_kind

MOST_FAULTS = 20
"""How many faults are described; a hostile value may have a million."""
_MOST_LISTED = 500  # pydantic lists all faults of a value or none


def faults(error: ValidationError) -> list[dict[str, Any]]:
    """Return the first faults that pydantic found, without the values; one for the whole where there are too many.

    Each has pydantic's members `type`, `loc` and `msg`.
    """
    count = error.error_count()
    if count > _MOST_LISTED:
        return [{"type": "too_many", "loc": (), "msg": f"{count:,} members do not fit a {error.title}"}]
    listed = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_FAULTS]
    return [dict(one) for one in listed]


def recorded_misfit(error: ValidationError, recorded: Mapping[str, Any]) -> str:
    """Return which recorded fields a type no longer takes: the field, what was found and what is expected.

    Values are never shown, nor what a team's own validator says of them.

    Args:
        error: What pydantic found.
        recorded: The members that it looked at.

    Example:
        >>> from baton.core.baton import Baton
        >>> try:
        ...     Baton.model_validate({"goal": "Add login", "constraints": "secret"})
        ... except ValidationError as error:
        ...     print(recorded_misfit(error, {"goal": "Add login", "constraints": "secret"}))
        field 'constraints': found a text, expected a valid list
    """
    told = []
    for fault in faults(error):
        name = str(fault["loc"][0]) if fault["loc"] else "baton"
        within = "" if len(fault["loc"]) < 2 else f", at {'.'.join(map(str, fault['loc'][1:]))[:100]}"
        found = json_kind(recorded[name]) if name in recorded else "nothing"
        own = fault["type"] in ("value_error", "assertion_error")
        expected = "what the type's own validator accepts" if own else fault["msg"].removeprefix("Input should be ")
        told.append(f"field {name!r}{within}: found {found}, expected {expected}")
    return "; ".join(told)


def misfit(error: ValidationError, whole: str = "") -> str:
    """Return which members do not fit, and why; nothing of their values, which may be secret.

    Args:
        error: What pydantic found.
        whole: What stands in a member's place where the value as a whole is at fault.

    Example:
        >>> from baton.core.messages import PipelineInput
        >>> try:
        ...     PipelineInput.model_validate({"goal": 7, "gaol": "Add login"})
        ... except ValidationError as error:
        ...     print(misfit(error))
        goal: Input should be a valid string; gaol: Extra inputs are not permitted
    """
    return "; ".join(f"{'.'.join(map(str, one['loc']))[:200] or whole}: {one['msg']}" for one in faults(error))
