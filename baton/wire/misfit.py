"""What is wrong with values that do not fit a type, in one line for people and models."""

from typing import Any

from pydantic import ValidationError

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
