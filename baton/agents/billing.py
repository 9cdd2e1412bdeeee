"""The bill of an agent's run: every adapter charges its requests and keeps its limits by the same meter."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from typing import Any

from pydantic_core import to_json

from baton.agents.port import AgentWork
from baton.core.history import Spend
from baton.errors import AgentError
from baton.telemetry.tracing import current_stage
from baton.wire.money import Price, Usage, to_micro_usd

_log = logging.getLogger(__name__)


class UsageMeter:
    """Charges each request of a run, and ends a run that has used up its limits."""

    def __init__(self, work: AgentWork, agent: str, price: Price | None = None) -> None:
        self._work = work
        self._agent = agent
        self._price = price
        self._requests = 0
        self.used = Usage()
        self.spent = Spend()

    def request(self) -> None:
        """Count a request that is about to be made."""
        self.check()
        most = self._work.limits.requests
        if most is not None and self._requests >= most:
            raise self._reached(f"{most:,} requests")
        self._requests += 1

    def check(self) -> None:
        """Refuse to continue a run that has used up its tokens or its money."""
        most, used, money = self._work.limits, self.used.total, self.spent.micro_usd
        if most.tokens is not None and used >= most.tokens:
            raise self._reached(f"{used:,} of {most.tokens:,} tokens")
        if most.micro_usd is not None and money >= max(1, most.micro_usd):
            raise self._reached(f"{money:,} of {most.micro_usd:,} micro-dollars")

    def charge(self, usage: Usage, model: str, *, cost: int | None = None, url: str | None = None) -> None:
        """Charge a request that was made."""
        if not usage and not cost:
            return
        if self._price is not None or cost is None:
            cost = cost_of(model, usage, price=self._price, url=url)
        spend = Spend(micro_usd=cost or 0, prompt_tokens=usage.input, completion_tokens=usage.output)
        self.used, self.spent = self.used + usage, self.spent + spend
        self._work.charge(spend, model)
        if (span := current_stage.get()) is not None:
            span.record_usage(model, self.used)

    def estimated(self, read: Iterable[Any], written: Any) -> Usage:
        """Return the usage of a request that its provider did not measure, by the messages and the answer."""
        counter = self._work.context.parts.counter
        texts = (to_json(one, fallback=str).decode() for one in (*read, written))
        *tokens, output = map(counter, texts)
        return Usage(input=sum(tokens), output=output)

    def settle(self, total: Usage, model: str, *, cost: int | None = None) -> None:
        """Charge what a run used beyond the requests that were charged, such as answers its framework refused."""
        rest = None if cost is None else max(0, cost - self.spent.micro_usd)
        self.charge(total.beyond(self.used), model, cost=rest)

    def _reached(self, limit: str) -> AgentError:
        return AgentError(f"agent {self._agent!r} reached a limit of its run: {limit}", permanent=True)


def cost_of(model: str, usage: Usage, *, price: Price | None = None, url: str | None = None) -> int | None:
    """Return what tokens cost in millionths of a US dollar, or None if neither price nor price list knows the model."""
    if price is not None:
        return price.micro_usd(usage)
    if (prices := _price_list()) is None:
        _warn_unpriced(model, "give the agent a price, or install genai-prices")
        return None
    counted = prices.Usage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cached_input,
        cache_write_tokens=usage.cache_write,
    )
    for provider in (url, None) if url else (None,):
        try:
            return to_micro_usd(prices.calc_price(counted, model, provider_api_url=provider).total_price)
        except LookupError:
            continue
    if model != "test" and not model.startswith("function:"):  # Pydantic AI's scripted models send no bill
        _warn_unpriced(model, "give the agent a price")
    return None


@cache
def window_of(model: str, url: str | None = None) -> int | None:
    """Return how many tokens the window of a model holds, or None if the price list does not know it."""
    if (prices := _price_list()) is None:
        return None
    try:
        _, found = prices.data_snapshot.get_snapshot().find_provider_model(model, None, None, url)
    except LookupError:
        return None
    window: int | None = found.context_window
    return window


@asynccontextmanager
async def in_time(work: AgentWork, agent: str) -> AsyncIterator[None]:
    """End the `async with` block when the run's time is over."""
    try:
        async with asyncio.timeout(work.limits.seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise AgentError(f"agent {agent!r} did not come to an end within {work.limits.seconds:g} s") from None


@cache
def _price_list() -> Any:
    """Return `genai_prices`, which is optional and takes half a second to import; None where it is not installed."""
    try:
        return import_module("genai_prices")
    except ModuleNotFoundError:
        return None


@cache
def _warn_unpriced(model: str, remedy: str) -> None:
    """Warn once that a model's tokens are counted and its money is not."""
    _log.warning("the price of %r is unknown; its tokens are charged, and no money: %s", model, remedy)
