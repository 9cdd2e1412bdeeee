"""The baton, the patch, and derived batons."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from pydantic import Field, JsonValue, ValidationError

from baton.core.baton import AnyBaton, Baton, BatonPatch
from baton.core.rendering import render
from tests.core.material import ReviewBaton, Severity, batons, ref

FIELDS = [
    "goal",
    "current_state",
    "decision_log",
    "constraints",
    "work_scope",
    "artifacts",
    "open_questions",
    "acceptance",
]

EXAMPLE = """{
  "goal": "Add user auth",
  "current_state": ["Routes created", "Tests passing"],
  "decision_log": ["Chose JWT over sessions"],
  "constraints": ["No breaking changes"],
  "work_scope": ["src/auth/*"],
  "artifacts": [],
  "open_questions": [],
  "acceptance": ["All auth tests green"]
}"""
"""The object of S2 L53-62."""


class TestBaton:
    def test_it_has_the_eight_fields_in_the_published_order(self) -> None:
        """Eight fields, written in the order of the example (S1-fields-a, S2-ex-b)."""
        assert list(Baton.model_fields) == FIELDS
        assert list(Baton(goal="g").to_json_object()) == FIELDS
        assert list(Baton.FIELDS) == FIELDS

    def test_only_the_goal_is_required(self) -> None:
        """All other fields default to empty lists (S1-fields-b, S2-ex-c)."""
        with pytest.raises(ValidationError, match="goal"):
            Baton.model_validate({})

        assert Baton(goal="g").to_json_object() == {"goal": "g", **{name: [] for name in FIELDS[1:]}}

    @pytest.mark.parametrize("goal", ["", "  ", "\n", "\u200b"], ids=ascii)
    def test_a_blank_goal_is_rejected(self, goal: str) -> None:
        """The original accepted an empty goal (B6)."""
        with pytest.raises(ValidationError, match="say something"):
            Baton(goal=goal)

    def test_the_published_example_parses_round_trips_and_renders(self) -> None:
        """The JSON of the published page is a valid baton (S2-ex-b, S2-ex-c, S2-ex-d, S2-ex-e)."""
        baton = Baton.model_validate_json(EXAMPLE)

        assert baton.to_json_object() == json.loads(EXAMPLE)
        assert list(baton.to_json_object()) == list(json.loads(EXAMPLE))
        assert "- src/auth/*\n" in render(baton)

    def test_it_is_constructed_from_keywords(self) -> None:
        """Python code constructs it as in the document (S1-init-b, S1-init-c)."""
        baton = Baton(goal="Initialize deenup", current_state=["Workflow starting"])

        assert baton.current_state == ["Workflow starting"]

    def test_an_artifact_is_a_reference_and_never_content(self) -> None:
        """No member of a reference can hold content (S1-fields-h, S1-fields-k, S1-design-j)."""
        with pytest.raises(ValidationError, match="content"):
            Baton.from_json_object({"goal": "g", "artifacts": [{**ref("a").model_dump(), "content": "# Plan"}]})

    @pytest.mark.parametrize(
        "hash",
        [
            pytest.param("a3f8", id="shortened"),
            pytest.param("A" * 64, id="upper case"),
            pytest.param("0" * 65, id="too long"),
            pytest.param("sha256:" + "0" * 64, id="with a prefix"),
            pytest.param("0" * 64 + "\n", id="with a line break"),
        ],
    )
    def test_a_hash_is_a_full_sha_256(self, hash: str) -> None:
        """The full hash is stored; only the display shortens it (C-11)."""
        with pytest.raises(ValidationError, match="hash"):
            Baton.from_json_object({"goal": "g", "artifacts": [{"id": "a", "type": "t", "hash": hash}]})

    def test_a_size_that_json_cannot_represent_is_rejected(self) -> None:
        """Otherwise the baton would have no digest to bind an approval to."""
        with pytest.raises(ValidationError, match="size"):
            ref("a", size=2**53)

    @given(batons)
    def test_every_baton_survives_json(self, baton: Baton) -> None:
        """A client reads exactly what the workflow wrote, with the same digest (S2-ex-e)."""
        for copy in (
            Baton.model_validate_json(baton.model_dump_json()),
            Baton.from_json_object(baton.to_json_object()),
        ):
            assert copy == baton
            assert copy.digest == baton.digest

    def test_different_batons_have_different_digests(self) -> None:
        """An approval is bound to the digest, so every change is detected."""
        baton = Baton(goal="g", decision_log=["a", "b"])
        others = [
            Baton(goal="h", decision_log=["a", "b"]),
            Baton(goal="g", decision_log=["b", "a"]),
            Baton(goal="g", decision_log=["a", "b"], artifacts=[ref("x")]),
            Baton(goal="g", constraints=["a", "b"]),
        ]

        assert len({each.digest for each in (baton, *others)}) == 5
        assert baton.digest.startswith("sha256:")


class TestRestricted:
    BATON = ReviewBaton(goal="g", decision_log=["a", "b", "c"], constraints=["c"], quality_signals={"craft": 6})

    @pytest.mark.parametrize(
        ("decisions", "left"),
        [(None, ["a", "b", "c"]), (9, ["a", "b", "c"]), (3, ["a", "b", "c"]), (2, ["b", "c"]), (1, ["c"]), (0, [])],
    )
    def test_the_newest_decisions_stay(self, decisions: int | None, left: list[str]) -> None:
        """Long logs are cut at the old end (C-7; B8 hid the newest)."""
        assert self.BATON.restricted(None, decisions).decision_log == left

    def test_unread_fields_are_emptied_except_the_goal(self) -> None:
        """Additional fields that a stage does not read are emptied as well."""
        handed = self.BATON.restricted(frozenset({"constraints"}), None)

        assert handed == ReviewBaton(goal="g", constraints=["c"])

    def test_the_baton_itself_is_not_changed(self) -> None:
        """Fields withheld from a stage stay in the workflow (S1-design-b)."""
        before = self.BATON.digest

        self.BATON.restricted(frozenset(), 0)

        assert self.BATON.digest == before

    def test_the_baton_is_not_copied_if_nothing_is_withheld(self) -> None:
        """Restricting to everything returns the same object."""
        assert self.BATON.restricted(None, 3) is self.BATON


class TestAdditionalFields:
    def test_they_survive_json_whatever_their_type(self) -> None:
        """Times and enums are strings in JSON and are parsed again."""
        baton = ReviewBaton(
            goal="g",
            due=datetime(2026, 12, 1, tzinfo=UTC),
            severity=Severity.HIGH,
            quality_signals={"scores": [7, 8.5, None]},
        )

        assert ReviewBaton.from_json_object(baton.to_json_object()) == baton
        assert ReviewBaton.model_validate_json(baton.model_dump_json()) == baton

    def test_a_field_without_a_default_is_rejected_at_class_definition(self) -> None:
        """A stage that does not read the field still gets a baton."""
        with pytest.raises(TypeError, match=r"Bad\.owner has no default"):

            class Bad(Baton):
                owner: str

    def test_a_nullable_field_must_default_to_none(self) -> None:
        """Null in a patch removes a member, which resets the field to its default."""
        with pytest.raises(TypeError, match=r"Bad\.limit may be None"):

            class Bad(Baton):
                limit: int | None = 5

    @pytest.mark.parametrize("value", [2**53, -(2**60)], ids=repr)
    def test_a_number_that_json_cannot_represent_is_rejected(self, value: int) -> None:
        """Every baton has a digest, so an approval can always be bound to it."""
        with pytest.raises(ValidationError, match="safe integer"):
            ReviewBaton(goal="g", quality_signals={"n": value})


class TestAnyBaton:
    def test_it_keeps_unknown_fields(self) -> None:
        """A history reader shows the additional fields of any baton type."""
        baton = ReviewBaton(goal="g", quality_signals={"craft": 6}, stage_hint="mind the tests")
        read = AnyBaton.from_json_object(baton.to_json_object())

        assert read.to_json_object() == baton.to_json_object()
        assert read.digest == baton.digest


class TestBatonPatch:
    def test_an_unset_field_is_not_serialized(self) -> None:
        """A patch holds set fields only, because null would clear a field (S1-patch-d, S2-how-3)."""
        assert BatonPatch(current_state=["x"]).model_dump_json() == '{"current_state":["x"]}'
        assert BatonPatch().model_dump_json() == "{}"

    def test_an_explicit_null_is_serialized(self) -> None:
        """A stage can clear a field (C-3)."""
        assert BatonPatch(constraints=None).to_json_object() == {"constraints": None}

    @pytest.mark.parametrize("json_text", ['{"current_state":["x"]}', '{"constraints":null}', "{}"])
    def test_absent_and_null_survive_json(self, json_text: str) -> None:
        """Absent stays absent and null stays null through any converter (S1-patch-d)."""
        patch = BatonPatch.model_validate_json(json_text)

        assert patch.model_dump_json() == json_text
        assert patch.to_json_object() == json.loads(json_text)
        assert patch.model_dump(mode="json") == json.loads(json_text)

    def test_references_are_serialized_without_empty_members(self) -> None:
        """The history holds no empty members."""
        members: JsonValue = BatonPatch(artifacts=[ref("a")]).to_json_object()["artifacts"]

        assert members == [{"id": "a", "type": "plan", "hash": "0" * 64}]

    @pytest.mark.parametrize(
        "members",
        [
            pytest.param({"desicion_log": ["d"]}, id="a misspelt member"),
            pytest.param({"current_state": "x"}, id="a text for a list"),
            pytest.param({"decision_log": [1]}, id="a number in a list"),
        ],
    )
    def test_a_malformed_patch_is_an_error(self, members: dict[str, Any]) -> None:
        """The original lost such a patch silently (B4)."""
        with pytest.raises(ValidationError):
            BatonPatch.model_validate_json(json.dumps(members))

    def test_a_derived_patch_serializes_set_fields_only(self) -> None:
        """The rule also holds for additional fields."""

        class ReviewPatch(BatonPatch):
            quality_signals: dict[str, JsonValue] | None = Field(default=None)

        assert ReviewPatch(quality_signals={"craft": None}).to_json_object() == {"quality_signals": {"craft": None}}
