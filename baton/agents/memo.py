"""Remembering what was made of an object, by which object it is and not by what it equals.

Schemas of answers are large and stay the same objects for the life of a worker; to compare them, or to write them down
as a key, takes longer than a lookup should.
"""

from collections.abc import Callable
from typing import TypeVar

MOST = 64
"""The most objects that a function remembers; then it starts over."""

GivenT = TypeVar("GivenT")
MadeT = TypeVar("MadeT")


def remembering(make: Callable[[GivenT], MadeT]) -> Callable[[GivenT], MadeT]:
    """Return a function that makes something of each object once; an object must not be changed afterwards."""
    made: dict[int, tuple[GivenT, MadeT]] = {}  # with the object, so that no other one gets its place in memory

    def remembered(given: GivenT) -> MadeT:
        known = made.get(id(given))
        if known is None:
            if len(made) >= MOST:
                made.clear()
            known = made[id(given)] = given, make(given)
        return known[1]

    return remembered
