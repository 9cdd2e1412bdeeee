"""Schemas that are spelled out for those who read no references."""

import json
from typing import Any

import pytest

from baton.wire.schema_embedding import inline_refs

NAMES = [f"N{number}" for number in range(40)]
DOUBLING: dict[str, Any] = {
    name: {"type": "object", "properties": {key: {"$ref": f"#/$defs/{next_name}"} for key in "ab"}}
    for name, next_name in zip(NAMES, [*NAMES[1:], "End"], strict=True)
}
ALL_OF_ALL = {"type": "object", "properties": {name: {"$ref": f"#/$defs/{name}"} for name in NAMES}}


@pytest.mark.parametrize(
    "definitions",
    [
        pytest.param({**DOUBLING, "End": {"type": "null"}}, id="two of the next at each step are 2**40 of the last"),
        pytest.param(dict.fromkeys(NAMES, ALL_OF_ALL), id="each leads to all"),
    ],
)
def test_a_schema_is_spelled_out_no_further_than_anybody_reads(definitions: dict[str, Any]) -> None:
    """However often definitions lead to each other."""
    text = json.dumps(inline_refs({"$ref": "#/$defs/N0", "$defs": definitions}))

    assert len(text) < 1_000_000
    assert "$ref" not in text
