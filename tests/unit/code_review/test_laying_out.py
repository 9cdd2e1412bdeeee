"""What an analyser's finding becomes."""

import sys
from typing import Any

from activities.code_review.laying_out import finding_in
from activities.code_review.records import SourceText


class TestFindingIn:
    """Findings with the line that they stand in."""

    def test_costs_the_same_in_a_long_file(self) -> None:
        """Thousands of findings in one file are made without reading the whole file for each."""
        file = SourceText(path="a.py", language="Python", text="eval(x)\n" * 50_000)
        splits: list[object] = []

        def seen(frame: object, event: str, called: Any) -> None:
            if event == "c_call" and called.__name__ == "split":
                splits.append(called)

        sys.setprofile(seen)
        try:
            findings = [
                finding_in(file, line=line, end_line=line, concern="security", severity="low", rule="B307",
                           name="eval", message="no", by=("bandit",), confidence=50)
                for line in range(1, 101)
            ]  # fmt: skip
        finally:
            sys.setprofile(None)
        assert findings[-1].code == "eval(x)"
        assert len(splits) == 1
