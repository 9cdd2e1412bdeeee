"""Where outputs differ, and which difference of rates is more than chance."""

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from baton.core.likeness import differences, same_shape, shape, wilson


def test_outputs_are_compared_by_field_with_a_tolerance() -> None:
    recorded: JsonValue = {"verdict": "approve", "amount": 40, "text": "a", "lines": [{"price": 1.0}]}
    ignore, tolerance = ["/text"], {"/amount": 2.0, "/lines/0/price": 0.5}
    near: dict[str, JsonValue] = {"verdict": "approve", "amount": 42, "text": "b", "lines": [{"price": 1.4}]}
    assert differences(recorded, near, ignore, tolerance) == []
    assert differences(recorded, {**near, "amount": 43, "verdict": True}, ignore, tolerance) == [
        "/amount",
        "/verdict",
    ]
    assert differences({"a": 1}, {"a": 1, "b": None}, (), {}) == ["/b"]
    assert differences([1], [1, 2], (), {}, "/list") == ["/list"]


def test_a_form_is_the_names_and_kinds_of_values() -> None:
    recorded: JsonValue = {"lines": [{"price": 1}], "text": "a"}
    assert same_shape(shape(recorded), shape({"lines": [], "text": "b"}))
    assert same_shape(shape(recorded), shape({"lines": [{"price": 2.5}] * 3, "text": ""}))
    assert not same_shape(shape(recorded), shape({"lines": [{"price": "2"}], "text": ""}))
    assert not same_shape(shape(recorded), shape({"lines": []}))


@given(st.integers(0, 40), st.integers(1, 40))
def test_wilsons_interval_has_the_rate(hits: int, count: int) -> None:
    hits = min(hits, count)
    low, high = wilson(hits, count)
    assert 0 <= low <= hits / count <= high <= 1
