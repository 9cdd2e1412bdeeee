"""What a task cost, from its records (EAAPL-MAG006 §6.2, §13.3; C-12)."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.verdict import HandoffStatus
from baton.ledger.entries import task_cost
from baton.ledger.records import AuditCost, AuditEntry, AuditHeader, Kind
from tests.ledger.material import chain, entry


def headers(*entries: AuditEntry) -> list[AuditHeader]:
    """Return the headers of a chain of these entries."""
    return [record.fields for record in chain(entries=list(entries))]


def cents(spent: int, **members: Any) -> AuditCost:
    """Return the cost of a record whose task has spent so many of 40 cents."""
    about = {"spent_micro_usd": spent * 10_000, "remaining_micro_usd": (40 - spent) * 10_000}
    return AuditCost(**about | members)


def owns(cents: int) -> dict[str, int]:
    """Return the members for an own cost of so many cents, with ten tokens for each."""
    return {"own_micro_usd": cents * 10_000, "own_prompt_tokens": cents * 10, "own_completion_tokens": 0}


FOUR_AGENTS = headers(
    entry(0, cost=cents(10, prompt_tokens=1000, completion_tokens=100)),
    entry(1, cost=cents(20, prompt_tokens=2500, completion_tokens=300)),
    entry(2, cost=cents(30, prompt_tokens=3000, completion_tokens=400)),
    entry(3, kind=Kind.COMPLETION, status="COMPLETED", cost=cents(35, prompt_tokens=4000, completion_tokens=900)),
)


def stage(
    number: int, *, spent: int, own: int, run_id: str = "pipeline/1", kind: str = Kind.HANDOFF
) -> tuple[AuditEntry, AuditEntry]:
    """Return a stage's records, acceptance and completion, with ten prompt tokens for each cent."""
    accepted = cents(spent, prompt_tokens=spent * 10)
    after = cents(spent + own, prompt_tokens=(spent + own) * 10, **owns(own))
    returned: Any = {"from_agent": f"receiver-{number}", "status": "RETURNED", "message": {"done": number}}
    return (
        entry(number, kind=kind, cost=accepted, run_id=run_id),
        entry(number, kind=Kind.COMPLETION, cost=after, run_id=run_id, **returned),
    )


class TestTaskCost:
    def test_the_total_is_the_last_records_total(self) -> None:
        """Three handoffs and a completion: 0.35, not 0.1 + 0.2 + 0.3; tokens likewise (S3-13.3-c, S3-6.2-d, C-12)."""
        cost = task_cost(FOUR_AGENTS)

        assert cost.usd == Decimal("0.35")
        assert (cost.prompt_tokens, cost.completion_tokens) == (4000, 900)
        assert cost.complete

    def test_the_literal_sum_of_the_document_holds_for_the_agents_own_costs(self) -> None:
        """Adding up what each record itself added gives the spend; adding up `costSpentSoFarUSD` does not (C-12)."""
        cost = task_cost(FOUR_AGENTS)
        cumulative = sum(header.cost.spent_micro_usd for header in FOUR_AGENTS if header.cost)

        assert sum(share.micro_usd for share in cost.shares) == cost.micro_usd == 350_000
        assert cumulative == 950_000

    def test_each_agent_is_charged_its_own_cost(self) -> None:
        """Costs are attributed by differences, for tokens and money (S3-6.2-d)."""
        cost = task_cost(FOUR_AGENTS)

        assert cost.by_agent == {
            "agent-0": Decimal("0.1"),
            "agent-1": Decimal("0.1"),
            "agent-2": Decimal("0.1"),
            "agent-3": Decimal("0.05"),
        }
        assert [share.prompt_tokens for share in cost.shares] == [1000, 1500, 500, 1000]

    def test_without_a_completion_the_cost_is_incomplete(self) -> None:
        """Three handoffs do not include the fourth agent's cost (C-12)."""
        cost = task_cost(FOUR_AGENTS[:3])

        assert (cost.usd, cost.complete) == (Decimal("0.3"), False)

    def test_an_earlier_completion_does_not_make_the_cost_complete(self) -> None:
        """The agent with the last handoff may still work, or its completion is not recorded."""
        [*finished, (begun, _)] = [stage(number, spent=number, own=1) for number in range(3)]
        cost = task_cost(headers(*(event for pair in finished for event in pair), begun))

        assert (cost.usd, cost.complete) == (Decimal("0.02"), False)

    def test_the_cost_is_complete_after_all_branches_return(self) -> None:
        """The first one is not enough."""
        (begun, ended), (other_begun, other_ended) = stage(1, spent=1, own=2), stage(2, spent=1, own=5)
        other_begun, other_ended = (
            event.model_copy(update={"from_agent": begun.from_agent}) for event in (other_begun, other_ended)
        )
        costs = [
            task_cost(headers(*stage(0, spent=0, own=1), *end))
            for end in ([begun, other_begun, other_ended], [begun, other_begun])
        ]
        complete = task_cost(headers(*stage(0, spent=0, own=1), begun, other_begun, other_ended, ended))

        assert [cost.complete for cost in costs] == [False, False]
        assert (complete.usd, complete.complete) == (Decimal("0.08"), True)

    @pytest.mark.parametrize("further", [[], stage(5, spent=0, own=1, run_id="child/1", kind="start")])
    def test_a_repeated_completion_counts_once(self, further: Sequence[AuditEntry]) -> None:
        """The second completion, of a run after a lost one, includes the first one's cost (C-12)."""
        begun, ended = stage(1, spent=1, own=4)
        _, repeated = stage(1, spent=1, own=9)
        repeated = repeated.model_copy(update={"execution": 2})
        cost = task_cost(headers(*stage(0, spent=0, own=1), begun, ended, repeated, *further))

        assert [share.micro_usd // 10_000 for share in cost.shares][:5] == [0, 1, 0, 4, 5]
        assert [share.prompt_tokens for share in cost.shares][:5] == [0, 10, 0, 40, 50]
        assert (cost.usd, cost.findings) == (Decimal("0.11") if further else Decimal("0.1"), ())

    def test_the_spend_of_a_failed_run_counts_once(self) -> None:
        """Each failure states the spend so far, and the completion the total (C-12)."""
        begun, ended = stage(1, spent=1, own=9)
        failures = [
            ended.model_copy(
                update={
                    "execution": run,
                    "status": "FAILED",
                    "cost": cents(1 + own, prompt_tokens=(1 + own) * 10, **owns(own)),
                    "message": {},
                }
            )
            for run, own in ((1, 4), (2, 7))
        ]
        cost = task_cost(headers(*stage(0, spent=0, own=1), begun, *failures, ended))

        assert [share.micro_usd // 10_000 for share in cost.shares] == [0, 1, 0, 4, 3, 2]
        assert (cost.usd, cost.findings) == (Decimal("0.1"), ())

    def test_the_spend_of_a_rolled_back_run_counts(self) -> None:
        """The next run's first handoff does not include it, but the money is spent."""
        rolled_back = [*stage(0, spent=0, own=1, run_id="pipeline/1"), *stage(1, spent=1, own=4, run_id="pipeline/1")]
        repeated = stage(2, spent=1, own=3, run_id="pipeline/2")
        cost = task_cost(headers(*rolled_back, *repeated))

        assert (cost.usd, cost.complete, cost.findings) == (Decimal("0.08"), True, ())

    @pytest.mark.parametrize("left", [[], [*stage(8, spent=0, own=9, run_id="pipeline/0")]])
    def test_a_summary_is_charged_to_its_sender(self, left: Sequence[AuditEntry]) -> None:
        """Even if no handoff includes it: after a run that had spent more, or at the end of a run."""
        summary = entry(
            5, kind=Kind.SUMMARY, cost=cents(3, prompt_tokens=30, own_micro_usd=10_000), run_id="pipeline/1"
        )
        sender, receiver = stage(1, spent=0, own=2), stage(2, spent=3, own=4)
        costs = [task_cost(headers(*left, *sender, summary, *then)) for then in (receiver, ())]

        assert [(cost.by_agent["agent-5"], cost.complete, cost.findings) for cost in costs] == [
            (Decimal("0.01"), True, ())
        ] * 2
        assert [int(cost.usd * 100) - (9 if left else 0) for cost in costs] == [7, 3]

    def test_a_summary_and_the_stage_that_hands_on_to_itself_each_count(self) -> None:
        """Both are of one agent, one handoff and one attempt."""
        begun, summary, returned = (
            entry(5, cost=cents(5)),
            entry(5, kind=Kind.SUMMARY, cost=cents(5, **owns(2))),
            entry(5, kind=Kind.COMPLETION, status="RETURNED", cost=cents(7, **owns(3))),
        )
        same: Any = {"from_agent": "write", "to_agent": "write", "run_id": "pipeline/1"}
        cost = task_cost(headers(*(event.model_copy(update=same) for event in (begun, summary, returned))))

        assert (cost.usd, cost.by_agent, cost.findings) == (Decimal("0.1"), {"write": Decimal("0.1")}, ())

    def test_summaries_for_branches_each_count(self) -> None:
        """They are made concurrently, perhaps before any branch accepts its handoff."""
        first, second = (
            entry(number, kind=Kind.SUMMARY, cost=cents(2, own_micro_usd=10_000), run_id="pipeline/1")
            for number in (5, 6)
        )
        cost = task_cost(headers(*stage(0, spent=0, own=1), first, second))

        assert (cost.usd, cost.complete, cost.findings) == (Decimal("0.03"), True, ())

    def test_a_summary_is_charged_to_one_branch_only(self) -> None:
        """The other handoffs can be recorded after it although they were made before it."""
        summary = entry(5, kind=Kind.SUMMARY, cost=cents(2, own_micro_usd=10_000), run_id="pipeline/1")
        (begun, ended), (other_begun, other_ended) = stage(1, spent=1, own=2), stage(2, spent=2, own=5)
        cost = task_cost(headers(*stage(0, spent=0, own=1), summary, begun, ended, other_begun, other_ended))

        assert (cost.usd, cost.complete, cost.findings) == (Decimal("0.09"), True, ())

    def test_a_repeated_handoff_counts_once(self) -> None:
        """The first handoff already stated its cost."""
        begun, ended = stage(1, spent=1, own=4)
        repeated_begin, repeated_end = (
            event.model_copy(update={"conflict": "sha256:" + "0" * 64}) for event in (begun, ended)
        )
        cost = task_cost(headers(*stage(0, spent=0, own=1), begun, ended, repeated_begin, repeated_end))

        assert (cost.usd, cost.complete, cost.findings) == (Decimal("0.05"), True, ())

    def test_a_rejected_message_costs_nothing_by_itself(self) -> None:
        """A forged amount in a rejected message is not charged; the next record has the real cost."""
        cost = task_cost(
            headers(
                entry(0, cost=cents(10)),
                entry(1, status=HandoffStatus.REJECTED, cost=AuditCost(spent_micro_usd=10**12)),
                entry(1, attempt=2, cost=cents(25)),
            )
        )

        assert cost.usd == Decimal("0.25")
        assert cost.findings == ()

    def test_a_stated_own_cost_takes_precedence(self) -> None:
        """For concurrent agents the difference to the previous record is not the sender's own cost."""
        cost = task_cost(
            headers(
                entry(0, cost=cents(10, own_micro_usd=100_000)),
                entry(1, cost=cents(40, own_micro_usd=120_000)),
                entry(2, cost=cents(40, own_micro_usd=180_000)),
            )
        )

        assert list(cost.by_agent.values()) == [Decimal("0.1"), Decimal("0.12"), Decimal("0.18")]
        assert cost.findings == ()

    @pytest.mark.parametrize(
        ("costs", "finding"),
        [
            pytest.param([cents(10), cents(20, remaining_micro_usd=400_000)], "budget changed", id="the budget grew"),
            pytest.param([cents(10), cents(20, remaining_micro_usd=None)], "to no limit", id="the budget is gone"),
            pytest.param([cents(20, own_micro_usd=1)], "shares add up to 0.000001", id="a share is wrong"),
        ],
    )
    def test_inconsistent_amounts_are_reported(self, costs: list[AuditCost], finding: str) -> None:
        """Spent and remaining add up to the same budget in every record (C-12, S3-9-a)."""
        result = task_cost(headers(*(entry(number, cost=cost) for number, cost in enumerate(costs))))

        assert finding in " ".join(result.findings)

    def test_only_a_recorded_top_up_raises_the_budget(self) -> None:
        """A second increase, or a decrease, is reported (C-12, C-21)."""
        decision = entry(1, kind=Kind.DECISION, status="TOP_UP", cost=None, message={"microUsd": 100_000})
        more = cents(20, remaining_micro_usd=300_000)

        topped_up = [entry(0, cost=cents(10)), decision, entry(2, cost=more)]
        assert task_cost(headers(*topped_up)).findings == ()
        later = entry(3, cost=cents(30, remaining_micro_usd=300_000))
        assert (
            "record 4: the budget changed from 0.5 USD to 0.6 USD" in task_cost(headers(*topped_up, later)).findings[0]
        )
        shrunk = entry(2, cost=cents(20, remaining_micro_usd=100_000))
        assert (
            "changed from 0.4 USD to 0.3 USD"
            in task_cost(headers(entry(0, cost=cents(10)), decision, shrunk)).findings[0]
        )

    def test_a_child_pipeline_has_its_own_budget(self) -> None:
        """It starts with nothing spent, and its cost is in its parent's figures after its end (C-12)."""
        cost = task_cost(
            headers(
                *stage(0, spent=0, own=2, run_id="parent/1", kind="start"),
                *stage(1, spent=0, own=1, run_id="child/1", kind="start"),
                *stage(2, spent=3, own=4, run_id="parent/1"),
            )
        )

        assert {agent: int(usd * 100) for agent, usd in cost.by_agent.items() if usd} == {
            "receiver-0": 2,
            "receiver-1": 1,
            "receiver-2": 4,
        }
        assert [share.prompt_tokens for share in cost.shares] == [0, 20, 0, 10, 0, 40]
        assert (cost.usd, cost.prompt_tokens, cost.findings) == (Decimal("0.07"), 70, ())

    def test_concurrent_agents_each_count(self) -> None:
        """No agent knows the others' spend; a failed run is charged to its sender, as the next handoff shows."""
        (begun, ended), (other_begun, other_ended) = stage(1, spent=3, own=2), stage(2, spent=3, own=5)
        cost = task_cost(headers(*stage(0, spent=0, own=1), begun, other_begun, ended, other_ended))

        assert [share.micro_usd // 10_000 for share in cost.shares] == [0, 1, 2, 0, 2, 5]
        assert (cost.usd, cost.prompt_tokens, cost.findings) == (Decimal("0.1"), 100, ())

    def test_sequential_branches_each_count(self) -> None:
        """The first returned before the second was accepted, whose handoff was older."""
        cost = task_cost(headers(*stage(0, spent=0, own=1), *stage(1, spent=1, own=2), *stage(2, spent=1, own=5)))

        assert [share.micro_usd // 10_000 for share in cost.shares] == [0, 1, 0, 2, 0, 5]
        assert (cost.usd, cost.prompt_tokens, cost.complete, cost.findings) == (Decimal("0.08"), 80, True, ())

    def test_a_resent_branch_before_another_branch_counts(self) -> None:
        """The second handoff was made before the first completion, which is not a refund."""
        repeated = entry(5, cost=cents(10, prompt_tokens=100), run_id="pipeline/1")
        cost = task_cost(headers(*stage(1, spent=0, own=10), repeated, *stage(2, spent=0, own=5)))

        assert (cost.usd, cost.findings) == (Decimal("0.15"), ())
        assert [share.micro_usd for share in cost.shares] == [0, 100_000, 0, 0, 50_000]

    def test_pipelines_that_share_a_task_each_count(self) -> None:
        """The last writer does not know the other pipelines' spend."""
        cost = task_cost(
            headers(*(event for n in range(5) for event in stage(n, spent=0, own=n + 1, run_id=f"pipeline-{n}/1")))
        )

        assert (cost.usd, cost.findings) == (Decimal("0.15"), ())

    def test_a_chain_without_costs_cost_nothing(self) -> None:
        """A record without a cost does not interrupt the sums."""
        assert task_cost(headers(entry(0, cost=None))).usd == 0

    @given(owns=st.lists(st.integers(0, 10**9), max_size=12))
    def test_shares_always_add_up_to_the_total(self, owns: list[int]) -> None:
        """For any spend of the agents."""
        spent = [sum(owns[: number + 1]) for number in range(len(owns))]
        cost = task_cost(
            headers(*(entry(number, cost=AuditCost(spent_micro_usd=amount)) for number, amount in enumerate(spent)))
        )

        assert [share.micro_usd for share in cost.shares] == owns
        assert (cost.micro_usd, cost.findings) == (sum(owns), ())
