"""The session log of a stage, and the toolbox that enforces its contract."""

import asyncio
import functools
import inspect
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from baton.artifacts.activity import put_when_possible
from baton.artifacts.store import ArtifactStore
from baton.contract.activity_lab import LabAnswers
from baton.contract.activity_transcript import Keeping, TranscriptLog, keep_transcript
from baton.contract.draft import EXCLUDED_TYPES
from baton.contract.prohibitions import find_prohibitions
from baton.contract.records import (
    MAX_CLAIM_LENGTH,
    TOOL_DENIED,
    EventType,
    SessionEvent,
    ToolDeniedError,
    shorten_claim,
)
from baton.contract.registry import tool_key, tool_keys
from baton.core.messages import ToolLimits
from baton.core.stages import Calls, step
from baton.core.transcript import KeptEvent, KeptTranscript
from baton.telemetry.verdicts import current_stage, current_tool
from baton.wire.json_values import Json, canonical_json, format_digest, repair, repair_text, sha256
from baton.wire.records import format_instant
from baton.wire.store_clock import now_utc
from baton.wire.text import TokenEstimator, estimate_tokens

if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryTool

MAX_EQUAL_FAILURES = 5
"""After so many failures in a row of calls with the same tool and arguments, the next one is denied."""

_PRIVATE_TYPES = EXCLUDED_TYPES | {EventType.TOOL_CALL}


_KEPT = Keeping()

_acting: ContextVar[str | None] = ContextVar("baton_acting_agent", default=None)


class SessionLog:
    """Records the events of one run of a stage.

    Attributes:
        is_agent: Whether an agent does the stage. What its model says is then an output or talk, and never a fact.
        mask: Takes secrets out of what is stored.
        transcript: Records what its agents are asked and answer.
    """

    def __init__(
        self,
        stage: str,
        prefix: str,
        handoff_id: str,
        counter: TokenEstimator = estimate_tokens,
        clock: Callable[[], datetime] = now_utc,
        mask: Callable[[Any], Any] = lambda value: value,
        *,
        is_agent: bool = False,
    ) -> None:
        """Set up the log; ``mask`` takes secrets out of texts and arguments, which are stored for good."""
        self.mask = mask
        self._stage = stage
        self._prefix = prefix
        self._handoff_id = handoff_id
        self._counter = counter
        self._clock = clock
        self._full_texts: dict[str, str] = {}
        self._lock = threading.Lock()  # synchronous tools run in threads, possibly several at once
        self.is_agent = is_agent
        self.events: list[SessionEvent] = []
        self.transcript = TranscriptLog(mask, clock)

    @contextmanager
    def acting_as(self, agent: str | None) -> Iterator[None]:
        """Record what happens in the `with` block as done by another agent in the stage; None changes nothing."""
        token = _acting.set(agent or _acting.get())
        try:
            yield
        finally:
            _acting.reset(token)

    def tool_call(
        self, name: str, arguments: Json = None, *, called_at: datetime | None = None, exclude: bool = False
    ) -> str:
        """Record a tool call and return its id; handoffs name the digest of its arguments, as canonical JSON."""
        text = "" if arguments is None else _canonical_text(arguments, self.mask)
        return self._add(EventType.TOOL_CALL, text, exclude, timestamp=called_at, tool_name=name).id

    def tool_result(
        self,
        name: str,
        claim: str,
        *,
        call_id: str | None = None,
        success: bool = True,
        retrieved_at: datetime | None = None,
        content: str | None = None,
        max_age_minutes: int | None = None,
        by_model: bool = False,
        exclude: bool = False,
    ) -> SessionEvent:
        """Record the result of a tool; ``by_model`` if a model wrote it."""
        timestamp = retrieved_at or self._clock()
        return self._record(
            EventType.TOOL_RESULT,
            claim,
            exclude,
            full_text=content,
            timestamp=timestamp,
            tool_name=name,
            call_id=call_id,
            success=success,
            max_age_minutes=max_age_minutes,
            by_model=by_model,
        )

    def model_response(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record a model's response: a claim of medium confidence, unless it is an agent's."""
        kind = EventType.ASSISTANT_MESSAGE if self.is_agent else EventType.LLM_RESPONSE
        return self._record(kind, text, exclude)

    def user_message(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record a person's message; its sentences that forbid something become constraints of later contracts."""
        text = self.mask(repair_text(text))
        found = [] if exclude else find_prohibitions(text)
        return self._record(EventType.USER_MESSAGE, text, exclude, prohibitions=found or None)

    def assistant_message(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record what an agent said, to a person or beside its work; it never crosses."""
        return self._record(EventType.ASSISTANT_MESSAGE, text, exclude)

    def answer(self, text: str) -> SessionEvent:
        """Record that an agent answered, without the text: the history has it as the output of the stage."""
        return self._add(EventType.ASSISTANT_MESSAGE, "", False, tokens=self._counter(text))

    def decision(
        self,
        text: str,
        *,
        accepted: bool = True,
        rests_on: Iterable[str | SessionEvent] = (),
        exclude: bool = False,
    ) -> SessionEvent:
        """Record a decision; only accepted ones cross, and only while what they rest on is fresh.

        Args:
            text: What was decided.
            accepted: Whether it was accepted.
            rests_on: Its sources in this run of the stage: events, or tools by name for their last results.
            exclude: Whether to keep it from every other agent.

        Raises:
            ValueError: A tool has no result in this run of the stage.
        """
        if isinstance(rests_on, str):
            raise TypeError(f"rests_on is {rests_on!r}; give a list, such as [{rests_on!r}]")
        sources = [source.id if isinstance(source, SessionEvent) else self._last_result(source) for source in rests_on]
        return self._record(EventType.DECISION, text, exclude, accepted=accepted, rests_on=sources or None)

    def _last_result(self, tool: str) -> str:
        """Return the id of a tool's last result."""
        with self._lock:
            results = {tool_key(event.tool_name or ""): event for event in self.events if event.success is not None}
        if (event := results.get(tool_key(tool))) is None:
            names = ", ".join(repr(result.tool_name) for result in results.values()) or "none"
            raise ValueError(f"the tool {tool!r} has no result in this run of the stage; results have: {names}")
        return event.id

    def brainstorm(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record a loose idea; it never crosses."""
        return self._record(EventType.BRAINSTORM, text, exclude)

    def internal_note(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record a note of the agent to itself; it never crosses."""
        return self._record(EventType.INTERNAL_NOTE, text, exclude)

    def rejected_assumption(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record a rejected assumption; it never crosses."""
        return self._record(EventType.REJECTED_ASSUMPTION, text, exclude)

    def _record(
        self, event_type: EventType, text: str, exclude: bool, *, full_text: str | None = None, **members: Any
    ) -> SessionEvent:
        """Record an event without secrets in its texts."""
        return self._add(event_type, self.mask(text), exclude, full_text=self.mask(full_text), **members)

    def _add(
        self, event_type: EventType, text: str, exclude: bool, *, full_text: str | None = None, **members: Any
    ) -> SessionEvent:
        """Add an event; lone surrogates from tools and models are replaced."""
        text, full_text = repair_text(text), None if full_text is None else repair_text(full_text)
        tokens = members.pop("tokens", None) or self._counter(text if full_text is None else full_text)
        with self._lock:
            event = SessionEvent(
                id=f"{self._prefix}.{len(self.events) + 1}",
                type=event_type,
                timestamp=format_instant(members.pop("timestamp", None) or self._clock()),
                content=text,
                tokens=tokens,
                exclude_from_handoff=exclude,
                agent=_acting.get() or self._stage,
                handoff_id=self._handoff_id,
                **{name: value for name, value in members.items() if value is not None},
            )
            if full_text is not None and full_text != text:
                self._full_texts[event.id] = full_text
            self.events.append(event)
        return event

    @property
    def texts(self) -> list[str]:
        """All texts that were recorded so far."""
        return [*(event.content for event in self.events), *self._full_texts.values()]

    async def close(
        self, store: ArtifactStore | None, keeping: Keeping = _KEPT
    ) -> tuple[list[SessionEvent], str | None]:
        """Return the events for the history, and the digest of the transcript, with the texts that the events lack."""
        events: list[SessionEvent] = []
        kept: list[KeptEvent] = []
        left_out = False
        claims: list[bytes] = []
        for event in self.events:
            text = self._full_texts.get(event.id, event.content)
            is_private = event.type in _PRIVATE_TYPES or event.exclude_from_handoff
            is_long = not is_private and len(event.content) > MAX_CLAIM_LENGTH
            if text and (is_private or is_long or event.id in self._full_texts):
                content = "" if is_private else shorten_claim(event.content)
                update: dict[str, Any] = {"content": content, "ref": _digest(text)}
                if is_long and store is not None:
                    update["whole"] = _digest(event.content)
                    claims.append(event.content.encode())
                if text != event.content or not is_long:
                    left_out = True
                event = event.model_copy(update=update)
            events.append(event)
            kept.append(_keep(event, text))
        if store is None:
            return events, None
        await asyncio.gather(*(put_when_possible(store, claim) for claim in claims))
        transcript = None if keeping.time is None else self.transcript.record(kept, is_needed=left_out)
        if transcript is None or keeping.time is None:
            return events, None
        if keeping.seal is None and (span := current_stage.get()) is not None:
            span.record_content(transcript)
        until = self._clock() + keeping.time
        whole = KeptTranscript(stage=self._stage, handoff_id=self._handoff_id, until=until)
        return events, await keep_transcript(store, whole, transcript, keeping)


def _keep(event: SessionEvent, text: str) -> KeptEvent:
    """Return an event with its whole text, for the transcript."""
    return KeptEvent(
        id=event.id,
        type=event.type.value,
        at=str(event.timestamp or ""),
        agent=event.agent or "",
        tool=event.tool_name or "",
        call_id=event.call_id or "",
        success=event.success,
        text=text,
    )


def _digest(text: str) -> str:
    return format_digest(sha256(text.encode()))


def _canonical_text(arguments: Any, mask: Callable[[Any], Any]) -> str:
    """Return arguments as canonical JSON; they are masked before, so that the JSON stays readable."""
    if isinstance(arguments, Mapping):  # an iterator can be read only once
        arguments = {name: repr(value) if isinstance(value, Iterator) else value for name, value in arguments.items()}
    try:
        plain = to_jsonable_python(arguments, fallback=repr, bytes_mode="base64")
    except ValueError:  # an object that contains itself, or a lone surrogate in a name
        plain = repr(arguments)
    masked = repair(mask(plain))
    try:
        return canonical_json(masked).decode()
    except ValueError:  # a number that only Python can write
        return json.dumps(masked, ensure_ascii=False, sort_keys=True)


def _name_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    if not args:
        return dict(kwargs)
    try:
        return {**inspect.signature(function).bind_partial(*args).arguments, **kwargs}
    except (TypeError, ValueError):  # no signature, or arguments that do not fit
        return {"args": list(args), **kwargs}


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToolAnswer:
    """A tool's result with a claim and other metadata; the caller gets only the result.

    Attributes:
        claim: The sentence that becomes a fact.
        retrieved_at: When the data was retrieved, if not now; a cached answer is as old as its data.
        success: Whether the tool succeeded; if not, its claim does not become a fact.
        by_model: Whether a model wrote it; its fact is then of medium confidence.
    """

    result: Any
    claim: str
    retrieved_at: datetime | None = None
    success: bool = True
    max_age_minutes: int | None = None
    by_model: bool = False


Denials = Callable[[str, str, int], Awaitable[None]]
"""Records a denied call: the tool, the handoff, and the call's number in this run."""


async def _ignore_denial(tool: str, handoff_id: str, number: int) -> None:
    """Without a ledger, only the log has the denial."""


_calling: ContextVar[str] = ContextVar("baton_calling", default="")


def calling_tool() -> str:
    """Return the tool whose function runs now, the innermost one; empty outside of tools."""
    return _calling.get()


class Toolbox:
    """Lets a stage call only the tools that its contract allows."""

    def __init__(
        self,
        allowed: frozenset[str] | None,
        session: SessionLog,
        handoff_id: str,
        denials: Denials = _ignore_denial,
        *,
        forbidden: frozenset[str] = frozenset(),
        limits: ToolLimits | None = None,
        lab: LabAnswers | None = None,
    ) -> None:
        self._lab = lab
        if lab is not None and lab.tools is not None:  # a candidate that has fewer tools
            allowed = frozenset(tool for tool in lab.tools if allowed is None or tool_key(tool) in tool_keys(allowed))
        self._forbidden = tool_keys(forbidden)
        self._limits = limits or ToolLimits(child="")
        self._inherited = {tool_key(tool): pipeline for tool, pipeline in self._limits.forbidden.items()}
        self._grants = {pipeline: tool_keys(tools) for pipeline, tools in self._limits.granted.items()}
        if allowed is None and self._grants:
            allowed = frozenset(tool for tools in self._limits.granted.values() for tool in tools)
        self._allowed = None if allowed is None else frozenset(filter(self._permits, allowed))
        self._allowed_keys = None if self._allowed is None else tool_keys(self._allowed)
        self._session = session
        self._handoff_id = handoff_id
        self._denials = denials
        self._denied: list[tuple[str, str]] = []  # tool and handoff
        self._recorded_count = 0
        self._calls = Calls("the stage", shows_arguments=False)
        self._running: dict[str, tuple[str, str]] = {}  # tool and arguments, by the id of the call
        self._spans: dict[str, OpenTelemetryTool] = {}  # likewise, where the stage is traced
        self._failures: dict[tuple[str, str], int] = {}  # since the last success of an equal call
        self._lock = threading.Lock()  # synchronous tools run in threads

    @property
    def names(self) -> frozenset[str] | None:
        """The allowed tools; None allows every tool."""
        return self._allowed

    @property
    def running(self) -> list[str]:
        """The tools whose calls have not ended, the oldest call first."""
        with self._lock:
            return [tool for tool, _ in self._running.values()]

    def allows(self, name: str) -> bool:
        """Return whether a tool may be called. Nothing is recorded."""
        return self._permits(name) and (self._allowed_keys is None or tool_key(name) in self._allowed_keys)

    def check(self, name: str) -> None:
        """Raise `ToolDeniedError` if a tool may not be called; for tools that a framework calls itself."""
        if not self.allows(name):
            self._deny(name, self._handoff_id)
            raise ToolDeniedError(name, self._handoff_id, allowed=self._allowed or (), why=self._inherited_reason(name))

    def _permits(self, name: str) -> bool:
        """Return whether nobody forbids a tool, here or in a pipeline above."""
        return tool_key(name) not in self._forbidden and not self._inherited_reason(name)

    def _inherited_reason(self, name: str) -> str:
        """Return why a pipeline above does not let this one call a tool, or an empty text."""
        key, child = tool_key(name), self._limits.child
        if (pipeline := self._inherited.get(key)) is not None:
            return f"the pipeline {pipeline!r} forbids it, also to its child {child!r}"
        for pipeline, granted in self._grants.items():
            if key not in granted:
                return f"the pipeline {pipeline!r} does not grant it to its child {child!r}"
        return ""

    def check_calls(self) -> None:
        """Raise an error if a tool was called and never awaited."""
        self._calls.check()

    @step
    async def call(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a tool if it is allowed, and record the call and its result."""
        try:
            result = self.guard(function, name)(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        finally:
            await self.settle()

    def guard(
        self, function: Callable[..., Any], name: str | None = None, *, repeatable: bool = False
    ) -> Callable[..., Any]:
        """Return a function whose every call is checked and recorded, for a framework that calls tools itself."""
        tool = name or function.__name__
        if self._lab is not None:
            function = self._lab.answering(tool, function, partial(self._describe, function), repeatable=repeatable)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def guarded(*args: Any, **kwargs: Any) -> Any:
                call_id = self._record_call(tool, _name_arguments(function, args, kwargs))
                return await self._record_awaited(tool, call_id, function(*args, **kwargs))

            return guarded

        @functools.wraps(function)
        def guarded_sync(*args: Any, **kwargs: Any) -> Any:
            call_id = self._record_call(tool, _name_arguments(function, args, kwargs))
            try:
                with self._inside(tool, call_id):
                    result = function(*args, **kwargs)
            except (StopIteration, SystemExit) as error:
                raise self._record_failure(tool, call_id, error) from error
            except Exception as error:
                self._record_failure(tool, call_id, error)
                raise
            if inspect.isawaitable(result):  # such as `lambda: client.get(…)`
                return self._record_awaited(tool, call_id, result)
            return self._record_result(tool, call_id, result)

        return guarded_sync

    def _describe(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> tuple[str, str]:
        """Return the digest of a call's arguments as the session records it, and the arguments as JSON."""
        text = _canonical_text(_name_arguments(function, args, kwargs), self._session.mask)
        return _digest(text), text

    @step
    async def deny(self, name: str, handoff_id: str) -> None:
        """Record a call that was denied before it reached the stage, as in workflow code."""
        self._deny(name, handoff_id)
        await self.settle()

    async def settle(self) -> None:
        """Write pending denials to the ledger; a synchronous function cannot await it."""
        while self._recorded_count < len(self._denied):
            denied, self._recorded_count = self._denied[self._recorded_count], self._recorded_count + 1
            await self._denials(*denied, self._recorded_count)

    def _deny(self, tool: str, handoff_id: str) -> None:
        self._denied.append((tool, handoff_id))
        _log.warning("%s: %r was called under handoff %s and did not run", TOOL_DENIED, tool, handoff_id)
        self._session.tool_result(tool, TOOL_DENIED, success=False)

    def _record_call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Record a call, or deny it."""
        self.check(tool)
        call = tool, _digest(_canonical_text(arguments, lambda value: value))
        with self._lock:
            failures = self._failures.get(call, 0)
        if failures >= MAX_EQUAL_FAILURES:
            self._deny(tool, self._handoff_id)
            why = f"its last {failures} calls with the same arguments failed"
            raise ToolDeniedError(tool, self._handoff_id, allowed=self._allowed or (), why=why)
        call_id = self._session.tool_call(tool, arguments)
        with self._lock:
            self._running[call_id] = call
            if (stage := current_stage.get()) is not None:
                self._spans[call_id] = stage.tool(tool, call_id)
        return call_id

    @contextmanager
    def _inside(self, tool: str, call_id: str) -> Iterator[None]:
        """Be in a tool's function, and in its span, for the block."""
        calling, span = _calling.set(tool), self._spans.get(call_id)
        token = current_tool.set(span)
        try:
            with nullcontext() if span is None else span.active():
                yield
        finally:
            current_tool.reset(token)
            _calling.reset(calling)

    def _end_call(self, call_id: str, *, success: bool, error: str = "_OTHER") -> None:
        """Note that a call has ended, and count equal failures."""
        with self._lock:
            if (span := self._spans.pop(call_id, None)) is not None:
                span.end("" if success else error)
            call = self._running.pop(call_id, None)
            if call is None:
                return
            if success:
                self._failures.pop(call, None)
            else:
                self._failures[call] = self._failures.get(call, 0) + 1

    async def _record_awaited(self, tool: str, call_id: str, result: Awaitable[Any]) -> Any:
        """Await a call, record its result or error, and return the result."""
        try:
            with self._inside(tool, call_id):
                value = await result
        except SystemExit as error:
            raise self._record_failure(tool, call_id, error) from error
        except Exception as error:
            self._record_failure(tool, call_id, error)
            raise
        return self._record_result(tool, call_id, value)

    def _record_result(self, tool: str, call_id: str, result: Any) -> Any:
        """Record the result of a call, and return it."""
        self._end_call(call_id, success=result.success if isinstance(result, ToolAnswer) else True)
        if isinstance(result, ToolAnswer):
            self._session.tool_result(
                tool,
                result.claim,
                call_id=call_id,
                success=result.success,
                retrieved_at=result.retrieved_at,
                content=result.result if isinstance(result.result, str) else repr(result.result),
                max_age_minutes=result.max_age_minutes,
                by_model=result.by_model,
            )
            return result.result
        text = result if isinstance(result, str) else repr(result)
        self._session.tool_result(tool, text, call_id=call_id)
        return result

    def _record_failure(self, tool: str, call_id: str, error: BaseException) -> RuntimeError:
        """Record the error of a call, and return an error to raise instead if it would end more than the call."""
        self._end_call(call_id, success=False, error=type(error).__name__)
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self._session.tool_result(tool, message, call_id=call_id, success=False)
        return RuntimeError(f"tool {tool!r} raised {message}")
