"""Calls that were never awaited: the steps of a pipeline, and what a stage does by its context.

Such a call does not run, and Python only warns of it somewhere in the worker's log.
"""

import inspect
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from baton.core.stages import HasSpec
from baton.errors import PipelineError

P = ParamSpec("P")
ResultT = TypeVar("ResultT")

_LONGEST_SHOWN = 200  # of a call, in characters: a receiver may be given much


class Calls:
    """The calls that have not begun, in their order."""

    def __init__(self, caller: str = "the pipeline", *, shows_arguments: bool = True) -> None:
        self._caller = caller
        self._shows_arguments = shows_arguments
        self._made = 0
        self._open: dict[int, tuple[partial[Any], Coroutine[Any, Any, Any]]] = {}

    def take(self, act: "partial[Coroutine[Any, Any, ResultT]]") -> Coroutine[Any, Any, ResultT]:
        """Return the coroutine of a step, which counts as called until it begins."""
        self._made += 1
        begun = self._begun(self._made, act)
        self._open[self._made] = act, begun
        return begun

    def check(self) -> None:
        """Raise an error if a step was called and never awaited; a closed or abandoned task is in order."""
        waits = [
            (act, coroutine)
            for act, coroutine in self._open.values()
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
        ]
        for _, coroutine in waits:
            coroutine.close()  # or Python would warn of it, somewhere in the worker's log
        if not waits:
            return
        calls = ", ".join(_shown(act) if self._shows_arguments else act.func.__qualname__ for act, _ in waits)
        raise PipelineError(
            f"{self._caller} called {calls} and never awaited it, so it did not run; write `await` before the call"
        )

    async def _begun(self, number: int, act: "partial[Coroutine[Any, Any, ResultT]]") -> ResultT:
        del self._open[number]
        return await act()


class HasCalls(Protocol):
    """What has steps: a pipeline, and what is attached to one, which tells of its calls."""

    _calls: Calls


HasCallsT = TypeVar("HasCallsT", bound=HasCalls)


def step(
    method: Callable[Concatenate[HasCallsT, P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[HasCallsT, P], Coroutine[Any, Any, ResultT]]:
    """Make a method a step of a pipeline: who calls it and never awaits it is told so at the end of the run."""

    @wraps(method)
    def called(self: HasCallsT, /, *given: P.args, **named: P.kwargs) -> Coroutine[Any, Any, ResultT]:
        return self._calls.take(partial(method, self, *given, **named))

    return called


def _shown(act: partial[Any]) -> str:
    """Return a call of a method as the code has it, without what is given by name."""
    given = [one.spec.name if isinstance(one, HasSpec) else getattr(one, "__qualname__", repr(one)) for one in act.args]
    shown = f"{act.func.__qualname__}({', '.join(given[1:])})"
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 1]}…"
