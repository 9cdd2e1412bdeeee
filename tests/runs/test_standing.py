"""The commands that a run's standing names."""

from datetime import UTC, datetime
from typing import Any

import pytest

from baton.client import Choice, Question
from baton.client.faces import decision_commands


@pytest.mark.parametrize(
    ("properties", "option"),
    [
        pytest.param({"why": {"type": "string"}}, " --set 'why=…'", id="a text"),
        pytest.param({"why": {"type": "array"}}, """ --set 'why=["…"]'""", id="a list"),
        pytest.param({"why": {"$ref": "#/$defs/List"}}, """ --set 'why=["…"]'""", id="a list with a name"),
        pytest.param({"why": {"type": ["array"]}}, " --set 'why=…'", id="several types"),
        pytest.param({"why": {"$ref": 3}}, " --set 'why=…'", id="a name that is a number"),
        pytest.param({"why": True}, " --set 'why=…'", id="anything"),
        pytest.param([], " --set 'why=…'", id="no object"),
    ],
)
def test_a_form_of_any_kind_has_a_command(properties: Any, option: str) -> None:
    """Whoever may start runs writes a form; a malformed one must not break somebody's list."""
    form = {"properties": properties, "required": ["why"], "$defs": {"List": {"type": "array"}}}
    at, choices = datetime(2026, 1, 1, tzinfo=UTC), [Choice(name="approve", form=form), Choice(name="deny", alone=True)]
    asked = Question(id="1:a", title="pay", seq=1, since=at, until=at, choices=choices)

    approve, deny = decision_commands("run", "pay", asked)

    assert approve == f"baton approve run pay{option} --why '…'"
    assert deny == "baton deny run pay --why '…'"
