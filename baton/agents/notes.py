"""How an agent is asked for its notes (`baton.core.notes`), and the tools by which it can note while it works."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, validate_call

from baton.agents.tools import AgentTool
from baton.core.notes import MAX_NOTE_LENGTH, MAX_NOTES, OPENING, Notes

INSTRUCTIONS = (
    "After the text, and not as a part of it, close with a block for the next agent: one line for each thing that "
    "you decided and why, did, found with its source, that must be obeyed from now on, or that is still open. What you "
    "rejected or only thought has its own keys, for it is not a fact. The keys are decided, done, fact, must, "
    f"open, rejected and thought; leave out what there is none of:\n{OPENING}\n"
    "decided: Use JWT, because the servers share no store\n```"
)
"""What an agent that answers with a text reads about the block."""

MEMBER_INSTRUCTIONS = (
    "Beside `output`, the object has lists of sentences for the next agent: what you `decided` and why, what is "
    "`done`, each `fact` with its source, what `must` be obeyed from now on, and what is still `open`. What you "
    "`rejected` or only `thought` has its own lists, for it is not a fact. Leave out empty lists: "
    '`{"output": …, "decided": ["Use JWT, because the servers share no store"]}`'
)
"""What an agent that answers with an output in JSON reads about the members."""

PATCH_INSTRUCTIONS = "What you rejected or only thought has its own lists beside it, `rejected` and `thought`."
"""What an agent that answers with a patch reads; the patch itself has all else."""


def _note(text: Annotated[str, Field(min_length=1, max_length=MAX_NOTE_LENGTH)]) -> str:
    return " ".join(text.split())


_validate_note = validate_call(_note)
_TOOLS = [
    (AgentTool.of(_note, name=name, description=description), noted)
    for name, noted, description in (
        ("note_decision", "decided", "Note a decision and its reason for the next agents."),
        ("open_question", "open", "Note a question that a later agent has to answer."),
        ("consider", "thoughts", "Note an idea that is no fact."),
        ("reject", "rejected", "Note an idea that you rejected, and why."),
    )
]
NOTE_TOOLS = frozenset(tool.name for tool, _ in _TOOLS)
"""The names of the tools by which an agent notes while it works."""


def note_tools(notes: Notes) -> tuple[AgentTool, ...]:
    """Return the tools that add to an agent's notes."""
    return tuple(replace(tool, function=_adds_to(getattr(notes, name))) for tool, name in _TOOLS)


def _adds_to(entries: list[str]) -> Callable[..., Awaitable[str]]:
    async def note(**arguments: Any) -> str:
        if len(entries) >= MAX_NOTES:
            return f"not noted: there are {MAX_NOTES} already"
        entries.append(_validate_note(**arguments))
        return "noted"

    return note
