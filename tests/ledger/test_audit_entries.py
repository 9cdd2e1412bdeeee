"""The entries made from messages, including malformed ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton import Spend
from baton.core.costs import CostTracking
from baton.core.verdict import HandoffStatus
from baton.ledger.entries import erasure_entry, handoff_entry
from baton.ledger.records import AuditCost, Kind
from baton.wire.json_values import digest, loads_strict
from tests.ledger.material import NOW, TASK, chain, message

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=8,
)
AMOUNTS = st.integers(0, 10**12)


class TestHandoffEntry:
    def test_the_entry_repeats_agents_and_cost_of_the_message(self) -> None:
        """Handoff and task id, sender's agent id, receiver's type, status, cost and time (S3-7.2-k, S3-13.2-a)."""
        event = handoff_entry(message(1), task_id=TASK, status=HandoffStatus.ACCEPTED, timestamp=NOW)

        assert (event.event_id, event.from_agent, event.to_agent) == ("handoff-1", "agent-1", "agent-2")
        assert (event.task_id, event.status, event.timestamp) == (TASK, "ACCEPTED", NOW)
        assert event.cost is not None
        assert (event.cost.spent_micro_usd, event.cost.remaining_micro_usd) == (20_000, 380_000)
        assert event.message == message(1)

    def test_a_rejection_has_the_task_and_the_full_message(self) -> None:
        """The document's code writes neither, so its own query would miss the rejection (C-22, S3-7.2-i)."""
        event = handoff_entry(
            message(1),
            task_id=TASK,
            status=HandoffStatus.REJECTED,
            reason="INCOMPLETE_CONTEXT",
            details="x" * 20_000,
            attempt=2,
            timestamp=NOW,
        )

        assert (event.task_id, event.status, event.reason, event.attempt) == (TASK, "REJECTED", "INCOMPLETE_CONTEXT", 2)
        assert event.details == "x" * 16_000
        assert event.message == message(1)

    @given(
        members=st.fixed_dictionaries(
            {}, optional=dict.fromkeys(["handoffId", "fromAgent", "toAgent", "costTracking", "taskId"], json_values)
        )
    )
    def test_any_message_can_be_recorded(self, members: dict[str, Any]) -> None:
        """A rejection is recorded for every message, however malformed (S3-6.2-a)."""
        event = handoff_entry(members, task_id=TASK, status=HandoffStatus.REJECTED, timestamp=NOW)

        [record] = chain(entries=[event])
        assert record.body == members

    @pytest.mark.parametrize("handoff_id", [None, 7, "", "a\x00b", "x" * 300, {"a": 1}])
    def test_an_invalid_id_is_replaced_by_the_digest(self, handoff_id: Any) -> None:
        """Two such messages are two events; the same message twice is one."""
        event = handoff_entry({"handoffId": handoff_id}, task_id=TASK, status=HandoffStatus.REJECTED, timestamp=NOW)

        assert event.event_id == digest({"handoffId": handoff_id})


class TestErasureEntry:
    def test_the_erasure_names_what_was_removed_and_the_pseudonym(self) -> None:
        """The erasure is itself a record, without personal data (C-24)."""
        event = erasure_entry("e-1", task_id=TASK, subject="s-93f1", removed={"keys": 1}, timestamp=NOW, actor="dpo")

        assert (event.kind, event.event_id, event.actor) == (Kind.ERASURE, "e-1", "dpo")
        assert event.message == {"removed": {"keys": 1}, "subject": "s-93f1"}


def cost_of(tracking: Any) -> AuditCost | None:
    """Return the cost in the entry of a message that states it."""
    return handoff_entry({"costTracking": tracking}, task_id=TASK, status=HandoffStatus.ACCEPTED, timestamp=NOW).cost


class TestCostOf:
    @pytest.mark.parametrize(
        "tracking",
        [
            None,
            [],
            {},
            {"costSpentSoFarUSD": "0.08", "costBudgetRemainingUSD": 1, "tokenSpent": {"prompt": 1, "completion": 1}},
            {"costSpentSoFarUSD": True, "costBudgetRemainingUSD": 1, "tokenSpent": {"prompt": 1, "completion": 1}},
            {"costSpentSoFarUSD": -1, "costBudgetRemainingUSD": 1, "tokenSpent": {"prompt": 1, "completion": 1}},
            {"costSpentSoFarUSD": 1e300, "costBudgetRemainingUSD": 1, "tokenSpent": {"prompt": 1, "completion": 1}},
            {"costSpentSoFarUSD": 1, "costBudgetRemainingUSD": 1, "tokenSpent": {"prompt": 1.5, "completion": 1}},
        ],
    )
    def test_a_malformed_cost_is_none(self, tracking: Any) -> None:
        """A malformed amount never becomes a number on record (C-48)."""
        assert cost_of(tracking) is None

    @given(st.builds(Spend, micro_usd=AMOUNTS, prompt_tokens=AMOUNTS, completion_tokens=AMOUNTS), AMOUNTS)
    def test_a_message_and_its_record_state_the_same_spend(self, spent: Spend, own: int) -> None:
        """The record of a handoff repeats what the message says, to the millionth (C-12, S3-9-c)."""
        tracking = CostTracking.of(spent, 400_000)
        cost = cost_of(loads_strict(tracking.model_dump_json()))

        assert cost is not None
        assert tracking.spent == cost.spent == spent
        assert (cost.own, cost.after(Spend(micro_usd=own)).own) == (None, Spend(micro_usd=own))
        assert cost.after(Spend(micro_usd=own)).spent == tracking.after(Spend(micro_usd=own)).spent

    @pytest.mark.parametrize(
        ("spent", "left", "recorded"),
        [
            pytest.param(0, 1_000_000, None, id="nothing spent"),
            pytest.param(20, 999_980, None, id="spent and left add up to it"),
            pytest.param(0, 2_500_000, None, id="more than it"),
            pytest.param(20, 999_979.999999, 999_979_999_999, id="a budget just below it"),
        ],
    )
    def test_a_message_without_a_budget_has_no_amount_left(self, spent: int, left: float, recorded: int | None) -> None:
        """Its schema wants a number, which no record repeats as money."""
        tracking = message()["costTracking"] | {"costSpentSoFarUSD": spent, "costBudgetRemainingUSD": left}

        cost = cost_of(tracking)

        assert cost is not None
        assert cost.remaining_micro_usd == recorded

    def test_an_overdrawn_budget_is_recorded(self) -> None:
        """The remaining budget can be negative (S3-6.1-m)."""
        tracking = message()["costTracking"] | {"costBudgetRemainingUSD": -0.05}

        cost = cost_of(tracking)

        assert cost is not None
        assert cost.remaining_micro_usd == -50_000
