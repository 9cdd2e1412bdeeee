"""Compare sides that take turns, so that disturbances of the machine affect all of them.

Only ratios are used. A round gives one ratio of two adjacent turns; the figure is the median of these ratios.
"""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.load import Load, speed

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: The number of rounds.
        quick: Measure as little as possible, to test that everything runs; the figures are meaningless.
        minutes: The duration of the console's memory measurement.
    """

    rounds: int = 7
    quick: bool = False
    minutes: float = 5

    def pipelines(self, usual: int) -> int:
        """Return the number of pipelines in a turn."""
        return max(2, usual // 20) if self.quick else usual


async def take_turns(
    what: str, loads: Sequence[Load], turn: Callable[[Load], Awaitable[ResultT]], effort: Effort, warm_up: int = 20
) -> dict[str, list[ResultT]]:
    """Run a turn of every load in each round; each round starts with another load.

    Args:
        what: The measurement's name, for progress output.
        loads: The sides.
        turn: Measures one turn.
        effort: How many rounds.
        warm_up: The number of pipelines that each side runs first.

    Returns:
        The results of the turns by name of the load, one for each round.
    """
    for load in loads:
        await speed(load, effort.pipelines(warm_up), 5)
    results: dict[str, list[ResultT]] = {load.name: [] for load in loads}
    for number in range(effort.rounds):
        first = number % len(loads)
        for load in [*loads[first:], *loads[:first]]:
            results[load.name].append(await turn(load))
        print(f"{what}: round {number + 1} of {effort.rounds}", flush=True)
    return results


def ratio(results: Mapping[str, Sequence[float]], name: str, base: str) -> float:
    """Return the median ratio between two loads; 0 if there is nothing to compare.

    Example:
        >>> ratio({"baton": [90.0, 40.0, 95.0], "raw": [100.0, 50.0, 100.0]}, "baton", "raw")
        0.9
    """
    pairs = [(value, base_value) for value, base_value in zip(results[name], results[base], strict=True) if base_value]
    return statistics.median(value / base_value for value, base_value in pairs) if pairs else 0.0
