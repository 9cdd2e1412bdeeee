"""Applying patches: effects, findings and warnings."""

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given

from baton.core.baton import AnyBaton, Baton, BatonPatch
from baton.core.patching import (
    MAX_BYTES,
    PatchRules,
    apply_patch,
    merge_patch,
    patch_effect,
    undeclared_writes,
    without_echo,
)
from baton.errors import PatchError
from tests.core.material import START, ReviewBaton, Severity, batons, findings, good_patches, raw_patches, ref


class TestMembers:
    def test_the_published_example_patch_applies(self) -> None:
        """S1 L52-62, member for member (S1-patch-b, S1-patch-g)."""
        patch: dict[str, Any] = {
            "current_state": [
                "Project documented with CLAUDE.md and README.md",
                "Feature roadmap created with 13 prioritized items",
                "Tech stack: React Native + Node.js + Supabase",
            ],
            "decision_log": [
                "Chose React Native over native development",
                "Selected Supabase for zero-cost backend",
            ],
            "work_scope": ["CLAUDE.md", "README.md"],
        }

        effect = patch_effect(START, patch)

        assert effect.change == patch
        assert effect.warnings == []
        assert effect.baton.to_json_object() == {
            **START.to_json_object(),
            **patch,
            "decision_log": ["d1", *patch["decision_log"]],
        }

    @pytest.mark.parametrize(
        ("patch", "field", "value"),
        [
            pytest.param({"current_state": ["Built"]}, "current_state", ["Built"], id="a list replaces the old one"),
            pytest.param({"constraints": []}, "constraints", [], id="an empty list empties it"),
            pytest.param({"constraints": None}, "constraints", [], id="null empties it"),
            pytest.param({"artifacts": None}, "artifacts", [], id="null empties the references"),
            pytest.param({"goal": "Add OAuth2"}, "goal", "Add OAuth2", id="the goal may change"),
            pytest.param({}, "current_state", ["Planned"], id="what is absent stays"),
        ],
    )
    def test_a_field_that_is_set_replaces_the_old_value(self, patch: Any, field: str, value: Any) -> None:
        """Merge-patch for all but the log (S1-patch-d, S1-patch-e, S1-design-d, S2-design-b, C-3, C-6, C-10)."""
        effect = patch_effect(START, patch)
        others = {name: getattr(START, name) for name in Baton.FIELDS if name != field}

        assert getattr(effect.baton, field) == value
        assert {name: getattr(effect.baton, name) for name in others} == others

    @given(batons, good_patches)
    def test_all_fields_but_the_log_follow_rfc_7396(self, baton: Baton, patch: dict[str, Any]) -> None:
        """The other rules change nothing about it (S1-patch-c, C-4)."""
        after = apply_patch(baton, patch).to_json_object()
        plain = merge_patch(baton.to_json_object(), patch)

        for name in set(Baton.FIELDS) - {"decision_log"}:
            assert after[name] == plain.get(name, [])

    @given(batons, good_patches)
    def test_applying_a_patch_twice_equals_applying_it_once(self, baton: Baton, patch: dict[str, Any]) -> None:
        """Except for decisions, which may be made again; a step's outcome is applied once (requirements part 6.2)."""
        patch = {name: value for name, value in patch.items() if name != "decision_log"}
        once = apply_patch(baton, patch)
        twice = patch_effect(once, patch)

        assert twice.baton == once
        assert twice.change == {}

    def test_a_patch_and_its_json_have_the_same_effect(self) -> None:
        """Typed and raw patches are equivalent (S1-patch-a, C-9)."""
        patch = BatonPatch(current_state=["Built"], constraints=None, artifacts=[ref("plan"), ref("diff")])

        assert apply_patch(START, patch) == apply_patch(START, patch.to_json_object())


class TestRefused:
    @pytest.mark.parametrize(
        ("patch", "finding"),
        [
            pytest.param({"goal": None}, "goal: may not be cleared", id="null for the goal"),
            pytest.param({"goal": ""}, "goal: may not be cleared", id="an empty goal"),
            pytest.param({"goal": " \n"}, "goal: may not be cleared", id="a blank goal"),
            pytest.param({"goal": "\u200b"}, "goal: ", id="an invisible goal"),
            pytest.param({"goal": 7}, "goal: Input should be a valid string", id="a number for the goal"),
            pytest.param({"current_state": "x"}, "current_state: Input should be a valid", id="a text for a list"),
            pytest.param({"current_state": ["x", 1]}, "current_state.1: ", id="a number in a list"),
            pytest.param({"constraints": {"a": "b"}}, "constraints: ", id="an object for a list"),
            pytest.param({"artifacts": [{"id": "a"}]}, "artifacts.0.type: ", id="half a reference"),
            pytest.param(
                {"artifacts": [{**ref("a").model_dump(), "content": "x"}]}, "artifacts.0.content: ", id="bytes"
            ),
            pytest.param(
                {"desicion_log": ["d"]},
                "desicion_log: a baton has no such member; did you mean 'decision_log'?",
                id="a misspelt member",
            ),
            pytest.param(
                {"worktree": "x"}, "worktree: a baton has no such member; the members are goal", id="a strange member"
            ),
            pytest.param({"open_questions": ["\ud800"]}, "baton: the patch is not JSON", id="half a character"),
        ],
    )
    def test_the_finding_names_the_member_and_nothing_is_applied(self, patch: dict[str, Any], finding: str) -> None:
        """No silent loss and no partial patch (C-3, S1-patch-d; B3, B4, B6, B13)."""
        patched = {"decision_log": ["d2"], "work_scope": ["src"], **patch}

        assert findings(START, patched)[0].startswith(finding)

    def test_all_faults_are_reported_at_once(self) -> None:
        """The stage can fix all of them in its next attempt (C-3)."""
        reported = findings(START, {"goal": None, "decision_log": None, "current_state": "x", "desicion_log": []})

        assert sorted(finding.split(":")[0] for finding in reported) == [
            "current_state",
            "decision_log",
            "desicion_log",
            "goal",
        ]

    def test_a_finding_never_repeats_the_value(self) -> None:
        """A stage's values are not copied into logs and failure messages."""
        assert "s3cret" not in " ".join(findings(START, {"current_state": "s3cret", "artifacts": ["s3cret"]}))

    @pytest.mark.parametrize(
        "patch",
        [
            pytest.param({f"x{n}": 1 for n in range(5_000)}, id="thousands of strange members"),
            pytest.param({"current_state": [1] * 5_000}, id="thousands of wrong entries"),
            pytest.param({"x" * 100_000: 1}, id="an endless name"),
        ],
    )
    def test_findings_are_limited_in_size(self, patch: dict[str, Any]) -> None:
        """They are part of the next attempt's input, which must fit a payload."""
        reported = findings(START, patch)

        assert len(reported) <= 21
        assert sum(map(len, reported)) < 10_000

    def test_a_baton_above_the_size_limit_is_rejected(self) -> None:
        """The finding names artifacts; a baton of exactly the limit is allowed (S1-prob-c, S1-size-b)."""
        room = MAX_BYTES - len(Baton(goal="ü", work_scope=[""]).model_dump_json().encode())
        largest = apply_patch(Baton(goal="ü"), {"work_scope": ["x" * room]})

        assert len(largest.model_dump_json().encode()) == MAX_BYTES
        assert "write large content to an artifact" in findings(Baton(goal="ü"), {"work_scope": ["x" * (room + 1)]})[0]

    @given(batons, raw_patches)
    def test_a_patch_does_not_change_the_old_baton(self, baton: Baton, patch: dict[str, Any]) -> None:
        """Neither when rejected nor when applied, and not by later changes (C-3; requirements part 6.2)."""
        before = baton.to_json_object(), copy.deepcopy(patch)

        with contextlib.suppress(PatchError):
            after = apply_patch(baton, patch)
            after.current_state.append("changed afterwards")
            after.decision_log.append("changed afterwards")

        assert (baton.to_json_object(), patch) == before


class TestWarnings:
    @pytest.mark.parametrize(("bullets", "warned"), [(0, True), (2, True), (3, False), (8, False), (9, True)])
    def test_a_state_outside_three_to_eight_bullets_is_a_warning(self, bullets: int, warned: bool) -> None:
        """The limit is soft (S1-fields-d, C-1)."""
        start = START.model_copy(update={"current_state": ["y"] * 3})
        effect = patch_effect(start, {"current_state": ["x"] * bullets})

        assert bool(effect.warnings) is warned
        assert len(effect.baton.current_state) == bullets

    def test_the_warning_about_a_single_bullet_is_singular(self) -> None:
        """The warning is a sentence."""
        start = START.model_copy(update={"current_state": ["y"] * 3})
        effect = patch_effect(start, {"current_state": ["x"]})

        assert effect.warnings == ["current_state: 1 bullet; 3 to 8 are best"]

    def test_a_state_that_was_always_short_gets_no_warning(self) -> None:
        """Otherwise each small stage has one, and nobody reads them (C-1)."""
        assert patch_effect(START, {"current_state": ["x"]}).warnings == []

    def test_a_patch_without_state_gets_no_warning_about_it(self) -> None:
        """The first baton's single bullet causes no warning for later stages (C-1)."""
        assert patch_effect(START, {"work_scope": ["src"]}).warnings == []


class TestConstraints:
    @pytest.mark.parametrize(
        "patch", [{"constraints": None}, {"constraints": []}, {"constraints": ["Other"]}], ids=repr
    )
    def test_a_removed_constraint_is_reported(self, patch: Any) -> None:
        """Replacing is allowed but always visible (C-5, S1-prob-g, S1-ex-g; requirements part 6.2)."""
        assert patch_effect(START, patch).removed_constraints == ["No new service"]

    def test_a_kept_constraint_is_not_reported(self) -> None:
        """Adding one removes none (C-5)."""
        assert patch_effect(START, {"constraints": ["New", "No new service"]}).removed_constraints == []


class TestRules:
    FROZEN = PatchRules(frozenset({"goal"}))

    def test_a_frozen_goal_may_be_repeated_but_not_changed(self) -> None:
        """A pipeline may forbid its stages to change the goal (C-6)."""
        assert apply_patch(START, {"goal": "Add login"}, self.FROZEN) == START
        assert findings(START, {"goal": "Add ads"}, self.FROZEN)[0].startswith("goal: is protected, and would change")

    @pytest.mark.parametrize(
        ("field", "patch", "allowed"),
        [
            pytest.param("constraints", {"constraints": ["New", "No new service"]}, True, id="an entry may be added"),
            pytest.param("constraints", {"constraints": ["New"]}, False, id="an entry may not be replaced"),
            pytest.param("constraints", {"constraints": None}, False, id="the field may not be cleared"),
            pytest.param("artifacts", {"artifacts": []}, False, id="a reference may not go"),
            pytest.param("goal", {"goal": "Add ads"}, False, id="a text may not change"),
            pytest.param("quality_signals", {"quality_signals": {"b": 2}}, True, id="a member may be added"),
            pytest.param("quality_signals", {"quality_signals": {"a": 2}}, False, id="a member may not change"),
            pytest.param("quality_signals", {"quality_signals": {"a": None}}, False, id="a member may not go"),
            pytest.param("stage_hint", {"stage_hint": "x"}, True, id="what is empty may be filled"),
            pytest.param("decision_log", {"decision_log": ["d2"]}, True, id="the log is protected anyway"),
        ],
    )
    def test_entries_of_a_protected_field_cannot_be_removed(self, field: str, patch: Any, allowed: bool) -> None:
        """A pipeline can protect its hard rules (C-5, S1-prob-g)."""
        rules = PatchRules(protected=frozenset({field}))
        start = ReviewBaton(**{**START.__dict__, "quality_signals": {"a": 1}})

        if allowed:
            assert apply_patch(start, patch, rules) != start
        else:
            assert findings(start, patch, rules)[0].startswith(f"{field}: is protected")

    def test_protecting_an_unknown_field_is_an_error(self) -> None:
        """A typo would protect nothing."""
        with pytest.raises(ValueError, match="constraint"):
            patch_effect(START, {}, PatchRules(protected=frozenset({"constraint"})))

    @pytest.mark.parametrize(
        "rules",
        [
            pytest.param(PatchRules(), id="it is in the baton"),
            pytest.param(PatchRules(known_artifacts={"old": "0" * 64}), id="it was in the baton once"),
        ],
    )
    def test_an_artifact_id_never_names_other_bytes(self, rules: PatchRules) -> None:
        """A new version needs a new id, even if the old reference was dropped (C-11, S1-cmp-f)."""
        id = "old" if rules.known_artifacts else "plan"

        reported = findings(START, {"artifacts": [ref(id, "1").model_dump(mode="json")]}, rules)

        assert reported[0].startswith(f"artifacts: {id!r} already names other bytes (000000000000…, now 111111111111…)")

    def test_one_patch_cannot_use_an_id_for_two_artifacts(self) -> None:
        """The rule also holds within a patch (C-11)."""
        twice = [ref("new", "1").model_dump(mode="json"), ref("new", "2").model_dump(mode="json")]

        assert "'new' already names other bytes" in findings(START, {"artifacts": twice})[0]


class TestFurtherFields:
    START = ReviewBaton(goal="g", quality_signals={"craft": 5, "score_history": [4, 5]}, stage_hint="x", limit=9)

    @pytest.mark.parametrize(
        ("patch", "field", "value"),
        [
            pytest.param(
                {"quality_signals": {"craft": 6}},
                "quality_signals",
                {"craft": 6, "score_history": [4, 5]},
                id="objects merge member by member",
            ),
            pytest.param(
                {"quality_signals": {"craft": None}},
                "quality_signals",
                {"score_history": [4, 5]},
                id="a null member removes",
            ),
            pytest.param(
                {"quality_signals": {"a": {"b": None, "c": 1}}},
                "quality_signals",
                {"craft": 5, "score_history": [4, 5], "a": {"c": 1}},
                id="at any depth",
            ),
            pytest.param({"quality_signals": None}, "quality_signals", {}, id="null empties an object"),
            pytest.param({"stage_hint": None}, "stage_hint", None, id="null clears a text"),
            pytest.param({"limit": None}, "limit", 3, id="null means the default"),
            pytest.param({"severity": "high"}, "severity", Severity.HIGH, id="an enum comes as a text"),
        ],
    )
    def test_objects_are_merged_member_by_member(self, patch: Any, field: str, value: Any) -> None:
        """The original replaced objects and lost the score history that its own gate read (C-4; B5)."""
        effect = patch_effect(self.START, patch)

        assert getattr(effect.baton, field) == value
        assert merge_patch(self.START.to_json_object(), effect.change) == effect.baton.to_json_object()

    def test_a_time_is_a_string(self) -> None:
        """A patch is JSON, which has no times."""
        after = apply_patch(self.START, {"due": "2026-12-01T00:00:00Z"})

        assert after.due is not None
        assert after.to_json_object()["due"] == "2026-12-01T00:00:00Z"

    def test_a_number_without_a_digest_is_rejected(self) -> None:
        """Otherwise a later approval could not be bound to the baton."""
        assert "safe integer" in findings(self.START, {"quality_signals": {"n": 2**60}})[0]
        assert "baton: " in findings(self.START, {"quality_signals": {"n": float("nan")}})[0]

    def test_a_reader_accepts_unknown_members(self) -> None:
        """The history of any baton type can be read (S1-design-i)."""
        after = apply_patch(AnyBaton(goal="g"), {"quality_signals": {"craft": 6}})

        assert after.to_json_object()["quality_signals"] == {"craft": 6}


class TestWithoutEcho:
    @pytest.mark.parametrize(
        ("patch", "left"),
        [
            ({"decision_log": ["d1", "d2"]}, {"decision_log": ["d2"]}),
            ({"decision_log": ["d1"]}, {"decision_log": []}),
            ({"goal": "x"}, {"goal": "x"}),
            ({"decision_log": None}, {"decision_log": None}),
        ],
        ids=repr,
    )
    def test_only_new_decisions_remain(self, patch: Any, left: Any) -> None:
        """Invalid logs stay invalid, for the merge to reject (C-2)."""
        assert without_echo(["d1"], patch) == left


class TestUndeclaredWrites:
    def test_a_stage_without_a_declaration_may_write_all_fields(self) -> None:
        """Declaring is optional."""
        assert undeclared_writes({"goal": "x"}, None) == []

    def test_an_undeclared_field_is_a_finding(self) -> None:
        """A stage may write declared fields only."""
        reported = undeclared_writes({"goal": "x", "work_scope": []}, frozenset({"work_scope"}))

        assert [finding.split(":")[0] for finding in reported] == ["goal"]
        assert "declared: work_scope" in reported[0]

    def test_findings_about_many_fields_are_limited(self) -> None:
        """They are part of the next attempt's input."""
        assert len(undeclared_writes({f"x{n}": 1 for n in range(5_000)}, frozenset())) == 21
