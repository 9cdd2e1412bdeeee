"""The handoff message as a record: what is required, what is optional, what survives."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from baton.core.costs import CostTracking, TokenSpent
from baton.core.turns import Turn
from baton.handoff.records import Handoff
from tests.handoff.material import EXAMPLE, FULL, OPTIONAL, TOP_LEVEL, changed, messages, without


def member(record: Any, path: str) -> Any:
    """Return a record's value of the member at a wire path."""
    for step in path.split("/"):
        if step.isdigit():
            record = record[int(step)]
        else:
            kind = type(record).model_fields
            record = getattr(record, next(name for name, field in kind.items() if field.alias == step))
    return record


class TestExample:
    def test_it_is_a_handoff(self) -> None:
        """The document's example, its placeholders filled, is valid and comes back as it was sent (S3-5.2-z)."""
        assert Handoff.from_json(json.dumps(EXAMPLE)).to_json_object() == EXAMPLE

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            pytest.param("schemaVersion", "2.0", id="S3-5.2-a"),
            pytest.param("handoffId", "7c9e6679-7425-40de-944b-e07fc1f90ae7", id="S3-5.2-b"),
            pytest.param("taskId", "550e8400-e29b-41d4-a716-446655440000", id="S3-5.2-c"),
            pytest.param("parentHandoffId", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", id="S3-5.2-d"),
            pytest.param("fromAgent/agentId", "legal-analysis-agent", id="S3-5.2-e"),
            pytest.param("fromAgent/agentVersion", "2.1.0", id="S3-5.2-f"),
            pytest.param("fromAgent/executionId", "16fd2706-8baf-433b-82eb-8c7fada847da", id="S3-5.2-g"),
            pytest.param("toAgent/agentType", "risk-scoring-agent", id="S3-5.2-h"),
            pytest.param("toAgent/agentVersion", ">=1.5.0", id="S3-5.2-i"),
            pytest.param("taskDescription", "Score the liability risk of the extracted clauses", id="S3-5.2-k"),
            pytest.param("completedSubtasks/0/subtaskId", "s1", id="S3-5.2-l"),
            pytest.param("completedSubtasks/0/result", {"clauses": []}, id="S3-5.2-l, the result"),
            pytest.param("remainingSubtasks/1/description", "Produce executive risk summary", id="S3-5.2-m"),
            pytest.param(
                "currentState", {"extractedClauses": ["4.2"], "riskFlags": [], "pendingDecisions": []}, id="S3-5.2-n"
            ),
            pytest.param("relevantContext/0/relevanceScore", 0.92, id="S3-5.2-o"),
            pytest.param("constraints/1", "maxResponseTokens:2000", id="S3-5.2-p"),
            pytest.param("costTracking/costSpentSoFarUSD", Decimal("0.08"), id="S3-5.2-q"),
            pytest.param("costTracking/costBudgetRemainingUSD", Decimal("0.32"), id="S3-5.2-r"),
            pytest.param("costTracking/tokenSpent/prompt", 4200, id="S3-5.2-s"),
            pytest.param("costTracking/tokenSpent/completion", 1800, id="S3-5.2-t"),
            pytest.param("conversationHistoryVerbatim/0/content", "Which clause limits liability?", id="S3-5.2-v"),
            pytest.param("toolCallHistory/0/outputTokens", 3200, id="S3-5.2-w"),
            pytest.param("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", id="S3-5.2-x"),
        ],
    )
    def test_every_member_is_read_under_its_own_name(self, path: str, value: Any) -> None:
        """The record means by each member what the document means (S3-5.2-a to S3-5.2-x, S3-2-e)."""
        assert member(Handoff.from_json_object(FULL), path) == value

    def test_times_and_the_summary_are_read(self) -> None:
        """Times carry their offset, the summary its text (S3-5.2-j, S3-5.2-u)."""
        handoff = Handoff.from_json_object(FULL)

        assert handoff.timestamp.isoformat() == "2026-06-12T09:30:00+00:00"
        assert handoff.conversation_history_summary.endswith("last 3 turns verbatim below]")


class TestMembers:
    def test_the_eighteen_members_of_the_document_come_first_and_in_its_order(self) -> None:
        """The record has exactly the document's names, and only optional ones beyond them (S3-2-a, C-47)."""
        names = [field.alias for field in Handoff.model_fields.values()]

        assert tuple(names[:18]) == TOP_LEVEL
        assert names[18:] == list(OPTIONAL)

    def test_no_required_member_has_a_default(self) -> None:
        """A default would fill in what a sender forgot, and nobody would see it (C-47)."""
        fields = Handoff.model_fields.values()

        assert tuple(field.alias for field in fields if field.is_required()) == TOP_LEVEL

    @pytest.mark.parametrize("name", OPTIONAL)
    def test_an_optional_member_is_kept(self, name: str) -> None:
        """What the document names beside the example, and what came with later minors, may be there (S3-5.2-y)."""
        message = {**EXAMPLE, name: OPTIONAL[name]}

        assert Handoff.from_json_object(message).to_json_object() == message

    @pytest.mark.parametrize("name", OPTIONAL)
    def test_an_optional_member_is_absent_and_never_null(self, name: str) -> None:
        """There is one way of not having it, so two readers cannot differ about it."""
        assert name not in Handoff.from_json_object(EXAMPLE).to_json_object()
        with pytest.raises(ValidationError, match="leave the member out"):
            Handoff.from_json_object({**EXAMPLE, name: None})

    def test_the_parent_may_be_null(self) -> None:
        """The first handoff of a task has no parent and says so (S3-5.2-d)."""
        message = changed("parentHandoffId", None)

        assert Handoff.from_json_object(message).to_json_object()["parentHandoffId"] is None

    def test_a_members_pythonic_name_is_not_its_name_on_the_wire(self) -> None:
        """A sender that writes `handoff_id` has not sent `handoffId` (S3-3.1-b)."""
        message = without("handoffId") | {"handoff_id": EXAMPLE["handoffId"]}

        with pytest.raises(ValidationError, match="handoffId"):
            Handoff.from_json_object(message)


class TestRoundTrip:
    @given(messages)
    def test_a_message_survives_being_read_and_written(self, message: dict[str, Any]) -> None:
        """Reading what was written gives the same record, hostile texts included."""
        handoff = Handoff.from_json_object(message)

        assert Handoff.from_json(json.dumps(handoff.to_json_object())) == handoff

    @given(messages)
    def test_unknown_members_survive_at_every_level(self, message: dict[str, Any]) -> None:
        """What a newer minor adds is kept, so a message can be passed on by an older agent (S3-14.3-a)."""
        handoff = Handoff.from_json_object(message)
        own = {*TOP_LEVEL, *OPTIONAL}

        assert shape(handoff.to_json_object()) == shape(message)
        assert handoff.model_extra == {name: value for name, value in message.items() if name not in own}

    def test_an_unknown_member_with_the_name_of_a_field_harms_nothing(self) -> None:
        """`task_id` on the wire is some agent's own member, and stays apart from `taskId`."""
        message = {**EXAMPLE, "task_id": "another"}
        handoff = Handoff.from_json_object(message)

        assert handoff.task_id == EXAMPLE["taskId"]
        assert handoff.to_json_object() == message


class TestCostTracking:
    def test_money_is_a_decimal_inside_and_a_number_on_the_wire(self) -> None:
        """No binary fraction is ever added up (C-48; money)."""
        cost = CostTracking(
            cost_spent_so_far_usd=Decimal("0.08"),
            cost_budget_remaining_usd=Decimal("0.32"),
            token_spent=TokenSpent(prompt=1, completion=2),
        )

        assert json.loads(cost.model_dump_json())["costSpentSoFarUSD"] == 0.08
        assert (cost.spent_micro_usd, cost.remaining_micro_usd) == (80_000, 320_000)

    def test_less_than_nothing_may_be_left_but_not_spent(self) -> None:
        """A budget can be overdrawn, and the figures stay true; nobody spends a negative amount (S3-6.1-m)."""
        assert Handoff.from_json_object(changed("costTracking/costBudgetRemainingUSD", -0.5)) is not None
        with pytest.raises(ValidationError):
            Handoff.from_json_object(changed("costTracking/costSpentSoFarUSD", -0.01))


class TestTurn:
    def test_who_spoke_is_optional(self) -> None:
        """The document requires the content alone (S3-5.2-v)."""
        assert Turn.from_json_object({"content": "x"}).role is None
        assert Turn(content="x", role="user").to_json_object() == {"content": "x", "role": "user"}


def shape(value: Any) -> Any:
    """Return the names of all members, at every level."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None
