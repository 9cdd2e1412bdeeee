"""Money: whole millionths of a US dollar wherever it is added up, a plain JSON number on the wire.

Binary fractions cannot keep a budget: 0.8 - 0.7 - 0.1 leaves 8.3e-17, which is more than nothing. Sums are made
of integers here, so a budget ends exactly where it ends.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

MICRO_PER_USD = 1_000_000
"""Millionths in a US dollar."""
MOST_USD = 1_000_000_000
"""The largest amount a message carries; up to here every millionth has a JSON number of its own."""

_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)  # whatever precision the caller's thread has set


def micro_usd(amount: Decimal) -> int:
    """Return an amount in millionths of a US dollar, rounded to the nearest one.

    What a sender that counts in binary fractions leaves behind, such as 8.3e-17, is nothing.

    Args:
        amount: US dollars.

    Returns:
        Millionths of a US dollar; halves go to the even one.

    Example:
        >>> micro_usd(Decimal("0.08")), micro_usd(Decimal(0.8 - 0.7 - 0.1))
        (80000, 0)
    """
    return int(_EXACT.to_integral_value(_EXACT.multiply(amount, Decimal(MICRO_PER_USD))))


def usd(micro: int) -> Decimal:
    """Return millionths of a US dollar as US dollars, exactly.

    Args:
        micro: Millionths of a US dollar.

    Returns:
        US dollars without trailing zeros.

    Example:
        >>> usd(320_000), usd(-1)
        (Decimal('0.32'), Decimal('-0.000001'))
    """
    return _EXACT.divide(Decimal(micro), Decimal(MICRO_PER_USD))


def _amount(value: Any) -> Any:
    """Read a JSON number as the decimal that its shortest spelling shows; anything else as it is."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, Decimal):
        raise ValueError("an amount of money is a number, not a text or anything else")
    if value.is_finite() and Decimal(repr(float(value))) != value:
        raise ValueError("a JSON number does not hold the amount exactly; round it to millionths")
    return value


_read_amount = BeforeValidator(_amount)
_write_number = PlainSerializer(float, return_type=float, when_used="json")

Usd = Annotated[
    Decimal,
    _read_amount,
    Field(ge=-MOST_USD, le=MOST_USD),
    _write_number,
    WithJsonSchema({"type": "number", "minimum": -MOST_USD, "maximum": MOST_USD}),
]
"""US dollars: a Decimal in Python, a number in JSON; at most `MOST_USD` either way."""

UsdSpent = Annotated[
    Decimal,
    _read_amount,
    Field(ge=0, le=MOST_USD),
    _write_number,
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MOST_USD}),
]
"""US dollars that were spent, which cannot be less than none."""
