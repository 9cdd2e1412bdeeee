"""A schema read by its members, and faults put into sentences."""

from typing import Any

import pytest

from baton.handoff.records import handoff_schema
from baton.wire.json_values import json_kind
from baton.wire.schemas import SchemaReader, expectation, pointer
from tests.handoff.material import FULL


class TestExpectation:
    @pytest.mark.parametrize(
        ("node", "words"),
        [
            ({"type": "string"}, "a text"),
            ({"type": "string", "pattern": "x"}, "a text that says something"),
            ({"type": "string", "pattern": "x", "examples": ["2.0"]}, "a text like '2.0'"),
            (
                {"type": "string", "minLength": 1, "maxLength": 9},
                "a text, of at least 1 characters, of at most 9 characters",
            ),
            ({"type": "integer", "minimum": 0}, "a whole number, at least 0"),
            ({"type": "array", "minItems": 1, "uniqueItems": True}, "a list, of at least 1 items, each one once"),
            ({"anyOf": [{"type": "object"}, {"type": "null"}]}, "an object or null"),
            ({"type": "boolean"}, "true or false"),
            ({}, "as the schema says"),
        ],
    )
    def test_it_says_what_is_wanted(self, node: dict[str, Any], words: str) -> None:
        """A sender reads a sentence and no regular expression."""
        assert expectation(node) == words


class TestFinding:
    reader = SchemaReader(handoff_schema())

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            (["taskId"], "'/taskId' must be a text like '7c9e6679-7425-40de-944b-e07fc1f90ae7'; what was found is not"),
            (["gone"], "'/gone' is missing; send it"),
            (["completedSubtasks", 0], "'/completedSubtasks/0' must be an object; found a list"),
            (["fromAgent", "agentId", "x"], "'/fromAgent/agentId/x' is missing; send it"),
            ([], "the message must be an object; what was found is not"),
        ],
    )
    def test_it_is_a_sentence_with_the_place(self, path: list[str | int], text: str) -> None:
        """What was found, what was expected, what to do."""
        message = {**FULL, "completedSubtasks": [[]]}

        assert self.reader.finding(message, path).text == text


class TestPointer:
    def test_names_are_escaped(self) -> None:
        """As RFC 6901 asks."""
        assert pointer(["a/b", "m~n", 0, ""]) == "/a~1b/m~0n/0/"

    def test_kinds_are_json_kinds(self) -> None:
        """True is no number."""
        values: list[Any] = [True, 1, 1.5, "x", None, [], {}]

        assert [json_kind(value) for value in values] == [
            "true or false",
            "a whole number",
            "a number",
            "a text",
            "null",
            "a list",
            "an object",
        ]
