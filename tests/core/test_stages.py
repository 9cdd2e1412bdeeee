"""What a stage declares about itself."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.common import RetryPolicy

from baton import stage
from baton.core.baton import Baton
from baton.core.stages import DEFAULT_DECISIONS, HasSpec, Retries, StageSpec, field_set, spec_of
from tests.core.material import ReviewBaton, ref

BATON = ReviewBaton(
    goal="g",
    constraints=["c"],
    decision_log=[f"d{n}" for n in range(50)],
    artifacts=[ref("a")],
    quality_signals={"craft": 6},
)


class TestHanded:
    def test_a_stage_is_handed_all_fields_and_the_newest_decisions(self) -> None:
        """The whole picture, however long the run (S1-concept-c, S1-cmp-c, S2-sol-a)."""
        handed, left_out = StageSpec("review").restrict(BATON)

        assert handed.decision_log == BATON.decision_log[-DEFAULT_DECISIONS:]
        assert left_out == 50 - DEFAULT_DECISIONS
        assert handed.model_copy(update={"decision_log": BATON.decision_log}) == BATON

    def test_it_may_ask_for_the_whole_log(self) -> None:
        """Nothing is out of a stage's reach."""
        assert StageSpec("review", decisions=None).restrict(BATON) == (BATON, 0)

    def test_it_is_handed_the_fields_it_reads_the_goal_the_rules_and_the_references(self) -> None:
        """Agents always know what exists, and every hard rule (S1-design-j)."""
        handed, _ = StageSpec("review", reads=frozenset({"quality_signals"})).restrict(BATON)

        assert handed == ReviewBaton(
            goal="g", constraints=BATON.constraints, artifacts=[ref("a")], quality_signals={"craft": 6}
        )
        assert BATON.constraints

    def test_a_log_it_does_not_read_is_not_counted(self) -> None:
        """No decisions are shown as left out to a stage that asked for none."""
        assert StageSpec("review", reads=frozenset({"constraints"})).restrict(BATON)[1] == 0

    @pytest.mark.parametrize("decisions", [0, 1, 20, 49, 50, 51, None])
    def test_shown_and_left_out_add_up(self, decisions: int | None) -> None:
        """The count on the page is right for every length (C-7)."""
        handed, left_out = StageSpec("review", decisions=decisions).restrict(BATON)

        assert len(handed.decision_log) + left_out == 50


class TestCheckedFields:
    def test_all_fields_is_none(self) -> None:
        """Declaring is a choice."""
        assert field_set(None, Baton, "reads") is None

    def test_a_teams_own_fields_count(self) -> None:
        """They are fields like the eight."""
        assert field_set(["quality_signals"], ReviewBaton, "reads") == frozenset({"quality_signals"})

    def test_a_field_that_does_not_exist_is_an_error(self) -> None:
        """It shows where the stage is declared."""
        with pytest.raises(ValueError, match=r"writes=\['desicion_log'\]: Baton has no such field; it has goal, "):
            field_set(["desicion_log", "goal"], Baton, "writes")


WRONG: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "retries of Temporal's": ({"retries": RetryPolicy(maximum_attempts=2)}, TypeError),
    "a timeout in seconds": ({"timeout": 5}, TypeError),
    "no time at all": ({"timeout": timedelta()}, ValueError),
    "a heartbeat in seconds": ({"heartbeat": 3.0}, TypeError),
    "no attempt": ({"attempts": 0}, ValueError),
    "money below zero": ({"reserve_micro_usd": -1}, ValueError),
    "part of a micro-dollar": ({"reserve_micro_usd": 0.5}, TypeError),
    "fewer decisions than none": ({"decisions": -1}, ValueError),
    "no window": ({"window": 0}, ValueError),
}


class TestNameSet:
    @pytest.mark.parametrize("what", ["reads", "writes", "requires", "personal_data", "whole", "tools", "forbids"])
    def test_a_lone_text_is_not_taken_for_its_letters(self, what: str) -> None:
        """It is a set of names to a type checker as well, so only we can say so."""

        async def plan(baton: Baton) -> None:
            """Do nothing."""

        terms: dict[str, Any] = {what: "goal"}
        with pytest.raises(TypeError, match=f"{what}='goal' is one "):
            stage(**terms)(plan)


class TestTerms:
    """What Temporal or the pipeline would refuse only once a run comes to the stage."""

    @pytest.mark.parametrize(("terms", "error"), WRONG.values(), ids=WRONG)
    def test_a_wrong_term_shows_where_the_stage_is_declared(
        self, terms: dict[str, Any], error: type[Exception]
    ) -> None:
        """By its name, what was found and what is expected."""
        [name] = terms
        with pytest.raises(error, match=f"@stage of 'plan': {name} is .*; expected "):
            StageSpec("plan", **terms)

    def test_retries_are_those_that_temporal_takes(self) -> None:
        """Pauses that shrink are refused there, and so here."""
        wrong: list[dict[str, Any]] = [{"attempts": -1}, {"first": timedelta()}, {"factor": 0.5}, {"first": 1}]
        for terms in (*wrong, {"first": timedelta(minutes=2)}):
            with pytest.raises((TypeError, ValueError), match="Retries: "):
                Retries(**terms)


class TestHasSpec:
    def test_anything_with_a_spec_is_a_stage(self) -> None:
        """A pipeline can name a stage without importing its code."""

        class Named:
            spec = StageSpec("review")

        assert spec_of(Named()).name == "review"
        assert not isinstance(object(), HasSpec)

    def test_what_is_no_stage_is_told_by_what_it_is(self) -> None:
        """A function without `@stage` and a stage's name are what beginners hand over."""

        async def review() -> None: ...

        for value, message in ((review, "the function .*review"), ("review", "the str 'review'")):
            with pytest.raises(TypeError, match=f"an async function under @stage, passed uncalled; found {message}"):
                spec_of(value)
