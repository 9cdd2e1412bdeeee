"""What a stage declares about itself, which the workflow reads and the activity obeys; and steps never awaited."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, runtime_checkable

from baton.core.baton import Baton
from baton.errors import PipelineError

DEFAULT_DECISIONS = 8
"""How many of the newest decisions a stage is handed unless it asks for others."""

DEFAULT_WINDOW = 32_000
"""How many tokens a model's window holds by default."""

_REFUSALS = frozenset({"UndeclaredPersonalDataError", "SubjectErasedError", "ToolDeniedError", "PromptTooLargeError"})

_Term = tuple[Any, Any, str]  # its type, the least that it may be, and both in words
_PAUSE: _Term = (timedelta, timedelta(microseconds=1), "a timedelta above zero, such as timedelta(seconds=30)")


def _whole(least: int) -> _Term:
    return int, least, f"a whole number from {least} up"


def _check(what: str, terms: object, expected: Mapping[str, _Term]) -> None:
    """Raise an error for a term of another type, or below the least that it may be."""
    for name, (kind, least, words) in expected.items():
        value = getattr(terms, name)
        if not isinstance(value, kind):
            raise TypeError(f"{what}: {name} is {type(value).__name__}; expected {words}")
        if value < least:
            raise ValueError(f"{what}: {name} is {value}; expected {words}")


_RETRIES = {"attempts": _whole(0), "first": _PAUSE, "longest": _PAUSE, "factor": (int | float, 1, "a number from 1 up")}
_STAGE = {"timeout": _PAUSE, "attempts": _whole(1), "reserve_micro_usd": _whole(0), "window": _whole(1)}
_OPTIONAL = {"decisions": _whole(0), "heartbeat": _PAUSE}


@dataclass(frozen=True)
class Retries:
    """How often and how fast a stage that raised is run again; the worker does this, not the workflow.

    Attributes:
        attempts: The most runs, the first included; 0 means without end.
        first: The pause before the second run.
        factor: By how much each pause is longer than the last.
        longest: The longest pause.
        never: Names of exception types that are not worth another run, beside those of Baton's own that never are:
            what a stage may not do, it may not do the second time either.

    Example:
        >>> [Retries(never=("ValueError",)).allows(name) for name in ("OSError", "ValueError", "ToolDeniedError")]
        [True, False, False]
    """

    attempts: int = 5
    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=1)
    never: tuple[str, ...] = ("TypeError", "NotImplementedError")

    def __post_init__(self) -> None:
        """Refuse what Temporal would refuse only once a run needs it."""
        _check("Retries", self, _RETRIES)
        if self.longest < self.first:
            raise ValueError(f"Retries: longest is {self.longest}, shorter than first, which is {self.first}")

    def allows(self, kind: str) -> bool:
        """Return whether an exception of a type is worth another run."""
        return kind not in self.never and kind not in _REFUSALS


@dataclass(frozen=True)
class StageSpec:
    """A stage's name and terms.

    Attributes:
        name: The stage's name; it is the name of its activity.
        reads: The fields the stage is handed, or None for all; goal, constraints and artifact references always are.
        writes: The only fields it may write, or None for all.
        decisions: How many of the newest decisions it is handed, or None for the whole log.
        timeout: How long one run may take.
        heartbeat: After how long without a sign of life the run counts as lost, or None for no heartbeats.
        retries: What happens when it raises.
        attempts: How often it may answer before a refused patch fails it.
        version: The version of the agent that does the stage, by semver.org; handoffs ask for it or a later one.
        requires: What a handoff to the stage must bring: fields of the baton that may not be empty, or JSON
            pointers into them.
        reserve_micro_usd: What is set apart from the budget before it runs, in millionths of a US dollar.
        closing: Whether it closes the work, and so may use what a budget set aside for that.
        personal_data: The fields of personal data that it handles; a stage that declares none is handed none.
        window: How many tokens its agent's context window holds. The prompt has what fits it; a conversation that
            fills more than 80 % of it is compressed first.
        whole: The inputs that its prompt must have whole; where they do not fit, the stage fails before it is paid.
        tools: The tools that its agent is able to use; under a contract it may call those of them that are allowed.
        forbids: Tools that it may not call whatever else is said.
        output: The registered schema that its output must fit, as `"Name@version"`.
        stream: Whether people may read what it says while it works, in every pipeline that runs it.
        task: What it is to do, at most 500 characters, for its contract; the baton's goal by default.
    """

    name: str
    reads: frozenset[str] | None = None
    writes: frozenset[str] | None = None
    decisions: int | None = DEFAULT_DECISIONS
    timeout: timedelta = timedelta(minutes=10)
    heartbeat: timedelta | None = timedelta(seconds=10)
    retries: Retries = Retries()
    attempts: int = 3
    version: str = "1.0.0"
    requires: frozenset[str] = frozenset()
    reserve_micro_usd: int = 0
    closing: bool = False
    personal_data: frozenset[str] = frozenset()
    window: int = DEFAULT_WINDOW
    whole: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    forbids: frozenset[str] = frozenset()
    output: str | None = None
    task: str | None = None
    stream: bool = False

    def __post_init__(self) -> None:
        """Refuse what would fail a run only once it comes to the stage."""
        what = f"@stage of {self.name!r}"
        if not isinstance(self.retries, Retries):
            raise TypeError(
                f"{what}: retries is {type(self.retries).__name__}; expected baton.Retries, for example "
                "Retries(attempts=3, first=timedelta(seconds=1))"
            )
        given = {name: term for name, term in _OPTIONAL.items() if getattr(self, name) is not None}
        _check(what, self, {**_STAGE, **given})

    def handed(self, baton: Baton) -> tuple[Baton, int]:
        """Return what the stage is handed of ``baton``, and how many decisions were left out."""
        fields = None if self.reads is None else self.reads | {"artifacts", "constraints"}
        handed = baton.restricted(fields, self.decisions)
        shows_log = fields is None or "decision_log" in fields
        return handed, len(baton.decision_log) - len(handed.decision_log) if shows_log else 0


@runtime_checkable
class HasSpec(Protocol):
    """Anything with a `spec`: what `@stage` makes."""

    @property
    def spec(self) -> StageSpec:
        """The stage's name and terms."""
        ...


def spec_of(stage: object) -> StageSpec:
    """Return a stage's name and terms."""
    if not isinstance(stage, HasSpec):
        found = getattr(stage, "__qualname__", None) or repr(stage)
        raise TypeError(
            f"a stage is an async function under @stage, named and not called; found the {type(stage).__name__} {found}"
        )
    return stage.spec


def name_set(names: Iterable[str], what: str) -> frozenset[str]:
    """Return names as a set; a lone text is refused, which would be taken for the names of its letters."""
    if isinstance(names, str):
        raise TypeError(f"{what}={names!r} is one text; write {what}=[{names!r}]")
    return frozenset(names)


def field_set(names: Iterable[str] | None, kind: type[Baton], what: str) -> frozenset[str] | None:
    """Return ``names`` as a set, after checking that the baton has such fields."""
    if names is None:
        return None
    fields = name_set(names, what)
    unknown = sorted(fields - kind.model_fields.keys())
    if unknown:
        raise ValueError(f"{what}={unknown}: {kind.__name__} has no such field; it has {', '.join(kind.model_fields)}")
    return fields


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
    """Make a method a step of a pipeline: a call that was never awaited is reported at the end of the run."""

    @wraps(method)
    def called(self: HasCallsT, /, *given: P.args, **named: P.kwargs) -> Coroutine[Any, Any, ResultT]:
        return self._calls.take(partial(method, self, *given, **named))

    return called


def _shown(act: partial[Any]) -> str:
    """Return a call of a method as the code has it, without what is given by name."""
    given = [one.spec.name if isinstance(one, HasSpec) else getattr(one, "__qualname__", repr(one)) for one in act.args]
    shown = f"{act.func.__qualname__}({', '.join(given[1:])})"
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 1]}…"
