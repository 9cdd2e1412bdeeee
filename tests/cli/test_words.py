"""Changes of the baton in words."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue

from baton.client import RunRecord
from baton.core.baton import AnyBaton
from baton.core.history import Conflict, HistoryEntry, Outcome, StepKind
from baton.core.messages import PipelineInput
from baton.core.state import PipelineState
from baton.runs.cli_history import change_lines
from baton.runs.client_changes import changes, difference, remarks, with_before

AT = datetime(2026, 11, 21, tzinfo=UTC)


def entry(**members: Any) -> HistoryEntry:
    return HistoryEntry(**{"seq": 1, "stage_id": "plan", "timestamp": AT, **members})


def lines(made: HistoryEntry, **before: Any) -> list[str]:
    """Return the lines that tell of an entry, after a baton with these fields."""
    return [line.plain for line in change_lines(changes(made, {"goal": "Old", **before}))]


class TestChanges:
    def test_each_thing_that_came_or_went_has_a_line(self) -> None:
        """A replaced list is told by its entries; the decision log only grows."""
        made = entry(patch={"current_state": ["b", "c"], "decision_log": ["Use JWT"], "goal": "New"})
        before = {"current_state": ["a", "b"], "decision_log": ["Earlier"]}

        assert lines(made, **before) == [
            "- state: a",
            "+ state: c",
            "+ decision: Use JWT",
            "- goal: Old",
            "+ goal: New",
        ]

    def test_an_empty_patch_has_no_line(self) -> None:
        """That nothing changed is seen by what is not there."""
        assert lines(entry()) == []

    def test_a_branch_only_wrote(self) -> None:
        """The merge makes the change, so a branch's fields are named and not told as changes."""
        branch = entry(kind=StepKind.BRANCH, patch={"constraints": ["x"]})

        assert lines(branch) == ["wrote constraints"]

    def test_an_object_is_told_member_by_member(self) -> None:
        """A patch of an object leaves the members that it does not name, so they did not go."""
        made = entry(patch={"quality": {"api": {"lint": 0.9, "cov": None}, "tags": ["b"]}, "owners": {"ui": ["bob"]}})
        before = {"quality": {"api": {"cov": 0.5, "ok": True}, "ui": {"cov": 0.2}, "tags": ["a", "b"]}, "owners": {}}

        assert lines(made, **before) == [
            "- quality.api.cov: 0.5",
            "+ quality.api.lint: 0.9",
            "- quality.tags: a",
            "+ owners.ui: bob",
        ]

    def test_a_single_value_is_told_as_json(self) -> None:
        """As the baton has it, and not as Python writes it."""
        made = entry(patch={"passed": True, "rows": [{"a": None}]})

        assert lines(made, passed=False) == [
            "- passed: false",
            "+ passed: true",
            '+ rows: {"a": null}',
        ]

    def test_the_name_of_a_member_cannot_steer_the_terminal(self) -> None:
        """An agent names the members of an object."""
        [line] = lines(entry(patch={"quality": {"\x1b[2J": 1}}), quality={})

        assert "\x1b" not in line

    def test_a_field_of_a_teams_own_is_told_too(self) -> None:
        """A derived baton's fields need no knowledge of them here."""
        made = entry(patch={"risk_level": "high"})

        assert lines(made, risk_level="low") == [
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
        """Text of a stage is data, for the operator's terminal as well."""
        made = entry(patch={"decision_log": [hostile]})

        [line] = lines(made)
        assert "\x1b" not in line
        assert "\u202e" not in line

    def test_markup_in_a_text_is_text(self) -> None:
        """A stage cannot colour the operator's page."""
        [line] = lines(entry(patch={"decision_log": ["[red]alarm[/red]"]}))

        assert line == "+ decision: [red]alarm[/red]"


class TestDifference:
    def test_another_order_is_no_change_of_entries(self) -> None:
        """Nothing came and nothing went, and that is what is said."""
        assert [str(one) for one in difference("constraints", "constraint", ["a", "b"], ["b", "a"])] == [
            "= constraint: another order"
        ]


class TestRemarks:
    def test_warnings_lost_constraints_and_conflicts_are_told(self) -> None:
        """What was allowed, but may not have been meant, is never silent."""
        made = entry(
            kind=StepKind.MERGE,
            warnings=["current_state: 1 bullet"],
            removed_constraints=["No new database"],
            conflicts=[Conflict(field="current_state", strategy="last", values={"test": ["a"], "review": ["b"]})],
        )

        assert [line.plain for line in change_lines(remarks(made))] == [
            "! current_state: 1 bullet",
            "! took away 1 constraint",
            "! test and review wrote current_state; merged by last",
        ]

    def test_a_merge_that_keeps_all_is_no_warning(self) -> None:
        """It is told who wrote the field, by a line that does not ask for attention."""
        values: dict[str, JsonValue] = {"test": ["a"], "review": ["b"], "audit": ["c"]}
        made = entry(kind=StepKind.MERGE, conflicts=[Conflict(field="artifacts", strategy="union", values=values)])

        (line,) = change_lines(remarks(made))

        assert line.plain == "= test, review and audit wrote artifacts; merged by union"
        assert {span.style for span in line.spans} == {"dim"}


class TestWithBefore:
    def test_each_entry_has_the_fields_that_it_changed_as_the_batons_have_them(self) -> None:
        """Without the batons, which a page of a long run has no time to make."""
        patches = [
            {"current_state": ["a"], "quality": {"lint": 1, "cov": {"ui": 2}}},
            {"decision_log": ["x"], "quality": {"lint": None, "cov": {"api": 3}}},
            {"current_state": ["b"], "quality": {"cov": None}, "goal": "New"},
        ]
        made = [entry(seq=seq, patch=patch) for seq, patch in enumerate(patches, start=1)]
        start = PipelineInput(goal="Old", baton={"constraints": ["y"]})
        state = PipelineState(start.first_baton(AnyBaton))
        for order, one in enumerate(made):
            state.restore(Outcome(seq=one.seq, order=order, name="plan", entries=[one]))
        run = RunRecord("w", "r", "Delivery", start, state)
        batons = [state.initial, *(baton for _, baton in run.history)]

        for (one, before), baton in zip(with_before(run), batons, strict=False):
            members = baton.to_json_object()
            known = [field for field in one.effective if field != "decision_log"]
            assert {field: before[field] for field in known} == {field: members.get(field) for field in known}
