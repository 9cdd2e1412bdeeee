"""Splitting text into sentences, in three languages and in one pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.wire.text import MAX_SENTENCE_LENGTH, split_sentences


class TestSentences:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            pytest.param("It works. We ship.", ["It works.", "We ship."], id="two sentences"),
            pytest.param("Ask Dr. Smith. He knows.", ["Ask Dr. Smith.", "He knows."], id="an English title"),
            pytest.param("Vgl. Art. 5 Abs. 2. Das gilt.", ["Vgl. Art. 5 Abs. 2. Das gilt."], id="a German citation"),
            pytest.param("Es gilt z. B. Paris. Mehr nicht.", ["Es gilt z. B. Paris.", "Mehr nicht."], id="z. B."),
            pytest.param("Am 3. März 2027 endet es.", ["Am 3. März 2027 endet es."], id="a German date"),
            pytest.param("Le prix est de 2.5 M. Fin.", ["Le prix est de 2.5 M. Fin."], id="a letter ends no sentence"),
            pytest.param("« C'est fini. » Elle part.", ["« C'est fini. » Elle part."], id="French quotes"),
            pytest.param("The Ltda. signed it.", ["The Ltda. signed it."], id="a small letter begins no sentence"),
            pytest.param("Really?! Yes (really). Good", ["Really?!", "Yes (really).", "Good"], id="several signs"),
            pytest.param("We saw v1.2.3 and a.b.c today", ["We saw v1.2.3 and a.b.c today"], id="dots in words"),
            pytest.param("これは一つ。二つ目です。", ["これは一つ。", "二つ目です。"], id="Japanese"),
            pytest.param("# Title\n\n- one\n> two\r\n* three", ["Title", "one", "two", "three"], id="markdown"),
            pytest.param("1. First\n2. Second", ["1. First", "2. Second"], id="a numbered list keeps its numbers"),
            pytest.param(" \n\t\n", [], id="blanks"),
        ],
    )
    def test_a_text_is_split_into_sentences(self, text: str, expected: list[str]) -> None:
        """Unclear cases stay together."""
        assert split_sentences(text) == expected

    @given(st.text(st.sampled_from("aB1.!?。 \n\t-\"')»ß\u2028"), max_size=60) | st.text(max_size=60))
    def test_sentences_hold_exactly_the_words_of_the_text(self, text: str) -> None:
        """Only marks of lists and headings are dropped (S3-11-c)."""
        parts = split_sentences(text)

        assert all(sentence in text and sentence.strip() == sentence != "" for sentence in parts)
        assert sum(map(len, "".join(parts).split())) >= len([sign for sign in text if sign.isalnum()])

    @pytest.mark.parametrize("text", ["word " * 999, "x" * 2_500, "x" * 2_500 + " y"], ids=["words", "one", "both"])
    def test_a_text_without_sentence_ends_is_cut(self, text: str) -> None:
        """A log without full stops is not one sentence."""
        parts = split_sentences(text)

        assert max(map(len, parts)) <= MAX_SENTENCE_LENGTH
        assert "".join("".join(parts).split()) == "".join(text.split())
