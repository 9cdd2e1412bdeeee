"""Comparing: the sides take turns, again and again, so that whatever disturbs the machine disturbs them all.

Only ratios are trusted. A round gives one ratio, of two turns that were moments apart; the figure is the
median of the rounds' ratios.
"""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.load import Load, speed

ToldT = TypeVar("ToldT")


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: How often the sides take turns.
        quick: Measure next to nothing: it shows that everything runs, and its figures mean nothing.
        minutes: How long the console's memory is watched.
    """

    rounds: int = 7
    quick: bool = False
    minutes: float = 5

    def pipelines(self, usual: int) -> int:
        """Return how many pipelines make a turn."""
        return max(2, usual // 20) if self.quick else usual


async def take_turns(
    what: str, loads: Sequence[Load], turn: Callable[[Load], Awaitable[ToldT]], effort: Effort, warm_up: int = 20
) -> dict[str, list[ToldT]]:
    """Let every load have its turn in each round, each round beginning with another one.

    Args:
        what: What is measured, for the progress lines.
        loads: The sides.
        turn: Measures one turn.
        effort: How many rounds.
        warm_up: How many pipelines each side runs beforehand.

    Returns:
        What the turns told, by the name of the load, a member for each round.
    """
    for load in loads:
        await speed(load, effort.pipelines(warm_up), 5)
    told: dict[str, list[ToldT]] = {load.name: [] for load in loads}
    for number in range(effort.rounds):
        first = number % len(loads)
        for load in [*loads[first:], *loads[:first]]:
            told[load.name].append(await turn(load))
        print(f"{what}: round {number + 1} of {effort.rounds}", flush=True)
    return told


def ratio(told: Mapping[str, Sequence[float]], name: str, base: str) -> float:
    """Return the median of the rounds' ratios between two loads; 0 where there is nothing to compare.

    Example:
        >>> ratio({"baton": [90.0, 40.0, 95.0], "raw": [100.0, 50.0, 100.0]}, "baton", "raw")
        0.9
    """
    pairs = [(ours, theirs) for ours, theirs in zip(told[name], told[base], strict=True) if theirs]
    return statistics.median(ours / theirs for ours, theirs in pairs) if pairs else 0.0
