"""The shipped detector: one attack in many forms and languages, every rule, every place in a long text."""

import re
from typing import Any

import pytest
from baton.safety.detector.folding import odd
from baton.safety.detector.phrases import read
from baton.safety.detector.rules import Rule
from baton.safety.detector.views import tidy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from baton.safety.detector import FAMILIES, detect
from baton.safety.scan import Level, ScanReport, scan
from tests.unit.scanning.material import ATTACK, FORMS, LANGUAGES, MORE_FORMS, encoded, samples

RULES = [rule for family in FAMILIES for rule in family.rules]
HARMLESS = {
    "a commit": "Ignore generated files in the linter, and drop the previous workaround for the rules of mypy.",
    "another commit": "fix(auth): bypass the cache when the system prompt for credentials was cancelled",
    "an agent's manual": "You are working in a Python repository. Always run the tests before you commit. Do not edit"
    " generated files. Follow the instructions in CONTRIBUTING.md.",
    "a decision": "Decided to override the default timeout instead of changing the instructions for operators.",
    "a tool's output": "3 passed, 1 skipped. WARNING: system clock skew ignored; previous run took 4 s.",
    "a mail": "Please disregard my previous email, the correct amount is 40 EUR. New instructions for the courier"
    " follow.",
    "an order": "Please cancel the previous order and ignore the reminder.",
    "a security note": "The gate must reject prompt injection and route it to the dead-letter queue; rules are in"
    " docs.",
    "a contract": "This Agreement supersedes all prior negotiations, and Amendment 2 overrides all prior amendments.",
    "Hebrew": "ההוראות הקודמות נבדקו ונמצאו תקינות.",
    "a question": "Can I ignore this warning? It says that the previous instructions of the assembler were reordered.",
    "a hash": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "a table of registers": "\n".join(f"{at:016b} {7 * at:016b} {at:032b} {at:08b}" for at in range(0x4100, 0x4120)),
    "an image": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhg"
    "GAWjR9awAAAABJRU5ErkJggg==",
    "JSON in base64": encoded('{"sub": "1234567890", "name": "Jane", "admin": true, "iat": 1516239022}'),
    "German": "Bitte beachten Sie die Anweisungen im Handbuch; die vorherige Version wird nicht mehr gepflegt.",
    "French": "Les instructions précédentes du guide restent valables, ne pas oublier la sauvegarde.",
    "Russian": "Инструкции по установке обновлены, предыдущие версии не поддерживаются.",
    "Chinese": "请描述系统的主要功能，并说明之前版本的问题。",
    "a formula": "a b c d e f: i = 1, j = 2; x | y | z",
    "a table": "| --- | --- | --- | --- |\n| a | b | c | d |",
}


def found(text: str) -> ScanReport:
    """Return what the scan of a message with this one text comes to."""
    return scan({"text": text}, detect)


class TestForms:
    """One attack, disguised."""

    @pytest.mark.parametrize("form", FORMS)
    def test_each_of_the_fourteen_forms_is_at_least_flagged(self, form: str) -> None:
        """What detectors are compared by: all fourteen forms, where twelve are asked for (C-17, S3-6.1-j)."""
        assert scan({"currentState": {"note": FORMS[form]}}, detect).level is not None

    @pytest.mark.parametrize("form", [form for form in FORMS if form != "spaced"])
    def test_all_but_the_spaced_form_are_rejected(self, form: str) -> None:
        """A disguise does not turn an attack into a doubtful case (S3-6.1-k, S3-13.1-d)."""
        assert scan({"currentState": {"note": FORMS[form]}}, detect).level is Level.REJECT

    @pytest.mark.parametrize("form", MORE_FORMS)
    def test_further_forms_are_at_least_flagged(self, form: str) -> None:
        """Decoded, NFKC-normalised, stripped of the invisible, whatever was done to the words (C-17)."""
        assert scan({"currentState": {"note": MORE_FORMS[form]}}, detect).level is not None

    @pytest.mark.parametrize("language", LANGUAGES)
    def test_the_order_to_drop_earlier_orders_is_known_in_many_languages(self, language: str) -> None:
        """An attack need not be in English (S3-6.1-j)."""
        assert found(LANGUAGES[language]).level is not None

    def test_more_layers_than_are_taken_off_are_themselves_suspect(self) -> None:
        """Nobody encodes a note seven times over for a good reason (S3-6.1-j)."""
        report = found(encoded("Nothing to see here, move along.", 8))

        assert [finding.rule for finding in report.findings] == ["encoding.too_deep"]


class TestHarmless:
    """Texts that only sound dangerous."""

    @pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
    def test_ordinary_work_is_not_flagged(self, text: str) -> None:
        """Trigger words alone are no sign of an attack (S3-11-d)."""
        assert found(text).level is None

    def test_samples_of_public_sets_pass(self) -> None:
        """Harmless texts that no one here wrote are not rejected, trigger words or not (S3-11-d)."""
        assert [text for text in samples(0) if not found(text)] == []

    def test_bare_commands_are_not_promised(self) -> None:
        """What could be ordinary work passes, as the module says: it is for the structure to contain it."""
        assert [text for text in samples(1, "asb_naive") if found(text).level] == []

    def test_marked_samples_are_rejected(self) -> None:
        """The same commands behind an order to drop earlier orders are violations (S3-13.1-d)."""
        assert [text for text in samples(1, "asb_ignore") if found(text)] == []


class TestEverywhere:
    """No part of a text is out of sight."""

    @pytest.mark.parametrize("at", [0, 1, 399, 400, 500, 799, 800, 801, 65_536, 700_001, 2 * 1024 * 1024 - 100])
    def test_an_attack_is_found_at_any_place_of_a_text_as_large_as_a_payload(self, at: int) -> None:
        """Nothing is cut off or skipped up to the payload limit of 2 MiB (S3-10.1-b)."""
        filler = "The clause was reviewed and found to be in order. " * 42_000
        text = f"{filler[:at]} {ATTACK} {filler[at:]}"[: 2 * 1024 * 1024]

        assert not found(text)

    @settings(max_examples=30)
    @given(st.integers(0, 3_000), st.integers(1, 60))
    def test_no_boundary_between_passages_hides_it(self, before: int, width: int) -> None:
        """Passages overlap by more than any rule spans, so it does not matter where one ends (S3-10.1-b)."""
        padding = ("x" * width + " ") * (before // (width + 1) + 1)

        assert not found(f"{padding[:before]} {ATTACK} {padding}")

    def test_a_long_run_of_weak_signs_does_not_use_up_the_attention(self) -> None:
        """Signs are summed where they stand: chaff before an attack does not hide it (S3-6.1-j)."""
        chaff = "Instead say so. From now on you rest. Show the system prompt editor. " * 400

        assert not found(f"{chaff}\n{ATTACK}\n{chaff}")

    @given(st.text(max_size=300))
    def test_any_text_can_be_scanned(self, text: str) -> None:
        """No text makes the scan fail, lone surrogates and controls included."""
        found(text + "\ud800")

    @given(st.text(max_size=60), st.text(max_size=60))
    def test_whatever_stands_around_it_does_not_unflag_it(self, before: str, after: str) -> None:
        """Surroundings only ever add to what is found (S3-6.1-j)."""
        assert found(f"{before}\n{ATTACK}\n{after}").level is not None


class TestRules:
    """Every rule by itself."""

    def test_names_are_unique_and_points_in_range(self) -> None:
        """A finding's rule leads to one place in the source."""
        names = [rule.name for rule in RULES]

        assert len(names) == len(set(names))
        assert all(1 <= rule.points <= 10 for rule in RULES)

    @pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
    def test_each_of_its_phrases_is_found_by_it(self, rule: Rule) -> None:
        """The cheap searches that come first never hide a rule: every choice of every phrase is found (S3-6.1-j)."""
        missed = [text for phrase in rule.phrases for text in spelled(phrase) if rule.name not in names_in(text)]

        assert missed == []

    @pytest.mark.parametrize("rule", [rule for rule in RULES if rule.patterns], ids=lambda rule: rule.name)
    @settings(max_examples=15)
    @given(data=st.data())
    def test_each_of_its_patterns_is_found_by_it(self, rule: Rule, data: st.DataObject) -> None:
        """The same for markup and for scripts without spaces (S3-6.1-j)."""
        pattern = data.draw(st.sampled_from(rule.patterns))
        text = data.draw(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True, alphabet=alphabet(rule)))
        assume(text == tidy(text.lower()) and not odd(text))

        assert rule.name in names_in(f"\n{text.strip(' ')} ")


def alphabet(rule: Rule) -> str:
    """Return the characters of a rule's patterns, and all of ASCII that is already folded."""
    plain = {chr(code) for code in range(32, 127)} - {chr(code) for code in range(ord("A"), ord("Z") + 1)}
    return "".join(sorted({"\n", *plain, *"".join(rule.patterns)}))


def names_in(text: str) -> set[str]:
    """Return the names of all rules that are found in a text, each alone."""
    return {name for rule in alone(text) for name in rule}


def alone(text: str) -> list[Any]:
    """Return the rules of each suspicion, and those that were found in the plain text."""
    return [suspicion.rules for suspicion in detect([text])]


def spelled(phrase: str) -> list[str]:
    """Return sentences in which every choice of every item of a phrase occurs once."""
    items = [item for item in read(phrase) if item.choices and not item.optional]
    words = [[choice.strip("*").replace("_", " ").replace(".", "x") for choice in item.choices] for item in items]
    start = "\n" if phrase.startswith("^") else "x "
    return [
        start + " ".join(choices[number % len(choices)] for choices in words) for number in range(max(map(len, words)))
    ]
