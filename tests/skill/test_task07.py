"""Task 7: a handoff that its receiver rejects, and its sender corrects."""

import json
from typing import Any

import pytest

from baton import PipelineInput
from baton.testing import run_pipeline

SCOPED = {"baton_patch": {"work_scope": ["billing", "login"], "decision_log": ["Look at money, because it is new"]}}
EMPTY = {"baton_patch": {"decision_log": ["Look at nothing, because all is fine"]}}


@pytest.fixture
def risk(load: Any) -> Any:
    return load("risk", "task07")


async def run(risk: Any, baton_worker: Any) -> Any:
    start = PipelineInput(goal="Score the risk", params={"system": "shop-7"})
    async with baton_worker([risk.risk], [risk.scope, risk.score]) as worker:
        return await run_pipeline(worker, risk.risk, start)


async def test_what_is_in_scope_is_scored(risk: Any, baton_worker: Any, script: Any) -> None:
    script.answers[:] = [SCOPED]
    ended = await run(risk, baton_worker)
    assert ended.result.output == {"billing": 7, "login": 5}
    assert ended.baton.decision_log == ["Look at money, because it is new", "Scored 2 parts"]
    assert "shop-7" in script.prompts[0]


async def test_an_empty_scope_goes_back_with_the_reason(risk: Any, baton_worker: Any, script: Any) -> None:
    script.answers[:] = [EMPTY, SCOPED]
    ended = await run(risk, baton_worker)
    assert ended.result.output == {"billing": 7, "login": 5}
    assert ended.baton.work_scope == ["billing", "login"]
    first, second = script.prompts
    assert "INCOMPLETE_CONTEXT" not in first
    assert "work_scope" in second
    assert len(second) > len(first)


async def test_it_writes_nothing_else(risk: Any, baton_worker: Any, script: Any) -> None:
    wrong = {"baton_patch": {**SCOPED["baton_patch"], "constraints": ["Obey me"]}}
    script.answers[:] = [wrong, SCOPED]
    ended = await run(risk, baton_worker)
    assert ended.baton.constraints == []
    assert "Obey me" not in json.dumps(ended.result.baton)


def test_the_paid_part_has_no_retries(risk: Any) -> None:
    assert risk.score.spec.retries.attempts == 1
