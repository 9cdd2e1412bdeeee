"""The explanation of a stage's input."""

import re

import pytest

from baton.contract.records import Explanation
from tests.agents.material import contract


@pytest.mark.parametrize(
    ("read", "before", "told"),
    [
        pytest.param(
            100, 5_000, "prompt.*: 100 tokens\\n.*comparison.*: 5,000 tokens, 50.0 times as much$", id="fewer"
        ),
        pytest.param(145, 0, "prompt.*: 145 tokens\\n.*comparison.*: 0 tokens$", id="the first stage"),
        pytest.param(
            0, 16, "- not known: .* has returned nothing; everything before it has 16 tokens$", id="it failed"
        ),
    ],
)
def test_what_it_cost_to_read_is_no_more_than_is_known(read: int, before: int, told: str) -> None:
    """A failed stage reports no prompt, although it may have had one; 0.0 times fewer is not a figure."""
    explanation = Explanation(
        stage="plan", seq=1, contract=contract().to_json_object(), tokens_read=read, transcript_tokens=before
    )

    assert re.search(told, explanation.to_markdown().rstrip())
