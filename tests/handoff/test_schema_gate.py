"""The compiled schema gate: findings with paths and without values; it fetches nothing, and is fast."""

import json
from typing import Any

import pytest

from baton.core.store_schemas import SchemaGate
from baton.core.verdict import MAX_FINDINGS
from baton.handoff.store_gate import handoff_gate
from tests.handoff.material import changed, without

PLAIN: dict[str, Any] = {"type": "object", "properties": {"x": {}}, "additionalProperties": False}
CHOICE: dict[str, Any] = {
    "oneOf": [{"required": ["sku"]}, {"properties": {"name": {"minLength": 9}}, "maxProperties": 0}]
}


class TestAnotherSchema:
    """Another schema than the handoff message's: that of an output, which an agent has to correct."""

    @pytest.mark.parametrize(
        ("schema", "value", "text"),
        [
            pytest.param({"enum": ["a", "b"]}, "c", 'the whole is not one of "a" or "b"', id="enum"),
            pytest.param(
                {"properties": {"on": {"format": "date"}}}, {"on": "x"}, "'/on' is not a \"date\"", id="format"
            ),
            pytest.param({"properties": {"n": {"const": 3}}}, {"n": 4}, "'/n': 3 was expected", id="const"),
            pytest.param({"pattern": "^[A-Z]{3}$"}, "abc", 'the whole does not match "^[A-Z]{3}$"', id="pattern"),
            pytest.param(PLAIN, {"y": 1}, "Additional properties are not allowed ('y' was unexpected)", id="unknown"),
            pytest.param({"type": ["string", "null"]}, 3, 'is not of types "null", "string"', id="several types"),
            pytest.param({"properties": {"a": True, "b": False}}, {"b": 1}, "'/b' is not allowed here", id="false"),
            pytest.param({"$ref": "#/$defs/x", "$defs": {"x": {"type": "array"}}}, {}, 'type "array"', id="reference"),
            pytest.param(CHOICE, {"name": "x"}, 'the whole: "sku" is a required property', id="the nearest choice"),
        ],
    )
    def test_the_broken_rule_is_named(self, schema: dict[str, Any], value: Any, text: str) -> None:
        """An agent needs the rule to correct its answer."""
        (finding,) = SchemaGate(schema)(value)

        assert text in finding.text


class TestSchemaGate:
    def test_every_fault_is_named_with_its_place(self) -> None:
        """A sender can correct everything at once (S3-6.1-n, S3-7.2-b)."""
        message = changed("costTracking/tokenSpent/prompt", "4200", without("taskId"))
        message["toAgent"]["agentVersion"] = "latest"

        findings = {finding.at: finding.text for finding in handoff_gate()(message)}

        assert findings == {
            "/taskId": "'/taskId' is missing; send it",
            "/toAgent/agentVersion": "'/toAgent/agentVersion' does not have the form that its schema asks for",
            "/costTracking/tokenSpent/prompt": "'/costTracking/tokenSpent/prompt' is not of type \"integer\"",
        }

    @pytest.mark.parametrize("path", ["taskId", "taskDescription", "timestamp", "costTracking", "constraints/0"])
    def test_no_value_of_the_message_is_quoted(self, path: str) -> None:
        """Findings travel and are logged; a card number in a wrong place must not (S3-6.2-b)."""
        secret = "4111-1111-1111-1111\u200b"
        for value in (secret, [secret], {secret: secret}):
            findings = handoff_gate()(changed(path, value))

            assert "4111" not in json.dumps([finding.model_dump() for finding in findings])

    def test_the_number_of_findings_is_limited(self) -> None:
        """They go into the sender's next input and into the ledger."""
        findings = handoff_gate()(changed("constraints", ["x"] * 5_000))

        assert len(findings) == MAX_FINDINGS

    @pytest.mark.parametrize(
        "schema",
        [
            pytest.param({"$ref": "https://example.com/schema.json"}, id="by address"),
            pytest.param({"$ref": "file:///schema.json"}, id="by file"),
        ],
    )
    def test_a_reference_to_the_outside_is_refused(self, schema: dict[str, Any]) -> None:
        """A schema must not access the network."""
        with pytest.raises(ValueError, match="Retrieval is disabled"):
            SchemaGate(schema)

    def test_patterns_that_can_be_made_slow_are_refused(self) -> None:
        """Only patterns that match in linear time are compiled, so no look-around."""
        with pytest.raises(ValueError, match="regex"):
            SchemaGate({"pattern": "^(?=a)(a+)+$"})

    def test_formats_are_checked_and_not_only_remarked(self) -> None:
        """The thirtieth of February passes every pattern (C-49)."""
        assert [finding.at for finding in handoff_gate()(changed("timestamp", "2026-02-30T00:00:00Z"))] == [
            "/timestamp"
        ]

    def test_it_is_compiled_once(self) -> None:
        """Every stage of a worker shares it."""
        assert handoff_gate() is handoff_gate()
