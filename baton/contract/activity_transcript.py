"""Records what the agents of a stage are asked and answer, for the transcript."""

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from baton.artifacts.activity import put_when_possible
from baton.artifacts.store import ArtifactStore
from baton.core.history import Spend
from baton.core.transcript import KeptEvent, KeptTranscript, Message, ModelRequest, SealedText, Transcript
from baton.wire.json_values import repair_text

Asked = Iterable[tuple[str, str]]
"""Messages to a model: role and text."""


KEPT_FOR = timedelta(days=30)
"""How long transcripts are kept by default."""


MAX_CHARACTERS = 20_000_000
"""The most characters of an attempt that are kept; a worker and any reader hold them in memory."""


@dataclass(frozen=True)
class Keeping:
    """How long the texts of a stage's agents are kept, and how they are sealed.

    Attributes:
        time: How long; None keeps none.
        seal: Seals a text; None keeps it readable.
    """

    time: timedelta | None = KEPT_FOR
    seal: Callable[[str], Awaitable[SealedText]] | None = None


@dataclass
class OpenRequest:
    """A request to a model whose answer is awaited."""

    record: ModelRequest
    began: float = field(default_factory=time.monotonic)


class TranscriptLog:
    """Records the requests to models in one attempt of a stage, from any thread."""

    def __init__(self, mask: Callable[[Any], Any], clock: Callable[[], datetime]) -> None:
        self._mask = mask
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, str], int] = {}  # each message once, however often it is sent
        self._messages: list[Message] = []
        self._left = MAX_CHARACTERS
        self._requests: list[OpenRequest] = []
        self._given: list[int] = []
        self._answer = ""

    def give(self, asked: Asked) -> None:
        """Note what an agent was given, for one whose requests are not seen."""
        self._given = self._note(asked)

    def ask(self, agent: str, asked: Asked) -> OpenRequest:
        """Note a request to a model."""
        request = OpenRequest(ModelRequest(agent=agent, at=self._clock(), asked=self._note(asked)))
        self._requests.append(request)
        return request

    def end(self, request: OpenRequest, model: str, spend: Spend, said: str = "") -> None:
        """Note the answer to a request."""
        took = round((time.monotonic() - request.began) * 1_000)
        update = {"milliseconds": took, "model": model, "spend": spend, "said": self._clean(said)}
        request.record = request.record.model_copy(update=update)

    def answered(self, text: str) -> None:
        """Note an answer as the agent gave it; the last one counts."""
        self._answer = self._clean(text)

    def record(self, events: Sequence[KeptEvent], *, is_needed: bool) -> Transcript | None:
        """Return the transcript; None if it is not needed and no agent was asked anything."""
        used = {index for request in self._requests for index in request.record.asked} or {*self._given}
        if not (used or self._answer or is_needed):
            return None
        kept = sorted(used)
        numbers = {index: number for number, index in enumerate(kept)}
        requests = [
            request.record.model_copy(update={"asked": [numbers[index] for index in request.record.asked]})
            for request in self._requests
        ]
        messages = [self._messages[index] for index in kept]
        whole = [event.model_copy(update={"text": self._cut(event.text)}) for event in events]
        return Transcript(messages=messages, requests=requests, answer=self._answer, events=whole)

    def _note(self, asked: Asked) -> list[int]:
        """Note messages, and return their numbers; a request repeats those before it, which are cleaned once."""
        with self._lock:
            return [self._number(role, text) for role, text in asked if text]

    def _number(self, role: str, text: str) -> int:
        number = self._numbers.setdefault((role, text), len(self._messages))
        if number == len(self._messages):
            self._messages.append(Message(role=role, text=self._clean(text)))
        return number

    def _clean(self, text: str) -> str:
        return self._cut(self._mask(repair_text(text)))

    def _cut(self, text: str) -> str:
        """Return a text without what an attempt says beyond `MAX_CHARACTERS`."""
        kept = text[: self._left]
        self._left -= len(kept)
        return kept if kept == text else f"{kept}… ({len(text) - len(kept):,} characters were not kept)"


async def keep_transcript(store: ArtifactStore, kept: KeptTranscript, transcript: Transcript, keeping: Keeping) -> str:
    """Store a transcript, sealed if the stage says so, and return its digest."""
    if keeping.seal is None:
        kept = kept.model_copy(update={"transcript": transcript})
    else:
        kept = kept.model_copy(update={"sealed": await keeping.seal(transcript.model_dump_json())})
    return await put_when_possible(store, kept.model_dump_json().encode())
