"""The summariser that needs no model: the sentences that say most, word for word, within a budget of tokens.

The same turns always give the same summary, at no cost. It is what stands in when there is no model, when a model
fails, and when it would cost too much (EAAPL-MAG006 §6.4, §9).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from baton.compression.sentences import sentences
from baton.handoff.records import Turn
from baton.wire.tokens import TokenEstimator, estimate_tokens

_TELLING = re.compile(r"[^\W\d_]{4,40}")  # short words are mostly articles and the like, in every language
_FEWEST_WORDS = 4


class _Candidate(NamedTuple):
    """A sentence that may stand in the summary.

    Attributes:
        turn: The number of its turn.
        place: Its place among all sentences.
        text: The sentence.
        words: Its telling words, each once.
    """

    turn: int
    place: int
    text: str
    words: frozenset[str]


def condense(
    turns: Sequence[Turn],
    *,
    max_tokens: int,
    counter: TokenEstimator = estimate_tokens,
    leave_out: Iterable[str] = (),
) -> str:
    """Return the sentences that say most about turns, in their order, one line for each turn that has one.

    A sentence says much if its words are often used in all the turns together. The best sentence of every turn
    comes before the second best of any, so that the summary speaks of the whole time and not of one hour.

    Args:
        turns: What is to be summarised.
        max_tokens: What the summary may cost.
        counter: Counts the tokens of a text.
        leave_out: Sentences that stand elsewhere already.

    Returns:
        The summary; empty only if the turns are, or if what they say is left out, or nothing has room.

    Example:
        >>> talk = [Turn(role="user", content="The login page needs tests. Thanks. The login page is slow.")]
        >>> condense(talk, max_tokens=10)
        'user: The login page needs tests.'
    """
    ranked = _ranked(_candidates(turns, frozenset(leave_out)))
    chosen: list[_Candidate] = []
    spoken: set[int] = set()
    left = max_tokens
    for one in ranked:
        cost = counter(one.text + " ") + (0 if one.turn in spoken else counter(_speaker(turns[one.turn]) + "\n"))
        if cost <= left:
            left -= cost
            chosen.append(one)
            spoken.add(one.turn)
    if not chosen and ranked:
        return cut_to(_speaker(turns[ranked[0].turn]) + ranked[0].text, max_tokens, counter)
    by_turn: dict[int, list[str]] = {}
    for one in sorted(chosen, key=lambda one: one.place):
        by_turn.setdefault(one.turn, []).append(one.text)
    return "\n".join(_speaker(turns[turn]) + " ".join(texts) for turn, texts in by_turn.items())


def cut_to(text: str, max_tokens: int, counter: TokenEstimator = estimate_tokens) -> str:
    """Return a text that costs at most so many tokens, cut at its end and saying so by `…`.

    Args:
        text: Any text.
        max_tokens: What it may cost, from 0.
        counter: Counts the tokens of a text.

    Example:
        >>> cut_to("one two three four", 3)
        'one two…'
    """
    cost = counter(text)
    if cost <= max_tokens:
        return text
    length = len(text)
    while length and cost > max_tokens:
        length = min(length - 1, length * max_tokens // cost)
        cost = counter(text[:length] + "…")
    return text[:length].rstrip() + "…" if length else ""


def _speaker(turn: Turn) -> str:
    return f"{turn.role}: " if turn.role else ""


def _candidates(turns: Sequence[Turn], left_out: frozenset[str]) -> list[_Candidate]:
    """Return the sentences of turns; what was said before in the same words, and what is left out, is none."""
    found: list[_Candidate] = []
    said: set[str] = set()
    for number, turn in enumerate(turns):
        for sentence in sentences(turn.content):
            folded = sentence.casefold()
            if sentence not in left_out and folded not in said:
                said.add(folded)
                found.append(_Candidate(number, len(found), sentence, frozenset(_TELLING.findall(folded))))
    return found


def _ranked(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return sentences with what should be said first at the front."""
    often = Counter(word for one in candidates for word in one.words)

    def weight(one: _Candidate) -> float:
        if not one.words:
            return 0.0
        mean = sum(often[word] for word in one.words) / len(one.words)
        return mean * min(1.0, len(one.words) / _FEWEST_WORDS)

    heaviest = sorted(candidates, key=lambda one: (-weight(one), one.place))
    seen: Counter[int] = Counter()
    rounds: dict[int, int] = {}
    for one in heaviest:
        rounds[one.place] = seen[one.turn]
        seen[one.turn] += 1
    return sorted(heaviest, key=lambda one: rounds[one.place])
