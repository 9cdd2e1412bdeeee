"""How a patch becomes the next baton, and which patches are refused."""

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
        """Merge-patch for all fields but the log (S1-patch-d, S1-patch-e, S1-design-d, S2-design-b, C-3, C-6, C-10)."""
        effect = patch_effect(START, patch)
        others = {name: getattr(START, name) for name in Baton.FIELDS if name != field}

        assert getattr(effect.baton, field) == value
        assert {name: getattr(effect.baton, name) for name in others} == others

    @given(batons, good_patches)
    def test_all_fields_but_the_log_follow_rfc_7396(self, baton: Baton, patch: dict[str, Any]) -> None:
        """The rules on top change nothing else (S1-patch-c, C-4)."""
        after = apply_patch(baton, patch).to_json_object()
        plain = merge_patch(baton.to_json_object(), patch)

        for name in set(Baton.FIELDS) - {"decision_log"}:
            assert after[name] == plain.get(name, [])

    @given(batons, good_patches)
    def test_the_same_patch_twice_is_the_same_as_once(self, baton: Baton, patch: dict[str, Any]) -> None:
        """A patch that is delivered twice does no harm (C-2; last row of requirements part 6.2)."""
        once = apply_patch(baton, patch)
        twice = patch_effect(once, patch)

        assert twice.baton == once
        assert twice.change == {}

    def test_a_record_and_its_json_do_the_same(self) -> None:
        """A typed patch and a raw one are one thing (S1-patch-a, C-9)."""
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
        """Never a silent loss, never half a patch (C-3, S1-patch-d; B3, B4, B6, B13)."""
        patched = {"decision_log": ["d2"], "work_scope": ["src"], **patch}

        assert findings(START, patched)[0].startswith(finding)

    def test_every_fault_is_named_at_once(self) -> None:
        """The stage can fix all of it in its next attempt (C-3)."""
        reported = findings(START, {"goal": None, "decision_log": None, "current_state": "x", "desicion_log": []})

        assert sorted(finding.split(":")[0] for finding in reported) == [
            "current_state",
            "decision_log",
            "desicion_log",
            "goal",
        ]

    def test_a_finding_never_repeats_the_value(self) -> None:
        """What a stage wrote is not copied into logs and failure messages."""
        assert "s3cret" not in " ".join(findings(START, {"current_state": "s3cret", "artifacts": ["s3cret"]}))

    @pytest.mark.parametrize(
        "patch",
        [
            pytest.param({f"x{n}": 1 for n in range(5_000)}, id="thousands of strange members"),
            pytest.param({"current_state": [1] * 5_000}, id="thousands of wrong entries"),
            pytest.param({"x" * 100_000: 1}, id="an endless name"),
        ],
    )
    def test_findings_stay_small_however_odd_the_patch(self, patch: dict[str, Any]) -> None:
        """They go into the next attempt's input, which a payload must be able to carry."""
        reported = findings(START, patch)

        assert len(reported) <= 21
        assert sum(map(len, reported)) < 10_000

    def test_a_baton_that_grows_beyond_all_measure_is_refused(self) -> None:
        """It says where the work belongs; up to the limit it is allowed (S1-prob-c, S1-size-b)."""
        room = MAX_BYTES - len(Baton(goal="g", work_scope=[""]).model_dump_json())
        largest = apply_patch(Baton(goal="g"), {"work_scope": ["x" * room]})

        assert len(largest.model_dump_json()) == MAX_BYTES
        assert "write large content to an artifact" in findings(Baton(goal="g"), {"work_scope": ["x" * (room + 1)]})[0]

    @given(batons, raw_patches)
    def test_a_patch_leaves_what_it_was_applied_to_as_it_was(self, baton: Baton, patch: dict[str, Any]) -> None:
        """Refused or applied, and whatever becomes of the next baton (C-3; requirements part 6.2)."""
        before = baton.to_json_object(), copy.deepcopy(patch)

        with contextlib.suppress(PatchError):
            after = apply_patch(baton, patch)
            after.current_state.append("changed afterwards")
            after.decision_log.append("changed afterwards")

        assert (baton.to_json_object(), patch) == before


class TestWarnings:
    @pytest.mark.parametrize(("bullets", "warned"), [(0, True), (2, True), (3, False), (8, False), (9, True)])
    def test_a_state_outside_three_to_eight_bullets_is_warned_of(self, bullets: int, warned: bool) -> None:
        """The limit is soft: it warns and never refuses (S1-fields-d, C-1)."""
        effect = patch_effect(START, {"current_state": ["x"] * bullets})

        assert bool(effect.warnings) is warned
        assert len(effect.baton.current_state) == bullets

    def test_a_single_bullet_is_one(self) -> None:
        """The warning is a sentence."""
        effect = patch_effect(START, {"current_state": ["x"]})

        assert effect.warnings == ["current_state: 1 bullet; 3 to 8 are best"]

    def test_a_patch_that_does_not_set_the_state_is_not_warned_about_it(self) -> None:
        """The seed's own one-bullet start draws no warning from later stages (C-1)."""
        assert patch_effect(START, {"work_scope": ["src"]}).warnings == []


class TestConstraints:
    @pytest.mark.parametrize(
        "patch", [{"constraints": None}, {"constraints": []}, {"constraints": ["Other"]}], ids=repr
    )
    def test_a_constraint_that_goes_is_told(self, patch: Any) -> None:
        """Replacing is allowed and never unseen (C-5, S1-prob-g, S1-ex-g; requirements part 6.2)."""
        assert patch_effect(START, patch).removed_constraints == ["No new service"]

    def test_a_constraint_that_stays_is_not(self) -> None:
        """Adding one removes none (C-5)."""
        assert patch_effect(START, {"constraints": ["New", "No new service"]}).removed_constraints == []


class TestRules:
    FROZEN = PatchRules(freeze_goal=True)

    def test_a_frozen_goal_may_be_repeated_but_not_changed(self) -> None:
        """A pipeline may forbid its stages to move the target (C-6)."""
        assert apply_patch(START, {"goal": "Add login"}, self.FROZEN) == START
        assert findings(START, {"goal": "Add ads"}, self.FROZEN)[0].startswith("goal: is frozen")

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
    def test_a_protected_field_only_gains(self, field: str, patch: Any, allowed: bool) -> None:
        """A pipeline may make hard rules stay hard (C-5, S1-prob-g)."""
        rules = PatchRules(protected=frozenset({field}))
        start = ReviewBaton(**{**START.__dict__, "quality_signals": {"a": 1}})

        if allowed:
            assert apply_patch(start, patch, rules) != start
        else:
            assert findings(start, patch, rules)[0].startswith(f"{field}: is protected")

    def test_protecting_a_field_that_does_not_exist_is_an_error(self) -> None:
        """A typing mistake would protect nothing, unseen."""
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
        """Artifacts are immutable: a new version takes a new id, even once the old one is dropped (C-11, S1-cmp-f)."""
        id = "old" if rules.known_artifacts else "plan"

        reported = findings(START, {"artifacts": [ref(id, "1").model_dump(mode="json")]}, rules)

        assert reported[0].startswith(f"artifacts: {id!r} already names other bytes (000000000000…, now 111111111111…)")

    def test_one_patch_cannot_give_two_meanings_to_an_id(self) -> None:
        """The rule holds within a patch too (C-11)."""
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
    def test_merge_patch_reaches_into_objects(self, patch: Any, field: str, value: Any) -> None:
        """The original replaced objects whole, and lost the score history its own gate read (C-4; B5)."""
        effect = patch_effect(self.START, patch)

        assert getattr(effect.baton, field) == value
        assert merge_patch(self.START.to_json_object(), effect.change) == effect.baton.to_json_object()

    def test_a_time_comes_as_a_text(self) -> None:
        """A patch is JSON, and JSON has no times."""
        after = apply_patch(self.START, {"due": "2026-12-01T00:00:00Z"})

        assert after.due is not None
        assert after.to_json_object()["due"] == "2026-12-01T00:00:00Z"

    def test_a_number_that_has_no_digest_is_refused(self) -> None:
        """Else a later approval could not be bound to the baton, and the pipeline would stop there."""
        assert "safe integer" in findings(self.START, {"quality_signals": {"n": 2**60}})[0]
        assert "baton: " in findings(self.START, {"quality_signals": {"n": float("nan")}})[0]

    def test_a_reader_takes_members_it_does_not_know(self) -> None:
        """A history of any team's pipeline can be read (S1-design-i)."""
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
    def test_only_new_decisions_are_left(self, patch: Any, left: Any) -> None:
        """What is wrong stays wrong, for the merge to refuse (C-2)."""
        assert without_echo(["d1"], patch) == left


class TestUndeclared:
    def test_a_stage_that_declares_nothing_may_write_all(self) -> None:
        """Declaring is a choice."""
        assert undeclared_writes({"goal": "x"}, None) == []

    def test_a_field_outside_the_declaration_is_named(self) -> None:
        """A stage keeps to what it said it writes."""
        reported = undeclared_writes({"goal": "x", "work_scope": []}, frozenset({"work_scope"}))

        assert [finding.split(":")[0] for finding in reported] == ["goal"]
        assert "declared: work_scope" in reported[0]

    def test_findings_stay_small(self) -> None:
        """They go into the next attempt's input."""
        assert len(undeclared_writes({f"x{n}": 1 for n in range(5_000)}, frozenset())) == 21
