"""Patterns that are searched for in linear time, whatever the text.

Python's `re` backtracks: one pattern too many and 64 KiB of line breaks take half a minute (measured on a
published scanner). The engine that pydantic brings for its own `pattern` constraint, Rust's `regex`, is built
on finite automata: its documentation guarantees a time in O(pattern x text) for every search. It is also some
hundred times faster on a text in which nothing is found, which is what almost every handoff is. The price: it
says whether a pattern occurs and not where, and it knows no look-around. Rules are written with that in mind,
and a place is found by searching smaller and smaller pieces.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pydantic_core import SchemaValidator, core_schema

Search = Callable[[str], bool]
"""Says whether a pattern occurs in a text. The text must hold no lone surrogate: none would be searched."""


@cache
def automaton(pattern: str) -> Search:
    r"""Return a search for ``pattern``, compiled once for the process.

    Args:
        pattern: In the syntax of Rust's `regex` crate: no look-around, no back-references; `(?-u:\b)` for a
            word boundary, because the Unicode one leaves the fast engine.

    Raises:
        pydantic_core.SchemaError: The pattern is malformed, or its automaton would be too large.

    Example:
        >>> automaton("a{3}b")("aaaab"), automaton("a{3}b")("aab")
        (True, False)
    """
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python


def any_of(patterns: Iterable[str]) -> str:
    """Return the pattern that occurs where any of ``patterns`` does.

    Example:
        >>> any_of(["a", "b|c"])
        '(?:a|b|c)'
    """
    return f"(?:{'|'.join(patterns)})"


def one_of(patterns: Iterable[str]) -> Search:
    """Return a search that finds something where one of the patterns occurs, each looked for by itself.

    In one automaton patterns may multiply each other's states, which then fit no cache.

    Args:
        patterns: As for `automaton`.

    Example:
        >>> one_of(["a{3}b", "c"])("aac")
        True
    """
    searches = [automaton(pattern) for pattern in patterns]

    def search(text: str) -> bool:
        for one in searches:  # noqa: SIM110 - a generator would cost as much as a search that finds nothing
            if one(text):
                return True
        return False

    return search


def others_than(words: Collection[str], classes: Sequence[str]) -> str:
    """Return the pattern for one character of each class, but for some words.

    Args:
        words: Words of so many characters; longer and shorter ones have no effect.
        classes: Each the characters that may stand in its place.

    Raises:
        ValueError: Nothing is left.

    Example:
        >>> others_than(["k8s"], ["jk", "78", "st"])
        '(?:[j][78][st]|k[7][st]|k8[t])'
    """
    ways = [*_other_ways([word for word in words if len(word) == len(classes)], classes)]
    if not ways:
        raise ValueError(f"the words are all that {len(classes)} characters of these classes spell")
    return any_of(ways)


def branching(words: Iterable[Iterable[str]]) -> str:
    """Return the pattern for a choice of words that share their beginnings, as a tree does.

    An automaton for a thousand words one beside the other drags all of them along at every letter; for the tree
    it drags a few.

    Args:
        words: Each a sequence of letters and patterns; what is longer than one character is taken as a pattern.

    Example:
        >>> branching(["act", "as", "ask", ["b", "[xy]+", "c"]])
        '(?:a(?:ct|s(?:k)?)|b[xy]+c)'
    """
    root: dict[str, Any] = {}
    for word in words:
        node = root
        for letter in word:
            node = node.setdefault(letter if len(letter) > 1 else re.escape(letter), {})
        node[""] = {}
    return _branches(root)


def _other_ways(words: Collection[str], classes: Sequence[str]) -> Iterator[str]:
    """Yield the patterns of `others_than`."""
    if not words:
        yield "".join(f"[{re.escape(each)}]" for each in classes)
    elif classes:
        first, *further = classes
        begun = sorted({word[0] for word in words}.intersection(first))
        if free := [sign for sign in first if sign not in begun]:
            yield from _other_ways((), ["".join(free), *further])
        for sign in begun:
            same = [word[1:] for word in words if word[0] == sign]
            yield from (re.escape(sign) + way for way in _other_ways(same, further))


def _branches(node: dict[str, Any]) -> str:
    """Return the pattern below a node of the tree."""
    ways = [letter + _branches(below) for letter, below in node.items() if letter]
    if not ways:
        return ""
    if len(ways) == 1 and "" not in node:
        return ways[0]
    return any_of(ways) + ("?" if "" in node else "")
