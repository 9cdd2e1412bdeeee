"""Importing another tool's session: its transcript becomes session events, from which contracts are compiled.

Nothing of it was seen here, so each event is marked as imported: its claims are unverified, whatever the transcript
says of them, and it grants no tools.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from baton.contract.draft import is_unknown_source
from baton.contract.prohibitions import find_prohibitions
from baton.contract.records import EventType, SessionEvent, shorten_claim
from baton.contract.transcripts import FORMATS, Entry, Format, Said, TranscriptError
from baton.core.messages import MAX_SESSION_EVENTS
from baton.wire.json_values import format_digest, repair_text, sha256
from baton.wire.records import MAX_NAME_LENGTH
from baton.wire.text import estimate_tokens, json_kind

MAX_TRANSCRIPT_LENGTH = 64 * 1024 * 1024
"""The longest transcript that is read, in characters."""
MAX_ENTRIES = 200_000
"""The most entries of a transcript."""
_LISTS = ("messages", "input", "output", "items")
"""The members of a request, a response or a stored conversation that hold its messages."""


def import_session(
    source: str | bytes | Sequence[Mapping[str, Any]],
    format: str | None = None,
    *,
    at: datetime | None = None,
    newest: int | None = None,
    max_age_minutes: int | None = None,
    mask: Callable[[str], str] = str,
) -> list[SessionEvent]:
    """Return the events of another tool's session, in order.

    It reads messages of OpenAI (Chat Completions and Responses), those of Pydantic AI (`ModelMessagesTypeAdapter`),
    transcripts of Claude Code and rollouts of Codex. What users and models said, and what tools returned, keeps at most
    1,000 characters of its text; of thoughts, instructions and arguments only a digest is kept. What a subagent did is
    marked `excludeFromHandoff`.

    Args:
        source: The transcript: JSON, JSON lines, or the parsed messages.
        format: `"openai"`, `"pydantic-ai"`, `"claude-code"` or `"codex"`; detected by default.
        at: When messages without a time were said, with an offset; without it they are stale. A tool's result without
            a time always is.
        newest: How many of the newest events to keep; at most 2,000 fit a run.
        max_age_minutes: The age after which the tools' results are stale, instead of the limit of the contract's
            policy.
        mask: Takes secrets out of a text.

    Raises:
        TranscriptError: It is not JSON, of no known format, empty or too large; or more events than 2,000.
        ValueError: The format does not exist, ``at`` has no offset, or a number is negative.

    Example:
        >>> session = [
        ...     {"role": "user", "content": "Write the notes. Never touch the API report."},
        ...     {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "git.log", "arguments": "{}"}}]},
        ...     {"role": "tool", "tool_call_id": "c1", "content": "3 commits since 1.1"},
        ... ]
        >>> events = import_session(session)
        >>> [(event.id, event.type.value, event.tool_name) for event in events[::2]]
        [('openai.1', 'user_message', None), ('openai.3', 'tool_result', 'git.log')]
        >>> events[0].prohibitions, events[2].imported
        (['Never touch the API report.'], True)
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"there is no format {format!r}; the formats are {', '.join(FORMATS)}")
    if at is not None and at.tzinfo is None:
        raise ValueError("at has no UTC offset; use datetime.now(UTC)")
    for name, number in (("newest", newest), ("max_age_minutes", max_age_minutes)):
        if number is not None and number < 0:
            raise ValueError(f"{name} is {number}; it must be 0 or more")
    entries = _read_entries(source)
    found = FORMATS[format] if format else _detect(entries)
    said = _read_said(entries, found)
    if not said:
        raise TranscriptError(f"the transcript has no message in the format of {found.agent}; expected {found.members}")
    first = 0 if newest is None else max(0, len(said) - newest)
    if len(said) - first > MAX_SESSION_EVENTS:
        raise TranscriptError(
            f"the session has {len(said) - first:,} events, and a run starts from {MAX_SESSION_EVENTS:,} at most; keep "
            f"the newest: newest={MAX_SESSION_EVENTS}, or `baton import --newest {MAX_SESSION_EVENTS}`"
        )
    builder = _Builder(found.agent, said, at, max_age_minutes, mask)
    return [builder.event(number) for number in range(first, len(said))]


def _read_said(entries: Iterable[Entry], found: Format) -> list[Said]:
    """Return what the entries of a format say."""
    try:
        said = [item for entry in entries if found.recognises(entry) for item in found.read(entry)]
    except RecursionError:
        raise TranscriptError("the transcript is nested too deep") from None
    return [item for item in said if _says_something(item)]


def _read_entries(source: str | bytes | Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Return the entries of a transcript."""
    value = _parse(source) if isinstance(source, str | bytes) else list(source)
    values = value if isinstance(value, list) else [value]
    entries = [member for item in values for member in _unwrap(item)]
    if len(entries) > MAX_ENTRIES:
        raise TranscriptError(f"the transcript has {len(entries):,} entries; at most {MAX_ENTRIES:,} are read")
    if not entries:
        found = "nothing" if value == [] else json_kind(values[0])
        raise TranscriptError(
            f"the transcript holds {found}; expected a list of messages, or a JSON object on each line"
        )
    return entries


def _unwrap(item: Any) -> list[Entry]:
    """Return the messages of a request, a response or a stored conversation; any other object itself."""
    if not isinstance(item, Mapping):
        return []
    if "role" not in item and "type" not in item:
        for name in _LISTS:
            if isinstance(item.get(name), list):
                return [entry for entry in item[name] if isinstance(entry, Mapping)]
    return [item]


def _parse(source: str | bytes) -> Any:
    if len(source) > MAX_TRANSCRIPT_LENGTH:
        raise TranscriptError(
            f"the transcript has {len(source):,} characters; at most {MAX_TRANSCRIPT_LENGTH:,} are read"
        )
    try:
        text = source.decode("utf-8-sig") if isinstance(source, bytes) else source.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise TranscriptError(f"the transcript is not UTF-8 at byte {error.start}; convert it") from None
    try:
        return json.loads(text)
    except RecursionError:
        raise TranscriptError("the transcript is nested too deep") from None
    except ValueError:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return [_parse_line(number, line) for number, line in lines]


def _parse_line(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except RecursionError:
        raise TranscriptError(f"line {number} of the transcript is nested too deep") from None
    except ValueError as error:
        reason = str(error).partition(":")[0]
        raise TranscriptError(
            f"line {number} of the transcript is not JSON ({reason}); expected JSON, or a JSON object on each line. "
            "Remove the line if its tool was still writing"
        ) from None


def _detect(entries: Iterable[Entry]) -> Format:
    """Return the format of the first entry that is of a known one."""
    first: Entry = {}
    for entry in entries:
        first = first or entry
        for candidate in FORMATS.values():
            if candidate.recognises(entry):
                return candidate
    names = ", ".join(repr(str(name)[:40]) for name in [*first][:5]) or "none"
    known = "; ".join(f"{name}: {candidate.members}" for name, candidate in FORMATS.items())
    raise TranscriptError(
        f"the transcript is of no known format: its first entry has the members {names}; expected {known}. "
        "Convert it to a list of messages with role and content"
    )


def _says_something(item: Said) -> bool:
    return item.text.strip() != "" or item.type in (EventType.TOOL_CALL, EventType.TOOL_RESULT)


_PRIVATE_TYPES = {EventType.INTERNAL_NOTE, EventType.TOOL_CALL}
_UNDATED_TYPES = {EventType.USER_MESSAGE, EventType.LLM_RESPONSE}


class _Builder:
    """Builds the events of one session."""

    def __init__(
        self,
        agent: str,
        said: Sequence[Said],
        at: datetime | None,
        max_age_minutes: int | None,
        mask: Callable[[str], str],
    ) -> None:
        self._agent, self._said, self._at, self._max_age_minutes, self._mask = agent, said, at, max_age_minutes, mask
        self._tools = {item.call: item.tool for item in said if item.type is EventType.TOOL_CALL and item.call}

    def event(self, number: int) -> SessionEvent:
        """Return the event of one thing that was said, by its place."""
        item = self._said[number]
        text = self._mask(repair_text(item.text))
        content = "" if item.type in _PRIVATE_TYPES or item.private else shorten_claim(text)
        members: dict[str, Any] = {"tool_name": self._tool_of(item), "call_id": item.call and _shorten(item.call)}
        if content != text:
            members["ref"] = format_digest(sha256(text.encode()))
        if item.type is EventType.TOOL_RESULT:
            members |= {"success": item.success, "max_age_minutes": self._max_age_minutes}
        if item.type is EventType.USER_MESSAGE and not item.private:
            members["prohibitions"] = find_prohibitions(text) or None
        return SessionEvent(
            id=f"{self._agent}.{number + 1}",
            type=item.type,
            timestamp=self._time_of(item),
            content=content,
            tokens=estimate_tokens(text),
            exclude_from_handoff=item.private,
            agent=self._agent,
            imported=True,
            **{name: value for name, value in members.items() if value is not None},
        )

    def _tool_of(self, item: Said) -> str | None:
        """Return the tool of a call or a result; for an unknown one, which no fact may come from, the agent."""
        if item.type not in (EventType.TOOL_CALL, EventType.TOOL_RESULT):
            return None
        tool = _shorten(item.tool or self._tools.get(item.call or "") or "")
        return self._agent if is_unknown_source(tool) else tool

    def _time_of(self, item: Said) -> datetime | str | None:
        if isinstance(item.at, str):
            return item.at[:40]
        return self._at if item.type in _UNDATED_TYPES else None


def _shorten(name: str) -> str:
    return repair_text(name)[:MAX_NAME_LENGTH]
