"""What a stage says while it works: pieces of text, and calls of tools, in one list of parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic import JsonValue

STREAMED = "baton.streamed"
"""Member of a heartbeat's details: what its stage has said so far."""
MAX_STREAM_LENGTH = 200_000
"""The most characters of a stage's stream that are kept; what it says after that is not streamed."""
MAX_HEARTBEAT_LENGTH = 32_000
"""The most characters in a heartbeat: the newest. Who missed more reads on once the stage has ended."""


class PartKind(StrEnum):
    """What a part of a stream is."""

    TEXT = "text"
    TOOL_CALLED = "tool_called"
    TOOL_ANSWERED = "tool_answered"


@dataclass(frozen=True)
class Part:
    """A part of a stream: a text, which may continue, or a call of a tool or its answer, which are whole.

    Attributes:
        kind: What it is.
        text: The text, the arguments as JSON, or the answer.
        tool: The tool's name.
    """

    kind: PartKind
    text: str
    tool: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the part as JSON."""
        return {self.kind.value: self.text, **({"tool": self.tool} if self.tool else {})}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self | None:
        """Return the part that some JSON is, or None."""
        kind = next((kind for kind in PartKind if isinstance(given.get(kind), str)), None)
        return None if kind is None else cls(kind, given[kind], str(given.get("tool", "")))


@dataclass(frozen=True)
class Streamed:
    """A stream as far as it is known.

    A place in it is a number: each part takes one for its beginning, and one for each character.

    Attributes:
        attempt: Which run of the activity said it; another run begins again.
        parts: Its parts.
        since: The place at which they begin.
        is_cut: Whether the first of them lacks its beginning.

    Example:
        >>> said = Streamed(1, [Part(PartKind.TEXT, "Hello"), Part(PartKind.TOOL_CALLED, "{}", "search")])
        >>> [(part.text, place) for part, place in said.after(0)]
        [('Hello', 6), ('{}', 9)]
        >>> [(part.text, place) for part, place in said.after(4)]
        [('lo', 6), ('{}', 9)]
    """

    attempt: int
    parts: Sequence[Part]
    since: int = 0
    is_cut: bool = False

    def after(self, place: int) -> Iterator[tuple[Part, int]]:
        """Yield what comes after a place, with the place behind each piece; nothing if what comes next is missing."""
        if place < self.since:
            return
        end = self.since
        for number, part in enumerate(self.parts):
            text_begins = end + (0 if self.is_cut and number == 0 else 1)
            end = text_begins + len(part.text)
            if place < end:
                yield Part(part.kind, part.text[max(0, place - text_begins) :], part.tool), end

    def newest(self, most: int = MAX_HEARTBEAT_LENGTH) -> "Streamed":
        """Return the end of it, so many characters at most."""
        gone = max(0, sum(len(part.text) for part in self.parts) - most)
        parts, since, is_cut = [*self.parts], self.since, self.is_cut
        while gone:
            first = parts.pop(0)
            begins = 0 if is_cut else 1
            cut = gone if first.kind is PartKind.TEXT and gone < len(first.text) else len(first.text)
            since, is_cut, gone = since + begins + cut, cut < len(first.text), max(0, gone - cut)
            if is_cut:
                parts.insert(0, Part(first.kind, first.text[cut:]))
        return Streamed(self.attempt, parts, since, is_cut)

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as the detail of a heartbeat."""
        parts: list[JsonValue] = [part.to_json() for part in self.parts]
        return {STREAMED: {"attempt": self.attempt, "since": self.since, "cut": self.is_cut, "parts": parts}}

    @classmethod
    def from_json(cls, given: Any) -> Self | None:
        """Return what the detail of a heartbeat says, or None where it is another one."""
        told = given.get(STREAMED) if isinstance(given, dict) else None
        if not isinstance(told, dict):
            return None
        return cls(int(told["attempt"]), decode_parts(told["parts"]), int(told["since"]), bool(told["cut"]))


def decode_parts(given: Sequence[Any]) -> list[Part]:
    """Return the parts that some JSON is."""
    read = (Part.from_json(one) if isinstance(one, dict) else None for one in given)
    return [part for part in read if part is not None]
