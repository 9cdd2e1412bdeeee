"""Things by name and version, as registries keep them: found exactly, or refused with what comes near (C-46)."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
_NAMED = 5


class Shelf(Generic[T]):
    """Things of one kind by name and version.

    Args:
        what: What one of them is called in messages.
        error: What is raised where there is none.
        newest_first: Puts versions in order.
        latest: Whether a name without a version means the newest one where there are several.

    Example:
        >>> shelf = Shelf("agent", KeyError, sorted)
        >>> shelf.add("reviewer", "1.0.0", "an agent")
        >>> shelf.find("reviewer", None), list(shelf)
        ('an agent', ['an agent'])
    """

    def __init__(
        self,
        what: str,
        error: type[Exception],
        newest_first: Callable[[Iterable[str]], list[str]],
        *,
        latest: bool = False,
    ) -> None:
        self._what = what
        self._error = error
        self._newest_first = newest_first
        self._latest = latest
        self._things: dict[str, dict[str, T]] = {}

    def add(self, name: str, version: str, thing: T) -> None:
        """Put a thing in.

        Raises:
            ValueError: There is one of that name and version.
        """
        versions = self._things.setdefault(name, {})
        if version in versions:
            raise ValueError(f"the {self._what} {name!r} {version} is registered twice; register it once")
        versions[version] = thing

    def find(self, name: str, version: str | None) -> T:
        """Return the thing of exactly that name and version.

        Args:
            name: Its name.
            version: Its version. None takes the only one; of several the newest, if that is allowed.

        Raises:
            Exception: There is none; the message names what comes near.
        """
        if name not in self._things:
            near = difflib.get_close_matches(name, self._things, n=3)
            known = sorted(self._things)
            more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
            there = ", ".join(known[:_NAMED]) + more if known else "none"
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {there}"
            raise self._error(f"there is no {self._what} {name!r}; {hint}")
        versions = self._things[name]
        ordered = self._newest_first(versions)
        if version is None and (len(versions) == 1 or self._latest):
            return versions[ordered[0]]
        if version is None or version not in versions:
            wanted = "several versions and none is named" if version is None else f"no version {version!r}"
            raise self._error(f"of the {self._what} {name!r} there is {wanted}; there are {', '.join(ordered)}")
        return versions[version]

    def __iter__(self) -> Iterator[T]:
        """Go through all, by name, and of each name the newest first."""
        for _, versions in sorted(self._things.items()):
            for version in self._newest_first(versions):
                yield versions[version]
