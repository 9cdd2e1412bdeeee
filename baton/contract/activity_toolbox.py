"""The toolbox of a stage: its contract's tools, checked where they are called (S5-fields-k)."""

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from baton.contract.activity_session import SessionLog, cut
from baton.contract.tool_names import tool_key, tool_keys
from baton.contract.tools import TOOL_DENIED, ToolDeniedError

LONGEST_RESULT = 500
"""How much of what a tool returned becomes a claim, in characters; the journal has all of it."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool may return to say more of its answer than the answer itself; its caller gets the result alone.

    Attributes:
        result: What the caller gets.
        claim: What is known from it, in a sentence; this is what becomes a fact.
        retrieved_at: When the data was retrieved, if not now: a cached answer is as old as its data.
        success: Whether the tool did its work; otherwise nothing becomes a fact.
        max_age_minutes: After how long it is stale, instead of the contract policy's age.
    """

    result: Any
    claim: str
    retrieved_at: datetime | None = None
    success: bool = True
    max_age_minutes: int | None = None


class Denials(Protocol):
    """Puts a denied call on record."""

    async def __call__(self, tool: str, handoff_id: str, number: int) -> None:
        """Record the ``number``-th denial of this run, and under which handoff the tool was called."""


async def _unrecorded(tool: str, handoff_id: str, number: int) -> None:
    """Leave a denial to the log alone, where there is no ledger."""


class Toolbox:
    """Lets a stage call the tools that its contract allows, and no others.

    Args:
        allowed: The tools it may call; None where no contract was made, and then every tool may be called.
        session: Where calls and results are recorded.
        handoff_id: The handoff under which the stage acts.
        denials: Puts denied calls on record.
        forbidden: Tools that it may not call, whatever is allowed.

    Example:
        >>> import asyncio
        >>> log = SessionLog("review", "2.1", "h-1")
        >>> tools = Toolbox(frozenset({"policy.search"}), log, "h-1")
        >>> asyncio.run(tools.call("policy.search", lambda word: f"one rule about {word}", "discounts"))
        'one rule about discounts'
        >>> asyncio.run(tools.call("email.send", print, "hello"))
        Traceback (most recent call last):
        ...
        baton.contract.tools.ToolDeniedError: TOOL_DENIED: 'email.send' is not among the tools of handoff 'h-1': ...
    """

    def __init__(
        self,
        allowed: frozenset[str] | None,
        session: SessionLog,
        handoff_id: str,
        denials: Denials = _unrecorded,
        *,
        forbidden: frozenset[str] = frozenset(),
    ) -> None:
        self._forbidden = tool_keys(forbidden)
        self._allowed = None if allowed is None else frozenset(n for n in allowed if tool_key(n) not in self._forbidden)
        self._session = session
        self._handoff_id = handoff_id
        self._denials = denials
        self._denied: list[tuple[str, str]] = []  # tool and handoff
        self._recorded = 0

    @property
    def names(self) -> frozenset[str] | None:
        """The tools that may be called; None if every tool may."""
        return self._allowed

    def allows(self, name: str) -> bool:
        """Return whether a tool may be called; asking is no call and leaves no trace."""
        key = tool_key(name)
        return key not in self._forbidden and (self._allowed is None or key in tool_keys(self._allowed))

    def check(self, name: str) -> None:
        """Deny a call that is about to be made, unless the tool may be called; for tools that a framework calls itself.

        Raises:
            ToolDeniedError: It may not; that goes on record.
        """
        if not self.allows(name):
            self._deny(name, self._handoff_id)
            raise ToolDeniedError(name, self._handoff_id, allowed=self._allowed or ())

    async def call(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a tool, if it is allowed, and record the call and what came of it.

        Args:
            name: The tool.
            function: What does its work, async or not; it may return a `ToolAnswer`.
            *args: Its arguments.
            **kwargs: Its arguments.

        Raises:
            ToolDeniedError: The contract does not allow it; nothing was called.
        """
        try:
            result = self.guard(function, name)(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        finally:
            await self.settle()

    def guard(self, function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
        """Return a function that is checked and recorded at every call, for a framework that calls tools itself.

        Args:
            function: The tool, async or not; the guarded one is of the same kind and has the same signature.
            name: The tool's name; the function's own by default.
        """
        tool = name or function.__name__
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def guarded(*args: Any, **kwargs: Any) -> Any:
                call_id = self._begin(tool, args, kwargs)
                return await self._awaited(tool, call_id, function(*args, **kwargs))

            return guarded

        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            call_id = self._begin(tool, args, kwargs)
            try:
                result = function(*args, **kwargs)
            except (StopIteration, SystemExit) as error:
                raise self._failed(tool, call_id, error) from error
            except Exception as error:
                self._failed(tool, call_id, error)
                raise
            if inspect.isawaitable(result):  # as of `lambda: client.get(…)`; what it says is known once it is awaited
                return self._awaited(tool, call_id, result)
            return self._done(tool, call_id, result)

        return plain

    async def deny(self, name: str, handoff_id: str) -> None:
        """Put a call on record that was denied before it reached a stage, as in workflow code.

        Args:
            name: The tool.
            handoff_id: The handoff under which it was called.
        """
        self._deny(name, handoff_id)
        await self.settle()

    async def settle(self) -> None:
        """Put denied calls on record that are not yet; a plain function cannot wait for the ledger."""
        while self._recorded < len(self._denied):
            denied, self._recorded = self._denied[self._recorded], self._recorded + 1
            await self._denials(*denied, self._recorded)

    def _deny(self, tool: str, handoff_id: str) -> None:
        """Note that a call was denied."""
        self._denied.append((tool, handoff_id))
        _log.warning("%s: %r was called under handoff %s and did not run", TOOL_DENIED, tool, handoff_id)
        self._session.tool_result(tool, TOOL_DENIED, success=False)

    def _begin(self, tool: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Record a call, unless it is denied.

        Raises:
            ToolDeniedError: The contract does not allow it.
        """
        self.check(tool)
        named = {name: repr(value) for name, value in kwargs.items()}
        return self._session.tool_call(tool, {"args": [repr(one) for one in args], **named})

    async def _awaited(self, tool: str, call_id: str, result: Awaitable[Any]) -> Any:
        """Record what a call returned or raised once it has been awaited, and return it."""
        try:
            value = await result
        except SystemExit as error:
            raise self._failed(tool, call_id, error) from error
        except Exception as error:
            self._failed(tool, call_id, error)
            raise
        return self._done(tool, call_id, value)

    def _done(self, tool: str, call_id: str, result: Any) -> Any:
        """Record what a call returned, and return it."""
        if isinstance(result, ToolAnswer):
            self._session.tool_result(
                tool,
                result.claim,
                call_id=call_id,
                success=result.success,
                retrieved_at=result.retrieved_at,
                content=result.result if isinstance(result.result, str) else repr(result.result),
                max_age_minutes=result.max_age_minutes,
            )
            return result.result
        text = result if isinstance(result, str) else repr(result)
        self._session.tool_result(tool, cut(text, LONGEST_RESULT), call_id=call_id, content=text)
        return result

    def _failed(self, tool: str, call_id: str, error: BaseException) -> RuntimeError:
        """Record that a call raised, and return what to raise instead where that would not end the call alone.

        Python hands a `StopIteration` on from no thread, so nobody would ever be told of it; a `SystemExit`, as of a
        function that reads a command line, would end the worker out of a task of a framework.
        """
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self._session.tool_result(tool, cut(told, LONGEST_RESULT), call_id=call_id, success=False)
        return RuntimeError(f"tool {tool!r} raised {told}")
