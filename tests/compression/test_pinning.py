"""What no compression may lose, and how it is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.compression.pins import Pin, PinKind, classify, split_statements


def pins_of(text: str) -> list[Pin]:
    return [pin for pin in split_statements(text) if pin.kind]


SENTENCES: dict[PinKind | None, list[str]] = {
    PinKind.DECISION: [
        "Decision: clause nine stays.",
        "After some talk we chose the smaller supplier.",
        "Let's go with the second draft.",
        "The board rejected the proposal.",
        "Wir haben uns auf Hamburg geeinigt.",
        "Der Vorstand beschließt den Kauf.",
        "Nous avons retenu la deuxième offre.",
        "Il a e\u0301te\u0301 de\u0301cide\u0301 de partir.",
    ],
    PinKind.CONSTRAINT: [
        "maxResponseTokens:2000",
        "scoringFramework: iso31000",
        '"returnJSON": true,',
        "Set `region:eu-west` for all of it",
        "Customer data must stay in Europe.",
        "No calls without approval.",
        "Kundendaten dürfen das Haus nicht verlassen.",
        "Les données ne doivent jamais sortir.",
    ],
    PinKind.FLAG: [
        "Warning, the annex is missing.",
        "Clause four was flagged as potentially unlimited liability.",
        "🚩 nobody signed it",
        "TODO ask the supplier",
        "Vorsicht mit dem Anhang.",
        "Question ouverte sur l'annexe.",
    ],
    PinKind.NUMBER: [
        "The price is $12.50 a head.",
        "It ends on 2027-01-31.",
        "The ticket is OPS-4711.",
        "We waited for thirty days.",
        "Es dauert fünfundzwanzig Tage.",
        "Cela prend vingt-deux jours.",
        "Um 9:30 Uhr beginnt es.",
        "2. März ist der Tag",
        "期限は2026年です。",
    ],
    None: [
        "We had another look at the annex.",
        "1. the first item of a list",
        "See https://example.com/notes for more.",
        "Assistant: that is a good point, thank you.",
        "Ein Blick in den Anhang genügt.",
        "Un coup d'œil suffit.",
    ],
}
"""Sentences of each kind, in digits and in words, with a label or without, in three languages; and talk."""


class TestKindOf:
    def test_each_sentence_is_of_its_kind(self) -> None:
        """A rule that keeps everything compresses nothing, so talk is not kept (S3-6.4-c, S3-6.4-f, S3-11-c)."""
        kinds = {sentence: classify(sentence) for sentences in SENTENCES.values() for sentence in sentences}

        assert kinds == {sentence: kind for kind, sentences in SENTENCES.items() for sentence in sentences}


class TestPinsOf:
    def test_a_decision_keeps_its_reason(self) -> None:
        """Decisions with rationale: the next sentence belongs to it, on the next line too (S3-6.4-f)."""
        text = "We chose Postgres.\nBecause it locks rows. The sun shines."

        assert pins_of(text) == [Pin(PinKind.DECISION, "We chose Postgres. Because it locks rows.")]

    def test_two_decisions_are_two(self) -> None:
        """A second decision is no reason for the first."""
        assert len(pins_of("We chose Berlin. Since then we decided to leave.")) == 2

    def test_a_labelled_line_stays_together(self) -> None:
        """What stands behind `Decision:` on the same line belongs to it (S3-6.4-f)."""
        text = "- Decision 3: take Postgres. It locks rows. Nobody objected."

        assert [pin.text for pin in pins_of(text)] == [text[2:]]

    def test_statements_keep_their_order(self) -> None:
        """A later decision may overrule an earlier one."""
        text = "We chose Bonn. Nothing. It costs 5 EUR. We chose Berlin instead."

        assert [pin.kind for pin in pins_of(text)] == [PinKind.DECISION, PinKind.NUMBER, PinKind.DECISION]

    @given(st.text(st.sampled_from("abc decision: must 1,5 € .\n-!?"), max_size=80))
    def test_a_pin_contains_only_words_of_the_text(self, text: str) -> None:
        """Word for word (S3-11-c)."""
        plain = " ".join(text.split())

        for pin in pins_of(text):
            assert " ".join(pin.text.split()) in plain
            assert "\n" not in pin.text

    @given(st.text(st.sampled_from("ab 1 25 € , EUR drei \n-%"), max_size=80))
    def test_every_digit_is_in_a_pin(self, text: str) -> None:
        """No number is lost (S3-11-c)."""
        pinned = "".join(pin.text for pin in pins_of(text))

        assert [sign for sign in text if sign.isdigit()] == [sign for sign in pinned if sign.isdigit()]

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize(
        "unit", [".", "a.", "\"'", "a:", "Decision (", "1 ", "\n- ", "a-", "([", "because ", "\u0301", "⚠", "decision"]
    )
    def test_a_hostile_text_takes_no_longer_than_an_ordinary_text(self, unit: str) -> None:
        """Two hundred thousand characters that would keep a backtracking pattern busy for hours."""
        assert isinstance(pins_of(unit * (200_000 // len(unit))), list)
