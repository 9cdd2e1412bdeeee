"""The tool calls of a stage's recorded attempts with their results, as the lab answers them again."""

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any

from baton.artifacts.store import ArtifactStore
from baton.contract.records import EventType, SessionEvent
from baton.core.lab import RecordedCall
from baton.core.messages import StageReturn
from baton.errors import ArtifactError
from baton.runs.client_transcript import read_transcripts
from baton.wire.json_values import format_digest, sha256


async def read_calls(returned: Iterable[StageReturn], store: ArtifactStore, dropped: list[str]) -> list[RecordedCall]:
    """Return the tool calls of a stage's attempts with their results; say which results are not kept."""
    calls = []
    for answer in returned:
        texts, missing = await _read_texts(answer.journal, store)
        events = [SessionEvent.from_json_object(event) for event in answer.events]
        results = {event.call_id: event for event in events if event.type is EventType.TOOL_RESULT}
        for call in events:
            if call.type is not EventType.TOOL_CALL or (result := results.get(call.id)) is None:
                continue
            text = await _whole_text(result, texts, store)
            if text is None:
                why = f": the transcript is missing, because {missing}" if missing else ""
                dropped.append(f"a result of {call.tool_name}, which is not kept whole{why}")
                continue
            shown = texts.get(call.id, call.content)
            calls.append(
                RecordedCall(
                    tool=call.tool_name or "",
                    arguments=call.ref or format_digest(sha256(shown.encode())),
                    result=_parse_result(text),
                    success=result.success is not False,
                    shown=shown,
                )
            )
    return calls


async def _read_texts(journal: str | None, store: ArtifactStore) -> tuple[Mapping[str, str], str]:
    """Return the whole texts of a stage's transcript by event, or why they cannot be read; it is never opened."""
    if journal is None:
        return {}, ""
    [read] = await read_transcripts(store, [journal])
    events = read.transcript.events if read.transcript else []
    return {event.id: event.text for event in events}, read.missing


async def _whole_text(result: SessionEvent, texts: Mapping[str, str], store: ArtifactStore) -> str | None:
    if (text := texts.get(result.id)) is not None:
        return text
    if result.whole is not None:
        try:
            return (await store.get(result.whole.removeprefix("sha256:"))).decode()
        except (ArtifactError, UnicodeDecodeError):
            return None
    return result.content if result.ref is None else None


def _parse_result(text: str) -> Any:
    """Return a tool's result: what is not a text was recorded as Python writes it."""
    if text[:1] not in ("{", "[", "(") and text not in ("None", "True", "False"):
        return text
    try:
        value = ast.literal_eval(text)
        return json.loads(json.dumps(value))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text
