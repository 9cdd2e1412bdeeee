"""What a request to a model costs: by a price that is given, or by the price list of `genai-prices`."""

import importlib.util
import logging
from functools import cache

from baton.compression.summariser import Price
from baton.wire.money import micro_usd

_log = logging.getLogger(__name__)


def cost(
    model: str, read: int, written: int, cached: int = 0, *, price: Price | None = None, url: str | None = None
) -> int | None:
    """Return what a request costs, in millionths of a US dollar; None where nobody knows.

    Args:
        model: The model.
        read: The tokens it read, those from the provider's cache among them.
        written: The tokens it wrote.
        cached: The tokens that it read from the provider's cache; some endpoints count more than were read.
        price: What it costs, if that is known here.
        url: The provider's address, which tells one provider of a model from another.

    Example:
        >>> from decimal import Decimal
        >>> cost("mine", 1_000, 100, price=Price(prompt=Decimal("0.5"), completion=Decimal(2)))
        700
    """
    if price is not None:
        return price.micro_usd(read, written)
    if not _has_price_list():
        _unknown(model, "give the agent a price, or install genai-prices")
        return None
    from genai_prices import Usage, calc_price  # noqa: PLC0415 - optional, and half a second of import

    usage = Usage(input_tokens=read, output_tokens=written, cache_read_tokens=min(cached, read))
    try:
        found = calc_price(usage, model, provider_api_url=url)
    except LookupError:
        try:
            found = calc_price(usage, model)
        except LookupError:
            _unknown(model, "give the agent a price")
            return None
    return micro_usd(found.total_price)


@cache
def _has_price_list() -> bool:
    return importlib.util.find_spec("genai_prices") is not None


@cache
def _unknown(model: str, remedy: str) -> None:
    """Say once that a model's tokens are counted and its money is not."""
    _log.warning("nobody knows what %r costs; its tokens are charged, and no money: %s", model, remedy)
