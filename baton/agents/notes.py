"""The notes of an agent: the block that closes a text answer and says what was decided, and why.

They are lines, `key: text`, because small models write them without a fault and they cost few tokens.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

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

_BLOCK = re.compile(rf"(?:\A|(?<=\n)){OPENING}[ \t]*\r?\n(?P<lines>(?:(?!```).*\n)*)(?P<closing>```\s*|(?!```).*)\Z")
_MAX_LINES = 60
_MAX_LENGTH = 1_000
MAX_STATE = 48
"""The most entries of the state that notes extend; the oldest leave it first."""


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

    def patch(self, baton: Baton, writes: Iterable[str] | None) -> dict[str, Json]:
        """Return the change to the baton, in the fields that the stage may write."""
        state = self._state(baton)
        members: dict[str, list[str]] = {
            "current_state": state[-MAX_STATE:] if state != baton.current_state else state,
            "decision_log": self.decided,
            "constraints": _extended(baton.constraints, self.must),
            "open_questions": _extended(baton.open_questions, self.open),
        }
        before = {**{name: getattr(baton, name) for name in members}, "decision_log": []}
        writable = members.keys() if writes is None else set(writes)
        return {name: [*value] for name, value in members.items() if value != before[name] and name in writable}

    def count_left(self, baton: Baton) -> int:
        """Return how many entries of the state leave the baton, because it would have become too long."""
        state = self._state(baton)
        return max(0, len(state) - MAX_STATE) if state != baton.current_state else 0

    def _state(self, baton: Baton) -> list[str]:
        """Return the state with what is new, however long."""
        new = [*self.facts, *self.done]
        return _extended([entry for entry in baton.current_state if not new or entry not in STARTING], new)

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
    lines = [line.strip() for line in block["lines"].splitlines() if line.strip()]
    notes = Notes()
    for line in lines:
        key, _, content = line.removeprefix("- ").partition(":")
        name = _FIELDS.get(key.strip().lower())
        if name is None or not content.strip() or len(line) > _MAX_LENGTH:
            return rest, None
        getattr(notes, name).append(content.strip())
    return rest, notes if 0 < len(lines) <= _MAX_LINES else None


def _extended(entries: list[str], added: Iterable[str]) -> list[str]:
    """Return entries and those that are new among the added ones."""
    return [*entries, *dict.fromkeys(entry for entry in added if entry not in entries)]
