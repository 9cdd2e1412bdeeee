"""Messages between client, workflow and stage; see also test_schemas.py."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from baton.core.baton import Baton, BatonPatch
from baton.core.history import Spend
from baton.core.inputs import encode_params
from baton.core.messages import PipelineInput, PipelineResult, StageResult
from baton.errors import InputError
from tests.core.material import ReviewBaton, Severity


class TestPipelineInput:
    def test_a_goal_is_enough(self) -> None:
        """The first baton is created from the goal (S1-init-a, S1-init-c, S2-how-1; B14)."""
        start = PipelineInput.model_validate_json('{"goal": "Initialize deenup"}')

        assert start.first_baton() == Baton(goal="Initialize deenup", current_state=["Workflow starting"])

    def test_the_first_baton_may_have_other_members(self) -> None:
        """The goal is always the input's."""
        start = PipelineInput(goal="Mine", baton={"goal": "Other", "current_state": ["Known"], "constraints": ["c"]})

        assert start.first_baton() == Baton(goal="Mine", current_state=["Known"], constraints=["c"])

    def test_the_first_baton_is_of_the_pipelines_type(self) -> None:
        """Additional fields are parsed from JSON."""
        start = PipelineInput(goal="g", baton={"severity": "high", "due": "2026-12-01T00:00:00Z"})

        assert start.first_baton(ReviewBaton).to_json_object()["severity"] == "high"
        with pytest.raises(ValidationError, match="severity"):
            start.first_baton()

    def test_too_many_values_in_params_are_refused(self) -> None:
        """As in the baton; no handoff could carry them."""
        rows = {"rows": [{"n": 0}] * 30_000}
        with pytest.raises(ValidationError, match=r"params\n.*rows: has 30,000 entries; at most 10,000"):
            PipelineInput(goal="g", params=rows)
        with pytest.raises(InputError, match="params: rows: has 30,000 entries; at most 10,000"):
            encode_params(rows)

    def test_a_baton_type_must_derive_from_baton(self) -> None:
        """Another model with the same fields is an error."""

        class Mine(BaseModel):
            goal: str

        kind: Any = Mine
        with pytest.raises(TypeError, match="baton_type=Mine: expected a class derived from Baton"):
            PipelineInput(goal="g").first_baton(kind)

    @pytest.mark.parametrize("goal", ["", " ", None], ids=repr)
    def test_a_blank_goal_is_rejected(self, goal: Any) -> None:
        """It is rejected when the pipeline is started (B6)."""
        with pytest.raises(ValidationError, match="goal"):
            PipelineInput.model_validate_json(json.dumps({"goal": goal}))


class TestPipelineResult:
    def test_the_final_baton_is_typed(self) -> None:
        """A caller that knows the type gets a typed baton."""
        baton = ReviewBaton(goal="g", severity=Severity.HIGH)
        result = PipelineResult(task_id="t", baton=baton.to_json_object(), steps=1)
        there = PipelineResult.model_validate_json(result.model_dump_json())

        assert there.final_baton(ReviewBaton) == baton


class TestStageResult:
    def test_the_published_envelope_is_parsed(self) -> None:
        """The patch is at the top level (S1-patch-b, C-9; B10)."""
        read = StageResult.model_validate_json(
            '{"baton_patch": {"current_state": ["Planned"]}, "spend": {"micro_usd": 5}}'
        )

        assert isinstance(read.baton_patch, BatonPatch)
        assert read.baton_patch.to_json_object() == {"current_state": ["Planned"]}
        assert read.spend == Spend(micro_usd=5)

    @pytest.mark.parametrize("patch", ['{"quality_signals":{"craft":6}}', '{"constraints":null}', '{"goal":7}'])
    def test_a_patch_is_transported_unchanged(self, patch: str) -> None:
        """Additional fields, nulls and mistakes reach the rules (C-3)."""
        read = StageResult.model_validate_json(f'{{"baton_patch":{patch}}}')

        assert read.model_dump_json() == f'{{"baton_patch":{patch}}}'

    def test_a_patch_is_optional(self) -> None:
        """A stage may change nothing (C-10)."""
        assert StageResult.model_validate_json("{}").baton_patch in ({}, BatonPatch())
