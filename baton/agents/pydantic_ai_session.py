"""What a conversation of Pydantic AI says for the session: texts, thoughts, and calls of tools with their results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from baton.contract.activity import SessionLog
from baton.contract.records import shorten_claim
from baton.pipelines.prompt import READ_ARTIFACT, page_note

_MAX_RECORDED = 16_000  # characters of an answer or a result, which may pass through the history to be recorded


def record_events(session: SessionLog, events: Iterable[Mapping[str, Any]]) -> None:
    """Record the events of a conversation."""
    call_ids: dict[str, str] = {}
    for event in events:
        _record_event(session, event, call_ids)


def _record_event(session: SessionLog, event: Mapping[str, Any], call_ids: dict[str, str]) -> None:
    at = datetime.fromisoformat(event["at"]) if "at" in event else None
    match event["kind"]:
        case "call":
            call_ids[event["id"]] = session.tool_call(event["tool"], event["arguments"], called_at=at)
        case "result":
            call_id = call_ids.get(event["id"])
            success = event["success"]
            session.tool_result(event["tool"], event["text"], call_id=call_id, success=success, retrieved_at=at)
        case "thought":
            session.internal_note(event["text"])
        case _:
            session.model_response(event["text"])


def list_events(messages: Sequence[ModelMessage], unrecorded: Set[str]) -> list[Any]:
    """Return the events of a conversation, shortened."""
    events: list[Any] = []
    for message in messages:
        at = message.timestamp.isoformat() if isinstance(message, ModelResponse) else ""
        is_last = isinstance(message, ModelResponse) and not message.tool_calls
        for part in message.parts:
            match part:
                case ToolCallPart() | NativeToolCallPart() if part.tool_name not in unrecorded:
                    call = {"kind": "call", "tool": part.tool_name, "id": part.tool_call_id, "at": at}
                    events.append({**call, "arguments": _list_arguments(part)})
                case ToolReturnPart() | NativeToolReturnPart() if part.tool_name not in unrecorded:
                    text = shorten_claim(part.model_response_str(), _MAX_RECORDED)
                    result = {"kind": "result", "tool": part.tool_name, "id": part.tool_call_id, "text": text}
                    success = part.outcome == "success"
                    events.append({**result, "at": part.timestamp.isoformat(), "success": success})
                case ToolReturnPart(tool_name=tool, content=dict(page)) if tool == READ_ARTIFACT:
                    if (note := page_note(page)) is not None:  # only a note: later stages get no fact from it
                        events.append({"kind": "thought", "text": note})
                case ThinkingPart(content=text) if text.strip():
                    events.append({"kind": "thought", "text": shorten_claim(text)})
                case TextPart(content=text) if text.strip() and not is_last:  # the last text is the answer
                    events.append({"kind": "said", "text": shorten_claim(text, _MAX_RECORDED)})
    return events


def list_messages(messages: Sequence[ModelMessage]) -> Iterator[tuple[str, str]]:
    """Yield what a conversation says to a model: role and text."""
    instructions: str | None = None
    for message in messages:
        if isinstance(message, ModelRequest) and message.instructions and message.instructions != instructions:
            instructions = message.instructions
            yield "system", instructions
        for part in message.parts:
            match part:
                case SystemPromptPart(content=text):
                    yield "system", text
                case UserPromptPart(content=content):
                    yield "user", content if isinstance(content, str) else "\n".join(map(str, content))
                case ToolReturnPart() | NativeToolReturnPart():
                    yield "tool", f"{part.tool_name}: {part.model_response_str()}"
                case RetryPromptPart():
                    yield "user", part.model_response()
                case ToolCallPart() | NativeToolCallPart():
                    yield "assistant", f"{part.tool_name}({part.args_as_json_str()})"
                case ThinkingPart(content=text):
                    yield "thought", text
                case TextPart(content=text):
                    yield "assistant", text


def answer_text(response: ModelResponse, output_tool: str) -> str:
    """Return what a response answers: its texts, and the arguments of the tool by which a model answers."""
    answers = (call.args_as_json_str() for call in response.tool_calls if call.tool_name == output_tool)
    return "\n".join(filter(None, [response.text or "", *answers]))


def _list_arguments(call: ToolCallPart | NativeToolCallPart) -> Any:
    text = call.args_as_json_str()
    return call.args_as_dict() if len(text) <= _MAX_RECORDED else shorten_claim(text, _MAX_RECORDED)
