"""`@stage`: makes a stage of an async function, which tests can still call.

The function takes the baton and returns a patch, or takes a `StageContext` and returns a `StageResult`. A worker runs
it as an activity from `StageInput` to `StageReturn`. The workflow decides whether a patch is accepted; findings are
returned for a malformed patch.
"""

import asyncio
import copy
import functools
import inspect
import logging
import time
import typing
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast, overload

import rfc8785
from pydantic import JsonValue, ValidationError
from pydantic_core import from_json
from temporalio import activity
from temporalio.exceptions import ApplicationError

from baton.codec.failures import bounded, leaf_errors
from baton.codec.secrets import mask_values
from baton.contract.activity_transcript import Keeping
from baton.contract.records import OutputSchemaRef, SessionEvent, UnknownSchemaError
from baton.contract.registry import OutputSchemas, check_distinct_tools, tool_set
from baton.contract.validation import expiry_findings
from baton.core.baton import Baton, BatonPatch
from baton.core.history import TRANSCRIPT, find_spend
from baton.core.lab import LAB, LAB_STAGE
from baton.core.messages import StageInput, StageResult, StageReturn
from baton.core.patching import shorten_findings, undeclared_writes, without_echo
from baton.core.stages import KeepText, OnReport, Retries, StageSpec, field_set, name_set
from baton.core.store_schemas import SchemaGate
from baton.core.turns import Turn
from baton.errors import ConfigurationError, InputError, LabRefusedError, PatchError, PipelineError
from baton.handoff.activity_receive import (
    answer_handoff,
    expired_return,
    record_cancellation,
    record_failure,
    record_return,
    refusal_error,
    require_gate,
)
from baton.handoff.records import ToolCall
from baton.handoff.sealed import UnverifiedHandoff
from baton.pipelines.activity_context import StageContext
from baton.pipelines.activity_lab import enter_lab, lab_report, recorded_result
from baton.pipelines.activity_parts import current_parts
from baton.pipelines.activity_worker import (
    as_failure,
    began,
    heartbeats,
    resend_heartbeat,
    unwrap_group,
)
from baton.report.parsing import parse_report
from baton.report.records import HandoffReport, ReportError
from baton.report.rules import report_patch
from baton.wire.json_values import MAX_MESSAGE_VALUES, find_excess, find_unwritable, repair

_log = logging.getLogger(__name__)

ArgumentT = TypeVar("ArgumentT")
AnswerT = TypeVar("AnswerT")


class AgentTerms(TypedDict, total=False):
    """The terms of a stage that also apply to an agent (`agent_stage`)."""

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
    capability: Iterable[str]
    output: str | None
    task: str | None
    stream: bool
    steer: bool
    transcript: KeepText


class StageTerms(AgentTerms, total=False):
    """The arguments of `@stage`: the fields of `StageSpec`, with any iterable for sets."""

    name: str | None
    tools: Iterable[str]
    agent: bool


class Stage(Generic[ArgumentT, AnswerT]):
    """A stage: tests call it, pipelines refer to it, and workers run it as an activity.

    Attributes:
        spec: The stage's name and terms.
        baton_type: The baton type of the function.
        origin: The qualified name of the function, `module.name`, or of the agent's class.
    """

    __test__ = False  # pytest must not collect a stage that is named `test`

    def __init__(self, function: Callable[[ArgumentT], Awaitable[AnswerT]], spec: StageSpec) -> None:
        self._function = function
        self.origin = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
        self.baton_type, self._takes_context = _parse_parameter(function)
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
                "capability": name_set(spec.capability, "capability"),
            }
        )

        check_distinct_tools(self.spec.tools, "tools")
        self._define(spec.name)
        self.__doc__ = function.__doc__

    def _define(self, name: str) -> None:
        """Make this object an activity of a name."""

        @activity.defn(name=name)
        async def run(message: StageInput) -> StageReturn:
            return await self(message)

        # Temporal reads the activity definition from the attributes of this object.
        functools.update_wrapper(self, run)
        self.__name__ = name

    def in_lab(self) -> "Stage[ArgumentT, AnswerT]":
        """Return the stage under the name that it has in the lab."""
        held_back = copy.copy(self)
        held_back._define(LAB_STAGE + self.spec.name)
        return held_back

    @overload
    async def __call__(self, argument: StageInput) -> StageReturn: ...
    @overload
    async def __call__(self, argument: ArgumentT) -> AnswerT: ...
    async def __call__(self, argument: Any = None) -> Any:
        """Call the function; with a handoff or a `StageInput`, run it as an activity.

        Raises:
            TypeError: There is no argument.
        """
        if argument is None:
            raise TypeError(
                f"{self!r} was called without an argument; pass a baton in a test, the stage itself in a pipeline"
            )
        if isinstance(argument, StageInput) and activity.in_activity() and current_parts().gate is not None:
            # It comes from a worker without keys: the gate rejects it as unsigned.
            argument = UnverifiedHandoff(argument.model_dump_json().encode())
        if isinstance(argument, UnverifiedHandoff):
            return await self._receive(argument)
        if not isinstance(argument, StageInput):
            return await self._function(argument)
        if expired := expiry_findings(argument.contract, current_parts().clock()):
            raise refusal_error(expired_return(argument, expired))
        context = self._context(argument)
        with heartbeats(self.spec.heartbeat, context.resend_heartbeat):
            return await self._work(context)

    def __repr__(self) -> str:
        """Return the stage's name in brackets."""
        return f"<stage {self.spec.name}>"

    async def _receive(self, sealed: UnverifiedHandoff) -> StageReturn:
        """Validate a handoff, and run the function only after its acceptance is recorded."""
        parts = current_parts()
        gate = require_gate(parts.gate)
        beat = resend_heartbeat
        # The ledger may take longer than the heartbeat timeout, and a run considered lost would still continue.
        with heartbeats(self.spec.heartbeat, lambda: beat()):
            receipt, handoff, stage_input = await answer_handoff(gate, parts.metrics, sealed, self.spec, parts.clock)
            try:
                context = self._context(stage_input)
                beat = context.resend_heartbeat  # it carries the cost, also while the ledger records the result
                returned = await self._work(context)
            except Exception as error:
                if await began(error):
                    await record_failure(gate, handoff, stage_input.attempt, bounded(error))
                raise
            except asyncio.CancelledError as error:
                await record_cancellation(gate, handoff, stage_input, find_spend(error.args))
                raise
            # Shielded, so that paid work is recorded even if the run has given up this attempt.
            anchor = await asyncio.shield(record_return(gate, handoff, returned, receipt.anchor))
        return returned.model_copy(update={"anchor": anchor})

    def _context(self, stage_input: StageInput) -> StageContext[Any]:
        """Return the context of one run of the function."""
        # The stage's baton type may have fewer fields than the pipeline's.
        fields = self.baton_type.model_fields
        known = {name: value for name, value in stage_input.baton.items() if name in fields}
        return StageContext.of(self.baton_type.from_json_object(known), stage_input, current_parts(), self.spec)

    async def _work(self, context: StageContext[Any]) -> StageReturn:
        """Run the function and return its result as a record."""
        schema = self.spec.output  # looked up first: a missing schema must not cost an agent's work
        check = None if schema is None else output_check(context.parts.schemas, schema)
        started, parts = time.monotonic(), context.parts
        try:
            result, findings, report = await self._result_anywhere(context)
            if not findings and check is not None:
                findings = await asyncio.to_thread(check, result.output)
            events, journal = await _close_session(context)
        except asyncio.CancelledError as error:
            error.args = (*error.args, *context.cost_details())  # the cost, as in a failure
            raise
        except Exception as error:
            if context.charged:
                context.resend_heartbeat()  # the next run needs the cost of what it returned
            # Decided here, because a retry policy would repeat the names in each run's history.
            never = any(
                isinstance(leaf, InputError) or not self.spec.retries.allows(type(leaf).__name__)
                for leaf in leaf_errors(error)
            )
            details = [*context.cost_details(), *await _transcript_details(context, error, never=never)]
            if (lab := await lab_report(context, parts, time.monotonic() - started)) is not None:
                details.append({LAB: lab.to_json_object()})
            told = [{name: value for detail in details for name, value in detail.items()}] if details else []
            raise as_failure(error, told, never=never)  # noqa: B904 - it has its own cause
        finally:
            await context.settle()
        returned = self._to_return(result, context, findings, started)
        if (lab := await lab_report(context, parts, time.monotonic() - started)) is not None:
            returned = returned.model_copy(update={"lab": lab})
        if report is not None:
            returned = returned.model_copy(update={"report": report.reported})
        if not events and journal is None:
            return returned
        return returned.model_copy(update={"events": [event.to_json_object() for event in events], "journal": journal})

    async def _result_anywhere(self, context: StageContext[Any]) -> tuple[StageResult, list[str], HandoffReport | None]:
        """Call the function, also in the lab; what the lab cannot hold back it answers from the record."""
        given, parts = context.given, context.parts
        if given.lab is None:
            return await self._result(context)
        try:
            await enter_lab(context, given.lab)
            return await self._result(context)
        except LabRefusedError as error:
            recorded = await recorded_result(given, given.lab, parts.artifacts) if error.is_unheld else None
            if recorded is None:
                raise
            return recorded, [], None

    async def _result(self, context: StageContext[Any]) -> tuple[StageResult, list[str], HandoffReport | None]:
        """Call the function; return its result, the findings and its report, and add its cost to the context."""
        argument: Any = context if self._takes_context else context.baton
        try:
            answer: Any = await unwrap_group(self._function(argument))
            context.check_calls()
            if isinstance(answer, StageResult):
                context.charged = context.charged + answer.spend
            result, report = _to_result(answer, self, context.baton)
            findings = _size_findings(result)
            if not findings:
                result = _to_json(result)
                findings = _json_findings(result)
        except (PatchError, ReportError) as error:  # the agent may correct what it answered
            findings = shorten_findings([str(finding) for finding in error.findings])
        except ValidationError as error:
            findings = _not_json_findings(error) if error.title == StageResult.__name__ else []
            if not findings and error.title not in _patch_type_names():
                raise
            findings = findings or _validation_findings(error)
        if findings:
            return StageResult(), findings, None
        if report is not None and not report.status.delivers and context.given.on_report is OnReport.STOP:
            raise ApplicationError(report.stop_reason, type=REPORTED_FAILURE, non_retryable=True)
        return result, [], report

    def _to_return(
        self, result: StageResult, context: StageContext[Any], findings: list[str], started: float
    ) -> StageReturn:
        patch: dict[str, Any] = dict(result.baton_patch)
        artifacts = context.artifacts
        if artifacts.written and "artifacts" not in patch:
            patch["artifacts"] = [ref.model_dump(mode="json", exclude_none=True) for ref in artifacts.refs]
        streamed = context.stream.to_json()  # ends the stream, which is read below
        return StageReturn.for_input(
            context.given,
            baton_patch=patch,
            findings=mask_values([*findings, *undeclared_writes(patch, self.spec.writes), *_handoff_findings(result)]),
            output=result.output,
            spend=context.charged,
            models=dict(context.models),
            tools=dict(context.tool_costs),
            turns=result.turns,
            tool_calls=result.tool_calls,
            tokens_read=context.tokens_read,
            prompt=context.prompt_parts,
            selected=artifacts.selected,
            seconds=round(time.monotonic() - started),
            personal_data=context.sealed_personal_data(),
            warnings=[
                *mask_values(result.warnings),
                *context.personal.warnings([patch, result.output, [*result.turns], _recorded_texts(context)]),
            ],
            streamed=streamed,
            steered=context.notes.shown,
        )


async def _close_session(context: StageContext[Any]) -> tuple[list[SessionEvent], str | None]:
    """Return the events of a stage's session, and the transcript's digest, if there is one."""
    if "session" not in vars(context):
        return [], None
    spec, parts = context.spec, context.parts
    is_sealed = spec.transcript == "sealed" or bool(spec.personal_data)
    is_off = spec.transcript == "off" or (is_sealed and parts.vault is None)
    keeping = Keeping(None if is_off else parts.transcripts, context.personal.seal_text if is_sealed else None)
    return await context.session.close(parts.artifacts, keeping)


_MAX_KEEPING = 10.0  # seconds that a failure waits until its transcript is stored


async def _transcript_details(context: StageContext[Any], error: Exception, *, never: bool) -> list[dict[str, str]]:
    """Store the transcript of an agent that failed for good, and return its digest as details of the failure."""
    tried = activity.info().attempt if activity.in_activity() else 1
    is_last = never or getattr(error, "non_retryable", False) or tried == context.spec.retries.attempts
    if not (context.spec.agent and is_last):  # the history keeps the last failure only
        return []
    try:
        async with asyncio.timeout(_MAX_KEEPING):
            _, transcript = await _close_session(context)
    except Exception as unkept:  # the stage's own failure matters more
        _log.warning("the transcript of stage %r, which failed, could not be stored: %s", context.spec.name, unkept)
        return []
    return [{TRANSCRIPT: transcript}] if transcript else []


def _recorded_texts(context: StageContext[Any]) -> list[JsonValue]:
    """Return the texts of a stage's session and stream, which are stored beside its result."""
    session = context.session.texts if "session" in vars(context) else []
    return [*session, *(part.text for part in context.stream.snapshot(context.attempt).parts)]


@overload
def stage(function: Callable[[ArgumentT], Awaitable[AnswerT]], /) -> Stage[ArgumentT, AnswerT]: ...
@overload
def stage(
    **terms: Unpack[StageTerms],
) -> Callable[[Callable[[ArgumentT], Awaitable[AnswerT]]], Stage[ArgumentT, AnswerT]]: ...
def stage(function: Any = None, /, **terms: Any) -> Any:
    """Make a stage of an async function.

    The function is `(Baton) -> BatonPatch` or `(StageContext) -> StageResult`, annotated with the pipeline's baton
    type. Temporal retries exceptions by `retries`; a patch that breaks a rule leads to another attempt with the
    findings.

    Args:
        function: The function, if the decorator is used without arguments.
        **terms: The fields of `StageSpec`: `name` (default: the function's name), `reads`, `writes`,
            `decisions`, `timeout`, `heartbeat`, `retries`, `attempts`, `version`, `requires`,
            `reserve_micro_usd`, `closing`, `personal_data`, `window`, `whole`, `tools`, `forbids`, `capability`,
            `output`, `task`, `stream`, `steer`, `agent`, `transcript`.

    Returns:
        The stage, or a decorator.

    Raises:
        TypeError: The function is not async, its one parameter is not annotated as a baton or context, or a term
            has the wrong type.
        ValueError: `reads` or `writes` name a field that the baton does not have, or a term is too small.

    Example:
        >>> import asyncio
        >>> @stage(writes=["current_state", "decision_log"])
        ... async def plan(baton: Baton) -> BatonPatch:
        ...     return BatonPatch(current_state=[f"Plan for: {baton.goal}"])
        >>> asyncio.run(plan(Baton(goal="Add login"))).current_state
        ['Plan for: Add login']
    """
    if function is None:
        return functools.partial(_make_stage, terms=terms)
    return _make_stage(function, terms)


def _make_stage(function: Any, terms: dict[str, Any]) -> Stage[Any, Any]:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"@stage needs an async function; found {function!r} (write `async def`)")
    nullable = ("decisions", "heartbeat")
    terms = {key: value for key, value in terms.items() if value is not None or key in nullable}
    terms["name"] = terms.get("name") or function.__name__
    return Stage(function, StageSpec(**terms))


def _parse_parameter(function: Any) -> tuple[type[Baton], bool]:
    """Return the baton's type, and whether the function takes a context."""
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


def _to_result(answer: Any, stage: Stage[Any, Any], baton: Baton) -> tuple[StageResult, HandoffReport | None]:
    """Return a function's answer as a result, and its report, if any, which becomes the patch and the output."""
    result = answer if isinstance(answer, StageResult) else None
    report = answer if isinstance(answer, HandoffReport) else None
    if result is not None and result.report is not None:
        report = parse_report(result.report).report
    if report is not None:
        result = result or StageResult()
        output = report.to_json_object() if result.output is None else result.output
        patch = report_patch(report, baton, fields=_patched_fields(stage.spec))
        result = result.model_copy(
            update={
                "baton_patch": patch if result.report is None else without_echo(baton.decision_log, patch),
                "output": output,
                "report": None,
            }
        )
        return result, report
    return result or StageResult(baton_patch=_to_patch(answer, stage)), None


def _patched_fields(spec: StageSpec) -> frozenset[str] | None:
    """Return the fields that the stage both sees and writes; None for all."""
    if spec.reads is None or spec.writes is None:
        return spec.writes if spec.reads is None else spec.reads
    return spec.reads & spec.writes


REPORTED_FAILURE = "ReportedFailure"
"""The type of the failure of a stage whose report is failed or blocked."""


PATCH = "baton_patch"
"""The only member of the envelope that a stage may return, as agents answer in (S1 L51)."""


def _to_patch(answer: Any, stage: Stage[Any, Any]) -> BatonPatch | dict[str, JsonValue]:
    if answer is None:
        return {}
    if isinstance(answer, dict) and answer.keys() == {PATCH} and isinstance(answer[PATCH], BatonPatch | dict):
        return cast("BatonPatch | dict[str, JsonValue]", answer[PATCH])
    if isinstance(answer, BatonPatch | dict):
        return answer
    raise TypeError(
        f"{stage!r} returned {type(answer).__name__}; a stage returns a BatonPatch, a dict, a StageResult, a "
        "HandoffReport or None"
    )


def _to_json(result: StageResult) -> StageResult:
    """Return a result with its patch as JSON, and with repaired characters in turns and tool calls."""
    patch = result.baton_patch
    return result.model_copy(
        update={
            "baton_patch": patch.to_json_object() if isinstance(patch, BatonPatch) else patch,
            "turns": repair(result.turns),
            "tool_calls": repair(result.tool_calls),
        }
    )


def _size_findings(result: StageResult) -> list[str]:
    """Return a finding for each part of a result that has too many values."""
    limits = [find_excess({"output": result.output}, MAX_MESSAGE_VALUES)]
    limits += [find_excess({"turns": result.turns}), find_excess({"tool_calls": result.tool_calls})]
    if not isinstance(result.baton_patch, BatonPatch):
        limits.append(find_excess(result.baton_patch))
    return shorten_findings([str(limit) for limit in limits if limit is not None])


def _json_findings(result: StageResult) -> list[str]:
    """Return a finding for each value that JSON cannot represent exactly."""
    parts: dict[str, Any] = {
        "": result.baton_patch,
        "output": result.output,
        "turns": result.turns,
        "tool_calls": result.tool_calls,
    }
    return shorten_findings([text for at, part in parts.items() if part for text in find_unwritable(part, at)])


def _patch_type_names(kind: type[BatonPatch] = BatonPatch) -> set[str]:
    """Return the names of all patch types, which are the titles of pydantic's errors."""
    return {kind.__name__}.union(*(_patch_type_names(derived) for derived in kind.__subclasses__()))


def _handoff_findings(result: StageResult) -> list[str]:
    """Return the findings about turns and tool calls."""
    findings: list[str] = []
    for name, kind, items in (("turns", Turn, result.turns), ("tool_calls", ToolCall, result.tool_calls)):
        for index, item in enumerate(items):
            try:
                kind.from_json_object(item)
            except ValidationError as error:
                findings += [f"{name}.{index}: {finding}" for finding in _validation_findings(error)]
    return shorten_findings(findings)


def _not_json_findings(error: ValidationError) -> list[str]:
    """Return a finding for each value that is not JSON, such as a time or NaN; none if there is another fault."""
    findings = []
    for fault in error.errors(include_url=False, include_context=False):
        root, *path = fault["loc"]
        if path and path[0] == BatonPatch.__name__:  # the other member of the union
            continue
        is_key = path[-1:] == ["[key]"]
        if fault["type"] not in ("invalid-json-value", "finite_number") and not is_key:
            return []
        # After each name, pydantic's path has the type of its container.
        keys = path[1::2] if root in ("baton_patch", "output") else [*path[:2], *path[3::2]]
        kind = type(fault["input"]).__name__
        value = f"{fault['input']}" if fault["type"] == "finite_number" else f"a Python {kind}"
        rule = "a name in JSON is a text" if is_key else "JSON has texts, numbers, true, false, null, lists and objects"
        findings.append(f"{'.'.join(map(str, (root, *keys)))} is {value}; {rule}")
    return shorten_findings(findings)


def _validation_findings(error: ValidationError) -> list[str]:
    is_patch = error.title in _patch_type_names()
    findings = []
    for fault in error.errors(include_url=False, include_context=False):
        why = f"{fault['msg']} (found {type(fault['input']).__name__})"
        if is_patch and fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
            why = f"{error.title} has no such member; return a derived patch type that has it, or a dict"
        findings.append(f"{'.'.join(map(str, fault['loc']))}: {why}")
    return shorten_findings(findings)


def output_check(schemas: OutputSchemas | None, schema_name: str) -> Callable[[JsonValue], list[str]]:
    """Return a check that lists the faults of an output, for the agent that corrects them."""
    if schemas is None:
        raise ConfigurationError(
            f"the stage's output must fit {schema_name!r}, but this worker has no output schemas; start it with "
            "BatonPlugin(WorkerParts(schemas=…))"
        )
    try:
        gate = _compile_gate(rfc8785.dumps(schemas.find(OutputSchemaRef.parse(schema_name))))
    except UnknownSchemaError as error:
        raise ConfigurationError(
            f"the stage's output must fit {schema_name!r}, which this worker does not have: {error}"
        ) from error
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise PipelineError(f"the output schema {schema_name!r} is not JSON Schema 2020-12: {reason}") from None
    return lambda output: [f"output does not fit {schema_name}: {finding.text}" for finding in gate(output)]


@functools.lru_cache(maxsize=64)
def _compile_gate(schema: bytes) -> SchemaGate:
    """Compile a schema, given as canonical JSON."""
    return SchemaGate(from_json(schema))
