"""The terms that a stage declares, and the check for steps that are never awaited."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, get_args, runtime_checkable

from baton.core.baton import Baton
from baton.errors import PipelineError


class OnReport(StrEnum):
    """What a pipeline does about a handoff report that is not ready; `@pipeline(on_report=…)`."""

    STOP = "stop"
    """One that is failed or blocked fails its stage; one that says `Ready: No` asks people."""
    ASK = "ask"
    """Both ask people."""
    CONTINUE = "continue"
    """The pipeline's code decides, by the stage's output."""


KeepText = Literal["kept", "sealed", "off"]
"""What becomes of the texts of a stage's agents: kept, kept sealed like personal data, or not kept."""


DEFAULT_DECISIONS = 8
"""How many of the newest decisions a stage gets by default."""

AGENT_DECISIONS = 16
"""The same for the stage of an agent: five agents in a row make about so many, and the last one needs them all."""

DEFAULT_WINDOW = 32_000
"""The tokens of a model's context window by default."""

_PERMANENT = frozenset(
    {
        *("UndeclaredPersonalDataError", "SubjectErasedError", "ToolDeniedError", "PromptTooLargeError"),
        "LabRefusedError",
    }
)

_Term = tuple[Any, Any, str]  # type, minimum, and both in words
_DURATION: _Term = (timedelta, timedelta(microseconds=1), "a timedelta above zero, such as timedelta(seconds=30)")


def _integer(minimum: int) -> _Term:
    return int, minimum, f"a whole number from {minimum} up"


def _check_terms(owner: str, terms: object, expected: Mapping[str, _Term]) -> None:
    """Raise an error if a term has the wrong type or is too small."""
    for name, (kind, minimum, words) in expected.items():
        value = getattr(terms, name)
        if not isinstance(value, kind):
            raise TypeError(f"{owner}: {name} is {type(value).__name__}; expected {words}")
        if value < minimum:
            raise ValueError(f"{owner}: {name} is {value}; expected {words}")


_FACTOR: _Term = (int | float, 1, "a number from 1 up")
_RETRIES = {"attempts": _integer(0), "first": _DURATION, "longest": _DURATION, "factor": _FACTOR}
_STAGE = {"timeout": _DURATION, "attempts": _integer(1), "reserve_micro_usd": _integer(0), "window": _integer(1)}
_OPTIONAL = {"decisions": _integer(0), "heartbeat": _DURATION}


@dataclass(frozen=True)
class Retries:
    """How a stage that raised is retried; Temporal's server does this, not the workflow.

    Attributes:
        attempts: The most runs, the first included; 0 means unlimited.
        first: The pause before the second run.
        factor: The factor by which each pause grows.
        longest: The longest pause.
        never: Names of exception types that are not retried. Baton's own refusals, such as `ToolDeniedError`, are
            never retried.

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
        """Check the terms here, because Temporal would reject them only in a run."""
        _check_terms("Retries", self, _RETRIES)
        if self.longest < self.first:
            raise ValueError(f"Retries: longest is {self.longest}, shorter than first, which is {self.first}")

    def allows(self, kind: str) -> bool:
        """Return whether an exception of a type is retried."""
        return kind not in self.never and kind not in _PERMANENT


@dataclass(frozen=True)
class StageSpec:
    """A stage's name and terms.

    Attributes:
        name: The stage's name, also the name of its activity.
        reads: The fields that the stage gets, or None for all; it always gets goal, constraints and artifacts.
        writes: The only fields it may write, or None for all.
        decisions: How many of the newest decisions it gets, or None for all.
        timeout: The longest time of one run.
        heartbeat: The heartbeat timeout, or None for no heartbeats.
        retries: The retry policy for exceptions.
        attempts: The most attempts when its patches are rejected.
        version: The version of its agent, by semver.org; handoffs require this one or a later one.
        requires: What a handoff to the stage must contain: non-empty fields of the baton, or JSON pointers into them.
        reserve_micro_usd: The budget reserved before it runs, in millionths of a US dollar.
        closing: Whether it closes the work, and so may use money set aside for that.
        personal_data: The fields of personal data that it handles; it gets no others.
        window: The tokens of its agent's context window. The prompt is fitted to it; a conversation that fills more
            than 80 % of it is compressed first.
        whole: The inputs that the prompt must contain in full; if they do not fit, the stage fails before any cost.
        tools: The tools that its agent has; a contract allows some of them.
        forbids: Tools that it may never call.
        capability: The kinds of task that it is; with a registry of agents, its agent must have them all.
        output: The registered schema of its output, as `"Name@version"`.
        stream: Whether people may watch its output while it works, in every pipeline that runs it.
        steer: Whether people may send its agent notes while it works (`baton steer`).
        agent: Whether an agent does it: it gets a contract by default, and what its model says is not a fact.
        task: Its task for the contract, at most 500 characters; the baton's goal by default.
        transcript: Whether what its agents are asked and answer is kept beside the history: "kept", "sealed" like
            personal data, or "off". That of a stage with `personal_data` is sealed, unless it is off; without a vault
            none is.
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
    capability: frozenset[str] = frozenset()
    output: str | None = None
    task: str | None = None
    stream: bool = False
    steer: bool = False
    agent: bool = False
    transcript: KeepText = "kept"

    def __post_init__(self) -> None:
        """Check the terms here, because a run would fail only when it reaches the stage."""
        owner = f"@stage of {self.name!r}"
        if not isinstance(self.retries, Retries):
            raise TypeError(
                f"{owner}: retries is {type(self.retries).__name__}; expected baton.Retries, for example "
                "Retries(attempts=3, first=timedelta(seconds=1))"
            )
        if self.transcript not in get_args(KeepText):
            choices = ", ".join(get_args(KeepText))
            raise ValueError(f"{owner}: transcript is {self.transcript!r}; expected one of {choices}")
        optional = {name: term for name, term in _OPTIONAL.items() if getattr(self, name) is not None}
        _check_terms(owner, self, {**_STAGE, **optional})

    def restrict(self, baton: Baton) -> tuple[Baton, int]:
        """Return the part of ``baton`` that the stage gets, and how many decisions were left out."""
        fields = None if self.reads is None else self.reads | {"artifacts", "constraints"}
        restricted = baton.restricted(fields, self.decisions)
        reads_log = fields is None or "decision_log" in fields
        return restricted, len(baton.decision_log) - len(restricted.decision_log) if reads_log else 0


@runtime_checkable
class HasSpec(Protocol):
    """An object with a `spec`, such as a stage."""

    @property
    def spec(self) -> StageSpec:
        """The stage's name and terms."""
        ...


def spec_of(stage: object) -> StageSpec:
    """Return a stage's name and terms."""
    if not isinstance(stage, HasSpec):
        name = getattr(stage, "__qualname__", None) or repr(stage)
        raise TypeError(
            f"a stage is an async function under @stage, passed uncalled; found the {type(stage).__name__} {name}"
        )
    return stage.spec


def same_name(name: str, *stages: object) -> str:
    """Return why stages of one name cannot be told apart, with where each was written."""
    origins = " and ".join(str(getattr(stage, "origin", stage)) for stage in stages)
    return (
        f"two stages are named {name!r}, {origins}, and a worker can have only one of them: rename one by `name=…`, or "
        "make the stage once, at the top level of a module, if both are the same"
    )


class Stages:
    """The stages that a pipeline runs, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, HasSpec] = {}

    def spec_of(self, stage: HasSpec) -> StageSpec:
        """Return a stage's spec; two stages may not share a name."""
        spec = spec_of(stage)
        if (first := self._by_name.setdefault(spec.name, stage)) is not stage:
            raise ValueError(same_name(spec.name, first, stage))
        return spec


def name_set(names: Iterable[str], argument: str) -> frozenset[str]:
    """Return names as a set; a single string is an error, because it would become a set of letters."""
    if isinstance(names, str):
        raise TypeError(f"{argument}={names!r} is one text; write {argument}=[{names!r}]")
    return frozenset(names)


def field_set(names: Iterable[str] | None, kind: type[Baton], argument: str) -> frozenset[str] | None:
    """Return ``names`` as a set; raise an error for a field that the baton does not have."""
    if names is None:
        return None
    fields = name_set(names, argument)
    unknown = sorted(fields - kind.model_fields.keys())
    if unknown:
        raise ValueError(
            f"{argument}={unknown}: {kind.__name__} has no such field; it has {', '.join(kind.model_fields)}"
        )
    return fields


P = ParamSpec("P")
ResultT = TypeVar("ResultT")

_MAX_CALL_LENGTH = 200  # arguments may be long


class Calls:
    """The step calls that have not started, in call order."""

    def __init__(self, caller: str = "the pipeline", *, shows_arguments: bool = True) -> None:
        self._caller = caller
        self._shows_arguments = shows_arguments
        self._count = 0
        self._pending: dict[int, tuple[partial[Any], Coroutine[Any, Any, Any]]] = {}

    def track(self, call: "partial[Coroutine[Any, Any, ResultT]]") -> Coroutine[Any, Any, ResultT]:
        """Return the coroutine of a call, which is pending until it starts."""
        self._count += 1
        coroutine = self._start(self._count, call)
        self._pending[self._count] = call, coroutine
        return coroutine

    def check(self) -> None:
        """Raise an error if a step was called and never awaited; a closed or abandoned task is allowed."""
        pending = [
            (call, coroutine)
            for call, coroutine in self._pending.values()
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
        ]
        for _, coroutine in pending:
            coroutine.close()  # otherwise Python warns in the worker's log
        if not pending:
            return
        calls = ", ".join(
            _render_call(call) if self._shows_arguments else call.func.__qualname__ for call, _ in pending
        )
        raise PipelineError(
            f"{self._caller} called {calls} and never awaited it, so it did not run; write `await` before the call"
        )

    async def _start(self, number: int, call: "partial[Coroutine[Any, Any, ResultT]]") -> ResultT:
        del self._pending[number]
        return await call()


class HasCalls(Protocol):
    """An object whose methods are steps: a pipeline, or an object attached to one."""

    _calls: Calls


HasCallsT = TypeVar("HasCallsT", bound=HasCalls)


def step(
    method: Callable[Concatenate[HasCallsT, P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[HasCallsT, P], Coroutine[Any, Any, ResultT]]:
    """Make a method a step of a pipeline; a call that is never awaited fails the run at its end."""

    @wraps(method)
    def wrapper(self: HasCallsT, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, ResultT]:
        return self._calls.track(partial(method, self, *args, **kwargs))

    return wrapper


def _render_call(call: partial[Any]) -> str:
    """Return a method call as source text, without keyword arguments."""
    args = [arg.spec.name if isinstance(arg, HasSpec) else getattr(arg, "__qualname__", repr(arg)) for arg in call.args]
    text = f"{call.func.__qualname__}({', '.join(args[1:])})"
    return text if len(text) <= _MAX_CALL_LENGTH else f"{text[: _MAX_CALL_LENGTH - 1]}…"
