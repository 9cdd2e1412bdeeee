"""How an agent reads what its prompt shows only a part of: page by page, and only what its handoff names."""

from collections.abc import Iterable, Mapping
from typing import Any

from baton.pipelines.prompt import READ_ARTIFACT
from baton.wire.json_values import Json

MOST_READ = 16_000
"""The most characters that one call of `read_artifact` returns."""
_MOST_NAMED = 20


def unnamed(id: str, named: Iterable[str]) -> dict[str, Json]:
    """Return the error for an agent that asked for what its handoff does not name."""
    known = ", ".join(map(repr, sorted(named)[:_MOST_NAMED])) or "none"
    return {"error": f"no artifact {id!r} is named in your handoff; named are: {known}"}


def page_of(id: str, text: str | None, offset: int, limit: int) -> dict[str, Json]:
    """Return a part of a text for an agent; an error where there is no text to be had.

    Args:
        id: By what name it was asked for.
        text: The whole text.
        offset: Where to begin, in characters.
        limit: How many characters, at most `MOST_READ`.

    Example:
        >>> page_of("draft", "Batons travel.", 7, 6)
        {'id': 'draft', 'characters': 14, 'offset': 7, 'text': 'travel', 'next': 13}
    """
    if text is None:
        return {"error": f"the artifact {id!r} is not text, or is not in this worker's store"}
    begin = min(max(offset, 0), len(text))
    end = min(begin + min(max(limit, 1), MOST_READ), len(text))
    rest = {"next": end} if end < len(text) else {}
    return {"id": id, "characters": len(text), "offset": begin, "text": text[begin:end], **rest}


def note_of(page: Mapping[str, Any]) -> str | None:
    """Return what a session notes of a page that was read: the place, and not the text; None of an error."""
    if "error" in page:
        return None
    begin, end = page["offset"], page["offset"] + len(page["text"])
    return f"{READ_ARTIFACT} {page['id']}: characters {begin:,} to {end:,} of {page['characters']:,}"
