"""Places in a value, and what kinds of values are called."""

from typing import Any

from baton.wire.schemas import format_pointer
from baton.wire.text import json_kind


class TestPointer:
    def test_names_are_escaped(self) -> None:
        """As RFC 6901 asks."""
        assert format_pointer(["a/b", "m~n", 0, ""]) == "/a~1b/m~0n/0/"

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
