"""The handoff builder: an agent's state becomes a message that a receiver accepts."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from baton import Budget, Spend
from baton.core.costs import CostTracking
from baton.core.messages import StageInput, StageReturn
from baton.core.stages import StageSpec
from baton.core.turns import Turn
from baton.errors import RoutingError
from baton.handoff.records import CompletedSubtask, ContextItem, Handoff, Sender, Subtask, Target, ToolCall, Trail
from baton.handoff.relay import AgentState, Envelope, HandoffTerms, Relay, build_handoff, hop_of
from baton.handoff.sealed import SealError
from baton.handoff.store_gate import handoff_gate
from baton.handoff.validation import check_handoff
from tests.handoff.material import (
    AT,
    EXAMPLE,
    EXECUTION_ID,
    HANDOFF_ID,
    PARENT_ID,
    RECEIVER,
    TASK_ID,
    TRACEPARENT,
)

TARGET = Target(agent_type="risk-scoring-agent", agent_version=">=1.5.0")
CONSTRAINTS = ["returnJSON:true", "maxResponseTokens:2000", "scoringFramework:iso31000"]


def state(**changes: Any) -> AgentState:
    """Return the state of the example's sender, which got 0.40 USD and cost 0.08."""
    members: dict[str, Any] = {
        "agent": Sender(agent_id="legal-analysis-agent", agent_version="2.1.0", execution_id=EXECUTION_ID),
        "task_id": TASK_ID,
        "task_description": EXAMPLE["taskDescription"],
        "cost": Budget(initial_micro_usd=400_000).cost_tracking(),
        "spend": Spend(micro_usd=80_000, prompt_tokens=4200, completion_tokens=1800),
        "traceparent": TRACEPARENT,
        "parent_handoff_id": PARENT_ID,
        "completed": [
            CompletedSubtask(
                subtask_id="s1",
                description="Extract limitation-of-liability clauses",
                result={"clauses": []},
                completed_at=AT - timedelta(seconds=2),
            )
        ],
        "remaining": [Subtask.from_json_object(subtask) for subtask in EXAMPLE["remainingSubtasks"]],
        "current_state": EXAMPLE["currentState"],
        "relevant_context": [
            ContextItem(source="Contract PDF 2026-06-11", excerpt="...", relevance_score=0.92),
        ],
        "history_summary": EXAMPLE["conversationHistorySummary"],
        "tool_calls": [
            ToolCall(
                tool="pdf_extract",
                called_at=AT - timedelta(seconds=19),
                input_hash="sha256:" + "0" * 64,
                output_tokens=3200,
            )
        ],
    }
    return AgentState(**{**members, **changes})


def build(agent_state: AgentState | None = None, envelope: Envelope | None = None) -> Handoff:
    return build_handoff(
        agent_state or state(), TARGET, CONSTRAINTS, handoff_id=HANDOFF_ID, timestamp=AT, envelope=envelope
    )


class TestBuildHandoff:
    def test_it_builds_the_documents_example(self) -> None:
        """From an agent's state, a target and constraints, each member (S3-7.1.2-a, S3-5.1-a, S3-5.2-d, S3-5.2-z)."""
        assert build(envelope=Envelope(expires=None)).to_json_object() == EXAMPLE

    def test_it_expires_after_a_day_if_nothing_else_is_said(self) -> None:
        """A signature proves no freshness."""
        assert build().to_json_object() == EXAMPLE | {"expiresAt": "2026-06-13T09:30:00Z"}

    def test_what_it_builds_is_accepted(self) -> None:
        """Sender and receiver use the same schema (S3-3.1-b, S3-2-g)."""
        handoff = build(state(history=[Turn(content="x", role="user")], trail=Trail(hops=0, recent=[])), EVERYTHING)

        assert check_handoff(handoff.to_json_object(), RECEIVER, lambda message: [], check_schema=handoff_gate())[0]

    def test_the_same_arguments_build_the_same_message(self) -> None:
        """A replay builds the same message, because ids and times are arguments."""
        assert build() == build()

    def test_unused_members_are_absent(self) -> None:
        """A message states the version that its sender writes (S3-7.1.1-b, S3-5.2-a, S3-5.2-y, S3-14.2-c)."""
        for envelope, names in (
            (Envelope(expires=None), set()),
            (Envelope(), {"expiresAt"}),
            (Envelope(expires=None, receivers=["a", "b"]), {"receiverList"}),
            (Envelope(expires=None, personal_data={"s": "AA"}), {"personalDataPayload"}),
            (Envelope(expires=None, audience="x", audience_run="r"), {"audience", "audienceRun"}),
            (Envelope(expires=None, initial=True), {"initial"}),
        ):
            message = build(envelope=envelope).to_json_object()
            assert message["schemaVersion"] == "2.0"
            assert message.keys() - EXAMPLE.keys() == names

    def test_the_first_handoff_of_a_task_has_a_null_parent(self) -> None:
        """The member is present (S3-5.2-d, C-47)."""
        assert build(state(parent_handoff_id=None)).to_json_object()["parentHandoffId"] is None

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"task_id": "42"}, id="no uuid"),
            pytest.param({"traceparent": ""}, id="no trace"),
            pytest.param({"task_description": " "}, id="nothing to do"),
            pytest.param({"current_state": {"x": float("nan")}}, id="no JSON"),
        ],
    )
    def test_a_sender_learns_of_its_mistakes_first(self, changes: dict[str, Any]) -> None:
        """A message that every receiver would reject is not built (S3-7.1.1-b)."""
        with pytest.raises(ValidationError):
            build(state(**changes))

    def test_values_that_cannot_be_sealed_are_named(self) -> None:
        """Before anything is sent, because the receiver could only report a missing seal (S3-10.2-b)."""
        with pytest.raises(SealError, match=r"^currentState\.ids\.0: a whole number of 2\*\*53 or beyond") as raised:
            build(state(current_state={"ids": [2**53]}), Envelope(step={"n": -(2**60)}))
        assert "step.n: " in str(raised.value)

    def test_a_constraint_is_a_key_and_a_value(self) -> None:
        """Of the form `key:value` (S3-5.2-p)."""
        with pytest.raises(ValidationError, match="constraints"):
            build_handoff(state(), TARGET, ["be quick"], handoff_id=HANDOFF_ID, timestamp=AT)


EVERYTHING = Envelope(
    receivers=["risk-scoring-agent"],
    audience="contract_review/score",
    expires=timedelta(hours=1),
    personal_data={"subject": "AAEC"},
)


class TestTrail:
    def test_the_message_extends_the_trail(self) -> None:
        """It crosses pipelines with the message."""
        trail = build(state(trail=Trail(hops=4, recent=[]))).trail

        assert trail is not None
        assert trail.hops == 5
        assert trail.recent == [
            hop_of("legal-analysis-agent", "risk-scoring-agent", EXAMPLE["currentState"], state().remaining)
        ]

    def test_a_loop_is_not_continued(self) -> None:
        """No message is built, and the error says what to do."""
        trail: Trail | None = Trail(hops=0, recent=[])
        for _ in range(2):
            trail = build(state(trail=trail)).trail

        with pytest.raises(RoutingError, match="change it or ask a person"):
            build(state(trail=trail))

    def test_progress_is_another_state_or_less_work_left(self) -> None:
        """Either makes the hop another one."""
        remaining = [Subtask(subtask_id="s2", description="x")]
        hops = {
            hop_of("a", "b", {"x": 1}, remaining).state,
            hop_of("a", "b", {"x": 2}, remaining).state,
            hop_of("a", "b", {"x": 1}, []).state,
        }

        assert len(hops) == 3


class TestAddSpend:
    def test_the_sender_deducts_what_it_really_cost(self) -> None:
        """The message's figures reflect it (S3-13.2-d, S3-9-a, S3-9-b)."""
        cost = build().cost_tracking

        assert (cost.cost_spent_so_far_usd, cost.cost_budget_remaining_usd) == (Decimal("0.08"), Decimal("0.32"))
        assert (cost.token_spent.prompt, cost.token_spent.completion) == (4200, 1800)

    @given(st.integers(0, 10**12), st.lists(st.integers(0, 10**9), max_size=12))
    def test_spent_and_left_are_always_the_budget(self, budget: int, costs: list[int]) -> None:
        """Along the whole chain, over the wire at every hop, to the millionth (C-12, S3-9-c, money)."""
        cost = Budget(initial_micro_usd=budget).cost_tracking()
        for spent in costs:
            cost = CostTracking.from_json(cost.after(Spend(micro_usd=spent)).model_dump_json())

            assert cost.spent_micro_usd + cost.remaining_micro_usd == budget
        assert cost.spent_micro_usd == sum(costs)

    def test_three_tenths_are_gone_after_three_times_a_tenth(self) -> None:
        """Binary fractions would leave a rounding error (money)."""
        cost = Budget(initial_micro_usd=800_000).cost_tracking()
        for spent in (700_000, 100_000):
            cost = cost.after(Spend(micro_usd=spent))

        assert 0.8 - 0.7 - 0.1 > 0
        assert cost.cost_budget_remaining_usd == 0
        assert cost.to_json_object()["costBudgetRemainingUSD"] == 0

    def test_an_overdrawn_budget_is_reported_unchanged(self) -> None:
        """The receiver refuses to execute; the sender's figures stay true (S3-6.1-m)."""
        assert (
            Budget(initial_micro_usd=50_000).cost_tracking().after(Spend(micro_usd=80_000)).remaining_micro_usd
            == -30_000
        )


class TestFailedChild:
    def test_a_continued_run_and_its_parent_follow_the_way_back(self) -> None:
        """The pipeline hands on by itself, linked to the last span that it knows."""
        before, after = (
            Relay("Delivery", TASK_ID, EXECUTION_ID, HandoffTerms(), follows="b7ad6b7169203331") for _ in range(2)
        )
        before.follow_failure(HANDOFF_ID, 3, "worker", AT)
        after.restore(before.carried())
        stage_input = StageInput(stage="test", seq=4, task_id=TASK_ID, baton={"goal": "g"})
        cost = Budget(initial_micro_usd=400_000).cost_tracking()
        handoff = after.message(StageSpec("test"), stage_input, cost, handoff_id=PARENT_ID, now=AT)

        assert handoff.parent_handoff_id == handoff.from_agent.execution_id == HANDOFF_ID
        assert handoff.from_agent.agent_id == "Delivery"
        assert (handoff.step or {})["follows"] == after.last_span == "b7ad6b7169203331"
        assert [subtask.subtask_id for subtask in handoff.completed_subtasks] == ["3:worker"]
        assert after.handoff_for_parent is not None
        assert after.handoff_for_parent.handoff_id == HANDOFF_ID
        after.complete_stage(StageSpec("test"), StageReturn(stage="test", seq=4), PARENT_ID, AT)
        assert after.last_span not in (None, "b7ad6b7169203331")
