"""The cheap searches that come first lose nothing: the scan finds what its rules come to, each looked for by itself.

Not drawn is markup padded with blanks or repeated signs: the first pass looks at texts before they are tidied, so what
holds nothing else may pass it.
"""

import string
from collections.abc import Iterator
from itertools import product

import pytest
from baton.safety.detector.automata import any_of, automaton, others_than
from baton.safety.detector.passages import ENOUGH, HIDING, OVERLAP, PASSAGE, STRONG
from baton.safety.detector.phrases import read
from baton.safety.detector.rules import Rule
from baton.safety.detector.views import DISGUISES, Script, View, views
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.safety.detector import FAMILIES, detect
from baton.safety.scan import Category, Level, ScanPolicy, scan
from benchmarks.hostile import hostile_texts
from tests.unit.scanning.material import FORMS, LANGUAGES, MORE_FORMS

RULES = [rule for family in FAMILIES for rule in family.rules]
ATTACKS = [form for form in [*FORMS.values(), *MORE_FORMS.values(), *LANGUAGES.values()] if isinstance(form, str)]
ORDINARY = [
    "CI takes 57 minutes, most of it in the container build that includes i18n/de.json.",
    "The type checker is clean except for 55 ignores in archive.py that predate this work.",
    "Secrets are in the vault and coupons.py reads them at start.",
    "k8s 1.29 and v1beta objects: 3 of 4 pods restart $HOME/l10n!",
    "The clause was reviewed and found to be in order. " * 20,
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "Größe und Gewicht stehen im Anhang.",
]
LEET = str.maketrans("oieast", "013457")
SPOILS = [str.upper, str.title, lambda text: text.translate(LEET), lambda text: text[::-1], lambda text: text[3:]]


def phrases() -> Iterator[str]:
    """Yield every phrase of every rule, in the first of its words."""
    for rule in RULES:
        for phrase in rule.phrases:
            words = (item.choices[0] if item.choices else "now" for item in read(phrase.removeprefix("^")))
            yield " ".join(words).replace("*", "s").replace("_", " ")


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a text of ordinary sentences, attacks, parts of rules, and either of them spoilt."""
    pieces = []
    for _ in range(draw(st.integers(1, 4))):
        piece = draw(st.sampled_from(ORDINARY) | st.sampled_from([*phrases()]) | st.sampled_from(ATTACKS))
        spoil = draw(st.sampled_from(SPOILS) | st.none())
        pieces.append(spoil(piece) if spoil else piece)
    return draw(st.sampled_from([" ", "\n", ". ", ", ", ""])).join(pieces)


def occur(view: View, passage: str) -> list[Rule]:
    """Return the rules that occur in a passage, each looked for by itself, until there are enough."""
    found: list[Rule] = []
    for rule in RULES:
        if view.script is Script.LETTERS:
            here = rule.squeezable and automaton(any_of(rule.squeezed))(passage)
        else:
            here = rule.native is (view.script is Script.NATIVE) and automaton(rule.pattern)(passage)
        if here and sum(one.points for one in found) < ENOUGH:
            found.append(rule)
    return found


def highest(text: str) -> int:
    """Return the highest score that the rules come to in any passage of any spelling of a text."""
    most, in_plain_sight = 0, set[str]()
    for view in views([text]):
        if view.unread:
            most = max(most, STRONG)
            continue
        for begin in range(0, max(1, len(view.whole) - OVERLAP), PASSAGE - OVERLAP):
            rules = occur(view, view.whole[begin : begin + PASSAGE])
            if not view.disguised:
                in_plain_sight.update(rule.name for rule in rules)
            elif in_plain_sight.issuperset(rule.name for rule in rules):
                continue
            groups: dict[str, int] = {}
            for rule in rules:
                groups[rule.group or rule.name] = max(rule.points, groups.get(rule.group or rule.name, 0))
            if groups:
                hidden = (HIDING - (view.script is Script.LETTERS)) * view.disguised
                most = max(most, sum(groups.values()) + hidden)
    return most


@settings(max_examples=150)
@given(texts())
def test_the_scan_scores_what_its_rules_come_to_one_by_one(text: str) -> None:
    """What spares the scan of ordinary work most of its searches hides no attack (S3-6.1-j, S3-10.1-b)."""
    assert max((found.score for found in detect([text])), default=0) == highest(text)


@settings(max_examples=15, deadline=None)
@given(texts(), texts(), st.integers(4, 9))
def test_many_passages_are_scored_as_each_by_itself(often: str, between: str, times: int) -> None:
    """Where many are suspect they are searched together, and what was read in one view is not read again (S3-6.1-j)."""
    text = " ".join(f"{often} {number} {between} {ORDINARY[4]}" for number in range(times))

    assert max((found.score for found in detect([text])), default=0) == highest(text)


@pytest.mark.parametrize("off", Category)
def test_what_is_made_to_be_slow_to_read_is_rejected_with_the_rest_unread(off: Category) -> None:
    """Every passage suspect in more spellings than any work needs; whatever a policy does not look for (S3-6.1-k)."""
    hostile = hostile_texts()["rules between disguises"]
    report = scan({"notes": ["Done.", hostile]}, detect, ScanPolicy(off=[off]))

    assert report.level is Level.REJECT
    assert "disguise.too_many" in {finding.rule for finding in report.findings}
    assert {finding.path for finding in report.findings} == {"/notes/1"}


def test_a_long_text_about_attacks_is_read_whole() -> None:
    """Words of the rules all through it, numbers for letters here and there, are no reason to leave anything unread."""
    text = " ".join(f"{number}. {phrase}, version v1b{number}." for number, phrase in enumerate(phrases()))

    assert len(text) > 10 * PASSAGE
    assert "disguise.too_many" not in {rule for found in detect([text]) for rule in found.rules}


WITH_NUMBERS = ["i18n", "l10n", "a11y", "o11y", "k8s"]


@pytest.mark.parametrize("word", WITH_NUMBERS)
def test_a_word_with_a_number_is_no_disguise_but_what_differs_from_it_is(word: str) -> None:
    """Ordinary words are not undone as leet, and hide no leet beside them (S3-6.1-j)."""
    assert not automaton(DISGUISES)(f" translated in {word}/de.json ")
    for at, sign in product((0, len(word) - 1), string.ascii_lowercase):
        other = word[:at] + sign + word[at + 1 :]
        hexadecimal = {other[0], other[-1]} <= set("abcdef")  # which is left to digests
        assert automaton(DISGUISES)(f" {other} ") is (other not in WITH_NUMBERS and not hexadecimal), other
    assert automaton(DISGUISES)(f"{word}1gn0re")


def test_all_but_some_words_is_just_that() -> None:
    """The pattern for what differs from some words occurs in every other spelling, and in none of theirs."""
    classes, words = ["abc", "0$]", "xy"], ["a0x", "b$y", "b]y", "a0", "q0x"]
    occurs = automaton(others_than(words, classes))
    for signs in product("abcz", "0$]9", "xyz"):
        spelled = "".join(signs)
        made_of_them = all(sign in allowed for sign, allowed in zip(signs, classes, strict=True))
        assert occurs(spelled) is (made_of_them and spelled not in words), spelled
    with pytest.raises(ValueError, match="are all that 1 characters"):
        others_than(["a", "b"], ["ab"])
