"""Exact token counts, and what happens without the library for them."""

import sys

import pytest

from baton import estimate_tokens
from baton.compression import store_tokens as tokens
from baton.compression.store_tokens import best_counter, exact_counter


@pytest.fixture
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra `tokens` were not installed, in a process that has not counted yet."""
    monkeypatch.setitem(sys.modules, "splintr", None)
    monkeypatch.setattr(tokens, "_load_encoder", tokens._load_encoder.__wrapped__)


class TestExactCounter:
    @pytest.mark.parametrize(
        ("text", "count"),
        [
            pytest.param("", 0, id="nothing"),
            pytest.param("hello world", 2, id="two common words"),
            pytest.param("Chose JWT over sessions for statelessness", 9, id="a decision"),
        ],
    )
    def test_it_counts_as_the_vocabulary_does(self, text: str, count: int) -> None:
        """Known counts of o200k_base (C-8: the estimator can be replaced)."""
        assert exact_counter()(text) == count

    def test_control_tokens_in_a_text_are_ordinary_text(self) -> None:
        """An agent that writes a control token pays for its letters and forges nothing."""
        assert exact_counter()("<|endoftext|>") > 1

    def test_a_lone_surrogate_is_counted(self) -> None:
        """A text that no encoding can carry still has a count."""
        assert exact_counter()("a \ud800 b") == exact_counter()("a ? b")

    def test_vocabularies_differ(self) -> None:
        """The encoding that was asked for is the one that counts."""
        text = "日本語のテキスト"
        assert exact_counter("cl100k_base")(text) > exact_counter("o200k_base")(text)

    def test_an_unknown_vocabulary_is_refused(self) -> None:
        """The library's own list is in the message."""
        with pytest.raises(ValueError, match="nope"):
            exact_counter("nope")

    @pytest.mark.usefixtures("_no_library")
    def test_a_missing_extra_is_named(self) -> None:
        """Without the library the message says what to install."""
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'temporal-baton\[tokens\]'"):
            exact_counter()


class TestBestCounter:
    def test_it_is_exact_where_the_library_is(self) -> None:
        """Its name is the vocabulary's, so that a recorded count can be understood later."""
        name, count = best_counter()
        assert (name, count("hello world")) == ("o200k_base", 2)

    @pytest.mark.usefixtures("_no_library")
    def test_it_is_the_estimate_without_it(self) -> None:
        """A count is always possible (C-8)."""
        assert best_counter() == ("estimate", estimate_tokens)
