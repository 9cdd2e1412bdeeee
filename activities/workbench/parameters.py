"""The parameters that a shipped pipeline is started with."""

from collections.abc import Mapping


def required_text(params: Mapping[str, object], name: str, usage: str, error: type[Exception]) -> str:
    """Return a parameter that is a text.

    Args:
        params: The pipeline's parameters.
        name: Which one.
        usage: How the pipeline is started, after `baton run`.
        error: What is raised.

    Raises:
        Exception: It is missing or no text; of the type that was given.

    Example:
        >>> required_text({"source": "src"}, "source", "code_review --param source=DIR", ValueError)
        'src'
        >>> required_text({}, "source", "code_review --param source=DIR", ValueError)
        Traceback (most recent call last):
        ValueError: code_review needs the parameter 'source'; found None. Start it with: baton run code_review ...
    """
    value = params.get(name)
    if not isinstance(value, str) or not value:
        pipeline = usage.partition(" ")[0]
        raise error(f"{pipeline} needs the parameter {name!r}; found {value!r}. Start it with: baton run {usage}")
    return value
