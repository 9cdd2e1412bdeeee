"""Bounds on the JSON that others write, checked before it is parsed: no input decides how long a check works.

A value is counted container by container, and counting stops at the bound: a list of a million entries costs as much
as one of `most`.
"""

from builtins import isinstance  # noqa: UP029 - the workflow sandbox replaces the global one by a slow one
from collections.abc import Iterable
from typing import Any, NamedTuple

MOST_VALUES = 10_000
"""The most JSON values in a patch, and in a baton; a baton is meant to have about a hundred."""
MOST_MESSAGE_VALUES = 50_000
"""The most JSON values in a message between agents, and in the output of a stage."""
MOST_DEPTH = 64
"""How deep objects and lists may be nested; real messages stay below ten."""

_NESTS = (dict, list, tuple)


class Excess(NamedTuple):
    """Where a value exceeds a bound, and how.

    Attributes:
        path: The container that does, from the outside in.
        text: What was found and what is allowed.
    """

    path: tuple[str | int, ...]
    text: str

    def __str__(self) -> str:
        """Return a sentence that names the place."""
        return f"{'.'.join(map(str, self.path))[:200]}: {self.text}" if self.path else self.text


def excess(value: Any, most: int = MOST_VALUES, deepest: int = MOST_DEPTH) -> Excess | None:
    """Return where a JSON value holds too many values or is nested too deep, or None.

    Args:
        value: JSON as Python.
        most: How many values it may hold: members of objects and entries of lists, at every depth.
        deepest: How deep objects and lists may be nested.

    Returns:
        The first container that exceeds a bound, level by level. At most ``most`` values are looked at.

    Example:
        >>> print(excess({"artifacts": [{}] * 200_000}))
        artifacts: has 200,000 entries; at most 10,000 JSON values are allowed in all; put content into an artifact
        >>> excess({"artifacts": []})
    """
    count, depth = 0, 0
    level = [value] if isinstance(value, _NESTS) else []
    while level and depth < deepest:
        inner: list[Any] = []
        for container in level:
            count += len(container)
            if count > most:
                text = f"has {len(container):,} entries; at most {most:,} JSON values are allowed in all; "
                return Excess(_path_of(value, container), text + "put content into an artifact")
            if container:
                inner += [one for one in _entries(container) if isinstance(one, _NESTS)]
        level, depth = inner, depth + 1
    return Excess(_path_of(value, level[0])[:1], f"is nested more than {deepest} deep; flatten it") if level else None


def _entries(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _path_of(value: Any, wanted: Any) -> tuple[str | int, ...]:
    """Return the path to a container within a value, found level by level as `excess` did."""
    level: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while level:
        inner = []
        for path, container in level:
            if container is wanted:
                return path
            members = container.items() if isinstance(container, dict) else enumerate(container)
            inner += [((*path, name), one) for name, one in members if isinstance(one, _NESTS)]
        level = inner
    return ()
