"""What a finding says of itself, and what is not said to be missing."""

from pathlib import Path

import pytest

from activities.contract_review.analysis import analyse
from activities.contract_review.records import Policy
from tests.unit.contract_review.material import extracted, found


class TestFindings:
    """Findings of rules in contracts as people write them."""

    @pytest.mark.parametrize(
        ("text", "because"),
        [
            pytest.param(
                "It automatically renews for three (3) years unless either party gives notice of it at least one "
                "hundred eighty (180) days before its end.",
                {"REN-2": "180 days are more than the 90 of the policy"},
                id="the notice and not the term",
            ),
            pytest.param("It runs for a year and does not renew automatically.", {}, id="a renewal that is not"),
            pytest.param(
                "IN NO EVENT SHALL SUPPLIER'S LIABILITY EXCEED THE FEES PAID IN THE ONE (1) MONTH BEFORE.",
                {"LIA-3": "the cap is 1 month of fees; the policy asks for 12"},
                id="a cap in capitals",
            ),
        ],
    )
    def test_says_what_moved_it(self, tmp_path: Path, text: str, because: dict[str, str]) -> None:
        """The figure that is named is the one that the rule is about."""
        rules = ("REN-1", "REN-2", "LIA-3")
        seen = found(tmp_path, f"1. Rights\n{text}")
        assert {rule: seen[rule].because for rule in rules if rule in seen} == because

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("1. TERM AND TERMINATION\n1.1 The initial term is a year.", id="a title with two kinds"),
            pytest.param("1. Term\n1.1 It may be terminated by either party at any time.", id="a sentence"),
        ],
    )
    def test_miss_nothing_that_is_there(self, tmp_path: Path, text: str) -> None:
        """A contract that can be ended is not said to lack a clause on that."""
        analysis = analyse(extracted(tmp_path, f"SERVICES AGREEMENT\n\nBetween two.\n\n{text}"), Policy())
        assert "termination" not in {one.absent for one in analysis.findings}
        assert "liability" in {one.absent for one in analysis.findings}

    def test_reads_the_sentences_of_a_contract_that_is_not_parted(self, tmp_path: Path) -> None:
        """Where a file lost its lines, a clause is not said to be missing whose sentence is there; others are."""
        text = (
            "Agreement between two. The Supplier's aggregate liability is limited. Either may terminate this agreement."
        )
        analysis = analyse(extracted(tmp_path, f"SERVICES AGREEMENT {text}"), Policy())
        absent = {one.absent for one in analysis.findings}
        assert "liability" not in absent
        assert {"payment", "confidentiality"} <= absent
