"""The ping-pong guard: a chain of handoffs that goes round in circles is ended before it eats the budget.

Two agents that hand a task back and forth are the commonest way in which a chain of agents never ends. A loop
that makes progress is legitimate (write, review, write again), one that leaves the state as it was is not; so
the guard counts both, within a window, and the whole chain as well. It is a function of the trail alone.
"""

from dataclasses import dataclass

from baton.wire.records import Count, Digest, Name, OpenRecord
from baton.wire.text import quantity


@dataclass(frozen=True)
class HopLimits:
    """When a chain of handoffs has gone on for long enough.

    Attributes:
        most: The most handoffs of a task.
        window: How many of the newest handoffs are looked at for repetitions.
        repeats: How often the same two agents may hand on in the same direction within the window.
        unchanged: How often they may do so with the very same state.
    """

    most: int = 256
    window: int = 16
    repeats: int = 6
    unchanged: int = 2


class Hop(OpenRecord):
    """One handoff of a chain.

    Attributes:
        sender: Who handed on: an `agentId`.
        receiver: To whom: an `agentType`.
        state: The digest of what was handed on; the same state has the same digest.
    """

    sender: Name
    receiver: Name
    state: Digest


class Trail(OpenRecord):
    """How a task came here: the number of its handoffs, and the newest of them.

    Attributes:
        hops: How many handoffs there were.
        recent: The newest ones, oldest first; as many as the guard looks at.
    """

    hops: Count
    recent: list[Hop]

    def after(self, hop: Hop, limits: HopLimits | None = None) -> "Trail":
        """Return the trail with one more handoff; it never holds more than the window."""
        window = (limits or HopLimits()).window
        return Trail(hops=self.hops + 1, recent=[*self.recent, hop][-window:])


def circling(trail: Trail, hop: Hop, limits: HopLimits | None = None) -> str | None:
    """Return why the next handoff of a chain must not take place, or None."""
    limits = limits or HopLimits()
    if trail.hops >= limits.most:
        so_far = quantity(trail.hops, "time")
        return f"the task was handed on {so_far}, at most {limits.most} are allowed; let a person decide"
    window = [*trail.recent, hop][-limits.window :]
    same_way = [one for one in window if (one.sender, one.receiver) == (hop.sender, hop.receiver)]
    unchanged = sum(1 for one in same_way if one.state == hop.state)
    if unchanged > limits.unchanged:
        return (
            f"{hop.sender!r} would hand the same state to {hop.receiver!r} for the {_ordinal(unchanged)} time "
            f"within {limits.window} handoffs; change it or ask a person"
        )
    if len(same_way) > limits.repeats:
        return (
            f"{hop.sender!r} would hand on to {hop.receiver!r} for the {_ordinal(len(same_way))} time within "
            f"{limits.window} handoffs; at most {limits.repeats} are allowed, so ask a person"
        )
    return None


def _ordinal(number: int) -> str:
    """Return a number as people count: 1st, 2nd, 3rd, 4th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
