"""What an approval shows: each value in a readable form, whole, under a title."""

from typing import Any

import pytest

from baton import ArtifactRef, BatonPatch, StageResult
from baton.core.exhibits import MAX_EXHIBITS, Exhibit, build_exhibits

REF = ArtifactRef(id="notes", type="document", hash="0" * 64, size=1_200, path="notes.md", summary="what changed")


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        ("a *b*", "markdown", "a *b*"),
        (3, "text", "3"),
        (StageResult(output=[1]), "text", "[\n  1\n]"),
        (StageResult(baton_patch=BatonPatch(goal="Pay")), "text", '{\n  "goal": "Pay"\n}'),
        ([{"a": 1, "b": None}], "markdown", "| a | b |\n| --- | --- |\n| 1 | null |"),
        ([{"a": [1]}], "text", '[\n  {\n    "a": [\n      1\n    ]\n  }\n]'),
        ([{}], "text", "[\n  {}\n]"),
        ([{str(column): column for column in range(30)}], "text", None),
        (REF, "text", "document notes.md, 1,200 bytes: what changed"),
        (Exhibit.amount(1_500_000), "text", "1.50 USD"),
        (Exhibit.diff("a\nb\n", "a\nc\n"), "diff", "--- before\n+++ after\n@@ -1,2 +1,2 @@\n a\n-b\n+c"),
        (Exhibit.diff("a\n" * 1_500, "b\n" * 1_500), "diff", "\n".join(["-a"] * 1_500 + ["+b"] * 1_500)),
    ],
)
def test_each_kind_of_value_has_a_form(value: Any, form: str, text: str | None) -> None:
    """A digest covers what is shown."""
    exhibit = Exhibit.of(value, "shown")
    assert (exhibit.form, exhibit.title, exhibit.is_whole) == (form, "shown", True)
    assert text in (None, exhibit.text)
    assert exhibit.matches(exhibit.text)


def test_exhibits_without_names_are_titled_by_what_they_are() -> None:
    """And numbered where they are just outputs; the stage that a yes runs comes last."""
    exhibits = build_exhibits([Exhibit.diff("a", "b", "change"), REF, 3], ("pay", {"amount": 3}))
    assert [exhibit.title for exhibit in exhibits] == ["change", "notes", "output 3", "a yes runs pay with"]


@pytest.mark.parametrize(
    ("shows", "error", "message"),
    [
        (range(MAX_EXHIBITS + 1), ValueError, "an approval shows at most 20 things; found 21"),
        (["x" * 300_000], ValueError, "an approval shows at most 262,144 bytes; found 300,000. Write long texts to"),
        ([[0] * 60_000], ValueError, "an approval cannot show 'output 1': "),
        ([{1: 2, "a": 3}], TypeError, "an approval cannot show 'output 1': "),
    ],
)
def test_what_cannot_be_shown_whole_is_refused(shows: Any, error: type[Exception], message: str) -> None:
    """Before the question is asked."""
    with pytest.raises(error) as raised:
        build_exhibits(list(shows), None)
    assert str(raised.value).startswith(message)
