"""The dependency-free estimate of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.wire.text import estimate_tokens, fit_length
from tests.core.material import texts


class TestEstimateTokens:
    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            pytest.param("", 0, id="nothing"),
            pytest.param("a", 1, id="one letter"),
            pytest.param("abcd", 1, id="four letters"),
            pytest.param("abcde", 2, id="five letters"),
            pytest.param("é" * 8, 2, id="accented Latin, still four to a token"),
            pytest.param("日本語", 2, id="Japanese, one and a half to a token"),
            pytest.param("中" * 300, 200, id="a long Chinese text"),
            pytest.param("한국어" * 10, 20, id="Korean"),
            pytest.param("abcd中中中", 3, id="a mixture"),
            pytest.param("\u1100" * 3, 2, id="the first of the wide characters"),
        ],
    )
    def test_four_characters_are_a_token_and_wide_scripts_cost_more(self, text: str, tokens: int) -> None:
        """Text that is not Latin does not pass a budget unseen (C-8)."""
        assert estimate_tokens(text) == tokens

    @given(texts, texts)
    def test_a_longer_text_never_costs_less(self, text: str, other: str) -> None:
        """Cutting a text is a way to save tokens (C-7, C-8)."""
        assert max(estimate_tokens(text), estimate_tokens(other)) <= estimate_tokens(text + other)
        assert estimate_tokens(text + other) <= estimate_tokens(text) + estimate_tokens(other)


class TestFitLength:
    @given(texts, st.integers(-2, 60))
    def test_what_is_left_fits_and_a_text_that_fits_stays_whole(self, text: str, room: int) -> None:
        """A text is shortened to its budget, and only then (C-7, C-8)."""
        counted = []

        def tokens(length: int) -> int:
            counted.append(length)
            return estimate_tokens(text[:length])

        length = fit_length(len(text), room, tokens)
        assert estimate_tokens(text[:length]) <= max(room, 0)
        assert (length == len(text)) is (estimate_tokens(text) <= max(room, 0))
        assert counted[-1] == length

    def test_a_part_that_never_fits_has_no_length(self) -> None:
        """A heading alone can be too long; the search ends."""
        assert fit_length(1_000, 5, lambda length: 10 + length) == 0
