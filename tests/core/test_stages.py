"""The terms of a stage."""

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


class TestRestrict:
    def test_a_stage_gets_all_fields_and_the_newest_decisions(self) -> None:
        """The whole picture, however long the run is (S1-concept-c, S1-cmp-c, S2-sol-a)."""
        handed, left_out = StageSpec("review").restrict(BATON)

        assert handed.decision_log == BATON.decision_log[-DEFAULT_DECISIONS:]
        assert left_out == 50 - DEFAULT_DECISIONS
        assert handed.model_copy(update={"decision_log": BATON.decision_log}) == BATON

    def test_a_stage_may_read_the_whole_log(self) -> None:
        """Nothing is out of a stage's reach."""
        assert StageSpec("review", decisions=None).restrict(BATON) == (BATON, 0)

    def test_it_gets_its_fields_goal_constraints_and_artifacts(self) -> None:
        """Agents always know existing artifacts and every hard rule (S1-design-j)."""
        handed, _ = StageSpec("review", reads=frozenset({"quality_signals"})).restrict(BATON)

        assert handed == ReviewBaton(
            goal="g", constraints=BATON.constraints, artifacts=[ref("a")], quality_signals={"craft": 6}
        )
        assert BATON.constraints

    def test_an_unread_log_is_not_counted(self) -> None:
        """No decisions are counted for a stage that reads none."""
        assert StageSpec("review", reads=frozenset({"constraints"})).restrict(BATON)[1] == 0

    @pytest.mark.parametrize("decisions", [0, 1, 20, 49, 50, 51, None])
    def test_shown_and_omitted_decisions_add_up(self, decisions: int | None) -> None:
        """The count on the page is right for every length (C-7)."""
        handed, left_out = StageSpec("review", decisions=decisions).restrict(BATON)

        assert len(handed.decision_log) + left_out == 50


class TestFieldSet:
    def test_none_means_all_fields(self) -> None:
        """Declaring is optional."""
        assert field_set(None, Baton, "reads") is None

    def test_additional_fields_are_known(self) -> None:
        """They are fields like the eight."""
        assert field_set(["quality_signals"], ReviewBaton, "reads") == frozenset({"quality_signals"})

    def test_an_unknown_field_is_an_error(self) -> None:
        """It shows at the stage's declaration."""
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
    def test_a_single_string_is_an_error(self, what: str) -> None:
        """Type checkers accept a string as a set of names."""

        async def plan(baton: Baton) -> None:
            """Do nothing."""

        terms: dict[str, Any] = {what: "goal"}
        with pytest.raises(TypeError, match=f"{what}='goal' is one "):
            stage(**terms)(plan)


class TestTerms:
    """Terms that Temporal or the pipeline would reject only in a run."""

    @pytest.mark.parametrize(("terms", "error"), WRONG.values(), ids=WRONG)
    def test_an_invalid_term_is_an_error_at_the_declaration(
        self, terms: dict[str, Any], error: type[Exception]
    ) -> None:
        """With its name, the value and what is expected."""
        [name] = terms
        with pytest.raises(error, match=f"@stage of 'plan': {name} is .*; expected "):
            StageSpec("plan", **terms)

    def test_shrinking_pauses_are_rejected(self) -> None:
        """Temporal rejects them as well."""
        wrong: list[dict[str, Any]] = [{"attempts": -1}, {"first": timedelta()}, {"factor": 0.5}, {"first": 1}]
        for terms in (*wrong, {"first": timedelta(minutes=2)}):
            with pytest.raises((TypeError, ValueError), match="Retries: "):
                Retries(**terms)


class TestHasSpec:
    def test_anything_with_a_spec_is_a_stage(self) -> None:
        """A pipeline can refer to a stage without importing its code."""

        class Named:
            spec = StageSpec("review")

        assert spec_of(Named()).name == "review"
        assert not isinstance(object(), HasSpec)

    def test_an_error_says_what_was_passed_instead_of_a_stage(self) -> None:
        """Beginners pass a function without `@stage`, or a stage's name."""

        async def review() -> None: ...

        for value, message in ((review, "the function .*review"), ("review", "the str 'review'")):
            with pytest.raises(TypeError, match=f"an async function under @stage, passed uncalled; found {message}"):
                spec_of(value)
