"""The stream of a stage: its text and tool calls while it works, as one list of parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic import JsonValue

STREAMED = "baton.streamed"
"""The member of heartbeat details that holds the stream so far."""
MAX_STREAM_LENGTH = 200_000
"""The most characters of a stage's stream; later parts are dropped."""
MAX_HEARTBEAT_LENGTH = 32_000
"""The most characters in a heartbeat, the newest. A reader that missed more gets the rest when the stage ends."""


class PartKind(StrEnum):
    """The kind of a part."""

    TEXT = "text"
    TOOL_CALLED = "tool_called"
    TOOL_ANSWERED = "tool_answered"


@dataclass(frozen=True)
class Part:
    """A part of a stream: text, which later text may continue, or a tool's call with its arguments, or its result."""

    kind: PartKind
    text: str
    tool: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the part as JSON."""
        return {self.kind.value: self.text, **({"tool": self.tool} if self.tool else {})}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self | None:
        """Return the part, or None if the JSON is not one."""
        kind = next((kind for kind in PartKind if isinstance(members.get(kind), str)), None)
        return None if kind is None else cls(kind, members[kind], str(members.get("tool", "")))


@dataclass(frozen=True)
class Streamed:
    """The known part of a stream.

    An offset counts one for the beginning of each part and one for each character.

    Attributes:
        attempt: The attempt of the activity; another attempt starts a new stream.
        parts: The parts.
        since: The offset at which the parts begin.
        is_cut: Whether the first part lacks its beginning.

    Example:
        >>> stream = Streamed(1, [Part(PartKind.TEXT, "Hello"), Part(PartKind.TOOL_CALLED, "{}", "search")])
        >>> [(part.text, offset) for part, offset in stream.after(0)]
        [('Hello', 6), ('{}', 9)]
        >>> [(part.text, offset) for part, offset in stream.after(4)]
        [('lo', 6), ('{}', 9)]
    """

    attempt: int
    parts: Sequence[Part]
    since: int = 0
    is_cut: bool = False

    def after(self, offset: int) -> Iterator[tuple[Part, int]]:
        """Yield the parts after an offset, each with its end offset; nothing if the next part is missing."""
        if offset < self.since:
            return
        end = self.since
        for number, part in enumerate(self.parts):
            start = end + (0 if self.is_cut and number == 0 else 1)
            end = start + len(part.text)
            if offset < end:
                yield Part(part.kind, part.text[max(0, offset - start) :], part.tool), end

    def newest(self, limit: int = MAX_HEARTBEAT_LENGTH) -> "Streamed":
        """Return the last ``limit`` characters; tool calls and results are dropped whole."""
        surplus = max(0, sum(len(part.text) for part in self.parts) - limit)
        parts, since, is_cut = [*self.parts], self.since, self.is_cut
        while surplus:
            first = parts.pop(0)
            beginning = 0 if is_cut else 1
            cut = surplus if first.kind is PartKind.TEXT and surplus < len(first.text) else len(first.text)
            since, is_cut, surplus = since + beginning + cut, cut < len(first.text), max(0, surplus - cut)
            if is_cut:
                parts.insert(0, Part(first.kind, first.text[cut:]))
        return Streamed(self.attempt, parts, since, is_cut)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the stream as a heartbeat detail."""
        parts: list[JsonValue] = [part.to_json() for part in self.parts]
        return {STREAMED: {"attempt": self.attempt, "since": self.since, "cut": self.is_cut, "parts": parts}}

    @classmethod
    def from_json(cls, detail: Any) -> Self | None:
        """Return the stream in a heartbeat detail, or None if it holds none."""
        members = detail.get(STREAMED) if isinstance(detail, dict) else None
        if not isinstance(members, dict):
            return None
        parts = decode_parts(members["parts"])
        return cls(int(members["attempt"]), parts, int(members["since"]), bool(members["cut"]))


def decode_parts(values: Sequence[Any]) -> list[Part]:
    """Return the parts in a JSON list; other values are skipped."""
    parts = (Part.from_json(value) for value in values if isinstance(value, dict))
    return [part for part in parts if part is not None]
