"""The main invariant: decisions are appended and never lost, altered or reordered."""

from typing import Any

import pytest
from hypothesis import given

from baton.core.baton import Baton
from baton.core.patching import (
    MAX_DECISION_CHARACTERS,
    MAX_DECISIONS,
    apply_patch,
    patch_effect,
    without_echo,
)
from baton.errors import PatchError
from tests.core.material import START, batons, findings, raw_patches


class TestDecisionLog:
    @pytest.mark.parametrize(
        ("log", "sent", "after"),
        [
            pytest.param(["d1"], ["d2"], ["d1", "d2"], id="a new decision is appended"),
            pytest.param(["Failed"], ["Failed"], ["Failed", "Failed"], id="a decision that is made again"),
            pytest.param(["d1"], [], ["d1"], id="an empty list changes nothing"),
            pytest.param([], ["d1", "d1"], ["d1", "d1"], id="a decision that is made twice"),
            pytest.param(["d1", "d2"], ["d2", "d1"], ["d1", "d2", "d2", "d1"], id="several again"),
        ],
    )
    def test_it_is_appended_to_and_never_replaced(self, log: list[str], sent: list[str], after: list[str]) -> None:
        """The main invariant, which the original violates (S1-fields-e, S1-design-a, S1-design-b, C-2; B1)."""
        effect = patch_effect(Baton(goal="g", decision_log=log), {"decision_log": [*sent]})

        assert effect.baton.decision_log == after
        assert effect.change.get("decision_log", []) == sent

    @pytest.mark.parametrize(
        ("log", "sent", "after"),
        [
            pytest.param(["d1"], ["d2"], ["d1", "d2"], id="a new decision is appended"),
            pytest.param(["d1"], ["d1", "d2"], ["d1", "d2"], id="the log sent back whole adds its tail only"),
            pytest.param(["d1"], [], ["d1"], id="an empty list changes nothing"),
            pytest.param(["a", "a", "b"], ["a", "b", "c"], ["a", "a", "b", "c"], id="an entry that stands there twice"),
            pytest.param(["d1"], ["d1"], ["d1"], id="the log sent back changes nothing"),
            pytest.param(["d1", "d2", "d3"], ["d2", "d3", "d4"], ["d1", "d2", "d3", "d4"], id="its newest part too"),
            pytest.param(["d1", "d2"], ["d1"], ["d1", "d2"], id="an older part changes nothing"),
            pytest.param(["d1", "d2"], ["d2", "d1"], ["d1", "d2"], id="another order changes nothing"),
            pytest.param(["d1", "d2", "d3"], ["d1", "d3"], ["d1", "d2", "d3"], id="leaving one out changes nothing"),
            pytest.param(
                ["d1", "d2", "d3"], ["d2", "d1", "d3"], ["d1", "d2", "d3"], id="all of it in another order too"
            ),
            pytest.param([], ["d1", "d1"], ["d1", "d1"], id="a new decision may be sent twice"),
            pytest.param(["d1", "d2"], ["d3", "d1"], ["d1", "d2", "d3", "d1"], id="old ones among new ones are kept"),
        ],
    )
    def test_an_agent_that_sends_the_log_back_adds_its_new_decisions_only(
        self, log: list[str], sent: list[str], after: list[str]
    ) -> None:
        """A model repeats what it was shown, and may shorten or reorder it (C-2)."""
        patch = without_echo(log, {"decision_log": [*sent]})

        assert apply_patch(Baton(goal="g", decision_log=log), patch).decision_log == after

    def test_null_is_rejected(self) -> None:
        """It would erase every decision (C-3; B1; requirements part 6.2)."""
        assert findings(START, {"decision_log": None})[0].startswith("decision_log: only grows and may not be cleared")

    @pytest.mark.parametrize("value", ["d2", {"add": "d2"}, [1], ["d2", None], 7], ids=repr)
    def test_anything_but_a_list_of_strings_is_rejected(self, value: Any) -> None:
        """It would replace the log (C-3; B1)."""
        assert findings(START, {"decision_log": value})[0].startswith("decision_log: must be a list of strings")

    @given(batons, raw_patches)
    def test_no_patch_shortens_or_alters_it(self, baton: Baton, patch: dict[str, Any]) -> None:
        """All decisions stay in order, whatever a stage returns (S1-design-a, S1-design-b, S2-design-a)."""
        try:
            after = apply_patch(baton, patch)
        except PatchError:
            return

        assert after.decision_log[: len(baton.decision_log)] == baton.decision_log

    def test_repeated_entries_are_matched_as_far_as_possible(self) -> None:
        """Only new entries are appended, even if the log has many equal entries (C-2)."""
        log, sent = ["d"] * 2_000, ["d"] * 1_000 + ["e"] * 1_000

        assert without_echo(log, {"decision_log": [*sent]}) == {"decision_log": ["e"] * 1_000}

    def test_a_long_log_leaves_its_older_half_to_the_history(self) -> None:
        """The baton stays small, the entry says what left it, and a run can always decide once more."""
        log = [f"d{number}" for number in range(MAX_DECISIONS)]
        effect = patch_effect(Baton(goal="g", decision_log=log), {"decision_log": ["one", "more"]})

        assert effect.baton.decision_log == [*log[-MAX_DECISIONS // 2 + 2 :], "one", "more"]
        assert effect.change == {"decision_log": ["one", "more"]}
        assert effect.warnings == ["decision_log: the 502 oldest entries left the baton; the history has them"]

    def test_long_decisions_leave_earlier_and_the_newest_stays(self) -> None:
        """Decisions never use up the bytes that a baton may have."""
        baton = Baton(goal="g", decision_log=["a" * MAX_DECISION_CHARACTERS, "b"])

        assert apply_patch(baton, {"decision_log": ["c"]}).decision_log == ["b", "c"]
        assert apply_patch(baton, {"decision_log": ["c" * MAX_DECISION_CHARACTERS]}).decision_log[0][0] == "c"
