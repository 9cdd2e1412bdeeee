"""Output schemas inside the schema of an answer: what they refer to in themselves is found there."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from baton import Baton, OutputSchema, OutputSchemas, StageContext, WorkerParts
from baton.agents import agent_stage
from baton.agents.answers import answer_schema, read_answer
from baton.agents.pydantic_ai import PydanticAgent
from baton.errors import PatchError


class Step(BaseModel):
    """A step of a plan, which may have further ones."""

    title: str
    steps: list["Step"] = Field(default_factory=list)


PERSON = {"type": "object", "required": ["name"]}
NEXT = {"type": "object", "required": ["at"], "properties": {"at": {"type": "integer"}, "next": {"$ref": "#"}}}
SCHEMAS = [
    pytest.param(
        {"definitions": {"P": PERSON}, "properties": {"who": {"$ref": "#/definitions/P"}}},
        {"who": {"name": "Ann"}},
        {"who": {}},
        id="definitions as older drafts call them",
    ),
    pytest.param(NEXT, {"at": 1, "next": {"at": 2}}, {"at": 1, "next": {}}, id="the whole again"),
    pytest.param(
        {"properties": {"from": {"type": "string", "format": "date"}, "to": {"$ref": "#/properties/from"}}},
        {"to": "2026-05-01"},
        {"to": "May"},
        id="the shape of another member",
    ),
    pytest.param(
        {
            "$id": "https://shapes.example/order",
            "$defs": {"P": PERSON},
            "properties": {"who": {"$ref": "https://shapes.example/order#/$defs/P"}},
        },
        {"who": {"name": "Ann"}},
        {"who": {}},
        id="itself by its own name",
    ),
    pytest.param(
        {"$defs": {"a/b": PERSON}, "properties": {"who": {"$ref": "#/$defs/a~1b"}}},
        {"who": {"name": "Ann"}},
        {"who": {}},
        id="names with slashes",
    ),
    pytest.param(
        Step.model_json_schema(),
        {"title": "a", "steps": [{"title": "b"}]},
        {"title": "a", "steps": [{"title": 1}]},
        id="a record in itself",
    ),
]


DATA = pytest.param({"const": {"$ref": "#"}}, {"$ref": "#"}, {}, id="data that looks like a reference")


@pytest.mark.parametrize(("schema", "good", "bad"), [*SCHEMAS, DATA])
def test_an_answer_is_read_by_what_its_output_schema_refers_to(schema: dict[str, Any], good: Any, bad: Any) -> None:
    """S5-fields-l: the references of a registered schema mean the same inside the answer's."""
    embedded = answer_schema(output=schema)

    assert read_answer({"baton_patch": {}, "output": good}, embedded).output == good
    with pytest.raises(PatchError, match="/output"):
        read_answer({"baton_patch": {}, "output": bad}, embedded)


def test_records_of_one_name_stay_two() -> None:
    """A baton's `Item` and an output's are different things; the one took the other's place."""

    class Item(BaseModel):
        mine: str

    class Ours(Baton):
        items: list[Item] = Field(default_factory=list)

    schema = {"$defs": {"Item": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/Item"}}
    answer: dict[str, Any] = {"baton_patch": {"items": [{"mine": "x"}]}, "output": [1]}

    assert read_answer(answer, answer_schema(Ours, output=schema)).output == [1]


@pytest.mark.parametrize(("schema", "good", "bad"), SCHEMAS)
def test_an_agent_of_pydantic_ai_answers_by_any_registered_schema(schema: dict[str, Any], good: Any, bad: Any) -> None:
    """S5-fields-l: also one that refers to itself, which the framework does not read; a misfit is corrected."""
    answers = [bad, good]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = {"baton_patch": {}, "output": answers.pop(0)}
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, answer)])

    stage = agent_stage(PydanticAgent(Agent(FunctionModel(model), name="plan")), output="Shape@1")
    context = StageContext.for_test(Baton(goal="Plan"))
    parts = WorkerParts(schemas=OutputSchemas([OutputSchema("Shape", "1", schema)]))

    assert asyncio.run(stage(replace(context, parts=parts))).output == good
    assert answers == []
