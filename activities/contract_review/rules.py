"""Find the words of `rules.toml` in a contract, sentence by sentence, and quote them with their line.

Nothing is judged: that a clause has the words of a cap says neither whose liability it caps nor whether it is too low.
Patterns read the NFKC form of a sentence, which resolves ligatures and full-width digits; quotes are the original
characters. The result is deterministic.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from activities.contract_review.clauses import rulebook
from activities.contract_review.records import Mark, Passage, Report

_ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
_ONES += "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred"
_WORD = "|".join(sorted(_ONES.split(), key=len, reverse=True))
_WORDS = rf"(?:{_WORD})(?:[- ](?:and[- ])?(?:{_WORD})){{0,4}}"
_PERIOD = (
    rf"\b(?:{_WORDS} ?\(\d{{1,4}}\)|\d{{1,4}}|{_WORDS})[- ]"
    r"(?:business |calendar |working |full )?(?:day|week|month|quarter|year)s?\b"
)
_RATE = r"\b\d{1,3}(?:\.\d{1,3})? ?(?:%|per ?cent\b)(?: interest)?(?: (?:per|a|each) (?:day|week|month|year|annum)\b)?"
_SENTENCE_END = re.compile(r"(?<=[.;])(?<!\b[A-Z]\.)\s+(?=[A-Z(“\"])|\s+(?=\((?:[a-z]|[ivx]+)\) )")
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"))
_MAX_QUOTE_LENGTH, _MAX_WORDS_LENGTH = 400, 80


def locate(report: Report) -> Report:
    """Add the passages that have words of the rulebook, and the topics that neither a title nor any words name.

    Words of the topic that a clause's title names are not repeated for its sentences.
    """
    passages = []
    for clause in report.clauses:
        for start, quote in sentences(clause.text):
            if marks := tuple(mark for mark in find_marks(quote) if mark.name != clause.topic):
                passages.append(Passage(clause=clause.id, place=clause.place(start), quote=quote, marks=marks))
    found = {clause.topic for clause in report.clauses} | {mark.name for item in passages for mark in item.marks}
    not_found = tuple(topic for topic in rulebook()["topics"] if topic not in found)
    return report.model_copy(update={"passages": tuple(passages), "not_found": not_found})


def find_marks(quote: str) -> Iterator[Mark]:
    """Yield the words of each topic and sort in a sentence, once each; those of an open list count for nothing else.

    Example:
        >>> [*find_marks("It will survive, including, without limitation, rights of any sort.")]
        [Mark(name='open list', words='including, without limitation')]
    """
    text = normalize(quote)
    for name, regex in _regexes():
        match = regex.search(text)
        if match is not None and match[0].strip():
            yield Mark(name=name, words=match[0].strip()[:_MAX_WORDS_LENGTH])
        if name == "open list":
            text = regex.sub(lambda list_words: "." * len(list_words[0]), text)


def normalize(quote: str) -> str:
    """Return the form of a sentence that patterns read: NFKC, and one kind of dash."""
    return unicodedata.normalize("NFKC", quote).translate(_DASHES)


@cache
def _regexes() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the pattern of each sort of words and of each topic, open lists first."""
    patterns = {**rulebook()["words"], **{topic: words["text"] for topic, words in rulebook()["topics"].items()}}
    return tuple(
        (name, re.compile(pattern.replace("{period}", _PERIOD).replace("{rate}", _RATE), re.IGNORECASE))
        for name, pattern in patterns.items()
    )


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield each sentence of a text with its offset; a long one in pieces of whole words.

    Example:
        >>> list(sentences("On five days' notice. It ends."))
        [(0, "On five days' notice."), (22, 'It ends.')]
    """
    start = 0
    for end in [*(match.start() for match in _SENTENCE_END.finditer(text)), len(text)]:
        while start < end:
            while start < end and text[start].isspace():
                start += 1
            cut = start + _MAX_QUOTE_LENGTH
            stop = end if end <= cut else max(text.rfind(" ", start, cut), start) if " " in text[start:cut] else cut
            if text[start:stop].strip():
                yield start, text[start:stop].strip()
            start = stop
