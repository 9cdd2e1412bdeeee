"""The notes of an agent: what it decided and why, found, leaves open or rejected. They become the patch.

A text closes with a block of lines, `key: text`, because small models write them without a fault and they cost few
tokens. An answer in JSON has the same keys as members. An agent with tools can also note while it works.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from pydantic import Field, validate_call

from baton.agents.tools import AgentTool
from baton.contract.activity import SessionLog
from baton.core.baton import Baton
from baton.core.messages import STARTING
from baton.wire.json_values import Json

OPENING = "```baton"
"""The line that opens the block; a line of three backticks closes it."""

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

_BLOCK = re.compile(rf"(?:\A|(?<=\n)){OPENING}[ \t]*\r?\n(?P<lines>(?:(?!```).*\n)*)(?P<closing>```\s*|(?!```).*)\Z")
_MAX_LINES = 60
_MAX_LENGTH = 1_000
MAX_STATE = 48
"""The most entries of the state that notes extend; the oldest leave it first."""
_APPENDED = {"decision_log": "decided", "constraints": "must", "open_questions": "open"}


@dataclass(frozen=True)
class Notes:
    """What an agent said about its work, each list in the order in which it stands in the answer.

    Attributes:
        decided: Decisions with their reasons, for the decision log.
        done: What is done now.
        facts: What was found, with its source.
        must: Rules that everybody has to obey from now on.
        open: Questions for later stages.
        rejected: Ideas that were rejected; they never cross as facts.
        thoughts: Loose thoughts; they never cross.

    Example:
        >>> Notes(decided=["Use JWT, because the servers share no store"]).patch(Baton(goal="Add login"), None)
        {'decision_log': ['Use JWT, because the servers share no store']}
    """

    decided: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    must: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return any(getattr(self, each.name) for each in fields(self))

    def joined(self, other: "Notes | None") -> "Notes":
        """Return these notes and then the others."""
        names = [each.name for each in fields(self)] if other is not None else []
        return replace(self, **{name: [*getattr(self, name), *getattr(other, name)] for name in names})

    def patch(
        self, baton: Baton, writes: Iterable[str] | None, patch: Mapping[str, Json] | None = None
    ) -> dict[str, Json]:
        """Return the change to the baton, in the fields that the stage may write, on top of a patch."""
        patch = dict(patch or {})
        before: dict[str, Any] = {name: getattr(baton, name) for name in ("current_state", *_APPENDED)}
        before |= {"decision_log": [], **patch}
        lists = {name: value for name, value in before.items() if isinstance(value, list)}
        after = {
            name: _extended(lists[name], getattr(self, noted)) for name, noted in _APPENDED.items() if name in lists
        }
        if "current_state" in lists:
            after["current_state"] = self._extended_state(lists["current_state"])
        writable = after.keys() if writes is None else set(writes)
        changed = {name: value for name, value in after.items() if value != before[name] and name in writable}
        if "current_state" in changed:
            changed["current_state"] = changed["current_state"][-MAX_STATE:]
        return {**patch, **changed}

    def record(self, session: SessionLog) -> None:
        """Record decisions, and what must not pass for a fact, for the contracts of later stages."""
        for text in self.decided:
            session.decision(text)
        for text in self.rejected:
            session.rejected_assumption(text)
        for text in self.thoughts:
            session.brainstorm(text)

    def count_left(self, baton: Baton) -> int:
        """Return how many entries of the state leave the baton, because it would have become too long."""
        state = self._extended_state(baton.current_state)
        return max(0, len(state) - MAX_STATE) if state != baton.current_state else 0

    def _extended_state(self, entries: list[str]) -> list[str]:
        """Return the state with what is new, however long."""
        new = [*self.facts, *self.done]
        return _extended([entry for entry in entries if not new or entry not in STARTING], new)

    def render(self) -> str:
        r"""Return the block as a model writes it after its text, for scripts and tests.

        Example:
            >>> Notes(open=["Who reads it?"]).render()
            '```baton\nopen: Who reads it?\n```'
        """
        lines = [f"{key}: {text}" for key, name in _FIELDS.items() for text in getattr(self, name)]
        return "\n".join([OPENING, *lines, "```"])


_FIELDS = {
    "decided": "decided",
    "done": "done",
    "fact": "facts",
    "must": "must",
    "open": "open",
    "rejected": "rejected",
    "thought": "thoughts",
}

NOTE_MEMBERS: Mapping[str, dict[str, Any]] = {key: {"type": "array", "items": {"type": "string"}} for key in _FIELDS}
"""The schema of each member that notes have in an answer in JSON; all are optional."""


def split_notes(text: str) -> tuple[str, Notes | None]:
    r"""Return an answer's text and its notes; None where the block is missing or malformed.

    Example:
        >>> split_notes("An article.\n\n```baton\ndecided: Be brief, it is a note\n```")[1].decided
        ['Be brief, it is a note']
    """
    block = _BLOCK.search(text)
    if block is None:
        return text, None
    rest = text[: block.start()].rstrip()
    if not block["closing"].startswith("```"):
        return rest, None  # cut off
    lines = (line.removeprefix("- ").partition(":") for line in block["lines"].splitlines() if line.strip())
    return rest, _collect([(key.strip().lower(), text) for key, _, text in lines])


def notes_in(answer: Mapping[str, Any]) -> Notes | None:
    """Return the notes in an answer in JSON; None where they are missing or malformed.

    Example:
        >>> notes_in({"output": 1, "decided": ["Be brief, it is a note"], "open": None}).decided
        ['Be brief, it is a note']
    """
    listed = {key: texts if isinstance(texts, list) else [texts] for key in _FIELDS if (texts := answer.get(key))}
    return _collect([(key, text) for key, texts in listed.items() for text in texts])


def _collect(entries: list[tuple[str, Any]]) -> Notes | None:
    """Return the notes of keys and texts, unless there is none, too many or a malformed one."""
    notes = Notes()
    for key, text in entries:
        name = _FIELDS.get(key)
        if name is None or not isinstance(text, str) or not text.strip() or len(text) > _MAX_LENGTH:
            return None
        getattr(notes, name).append(" ".join(text.split()))
    return notes if 0 < len(entries) <= _MAX_LINES else None


def _extended(entries: list[str], added: Iterable[str]) -> list[str]:
    """Return entries and those that are new among the added ones."""
    return [*entries, *dict.fromkeys(entry for entry in added if entry not in entries)]


def _note(text: Annotated[str, Field(min_length=1, max_length=_MAX_LENGTH)]) -> str:
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
        if len(entries) >= _MAX_LINES:
            return f"not noted: there are {_MAX_LINES} already"
        entries.append(_validate_note(**arguments))
        return "noted"

    return note
