"""How alike outcomes are: where two JSON values differ, and which difference of rates is more than chance."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import JsonValue

from baton.wire.schemas import format_pointer

_Z = 1.959964  # the normal quantile of a two-sided interval of 95 %


def differences(
    recorded: JsonValue, found: JsonValue, ignore: Collection[str], tolerance: Mapping[str, float], at: str = ""
) -> list[str]:
    """Return the pointers at which two values differ, beyond the tolerance of a number, and not where it is ignored.

    Example:
        >>> differences({"amount": 40, "why": "a"}, {"amount": 41, "why": "b"}, (), {"/amount": 1})
        ['/why']
    """
    if at in ignore:
        return []
    if isinstance(recorded, dict) and isinstance(found, dict):
        names = sorted({*recorded, *found})
        parts = [(at + format_pointer([name]), name) for name in names]
        return [
            pointer
            for path, name in parts
            for pointer in differences(recorded.get(name, ...), found.get(name, ...), ignore, tolerance, path)  # type: ignore[arg-type]
        ]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        pairs = enumerate(zip(recorded, found, strict=True))
        return [
            pointer for nth, (one, two) in pairs for pointer in differences(one, two, ignore, tolerance, f"{at}/{nth}")
        ]
    if _is_number(recorded) and _is_number(found):
        return [] if abs(recorded - found) <= tolerance.get(at, 0.0) else [at]  # type: ignore[operator]
    return [] if type(recorded) is type(found) and recorded == found else [at]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shape(value: JsonValue) -> Any:
    """Return what a value's form is: the names of its members and the kinds of its values."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if _is_number(value) else type(value).__name__


def same_shape(recorded: Any, found: Any) -> bool:
    """Return whether two forms fit: lists of any length, an empty one any list."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        return recorded.keys() == found.keys() and all(same_shape(recorded[name], found[name]) for name in recorded)
    if isinstance(recorded, list) and isinstance(found, list):
        return not recorded or not found or same_shape(recorded[0], found[0])
    return bool(recorded == found)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a rate.

    Example:
        >>> tuple(round(bound, 3) for bound in wilson(3, 3)), wilson(0, 0)
        ((0.439, 1.0), (0.0, 1.0))
    """
    if not count:
        return 0.0, 1.0
    rate, square = hits / count, _Z**2 / count
    centre = (rate + square / 2) / (1 + square)
    spread = _Z / (1 + square) * math.sqrt(rate * (1 - rate) / count + square / (4 * count))
    return (0.0 if hits == 0 else centre - spread), (1.0 if hits == count else centre + spread)


def drop_bounds(before: tuple[int, int], after: tuple[int, int]) -> tuple[float, float]:
    """Return Newcombe's 95 % interval for how much lower a rate is after than before, from Wilson's of each.

    Example:
        >>> low, high = drop_bounds((180, 180), (159, 180))
        >>> round(low, 2), round(high, 2)
        (0.07, 0.17)
    """
    rates = [hits / count if count else 0.0 for hits, count in (before, after)]
    (low_before, high_before), (low_after, high_after) = wilson(*before), wilson(*after)
    drop = rates[0] - rates[1]
    low = drop - math.hypot(rates[0] - low_before, high_after - rates[1])
    return low, drop + math.hypot(high_before - rates[0], rates[1] - low_after)
