"""The contract's published schema."""

from typing import Any

import jsonschema_rs
import pytest
from pydantic import ValidationError

from baton.contract.records import HandoffContract
from baton.contract.validation import contract_schema, validate_contract
from baton.core.store_schemas import SchemaGate
from tests.contract.contract_material import EXAMPLE, NOW, TRACEPARENT, example
from tests.report.documents import one_change

FULL = example(
    schemaVersion="1.0",
    receivingAgentVersion="1.2.0",
    traceparent=TRACEPARENT,
    messageId="7c9e6679-7425-40de-944b-e07fc1f90ae7",
    excludedCounts={"type:brainstorm": 3},
    toolsAsDeclared=True,
    constraints=[{"text": "Do not email the customer.", "eventId": "evt-1"}],
)


def accepts(document: Any) -> bool:
    try:
        HandoffContract.model_validate(document, by_alias=True, by_name=False)
    except ValidationError:
        return False
    return True


class TestDocument:
    def test_it_is_a_schema_that_describes_its_members(self) -> None:
        """A service in another language needs nothing else (S5-check-a)."""
        schema = contract_schema()

        jsonschema_rs.meta.validate(schema)
        assert schema["$id"] == "urn:baton:schema:contract:1.0"
        for item in (schema, *schema["$defs"].values()):
            assert item["description"]
            assert all(member.get("description") for member in item.get("properties", {}).values())

    def test_it_requires_what_the_document_requires(self) -> None:
        """Of its eleven members only schema and expiry may be missing; Baton's own may (S5-valid-b, S5-fields-q)."""
        schema = contract_schema()

        assert set(schema["properties"]) >= set(EXAMPLE)
        assert sorted(schema["required"]) == sorted(set(EXAMPLE) - {"outputSchema", "expiresAfterMinutes"})
        assert SchemaGate(schema)(EXAMPLE) == []

    def test_a_contract_of_the_next_minor_is_read(self) -> None:
        """What it adds is unknown here and kept (S5-fm-a, S5-check-o)."""
        assert validate_contract(example(schemaVersion="1.1", priority="high"), now=NOW)


class TestAgreement:
    def test_both_take_the_fullest(self) -> None:
        """Every member at every depth."""
        assert SchemaGate(contract_schema())(FULL) == []
        assert accepts(FULL)
        assert set(contract_schema()["properties"]) == set(FULL)

    def test_every_single_change_is_judged_alike(self) -> None:
        """Every member missing, of a wrong type or beyond a limit: both say yes or both no (S5-check-a, C-38, C-45)."""
        validator = jsonschema_rs.Draft202012Validator(contract_schema(), validate_formats=True, offline=True)
        changed = one_change(FULL)
        verdicts = [(validator.is_valid(item), accepts(item)) for item in changed]

        assert [change for change, (schema, record) in zip(changed, verdicts, strict=True) if schema != record] == []
        assert {schema for schema, _ in verdicts} == {True, False}

    def test_no_change_gets_past_the_validation_or_stops_it(self) -> None:
        """What is valid has the shape of the schema, and nothing that a sender changes raises (S5-valid-a, X-7)."""
        validator = jsonschema_rs.Draft202012Validator(contract_schema(), validate_formats=True, offline=True)
        contracts = [change for change in one_change(FULL) if isinstance(change, dict)]
        passed = [contract for contract in contracts if validate_contract(contract, now=NOW)]

        assert all(validator.is_valid(item) for item in passed)
        assert 0 < len(passed) < len(contracts)

    @pytest.mark.parametrize(("length", "fits"), [(500, True), (501, False)])
    def test_a_task_has_500_characters(self, length: int, fits: bool) -> None:
        """Characters, and neither bytes nor half pairs (S5-fields-c, C-38)."""
        contract = example(task="😀" * length)

        assert accepts(contract) is fits
        assert (SchemaGate(contract_schema())(contract) == []) is fits
