"""`@stage`: a plain async function becomes a stage, and stays a function that a test can call.

The function takes the baton and returns a patch, or takes a `StageContext` and returns a `StageResult`.
A worker runs it as an activity that takes a `StageInput` and answers with a `StageReturn`. Whether the
patch is accepted, the workflow decides; a patch that is not even a patch comes back as findings.
"""

import asyncio
import functools
import inspect
import time
import typing
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

from pydantic import JsonValue, ValidationError
from temporalio import activity

from baton.contract.registry import tool_set
from baton.contract.store import output_check
from baton.contract.validation import expiry_findings
from baton.core.baton import Baton, BatonPatch
from baton.core.history import find_spend
from baton.core.messages import StageInput, StageResult, StageReturn
from baton.core.patching import shorten_findings, undeclared_writes
from baton.core.stages import Retries, StageSpec, field_set, name_set
from baton.errors import InputError, PatchError
from baton.handoff.activity_receive import (
    answer_handoff,
    expired_return,
    record_cancellation,
    record_failure,
    record_return,
    refusal_error,
    refused_return,
    require_gate,
)
from baton.handoff.records import ToolCall, Turn
from baton.handoff.sealed import UnverifiedHandoff
from baton.pipelines.activity_context import StageContext, current_parts
from baton.pipelines.activity_worker import (
    as_failure,
    heartbeats,
    leaf_errors,
    missing_part,
    resend_heartbeat,
    unwrap_group,
)
from baton.report.parsing import parse_report
from baton.report.records import HandoffReport, ReportError
from baton.report.rules import report_patch
from baton.wire.json_values import MAX_MESSAGE_VALUES, find_excess, find_unwritable, repair

GivenT = TypeVar("GivenT")
AnswerT = TypeVar("AnswerT")


class AgentTerms(TypedDict, total=False):
    """The terms of a stage that its author sets, also for an agent (`agent_stage`)."""

    reads: Iterable[str] | None
    writes: Iterable[str] | None
    decisions: int | None
    timeout: timedelta
    heartbeat: timedelta | None
    retries: Retries
    attempts: int
    version: str
    requires: Iterable[str]
    reserve_micro_usd: int
    closing: bool
    personal_data: Iterable[str]
    window: int
    whole: Iterable[str]
    forbids: Iterable[str]
    output: str | None
    task: str | None
    stream: bool


class StageTerms(AgentTerms, total=False):
    """What `@stage` takes: the fields of `StageSpec`, sets as any kind of names."""

    name: str | None
    tools: Iterable[str]


class Stage(Generic[GivenT, AnswerT]):
    """A stage: call it in a test, name it in a pipeline, give it to a worker as an activity.

    Attributes:
        spec: The stage's name and terms.
        baton_type: The type of baton the function takes.
        origin: Where its function is defined, `module.name`.
    """

    __test__ = False  # a stage called `test` is not a test for pytest to collect

    def __init__(self, function: Callable[[GivenT], Awaitable[AnswerT]], spec: StageSpec) -> None:
        self._function = function
        self.origin = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
        self.baton_type, self._takes_context = _parameter_of(function)
        self.spec = StageSpec(
            **{
                **spec.__dict__,
                "reads": field_set(spec.reads, self.baton_type, "reads"),
                "writes": field_set(spec.writes, self.baton_type, "writes"),
                "requires": name_set(spec.requires, "requires"),
                "personal_data": name_set(spec.personal_data, "personal_data"),
                "whole": name_set(spec.whole, "whole"),
                "tools": tool_set(spec.tools, "tools"),
                "forbids": tool_set(spec.forbids, "forbids", spec.tools),
            }
        )

        @activity.defn(name=spec.name)
        async def run(given: StageInput) -> StageReturn:
            return await self(given)

        # Temporal reads the definition from the attributes of what the worker is given: this object.
        functools.update_wrapper(self, run)
        self.__doc__ = function.__doc__
        self.__name__ = spec.name

    @overload
    async def __call__(self, given: StageInput) -> StageReturn: ...
    @overload
    async def __call__(self, given: GivenT) -> AnswerT: ...
    async def __call__(self, given: Any = None) -> Any:
        """Run the function as it is; what a worker sends, a handoff or a `StageInput`, runs it as an activity.

        Raises:
            TypeError: Nothing was given.
        """
        if given is None:
            raise TypeError(f"{self!r} was called with nothing; a test gives it a baton, a pipeline names it uncalled")
        if isinstance(given, StageInput) and activity.in_activity() and current_parts().gate is not None:
            # From a worker without keys: it is led through the gate, which refuses it, as anything unsealed.
            given = UnverifiedHandoff(given.model_dump_json().encode())
        if isinstance(given, UnverifiedHandoff):
            return await self._receive(given)
        if isinstance(given, StageInput) and (expired := expiry_findings(given.contract, current_parts().clock())):
            raise refusal_error(expired_return(given, expired))
        return await (self._run(self._context(given)) if isinstance(given, StageInput) else self._function(given))

    def __repr__(self) -> str:
        """Return the stage as people name it."""
        return f"<stage {self.spec.name}>"

    async def _receive(self, sealed: UnverifiedHandoff) -> StageReturn:
        """Answer a handoff, and run the function only once its acceptance is on record."""
        parts = current_parts()
        gate = require_gate(parts.gate)
        beat = resend_heartbeat
        # The ledger may keep us waiting longer than a heartbeat: a run that counted as lost meanwhile would continue.
        with heartbeats(self.spec.heartbeat, lambda: beat()):
            receipt, given, message = await answer_handoff(gate, parts.metrics, sealed, self.spec, parts.clock)
            if given is None:
                raise refusal_error(refused_return(receipt, self.spec, message))
            try:
                context = self._context(given)
                beat = context.resend_heartbeat  # it carries the cost, also while the ledger records the result
                returned = await self._work(context)
            except Exception as error:
                if missing_part(error) is None or find_spend(getattr(error, "details", ())):  # else it did not begin
                    await record_failure(gate, message, error)
                raise
            except asyncio.CancelledError as error:
                await record_cancellation(gate, message, given, find_spend(error.args))
                raise
            # Shielded: what was paid for is recorded also where the run has given this attempt up meanwhile.
            anchor = await asyncio.shield(record_return(gate, message, returned, receipt.anchor))
        return returned.model_copy(update={"anchor": anchor})

    def _context(self, given: StageInput) -> StageContext[Any]:
        """Return the context of one run of the function."""
        # A stage may be written for plainer batons than the pipeline's; it sees the fields it knows.
        fields = self.baton_type.model_fields
        known = {name: value for name, value in given.baton.items() if name in fields}
        return StageContext.of(self.baton_type.from_json_object(known), given, current_parts(), self.spec)

    async def _run(self, context: StageContext[Any]) -> StageReturn:
        """Do the stage's work, with heartbeats."""
        with heartbeats(self.spec.heartbeat, context.resend_heartbeat):
            return await self._work(context)

    async def _work(self, context: StageContext[Any]) -> StageReturn:
        """Run the function for a worker, and turn its answer into a record."""
        named = self.spec.output  # its schema is looked up before an agent works, and is paid, for nothing
        check = None if named is None else output_check(context.parts.schemas, named)
        began = time.monotonic()
        try:
            result, findings = await self._result(context)
            if not findings and check is not None:
                findings = await asyncio.to_thread(check, result.output)
            events, journal = await context.close_session()
        except asyncio.CancelledError as error:
            error.args = (*error.args, *context.cost_details())  # it takes along the bill, as a failure does
            raise
        except Exception as error:
            if context.charged:
                context.resend_heartbeat()  # what it returned may have had a bill, which the next run needs
            # Said here and not in the retry policy, which would repeat the names in each run's history.
            never = any(
                isinstance(one, InputError) or not self.spec.retries.allows(type(one).__name__)
                for one in leaf_errors(error)
            )
            raise as_failure(error, context.cost_details(), never=never)  # noqa: B904 - it has the cause it is to have
        finally:
            await context.settle()
        returned = self._answer(result, context, findings, began)
        if not events:
            return returned
        return returned.model_copy(update={"events": [one.to_json_object() for one in events], "journal": journal})

    async def _result(self, context: StageContext[Any]) -> tuple[StageResult, list[str]]:
        """Return what the function answered, its bill on the context's, and what is wrong with it."""
        argument: Any = context if self._takes_context else context.baton
        try:
            answer: Any = await unwrap_group(self._function(argument))
            context.check_calls()
            if isinstance(answer, StageResult):
                context.charged = context.charged + answer.spend
            result = _as_result(answer, self, context.baton)
            findings = _excesses(result)
            if not findings:
                result = _written(result)
                findings = _unwritable(result)
        except (PatchError, ReportError) as error:  # the agent may correct what it answered
            findings = shorten_findings([str(one) for one in error.findings])
        except ValidationError as error:
            findings = _not_json(error) if error.title == StageResult.__name__ else []
            if not findings and error.title not in _patch_names():
                raise
            findings = findings or _findings(error)
        return (StageResult(), findings) if findings else (result, [])

    def _answer(
        self, result: StageResult, context: StageContext[Any], findings: list[str], began: float
    ) -> StageReturn:
        """Return the record of what the function answered, having begun at a time of the monotonic clock."""
        raw: dict[str, Any] = dict(result.baton_patch)
        artifacts = context.artifacts
        if artifacts.written and "artifacts" not in raw:
            raw["artifacts"] = [ref.model_dump(mode="json", exclude_none=True) for ref in artifacts.refs]
        return StageReturn.for_input(
            context.given,
            baton_patch=raw,
            findings=[*findings, *undeclared_writes(raw, self.spec.writes), *_ill_formed(result)],
            output=result.output,
            spend=context.charged,
            models=dict(context.models),
            turns=result.turns,
            tool_calls=result.tool_calls,
            tokens_read=context.tokens_read,
            prompt=context.prompt_parts,
            selected=artifacts.selected,
            seconds=round(time.monotonic() - began),
            personal_data=context.sealed_personal_data(),
            streamed=context.stream.to_json(),
        )


@overload
def stage(function: Callable[[GivenT], Awaitable[AnswerT]], /) -> Stage[GivenT, AnswerT]: ...
@overload
def stage(
    **terms: Unpack[StageTerms],
) -> Callable[[Callable[[GivenT], Awaitable[AnswerT]]], Stage[GivenT, AnswerT]]: ...
def stage(function: Any = None, /, **terms: Any) -> Any:
    """Make a stage of an async function.

    The function is `(Baton) -> BatonPatch` or `(StageContext) -> StageResult`; of a derived baton, annotate
    the derived type. What it raises, Temporal retries by `retries`; a patch that breaks a rule leads to
    another attempt with the reasons.

    Args:
        function: The function, when the decorator is used without arguments.
        **terms: The fields of `StageSpec`: `name` (default: the function's name), `reads`, `writes`,
            `decisions`, `timeout`, `heartbeat`, `retries`, `attempts`, `version`, `requires`,
            `reserve_micro_usd`, `closing`, `personal_data`, `window`, `whole`, `tools`, `forbids`, `output`, `task`,
            `stream`.

    Returns:
        The stage, or a decorator that makes one.

    Raises:
        TypeError: The function is not async, its one parameter is not annotated as a baton or context, or a term
            is of another type.
        ValueError: `reads` or `writes` name a field the baton does not have, or a term is too small.

    Example:
        >>> import asyncio
        >>> @stage(writes=["current_state", "decision_log"])
        ... async def plan(baton: Baton) -> BatonPatch:
        ...     return BatonPatch(current_state=[f"Plan for: {baton.goal}"])
        >>> asyncio.run(plan(Baton(goal="Add login"))).current_state
        ['Plan for: Add login']
    """
    if function is None:
        return functools.partial(_make, terms=terms)
    return _make(function, terms)


def _make(function: Any, terms: dict[str, Any]) -> Stage[Any, Any]:
    """Return the stage of a function and its terms."""
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"@stage needs an async function; {function!r} is none (write `async def`)")
    given = {key: value for key, value in terms.items() if value is not None or key in ("decisions", "heartbeat")}
    given["name"] = given.get("name") or function.__name__
    return Stage(function, StageSpec(**given))


def _parameter_of(function: Any) -> tuple[type[Baton], bool]:
    """Return the baton's type, and whether the function takes a context around it."""
    hints = typing.get_type_hints(function)
    parameters = list(inspect.signature(function).parameters)
    hint = hints.get(parameters[0]) if len(parameters) == 1 else None
    origin = typing.get_origin(hint) or hint
    if origin is StageContext:
        inner = typing.get_args(hint) or (Baton,)
        if isinstance(inner[0], type) and issubclass(inner[0], Baton):
            return inner[0], True
    if isinstance(origin, type) and issubclass(origin, Baton):
        return origin, False
    raise TypeError(
        f"stage {function.__name__!r} must take exactly one parameter, annotated as Baton (or a class derived "
        f"from it) or StageContext; found ({', '.join(parameters)}) annotated {hint!r}"
    )


def _as_result(answer: Any, stage: Stage[Any, Any], baton: Baton) -> StageResult:
    """Return what a function answered as a result; a report becomes its patch, and itself the output."""
    result = answer if isinstance(answer, StageResult) else None
    report = answer if isinstance(answer, HandoffReport) else None
    if result is not None and result.report is not None:
        report = parse_report(result.report).report
    if report is not None:
        result = result or StageResult()
        output = report.to_json_object() if result.output is None else result.output
        return result.model_copy(
            update={
                "baton_patch": report_patch(report, baton, shown=stage.spec.reads),
                "output": output,
                "report": None,
            }
        )
    return result or StageResult(baton_patch=_as_patch(answer, stage))


def _as_patch(answer: Any, stage: Stage[Any, Any]) -> BatonPatch | dict[str, JsonValue]:
    """Return a bare answer as a patch; None is the empty one."""
    if answer is None:
        return {}
    if isinstance(answer, BatonPatch):
        return answer
    if isinstance(answer, dict):
        return answer
    raise TypeError(
        f"{stage!r} returned {type(answer).__name__}; a stage returns a BatonPatch, a dict, a StageResult, a "
        "HandoffReport or None"
    )


def _written(result: StageResult) -> StageResult:
    """Return an answer with its patch as JSON, and with whole characters in what was heard: it cannot be said again."""
    patch = result.baton_patch
    return result.model_copy(
        update={
            "baton_patch": patch.to_json_object() if isinstance(patch, BatonPatch) else patch,
            "turns": repair(result.turns),
            "tool_calls": repair(result.tool_calls),
        }
    )


def _excesses(result: StageResult) -> list[str]:
    """Return which parts of an answer hold more values than a workflow reads; the agent may send less."""
    found = [find_excess({"output": result.output}, MAX_MESSAGE_VALUES)]
    found += [find_excess({"turns": result.turns}), find_excess({"tool_calls": result.tool_calls})]
    if not isinstance(result.baton_patch, BatonPatch):
        found.append(find_excess(result.baton_patch))
    return shorten_findings([str(one) for one in found if one is not None])


def _unwritable(result: StageResult) -> list[str]:
    """Return what of a written answer JSON cannot carry exactly, with a ledger or without; the agent may correct it."""
    parts: dict[str, Any] = {
        "": result.baton_patch,
        "output": result.output,
        "turns": result.turns,
        "tool_calls": result.tool_calls,
    }
    return shorten_findings([one for at, part in parts.items() if part for one in find_unwritable(part, at)])


def _patch_names(kind: type[BatonPatch] = BatonPatch) -> set[str]:
    """Return the names of every type of patch, by which pydantic titles its errors."""
    return {kind.__name__}.union(*(_patch_names(derived) for derived in kind.__subclasses__()))


def _ill_formed(result: StageResult) -> list[str]:
    """Return what is wrong with the turns and tool calls that a stage wants to hand on."""
    found: list[str] = []
    for name, kind, items in (("turns", Turn, result.turns), ("tool_calls", ToolCall, result.tool_calls)):
        for place, item in enumerate(items):
            try:
                kind.from_json_object(item)
            except ValidationError as error:
                found += [f"{name}.{place}: {one}" for one in _findings(error)]
    return shorten_findings(found)


def _not_json(error: ValidationError) -> list[str]:
    """Return what in a result is not JSON, such as a time or NaN; nothing where something else is wrong with it."""
    found = []
    for fault in error.errors(include_url=False, include_context=False):
        root, *path = fault["loc"]
        if path and path[0] == BatonPatch.__name__:  # the other thing that a patch may be; a dict is what it is
            continue
        is_key = path[-1:] == ["[key]"]
        if fault["type"] not in ("invalid-json-value", "finite_number") and not is_key:
            return []
        # Beside each name pydantic tells the kind of value that it is in.
        keys = path[1::2] if root in ("baton_patch", "output") else [*path[:2], *path[3::2]]
        kind = type(fault["input"]).__name__
        what = f"{fault['input']}" if fault["type"] == "finite_number" else f"a Python {kind}"
        rule = "a name in JSON is a text" if is_key else "JSON has texts, numbers, true, false, null, lists and objects"
        found.append(f"{'.'.join(map(str, (root, *keys)))} is {what}; {rule}")
    return shorten_findings(found)


def _findings(error: ValidationError) -> list[str]:
    """Return what is wrong with a patch that could not even be made."""
    is_patch = error.title in _patch_names()
    found = []
    for fault in error.errors(include_url=False, include_context=False):
        why = f"{fault['msg']} (found {type(fault['input']).__name__})"
        if is_patch and fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
            why = f"{error.title} has no such member; return a patch type derived from it that has, or a dict"
        found.append(f"{'.'.join(map(str, fault['loc']))}: {why}")
    return shorten_findings(found)
