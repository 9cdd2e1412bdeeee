"""The narrowest terms that recorded runs fit, and how many each would have refused."""

import pytest

from baton.errors import HistoryError
from baton.lab import propose
from baton.runs.client_usage import StageUse


def use(run: str, read: set[str], tools: set[str], window: int = 900) -> StageUse:
    return StageUse("decide", run, frozenset(read), frozenset({"decision_log"}), frozenset(tools), window, 120)


def test_each_term_is_the_narrowest_that_fits_all() -> None:
    """A tool that one run alone called would have been refused to it, had the others been all there was."""
    uses = [use("a", {"open_questions"}, {"lookup"}), use("b", {"open_questions"}, {"lookup"})]
    uses += [use("c", {"open_questions", "work_scope"}, {"lookup", "pay"}, window=2_100)]
    [proposal] = propose(uses)
    assert proposal.runs == 3
    assert proposal.terms == {
        "reads": ["open_questions", "work_scope"],
        "writes": ["decision_log"],
        "requires": ["open_questions"],
        "tools": ["lookup", "pay"],
        "window": 3_000,
        "max_tokens": 200,
    }
    assert proposal.refused == {"reads": 1, "writes": 0, "requires": 0, "tools": 1, "window": 1, "max_tokens": 0}


def test_each_run_counts_once() -> None:
    """However often it came to a stage: both uses of the second run need what the first one did not."""
    uses = [use("a", set(), set()), use("b", {"work_scope"}, {"pay"}), use("b", {"work_scope"}, set(), window=2_100)]
    [proposal] = propose(uses)
    assert proposal.runs == 2
    assert proposal.refused == {"reads": 1, "writes": 0, "requires": 1, "tools": 1, "window": 1, "max_tokens": 0}
    [alone] = propose(uses[1:])
    assert (alone.runs, {*alone.refused.values()}) == (1, {0})


def test_a_stage_that_asks_no_model_gets_no_limit_of_tokens() -> None:
    uses = [StageUse("pay", run, frozenset(), frozenset({"current_state"}), frozenset(), 0, 0) for run in "ab"]
    [proposal] = propose(uses)
    assert [*proposal.terms] == [*proposal.refused] == ["reads", "writes", "requires", "tools"]


def test_no_run_proposes_nothing() -> None:
    with pytest.raises(HistoryError, match="nothing to learn"):
        propose([])
