"""The contract's published schemas. `python -m tests.unit.protocol.test_contract_schema` writes those not yet there."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import ValidationError

from baton.contract.checks import validate_contract
from baton.contract.records import CONTRACT_CURRENT, CONTRACT_RELEASED, HandoffContract
from baton.contract.schema import as_current, contract_schema, contract_schemas, contract_text
from baton.handoff.errors import SchemaChangeError
from baton.handoff.store_schema import SchemaGate, covers
from baton.wire.schema_registry import Release, closed
from tests.unit.protocol.contract_material import EXAMPLE, NOW, TRACEPARENT, example
from tests.unit.protocol.documents import one_change

DOCUMENTS = Path(__file__).parents[3] / "docs/schemas"
FULL = example(
    schemaVersion="1.1",
    receivingAgentVersion="1.2.0",
    traceparent=TRACEPARENT,
    messageId="7c9e6679-7425-40de-944b-e07fc1f90ae7",
    excludedCounts={"type:brainstorm": 3},
)


def accepts(document: Any) -> bool:
    """Return whether the record takes a document."""
    try:
        HandoffContract.model_validate(document, by_alias=True, by_name=False)
    except ValidationError:
        return False
    return True


class TestDocuments:
    """`docs/schemas/contract-*.json`."""

    @pytest.mark.parametrize("version", CONTRACT_RELEASED)
    def test_every_release_is_published(self, version: str) -> None:
        """What lies there is what contracts are judged by, and never changes (S5-check-k, S5-fm-a)."""
        text = (DOCUMENTS / f"contract-{version}.json").read_text(encoding="utf-8")

        assert text == contract_text(version), "a change of what is valid is a new version; see CONTRACT_RELEASED"

    def test_nothing_else_is_published(self) -> None:
        """A document without a release would be taken for one; no release is taken back (S5-fm-a, S5-check-k)."""
        there = sorted(path.name for path in DOCUMENTS.glob("contract-*"))

        assert there == [f"contract-{one}.json" for one in CONTRACT_RELEASED]

    @pytest.mark.parametrize("version", CONTRACT_RELEASED)
    def test_each_is_a_schema_that_describes_its_members(self, version: str) -> None:
        """A service in another language needs nothing else (S5-check-a)."""
        schema = contract_schema(version)

        jsonschema_rs.meta.validate(schema)
        assert schema["$id"] == f"urn:baton:schema:contract:{version}"
        for one in (schema, *schema["$defs"].values()):
            assert one["description"]
            assert all(member.get("description") for member in one.get("properties", {}).values())

    def test_the_first_is_the_document_s_own(self) -> None:
        """Its eleven members; of these only schema and expiry may be missing (S5-valid-b, S5-fields-q)."""
        schema = contract_schema("1.0")

        assert sorted(schema["properties"]) == sorted(EXAMPLE)
        assert sorted(schema["required"]) == sorted(set(EXAMPLE) - {"outputSchema", "expiresAfterMinutes"})
        assert SchemaGate(schema)(EXAMPLE) == []

    def test_a_version_that_was_never_released_has_no_document(self) -> None:
        """The error names those that have one."""
        with pytest.raises(ValueError, match=r"released are 1\.0, 1\.1"):
            contract_schema("2.0")


class TestCompatibility:
    """What a sender of one release and a receiver of another may rely on (S5-fm-a, S5-check-o)."""

    @pytest.mark.parametrize(
        ("new", "old"), [(new, old) for new in CONTRACT_RELEASED for old in CONTRACT_RELEASED if old < new]
    )
    def test_every_release_accepts_what_the_ones_before_accepted(self, new: str, old: str) -> None:
        """By proof, not by example (S5-check-o)."""
        assert covers(closed(contract_schema(new)), closed(contract_schema(old)))
        assert not covers(closed(contract_schema(old)), closed(contract_schema(new)))

    def test_a_renamed_field_is_no_minor(self) -> None:
        """The registry refuses the release that would drift (S5-fm-a, S5-check-o)."""
        schema = contract_schema()
        schema["properties"]["allowed"] = schema["properties"].pop("allowedTools")
        schema["required"] = [one if one != "allowedTools" else "allowed" for one in schema["required"]]

        with pytest.raises(SchemaChangeError) as caught:
            contract_schemas().with_release(Release("1.2", schema), covers)
        assert caught.value.findings == [
            "'allowedTools' is gone; mark it deprecated, and remove it in the next major",
            "'allowedTools/*' is gone; mark it deprecated, and remove it in the next major",
            "'allowed' is required; make it optional, or release a major",
        ]

    def test_a_new_optional_field_is_a_minor(self) -> None:
        """Receivers of today keep it without knowing it (S5-check-o)."""
        schema = contract_schema()
        schema["properties"]["priority"] = {"type": "string"}

        assert contract_schemas().with_release(Release("1.2", schema), covers).current == "1.2"
        assert validate_contract(example(schemaVersion="1.2", priority="high"), now=NOW)

    def test_a_contract_of_any_release_is_read_as_the_current(self) -> None:
        """One without a version is of the first; nothing else changes (S5-fm-a)."""
        assert as_current(EXAMPLE) == {**EXAMPLE, "schemaVersion": CONTRACT_CURRENT}
        assert as_current({**EXAMPLE, "schemaVersion": "1.2"})["schemaVersion"] == "1.2"


class TestAgreement:
    """The record and the document: two judges, one answer."""

    def test_both_take_the_fullest(self) -> None:
        """Every member at every depth."""
        assert SchemaGate(contract_schema())(FULL) == []
        assert accepts(FULL)
        assert set(contract_schema()["properties"]) == set(FULL)

    def test_every_single_change_is_judged_alike(self) -> None:
        """Every member missing, of a wrong type or beyond a limit: both say yes or both no (S5-check-a, C-38, C-45)."""
        validator = jsonschema_rs.Draft202012Validator(contract_schema(), validate_formats=True, offline=True)
        changed = one_change(FULL)
        verdicts = [(validator.is_valid(one), accepts(one)) for one in changed]

        assert [one for one, (schema, record) in zip(changed, verdicts, strict=True) if schema != record] == []
        assert {schema for schema, _ in verdicts} == {True, False}

    def test_no_change_gets_past_the_validation_or_stops_it(self) -> None:
        """What is valid has the shape of the schema, and nothing that a sender changes raises (S5-valid-a, X-7)."""
        validator = jsonschema_rs.Draft202012Validator(contract_schema(), validate_formats=True, offline=True)
        contracts = [one for one in one_change(FULL) if isinstance(one, dict)]
        passed = [one for one in contracts if validate_contract(one, now=NOW)]

        assert all(validator.is_valid(one) for one in passed)
        assert 0 < len(passed) < len(contracts)

    @pytest.mark.parametrize(("length", "fits"), [(500, True), (501, False)])
    def test_a_task_has_500_characters(self, length: int, fits: bool) -> None:
        """Characters, and neither bytes nor half pairs (S5-fields-c, C-38)."""
        contract = example(task="😀" * length)

        assert accepts(contract) is fits
        assert (SchemaGate(contract_schema())(contract) == []) is fits


def write_missing() -> None:
    """Write the documents of releases that have none yet."""
    for version in CONTRACT_RELEASED:
        path = DOCUMENTS / f"contract-{version}.json"
        if not path.exists():
            path.write_text(contract_text(version), encoding="utf-8")


if __name__ == "__main__":
    write_missing()
