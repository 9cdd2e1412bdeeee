"""The pipelines behind the doors: one that talks, asks and writes, and one that the A2A conformance kit drives."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import workflow

from baton import (
    Baton,
    BatonPatch,
    InputError,
    Pipeline,
    PipelineInput,
    PipelineResult,
    Retries,
    Spend,
    StageContext,
    StageResult,
    pipeline,
    stage,
)
from baton.agents import A2AAgent, AnswerForm, agent_stage


class Sizes(BaseModel):
    """What whoever approves fills in."""

    percent: int
    note: str = ""


class Reply(BaseModel):
    """A text of the caller."""

    text: str


@stage
async def outline(context: StageContext[Baton]) -> StageResult:
    """Write an outline."""
    words = int(str(context.params.get("words", 300)))
    await context.artifacts.write("outline", f"# {context.baton.goal}", type="outline", summary="the outline")
    patch = BatonPatch(decision_log=[f"Write {words} words, because that fits a page"])
    return StageResult(baton_patch=patch, output=words, spend=Spend(micro_usd=1_200, prompt_tokens=300))


@stage
async def tick(context: StageContext[Baton]) -> BatonPatch:
    """Note one more decision."""
    return BatonPatch(decision_log=[f"Round {len(context.baton.decision_log)}"])


@stage
async def hang(context: StageContext[Baton]) -> BatonPatch:
    """Work until it is canceled."""
    while True:
        context.heartbeat()
        await asyncio.sleep(0.05)


@stage
async def write_file(context: StageContext[Baton]) -> BatonPatch:
    """Write the artifact that the parameters describe."""
    given: dict[str, Any] = dict(context.params)
    await context.artifacts.write("artifact", str(given["text"]), type=str(given["type"]), path=given.get("path"))
    return BatonPatch()


@pipeline
async def article(p: Pipeline) -> object:
    """Write an outline, ask for the sizes, and return them.

    The second paragraph is not for callers.
    """
    outlined = await p.stage(outline)
    decided = await p.approve("editor", within=timedelta(days=1), asks="How long?", answer=Sizes)
    await p.stage(tick)
    return {"words": outlined.output, **decided.answer_as(Sizes).model_dump()}


@pipeline
async def quick(p: Pipeline) -> object:
    """Do one step, and return the goal."""
    await p.stage(tick)
    return p.baton.goal


@pipeline
async def endless(p: Pipeline) -> object:
    """Work until it is canceled."""
    await p.stage(hang)
    return None


@workflow.defn(name="conformance")
class Conformance:
    """What the scenarios of the A2A conformance kit ask for, by the beginning of the message's id."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        requester = start.requester
        message = str(requester.claims.get("message")) if requester else ""
        p = self.pipeline
        if message.startswith("tck-reject-task"):
            raise InputError("rejected")
        if message.startswith("tck-input-required"):
            text = "TCK history"
            while text.startswith("TCK history"):
                asked = await p.approve("input", within=timedelta(days=1), asks="Go on?", answer=Reply)
                text = asked.answer_as(Reply).text
        if message.startswith("test-resubscribe-message-id"):
            await p.stage(tick)
            await p.sleep(timedelta(seconds=6))
        for ending, written in _WRITTEN.items():
            if ending in message:
                await p.stage(write_file, params=written)
                return p.result(None)
        await p.stage(tick)
        return p.result("Hello from TCK")


_WRITTEN: dict[str, dict[str, Any]] = {
    "artifact-file-url": {"text": "output", "type": "text", "path": "output.txt"},
    "artifact-file": {"text": "output", "type": "text", "path": "output.txt"},
    "artifact-data": {"text": json.dumps({"key": "value", "count": 42}), "type": "json"},
    "stream-artifact-text": {"text": "Streamed text content", "type": "text"},
    "artifact-text": {"text": "Generated text content", "type": "text"},
    "stream-artifact-chunked": {"text": "chunk-1 chunk-2", "type": "text"},
    "stream-001": {"text": "Stream hello from TCK", "type": "text"},
    "stream-003": {"text": "Stream task lifecycle", "type": "text"},
    "stream-ordering-001": {"text": "Ordered output", "type": "text"},
}

writer = agent_stage(A2AAgent("writer", "http://127.0.0.1:1"), answers=AnswerForm.TEXT, retries=Retries(attempts=1))


@pipeline(name="delegating")
async def delegating(p: Pipeline) -> object:
    """Let a remote agent do it; the worker has a stage of its own by this name."""
    return (await p.stage(writer)).output


PIPELINES = [article, quick, endless, Conformance]
STAGES: list[Callable[..., Any]] = [outline, tick, hang, write_file]
