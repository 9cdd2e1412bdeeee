"""The baton, the patch, and batons of a team's own."""

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
        """All others are empty lists at first (S1-fields-b, S2-ex-c)."""
        with pytest.raises(ValidationError, match="goal"):
            Baton.model_validate({})

        assert Baton(goal="g").to_json_object() == {"goal": "g", **{name: [] for name in FIELDS[1:]}}

    @pytest.mark.parametrize("goal", ["", "  ", "\n", "\u200b"], ids=ascii)
    def test_a_goal_that_says_nothing_is_refused(self, goal: str) -> None:
        """The original accepted an empty goal (B6)."""
        with pytest.raises(ValidationError, match="say something"):
            Baton(goal=goal)

    def test_the_published_example_parses_round_trips_and_renders(self) -> None:
        """The JSON of the blog page is a baton, member for member (S2-ex-b, S2-ex-c, S2-ex-d, S2-ex-e)."""
        baton = Baton.model_validate_json(EXAMPLE)

        assert baton.to_json_object() == json.loads(EXAMPLE)
        assert list(baton.to_json_object()) == list(json.loads(EXAMPLE))
        assert "- src/auth/*\n" in render(baton)

    def test_it_takes_keywords(self) -> None:
        """Python code makes one as the document does (S1-init-b, S1-init-c)."""
        baton = Baton(goal="Initialize deenup", current_state=["Workflow starting"])

        assert baton.current_state == ["Workflow starting"]

    def test_an_artifact_is_a_reference_and_never_content(self) -> None:
        """No member could hold content (S1-fields-h, S1-fields-k, S1-design-j)."""
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
    def test_a_hash_is_a_whole_sha_256(self, hash: str) -> None:
        """It is stored in full; only display shortens it (C-11)."""
        with pytest.raises(ValidationError, match="hash"):
            Baton.from_json_object({"goal": "g", "artifacts": [{"id": "a", "type": "t", "hash": hash}]})

    def test_a_size_that_json_cannot_carry_is_refused(self) -> None:
        """Else the baton would have no digest, and no approval could be bound to it."""
        with pytest.raises(ValidationError, match="size"):
            ref("a", size=2**53)

    @given(batons)
    def test_every_baton_survives_json(self, baton: Baton) -> None:
        """What a client reads is what the workflow wrote, and has the same digest (S2-ex-e)."""
        for copy in (
            Baton.model_validate_json(baton.model_dump_json()),
            Baton.from_json_object(baton.to_json_object()),
        ):
            assert copy == baton
            assert copy.digest == baton.digest

    def test_the_digest_tells_any_two_batons_apart(self) -> None:
        """An approval is bound to the baton it was made on, so any change shows."""
        baton = Baton(goal="g", decision_log=["a", "b"])
        others = [
            Baton(goal="h", decision_log=["a", "b"]),
            Baton(goal="g", decision_log=["b", "a"]),
            Baton(goal="g", decision_log=["a", "b"], artifacts=[ref("x")]),
            Baton(goal="g", constraints=["a", "b"]),
        ]

        assert len({one.digest for one in (baton, *others)}) == 5
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

    def test_only_the_fields_that_are_read_stay_and_the_goal(self) -> None:
        """Further fields too are empty where a stage does not read them."""
        handed = self.BATON.restricted(frozenset({"constraints"}), None)

        assert handed == ReviewBaton(goal="g", constraints=["c"])

    def test_the_baton_itself_is_not_changed(self) -> None:
        """What is held back from a stage stays in the workflow (S1-design-b)."""
        before = self.BATON.digest

        self.BATON.restricted(frozenset(), 0)

        assert self.BATON.digest == before

    def test_nothing_held_back_is_the_same_baton(self) -> None:
        """No copy is made where none is needed."""
        assert self.BATON.restricted(None, 3) is self.BATON


class TestFurtherFields:
    def test_they_survive_json_whatever_their_type(self) -> None:
        """Times and enums are texts on the wire and are themselves again behind it."""
        baton = ReviewBaton(
            goal="g",
            due=datetime(2026, 12, 1, tzinfo=UTC),
            severity=Severity.HIGH,
            quality_signals={"scores": [7, 8.5, None]},
        )

        assert ReviewBaton.from_json_object(baton.to_json_object()) == baton
        assert ReviewBaton.model_validate_json(baton.model_dump_json()) == baton

    def test_one_without_a_default_is_refused_at_its_class(self) -> None:
        """A stage that does not read the field must still be handed a baton."""
        with pytest.raises(TypeError, match=r"Bad\.owner has no default"):

            class Bad(Baton):
                owner: str

    def test_one_that_null_would_change_is_refused_at_its_class(self) -> None:
        """Null in a patch removes a member, which then has its default: None must be that default."""
        with pytest.raises(TypeError, match=r"Bad\.limit may be None"):

            class Bad(Baton):
                limit: int | None = 5

    @pytest.mark.parametrize("value", [2**53, -(2**60)], ids=repr)
    def test_a_number_that_json_cannot_carry_is_refused(self, value: int) -> None:
        """A baton always has a digest, so an approval can always be bound to it."""
        with pytest.raises(ValidationError, match="safe integer"):
            ReviewBaton(goal="g", quality_signals={"n": value})


class TestAnyBaton:
    def test_it_keeps_what_it_does_not_know(self) -> None:
        """A reader of a history shows the further fields of any team's baton."""
        baton = ReviewBaton(goal="g", quality_signals={"craft": 6}, stage_hint="mind the tests")
        read = AnyBaton.from_json_object(baton.to_json_object())

        assert read.to_json_object() == baton.to_json_object()
        assert read.digest == baton.digest


class TestBatonPatch:
    def test_a_field_that_was_not_set_is_not_written(self) -> None:
        """Only fields in the patch are updated, and a null would clear one (S1-patch-d, S2-how-3)."""
        assert BatonPatch(current_state=["x"]).model_dump_json() == '{"current_state":["x"]}'
        assert BatonPatch().model_dump_json() == "{}"

    def test_null_is_written_where_it_was_set(self) -> None:
        """A stage that means to clear a field can say so (C-3)."""
        assert BatonPatch(constraints=None).to_json_object() == {"constraints": None}

    @pytest.mark.parametrize("json_text", ['{"current_state":["x"]}', '{"constraints":null}', "{}"])
    def test_absent_and_null_survive_json(self, json_text: str) -> None:
        """Absent stays absent and null stays null through any converter (S1-patch-d)."""
        patch = BatonPatch.model_validate_json(json_text)

        assert patch.model_dump_json() == json_text
        assert patch.to_json_object() == json.loads(json_text)
        assert patch.model_dump(mode="json") == json.loads(json_text)

    def test_references_are_written_without_what_is_not_known(self) -> None:
        """History carries no empty members."""
        found: JsonValue = BatonPatch(artifacts=[ref("a")]).to_json_object()["artifacts"]

        assert found == [{"id": "a", "type": "plan", "hash": "0" * 64}]

    @pytest.mark.parametrize(
        "members",
        [
            pytest.param({"desicion_log": ["d"]}, id="a misspelt member"),
            pytest.param({"current_state": "x"}, id="a text for a list"),
            pytest.param({"decision_log": [1]}, id="a number in a list"),
        ],
    )
    def test_a_patch_of_another_shape_is_an_error(self, members: dict[str, Any]) -> None:
        """The original lost such a patch silently (B4)."""
        with pytest.raises(ValidationError):
            BatonPatch.model_validate_json(json.dumps(members))

    def test_a_patch_of_a_team_writes_only_what_was_set_too(self) -> None:
        """A derived patch keeps the rule for its further fields."""

        class ReviewPatch(BatonPatch):
            quality_signals: dict[str, JsonValue] | None = Field(default=None)

        assert ReviewPatch(quality_signals={"craft": None}).to_json_object() == {"quality_signals": {"craft": None}}
