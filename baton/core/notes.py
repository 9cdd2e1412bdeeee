"""The notes of an agent: what it decided and why, found, leaves open or rejected. They become the patch.

A text closes with a block of lines, `key: text`, because small models write them without a fault and they cost few
tokens. An answer in JSON has the same keys as members.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from baton.core.baton import Baton
from baton.core.messages import STARTING
from baton.wire.json_values import Json

OPENING = "```baton"
"""The line that opens the block; a line of three backticks closes it."""

_BLOCK = re.compile(rf"(?:\A|(?<=\n)){OPENING}[ \t]*\r?\n(?P<lines>(?:(?!```).*\n)*)(?P<closing>```\s*|(?!```).*)\Z")
MAX_NOTES = 60
"""The most notes of an answer."""
MAX_NOTE_LENGTH = 1_000
"""The most characters of a note."""
MAX_STATE = 48
"""The most entries of the state that notes extend; the oldest leave it first."""
NO_REASONS = "left no reasons"
"""What the history says of work without notes."""
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

    def warnings(self, baton: Baton) -> list[str]:
        """Return a warning if entries of the state leave the baton, because it would have become too long."""
        state = self._extended_state(baton.current_state)
        left = max(0, len(state) - MAX_STATE) if state != baton.current_state else 0
        return [f"current_state: the {left:,} oldest entries left the baton; the history has them"] if left else []

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

    def members(self) -> dict[str, list[str]]:
        """Return the notes by the keys that they have in an answer in JSON, without empty lists."""
        return {key: texts for key, name in _FIELDS.items() if (texts := getattr(self, name))}


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
        if name is None or not isinstance(text, str) or not text.strip() or len(text) > MAX_NOTE_LENGTH:
            return None
        getattr(notes, name).append(" ".join(text.split()))
    return notes if 0 < len(entries) <= MAX_NOTES else None


def _extended(entries: list[str], added: Iterable[str]) -> list[str]:
    """Return entries and those that are new among the added ones."""
    return [*entries, *dict.fromkeys(entry for entry in added if entry not in entries)]
