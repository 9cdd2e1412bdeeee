"""Session events: typed, small on the wire, and never lost for a time that cannot be read."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from baton.contract.records import EventType, SessionEvent
from baton.wire.records import parse_instant
from tests.contract.contract_material import NOW, sessions


class TestSessionEvent:
    def test_the_types_are_the_document_s_and_the_one_it_forgot(self) -> None:
        """Everything that a stage does has a type, rejected assumptions too (S5-compiler-a, C-40, S5-code-a)."""
        assert [kind.value for kind in EventType] == [
            *("tool_call", "tool_result", "llm_response", "user_message", "assistant_message", "decision"),
            *("brainstorm", "internal_note", "rejected_assumption"),
        ]

    @given(events=sessions())
    def test_it_survives_the_wire(self, events: list[SessionEvent]) -> None:
        """As JSON text and as an object, false and zero included."""
        for event in events:
            assert SessionEvent.model_validate_json(event.model_dump_json()) == event
            assert SessionEvent.from_json_object(event.model_dump(mode="json")) == event

    @pytest.mark.parametrize(
        ("members", "written"),
        [
            pytest.param({}, {}, id="nothing set"),
            pytest.param({"exclude_from_handoff": False, "content": "", "tokens": 0}, {}, id="defaults"),
            pytest.param({"max_age_minutes": 0}, {"maxAgeMinutes": 0}, id="stale at once"),
            pytest.param({"success": False}, {"success": False}, id="failed"),
            pytest.param({"accepted": False}, {"accepted": False}, id="not accepted"),
            pytest.param({"exclude_from_handoff": True}, {"excludeFromHandoff": True}, id="marked"),
            pytest.param({"tool_name": "crm"}, {"toolName": "crm"}, id="camel case"),
        ],
    )
    def test_its_json_leaves_out_defaults_and_nothing_else(
        self, members: dict[str, Any], written: dict[str, Any]
    ) -> None:
        """Its members have the names of the document; a session is most of what a run keeps (S5-code-a)."""
        assert SessionEvent(id="e1", type=EventType.BRAINSTORM, **members).to_json_object() == {
            "id": "e1",
            "type": "brainstorm",
            **written,
        }

    def test_members_of_later_releases_are_kept(self) -> None:
        """A newer recorder loses nothing on the way through an older pipeline (S5-fm-a)."""
        members = {"id": "e1", "type": "decision", "mood": 0}

        assert SessionEvent.from_json_object(members).to_json_object() == members

    @pytest.mark.parametrize(
        ("members", "at"),
        [
            pytest.param({"id": ""}, "id", id="no id"),
            pytest.param({"type": "dream"}, "type", id="unknown type"),
            pytest.param({"timestamp": 1_782_552_000}, "timestamp", id="a number as a time"),
            pytest.param({"success": "true"}, "success", id="a text as a boolean"),
            pytest.param({"maxAgeMinutes": -1}, "maxAgeMinutes", id="a negative age"),
            pytest.param({"ref": "a3f8"}, "ref", id="no digest"),
        ],
    )
    def test_what_is_no_event_is_refused(self, members: dict[str, Any], at: str) -> None:
        """Kinds of values are strict (S5-check-a)."""
        with pytest.raises(ValidationError) as caught:
            SessionEvent.from_json_object({"id": "e1", "type": "brainstorm", **members})

        assert caught.value.errors()[0]["loc"] == (at,)

    def test_a_datetime_is_kept_as_text(self) -> None:
        """To the microsecond, as on the wire."""
        at = datetime(2026, 6, 27, 9, 20, 0, 5, tzinfo=UTC)
        event = SessionEvent(id="e1", type=EventType.TOOL_RESULT, timestamp=at)

        assert event.timestamp == "2026-06-27T09:20:00.000005Z"
        assert event.at == at


class TestInstant:
    @pytest.mark.parametrize(
        "text",
        [
            pytest.param(None, id="missing"),
            pytest.param("", id="empty"),
            pytest.param("yesterday", id="a word"),
            pytest.param("2026-06-27T09:25:00", id="no offset"),
            pytest.param("2026-06-27", id="a day"),
            pytest.param("0001-01-01T00:00:00+14:00", id="before the first year"),
        ],
    )
    def test_what_tells_no_time_is_none(self, text: str | None) -> None:
        """Nobody knows how old it is, so it can never be fresh (C-42)."""
        assert parse_instant(text) is None

    def test_times_are_compared_in_utc(self) -> None:
        """Whatever offset they were written with (C-42)."""
        assert parse_instant("2026-06-27T11:25:00+02:00") == NOW
