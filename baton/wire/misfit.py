"""What is wrong with values that do not fit a type, in one line for people and models."""

from pydantic import ValidationError


def misfit(error: ValidationError, whole: str = "") -> str:
    """Return which members do not fit, and why; nothing of their values, which may be anybody's secret.

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
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or whole}: {fault['msg']}" for fault in faults)
