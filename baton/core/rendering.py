"""Rendering the baton as markdown for an agent, within a token limit.

If the page fits, everything is complete except older decisions. Otherwise the least important lines are removed first,
and the page counts them. The goal and the newest decision always stay.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from baton.core.artifacts import ArtifactRef
from baton.core.baton import Baton
from baton.core.turns import Turn
from baton.errors import BatonError
from baton.wire.text import TokenEstimator, estimate_tokens, single_line

HEADING = "## Baton (Handoff Context)"
DEFAULT_MAX_TOKENS = 2_000
"""The upper end of a typical baton's size."""
MIN_TOKENS = 128
"""The least tokens that fit the headings, the goal and one decision."""
DECISIONS_SHOWN = 5
"""How many of the newest decisions are shown; older ones are counted."""
MIN_LINE_WIDTH = 8
"""The characters to which lines are cut before sections are left out."""


class PromptTooLargeError(BatonError):
    """The required parts of a prompt, named with their tokens, do not fit; nothing is sent to a model.

    Shorten goal and constraints, or give the stage a larger `window`.
    """

    def __init__(self, needed: dict[str, int], allowed: int) -> None:
        parts = ", ".join(f"{name} {tokens:,}" for name, tokens in needed.items())
        super().__init__(
            f"the prompt may have {allowed:,} tokens, and its required parts have {sum(needed.values()):,}"
            f" ({parts}): shorten them, or use a model with a larger window and set `window=`"
        )
        self.needed = needed
        self.allowed = allowed


_MIN_ANNOTATED_WIDTH = 100


@dataclass
class _Section:
    """One heading with its lines; the first or the last ``shown`` are rendered.

    Attributes:
        floor: The least ``shown``; further room comes from cutting lines.
        newest: Whether the last lines are rendered instead of the first.
        beyond: The number of lines that are not in ``lines``.
    """

    label: str
    lines: list[str]
    shown: int
    floor: int
    newest: bool = False
    beyond: int = 0

    def shown_lines(self) -> list[str]:
        return self.lines[len(self.lines) - self.shown :] if self.newest else self.lines[: self.shown]

    def text(self, width: int) -> str:
        """Return the section as markdown, with lines cut to ``width`` and a count of the lines left out."""
        left_out = len(self.lines) - self.shown + self.beyond
        rows = [f"- {_cut(line, width)}" for line in self.shown_lines()]
        if left_out and self.newest:
            rows.insert(0, f"- (+{left_out} earlier)")
        elif left_out:
            rows.append(f"- (+{left_out} more)")
        return f"**{self.label}:**\n" + "\n".join(rows) + "\n"


# Field, label and floor, in page order.
_LAYOUT = (
    ("current_state", "Current State", 1),
    ("decision_log", "Recent Decisions", 1),
    ("open_questions", "Open Questions", 0),
    ("constraints", "Constraints", 1),
    ("acceptance", "Acceptance Criteria", 0),
    ("artifacts", "Artifacts", 0),
    ("work_scope", "Work Scope", 0),
)
# The order in which sections are shortened.
_SHRINK_ORDER = (
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
    """The page, with the methods that shorten it; each returns whether it changed anything.

    Attributes:
        keep: The fields that are never shortened.
    """

    goal: str
    sections: dict[str, _Section]
    keep: frozenset[str]
    width: int = sys.maxsize
    dropped: int = 0

    def text(self) -> str:
        parts = [f"{HEADING}\n", f"**Goal:** {_cut(self.goal, self.width_of('goal'))}\n"]
        parts += [section.text(self.width_of(name)) for name, section in self.sections.items()]
        if self.dropped:
            parts.append(f"(+{self.dropped} more sections)\n")
        return "\n".join(parts)

    def width_of(self, name: str) -> int:
        return sys.maxsize if name in self.keep else self.width

    def needed(self, estimator: TokenEstimator) -> dict[str, int]:
        """Return the tokens of the fields in ``keep``."""
        parts = {name: section.text(sys.maxsize) for name, section in self.sections.items() if name in self.keep}
        return {name: estimator(text) for name, text in ({"goal": self.goal} | parts).items() if name in self.keep}

    def remove_lines(self, excess: int, estimator: TokenEstimator) -> bool:
        """Remove lines until about ``excess`` tokens are saved."""
        saved, removed = 0, False
        for name in self._shrink_order():
            section = self.sections[name]
            while saved < excess and section.shown > section.floor:
                index = len(section.lines) - section.shown if section.newest else section.shown - 1
                section.shown -= 1
                saved += estimator(_cut(section.lines[index], self.width))
                removed = True
        return removed

    def cut(self, width: int) -> bool:
        """Cut lines that are longer than ``width`` characters."""
        if self._longest_line() <= width:
            return False
        self.width = width
        return True

    def narrow(self, least: int) -> bool:
        """Cut the longest lines by a quarter, but to no fewer than ``least`` characters."""
        longest = self._longest_line()
        return longest > least and self.cut(max(least, longest * 3 // 4))

    def drop_section(self) -> bool:
        """Drop the least important section; the decisions stay."""
        name = next((name for name in self._shrink_order() if name != "decision_log"), None)
        if name is None:
            return False
        del self.sections[name]
        self.dropped += 1
        return True

    def _longest_line(self) -> int:
        """Return the length of the longest line that may be cut."""
        lines = (line for name in self._shrink_order() for line in self.sections[name].shown_lines())
        longest = max(map(len, ("" if "goal" in self.keep else self.goal, *lines)))
        return min(longest, self.width)

    def _shrink_order(self) -> list[str]:
        """Return the sections that may be shortened, the least important first."""
        additional = [name for name in self.sections if name not in _SHRINK_ORDER]
        standard = [name for name in _SHRINK_ORDER if name in self.sections]
        return [name for name in (*additional, *standard) if name not in self.keep]


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

    Empty fields have no section. Each item is one line that cannot become a heading or a fence. The newest decisions
    are shown, and all items of the other fields. If the page exceeds ``max_tokens``, it is shortened in this order:
    cut lines of more than ``max_tokens`` characters, so that one line cannot displace all others; remove lines of
    additional fields, work scope, artifacts, acceptance, open questions, older decisions, state and constraints, in
    this order; cut the longest lines; drop sections, in the same order. The goal and the newest decision always stay.
    Removed lines are counted, and a cut line states its full length. With an estimator that counts more than a token
    for each byte of UTF-8, even the shortest page may exceed the limit.

    Args:
        baton: The baton; the additional fields of a subclass follow after the eight.
        max_tokens: The token limit, at least 128.
        estimator: Counts the tokens of a text.
        emphasis: Pass `{"decision_log"}` to show all decisions that fit.
        keep: Fields that are never shortened: the goal or lists.
        earlier_decisions: The number of decisions that are not in ``baton``, to be counted on the page.

    Returns:
        Markdown that ends with a newline.

    Raises:
        ValueError: ``max_tokens`` is below 128.
        PromptTooLargeError: The fields in ``keep`` do not fit.

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
        shortened = (
            page.cut(max_tokens)
            or page.remove_lines(excess, estimator)
            or page.narrow(MIN_LINE_WIDTH)
            or page.drop_section()
            or page.narrow(1)
        )
        if not shortened:
            break
        text = page.text()
    if keep and estimator(text) > max_tokens:
        raise PromptTooLargeError(page.needed(estimator), max_tokens)
    return text


def conversation(summary: str, turns: Sequence[Turn]) -> str:
    """Return a conversation as inert markdown: one line for each turn and each line of the summary."""
    rows: list[str] = []
    if summary:
        rows += ["**Earlier Conversation (summary):**"]
        rows += [f"- {single_line(line)}" for line in summary.splitlines() if line.strip()]
    if turns:
        rows += ["**Conversation:**"]
        rows += ["- " + single_line(f"{turn.role or 'agent'}: {turn.content}") for turn in turns]
    return "\n".join([*rows, ""])


def _sections(baton: Baton, emphasis: frozenset[str], earlier_decisions: int) -> dict[str, _Section]:
    """Return the non-empty sections in page order."""
    sections = {}
    for name, label, floor in _LAYOUT:
        lines = [_render_item(item) for item in getattr(baton, name)]
        newest = name == "decision_log"
        limit = DECISIONS_SHOWN if newest and name not in emphasis else len(lines)
        beyond = earlier_decisions if newest else 0
        sections[name] = _Section(label, lines, min(limit, len(lines)), min(floor, len(lines)), newest, beyond)
    additional = {name: value for name, value in baton.to_json_object().items() if name not in Baton.FIELDS}
    for name in sorted(additional):
        lines = _render_field(additional[name])
        sections[name] = _Section(single_line(name.replace("_", " ").title()), lines, len(lines), 0)
    return {name: section for name, section in sections.items() if section.lines or section.beyond}


def _render_field(value: Any) -> list[str]:
    """Return the lines of an additional field: a JSON list, object or single value."""
    if value is None or value in ("", [], {}):
        return []
    if isinstance(value, dict):
        return [single_line(f"{key}: {_render_value(entry)}") for key, entry in value.items()]
    return [single_line(_render_value(item)) for item in (value if isinstance(value, list) else [value])]


def _render_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _render_item(item: Any) -> str:
    if not isinstance(item, ArtifactRef):
        return single_line(str(item))
    notes = [note for note in (item.path, item.summary) if note]
    about = f" — {': '.join(notes)}" if notes else ""
    return single_line(f"{item.id} ({item.type}, {item.short_hash}...){about}")


def _cut(line: str, width: int) -> str:
    """Cut a line to about ``width`` characters, with an ellipsis and, if there is room, both lengths."""
    if len(line) <= width:
        return line
    lengths = f" ({width - 1:,} of {len(line):,} characters)" if width >= _MIN_ANNOTATED_WIDTH else ""
    return f"{line[: width - 1].rstrip()}…{lengths}"
