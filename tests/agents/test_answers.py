"""Schemas and instructions for answers, and their parsing."""

from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field

from baton import Baton
from baton.agents import AnswerForm
from baton.agents.answers import answer_instructions, answer_schema, read_answer, split_thinking
from baton.errors import PatchError

VERDICT = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


class Finding(BaseModel):
    """A review finding."""

    line: int


class ReviewBaton(Baton):
    """A baton with additional fields."""

    quality: dict[str, float] = Field(default_factory=dict)
    findings: list[Finding] = Field(default_factory=list)


class TestAnswerSchema:
    """`answer_schema`."""

    @pytest.mark.parametrize(
        ("answer", "fits"),
        [
            pytest.param({"baton_patch": {"acceptance": ["pytest"]}}, True, id="a field that changed"),
            pytest.param({"baton_patch": {}}, True, id="nothing changed"),
            pytest.param({"baton_patch": {"constraints": None}}, False, id="null, which would clear the field"),
            pytest.param({"baton_patch": {"desicion_log": []}}, False, id="a misspelt field"),
            pytest.param({"baton_patch": {"goal": "Another"}}, False, id="a goal that the stage does not write"),
            pytest.param({"baton_patch": {"artifacts": []}}, False, id="references that a model cannot know"),
            pytest.param({"acceptance": ["pytest"]}, False, id="no patch"),
        ],
    )
    def test_it_accepts_all_fields_that_a_stage_may_change(self, answer: dict[str, Any], fits: bool) -> None:
        """A model is asked for `baton_patch`, and null is not a valid answer (S1-patch-a, C-3)."""
        assert jsonschema_rs.Draft202012Validator(answer_schema()).is_valid(answer) is fits

    def test_it_has_only_the_fields_that_the_stage_writes(self) -> None:
        """The goal is included only if the stage declares that it writes it."""
        patch = answer_schema(writes=["goal", "decision_log"])["properties"]["baton_patch"]

        assert list(patch["properties"]) == ["goal", "decision_log"]

    def test_it_has_the_further_fields_of_a_derived_baton(self) -> None:
        """Their types come with their definitions."""
        schema = answer_schema(ReviewBaton)
        validator = jsonschema_rs.Draft202012Validator(schema)

        assert validator.is_valid({"baton_patch": {"quality": {"craft": 0.5}, "findings": [{"line": 3}]}})
        assert not validator.is_valid({"baton_patch": {"findings": [{"line": "three"}]}})

    def test_it_has_the_output_of_the_stage(self) -> None:
        """The registered schema is part of the model's schema (S5-fields-l)."""
        validator = jsonschema_rs.Draft202012Validator(answer_schema(output={"$id": "urn:x", **VERDICT}))

        assert validator.is_valid({"baton_patch": {}, "output": {"approved": True}})
        assert not validator.is_valid({"baton_patch": {}, "output": {"approved": "yes"}})
        assert not validator.is_valid({"baton_patch": {}})


class TestHowToAnswer:
    """`answer_instructions`."""

    def test_a_schema_is_spelled_out_where_it_is_not_given_in_another_way(self) -> None:
        """A command line gets only the prompt."""
        assert '"baton_patch"' in answer_instructions(AnswerForm.PATCH, answer_schema())
        assert '"properties"' not in answer_instructions(AnswerForm.PATCH)

    def test_a_report_is_asked_for_with_all_its_sections(self) -> None:
        """The form is the document's (S4-fmt-a, S4-fmt-s)."""
        text = answer_instructions(AnswerForm.REPORT)
        sections = ["## Agent Handoff Report", "### Summary", "### Findings", "### Context for Next Agent"]
        sections += ["### Blockers / Open Questions", "### Recommendations for Next Agent", "### Verification Commands"]

        assert [text.index(heading) for heading in sections] == sorted(text.index(heading) for heading in sections)


class TestReadAnswer:
    """`read_answer`."""

    def test_the_output_is_read_beside_the_patch(self) -> None:
        """Both members are required, and no others are allowed."""
        answer = read_answer('{"baton_patch": {}, "output": {"approved": true}}')

        assert (answer.patch, answer.output) == ({}, {"approved": True})

    @pytest.mark.parametrize(
        ("raw", "finding"),
        [
            pytest.param("```json\n" + " " * 500_000, "code fence is not closed", id="blanks without an end"),
            pytest.param("[]", "but a list", id="a list"),
            pytest.param("{}", "has no member 'baton_patch'", id="no patch"),
            pytest.param('{"baton_patch": "x"}', "has a text in 'baton_patch'", id="a string for the patch"),
            pytest.param('{"baton_patch": {}, "notes": 1}', "has a member 'notes'", id="a member too many"),
        ],
    )
    def test_an_invalid_answer_becomes_a_finding_for_the_agent(self, raw: str, finding: str) -> None:
        """The findings lead to another attempt; nothing is dropped silently (S1-patch-a, C-3)."""
        with pytest.raises(PatchError) as raised:
            read_answer(raw)

        assert any(finding in text for text in raised.value.findings)

    def test_each_kind_of_malformed_json_has_a_specific_finding(self) -> None:
        """A model can only correct what it is told about."""
        kinds = (
            ("", "is empty"),
            ("Done!", "before the object"),
            ('{"baton_patch": {}} Done!', "after the object"),
            ('{"baton_patch": {"goal": "x', "breaks off"),
            ("{'baton_patch': {}}", "quotes are single"),
            ('{"baton_patch": {},}', "comma before a closing brace"),
            ('{"baton_patch": {"acceptance": ["x",]}}', "comma before a closing bracket"),
            ("{baton_patch: {}}", "has no quotes"),
            ('{"baton_patch": {"passed": True}}', "Python's True"),
            ('{"baton_patch": {"goal": "two\nlines"}}', "line break"),
            ('{"baton_patch": {"goal": "C:\\d"}}', "backslash"),
            ('{"baton_patch": {} // done', "comment"),
            ('{"baton_patch" {}}', "comma or a colon is missing"),
            ('{"baton_patch": NaN}', "NaN"),
            ('{"baton_patch": -Infinity}', "-Infinity"),
            ('Here:\n```json\n{"baton_patch": {}}\n```', "code fence"),
            ("null", "but null"),
            ('{"baton_patch": {}, "baton_patch": {}}', "appears twice"),
        )
        findings = {}
        for raw, _ in kinds:
            with pytest.raises(PatchError) as raised:
                read_answer(raw)
            findings[raw] = str(raised.value)

        assert {raw: expected for raw, expected in kinds if expected not in findings[raw]} == {}, findings

    def test_a_value_outside_json_in_an_object_is_a_finding(self) -> None:
        """A time becomes a text; a value without a JSON form goes back to the agent."""
        at = datetime(2026, 11, 26, tzinfo=UTC)
        assert read_answer({"baton_patch": {"at": at}}).patch == {"at": "2026-11-26T00:00:00Z"}

        for value in (float("nan"), float("-inf"), object()):
            with pytest.raises(PatchError, match="JSON"):
                read_answer({"baton_patch": {"score": value}})

    def test_a_schema_mismatch_is_reported_without_values(self) -> None:
        """A finding names places in the schema, never the model's text."""
        with pytest.raises(PatchError) as raised:
            read_answer({"baton_patch": {"acceptance": "marker-1"}}, answer_schema())

        assert "acceptance" in str(raised.value)
        assert "marker-1" not in str(raised.value)


class TestThinking:
    """What a model thinks, which some servers leave in its text."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("<think>Hm.</think>\n\nSo.", ("Hm.", "So.")),
            ("<think>Hm.</think><think>Or?</think>So.", ("Hm.\nOr?", "So.")),
            ("<think>Hm, if a < b", ("Hm, if a < b", "")),
            ("Hm.\n</think>\n\nSo.", ("Hm.", "So.")),
            ("The tag <think>a</think> is left in.", ("", "The tag <think>a</think> is left in.")),
            ('{"output": "\n</think>\n"}', ("", '{"output": "\n</think>\n"}')),
        ],
    )
    def test_is_taken_off_the_beginning_only(self, text: str, expected: tuple[str, str]) -> None:
        assert split_thinking(text) == expected
