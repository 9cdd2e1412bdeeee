"""The budget: every bill is charged exactly once."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton import Budget, OnExhaustion, Spend
from baton.budget.workflow import BudgetAccount
from baton.core.budget import Reservation
from baton.core.messages import PipelineInput


def budget(micro_usd: int = 1_000, **terms: Any) -> Budget:
    """Return a budget of ``micro_usd`` millionths of a dollar."""
    return Budget(initial_micro_usd=micro_usd, **terms)


def bill(micro_usd: int) -> Spend:
    return Spend(micro_usd=micro_usd, prompt_tokens=micro_usd * 2)


def account_of(money: Budget) -> BudgetAccount:
    """Return the account of a pipeline with a budget."""
    return BudgetAccount(PipelineInput(goal="g", budget=money))


class TestReserve:
    def test_reserved_money_is_not_free(self) -> None:
        """Concurrent agents cannot spend the same money (S3-9-c)."""
        reserved = budget(1_000).reserve("1", "extract", 600)

        assert (reserved.free_micro_usd, reserved.remaining_micro_usd, reserved.spent_micro_usd) == (400, 1_000, 0)
        assert reserved.shortage("score", 500) is not None

    def test_settling_releases_the_rest(self) -> None:
        """Only the real cost is deducted (S3-9-b)."""
        settled = budget(1_000).reserve("1", "extract", 600).charge("1", "a", bill(100)).settle("1")

        assert (settled.free_micro_usd, settled.spent_micro_usd, settled.open) == (900, 100, {})

    def test_a_bill_reduces_the_reservation_only(self) -> None:
        """The free amount is unchanged."""
        reserved = budget(1_000).reserve("1", "extract", 600).charge("1", "a", bill(250))

        assert (reserved.free_micro_usd, reserved.remaining_micro_usd) == (400, 750)

    def test_a_bill_above_the_reservation_is_charged_in_full(self) -> None:
        """The rest may become negative, and then nothing may begin (S3-6.1-l, S3-6.1-m)."""
        over = budget(100).reserve("1", "extract", 100).charge("1", "a", bill(130)).settle("1")

        assert (over.remaining_micro_usd, over.free_micro_usd) == (-30, 0)
        assert over.shortage("score") is not None

    def test_the_same_bill_is_charged_once(self) -> None:
        """A repeated result costs nothing more (S3-11-e)."""
        once = budget().reserve("1", "extract").charge("1", "a", bill(10))

        assert once.charge("1", "a", bill(10)) == once

    def test_a_late_bill_is_charged_without_a_reservation(self) -> None:
        """The cost of a lost attempt is known only afterwards."""
        assert budget().charge_unreserved("extract", Spend(micro_usd=70)).spent_micro_usd == 70

    @pytest.mark.parametrize(
        ("act", "why"),
        [
            pytest.param(
                lambda own: own.charge("2", "a", bill(1)), "nothing is reserved under '2'", id="charge unknown"
            ),
            pytest.param(lambda own: own.settle("2"), "nothing is reserved under '2'", id="settle unknown"),
            pytest.param(lambda own: own.settle("1").settle("1"), "nothing is reserved under '1'", id="settle twice"),
            pytest.param(lambda own: own.reserve("1", "x"), "'1' is already reserved", id="reserve twice"),
            pytest.param(lambda start: start.reserve("2", "x", 5_000), "call shortage", id="reserve what is not there"),
            pytest.param(lambda start: start.top_up(0), "expected more than zero", id="a top-up of nothing"),
        ],
    )
    def test_wrong_use_is_an_error(self, act: Any, why: str) -> None:
        """Wrong bookkeeping would be worse than none (S3-11-e)."""
        with pytest.raises(ValueError, match=why):
            act(budget().reserve("1", "extract", 10))

    def test_a_change_returns_a_new_budget(self) -> None:
        """A replay sees the old one unchanged."""
        before = budget()
        before.reserve("1", "extract", 10)

        assert before == budget()


class TestShortage:
    @pytest.mark.parametrize("then", OnExhaustion)
    def test_the_pipeline_declares_what_happens_then(self, then: OnExhaustion) -> None:
        """Pause, wrap up, or stop."""
        lack = budget(10, then=then).shortage("score", 50)

        assert lack is not None
        assert (lack.then, lack.missing_micro_usd) == (then, 40)

    def test_the_default_is_to_pause_and_ask(self) -> None:
        """Nothing is lost while a person decides."""
        lack = budget(0).shortage("score")

        assert lack is not None
        assert lack.then is OnExhaustion.PAUSE

    def test_a_stage_without_a_reservation_needs_a_positive_rest(self) -> None:
        """At zero nothing is executed (S3-6.1-l, S3-9-b)."""
        assert budget(1).shortage("score") is None
        assert budget(0).shortage("score") is not None

    def test_a_top_up_ends_the_shortage(self) -> None:
        """The same stage then begins (C-21)."""
        topped = budget(10).top_up(40)

        assert topped.shortage("score", 50) is None
        assert (topped.ceiling_micro_usd, topped.initial_micro_usd) == (50, 10)

    def test_money_set_aside_is_for_closing_stages(self) -> None:
        """There is money to report how far the work came."""
        low = budget(100, set_aside_micro_usd=30, then=OnExhaustion.WRAP_UP).charge_unreserved(
            "extract", Spend(micro_usd=70)
        )
        lack = low.shortage("score", 10)

        assert lack is not None
        assert lack.then is OnExhaustion.WRAP_UP
        assert (
            low.reserve("9", "summary", 30, closing=True).charge("9", "a", bill(30)).settle("9").remaining_micro_usd
            == 0
        )

    def test_a_closing_stage_without_money_stops_the_pipeline(self) -> None:
        """Wrapping up does not continue for ever."""
        lack = budget(0, then=OnExhaustion.WRAP_UP).shortage("summary", closing=True)

        assert lack is not None
        assert lack.then is OnExhaustion.STOP

    def test_a_stage_may_have_its_own_limit(self) -> None:
        """For all its attempts, whatever the budget has."""
        limited = budget(1_000, limits={"extract": 100})
        tried = limited.reserve("1", "extract", 60).charge("1", "a", bill(60)).settle("1")
        lack = tried.shortage("extract", 50)

        assert limited.shortage("extract", 100) is None
        assert lack is not None
        assert lack.missing_micro_usd == 10
        assert tried.shortage("score", 900) is None

    def test_a_limit_counts_concurrent_branches(self) -> None:
        """Branches of one stage share its limit."""
        assert budget(1_000, limits={"test": 100}).reserve("1", "test", 60).shortage("test", 60) is not None

    def test_a_shortage_has_the_needed_and_the_free_amount(self) -> None:
        """A person decides on it."""
        lack = budget(50_000).shortage("extract", 60_000)

        assert lack is not None
        assert lack.text == "'extract' needs 0.06 USD of the budget and 0.05 USD are free"


class TestChildren:
    def test_a_child_gets_all_that_is_free_and_returns_the_rest(self) -> None:
        """It pays from the same budget (S3-9-c)."""
        account = account_of(budget(1_000, set_aside_micro_usd=100, limits={"part": 300}))
        child = account.reserve_child(4, "part")
        assert child is not None
        free = account.budget.free_micro_usd
        account.settle_child(4, "part", Spend(micro_usd=120))

        assert (child.remaining_micro_usd, free) == (300, 600)
        assert (account.budget.spent_micro_usd, account.budget.free_micro_usd) == (120, 780)

    def test_two_children_of_one_name_run_concurrently(self) -> None:
        """Settling one does not release the other's reservation; a top-up goes to the second."""
        account = account_of(budget(1_000))
        first = account.reserve_child(1, "part")
        account.top_up(50)
        second = account.reserve_child(2, "part")
        assert first is not None
        assert second is not None
        account.settle_child(2, "part", Spend(micro_usd=20))

        assert (first.remaining_micro_usd, second.remaining_micro_usd) == (1_000, 50)
        assert account.budget.free_micro_usd == 30
        account.settle_child(1, "part", Spend(micro_usd=400))
        assert (account.budget.spent_micro_usd, account.budget.open) == (420, {})


class TestRelay:
    def test_a_handoff_has_the_spent_and_remaining_amounts(self) -> None:
        """They add up to the budget, whatever is reserved (C-12, S3-9-a)."""
        cost = budget(400_000).reserve("1", "extract", 100_000).charge("1", "a", bill(80_000)).cost_tracking()

        assert (cost.spent_micro_usd, cost.remaining_micro_usd) == (80_000, 320_000)
        assert cost.to_json_object()["costBudgetRemainingUSD"] == 0.32
        assert cost.token_spent.prompt == 160_000

    def test_the_receiving_pipeline_continues_the_budget(self) -> None:
        """One limit for the whole chain, across pipelines (S3-9-c)."""
        sent = budget(400_000).charge_unreserved("extract", Spend(micro_usd=80_000, prompt_tokens=7)).top_up(100)
        received = budget(900_000).model_copy(update={"then": OnExhaustion.STOP}).relayed(sent.cost_tracking())

        assert received.cost_tracking() == sent.cost_tracking()
        assert (received.ceiling_micro_usd, received.then) == (400_100, OnExhaustion.STOP)


OUTCOMES = ["good", "refused", "raised", "lost", "twice"]


class TestSum:
    @given(st.integers(0, 5_000), st.lists(st.tuples(st.sampled_from(OUTCOMES), st.integers(0, 900)), max_size=30))
    def test_records_bills_and_figures_agree_under_retries(self, initial: int, runs: list[tuple[str, int]]) -> None:
        """Whatever is retried, rejected, lost or repeated, every bill is charged once (S3-11-e, C-12)."""
        current, records, bills = budget(initial), list[Spend](), 0
        for step, (outcome, cost) in enumerate(runs):
            name = str(step)
            if current.shortage("work", cost):
                current = current.top_up(cost + 1_000)
            current = current.reserve(name, "work", cost)
            attempts = 1 if outcome == "good" else 2
            for attempt in range(attempts):
                bills += cost
                records.append(bill(cost))
                if outcome == "lost" and attempt == 0:
                    current = current.charge_unreserved("work", bill(cost))
                    continue
                current = current.charge(name, f"{name}/{attempt}", bill(cost))
                if outcome == "twice":
                    current = current.charge(name, f"{name}/{attempt}", bill(cost))
            current = Budget.model_validate_json(current.settle(name).model_dump_json())

        assert current.spent_micro_usd == bills == sum(records, Spend()).micro_usd
        assert current.spent == sum(records, Spend())
        assert current.spent_micro_usd + current.remaining_micro_usd == current.ceiling_micro_usd
        assert current.open == {}

    @given(st.integers(0, 10_000), st.randoms(use_true_random=False))
    def test_no_order_of_events_overdraws_the_budget(self, initial: int, dice: random.Random) -> None:
        """If concurrent stages keep to their reservations (S3-9-c)."""
        current, running = budget(initial), dict[str, int]()
        for step in range(40):
            amount = dice.randrange(0, 2_000)
            if dice.random() < 0.5 and not current.shortage("work", max(1, amount)):
                name = str(step)
                current, running[name] = current.reserve(name, "work", max(1, amount)), max(1, amount)
            elif running:
                name = dice.choice(sorted(running))
                used = dice.randint(0, running.pop(name))
                current = current.charge(name, "a", bill(used)).settle(name)

            assert 0 <= current.free_micro_usd <= current.remaining_micro_usd <= initial

    def test_a_budget_survives_json(self) -> None:
        """Open reservations included (replay, continue-as-new)."""
        stored = budget(1_000, limits={"a": 5}, then=OnExhaustion.STOP).reserve("1", "b", 10).charge("1", "x", bill(3))

        assert Budget.model_validate_json(stored.model_dump_json()) == stored
        assert stored.open["1"] == Reservation(stage="b", micro_usd=10, charged=["x"], charged_micro_usd=3)
