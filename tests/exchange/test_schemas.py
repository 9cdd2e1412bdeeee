"""The published JSON Schemas. `python -m tests.exchange.test_schemas` writes the committed ones anew."""

import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from baton import HandoffReport
from baton.client import Explanation, schema_of
from baton.client.faces import SCHEMAS
from baton.contract.records import LeftOut
from baton.wire.records import Record
from tests.core.material import GOLDEN
from tests.report.documents import almost, documents, fullest, one_change

COMMITTED = Path(__file__).parents[1] / "data/schemas"
NAMES = list(SCHEMAS)
PINNED = (
    "artifact-ref",
    "baton",
    "baton-patch",
    "answer",
    "handoff-report",
    "pipeline-input",
    "pipeline-result",
    "stage-result",
)
"""What services, people and agents in other languages write or read; the other shapes are Baton's own."""
CORE = ("artifacts", "baton", "questions", "exhibits", "history", "messages", "pending", "requester", "steering")
"""The modules of `baton.core` whose records are published."""
UNPUBLISHED = {
    *("Record", "CompactRecord", "AnyBaton", "HandoffContract", "SessionEvent"),  # bases, or published elsewhere
    *("RolledBack", "RollBacks", "MissingPart", "SealCheck"),  # within a worker only
    *("Heir", "ParentHandoff", "ToolLimits", "LabPath", "LabTerms"),  # in the schema of the input
    *("ChildHandoff", "LabReport"),  # in that of the result
    *("OpenQuestions", "OpenNotes"),  # in the memo
}
"""Records of these modules that are not sent as such."""
LINEAR = jsonschema_rs.RegexOptions()  # which refuses patterns that a hostile text could make slow
VALIDATORS = {
    name: jsonschema_rs.Draft202012Validator(
        schema_of(name), validate_formats=True, offline=True, pattern_options=LINEAR
    )
    for name in NAMES
}
VALID = {name: documents(schema_of(name)) for name in NAMES}
ALMOST = {name: almost(VALID[name], list(schema_of(name)["properties"])) for name in NAMES}


def accepts(name: str, document: Any) -> bool:
    """Return whether the record accepts a document."""
    try:
        SCHEMAS[name].model_validate_json(json.dumps(document))
    except ValidationError:
        return False
    return True


class TestSchema:
    @pytest.mark.parametrize("name", NAMES)
    def test_it_is_a_closed_and_self_contained_schema_of_the_2020_12_draft(self, name: str) -> None:
        """Any validator can use it, and nothing is fetched (S3-18: JSON Schema 2020-12)."""
        found = schema_of(name)

        jsonschema_rs.meta.validate(found)
        assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert found["$id"] == f"urn:baton:schema:{name}:1"
        objects = [found, *found.get("$defs", {}).values()]
        assert all(schema["additionalProperties"] is False for schema in objects if "properties" in schema)
        assert {node["$ref"] for node in nodes(found) if "$ref" in node} <= {
            f"#/$defs/{item}" for item in found.get("$defs", {})
        }

    @pytest.mark.parametrize("name", NAMES)
    def test_it_describes_every_member_in_the_words_of_the_docstring(self, name: str) -> None:
        """Authors of services in other languages learn the meaning of each member, not only its form."""
        schema = schema_of(name)

        for node in (schema, *schema.get("$defs", {}).values()):
            assert node.get("description") or node == {}
            for member in node.get("properties", {}).values():
                assert member["description"]
                assert "title" not in member
        assert "Attributes:" not in json.dumps(schema)

    def test_what_others_write_and_read_is_committed(self) -> None:
        """A change of the wire shows in review; nothing else is pinned."""
        committed = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in COMMITTED.glob("*")}

        assert committed == {name: schema_of(name) for name in PINNED}, "meant? python -m tests.exchange.test_schemas"

    def test_every_wire_record_is_published(self) -> None:
        """A new record of a module of `baton.core` that has published ones cannot be forgotten."""
        modules = [import_module(f"baton.core.{name}") for name in CORE]
        records = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
        found = {kind for kind in records if issubclass(kind, Record) and kind.__name__ not in UNPUBLISHED}
        elsewhere = {Explanation, LeftOut, HandoffReport}

        assert set(SCHEMAS.values()) == found | elsewhere

    def test_each_call_returns_a_schema_of_its_own(self) -> None:
        """Changing one does not change the next."""
        schema_of("baton")["$id"] = "mine"

        assert schema_of("baton")["$id"] == "urn:baton:schema:baton:1"


class TestAgreement:
    @pytest.mark.parametrize("name", NAMES)
    @given(data=st.data())
    @settings(max_examples=settings().max_examples // 4)
    def test_a_valid_document_is_read_and_written_back(self, name: str, data: st.DataObject) -> None:
        """The record reads what the schema accepts, and the schema accepts what the record writes."""
        document = data.draw(VALID[name])

        assert VALIDATORS[name].is_valid(document)
        record = SCHEMAS[name].model_validate_json(json.dumps(document))
        written = json.loads(record.model_dump_json())
        assert VALIDATORS[name].is_valid(written)
        parsed = SCHEMAS[name].model_validate_json(json.dumps(written))
        assert parsed == record
        assert json.loads(parsed.model_dump_json()) == written

    @pytest.mark.parametrize("name", NAMES)
    def test_every_single_change_is_judged_alike(self, name: str) -> None:
        """Every member in turn is missing, of a wrong type or beyond a limit: both accept or both refuse."""
        changed = one_change(fullest(schema_of(name)))
        verdicts = [(VALIDATORS[name].is_valid(document), accepts(name, document)) for document in changed]
        apart = [
            document
            for document, (by_schema, by_record) in zip(changed, verdicts, strict=True)
            if by_schema != by_record
        ]

        assert apart == []
        assert {by_schema for by_schema, _ in verdicts} == {True, False}

    @pytest.mark.parametrize("name", NAMES)
    @given(data=st.data())
    @settings(max_examples=settings().max_examples // 4)
    def test_several_changes_are_judged_alike(self, name: str, data: st.DataObject) -> None:
        """Documents of any shape, with one to three changes."""
        document = data.draw(ALMOST[name])

        assert VALIDATORS[name].is_valid(document) == accepts(name, document)

    def test_the_published_envelope_is_a_stage_result(self) -> None:
        """`{"baton_patch": {...}}` at the top level, and nothing around it (S1-patch-b, C-9; B10)."""
        envelope = {"baton_patch": {"current_state": ["Planned"], "decision_log": ["Use JWT"]}}

        assert VALIDATORS["stage-result"].is_valid(envelope)
        assert accepts("stage-result", envelope)
        assert not accepts("stage-result", {"payload": envelope})
        assert not VALIDATORS["stage-result"].is_valid({"payload": envelope})

    def test_the_published_example_is_a_baton(self) -> None:
        """The record of S1 L39-50 is valid (S1-render-i)."""
        assert VALIDATORS["baton"].is_valid(GOLDEN.to_json_object())


def nodes(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for child in node for found in nodes(child)]
    if not isinstance(node, dict):
        return []
    return [node, *(found for value in node.values() for found in nodes(value))]


def write_anew() -> None:
    COMMITTED.mkdir(parents=True, exist_ok=True)
    for path in COMMITTED.glob("*.json"):
        path.unlink()
    for name in PINNED:
        text = json.dumps(schema_of(name), indent=2, ensure_ascii=False)
        (COMMITTED / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_anew()
