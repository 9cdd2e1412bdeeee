"""The session log of a stage: what it did and heard, as typed events from which later contracts are compiled.

Facts cross to later agents only from here, with where they came from and when. What is of a kind that never crosses,
and what is long, stays out of the history: the event then names it by its hash, and one journal of the stage in the
artifact store holds the texts (S5-prob-i, S5-contract-c).
"""

import hashlib
import json
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from baton.artifacts.activity import put_when_possible
from baton.artifacts.store import ArtifactStore
from baton.contract.session import EventType, SessionEvent
from baton.handoff.store_gate import now_utc
from baton.wire.json_values import Json, well_formed
from baton.wire.tokens import TokenEstimator, estimate_tokens

LONGEST_CLAIM = 1_000
"""How many characters of an event go into the history; of a longer one the journal has the text."""

_KEPT_BACK = {EventType.BRAINSTORM, EventType.INTERNAL_NOTE, EventType.REJECTED_ASSUMPTION, EventType.TOOL_CALL}


class SessionLog:
    """Records what happens in one run of a stage.

    Every method takes `exclude=True` for what must not cross to any other agent.

    Args:
        stage: The stage's name.
        prefix: Makes the ids of its events unique in the pipeline: `<prefix>.<n>`.
        handoff_id: The handoff under which the stage acts; every event names it.
        counter: Counts the tokens of whole texts, for the comparison with handing on everything.
        clock: Tells the time.

    Attributes:
        events: What was recorded, in order, each with its whole text.

    Example:
        >>> log = SessionLog("research", "1.1", "h-1")
        >>> call = log.tool_call("crm.lookup", {"customer": "c-1"})
        >>> _ = log.tool_result("crm.lookup", "The customer is an enterprise customer.", call_id=call)
        >>> _ = log.brainstorm("What if we skip the check?")
        >>> [(event.id, event.type.value) for event in log.events]
        [('1.1.1', 'tool_call'), ('1.1.2', 'tool_result'), ('1.1.3', 'brainstorm')]
    """

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
        """Record that a tool is called, and return the call's id for its result.

        Args:
            name: The tool.
            arguments: What it is called with; the journal has it, contracts do not.
            exclude: Keep it from every other agent.
        """
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
        """Record what a tool returned.

        Args:
            name: The tool.
            claim: What is known from it, in a sentence; this is what becomes a fact.
            call_id: What `tool_call` returned.
            success: Whether the tool did its work; otherwise nothing becomes a fact.
            retrieved_at: When the data was retrieved, if not now; a cached answer is as old as its data.
            content: The whole answer, where the claim is not all of it; it goes into the journal.
            max_age_minutes: After how long it is stale, instead of the contract policy's age.
            exclude: Keep it from every other agent.
        """
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
        """Record a decision; only an accepted one crosses (C-40)."""
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
        text, whole = well_formed(text), None if whole is None else well_formed(whole)
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
        """Return the events as the history keeps them, and the hash of the journal with the texts kept out of it.

        Args:
            store: Where the journal is put; None where the worker has no artifact store, and then only the hashes
                of the texts remain.
        """
        kept: list[SessionEvent] = []
        journal: dict[str, str] = {}
        for event in self.events:
            text = self._whole.get(event.id, event.content)
            back = event.type in _KEPT_BACK or event.exclude_from_handoff
            if text and (back or len(event.content) > LONGEST_CLAIM or event.id in self._whole):
                journal[event.id] = text
                shown = "" if back else cut(event.content)
                ref = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
                event = event.model_copy(update={"content": shown, "ref": ref})
            kept.append(event)
        if not journal or store is None:
            return kept, None
        data = json.dumps({"stage": self._stage, "handoffId": self._handoff_id, "texts": journal}, ensure_ascii=False)
        return kept, await put_when_possible(store, data.encode())


def cut(text: str, longest: int = LONGEST_CLAIM) -> str:
    """Return a claim that is short enough, and says so where it was cut.

    Example:
        >>> cut("It costs 1000 USD.", 13)
        'It costs 10 …'
    """
    return text if len(text) <= longest else f"{text[: longest - 2]} …"
