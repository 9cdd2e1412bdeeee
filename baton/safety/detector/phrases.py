r"""The little language in which rules are written: a phrase of words, choices and gaps, made into a pattern.

| written | means |
|---|---|
| `ignore` | that word; `don't` also without its apostrophe, or with a curly one |
| `instruct*` | a word that begins so: instruct, instructions, instructed |
| `(above\|prior\|ci_dessus)` | one of them; `_` stands for the space between two words |
| `your?` | the item may be missing |
| `~3` | up to three words of any kind |
| `^ignore` | the phrase begins a sentence: after a line break, a full stop, or polite words |
| `!forget` | what the phrase is looked for by first: this item, or all from the first so marked to the last |

Between two words stands any run of blanks and signs. Accents may be written but do not count: Latin phrases are
looked for in text that has lost them. Phrases are for scripts that put spaces between words; rules for Chinese
or Japanese are patterns.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from baton.safety.detector.automata import branching
from baton.safety.detector.folding import without_accents

_EDGE = r"(?-u:\b)"
_TELLING = 5
"""Shorter words occur by chance where words have no ends."""
# A quotation mark, a bullet or a back-quote before the words makes them a mention, which counts for less.
_START = (
    r"[\n.!?:;](?:[ \t\n>*_#\]|]{0,12}|[ ]*[-–—=*#]{3,} ?)"
    r"(?:(?:please|now|and|so|but|then|ok|okay|hey|just|kindly|first|actually|instead|also|simply|wait|stop|"
    r"important|attention|note|warning|urgent|you (?:must|should|will|need to|have to|can)|"
    r"i (?:want|need|order|command) you to|bitte|jetzt|s'il (?:te|vous) pla[iî]t|por favor|per favore)"
    r"[ ,.!:;\n]{1,3}){0,3}"
)
_ITEM = re.compile(r"(!?)(?:\(([^()]*)\)|~(\d+)|([^\s()?~^!]+))(\??)(?:\s+|$)")


@dataclass(frozen=True, slots=True)
class Alphabet:
    """What words are made of, and what stands between them.

    Attributes:
        word: The pattern for a letter or digit.
        between: The pattern for blanks and signs.
    """

    word: str
    between: str


LATIN = Alphabet("[0-9a-z]", r"[\x00-/:-`{-\x7f]+")
"""For text that `baton.safety.detector.folding.latin` has brought down to ASCII."""

CYRILLIC = Alphabet("[0-9a-zа-џґ]", r"[\x00-/:-`{-¿\u{2000}-\u{206f}\u{2190}-\u{2bff}\u{fffd}\u{1f000}-\u{1faff}]+")
"""For text in its own script."""


@dataclass(frozen=True, slots=True)
class Item:
    """One part of a phrase.

    Attributes:
        choices: The words it may be, as written; empty for a gap.
        gap: Of a gap, the most words it may hold.
        optional: Whether it may be missing.
        core: Whether it is marked as part of the core.
    """

    choices: tuple[str, ...] = ()
    gap: int = 0
    optional: bool = False
    core: bool = False


def one_of(words: str) -> str:
    """Return the choice between the words of a list.

    Example:
        >>> one_of("ignor* forget set_aside")
        '(ignor*|forget|set_aside)'
    """
    return f"({'|'.join(words.split())})"


def misspelt(word: str) -> str:
    """Return a word with all its misspellings by one letter, the first letter excepted, for `one_of`.

    ``.`` stands for any letter.

    Example:
        >>> misspelt("tie*")
        'tie* te* t.ie* t.e* ti* ti.e* ti.* tei*'
    """
    stem, ending = word.removesuffix("*"), "*" * word.endswith("*")
    forms = [stem]
    for at in range(1, len(stem)):
        head, letter, tail = stem[:at], stem[at], stem[at + 1 :]
        forms += [head + tail, f"{head}.{letter}{tail}", f"{head}.{tail}"]
    forms += [stem[:at] + stem[at + 1] + stem[at] + stem[at + 2 :] for at in range(1, len(stem) - 1)]
    return " ".join(f"{form}{ending}" for form in dict.fromkeys(forms))


def read(phrase: str) -> list[Item]:
    """Return the parts of a phrase, without the sign that it begins a sentence.

    Raises:
        ValueError: The phrase is malformed, begins or ends with something that may be missing, or has no core.

    Example:
        >>> [item.choices or item.gap for item in read("!forget ~2 (rules|orders)")]
        [('forget',), 2, ('rules', 'orders')]
    """
    items, at = [], int(phrase.startswith("^"))
    while at < len(phrase):
        found = _ITEM.match(phrase, at)
        if not found:
            raise ValueError(f"phrase {phrase!r}: cannot read {phrase[at:]!r}; see the table in this module")
        core, group, gap, word, optional = found.groups()
        choices = () if gap else tuple((group or word or "").split("|"))
        items.append(Item(choices, int(gap or 0), bool(optional), bool(core)))
        at = found.end()
    if not items or any(item.optional or item.gap for item in (items[0], items[-1])):
        raise ValueError(f"phrase {phrase!r} begins or ends with something that may be missing; leave that out")
    heart = _core(items)
    if not heart or heart[0].optional or heart[-1].optional or any(item.gap for item in heart):
        raise ValueError(f"phrase {phrase!r} needs a core: put ! before its rarest words, with no ~ between them")
    return items


def pattern(phrase: str, alphabet: Alphabet = LATIN) -> str:
    r"""Return the pattern for a phrase, to be searched for in a text in lower case that begins with a line break.

    Example:
        >>> import re
        >>> bool(re.search(pattern("!ignore ~1 rules").replace("(?-u:", "(?:"), "please ignore these rules"))
        True
    """
    items = read(phrase)
    start = _START if phrase.startswith("^") else _edge(items[0], 0)
    return f"{start}{_joined(items, alphabet)}{_edge(items[-1], -1)}"


def cores(phrase: str, alphabet: Alphabet = LATIN) -> list[list[str]]:
    """Return the ways to begin the core of a phrase, as `branching` takes them: where the phrase is, one of them is.

    Example:
        >>> cores("(do|say) !mind* !(me|him)", Alphabet("[a-z]", " "))
        [['m', 'i', 'n', 'd', '[a-z]*', ' (?:me|him)']]
    """
    first, *rest = _core(read(phrase))
    head = [_EDGE] if alphabet is LATIN else []
    tail = [alphabet.between + _joined(rest, alphabet)] if rest else []
    ways = []
    for choice in first.choices:
        letters = _letters(choice.removesuffix("*"), alphabet)
        if choice.endswith("*"):
            letters += [f"{alphabet.word}*"] if rest else []
        elif not rest and alphabet is LATIN:
            letters.append(_EDGE)
        ways.append(head + letters + tail)
    return ways


def squeezed(phrase: str) -> str:
    """Return the pattern for a phrase in a text of which only letters are left, without their accents.

    A gap becomes up to eight letters for each word it may hold; of the core, only longer words are looked for.

    Example:
        >>> squeezed("!(ignor*|skip) ~1 rules")
        'ignor[a-z]{0,14}rules'
    """
    out, room = "", 0
    for item in read(phrase):
        if item.gap:
            room += 8 * item.gap
            continue
        words = _telling(item) if item.core else [_plain(choice) for choice in item.choices]
        choice = branching(words)
        out += (f"[a-z]{{0,{room}}}" if room else "") + (f"(?:{choice})?" if item.optional else choice)
        room = 6 if any(choice.endswith("*") for choice in item.choices) else 0
    return out


def squeezed_cores(phrase: str) -> list[str]:
    """Return words of which one stands wherever `squeezed` occurs."""
    return _telling(_core(read(phrase))[0])


def _telling(item: Item) -> list[str]:
    """Return the words that are long enough to be told in a row of letters."""
    return [word for choice in item.choices if len(word := _plain(choice)) >= _TELLING]


def _core(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items from the first marked one to the last."""
    marked = [at for at, item in enumerate(items) if item.core]
    return items[marked[0] : marked[-1] + 1] if marked else ()


def _joined(items: Sequence[Item], alphabet: Alphabet) -> str:
    """Return the pattern for items that follow one another."""
    parts: list[str] = []
    for item in items:
        if item.gap:
            parts.append(f"(?:{alphabet.word}+{alphabet.between}){{0,{item.gap}}}")
        elif item.optional:
            parts.append(f"(?:{_choices(item, alphabet)}{alphabet.between})?")
        else:
            parts.append(_choices(item, alphabet) + alphabet.between)
    return "".join(parts).removesuffix(alphabet.between)


def _choices(item: Item, alphabet: Alphabet) -> str:
    """Return the pattern for one of the item's words, as whole words."""
    rest = [f"{alphabet.word}*"]
    return branching(
        _letters(choice.removesuffix("*"), alphabet) + rest * choice.endswith("*") for choice in item.choices
    )


def _letters(words: str, alphabet: Alphabet) -> list[str]:
    """Return the letters of words with ``_`` between them, as `branching` takes them."""
    out: list[str] = []
    for letter in words:
        base = without_accents(letter)
        if letter == "_":
            out.append(alphabet.between)
        elif letter == "'":
            out.append("['` ]?")
        elif letter == ".":
            out.append(alphabet.word)
        elif alphabet is LATIN:
            out += base
        else:
            out.append(f"[{letter}{base}]" if base != letter else letter)
    return out


def _plain(words: str) -> str:
    """Return only the letters of the words, without accents."""
    return "".join(letter for letter in without_accents(words) if letter.isalpha())


def _edge(item: Item, at: int) -> str:
    """Return a word boundary, unless a word's outer letter is one that the boundary does not know."""
    ends = [without_accents(choice)[at] for choice in item.choices]
    return _EDGE if all(end.isascii() and end != "*" for end in ends) else ""
