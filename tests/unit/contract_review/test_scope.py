"""The contract as rules see it: sentence by sentence, whatever parts it."""

from pathlib import Path

import pytest

from activities.contract_review.records import Policy
from tests.unit.contract_review.material import found


class TestScope:
    """Its sentences."""

    @pytest.mark.parametrize(
        "marks",
        [
            pytest.param(("7.1", "7.2", "7.3"), id="numbers"),
            pytest.param(("7.a", "7.b", "7.c"), id="numbers and letters"),
            pytest.param(("7(a)", "7(b)", "7(c)"), id="letters in brackets"),
            pytest.param(("7.a.i", "7.a.ii", "7.a.iii"), id="numbers, letters and Roman numbers"),
            pytest.param(("•", "•", "•"), id="bullets"),
            pytest.param(("-", "-", "-"), id="dashes"),
        ],
    )
    def test_read_points_one_by_one_however_they_are_marked(self, tmp_path: Path, marks: tuple[str, str, str]) -> None:
        """They went for one sentence, so the unlimited liability in the third was said to be none at all."""
        points = (
            "The Supplier's liability is limited to EUR 5,000.",
            "The Supplier is not liable for indirect loss.",
            "The Customer's liability is unlimited.",
        )
        text = "7. Liability\n\n" + "\n\n".join(f"{mark} {point}" for mark, point in zip(marks, points, strict=True))
        rules = found(tmp_path, "".join(f"{number}. Work\nWe dig.\n\n" for number in range(1, 7)) + text)
        assert rules["LIA-1"].quote == points[2]
        assert "LIA-2" not in rules

    def test_read_what_sentences_are_about_where_there_are_no_clauses(self, tmp_path: Path) -> None:
        """Its high interest and its short secrecy went unsaid in a contract that is not parted into clauses."""
        text = (
            "Late payment of an invoice bears interest at 2% per month. Each party shall keep the other party's "
            "confidential information secret for one year after the end of this Agreement."
        )
        assert {"PAY-2", "CON-2"} <= found(tmp_path, text, Policy(party="Customer")).keys()
