"""Phrases as people write them, and as mail programs change them."""

import time

import pytest

from activities.compliance_review.phrases import phrases_in


class TestPhrasesIn:
    """Which phrases a text has."""

    @pytest.mark.parametrize(
        ("text", "phrase"),
        [
            ("You can’t lose with us.", "can't lose"),
            ("You can't lose with us.", "can’t lose"),
            ("It is risk\u2011free.", "risk-free"),
            ("It is risk–free.", "risk-free"),
            ("Say “best price” to them", 'say "best price"'),
            ("GARANTIERTE GRÖSSE", "garantierte größe"),
            ("Un résultat garanti", "re\u0301sultat garanti"),
            ("必ず全額返金を保証します。", "全額返金"),
            ("必ず全額\n返金を保証します。", "全額返金"),
            ("これはrefundです", "refund"),
            ("รับประกันคืนเงินเต็มจำนวน", "คืนเงินเต็มจำนวน"),
            ("환불을 보장합니다", "환불"),
            ("We guarantee a\n full  REFUND.", "full refund"),
        ],
    )
    def test_has_what_a_reader_sees(self, text: str, phrase: str) -> None:
        """Marks that a mail program puts for others, capitals, and scripts without blanks between words."""
        assert phrases_in(text, ["nothing of it", phrase]) == (2,)

    @pytest.mark.parametrize(
        ("text", "phrase"), [("It is refundable", "refund"), ("préfund", "fund"), ("any text", "\u00ad")]
    )
    def test_has_no_part_of_a_word(self, text: str, phrase: str) -> None:
        """Where words have blanks between them, the whole word is meant."""
        assert phrases_in(text, [phrase]) == ()

    def test_takes_a_hostile_text_in_its_stride(self) -> None:
        """Blanks without end between the signs of a phrase."""
        began = time.perf_counter()
        assert phrases_in(("全" + " " * 50_000) * 4, ["全額返金"]) == ()
        assert time.perf_counter() - began < 5
