"""The capacity page and its program: figures that were measured, and a plan that follows from them."""

import json
from typing import Any

import pytest

from benchmarks.capacity import FIGURES, PAGE, PARTS, main, write_page
from benchmarks.capacity_plan import PlannedLoad, make_plan

MEASURED: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))


class TestPage:
    def test_its_figures_are_those_of_the_program(self) -> None:
        """Nobody writes one by hand; `python -m benchmarks.capacity page` writes them."""
        text = PAGE.read_text(encoding="utf-8")

        assert write_page(MEASURED, text) == text
        assert text.count("<!-- figures: ") == text.count("<!-- end -->") == 8

    def test_each_part_says_how_it_was_measured(self) -> None:
        """With its sizes, so that whoever doubts a figure can measure it again."""
        assert set(MEASURED["commands"]) == set(PARTS)
        assert all(
            command.startswith("python -m benchmarks.capacity measure") for command in MEASURED["commands"].values()
        )
        assert MEASURED["endurance"]["command"].startswith("python -m benchmarks.endurance --waiting")
        assert "temporalio" in MEASURED["environment"]


class TestPlan:
    def test_twice_the_runs_need_twice_as_much(self) -> None:
        """All but what has a smallest size."""
        one, two = (make_plan(MEASURED, PlannedLoad(runs=runs)) for runs in (20e6, 40e6))

        for name in ("records_per_s", "records_per_month", "cores", "postgres_cores", "index_gb", "hot_gb", "cold_gb"):
            assert getattr(two, name) == pytest.approx(2 * getattr(one, name))
        assert two.workers[0] in (2 * one.workers[0], 2 * one.workers[0] - 1)
        assert two.shards in (one.shards, 2 * one.shards)
        assert two.shards & (two.shards - 1) == 0

    def test_what_bounds_the_workers_is_said(self) -> None:
        """Long stages need room for many at once, short ones processors."""
        slow, fast = (make_plan(MEASURED, PlannedLoad(runs=50e6, stage_seconds=seconds)) for seconds in (600, 0.01))

        assert "models" in slow.workers[1]
        assert fast.workers[1] == "processor time"
        assert slow.workers[0] > fast.workers[0] >= fast.cores

    def test_anybody_can_run_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        """It measures nothing."""
        assert main(["plan", "--runs", "10e6", "--stages", "10"]) == 0

        printed = capsys.readouterr().out
        assert f"| {make_plan(MEASURED, PlannedLoad()).shards:,} |" in printed
        assert printed in f"{PAGE.read_text(encoding='utf-8')}\n".replace("<!-- end -->", "")
