"""The session of a stage, and the toolbox that lets it call the tools of its contract and no others."""

import asyncio
import functools
import inspect
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from baton.artifacts.activity import put_when_possible
from baton.artifacts.store import ArtifactStore
from baton.contract.records import TOOL_DENIED, EventType, SessionEvent, ToolDeniedError
from baton.contract.registry import tool_key, tool_keys
from baton.core.stages import Calls, step
from baton.handoff.store_gate import now_utc
from baton.wire.json_values import Json, format_digest, repair_text, sha256
from baton.wire.text import TokenEstimator, estimate_tokens

LONGEST_CLAIM = 1_000
"""How many characters of a claim go into the history; a longer one is an artifact, which its fact names."""

_KEPT_BACK = {EventType.BRAINSTORM, EventType.INTERNAL_NOTE, EventType.REJECTED_ASSUMPTION, EventType.TOOL_CALL}


class SessionLog:
    """Records what happens in one run of a stage."""

    def __init__(
        self,
        stage: str,
        prefix: str,
        handoff_id: str,
        counter: TokenEstimator = estimate_tokens,
        clock: Callable[[], datetime] = now_utc,
    ) -> None:
        self._stage = stage
        self._prefix = prefix
        self._handoff_id = handoff_id
        self._counter = counter
        self._clock = clock
        self._whole: dict[str, str] = {}
        self._lock = threading.Lock()  # tools that are not async run in threads, several at once
        self.events: list[SessionEvent] = []

    def tool_call(self, name: str, arguments: Json = None, *, exclude: bool = False) -> str:
        """Record that a tool is called, and return the call's id for its result."""
        text = "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
        return self._add(EventType.TOOL_CALL, text, exclude, tool_name=name).id

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
        exclude: bool = False,
    ) -> SessionEvent:
        """Record what a tool returned."""
        at = retrieved_at or self._clock()
        return self._add(
            EventType.TOOL_RESULT,
            claim,
            exclude,
            whole=content,
            timestamp=at,
            tool_name=name,
            call_id=call_id,
            success=success,
            max_age_minutes=max_age_minutes,
        )

    def model_response(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record what a model answered."""
        return self._add(EventType.LLM_RESPONSE, text, exclude)

    def user_message(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record what a person said."""
        return self._add(EventType.USER_MESSAGE, text, exclude)

    def assistant_message(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record what the agent said to a person."""
        return self._add(EventType.ASSISTANT_MESSAGE, text, exclude)

    def decision(self, text: str, *, accepted: bool = True, exclude: bool = False) -> SessionEvent:
        """Record a decision; only an accepted one crosses."""
        return self._add(EventType.DECISION, text, exclude, accepted=accepted)

    def brainstorm(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record an idea that is not meant; it never crosses."""
        return self._add(EventType.BRAINSTORM, text, exclude)

    def internal_note(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record a note to oneself; it never crosses."""
        return self._add(EventType.INTERNAL_NOTE, text, exclude)

    def rejected_assumption(self, text: str, *, exclude: bool = False) -> SessionEvent:
        """Record what was assumed and turned out wrong; it never crosses."""
        return self._add(EventType.REJECTED_ASSUMPTION, text, exclude)

    def _add(
        self, kind: EventType, text: str, exclude: bool, *, whole: str | None = None, **members: Any
    ) -> SessionEvent:
        """Record an event; halves of characters, which tools and models do return, become whole ones."""
        text, whole = repair_text(text), None if whole is None else repair_text(whole)
        tokens = self._counter(text if whole is None else whole)
        with self._lock:
            event = SessionEvent(
                id=f"{self._prefix}.{len(self.events) + 1}",
                type=kind,
                timestamp=(members.pop("timestamp", None) or self._clock()).isoformat().replace("+00:00", "Z"),
                content=text,
                tokens=tokens,
                exclude_from_handoff=exclude,
                agent=self._stage,
                handoff_id=self._handoff_id,
                **{name: value for name, value in members.items() if value is not None},
            )
            if whole is not None and whole != text:
                self._whole[event.id] = whole
            self.events.append(event)
        return event

    async def close(self, store: ArtifactStore | None) -> tuple[list[SessionEvent], str | None]:
        """Return the events as the history keeps them, and the hash of the journal with the texts kept out of it."""
        kept: list[SessionEvent] = []
        journal: dict[str, str] = {}
        claims: list[bytes] = []
        for event in self.events:
            text = self._whole.get(event.id, event.content)
            back = event.type in _KEPT_BACK or event.exclude_from_handoff
            long = not back and len(event.content) > LONGEST_CLAIM
            if text and (back or long or event.id in self._whole):
                update: dict[str, Any] = {"content": "" if back else cut(event.content), "ref": _digest(text)}
                if long and store is not None:
                    update["whole"] = _digest(event.content)
                    claims.append(event.content.encode())
                if text != event.content or not long:
                    journal[event.id] = text
                event = event.model_copy(update=update)
            kept.append(event)
        if store is None:
            return kept, None
        await asyncio.gather(*(put_when_possible(store, claim) for claim in claims))
        if not journal:
            return kept, None
        data = json.dumps({"stage": self._stage, "handoffId": self._handoff_id, "texts": journal}, ensure_ascii=False)
        return kept, await put_when_possible(store, data.encode())


def _digest(text: str) -> str:
    """Return the digest of a text, as events name it."""
    return format_digest(sha256(text.encode()))


def cut(text: str, longest: int = LONGEST_CLAIM) -> str:
    """Return a claim that is short enough, and says how long it is where it was cut."""
    if len(text) <= longest:
        return text
    shown = longest - 40  # for the words below
    return f"{text[:shown]} … ({shown:,} of {len(text):,} characters)"


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


Denials = Callable[[str, str, int], Awaitable[None]]
"""Puts a denied call on record: the tool, the handoff under which it was called, and its number in this run."""


async def _unrecorded(tool: str, handoff_id: str, number: int) -> None:
    """Leave a denial to the log alone, without a ledger."""


class Toolbox:
    """Lets a stage call the tools that its contract allows, and no others."""

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
        self._calls = Calls("the stage", shows_arguments=False)

    @property
    def names(self) -> frozenset[str] | None:
        """The tools that may be called; None if every tool may."""
        return self._allowed

    def allows(self, name: str) -> bool:
        """Return whether a tool may be called; asking is not a call and leaves no trace."""
        key = tool_key(name)
        return key not in self._forbidden and (self._allowed is None or key in tool_keys(self._allowed))

    def check(self, name: str) -> None:
        """Deny a call about to be made, unless the tool may be called; for tools that a framework calls itself."""
        if not self.allows(name):
            self._deny(name, self._handoff_id)
            raise ToolDeniedError(name, self._handoff_id, allowed=self._allowed or ())

    def check_calls(self) -> None:
        """Raise an error if a tool was called and never awaited."""
        self._calls.check()

    @step
    async def call(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a tool, if it is allowed, and record the call and what came of it."""
        try:
            result = self.guard(function, name)(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        finally:
            await self.settle()

    def guard(self, function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
        """Return a function that is checked and recorded at every call, for a framework that calls tools itself."""
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

    @step
    async def deny(self, name: str, handoff_id: str) -> None:
        """Put a call on record that was denied before it reached a stage, as in workflow code."""
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
        """Record a call, unless it is denied."""
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
        self._session.tool_result(tool, text, call_id=call_id)
        return result

    def _failed(self, tool: str, call_id: str, error: BaseException) -> RuntimeError:
        """Record that a call raised, and return what to raise instead where that would not end the call alone."""
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self._session.tool_result(tool, told, call_id=call_id, success=False)
        return RuntimeError(f"tool {tool!r} raised {told}")
