"""What an agent of Pydantic AI is to answer with: built once, and still each stage's own."""

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from baton.agents import agent_stage
from baton.agents.answers import MAX_CACHED, cached_by_identity
from baton.agents.pydantic_ai import PydanticAgent
from tests.agents.material import PATCH, context

OBJECT: dict[str, Any] = {"type": "object"}


class TestPydanticAgent:
    """`PydanticAgent` itself."""

    def test_a_way_of_answering_that_there_is_not_is_refused(self) -> None:
        """Where it was written; a stage failed by a `KeyError`."""
        form: Any = "toll"
        with pytest.raises(ValueError, match="answer='toll': expected one of tool, native, pro"):
            PydanticAgent(Agent(name="plan"), answer=form)


class TestOutputs:
    """What each run has to answer with."""

    async def test_concurrent_stages_of_an_agent_have_separate_answers(self) -> None:
        """A worker runs several stages at once, and several runs of each."""
        offered: list[set[str]] = []

        async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            [tool] = info.output_tools
            fields = tool.parameters_json_schema["properties"]["baton_patch"]["properties"]
            offered.append(set(fields))
            await asyncio.sleep(0)
            return ModelResponse(
                [ToolCallPart(tool.name, json.dumps({"baton_patch": {name: ["x"] for name in fields}}))]
            )

        agent: Agent[None, str] = Agent(FunctionModel(answer), name="both")
        fields = ("decision_log", "open_questions")
        stages = [agent_stage(PydanticAgent(agent), name=name, writes=[name]) for name in fields]

        results = await asyncio.gather(*(stage(context()) for stage in stages * 3))

        assert [dict(result.baton_patch) for result in results] == [{name: ["x"]} for name in fields * 3]
        assert sorted(map(sorted, offered)) == sorted([[name] for name in fields * 3])

    async def test_an_answer_that_does_not_fit_is_corrected_in_a_later_run_as_in_the_first(self) -> None:
        """What is remembered between runs has no memory of their retries."""
        answers = [{"baton_patch": {"no_such_field": 1}}, {"baton_patch": PATCH}] * 3

        async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return ModelResponse([ToolCallPart(info.output_tools[0].name, json.dumps(answers.pop(0)))])

        plan = agent_stage(PydanticAgent(Agent(FunctionModel(answer), name="plan")))

        for _ in range(3):
            assert (await plan(context())).baton_patch == PATCH
        assert answers == []


class TestRemembering:
    """`cached_by_identity`."""

    def test_it_knows_objects_and_not_their_values(self) -> None:
        """Two equal schemas may be two stages'."""
        arguments: list[dict[str, Any]] = []

        def make(schema: dict[str, Any]) -> int:
            arguments.append(schema)
            return len(arguments)

        number = cached_by_identity(make)
        first, second = dict(OBJECT), dict(OBJECT)

        assert [number(first), number(second), number(first)] == [1, 2, 1]

    def test_it_keeps_no_more_than_so_many(self) -> None:
        """A caller may bring a new schema each time."""
        keys: list[object] = []
        remembered = cached_by_identity(keys.append)

        for _ in range(3 * MAX_CACHED):
            remembered(object())

        assert len(keys) == 3 * MAX_CACHED
        [cache] = [cell.cell_contents for cell in remembered.__closure__ or () if isinstance(cell.cell_contents, dict)]
        assert len(cache) <= MAX_CACHED

    def test_a_failed_value_is_not_cached(self) -> None:
        """An error is not remembered."""
        tries = iter([True, False])

        def make(_: object) -> int:
            if next(tries):
                raise ValueError("not now")
            return 7

        remembered, key = cached_by_identity(make), object()
        with pytest.raises(ValueError, match="not now"):
            remembered(key)
        assert remembered(key) == 7
