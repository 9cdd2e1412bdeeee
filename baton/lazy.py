"""Lazy exports of the public modules, and errors that name the missing extra."""

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
        alias.asname or alias.name: node.module
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("baton.")
        for alias in node.names
        if node.module != __name__
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
    """Add the extra to install to the error of a failed import in the block."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{module} needs {error.name}: pip install 'temporal-baton[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from error
