"""Changes of the baton in words."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue

from baton import Conflict, HistoryEntry, Outcome, StepKind
from baton.cli.history import change_lines
from baton.client import RunRecord
from baton.client.faces import AnyBaton, changes, remarks, with_before
from baton.core.messages import PipelineInput
from baton.core.state import PipelineState
from baton.runs.client_changes import difference

AT = datetime(2026, 11, 21, tzinfo=UTC)


def entry(**members: Any) -> HistoryEntry:
    return HistoryEntry(**{"seq": 1, "stage_id": "plan", "timestamp": AT, **members})


def lines(change_entry: HistoryEntry, **before: Any) -> list[str]:
    """Return the lines that tell of an entry, after a baton with these fields."""
    return [line.plain for line in change_lines(changes(change_entry, {"goal": "Old", **before}))]


class TestChanges:
    def test_each_added_or_removed_entry_has_a_line(self) -> None:
        """A replaced list is shown by its entries; the decision log only grows."""
        change_entry = entry(patch={"current_state": ["b", "c"], "decision_log": ["Use JWT"], "goal": "New"})
        before = {"current_state": ["a", "b"], "decision_log": ["Earlier"]}

        assert lines(change_entry, **before) == [
            "- state: a",
            "+ state: c",
            "+ decision: Use JWT",
            "- goal: Old",
            "+ goal: New",
        ]

    def test_an_empty_patch_has_no_line(self) -> None:
        """Nothing changed."""
        assert lines(entry()) == []

    def test_a_branch_shows_no_changes(self) -> None:
        """The merge makes the change, so a branch only names its fields."""
        branch = entry(kind=StepKind.BRANCH, patch={"constraints": ["x"]})

        assert lines(branch) == ["wrote constraints"]

    def test_an_object_is_shown_member_by_member(self) -> None:
        """A patch of an object keeps the members that it does not name."""
        change_entry = entry(
            patch={"quality": {"api": {"lint": 0.9, "cov": None}, "tags": ["b"]}, "owners": {"ui": ["bob"]}}
        )
        before = {"quality": {"api": {"cov": 0.5, "ok": True}, "ui": {"cov": 0.2}, "tags": ["a", "b"]}, "owners": {}}

        assert lines(change_entry, **before) == [
            "- quality.api.cov: 0.5",
            "+ quality.api.lint: 0.9",
            "- quality.tags: a",
            "+ owners.ui: bob",
        ]

    def test_a_single_value_is_shown_as_json(self) -> None:
        """Not as Python writes it."""
        change_entry = entry(patch={"passed": True, "rows": [{"a": None}]})

        assert lines(change_entry, passed=False) == [
            "- passed: false",
            "+ passed: true",
            '+ rows: {"a": null}',
        ]

    def test_a_members_name_cannot_control_the_terminal(self) -> None:
        """An agent chooses the names of an object's members."""
        [line] = lines(entry(patch={"quality": {"\x1b[2J": 1}}), quality={})

        assert "\x1b" not in line

    def test_a_custom_field_is_shown_too(self) -> None:
        """Fields of a derived baton need no special handling."""
        change_entry = entry(patch={"risk_level": "high"})

        assert lines(change_entry, risk_level="low") == [
            "- risk level: low",
            "+ risk level: high",
        ]

    @pytest.mark.parametrize(
        "hostile",
        [
            pytest.param("\x1b]0;owned\x07", id="a terminal title"),
            pytest.param("\x1b[2J", id="a cleared screen"),
            pytest.param("ok\u202egnp.exe", id="reversed text"),
        ],
    )
    def test_no_escape_sequence_of_a_stage_reaches_the_terminal(self, hostile: str) -> None:
        """A stage's text is untrusted data."""
        change_entry = entry(patch={"decision_log": [hostile]})

        [line] = lines(change_entry)
        assert "\x1b" not in line
        assert "\u202e" not in line

    def test_markup_in_a_text_is_text(self) -> None:
        """A stage cannot style the operator's page."""
        [line] = lines(entry(patch={"decision_log": ["[red]alarm[/red]"]}))

        assert line == "+ decision: [red]alarm[/red]"


class TestDifference:
    def test_a_new_order_alone_is_reported_as_such(self) -> None:
        """No entry was added or removed."""
        assert [str(one) for one in difference("constraints", "constraint", ["a", "b"], ["b", "a"])] == [
            "= constraint: another order"
        ]


class TestRemarks:
    def test_warnings_lost_constraints_and_conflicts_are_shown(self) -> None:
        """Permitted but possibly unintended changes are never silent."""
        change_entry = entry(
            kind=StepKind.MERGE,
            warnings=["current_state: 1 bullet", "it holds a name in clear"],
            removed_constraints=["No new database"],
            conflicts=[Conflict(field="current_state", strategy="last", values={"test": ["a"], "review": ["b"]})],
        )

        assert [line.plain for line in change_lines(remarks(change_entry))] == [
            "= current_state: 1 bullet",
            "! it holds a name in clear",
            "! took away 1 constraint",
            "! test and review wrote current_state; merged by last",
        ]

    def test_a_merge_that_keeps_all_is_no_warning(self) -> None:
        """A plain line says who wrote the field."""
        values: dict[str, JsonValue] = {"test": ["a"], "review": ["b"], "audit": ["c"]}
        change_entry = entry(
            kind=StepKind.MERGE, conflicts=[Conflict(field="artifacts", strategy="union", values=values)]
        )

        (line,) = change_lines(remarks(change_entry))

        assert line.plain == "= test, review and audit wrote artifacts; merged by union"
        assert {span.style for span in line.spans} == {"dim"}


class TestWithBefore:
    def test_each_entry_has_the_earlier_values_of_its_fields(self) -> None:
        """Without building the batons, which is too slow for a long run."""
        patches = [
            {"current_state": ["a"], "quality": {"lint": 1, "cov": {"ui": 2}}},
            {"decision_log": ["x"], "quality": {"lint": None, "cov": {"api": 3}}},
            {"current_state": ["b"], "quality": {"cov": None}, "goal": "New"},
        ]
        change_entry = [entry(seq=seq, patch=patch) for seq, patch in enumerate(patches, start=1)]
        start = PipelineInput(goal="Old", baton={"constraints": ["y"]})
        state = PipelineState(start.first_baton(AnyBaton))
        for order, one in enumerate(change_entry):
            state.restore(Outcome(seq=one.seq, order=order, name="plan", entries=[one]))
        run = RunRecord("w", "r", "Delivery", start, state)
        batons = [state.initial, *(baton for _, baton in run.history)]

        for (one, before), baton in zip(with_before(run), batons, strict=False):
            members = baton.to_json_object()
            known = [field for field in one.effective if field != "decision_log"]
            assert {field: before[field] for field in known} == {field: members.get(field) for field in known}
