"""Optional packages: an import without the extra that it needs names the extra."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, module: str) -> Iterator[None]:
    """Name the extra where an import within fails, for its packages often have other names than what they install."""
    try:
        yield
    except ModuleNotFoundError as error:
        told = f"{module} needs {error.name}: pip install 'temporal-baton[{extra}]'"
        raise ModuleNotFoundError(told, name=error.name) from error
