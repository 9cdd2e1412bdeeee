"""JSON merge-patch and the difference of two documents."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from baton.core.patching import difference, merge_patch, same_json
from tests.core.material import json_objects, json_values

APPENDIX_A = json.loads((Path(__file__).parents[1] / "data/rfc7396/appendix_a.json").read_text(encoding="utf-8"))


def without_null(value: Any) -> Any:
    """Return a JSON value without null members at any depth of objects, as a merge leaves none."""
    if not isinstance(value, dict):
        return value
    return {name: without_null(member) for name, member in value.items() if member is not None}


class TestMergePatch:
    @pytest.mark.parametrize("row", APPENDIX_A, ids=lambda row: json.dumps(row["patch"]))
    def test_every_row_of_the_appendix_holds(self, row: dict[str, Any]) -> None:
        """The 15 examples of RFC 7396 appendix A (S1-patch-c, C-4)."""
        assert merge_patch(row["original"], row["patch"]) == row["result"]

    def test_the_appendix_has_fifteen_rows(self) -> None:
        """A truncated file would prove less (S1-patch-c)."""
        assert len(APPENDIX_A) == 15

    @given(json_values, json_values)
    def test_neither_argument_is_changed(self, target: Any, patch: Any) -> None:
        """The merged baton is unchanged (S1-patch-d)."""
        before = copy.deepcopy((target, patch))

        merge_patch(target, patch)

        assert (target, patch) == before

    def test_the_result_shares_no_list_with_the_patch(self) -> None:
        """Changing the patch later does not change the merged document."""
        patch: dict[str, Any] = {"a": {"b": [1]}, "c": [{"d": 1}]}
        merged = merge_patch({}, patch)
        expected = copy.deepcopy(merged)

        patch["a"]["b"].append(2)
        patch["c"][0]["d"] = 2

        assert merged == expected

    @given(json_objects, json_objects)
    def test_applying_a_patch_twice_has_no_further_effect(self, target: dict[str, Any], patch: dict[str, Any]) -> None:
        """Redelivery is harmless for every document and patch (C-3)."""
        once = merge_patch(target, patch)

        assert merge_patch(once, patch) == once


class TestDifference:
    @given(json_objects, json_objects)
    def test_the_difference_turns_one_document_into_the_other(
        self, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        """The recorded change is enough to repeat a step (S1-design-i)."""
        before, after = without_null(before), without_null(after)

        assert same_json(merge_patch(before, difference(before, after)), after)

    @given(json_objects)
    def test_equal_documents_have_no_difference(self, document: dict[str, Any]) -> None:
        """A step without effect records an empty change (C-10)."""
        assert difference(document, copy.deepcopy(document)) == {}

    @pytest.mark.parametrize(
        ("before", "after", "patch"),
        [
            pytest.param({"a": 1}, {"a": True}, {"a": True}, id="one becomes true"),
            pytest.param({"a": [0]}, {"a": [False]}, {"a": [False]}, id="zero becomes false in a list"),
            pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}, id="a nested member goes"),
            pytest.param({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}, id="an object becomes empty"),
            pytest.param({"a": [1]}, {"a": {}}, {"a": {}}, id="a list becomes an object"),
            pytest.param({"a": 1, "b": None}, {"a": 2, "b": None}, {"a": 2}, id="null stays null"),
        ],
    )
    def test_it_holds_exactly_what_changed(
        self, before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]
    ) -> None:
        """The recorded change holds neither too little nor too much (C-2, C-4)."""
        result = difference(before, after)

        assert same_json(result, patch)
        assert same_json(merge_patch(before, result), after)


class TestSameJson:
    @pytest.mark.parametrize(
        ("left", "right", "same"),
        [
            pytest.param(1, 1.0, True, id="one number, spelled twice"),
            pytest.param(1, True, False, id="a number and true"),
            pytest.param(False, 0, False, id="false and a number"),
            pytest.param({"a": [1]}, {"a": [True]}, False, id="a number and true, deep inside"),
            pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, id="another order of members"),
            pytest.param([1, 2], [2, 1], False, id="another order of entries"),
            pytest.param({"a": None}, {}, False, id="null and absent"),
            pytest.param([], {}, False, id="an empty list and an empty object"),
            pytest.param([1], [1, 1], False, id="lists of two lengths"),
        ],
    )
    def test_it_compares_like_json(self, left: Any, right: Any, same: bool) -> None:
        """Python treats true as 1, so a change between them would be lost."""
        assert same_json(left, right) is same
        assert same_json(right, left) is same
