"""The published schemas: documents that never change, one for each version, that accept what the record accepts."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from baton.handoff.records import Handoff
from baton.handoff.schema import (
    CURRENT,
    RELEASED,
    handoff_schema,
    least_version,
    parsed,
    published_text,
    unreadable,
)
from baton.handoff.store_schema import covers, handoff_gate
from baton.handoff.validation import schema_findings
from baton.wire.schema_registry import closed
from tests.unit.handoff.material import EXAMPLE, OPTIONAL, REQUIRED, SCHEMA_CHECKS, TOP_LEVEL, damaged, messages

DOCUMENTS = Path(__file__).parents[3] / "docs/schemas"
FIRST_WITH = {
    "keyId": "2.1",
    "audience": "2.1",
    "expiresAt": "2.1",
    "initial": "2.2",
    "contractId": "2.2",
    "trail": "2.2",
    "step": "2.2",
}


class TestDocuments:
    """`docs/schemas`, the registry that every agent can read."""

    @pytest.mark.parametrize("version", RELEASED)
    def test_every_release_is_published(self, version: str) -> None:
        """What lies in the registry is what messages are judged by, and never changes (S3-7.1.1-a, S3-14.3-d)."""
        text = (DOCUMENTS / f"handoff-{version}.json").read_text(encoding="utf-8")

        assert text == published_text(version), "a change of what is valid is a new version; see schema_registry"

    def test_nothing_else_is_published(self) -> None:
        """A document without a release would be taken for one."""
        there = sorted(path.name for path in DOCUMENTS.glob("handoff-*"))

        assert there == [f"handoff-{one}.json" for one in RELEASED]

    @pytest.mark.parametrize("version", RELEASED)
    def test_each_is_a_schema_of_draft_2020_12(self, version: str) -> None:
        """It names its draft and itself, is valid as a schema, and refers to nothing outside (S3-6.1-b)."""
        schema = handoff_schema(version)

        jsonschema_rs.meta.validate(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$id"] == f"urn:baton:schema:handoff:{version}"
        assert all(
            line.split('"')[3].startswith("#/$defs/")
            for line in published_text(version).splitlines()
            if '"$ref"' in line
        )

    @pytest.mark.parametrize(("new", "old"), [(new, old) for new in RELEASED for old in RELEASED if old < new])
    def test_every_release_accepts_what_the_ones_before_accepted(self, new: str, old: str) -> None:
        """Compatible by proof: only optional members came (S3-7.1.1-c, S3-14.3-a, S3-11-b)."""
        assert covers(closed(handoff_schema(new)), closed(handoff_schema(old)))

    def test_the_proof_can_fail(self) -> None:
        """An older release does not accept what a newer one added; the proof sees that."""
        assert not covers(closed(handoff_schema("2.0")), closed(handoff_schema("2.1")))

    @pytest.mark.parametrize("name", OPTIONAL)
    def test_every_optional_member_has_its_first_version(self, name: str) -> None:
        """Schema 2.0 holds what the document itself names, later minors the rest (S3-5.2-y, S3-14.3-a)."""
        first = FIRST_WITH.get(name, "2.0")
        having = [version for version in RELEASED if name in handoff_schema(version)["properties"]]

        assert having == [version for version in RELEASED if version >= first]
        assert handoff_schema()["properties"][name].get("since", "2.0") == first

    def test_the_first_release_requires_the_documents_members_and_no_others(self) -> None:
        """All eighteen, and all members inside them (S3-2-e, C-47)."""
        schema = handoff_schema("2.0")
        inside = sum(len(definition.get("required", ())) for definition in schema["$defs"].values())

        assert schema["required"] == list(TOP_LEVEL)
        assert inside == len(REQUIRED) - len(TOP_LEVEL)

    def test_members_are_described(self) -> None:
        """A reader of the document alone learns what each member means (S3-3.1-b)."""
        schema = handoff_schema()
        told = [schema, *schema["$defs"].values()]
        silent = [
            name for one in told for name, member in one.get("properties", {}).items() if "description" not in member
        ]

        assert silent == []

    def test_a_document_is_handed_out_anew(self) -> None:
        """Whoever changes theirs changes nobody else's."""
        handoff_schema()["properties"].clear()

        assert len(handoff_schema()["properties"]) == len(Handoff.model_fields)

    def test_a_version_that_was_never_released_has_no_document(self) -> None:
        """The error names those that have one."""
        with pytest.raises(ValueError, match=r"released are 2\.0, 2\.1, 2\.2"):
            handoff_schema("2.9")


class TestAgreement:
    """The record and the document: two judges, one answer."""

    @given(messages)
    def test_both_take_every_good_message(self, message: dict[str, Any]) -> None:
        """Hostile texts, unknown members, every optional one (S3-6.1-b, S3-6.1-c)."""
        assert schema_findings(message) == []
        assert handoff_gate()(message) == []

    @given(damaged())
    def test_both_find_the_same_faults(self, message: dict[str, Any]) -> None:
        """Whatever one of them refuses the other refuses at the same places, in the same words (S3-6.1-c, C-48)."""
        by_record, by_schema = schema_findings(message), handoff_gate()(message)

        assert set(by_record) == set(by_schema)

    @pytest.mark.parametrize("check", SCHEMA_CHECKS)
    def test_a_later_name_means_in_every_minor_what_it_means_now(self, check: Any) -> None:
        """A 2.0 message with a `keyId` is judged as a 2.2 one, so no reader takes it for something else."""
        assert [finding.at for finding in check({**EXAMPLE, "keyId": 7})] == ["/keyId"]


class TestUnreadable:
    """`unreadable`: which versions a receiver takes."""

    @pytest.mark.parametrize(
        ("version", "own", "readable"),
        [
            pytest.param("2.2", "2.2", True, id="its own"),
            pytest.param("2.1", "2.2", True, id="one minor back"),
            pytest.param("2.0", "2.2", True, id="two minors back"),
            pytest.param("2.3", "2.2", True, id="one minor ahead"),
            pytest.param("2.4", "2.2", False, id="two minors ahead"),
            pytest.param("2.1", "2.4", False, id="three minors back"),
            pytest.param("2.0", "2.0", True, id="the first minor"),
            pytest.param("1.2", "2.2", False, id="a major back"),
            pytest.param("3.0", "2.2", False, id="a major ahead"),
            pytest.param("2.10", "2.9", True, id="minors are numbers and no texts"),
        ],
    )
    def test_the_window_is_two_minors_back_and_one_ahead(self, version: str, own: str, readable: bool) -> None:
        """A valid message is not rejected for a version that differs by optional members (S3-6.1-d, S3-11-b)."""
        assert (unreadable(version, own) is None) is readable

    def test_the_answer_says_what_to_send(self) -> None:
        """A sender can act on it (S3-6.1-n)."""
        assert unreadable("2.9", "2.2") == "schema version '2.9' is not readable here; send 2.0 to 2.3"

    @pytest.mark.parametrize("version", ["2", "2.x", "02.0", "2.0.0", ""])
    def test_what_is_no_version_is_an_error(self, version: str) -> None:
        """It is the schema's affair to refuse such a message."""
        with pytest.raises(ValueError, match="no schema version"):
            unreadable(version)


class TestOneAhead:
    """A message of the next minor."""

    @pytest.mark.parametrize("check", SCHEMA_CHECKS)
    def test_what_it_adds_is_taken_and_kept(self, check: Any) -> None:
        """Agents need not be updated on the same day (S3-14.3-a, S3-11-b)."""
        ahead = json.loads(json.dumps({**EXAMPLE, "schemaVersion": "2.3", "priority": "high"}))
        ahead["fromAgent"]["region"] = "eu"

        assert check(ahead) == []
        assert Handoff.from_json_object(ahead).to_json_object() == ahead


class TestLeastVersion:
    """`least_version`: what a sender writes."""

    @pytest.mark.parametrize("name", OPTIONAL)
    def test_it_is_the_first_that_has_every_member(self, name: str) -> None:
        """A receiver as old as possible takes the message (S3-7.1.1-b)."""
        assert least_version([*EXAMPLE, name]) == FIRST_WITH.get(name, "2.0")

    def test_members_of_ones_own_do_not_count(self) -> None:
        """They are unknown in every version."""
        assert least_version([*EXAMPLE, "x-note"]) == "2.0"

    def test_the_newest_member_decides(self) -> None:
        """All members are defined in the version that is written."""
        assert least_version([*EXAMPLE, *OPTIONAL]) == CURRENT
        assert parsed(CURRENT) == (2, 2)
