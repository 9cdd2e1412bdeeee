"""`context.stream`: what a stage says while it works, for people who watch."""

import threading
from collections.abc import Callable
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from baton.core.streaming import MAX_STREAM_LENGTH, Part, PartKind, Streamed


class StageStream:
    """What a stage says while it works. `baton watch` and `follow` tell it as it comes.

    It is for people: no stage reads it, and nothing depends on it. Until the stage ends it is in heartbeats, which
    leave nothing in the history; then the whole of it is in the stage's answer, once.

    Attributes:
        wanted: Whether anybody asked for it; otherwise nothing is kept.
    """

    def __init__(self, wanted: bool, tell: Callable[[], None]) -> None:
        self.wanted = wanted
        self._tell = tell
        self._parts: list[Part] = []
        self._left = MAX_STREAM_LENGTH
        self._saying = threading.Lock()

    def text(self, text: str) -> None:
        """Say a piece of text, such as a token of a model.

        Args:
            text: The piece; it follows the last one without a break.
        """
        self._say(PartKind.TEXT, text)

    def tool_called(self, tool: str, arguments: Any) -> None:
        """Say that a tool is called, and with what."""
        self._say(PartKind.TOOL_CALLED, _shown(arguments), tool)

    def tool_answered(self, tool: str, answer: Any) -> None:
        """Say what a tool answered."""
        self._say(PartKind.TOOL_ANSWERED, _shown(answer), tool)

    def said(self, attempt: int) -> Streamed:
        """Return what was said so far."""
        return Streamed(attempt, tuple(self._parts))

    def to_json(self) -> list[dict[str, JsonValue]]:
        """Return what was said, as the stage's answer carries it."""
        return [part.to_json() for part in self._parts]

    def _say(self, kind: PartKind, text: str, tool: str = "") -> None:
        if not self.wanted or (kind is PartKind.TEXT and not text):
            return
        with self._saying:  # threads of a stage may speak at the same time
            if len(text) + len(tool) > self._left:
                self._left = 0  # nothing after a gap
                return
            self._left -= len(text) + len(tool)
            last = self._parts[-1] if self._parts else None
            if kind is PartKind.TEXT and last is not None and last.kind is kind:
                self._parts[-1] = Part(kind, last.text + text)
            else:
                self._parts.append(Part(kind, text, tool))
        self._tell()


def _shown(value: Any) -> str:
    """Return a value as a text for people."""
    return value if isinstance(value, str) else to_json(value, fallback=str).decode()
