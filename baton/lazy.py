"""How modules are loaded: front doors on first use, and optional packages with a word on the extra they need."""

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package that imports its names under `TYPE_CHECKING`.

    Args:
        package: The package's `__name__`, while it is imported.
        file: Its `__file__`.

    Example:
        >>> import baton.agents
        >>> load, _, names = lazy_exports("baton.agents", baton.agents.__file__)
        >>> "Price" in names, load("Price").__name__
        (True, 'Price')
    """
    homes = {
        name.asname or name.name: one.module
        for one in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(one, ast.ImportFrom) and one.module and one.module.startswith("baton.")
        for name in one.names
        if one.module != __name__
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(homes)
    return load, lambda: names, names


@contextmanager
def needs_extra(extra: str, module: str) -> Iterator[None]:
    """Name the extra where an import within fails, for its packages often have other names than what they install."""
    try:
        yield
    except ModuleNotFoundError as error:
        told = f"{module} needs {error.name}: pip install 'temporal-baton[{extra}]'"
        raise ModuleNotFoundError(told, name=error.name) from error
