"""Tests of `baton.core.outline`: what is read of a message that may hold anything."""

from typing import Any

import pytest
from hypothesis import given

from baton.core.outline import Outline
from tests.core.material import json_objects
from tests.handoff.material import EXAMPLE, HANDOFF_ID, TASK_ID

STEP = {"seq": 2, "attempt": 3, "replyTo": "legal-1", "follows": "b7ad6b7169203331"}


class TestOutline:
    def test_it_has_the_members_of_a_message(self) -> None:
        """Named as in the message."""
        outline = Outline.of({**EXAMPLE, "step": STEP, "trail": {"hops": 4, "recent": []}})

        assert (outline.handoff_id, outline.task_id) == (HANDOFF_ID, TASK_ID)
        assert (outline.from_agent.agent_id, outline.to_agent.agent_type) == (
            "legal-analysis-agent",
            "risk-scoring-agent",
        )
        assert (outline.step.seq, outline.step.attempt, outline.step.reply_to, outline.trail.hops) == (
            2,
            3,
            "legal-1",
            4,
        )
        assert outline.cost_tracking is not None
        assert outline.timestamp is not None

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            pytest.param("handoffId", 7, id="an id that is a number"),
            pytest.param("fromAgent", ["a"], id="a sender that is a list"),
            pytest.param("timestamp", "2026-06-12T09:30:00", id="a time without an offset"),
            pytest.param("timestamp", "0001-01-01T00:00:00+23:59", id="a time before time began"),
            pytest.param("costTracking", {"costSpentSoFarUSD": "much"}, id="a cost in words"),
            pytest.param("initial", "yes", id="a flag that is a text"),
            pytest.param("receiverList", ["a", 1], id="a list with a number"),
            pytest.param("step", {"seq": 0, "attempt": True, "replyTo": {}}, id="a step of wrong members"),
            pytest.param("step", {"attempt": 10**30}, id="an attempt beyond reason"),
        ],
    )
    def test_a_malformed_member_is_as_good_as_missing(self, member: str, value: Any) -> None:
        """The others are read all the same."""
        without = {name: item for name, item in EXAMPLE.items() if name != member}

        assert Outline.of({**EXAMPLE, member: value}) == Outline.of(without)

    @given(json_objects)
    def test_any_json_has_one(self, message: dict[str, Any]) -> None:
        """Also a list, a text and null."""
        for value in (message, {**EXAMPLE, "step": message, "trail": message}, [message], "text", None):
            assert Outline.of(value).step.attempt >= 1
