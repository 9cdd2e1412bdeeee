"""History entries, outcomes, and the snapshots derived from them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from baton.core.baton import Baton
from baton.core.history import HistoryEntry, Outcome, Spend, StepKind, apply_change, snapshots
from baton.core.patching import patch_effect
from tests.core.material import AT, ReviewBaton, batons, good_patches


def entry(**members: Any) -> HistoryEntry:
    return HistoryEntry(**{"seq": 1, "stage_id": "plan", "timestamp": AT, **members})


class TestHistoryEntry:
    def test_it_has_stage_time_and_patch(self) -> None:
        """Stage id, time and patch survive JSON (S1-design-h, S2-design-d)."""
        written = json.loads(entry(patch={"goal": "x"}).model_dump_json())

        assert written == {"seq": 1, "stage_id": "plan", "timestamp": "2026-11-21T08:30:00Z", "patch": {"goal": "x"}}

    def test_an_empty_patch_is_an_entry(self) -> None:
        """The history includes stages that changed nothing (C-10)."""
        assert HistoryEntry.model_validate_json(entry(patch={}).model_dump_json()).effective == {}

    @pytest.mark.parametrize(
        ("members", "effective"),
        [
            pytest.param({"patch": {"goal": "x"}}, {"goal": "x"}, id="the patch"),
            pytest.param({"patch": {"goal": "x"}, "change": {}}, {}, id="the change, where it differs"),
            pytest.param({"patch": {"goal": "x"}, "kind": StepKind.BRANCH}, {}, id="nothing, for a branch"),
        ],
    )
    def test_the_effective_change_is_recorded(self, members: dict[str, Any], effective: dict[str, Any]) -> None:
        """Both the returned patch and its effect are recorded (C-2)."""
        assert entry(**members).effective == effective

    def test_an_empty_change_survives_json(self) -> None:
        """An empty change differs from a change that equals the patch (C-2)."""
        there = HistoryEntry.model_validate_json(entry(patch={"goal": "x"}, change={}).model_dump_json())

        assert there.change == {}

    @pytest.mark.parametrize(
        "members",
        [{"seq": 0}, {"stage_id": ""}, {"stage_id": "x" * 201}, {"attempt": 0}, {"kind": "loop"}],
        ids=repr,
    )
    def test_invalid_entries_are_rejected(self, members: dict[str, Any]) -> None:
        """Steps count from 1 and have a name and a known kind."""
        with pytest.raises(ValidationError):
            entry(**members)


class TestSpend:
    @given(st.lists(st.builds(Spend, **dict.fromkeys(Spend.model_fields, st.integers(0, 10**12))), max_size=5))
    def test_sums_are_exact_in_any_order(self, spends: list[Spend]) -> None:
        """Money is counted in whole millionths."""
        total = sum(spends, start=Spend())

        assert total == sum(reversed(spends), start=Spend())
        for name in ("micro_usd", "prompt_tokens", "completion_tokens"):
            assert getattr(total, name) == sum(getattr(spend, name) for spend in spends)

    def test_a_cost_is_not_negative(self) -> None:
        """A negative cost would raise the budget."""
        with pytest.raises(ValidationError):
            Spend(micro_usd=-1)


class TestOutcome:
    def test_it_survives_json(self) -> None:
        """A run is resumed from it in another process."""
        outcome = Outcome(
            seq=2,
            order=1,
            name="plan",
            kind=StepKind.MERGE,
            entries=[entry(patch={"constraints": None}, spend=Spend(micro_usd=5), removed_constraints=["x"])],
            value={"passed": [1, 2.5, None]},
        )

        assert Outcome.model_validate_json(outcome.model_dump_json()) == outcome


class TestApplyChange:
    @given(batons, good_patches)
    def test_the_effective_change_reproduces_the_step(self, baton: Baton, patch: dict[str, Any]) -> None:
        """The history is enough to replay a step exactly (S1-patch-f, S1-design-i)."""
        effect = patch_effect(baton, patch)

        assert apply_change(baton, effect.change) == effect.baton

    @pytest.mark.parametrize(
        "patch",
        [
            {"quality_signals": {"a": None, "b": {"c": True}}},
            {"quality_signals": {"a": True}},
            {"stage_hint": None, "due": "2026-12-01T00:00:00+02:00"},
            {"severity": "high", "limit": None},
        ],
        ids=repr,
    )
    def test_additional_fields_are_replayed(self, patch: Any) -> None:
        """Removed members, true for 1, times and enums (S1-design-i, C-4)."""
        start = ReviewBaton(goal="g", quality_signals={"a": 1}, stage_hint="x", limit=9)
        effect = patch_effect(start, patch)
        replayed = apply_change(start, json.loads(json.dumps(effect.change)))

        assert replayed.to_json_object() == effect.baton.to_json_object()
        assert replayed.digest == effect.baton.digest

    def test_an_empty_change_returns_the_same_baton(self) -> None:
        """No copy is made."""
        baton = Baton(goal="g")

        assert apply_change(baton, {}) is baton


class TestSnapshots:
    def test_every_step_has_a_snapshot(self) -> None:
        """The original kept the last five only (S1-patch-f, S1-design-e; B2)."""
        entries = [entry(seq=n, patch={"decision_log": [f"d{n}"]}) for n in range(1, 41)]
        pairs = list(snapshots(Baton(goal="g"), entries))

        assert [entry for entry, _ in pairs] == entries
        assert [len(baton.decision_log) for _, baton in pairs] == list(range(1, 41))
