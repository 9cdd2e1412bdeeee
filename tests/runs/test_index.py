"""The indexes behind `baton why`: of a run that is larger than there is time for, the part that there is time for."""

from typing import Any

from baton import Baton, Outcome, PipelineInput
from baton.client import RunRecord
from baton.core.state import PipelineState
from baton.runs.client_index import IndexedRun, ValuePlace


def run_of(*answers: Any) -> IndexedRun:
    """Return a run whose steps gave these answers."""
    state = PipelineState(Baton(goal="Find"))
    state.outcomes = [Outcome(seq=seq, order=seq - 1, name="s", value=value) for seq, value in enumerate(answers, 1)]
    return IndexedRun(RunRecord("w", "r", "p", PipelineInput(goal="Find"), state), "")


def texts(step: int, count: int, length: int = 40) -> list[str]:
    return [f"text {number} of step {step} {'x' * length}" for number in range(count)]


def test_large_answers_are_indexed_in_part() -> None:
    """The console reads for several people at once; each answer has its share, its outer values first."""
    run = run_of(*(texts(step, 20_000) for step in range(10)))

    assert sum(map(len, run.places.values())) <= 50_000
    for step in range(10):
        assert run.find(texts(step, 1)[0], (), None) == [ValuePlace(step, (0,))]


def test_a_long_text_is_not_searched_for_ever() -> None:
    """A search costs the length of both texts; what the first ones leave is left out."""
    run = run_of(*(texts(step, 2_000, 500) for step in range(5)))
    hostile = "y" * 1_000_000 + texts(4, 2_000, 500)[-1]

    assert [place.index for place in run.find_contained(f"so: {texts(3, 1, 500)[0]}", None)] == [3]
    assert run.find_contained(hostile, None) == []
