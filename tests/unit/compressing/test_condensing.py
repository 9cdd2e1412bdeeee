"""The summary that needs no model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.compression.summary import condense, cut_to
from baton.handoff.records import Turn
from baton.wire.tokens import estimate_tokens

turns = st.lists(
    st.builds(
        Turn, content=st.text(st.sampled_from("Ab c. D!\n日"), max_size=40), role=st.sampled_from(["user", "tool"])
    ),
    max_size=6,
)


class TestCondense:
    """Which sentences are taken."""

    def test_the_sentences_that_speak_of_the_subject_win(self) -> None:
        """What is spoken of often says most (S3-6.4-c)."""
        said = "The invoice parser failed on the invoice table. Hello there my friend. We fixed the invoice parser."

        assert condense([Turn(content=said)], max_tokens=14) == "The invoice parser failed on the invoice table."

    def test_every_turn_has_its_say_before_any_has_a_second(self) -> None:
        """The summary speaks of the whole time (S3-6.4-c)."""
        talk = [Turn(role=f"agent{n}", content="The parser reads tables. The parser reads lists.") for n in range(2)]
        talk.append(Turn(role="user", content="Good morning everybody."))

        assert condense(talk, max_tokens=18).splitlines() == [
            "agent0: The parser reads tables.",
            "user: Good morning everybody.",
        ]

    def test_what_was_said_twice_stands_once(self) -> None:
        """Repetition is no content."""
        assert condense([Turn(content="It rains a lot. IT RAINS A LOT.")] * 3, max_tokens=99) == "It rains a lot."

    def test_what_stands_elsewhere_is_left_out(self) -> None:
        """What is carried word for word need not be in the narrative as well."""
        assert (
            condense([Turn(content="We chose Bonn. It rains.")], max_tokens=99, leave_out=["We chose Bonn."])
            == "It rains."
        )

    def test_where_nothing_has_room_the_best_is_cut(self) -> None:
        """A summary is never empty (S3-13.2-c)."""
        summary = condense([Turn(content="word " * 100)], max_tokens=10)

        assert summary.endswith("…")
        assert estimate_tokens(summary) <= 10

    @given(turns, st.integers(0, 40), st.sampled_from([estimate_tokens, len]))
    def test_it_keeps_to_its_budget(self, talk: list[Turn], most: int, counter: object) -> None:
        """Whatever is said, and however tokens are counted (C-19)."""
        count = len if counter is len else estimate_tokens

        assert count(condense(talk, max_tokens=most, counter=count)) <= most


class TestCutTo:
    """A text that is cut."""

    @given(st.text(), st.integers(0, 30), st.sampled_from([estimate_tokens, len]))
    def test_it_fits_and_begins_like_the_text(self, text: str, most: int, counter: object) -> None:
        """It never costs more than it may (C-19)."""
        count = len if counter is len else estimate_tokens
        cut = cut_to(text, most, count)

        assert count(cut) <= most
        assert text.startswith(cut.removesuffix("…"))

    @pytest.mark.parametrize("text", ["", "short"])
    def test_what_fits_is_left_alone(self, text: str) -> None:
        """Nothing is cut without need."""
        assert cut_to(text, 2) == text
