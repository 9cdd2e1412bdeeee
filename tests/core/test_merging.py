"""Merging the patches of a fan-out's branches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from baton.core.baton import Baton
from baton.core.state import DEFAULT_STRATEGIES, MergeStrategy, merge_branches
from baton.errors import PatchError
from tests.core.material import good_patches, ref

BRANCHES: list[tuple[str, dict[str, JsonValue]]] = [
    ("test", {"current_state": ["12 pass", "Shared"], "decision_log": ["Kept the fixtures"]}),
    ("review", {"current_state": ["Shared", "Reads well"], "decision_log": ["Split the module"]}),
    ("audit", {"work_scope": ["src"]}),
]


class TestMergeBranches:
    @pytest.mark.parametrize(
        ("strategy", "merged"),
        [
            pytest.param(MergeStrategy.UNION, ["12 pass", "Shared", "Reads well"], id="union keeps every entry once"),
            pytest.param(MergeStrategy.FIRST, ["12 pass", "Shared"], id="first takes the first branch's"),
            pytest.param(MergeStrategy.LAST, ["Shared", "Reads well"], id="last takes the last branch's"),
        ],
    )
    def test_a_field_is_merged_by_its_strategy(self, strategy: MergeStrategy, merged: JsonValue) -> None:
        """Differing values are recorded as conflicts."""
        patch, conflicts = merge_branches(BRANCHES, {"current_state": strategy})

        assert patch["current_state"] == merged
        assert [(conflict.field, conflict.strategy, conflict.values) for conflict in conflicts] == [
            ("current_state", strategy, {"test": ["12 pass", "Shared"], "review": ["Shared", "Reads well"]})
        ]

    @pytest.mark.parametrize("strategies", [{"current_state": MergeStrategy.REFUSE}, {}], ids=["refused", "undeclared"])
    def test_differing_values_without_a_strategy_are_rejected(self, strategies: Any) -> None:
        """No value is dropped by accident."""
        with pytest.raises(PatchError, match="current_state: test, review wrote different values; declare how"):
            merge_branches(BRANCHES, strategies)

    @pytest.mark.parametrize("strategy", MergeStrategy)
    def test_decisions_of_all_branches_are_appended(self, strategy: MergeStrategy) -> None:
        """Decisions are appended in branch order, whatever the strategy (S1-design-a, S1-design-b)."""
        patch, _ = merge_branches(BRANCHES, {**DEFAULT_STRATEGIES, "decision_log": strategy})

        assert patch["decision_log"] == ["Kept the fixtures", "Split the module"]

    def test_a_field_of_one_branch_is_used_unchanged(self) -> None:
        """A single writer is not a conflict."""
        patch, conflicts = merge_branches(BRANCHES[1:])

        assert patch == {**BRANCHES[1][1], **BRANCHES[2][1]}
        assert conflicts == []

    def test_equal_values_are_not_a_conflict(self) -> None:
        """Not even with the strategy that rejects differing values."""
        patch, conflicts = merge_branches([("a", {"goal": "New"}), ("b", {"goal": "New"})])

        assert patch == {"goal": "New"}
        assert conflicts == []

    def test_true_and_one_are_a_conflict(self) -> None:
        """They are equal in Python, but not in JSON."""
        with pytest.raises(PatchError, match="flags"):
            merge_branches([("a", {"flags": [True]}), ("b", {"flags": [1]})])

    def test_a_union_keeps_a_reference_once(self) -> None:
        """A reference with null members equals one without them."""
        full = ref("plan").model_dump(mode="json")
        patch, _ = merge_branches(
            [
                ("a", {"artifacts": [full]}),
                ("b", {"artifacts": [{**full, "path": None}, ref("diff").model_dump(mode="json")]}),
            ]
        )

        assert patch["artifacts"] == [full, ref("diff").model_dump(mode="json")]

    def test_null_counts_as_empty_in_a_union(self) -> None:
        """A branch that cleared a list does not clear another's entries, and the conflict is recorded."""
        patch, conflicts = merge_branches([("a", {"constraints": None}), ("b", {"constraints": ["x"]})])

        assert patch == {"constraints": ["x"]}
        assert conflicts[0].values == {"a": None, "b": ["x"]}

    def test_a_union_of_other_values_than_lists_is_rejected(self) -> None:
        """The message says what to declare instead."""
        with pytest.raises(PatchError, match="signals: a, b wrote different values; a union is for lists"):
            merge_branches(
                [("a", {"signals": {"x": 1}}), ("b", {"signals": {"x": 2}})], {"signals": MergeStrategy.UNION}
            )

    @pytest.mark.parametrize("value", [None, "d", {"a": 1}, 7], ids=repr)
    def test_a_log_that_is_not_a_list_is_rejected(self, value: Any) -> None:
        """A branch cannot clear the log or write it in a way that loses decisions (S1-design-b, C-3)."""
        with pytest.raises(PatchError, match="decision_log: b did not write a list"):
            merge_branches([("a", {"decision_log": ["x"]}), ("b", {"decision_log": value})])

    def test_all_rejected_fields_are_named(self) -> None:
        """All can be corrected at once."""
        with pytest.raises(PatchError) as caught:
            merge_branches([("a", {"goal": "1", "x": 1}), ("b", {"goal": "2", "x": 2})])

        assert [finding.split(":")[0] for finding in caught.value.findings] == ["goal", "x"]

    def test_branches_of_the_same_name_are_an_error(self) -> None:
        """Values are recorded by branch name, so one would be lost."""
        with pytest.raises(ValueError, match="each branch needs a unique name"):
            merge_branches([("a", {"decision_log": ["x"]}), ("a", {"decision_log": ["y"]})])

    @given(st.lists(good_patches, min_size=1, max_size=4))
    def test_no_decision_or_field_is_lost(self, patches: list[dict[str, Any]]) -> None:
        """Whatever the branches return (S1-design-b)."""
        branches = [(f"branch-{number}", patch) for number, patch in enumerate(patches)]
        merged, _ = merge_branches(branches, dict.fromkeys(Baton.FIELDS, MergeStrategy.LAST))

        assert merged.get("decision_log", []) == [entry for patch in patches for entry in patch.get("decision_log", [])]
        assert merged.keys() | {"decision_log"} == {name for patch in patches for name in patch} | {"decision_log"}
