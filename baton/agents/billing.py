"""The bill of an agent's run. All adapters charge requests and enforce limits with the same meter."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from typing import Any

from pydantic_core import to_json

from baton.agents.port import AgentWork
from baton.contract.activity_transcript import Asked, OpenRequest
from baton.core.history import Spend
from baton.errors import AgentError
from baton.telemetry.verdicts import current_stage
from baton.wire.money import Price, Usage, to_micro_usd

_log = logging.getLogger(__name__)


class UsageMeter:
    """Charges each request of a run, and ends the run when it reaches a limit."""

    def __init__(self, work: AgentWork, agent: str, price: Price | None = None) -> None:
        self._work = work
        self._agent = agent
        self._price = price
        self.used = Usage()
        self.spent = Spend()

    def count_request(self, asked: Asked = ()) -> OpenRequest:
        """Count a request before it is made, and note what it asks; its charge takes what is returned."""
        self.check_limits()
        limit, bill = self._work.limits.requests, self._work.bill
        if limit is not None and bill.requests >= limit:
            raise self._limit_error(f"{limit:,} requests")
        bill.requests += 1
        return self._work.transcript.ask(self._agent, asked)

    def check_limits(self) -> None:
        """Raise if the run has used up its tokens or its money."""
        limits, bill = self._work.limits, self._work.bill
        used, money = bill.usage.total, bill.spend.micro_usd
        if limits.tokens is not None and used >= limits.tokens:
            raise self._limit_error(f"{used:,} of {limits.tokens:,} tokens")
        if limits.micro_usd is not None and money >= max(1, limits.micro_usd):
            raise self._limit_error(f"{money:,} of {limits.micro_usd:,} micro-dollars")

    def charge(
        self,
        usage: Usage,
        model: str,
        *,
        cost: int | None = None,
        url: str | None = None,
        request: OpenRequest | None = None,
        said: str = "",
    ) -> None:
        """Charge a request, also one that was cut off, and note the answer to one that was counted."""
        is_free = not usage and not cost
        if not is_free and (self._price is not None or cost is None):
            cost = compute_cost(model, usage, price=self._price, url=url)
        spend = Spend(micro_usd=cost or 0, prompt_tokens=usage.input, completion_tokens=usage.output)
        if request is not None:
            self._work.transcript.end(request, model, spend, said)
        if is_free:
            return
        bill = self._work.bill
        self.used, self.spent = self.used + usage, self.spent + spend
        bill.usage, bill.spend = bill.usage + usage, bill.spend + spend
        self._work.charge(spend, model)
        if (span := current_stage.get()) is not None:
            span.record_usage(model, self.used)

    def estimate_usage(self, messages: Iterable[Any], answer: Any) -> Usage:
        """Estimate the usage of a request that its provider did not measure."""
        counter = self._work.context.parts.counter
        texts = (to_json(part, fallback=str).decode() for part in (*messages, answer))
        *tokens, output = map(counter, texts)
        return Usage(input=sum(tokens), output=output)

    def settle(self, total: Usage, model: str, *, cost: int | None = None, nested: "UsageMeter | None" = None) -> None:
        """Charge usage beyond the charged requests, such as answers that the framework rejected.

        Args:
            total: The usage that the framework counted; it may have counted that of nested runs as well.
            model: The model.
            cost: The cost that the framework counted.
            nested: The meter of the agents that ran inside tools.
        """
        used, spent = (nested.used, nested.spent) if nested else (Usage(), Spend())
        remainder = None if cost is None else max(0, cost - self.spent.micro_usd - spent.micro_usd)
        self.charge(total.minus(self.used).minus(used), model, cost=remainder)

    def _limit_error(self, limit: str) -> AgentError:
        return AgentError(f"agent {self._agent!r} reached a limit of its run: {limit}", permanent=True)


def compute_cost(model: str, usage: Usage, *, price: Price | None = None, url: str | None = None) -> int | None:
    """Return the cost in millionths of a US dollar, or None if no price is known for the model."""
    if price is not None:
        return price.micro_usd(usage)
    if (prices := _price_list()) is None:
        _warn_unpriced(model, "give the agent a price, or install genai-prices")
        return None
    price_usage = prices.Usage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cached_input,
        cache_write_tokens=usage.cache_write,
    )
    for provider in (url, None) if url else (None,):
        try:
            return to_micro_usd(prices.calc_price(price_usage, model, provider_api_url=provider).total_price)
        except LookupError:
            continue
    if model != "test" and not model.startswith("function:"):  # Pydantic AI's scripted models send no bill
        _warn_unpriced(model, "give the agent a price")
    return None


@cache
def find_window(model: str, url: str | None = None) -> int | None:
    """Return the size of a model's context window in tokens, or None if the price list does not know the model."""
    if (prices := _price_list()) is None:
        return None
    try:
        _, entry = prices.data_snapshot.get_snapshot().find_provider_model(model, None, None, url)
    except LookupError:
        return None
    window: int | None = entry.context_window
    return window


@asynccontextmanager
async def time_limit(work: AgentWork, agent: str) -> AsyncIterator[None]:
    """Cancel the `async with` block when the run's time is up."""
    try:
        async with asyncio.timeout(work.limits.seconds) as timeout:
            yield
    except TimeoutError:
        if not timeout.expired():
            raise
        raise time_error(work, agent) from None


def time_error(work: AgentWork, agent: str) -> AgentError:
    """Return the error of an agent whose time is up, with the tools that it waited for."""
    seconds = work.limits.seconds
    limit = "in the time of its stage" if seconds is None else f"within {seconds:g} s"
    running = ", ".join(map(repr, dict.fromkeys(work.context.tools.running)))
    waited = f"; it waited for {running}, which did not return" if running else ""
    return AgentError(f"agent {agent!r} did not finish {limit}{waited}")


@cache
def _price_list() -> Any:
    """Return `genai_prices`, or None if it is not installed; importing it takes half a second."""
    try:
        return import_module("genai_prices")
    except ModuleNotFoundError:
        return None


@cache
def _warn_unpriced(model: str, remedy: str) -> None:
    _log.warning("the price of %r is unknown; its tokens are counted without a cost: %s", model, remedy)
