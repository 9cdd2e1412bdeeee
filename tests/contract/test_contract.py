"""The record of a contract: the document's members, in Python and on the wire."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from baton.contract.records import Confidence, HandoffContract, OutputSchemaRef
from tests.contract.contract_material import EXAMPLE, NOW, example


class TestHandoffContract:
    def test_the_document_s_example_is_one(self) -> None:
        """It reads, and writes back as it was (S5-fields-q, S5-contract-a, S5-check-a, S5-code-a)."""
        record = HandoffContract.from_json_object(EXAMPLE)

        assert record.to_json_object() == EXAMPLE
        assert HandoffContract.from_json(json.dumps(EXAMPLE)) == record

    def test_its_members_have_the_document_s_names(self) -> None:
        """All of them, and in Python's spelling too.

        Proves S5-fields-a to S5-fields-p, S5-fields-d among them: handoffId, receivingAgent, task, facts,
        excludedContext, allowedTools, forbiddenTools, outputSchema, expiresAfterMinutes, createdAt, traceId.
        """
        record = HandoffContract.from_json_object(EXAMPLE)
        fact = record.facts[1]

        assert (record.handoff_id, record.receiving_agent) == ("risk-review-2026-001", "ComplianceReviewAgent")
        assert record.task.startswith("Evaluate whether")
        assert (fact.claim, fact.confidence, fact.event_id) == (
            "The customer signed the DPA in 2024.",
            Confidence.HIGH,
            "evt-7d8e1f",
        )
        assert (fact.source.source, fact.source.method) == ("contracts.search", "tool_call:contracts.search")
        assert fact.source.timestamp == datetime(2026, 6, 27, 9, 21, tzinfo=UTC)
        assert record.excluded_context == ["type:brainstorm", "type:internal_note", "stale:crm.lookup_pricing"]
        assert record.allowed_tools == ["policy.search", "crm.read_customer_status"]
        assert record.forbidden_tools == ["email.send", "crm.update_customer"]
        assert record.output_schema == OutputSchemaRef(schema_name="ComplianceDecisionV1", version="1.2")
        assert (record.expires_after_minutes, record.created_at) == (30, NOW)
        assert record.trace_id == "trace-risk-review-2026-001"

    def test_confidence_has_four_values(self) -> None:
        """The surest first (S5-fields-g)."""
        assert [confidence.value for confidence in Confidence] == ["high", "medium", "low", "unverified"]

    def test_the_default_expiry_is_thirty_minutes(self) -> None:
        """The one member of the document with a default of its own (S5-check-l)."""
        assert HandoffContract.from_json_object(example(expiresAfterMinutes=...)).expires_after_minutes == 30

    @pytest.mark.parametrize("name", ["handoffId", "receivingAgent", "task", "traceId"])
    def test_required_members_have_no_default(self, name: str) -> None:
        """If one is missing, something is wrong upstream (S5-valid-b, S5-check-a)."""
        with pytest.raises(ValidationError):
            HandoffContract.from_json_object(example(**{name: ...}))

    @pytest.mark.parametrize("name", ["outputSchema", "schemaVersion", "messageId", "excludedCounts", "traceparent"])
    def test_an_optional_member_is_absent_and_never_null(self, name: str) -> None:
        """There is one way of not being there."""
        with pytest.raises(ValidationError, match="null is not allowed"):
            HandoffContract.from_json_object(example(**{name: None}))

    def test_unknown_members_survive(self) -> None:
        """At every level, so an older agent hands on what a newer one wrote (S5-fm-a)."""
        later = example(priority="high")
        later["facts"][0]["source"]["region"] = "eu"

        assert HandoffContract.from_json_object(later).to_json_object() == later

    def test_it_expires_after_its_minutes(self) -> None:
        """A moment later it may not be used (S5-fields-m, C-36)."""
        record = HandoffContract.from_json_object(EXAMPLE)

        assert record.expires_at == NOW + timedelta(minutes=30)
        assert not record.is_expired(record.expires_at)
        assert record.is_expired(record.expires_at + timedelta(microseconds=1))

    def test_one_from_the_end_of_time_can_be_asked_too(self) -> None:
        """A hostile time does not crash the check (C-42)."""
        assert not HandoffContract.from_json_object(example(createdAt="9999-12-31T23:59:59Z")).is_expired(NOW)


class TestOutputSchemaRef:
    def test_it_reads_what_it_writes(self) -> None:
        """Name and version, the version behind the last sign (S5-fields-l)."""
        ref = OutputSchemaRef.parse("team@home/Decision@1.2")

        assert (ref.schema_name, ref.version, str(ref)) == ("team@home/Decision", "1.2", "team@home/Decision@1.2")

    @pytest.mark.parametrize("text", ["", "Decision", "Decision@", "@1.2", " @ "])
    def test_what_names_no_version_is_refused(self, text: str) -> None:
        """Exact name and version (C-46)."""
        with pytest.raises(ValueError, match=r"write it as 'Decision@1\.2'"):
            OutputSchemaRef.parse(text)

    def test_it_is_compared_by_value(self) -> None:
        """A contract that travelled refers to the same."""
        members: dict[str, Any] = {"schemaName": "A", "version": "1"}

        assert OutputSchemaRef.from_json_object(members) == OutputSchemaRef.parse("A@1")
