"""The code of workflows, as it was when their worker first read it.

The sandbox imports the modules of a workflow anew for each run, so that runs share nothing. It reads them from the
disk each time: a file that is edited, or pulled, under a running worker would change the code of its runs at once,
of those under way at their next replay, while its stages stay as they were. Here each module is found, read and
compiled once in the life of a worker, and only executed anew; a worker takes new code when it is started again.
"""

import copy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

_in_use: ContextVar["WorkflowCode | None"] = ContextVar("workflow code in use", default=None)


class WorkflowCode:
    """The modules that a worker's workflows are made of.

    Modules without a source file of their own (namespace packages, zip files, tests that pytest rewrites) are found
    as ever, and so is the script that is run: a workflow defined in there is read again for each run.

    Example:
        >>> import json
        >>> code = WorkflowCode()
        >>> first, second = (code.find("json.tool", json.__path__, None).loader.get_code("json.tool") for _ in "12")
        >>> first is second
        True
    """

    def __init__(self) -> None:
        self._specs: dict[tuple[str, tuple[str, ...]], ModuleSpec | None] = {}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Have what is imported inside the `with` block come from here."""
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
        token = _in_use.set(self)
        try:
            yield
        finally:
            _in_use.reset(token)

    def find(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """Return how to load a module, as it was found at first; None if others have to find it.

        Args:
            name: The module's whole name.
            path: Where its package looks for modules; None outside a package.
            target: The module that is loaded again, if one is.
        """
        key = (name, tuple(path or ()))
        if key not in self._specs:
            self._specs[key] = _once_compiled(_found(name, path, target))
        return copy.copy(self._specs[key])  # loading one marks its spec


class _Finder(MetaPathFinder):
    """Finds modules in the code in use, where any is."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        code = _in_use.get()
        return None if code is None else code.find(fullname, path, target)


_FINDER = _Finder()


class _OnceCompiled(SourceFileLoader):
    """Loads a module by the code it had at first."""

    _code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        if self._code is None:
            self._code = super().get_code(fullname)
        return self._code


def _found(name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    """Return what the other finders say, the first that knows the module."""
    others = (finder for finder in sys.meta_path if finder is not _FINDER)
    return next((spec for finder in others if (spec := finder.find_spec(name, path, target)) is not None), None)


def _once_compiled(spec: ModuleSpec | None) -> ModuleSpec | None:
    """Return a spec that loads the same code each time; None for a module that has no source file of its own."""
    if spec is None or type(spec.loader) is not SourceFileLoader:
        return None
    spec.loader = _OnceCompiled(spec.loader.name, spec.loader.path)
    return spec
