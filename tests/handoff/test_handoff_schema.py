"""The published schemas: documents that never change, one for each version, that accept what the record accepts."""

import json
from contextlib import nullcontext
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from pydantic import ValidationError

from baton.handoff.records import Handoff, handoff_schema
from baton.handoff.store_gate import handoff_gate
from baton.wire.schemas import version_mismatch
from tests.handoff.material import EXAMPLE, REQUIRED, TOP_LEVEL, damaged, messages


class TestDocument:
    def test_it_is_a_schema_of_draft_2020_12(self) -> None:
        """It names its draft and itself, is valid as a schema, and refers to nothing outside (S3-6.1-b)."""
        schema = handoff_schema()

        jsonschema_rs.meta.validate(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$id"] == "urn:baton:schema:handoff:2.0"
        assert all(
            line.split('"')[3].startswith("#/$defs/")
            for line in json.dumps(schema, indent=2).splitlines()
            if '"$ref"' in line
        )

    def test_it_requires_the_documents_members_and_no_others(self) -> None:
        """All eighteen, and all members inside them; Baton's own are optional (S3-2-e, S3-5.2-y, C-47)."""
        schema = handoff_schema()
        own = {"Trail", "Hop"}  # parts of optional members
        inside = sum(
            len(definition.get("required", ())) for name, definition in schema["$defs"].items() if name not in own
        )

        assert schema["required"] == list(TOP_LEVEL)
        assert inside == len(REQUIRED) - len(TOP_LEVEL)

    def test_members_are_described(self) -> None:
        """A reader of the document alone learns what each member means (S3-3.1-b)."""
        schema = handoff_schema()
        definitions = [schema, *schema["$defs"].values()]
        silent = [
            name
            for text in definitions
            for name, member in text.get("properties", {}).items()
            if "description" not in member
        ]

        assert silent == []

    def test_a_document_is_handed_out_anew(self) -> None:
        """Whoever changes theirs changes nobody else's."""
        handoff_schema()["properties"].clear()

        assert len(handoff_schema()["properties"]) == len(Handoff.model_fields)


class TestAgreement:
    @given(messages)
    def test_both_take_every_good_message(self, message: dict[str, Any]) -> None:
        """Hostile texts, unknown members, every optional one (S3-6.1-b, S3-6.1-c)."""
        Handoff.from_json_object(message)
        assert handoff_gate()(message) == []

    @given(damaged())
    def test_both_refuse_the_same(self, message: dict[str, Any]) -> None:
        """What the schema refuses is no record either, and the other way round (S3-6.1-c, C-48)."""
        with pytest.raises(ValidationError) if handoff_gate()(message) else nullcontext():
            Handoff.from_json_object(message)

    def test_a_later_name_means_in_every_minor_what_it_means_now(self) -> None:
        """A 2.0 message with a `keyId` is judged as any other, so no reader takes it for something else."""
        assert [finding.at for finding in handoff_gate()({**EXAMPLE, "keyId": 7})] == ["/keyId"]


class TestUnreadable:
    @pytest.mark.parametrize(
        ("version", "own", "readable"),
        [
            pytest.param("2.2", "2.2", True, id="its own"),
            pytest.param("2.1", "2.2", True, id="one minor back"),
            pytest.param("2.0", "2.2", True, id="two minors back"),
            pytest.param("2.3", "2.2", True, id="one minor ahead"),
            pytest.param("2.2", "2.0", True, id="two minors ahead"),
            pytest.param("2.1", "2.40", True, id="many minors back"),
            pytest.param("2.0", "2.0", True, id="the first minor"),
            pytest.param("1.2", "2.2", False, id="a major back"),
            pytest.param("3.0", "2.2", False, id="a major ahead"),
        ],
    )
    def test_every_minor_of_the_own_major_is_readable(self, version: str, own: str, readable: bool) -> None:
        """A valid message is not rejected for a version that differs by optional members (S3-6.1-d, S3-11-b)."""
        assert (version_mismatch(version, own) is None) is readable

    def test_the_answer_says_what_to_send(self) -> None:
        """A sender can act on it (S3-6.1-n)."""
        reason = "schema version '3.1' is not readable here; send 2.0 or a later minor"
        assert version_mismatch("3.1", "2.2") == reason

    @pytest.mark.parametrize("version", ["2", "2.x", "02.0", "2.0.0", ""])
    def test_what_is_no_version_is_an_error(self, version: str) -> None:
        """It is the schema's affair to refuse such a message."""
        with pytest.raises(ValueError, match="not a schema version"):
            version_mismatch(version, "2.0")


class TestOneAhead:
    def test_what_it_adds_is_taken_and_kept(self) -> None:
        """Agents need not be updated on the same day (S3-14.3-a, S3-11-b)."""
        ahead = json.loads(json.dumps({**EXAMPLE, "schemaVersion": "2.1", "priority": "high"}))
        ahead["fromAgent"]["region"] = "eu"

        assert handoff_gate()(ahead) == []
        assert Handoff.from_json_object(ahead).to_json_object() == ahead
