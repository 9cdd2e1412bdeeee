"""`context.stream`: the output of a running stage, for people who watch."""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json, to_jsonable_python
from temporalio import activity

from baton.codec.secrets import mask_secrets, mask_values, settled_length
from baton.core.history import SPENT
from baton.core.streaming import MAX_STREAM_LENGTH, STREAMED, Part, PartKind, Streamed

_MAX_HELD = 8_000  # characters without an end of a word


class StageStream:
    """The output of a running stage, shown live by `baton watch` and `follow`.

    It is for people; no stage reads it. While the stage runs, heartbeats carry it, which leave nothing in the history;
    at the end the stage's result has all of it, once. A text is masked before it is added and never changes afterwards,
    so its last word waits for its end.
    """

    def __init__(self, wanted: bool, notify: Callable[[], None]) -> None:
        self.wanted = wanted
        self._notify = notify
        self._parts: list[Part] = []
        self._remaining = MAX_STREAM_LENGTH
        self._lock = threading.Lock()
        self._hidden: _HiddenBlock | _HiddenObject | None = None
        self._unfinished = ""

    def hide_block(self, opening: str) -> None:
        """Keep a block between a line `opening` and a line of three backticks out of the texts that follow."""
        self._hidden = _HiddenBlock(opening)

    def hide_object(self) -> None:
        """Keep a JSON object that begins a line, and what follows it, out of the texts that follow."""
        self._hidden = _HiddenObject()

    def text(self, text: str) -> None:
        """Add text, such as a token of a model.

        Args:
            text: The text, which continues the previous one without a break.
        """
        self._add(PartKind.TEXT, text)

    def tool_called(self, tool: str, arguments: Any) -> None:
        """Add a tool call with its arguments."""
        self._add_value(PartKind.TOOL_CALLED, arguments, tool)

    def tool_answered(self, tool: str, answer: Any) -> None:
        """Add the result of a tool call."""
        self._add_value(PartKind.TOOL_ANSWERED, answer, tool)

    def snapshot(self, attempt: int) -> Streamed:
        """Return the stream so far."""
        return Streamed(attempt, tuple(self._parts))

    def to_json(self) -> list[dict[str, JsonValue]]:
        """End the text, and return the parts as the stage's result holds them."""
        self._add(PartKind.TEXT, "", ends=True)
        return [part.to_json() for part in self._parts]

    def _add_value(self, kind: PartKind, value: Any, tool: str) -> None:
        """Add arguments or a result, without the secrets in it."""
        if self.wanted:
            masked = mask_values(to_jsonable_python(value, fallback=str))
            self._add(kind, masked if isinstance(masked, str) else to_json(masked).decode(), tool)

    def _add(self, kind: PartKind, text: str, tool: str = "", *, ends: bool = False) -> None:
        """Add a part; a text that is held back is added before another kind of part, and at the end."""
        if not self.wanted:
            return
        with self._lock:  # a stage may use several threads
            ends = ends or kind is not PartKind.TEXT
            self._append(PartKind.TEXT, self._settle(text if kind is PartKind.TEXT else "", ends=ends), "")
            if kind is not PartKind.TEXT:
                self._append(kind, text, tool)

    def _settle(self, text: str, *, ends: bool) -> str:
        """Return what can be shown of the text so far, masked."""
        if self._hidden is not None:
            text = self._hidden.feed(text) + (self._hidden.release() if ends else "")
        text = self._unfinished + text
        settled = len(text) if ends else settled_length(text)
        if len(text) - settled > _MAX_HELD:
            settled = len(text)
        self._unfinished = text[settled:]
        return mask_secrets(text[:settled])

    def _append(self, kind: PartKind, text: str, tool: str) -> None:
        if kind is PartKind.TEXT and not text:
            return
        if len(text) + len(tool) > self._remaining:
            self._remaining = 0  # nothing after a gap
            return
        self._remaining -= len(text) + len(tool)
        last = self._parts[-1] if self._parts else None
        if kind is PartKind.TEXT and last is not None and last.kind is kind:
            self._parts[-1] = Part(kind, last.text + text)
        else:
            self._parts.append(Part(kind, text, tool))
        self._notify()


class _HiddenBlock:
    """Takes a block of lines out of a text that comes in pieces."""

    def __init__(self, opening: str) -> None:
        self._opening = opening
        self._line = ""  # the current line, as far as it is held back
        self._hides = False
        self._passes = False  # the current line is not the opening

    def feed(self, text: str) -> str:
        """Return what of the text so far can be shown."""
        shown = []
        for piece in text.splitlines(keepends=True):
            line = self._line = self._line + piece
            ends = line.endswith(("\n", "\r"))
            if self._hides:
                self._hides = not (ends and line.strip() == "```")
            elif self._passes or not (self._opening.startswith(line) or line.startswith(self._opening)):
                shown.append(line)
                self._line, self._passes = "", not ends
                continue
            elif ends and not (starts := line.strip() == self._opening):
                shown.append(line)
            elif ends:
                self._hides = starts
            if ends:
                self._line = ""
        return "".join(shown)

    def release(self) -> str:
        """Return what was held back of an ordinary line, where the text ends."""
        held, hides = self._line, self._hides or self._line.strip() == self._opening
        self._line, self._hides, self._passes = "", False, False
        return "" if hides else held


class _HiddenObject:
    """Takes an answer in JSON out of a text that comes in pieces; no one reads it as text."""

    _OPENING = re.compile(r"(?:\n|</think>)[ \t]*\{")
    _LONGEST = 40  # characters before the brace that are looked at again

    def __init__(self) -> None:
        self._seen = "\n"
        self._hides = False

    def feed(self, text: str) -> str:
        """Return what of the text can be shown."""
        if self._hides:
            return ""
        before = len(self._seen)
        seen = self._seen + text
        self._seen = seen[-self._LONGEST :]
        if (opening := self._OPENING.search(seen)) is None:
            return text
        self._hides = True
        return seen[before : max(opening.end() - 1, before)]

    def release(self) -> str:
        """Begin again, where the text ends."""
        self._seen, self._hides = "\n", False
        return ""


def heartbeat_details() -> Sequence[Any]:
    """Return the last heartbeat details of an earlier run."""
    return activity.info().heartbeat_details if activity.in_activity() else ()


def own_details(details: Sequence[Any]) -> tuple[Any, ...]:
    """Return the stage's own heartbeat details, without cost and stream."""
    return tuple(item for item in details if not (isinstance(item, dict) and (SPENT in item or STREAMED in item)))
