"""Optional packages: an import without the extra that it needs names the extra."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, module: str) -> Iterator[None]:
    """Name the extra where an import within fails, for its packages often have other names than what they install.

    Args:
        extra: The extra of `temporal-baton` that brings what is imported.
        module: Which module needs it, as users import that.

    Raises:
        ModuleNotFoundError: What is imported is not installed.

    Example:
        >>> with needs_extra("agents", "baton.agents.house"):
        ...     import no_such_package
        Traceback (most recent call last):
        ModuleNotFoundError: baton.agents.house needs no_such_package: pip install 'temporal-baton[agents]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        told = f"{module} needs {error.name}: pip install 'temporal-baton[{extra}]'"
        raise ModuleNotFoundError(told, name=error.name) from error
