"""What an analyser's finding becomes."""

import time

from activities.code_review.laying_out import finding_in
from activities.code_review.records import SourceText


class TestFindingIn:
    """Findings with the line that they stand in."""

    def test_costs_the_same_in_a_long_file(self) -> None:
        """Thousands of findings in one file are made without reading the whole file for each."""
        file = SourceText(path="a.py", language="Python", text="eval(x)\n" * 50_000)
        began = time.perf_counter()
        for _ in range(20):
            file.text.split("\n")
        twenty = time.perf_counter() - began
        began = time.perf_counter()
        findings = [
            finding_in(file, line=line, end_line=line, concern="security", severity="low", rule="B307", name="eval",
                       message="no", by=("bandit",), confidence=50)
            for line in range(1, 10_001)
        ]  # fmt: skip
        spent = time.perf_counter() - began
        assert findings[-1].code == "eval(x)"
        assert spent < 100 * twenty
