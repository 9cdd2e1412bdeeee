"""The baton as the markdown that an agent reads, never longer than the tokens it may cost.

Within the ceiling everything is whole but older decisions. When the page is too long, the least important lines go
first, and the page says what is missing. The goal and the newest decision always stay.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from baton.artifacts.records import ArtifactRef
from baton.core.baton import Baton
from baton.errors import BatonError
from baton.handoff.records import Turn
from baton.wire.text import TokenEstimator, estimate_tokens, single_line

HEADING = "## Baton (Handoff Context)"
DEFAULT_MAX_TOKENS = 2_000
"""The upper end of a baton's typical size."""
MIN_TOKENS = 128
"""Below this the headings, the goal and one decision have no room."""
DECISIONS_SHOWN = 5
"""So many of the newest decisions are shown; older ones are counted."""
MIN_LINE_WIDTH = 8
"""Lines are cut down to this many characters before whole sections are left out."""


class PromptTooLargeError(BatonError):
    """What must be in a prompt does not fit: nothing is sent to a model.

    Attributes:
        needed: The tokens that it takes, by field.
        allowed: How many there are.
    """

    def __init__(self, needed: dict[str, int], allowed: int) -> None:
        parts = ", ".join(f"{name} {tokens:,}" for name, tokens in needed.items())
        super().__init__(
            f"the prompt may have {allowed:,} tokens, and what must be in it takes {sum(needed.values()):,}"
            f" ({parts}): shorten it, or use a model with a larger window and say so with `window=`"
        )
        self.needed = needed
        self.allowed = allowed


_SAYS_HOW_LONG = 100


@dataclass
class _Section:
    """One heading with its lines; the first or the last ``shown`` are rendered.

    Attributes:
        label: The heading's text.
        lines: The escaped lines, all of them.
        shown: How many are rendered.
        floor: The least that may be rendered before lines are cut instead.
        newest: Whether the last lines are kept rather than the first.
        beyond: Lines that exist but were not even handed over.
    """

    label: str
    lines: list[str]
    shown: int
    floor: int
    newest: bool = False
    beyond: int = 0

    def kept(self) -> list[str]:
        """Return the lines that are rendered."""
        return self.lines[len(self.lines) - self.shown :] if self.newest else self.lines[: self.shown]

    def text(self, width: int) -> str:
        """Return the section as markdown, lines cut to a width, with one that counts what is not shown."""
        left_out = len(self.lines) - self.shown + self.beyond
        rows = [f"- {_cut(line, width)}" for line in self.kept()]
        if left_out and self.newest:
            rows.insert(0, f"- (+{left_out} earlier)")
        elif left_out:
            rows.append(f"- (+{left_out} more)")
        return f"**{self.label}:**\n" + "\n".join(rows) + "\n"


# Field, label, least lines shown. The order is the order on the page.
_LAYOUT = (
    ("current_state", "Current State", 1),
    ("decision_log", "Recent Decisions", 1),
    ("open_questions", "Open Questions", 0),
    ("constraints", "Constraints", 1),
    ("acceptance", "Acceptance Criteria", 0),
    ("artifacts", "Artifacts", 0),
    ("work_scope", "Work Scope", 0),
)
# What gives way first when the page is too long.
_GIVES_WAY = (
    "work_scope",
    "artifacts",
    "acceptance",
    "open_questions",
    "decision_log",
    "current_state",
    "constraints",
)


@dataclass
class _Page:
    """The whole page, with the steps in which it gets shorter; each says whether there was anything to take.

    Attributes:
        goal: The escaped goal.
        sections: The sections by field, in the order of the page.
        keep: The fields that do not get shorter.
        width: Lines of other fields are cut to so many characters.
        dropped: How many sections were left out.
    """

    goal: str
    sections: dict[str, _Section]
    keep: frozenset[str]
    width: int = sys.maxsize
    dropped: int = 0

    def text(self) -> str:
        """Return the page as markdown."""
        parts = [f"{HEADING}\n", f"**Goal:** {_cut(self.goal, self.width_of('goal'))}\n"]
        parts += [section.text(self.width_of(name)) for name, section in self.sections.items()]
        if self.dropped:
            parts.append(f"(+{self.dropped} more sections)\n")
        return "\n".join(parts)

    def width_of(self, name: str) -> int:
        """Return to how many characters the lines of a field are cut."""
        return sys.maxsize if name in self.keep else self.width

    def needed(self, estimator: TokenEstimator) -> dict[str, int]:
        """Return the tokens of the fields that are kept whole."""
        parts = {name: section.text(sys.maxsize) for name, section in self.sections.items() if name in self.keep}
        return {name: estimator(text) for name, text in ({"goal": self.goal} | parts).items() if name in self.keep}

    def give_way(self, excess: int, estimator: TokenEstimator) -> bool:
        """Take lines out until about ``excess`` tokens are saved."""
        saved, any_left = 0, False
        for name in self._way_order():
            section = self.sections[name]
            while saved < excess and section.shown > section.floor:
                gone = len(section.lines) - section.shown if section.newest else section.shown - 1
                section.shown -= 1
                saved += estimator(_cut(section.lines[gone], self.width))
                any_left = True
        return any_left

    def cut(self, width: int) -> bool:
        """Cut lines that are longer than ``width`` characters."""
        if self._longest() <= width:
            return False
        self.width = width
        return True

    def narrow(self, least: int) -> bool:
        """Cut the longest lines by a quarter, but to no fewer than ``least`` characters."""
        longest = self._longest()
        return longest > least and self.cut(max(least, longest * 3 // 4))

    def drop_section(self) -> bool:
        """Leave out the section that gives way first; the decisions stay."""
        name = next((name for name in self._way_order() if name != "decision_log"), None)
        if name is None:
            return False
        del self.sections[name]
        self.dropped += 1
        return True

    def _longest(self) -> int:
        """Return the length of the longest line on the page that may be cut."""
        lines = (line for name in self._way_order() for line in self.sections[name].kept())
        longest = max(map(len, ("" if "goal" in self.keep else self.goal, *lines)))
        return min(longest, self.width)

    def _way_order(self) -> list[str]:
        """Return the names of the sections in the order in which they give way."""
        further = [name for name in self.sections if name not in _GIVES_WAY]
        known = [name for name in _GIVES_WAY if name in self.sections]
        return [name for name in (*further, *known) if name not in self.keep]


def render(
    baton: Baton,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    estimator: TokenEstimator = estimate_tokens,
    emphasis: frozenset[str] = frozenset(),
    keep: frozenset[str] = frozenset(),
    earlier_decisions: int = 0,
) -> str:
    """Return the baton as markdown for an agent's prompt.

    Empty fields have no section. Every item is on one line that cannot become a heading or a fence. Of the decisions
    the newest are shown, of all other fields everything. When the page would cost more than ``max_tokens``, lines of
    more characters than that are cut first, so that one of them cannot push out all others; then lines give way in
    this order: further fields, work scope, artifacts, acceptance, open questions, older decisions, state,
    constraints; then the longest are cut; at last whole sections are left out, in the same order. The goal
    and the newest decision are never left out. What is left out is counted on the page, and what is cut says how long
    it is. An estimator that charges more than a token for each byte of UTF-8 may find the shortest page above the
    ceiling.

    Args:
        baton: What to render; the further fields of a derived class follow after the eight.
        max_tokens: The ceiling, at least 128.
        estimator: Counts the tokens of a text.
        emphasis: Pass `{"decision_log"}` to show all decisions as long as the ceiling allows.
        keep: Fields that must be whole, of the goal and the lists.
        earlier_decisions: Decisions that exist but are not in ``baton``; they are counted on the page.

    Returns:
        Markdown that ends in a line break.

    Raises:
        ValueError: ``max_tokens`` is below 128.
        PromptTooLargeError: What must be whole does not fit.

    Example:
        >>> print(render(Baton(goal="Add login", constraints=["No new service"])), end="")
        ## Baton (Handoff Context)
        <BLANKLINE>
        **Goal:** Add login
        <BLANKLINE>
        **Constraints:**
        - No new service
    """
    if max_tokens < MIN_TOKENS:
        raise ValueError(f"max_tokens is {max_tokens}; a baton needs at least {MIN_TOKENS}")
    page = _Page(single_line(baton.goal), _sections(baton, emphasis, earlier_decisions), keep)
    text = page.text()
    while (excess := estimator(text) - max_tokens) > 0:
        shorter = (
            page.cut(max_tokens)
            or page.give_way(excess, estimator)
            or page.narrow(MIN_LINE_WIDTH)
            or page.drop_section()
            or page.narrow(1)
        )
        if not shorter:
            break
        text = page.text()
    if keep and estimator(text) > max_tokens:
        raise PromptTooLargeError(page.needed(estimator), max_tokens)
    return text


def conversation(summary: str, turns: Sequence[Turn]) -> str:
    """Return a conversation as markdown that cannot be taken for headings or new lines: one line for each line said."""
    rows: list[str] = []
    if summary:
        rows += ["**Earlier Conversation (summary):**"]
        rows += [f"- {single_line(line)}" for line in summary.splitlines() if line.strip()]
    if turns:
        rows += ["**Conversation:**"]
        rows += ["- " + single_line(f"{turn.role or 'agent'}: {turn.content}") for turn in turns]
    return "\n".join([*rows, ""])


def _sections(baton: Baton, emphasis: frozenset[str], earlier_decisions: int) -> dict[str, _Section]:
    """Return the sections that are not empty, in the order of the page."""
    sections = {}
    for name, label, floor in _LAYOUT:
        lines = [_line(item) for item in getattr(baton, name)]
        newest = name == "decision_log"
        most = DECISIONS_SHOWN if newest and name not in emphasis else len(lines)
        beyond = earlier_decisions if newest else 0
        sections[name] = _Section(label, lines, min(most, len(lines)), min(floor, len(lines)), newest, beyond)
    further = {name: value for name, value in baton.to_json_object().items() if name not in Baton.FIELDS}
    for name in sorted(further):
        lines = _lines(further[name])
        sections[name] = _Section(single_line(name.replace("_", " ").title()), lines, len(lines), 0)
    return {name: section for name, section in sections.items() if section.lines or section.beyond}


def _lines(value: Any) -> list[str]:
    """Return the lines of a further field, given as JSON: a list, an object, or one value."""
    if value is None or value in ("", [], {}):
        return []
    if isinstance(value, dict):
        return [single_line(f"{key}: {_text(entry)}") for key, entry in value.items()]
    return [single_line(_text(item)) for item in (value if isinstance(value, list) else [value])]


def _text(value: Any) -> str:
    """Return a JSON value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _line(item: Any) -> str:
    """Return one item on one line."""
    if not isinstance(item, ArtifactRef):
        return single_line(str(item))
    notes = [note for note in (item.path, item.summary) if note]
    about = f" — {': '.join(notes)}" if notes else ""
    return single_line(f"{item.id} ({item.type}, {item.short_hash}...){about}")


def _cut(line: str, width: int) -> str:
    """Return a line cut to about ``width`` characters, saying so, and how long it is where there is room."""
    if len(line) <= width:
        return line
    said = f" ({width - 1:,} of {len(line):,} characters)" if width >= _SAYS_HOW_LONG else ""
    return f"{line[: width - 1].rstrip()}…{said}"
