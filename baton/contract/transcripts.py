"""The sessions of other tools: what an entry of a transcript says, for each format that can be imported.

Formats grow, so entries and parts of unknown types are skipped where they are bookkeeping, and named in the text where
they are content. Who wrote a message is taken from the transcript, which anybody may have written.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from baton.contract.records import EventType
from baton.errors import HandoffError

Entry = Mapping[str, Any]
"""One message, item or line of a transcript."""


class TranscriptError(HandoffError):
    """A transcript cannot be imported: it is not JSON, of no known format, empty or too large. Correct the file."""


class Said(NamedTuple):
    """One thing that an entry says.

    Attributes:
        type: The type of event that it becomes.
        text: The whole text.
        at: The time in the transcript, if any.
        tool: The tool of a call or result; a result may leave it to the call.
        call: The id of the call.
        success: Whether a tool succeeded; None if the transcript does not say.
        private: Whether it is another agent's, such as a subagent's.
    """

    type: EventType
    text: str
    at: Any = None
    tool: str | None = None
    call: str | None = None
    success: bool | None = None
    private: bool = False


class Format(NamedTuple):
    """A format of transcripts.

    Attributes:
        agent: The name that events of it have as their agent.
        members: What an entry of it has, for error messages.
        recognises: Whether an entry is of this format.
        read: Yields what an entry says.
    """

    agent: str
    members: str
    recognises: Callable[[Entry], bool]
    read: Callable[[Entry], Iterator[Said]]


def as_text(value: Any) -> str:
    """Return the text of a content: a text, parts with texts, or any other JSON value written out.

    Raises:
        TranscriptError: It is no JSON value.
        RecursionError: It is nested too deep.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_part_text, value)))
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        raise TranscriptError(
            f"a message has a value that JSON cannot represent, in a {type(value).__name__}; convert the messages to "
            "JSON first"
        ) from None


def _part_text(part: Any) -> str:
    if not isinstance(part, Mapping):
        return as_text(part)
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return str(part[name])
    kind = part.get("type") or part.get("kind")
    return f"[{kind}]" if isinstance(kind, str) else as_text(dict(part))  # an image, a file


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _objects(value: Any) -> list[Entry]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


_ROLES = {
    "user": EventType.USER_MESSAGE,
    "assistant": EventType.LLM_RESPONSE,
    "system": EventType.INTERNAL_NOTE,
    "developer": EventType.INTERNAL_NOTE,
}
_WRITTEN_BY_TOOLS = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|turn_aborted|user_shell_command|system-reminder|command-\w+|"
    r"local-command-\w+|permissions instructions)\b|# AGENTS\.md instructions|\[Request interrupted by user)"
)
"""How messages begin that a coding agent writes itself, and sends as the user's."""


def _message(role: Any, content: Any, at: Any) -> Iterator[Said]:
    text, kind = as_text(content), _ROLES.get(role) if isinstance(role, str) else None
    if kind is EventType.USER_MESSAGE and _WRITTEN_BY_TOOLS.match(text):
        kind = EventType.INTERNAL_NOTE
    if kind is not None and text.strip():
        yield Said(kind, text, at)


_CALL, _OUTPUT = "_call", "_call_output"
_EXIT_CODE = re.compile(r"(?:\A|\n)(?:Exit code:|Process exited with code) (\d+)")
_SEARCHED = 500  # characters of an output in which its exit code is


def _is_openai(entry: Entry) -> bool:
    kind, role = entry.get("type"), entry.get("role")
    if isinstance(kind, str) and kind != "message":
        return kind.endswith((_CALL, _OUTPUT)) or (kind == "reasoning" and "summary" in entry)
    return isinstance(role, str) and role in {*_ROLES, "tool", "function"} and entry.keys() & _CONTENT != set()


_CONTENT = {"content", "tool_calls", "function_call"}


def _read_openai(entry: Entry, at: Any = None) -> Iterator[Said]:
    """Yield what a message of Chat Completions or an item of Responses says."""
    kind, role = entry.get("type"), entry.get("role")
    at = at or entry.get("timestamp")
    if kind == "reasoning":
        thought = "\n".join(filter(None, (as_text(entry.get("summary")), as_text(entry.get("content")))))
        yield Said(EventType.INTERNAL_NOTE, thought, at)
    elif isinstance(kind, str) and kind.endswith(_OUTPUT):
        yield _output(entry, entry.get("output"), at)
    elif isinstance(kind, str) and kind.endswith(_CALL):
        given = next((entry[name] for name in ("arguments", "input", "action") if name in entry), None)
        tool = _name(entry.get("name")) or kind.removesuffix(_CALL)
        yield Said(EventType.TOOL_CALL, as_text(given), at, tool, _call_id(entry))
        if entry.get("output") is not None or entry.get("error") is not None:  # the provider ran it itself
            yield _output({**entry, "name": tool}, entry.get("output") or entry.get("error"), at)
    elif role in ("tool", "function"):
        call = _name(entry.get("tool_call_id"))
        yield Said(EventType.TOOL_RESULT, as_text(entry.get("content")), at, _name(entry.get("name")), call)
    else:
        yield Said(EventType.INTERNAL_NOTE, as_text(entry.get("reasoning_content")), at)
        yield from _message(role, entry.get("content"), at)
        calls = [(call.get("id"), call.get("function")) for call in _objects(entry.get("tool_calls"))]
        for call, function in [*calls, (None, entry.get("function_call"))]:
            if isinstance(function, Mapping):
                arguments = as_text(function.get("arguments"))
                yield Said(EventType.TOOL_CALL, arguments, at, _name(function.get("name")), _name(call))


def _call_id(entry: Entry) -> str | None:
    return _name(entry.get("call_id")) or _name(entry.get("id"))


def _output(entry: Entry, output: Any, at: Any) -> Said:
    text, success = as_text(output), None
    if entry.get("error") is not None or entry.get("status") in ("failed", "incomplete"):
        success = False
    elif code := _exit_code(text):
        success = code == "0"
    return Said(EventType.TOOL_RESULT, text, at, _name(entry.get("name")), _call_id(entry), success)


def _exit_code(text: str) -> str | None:
    """Return the exit code that a command's output states in one of Codex's forms."""
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        metadata = value.get("metadata") if isinstance(value, dict) else None
        code = metadata.get("exit_code") if isinstance(metadata, dict) else None
        return str(code) if isinstance(code, int) else None
    match = _EXIT_CODE.search(text[:_SEARCHED])
    return match[1] if match else None


_LINES_OF_CODEX = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")


def _is_codex(entry: Entry) -> bool:
    return entry.get("type") in _LINES_OF_CODEX and isinstance(entry.get("payload"), Mapping)


def _read_codex(entry: Entry) -> Iterator[Said]:
    payload, at = entry["payload"], entry.get("timestamp")
    if entry["type"] == "response_item":  # events repeat what these say
        yield from _read_openai(payload, at)
    elif entry["type"] == "compacted":
        yield Said(EventType.LLM_RESPONSE, as_text(payload.get("message")), at)


def _is_claude(entry: Entry) -> bool:
    return entry.get("type") in ("user", "assistant") and isinstance(entry.get("message"), Mapping)


def _read_claude(entry: Entry) -> Iterator[Said]:
    message, at, private = entry["message"], entry.get("timestamp"), entry.get("isSidechain") is True
    role, content = message.get("role") or entry["type"], message.get("content")
    if entry.get("isMeta") is True or entry.get("isApiErrorMessage") is True:
        role = "system"
    elif entry.get("isCompactSummary") is True:  # a model wrote it
        role = "assistant"
    for block in [content] if isinstance(content, str) else content if isinstance(content, list) else []:
        for said in _read_block(role, block, at):
            yield said._replace(private=private)


def _read_block(role: Any, block: Any, at: Any) -> Iterator[Said]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind in ("thinking", "redacted_thinking"):
        yield Said(EventType.INTERNAL_NOTE, as_text(block.get("thinking")), at)
    elif isinstance(kind, str) and kind.endswith("tool_use"):
        arguments = as_text(block.get("input"))
        yield Said(EventType.TOOL_CALL, arguments, at, _name(block.get("name")), _name(block.get("id")))
    elif isinstance(kind, str) and kind.endswith("tool_result"):
        call, success = _name(block.get("tool_use_id")), block.get("is_error") is not True
        yield Said(EventType.TOOL_RESULT, as_text(block.get("content")), at, None, call, success)
    else:
        yield from _message(role, [block], at)


def _is_pydantic_ai(entry: Entry) -> bool:
    return entry.get("kind") in ("request", "response") and isinstance(entry.get("parts"), list)


_PARTS = {
    "user-prompt": EventType.USER_MESSAGE,
    "text": EventType.LLM_RESPONSE,
    "thinking": EventType.INTERNAL_NOTE,
    "system-prompt": EventType.INTERNAL_NOTE,
    "retry-feedback": EventType.INTERNAL_NOTE,
    "compaction": EventType.LLM_RESPONSE,
}


def _read_pydantic_ai(entry: Entry) -> Iterator[Said]:
    for part in _objects(entry["parts"]):
        kind, at = part.get("part_kind"), part.get("timestamp") or entry.get("timestamp")
        tool, call = _name(part.get("tool_name")), _name(part.get("tool_call_id"))
        text = as_text(part.get("content"))
        if kind in ("tool-call", "builtin-tool-call"):
            yield Said(EventType.TOOL_CALL, as_text(part.get("args")), at, tool, call)
        elif kind in ("tool-return", "builtin-tool-return"):
            success = part["outcome"] == "success" if "outcome" in part else None
            yield Said(EventType.TOOL_RESULT, text, at, tool, call, success)
        elif kind == "retry-prompt":
            failed = Said(EventType.TOOL_RESULT, text, at, tool, call, success=False)
            yield failed if tool else Said(EventType.INTERNAL_NOTE, text, at)
        elif isinstance(kind, str) and kind in _PARTS:
            yield Said(_PARTS[kind], text, at)


FORMATS: Mapping[str, Format] = {
    "codex": Format("codex", "type and payload", _is_codex, _read_codex),
    "claude-code": Format("claude-code", "type and message", _is_claude, _read_claude),
    "pydantic-ai": Format("pydantic-ai", "kind and parts", _is_pydantic_ai, _read_pydantic_ai),
    "openai": Format("openai", "role and content, or items of Responses", _is_openai, _read_openai),
}
"""The formats that can be imported, by name."""
