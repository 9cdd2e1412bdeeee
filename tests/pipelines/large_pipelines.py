"""Pipelines that exceed the server's limits."""

import base64
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from temporalio import workflow

from baton import Baton, BatonPatch, Pipeline, PipelineInput, PipelineResult, StageContext, StageFailedError, stage


async def _work(context: StageContext[Baton]) -> BatonPatch:
    return BatonPatch(decision_log=[f"{context.given.stage} had {len(str(context.params['text']))} characters"])


PARTS: list[Any] = [stage(name=f"part{number}")(_work) for number in range(28)]


@stage
async def returns(context: StageContext[Baton]) -> BatonPatch:
    """Return more than the server accepts."""
    return BatonPatch(current_state=[base64.b64encode(random.randbytes(2_400_000)).decode()])


STAGES: list[Callable[..., Any]] = [*PARTS, returns]


@workflow.defn
class Overfills:
    """Sends too much by a `stage`, a `fan_out` or a `child`, is sent it, or returns it, as the parameter `how` says."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        text = base64.b64encode(workflow.random().randbytes(2_400_000)).decode()
        failure = ""
        with suppress(StageFailedError):
            try:
                match start.params["how"]:
                    case "stage":
                        await self.pipeline.stage(PARTS[0], params={"text": text})
                    case "fan_out":
                        await self.pipeline.fan_out(*PARTS[:2], params={"text": text})
                    case "child":
                        await self.pipeline.child(Overfills.run, "A part", params={"how": "nothing", "text": text})
                    case "returned":
                        await self.pipeline.stage(returns)
                    case "result":
                        return self.pipeline.result(text)
            except StageFailedError as error:
                failure = str(error)
                raise
        await self.pipeline.stage(PARTS[1], params={"text": "small"})
        return self.pipeline.result(failure)


@workflow.defn
class SpreadsOut:
    """Passes a large text to 28 stages at once."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        text = base64.b64encode(workflow.random().randbytes(135_000)).decode()
        await self.pipeline.fan_out(*PARTS, params={"text": text})
        return self.pipeline.result()


PIPELINES: list[type] = [Overfills, SpreadsOut]
