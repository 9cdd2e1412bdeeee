"""Context compression: old turns give way to a summary before a handoff outgrows its receiver (EAAPL-MAG006 §6.4).

What is planned here is arithmetic, so it answers alike on every replay. The order when room is short: the summary
gets shorter, then what is kept around a number, then fewer turns stay verbatim, then the newest is cut and says so.
What was decided, demanded, flagged or counted is never dropped; if that alone has no room, no message is built.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any

from pydantic import Field, PlainSerializer

from baton.budget.records import Charge, ChargeKind
from baton.compression.pins import REACHES, pins_of, repinned
from baton.compression.summary import condense, cut_to
from baton.core.history import Spend
from baton.handoff.errors import HandoffError
from baton.handoff.records import Turn
from baton.ledger.recording import RecordedEvent
from baton.wire.records import CompactRecord, Whole
from baton.wire.tokens import TokenEstimator, estimate_tokens
from baton.wire.values import Count

COMPRESS = "baton.compress"
"""The activity that compresses a conversation; it runs only when one grows too long."""
DEFAULT_THRESHOLD = 0.8
"""The share of the receiver's context window above which history is compressed (S3-6.4-a)."""
DEFAULT_KEEP = 5
"""So many of the newest turns stay verbatim (S3-6.4-e)."""
DEFAULT_SUMMARY_TOKENS = 1_000
"""The narrative's most tokens; what is carried word for word comes on top."""
LEAST_SUMMARY_TOKENS = 48
"""The narrative's least room: before it gets less, turns give way."""
LEAST_TURN_TOKENS = 64
"""A turn is not cut to less than this."""

PINNED = "Word for word from the compressed turns:"
"""The line beneath the narrative, above what is carried verbatim."""

_ENDING = re.compile(r"\[Full history compressed — last \d{1,9} turns verbatim below\]\s*\Z")
_MARKS = re.compile(r"\[(?=Full history compressed)|^(?=" + re.escape(PINNED) + "$)", re.MULTILINE)
_HISTORY = ("conversationHistorySummary", "conversationHistoryVerbatim")

Turns = Annotated[
    list[Turn],
    PlainSerializer(lambda turns: [turn.to_json_object() for turn in turns], when_used="json"),
]
"""Turns, written as a handoff writes them: what is absent stays absent."""


class ContextTooLargeError(HandoffError):
    """A message cannot be made to fit its receiver without losing what must not be lost.

    Attributes:
        needed: The fewest tokens it would take.
        allowed: How many there are: the threshold's share of the window.
    """

    def __init__(self, needed: int, allowed: int, window: int, other: int) -> None:
        super().__init__(
            f"the compressed message needs {needed} tokens ({other} of them are no history) and may have {allowed} of "
            f"the receiver's window of {window}: name a receiver with a larger window, or hand on less state"
        )
        self.needed = needed
        self.allowed = allowed


class CompressInput(CompactRecord):
    """What is to be compressed, and for whom.

    Attributes:
        turns: The conversation, oldest turn first.
        window: The receiver's context window in tokens, from its registry entry (C-19).
        other_tokens: What the rest of the message costs; see `other_tokens`.
        summary: The summary that came with the history, of what was before the first turn.
        threshold: The share of the window that the message may fill.
        keep: How many of the newest turns stay verbatim.
        summary_tokens: The most that the narrative may cost.
        upstream: What the call cost whose history this is; a model's summary stays under 5 % of it (S3-9-d).
        event: What to put on record of a summary that was paid for, but for its bill; None: nothing.
    """

    turns: Turns
    window: Whole = Field(ge=1)
    other_tokens: Count = 0
    summary: str = ""
    threshold: float = Field(default=DEFAULT_THRESHOLD, gt=0, le=1)
    keep: Whole = Field(default=DEFAULT_KEEP, ge=1)
    summary_tokens: Whole = Field(default=DEFAULT_SUMMARY_TOKENS, ge=LEAST_SUMMARY_TOKENS)
    upstream: Spend = Spend()
    event: RecordedEvent | None = None

    @property
    def allowed(self) -> int:
        """How many tokens the message may have: the threshold's share of the window, rounded down.

        Example:
            >>> CompressInput(turns=[], window=100, threshold=0.29).allowed
            29
        """
        return int(Decimal(repr(self.threshold)) * self.window)  # 0.29 * 100 is 28.999… in binary

    def tokens(self, counter: TokenEstimator = estimate_tokens) -> int:
        """Return what the whole message costs as it is."""
        turns = sum(turn_tokens(turn, counter) for turn in self.turns)
        return self.other_tokens + turns + counter(_json(self.summary))

    def exceeds(self, counter: TokenEstimator = estimate_tokens) -> bool:
        """Return whether the message must be compressed: it costs strictly more than it may (S3-6.4, C-19)."""
        return self.tokens(counter) > self.allowed


class Compressed(CompactRecord):
    """A history that fits.

    Attributes:
        summary: For `conversationHistorySummary`.
        verbatim: For `conversationHistoryVerbatim`.
        before_tokens: What the whole message cost before.
        after_tokens: What it costs now.
        compressed: Whether anything had to be compressed.
        replaced: How many turns gave way to the summary.
        spend: What the summary cost.
        fallback_reason: Why no model wrote the summary; None if one did, or if nothing was compressed.
        warnings: What people should know: a turn that was cut, a call that cost more than it should.
    """

    summary: str
    verbatim: Turns
    before_tokens: Count
    after_tokens: Count
    compressed: bool = False
    replaced: Count = 0
    spend: Spend = Spend()
    fallback_reason: str | None = None
    warnings: list[str] = Field(default_factory=list)

    def charge(self, id: str) -> Charge:
        """Return the bill for the budget.

        Args:
            id: Names the bill within its reservation.
        """
        return Charge(id=id, kind=ChargeKind.COMPRESSION, spend=self.spend)


@dataclass(frozen=True)
class Plan:
    """What gives way, what stays, and how much room the narrative has.

    Attributes:
        given: What was asked for.
        before_tokens: What the message costs as it is.
        replaced: The turns that are summarised, the oldest first.
        verbatim: The turns that stay.
        pinned: What is carried word for word.
        narrative_tokens: The most that the narrative may cost.
        cut: Whether the one turn that stays had to be cut.
    """

    given: CompressInput
    before_tokens: int
    replaced: Sequence[Turn]
    verbatim: Sequence[Turn]
    pinned: Sequence[str]
    narrative_tokens: int
    cut: bool = False

    @property
    def earlier(self) -> str:
        """The narrative that came with the history."""
        return read_summary(self.given.summary)[0]

    def extract(self, counter: TokenEstimator = estimate_tokens) -> str:
        """Return a narrative that no model wrote: the sentences that say most (`baton.compression.summary`)."""
        before = [Turn(content=self.earlier)] if self.earlier else []
        turns = [*before, *self.replaced]
        found = condense(turns, max_tokens=self.narrative_tokens, counter=counter, leave_out=self.pinned)
        found = found or condense(turns, max_tokens=self.narrative_tokens, counter=counter)
        return found or "Nothing was said in words."

    def finish(self, narrative: str, counter: TokenEstimator = estimate_tokens) -> Compressed:
        """Return the compressed history, with a narrative that is cut if it is longer than it may be.

        Args:
            narrative: What a model or `extract` wrote.
            counter: Counts the tokens of a text.

        Raises:
            ContextTooLargeError: The counter finds more in the whole than in its parts, and no room for it.
        """
        given, room = self.given, self.narrative_tokens
        plain = _MARKS.sub(lambda mark: "(" if mark[0] else "> ", narrative.strip())
        kept = given.other_tokens + sum(turn_tokens(turn, counter) for turn in self.verbatim)
        while True:
            summary = write_summary(cut_to(plain, room, counter), self.pinned, len(self.verbatim))
            after = kept + counter(_json(summary))
            if after <= given.allowed:
                break
            if room == 0:
                raise ContextTooLargeError(after, given.allowed, given.window, given.other_tokens)
            room = max(0, min(room, counter(plain)) - (after - given.allowed))
        return Compressed(
            summary=summary,
            verbatim=list(self.verbatim),
            before_tokens=self.before_tokens,
            after_tokens=after,
            compressed=True,
            replaced=len(self.replaced),
            warnings=["the newest turn was cut: it does not fit the receiver's window"] if self.cut else [],
        )


def plan(given: CompressInput, counter: TokenEstimator = estimate_tokens) -> Plan | None:
    """Return how a history is compressed, or None if it need not be: the threshold is not exceeded (C-19).

    Exceeded is strictly more than the threshold's share of the receiver's window. Then all but the newest turns
    give way, not only as many as must: the next handoff should not have to compress again.

    Args:
        given: What is to be compressed.
        counter: Counts the tokens of a text; it should not find less in a whole than in its parts.

    Returns:
        The plan.

    Raises:
        ContextTooLargeError: It would not fit even with the newest turn cut.

    Example:
        >>> talk = [Turn(content=f"Step {n}: " + "We looked at the page. " * 9) for n in range(9)]
        >>> made = plan(CompressInput(turns=talk, window=600))
        >>> len(made.replaced), len(made.verbatim), made.pinned[0]
        (4, 5, 'Step 0: We looked at the page.')
    """
    costs = [turn_tokens(turn, counter) for turn in given.turns]
    before = given.other_tokens + sum(costs) + counter(_json(given.summary))
    if before <= given.allowed:
        return None
    pins = _Pins(given, counter)
    frame = counter(_json(write_summary("", ["x"], len(costs))))
    room = given.allowed - given.other_tokens - frame
    staying = [0, *accumulate(reversed(costs))]
    for keep in range(min(given.keep, len(costs)), 0, -1) if costs else (0,):
        older = len(costs) - keep
        for reach in REACHES:
            left = room - staying[keep] - pins.tokens(reach)[older]
            if left >= LEAST_SUMMARY_TOKENS:
                turns = given.turns
                return Plan(
                    given,
                    before,
                    turns[:older],
                    turns[older:],
                    pins.upto(older, reach),
                    min(left, given.summary_tokens),
                )
    least = _least_turn(given.turns[-1], counter) if costs else 0
    for reach in REACHES if costs else ():
        left = room - pins.tokens(reach)[len(costs)] - LEAST_SUMMARY_TOKENS
        newest = cut_turn(given.turns[-1], left, counter) if left >= least else None
        if newest:
            pinned = pins.upto(len(costs), reach)
            return Plan(given, before, given.turns, [newest], pinned, LEAST_SUMMARY_TOKENS, cut=True)
    needed = given.allowed - room + pins.tokens(REACHES[-1])[len(costs)] + LEAST_SUMMARY_TOKENS + least
    raise ContextTooLargeError(needed, given.allowed, given.window, given.other_tokens)


class _Pins:
    """What is pinned of the first turns of a history, and what that costs, for any number of turns at once."""

    def __init__(self, given: CompressInput, counter: TokenEstimator) -> None:
        self._given, self._counter = given, counter
        self._tokens: dict[int | None, list[int]] = {}
        self._lines: dict[int | None, list[list[str]]] = {}

    @cached_property
    def _found(self) -> list[list[Any]]:
        """The pins of the summary that came with the history, then those of each turn."""
        narrative, carried = read_summary(self._given.summary)
        # A narrative above pins has nothing that is not pinned; a summary without any may be another agent's.
        before = [repinned(line) for line in carried] if carried else pins_of(narrative)
        return [list(before), *(pins_of(turn.content) for turn in self._given.turns)]

    def tokens(self, reach: int | None) -> list[int]:
        """Return what the pins of no turn, of the first one, of the first two … cost at a reach."""
        if reach not in self._tokens:
            said: set[str] = set()
            self._lines[reach] = []
            for pins in self._found:
                lines = dict.fromkeys(pin.within(reach) for pin in pins)
                self._lines[reach].append([line for line in lines if line not in said])
                said.update(lines)
            costs = (sum(self._counter(_json(f"- {line}\n")) for line in lines) for lines in self._lines[reach])
            self._tokens[reach] = list(accumulate(costs))
        return self._tokens[reach]

    def upto(self, turns: int, reach: int | None) -> list[str]:
        """Return the pins of the first turns at a reach, each line once."""
        self.tokens(reach)
        return [line for lines in self._lines[reach][: turns + 1] for line in lines]


def write_summary(narrative: str, pinned: Sequence[str], verbatim: int) -> str:
    """Return the text of `conversationHistorySummary`: the narrative, what is pinned, and what follows (C-18).

    Example:
        >>> print(write_summary("They talked.", ["We chose Postgres."], 3))
        They talked.
        <BLANKLINE>
        Word for word from the compressed turns:
        - We chose Postgres.
        <BLANKLINE>
        [Full history compressed — last 3 turns verbatim below]
    """
    beneath = [f"{PINNED}\n" + "\n".join(f"- {line}" for line in pinned)] if pinned else []
    parts = [narrative, *beneath, f"[Full history compressed — last {verbatim} turns verbatim below]"]
    return "\n\n".join(part for part in parts if part)


def read_summary(summary: str) -> tuple[str, list[str]]:
    """Return the narrative of a summary, and the lines that were carried word for word beneath it.

    Args:
        summary: A `conversationHistorySummary`, of this or of another builder.

    Example:
        >>> read_summary(write_summary("They talked.", ["We chose Postgres."], 3))
        ('They talked.', ['We chose Postgres.'])
    """
    body = _ENDING.sub("", summary).strip()
    above, heading, beneath = f"\n{body}\n".rpartition(f"\n{PINNED}\n")
    if not heading:
        return body, []
    return above.strip(), [line[2:] for line in beneath.split("\n") if line.startswith("- ")]


def cut_turn(turn: Turn, max_tokens: int, counter: TokenEstimator = estimate_tokens) -> Turn | None:
    r"""Return a turn with the middle of its content left out, so that it costs at most so many tokens.

    Args:
        turn: The turn.
        max_tokens: What it may cost, its role and further members included.
        counter: Counts the tokens of a text.

    Returns:
        The turn; None if it cannot be cut so far.

    Example:
        >>> cut_turn(Turn(content="abcdefghij" * 40), 30).content
        'abcdefghijabcdefghijabcdefghijabcdefghijabcdefg\n[… about 74 tokens cut …]\nhijabcdefghijabcdefghij'
    """
    whole = turn_tokens(turn, counter)
    cost, length, shorter = whole, len(turn.content), turn
    while cost > max_tokens:
        length = min(length - 1, length * max_tokens // cost)
        if length <= 0:
            return None
        shorter = _without_middle(turn, length, whole - max_tokens)
        cost = turn_tokens(shorter, counter)
    return shorter


def _without_middle(turn: Turn, length: int, tokens: int) -> Turn:
    """Return a turn of whose content two parts are left, the first twice as long as the last."""
    tail = length // 3
    mark = f"\n[… about {tokens} tokens cut …]\n"
    content = turn.content[: length - tail] + mark + turn.content[len(turn.content) - tail :]
    return turn.model_copy(update={"content": content})


def _least_turn(turn: Turn, counter: TokenEstimator) -> int:
    """Return the fewest tokens to which a turn may be cut."""
    return max(LEAST_TURN_TOKENS, turn_tokens(_without_middle(turn, 1, turn_tokens(turn, counter)), counter))


def turn_tokens(turn: Turn, counter: TokenEstimator = estimate_tokens) -> int:
    """Return what a turn costs as it stands in a message, the comma after it included."""
    return counter(_json(turn.to_json_object()) + ",")


def other_tokens(message: Mapping[str, Any], counter: TokenEstimator = estimate_tokens) -> int:
    """Return what a message costs without its history.

    Args:
        message: A handoff as a JSON object.
        counter: Counts the tokens of a text.

    Example:
        >>> other_tokens({"taskId": "t", "conversationHistoryVerbatim": [{"content": "x" * 999}]})
        4
    """
    return counter(_json({name: value for name, value in message.items() if name not in _HISTORY}))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
