"""Keeps a run within its requests, tokens, money and time, and charges it, for frameworks that leave that to others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from baton.agents.port import AgentLimits, AgentWork
from baton.agents.prices import cost
from baton.compression.summariser import Price
from baton.core.history import Spend
from baton.errors import AgentError


class Bill:
    """Charges what each request to a model cost, and stops a run that has used up what it may.

    Args:
        work: The work of the agent that runs.
        price: What the model costs; the public price list knows most models by their names.

    Example:
        >>> from baton.core.baton import Baton
        >>> from baton.pipelines.activity_context import StageContext
        >>> from baton.agents.port import AgentLimits, AnswerForm
        >>> context = StageContext.for_test(Baton(goal="Add login"))
        >>> work = AgentWork(prompt="", instructions="", tools=(), form=AnswerForm.PATCH, schema=None,
        ...                  limits=AgentLimits(tokens=1_000), withheld=frozenset(), context=context)
        >>> bill = Bill(work)
        >>> bill.charge("gpt-4o", 400, 100)
        >>> context.charged
        Spend(micro_usd=2000, prompt_tokens=400, completion_tokens=100)
        >>> bill.charge("gpt-4o", 600, 100)
        Traceback (most recent call last):
        ...
        baton.errors.AgentError: the run took 1200 tokens; it may take 1000
    """

    def __init__(self, work: AgentWork, price: Price | None = None) -> None:
        self._work = work
        self._price = price
        self._requests = 0
        self._spent = Spend()

    def request(self) -> None:
        """Count a request that is about to be made.

        Raises:
            AgentError: It would be one too many.
        """
        self._requests += 1
        most = self._work.limits.requests
        if most is not None and self._requests > most:
            raise AgentError(f"the run would have made more than {most} requests to models", permanent=True)

    def charge(self, model: str, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        """Charge a request that was made.

        Args:
            model: The model's name as its provider spells it.
            prompt_tokens: The tokens it read.
            completion_tokens: The tokens it wrote.
            cached_tokens: The tokens that it read from the provider's cache.

        Raises:
            AgentError: The run has now taken more tokens, or cost more, than its limits allow.
        """
        prompt_tokens, completion_tokens = max(0, prompt_tokens), max(0, completion_tokens)  # -1 is "unknown" to some
        if not prompt_tokens and not completion_tokens:
            return
        money = cost(model, prompt_tokens, completion_tokens, cached_tokens, price=self._price)
        spend = Spend(micro_usd=money or 0, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        self._spent = self._spent + spend
        self._work.charge(spend)
        tokens, most = self._spent.prompt_tokens + self._spent.completion_tokens, self._work.limits
        if most.tokens is not None and tokens > most.tokens:
            raise AgentError(f"the run took {tokens} tokens; it may take {most.tokens}", permanent=True)
        refuse_too_dear(self._spent, most)


def refuse_too_dear(spent: Spend, limits: AgentLimits) -> None:
    """End a run that has cost more than it may.

    Args:
        spent: What it has cost.
        limits: How far it may go.

    Raises:
        AgentError: It has.

    Example:
        >>> refuse_too_dear(Spend(micro_usd=7), AgentLimits(micro_usd=5))
        Traceback (most recent call last):
        ...
        baton.errors.AgentError: the run cost 7 µUSD; it may cost 5
    """
    if limits.micro_usd is not None and spent.micro_usd > limits.micro_usd:
        raise AgentError(f"the run cost {spent.micro_usd} µUSD; it may cost {limits.micro_usd}", permanent=True)


@asynccontextmanager
async def in_time(work: AgentWork, agent: str) -> AsyncIterator[None]:
    """End what is inside the `async with` block when the time of the run is over.

    Raises:
        AgentError: It was; another run may be quicker.
    """
    try:
        async with asyncio.timeout(work.limits.seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise AgentError(f"agent {agent!r} did not come to an end within {work.limits.seconds:g} s") from None
