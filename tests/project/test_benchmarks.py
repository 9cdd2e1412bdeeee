"""The benchmarks' figures and samples: that they are complete, and that the two sides are given the same."""

import asyncio
import json
from typing import Any

import pytest

from baton import Baton, BatonPatch, apply_patch, worker
from baton.compression.store_tokens import exact_counter
from baton.core.stages import DEFAULT_DECISIONS
from benchmarks import raw, stages
from benchmarks.__main__ import MEASURES, RESULTS
from benchmarks.peers.job import State
from benchmarks.raw import merge
from benchmarks.report import GOALS
from benchmarks.samples import THOUSAND_BULLETS, large, patch, small, thousand_handed, thousand_tokens, to_json
from benchmarks.settings import COLLECT_AFTER


class TestResults:
    """The committed `results.json`."""

    def test_it_holds_every_figure_and_nothing_else(self) -> None:
        """The README takes its figures from there by name, so each is there as a number."""
        results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))

        figures = {name: value for name, value in results.items() if name not in ("environment", "command", "updates")}
        assert list(figures) == list(GOALS)
        assert all(type(value) in (int, float) and value >= 0 for value in figures.values())

    def test_it_says_how_it_was_measured(self) -> None:
        """Whoever doubts a figure can measure it again: with all rounds, and every figure in the same run."""
        results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))

        assert "temporalio" in results["environment"]
        assert results["command"].startswith("python -m benchmarks")
        assert "--quick" not in results["command"]
        assert "--only" not in results["command"]
        assert set(results["updates"]) <= set(GOALS)


class TestMeasures:
    """What `python -m benchmarks` measures."""

    def test_every_figure_has_one_measurement(self) -> None:
        """A figure with a goal and no measurement would never be missed."""
        matches = [name for measure in MEASURES for name in measure.names]

        assert sorted(matches) == sorted(GOALS)


class TestSettings:
    """What the measured workers are set to."""

    def test_they_look_for_garbage_as_the_shipped_worker_does(self) -> None:
        """Else what is measured is not what people run."""
        assert COLLECT_AFTER == worker.COLLECT_AFTER


class TestSamples:
    """What travels in the measurements."""

    def test_the_baton_has_a_thousand_tokens_and_what_is_handed_of_it_stays_flat(self) -> None:
        """At the first stage of a thousand and at the last a stage is handed about as much, counted exactly."""
        count, baton = exact_counter(), Baton.model_validate_json(to_json(thousand_tokens()))
        assert 970 <= count(to_json(baton.to_json_object())) <= 1_030
        counts = []
        for seq in range(1, 1_001):
            baton = apply_patch(baton, BatonPatch.model_validate(patch(seq, THOUSAND_BULLETS)))
            counts.append(count(to_json(baton.restricted(None, DEFAULT_DECISIONS).to_json_object())))
        assert max(counts) <= min(counts) * 1.1

    def test_the_other_one_is_handed_with_a_thousand_tokens(self) -> None:
        """The row beside the figure shows what a stage costs that is handed 1,000 tokens and not three quarters."""
        restricted = Baton.model_validate_json(to_json(thousand_handed())).restricted(None, DEFAULT_DECISIONS)

        assert 970 <= exact_counter()(to_json(restricted.to_json_object())) <= 1_030

    @pytest.mark.parametrize("make", [pytest.param(small, id="1 KB"), pytest.param(large, id="4 KB")])
    def test_all_sides_end_with_the_same_state(self, make: Any) -> None:
        """Both sides carry the same texts, and Baton's stages get all of them."""
        state = State(**make())
        for activity in (raw.raw_plan, raw.raw_implement, raw.raw_review, raw.raw_release):
            state = merge(state, asyncio.run(activity(state)))
        baton = Baton.model_validate_json(to_json(make()))
        for stage in (stages.plan, stages.implement, stages.review, stages.release):
            assert len(baton.decision_log) <= DEFAULT_DECISIONS
            baton = apply_patch(baton, asyncio.run(stage(baton)))

        assert state.model_dump() == baton.to_json_object()
