"""Use a tool under a stage's contract, and leave a sentence about its result for later contracts."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from baton import StageContext

T = TypeVar("T")


async def use(context: StageContext[Any], tool: str, work: Callable[[], Awaitable[T]], claim: Callable[[T], str]) -> T:
    """Do a tool's work if the contract allows the tool, and record the call with what came of it.

    What later agents are told is the claim; the whole result is the stage's own business.

    Args:
        context: The stage's context.
        tool: The tool's name, as the stage declares it.
        work: Does the work.
        claim: Says of its result, in one sentence, what is now known.

    Raises:
        ToolDeniedError: The contract does not allow the tool; nothing was done.
    """
    results: list[T] = []

    async def called() -> str:
        results.append(await work())
        return claim(results[0])

    await context.tools.call(tool, called)
    return results[0]
