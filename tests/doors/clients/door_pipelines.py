"""The pipelines that the tests of the doors offer, and a person's forms."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, Field, RootModel

from baton import Baton, BatonPatch, Pipeline, Retries, StageContext, StageResult, pipeline, stage

WORDS = ["A baton ", "is handed on."]


class Printing(BaseModel):
    """What a person fills in to have an article printed."""

    copies: int = Field(ge=1, description="How many.")
    color: Literal["red", "blue"] = "red"
    places: dict[str, int] = Field(default={}, description="How many go where.")


class Guests(RootModel[list[str]]):
    """A form that is a list."""


class Remark(BaseModel):
    """A form whose field has two types."""

    text: Any = Field(default=None, json_schema_extra={"type": ["string", "null"]})
    rest: Any = Field(default=None, json_schema_extra={"anyOf": [True, {"type": "null"}]})
    tags: Any = Field(default=None, json_schema_extra={"type": "array", "items": True})


@stage
async def write(context: StageContext[Baton]) -> StageResult:
    """Write, aloud, with a tool."""
    context.stream.text(WORDS[0])
    context.stream.tool_called("search", {"for": "batons"})
    context.stream.tool_answered("search", "found")
    context.stream.text(WORDS[1])
    patch = BatonPatch(decision_log=["Write about batons"], current_state=["Written"])
    return StageResult(output="".join(WORDS), baton_patch=patch)


@stage(retries=Retries(attempts=1))
async def break_down(context: StageContext[Baton]) -> None:
    """Fail for good."""
    raise ConnectionError("the press is broken")


@pipeline
async def article(p: Pipeline) -> object:
    """Write an article, and print it once somebody has said how many."""
    written = await p.stage(write, stream=True)
    who = [str(name) for name in p.params.get("who", [])]
    within = timedelta(days=1)
    settled = await p.approve(
        "print", within=within, asks="Print it?", shows={"article": written}, answer=Printing, who=who
    )
    printing = settled.answer_as(Printing)
    return f"{printing.copies} {printing.color} copies for {', '.join(printing.places) or 'nobody'}"


@pipeline
async def asks_two(p: Pipeline) -> object:
    """Ask for two people's yes."""
    await p.approve("go", within=timedelta(days=1), needs=2)
    return "gone"


@pipeline
async def invites(p: Pipeline) -> object:
    """Ask whom to invite."""
    return (await p.approve("guests", within=timedelta(days=1), answer=Guests)).data


@pipeline
async def remarks(p: Pipeline) -> object:
    """Ask for a remark."""
    return (await p.approve("remark", within=timedelta(days=1), answer=Remark)).data


@pipeline
async def revises(p: Pipeline) -> object:
    """Ask whether to go, and write meanwhile once a person says so."""

    async def revise() -> None:
        await p.approve("revise", within=timedelta(days=1))
        await p.stage(write)

    await asyncio.gather(p.approve("go", within=timedelta(days=1)), revise())
    return "gone"


@pipeline
async def breaks(p: Pipeline) -> object:
    """Break down."""
    await p.stage(break_down)
    return None


PIPELINES: list[Any] = [article, asks_two, invites, remarks, revises, breaks]
STAGES: list[Callable[..., Any]] = [write, break_down]
