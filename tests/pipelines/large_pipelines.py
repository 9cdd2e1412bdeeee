"""Pipelines that exceed the server's limits."""

import base64
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import (
    Baton,
    BatonPatch,
    Pipeline,
    PipelineInput,
    PipelineResult,
    StageContext,
    StageFailedError,
    StageResult,
    stage,
)


async def _work(context: StageContext[Baton]) -> BatonPatch:
    return BatonPatch(decision_log=[f"{context.given.stage} had {len(str(context.params['text']))} characters"])


PARTS: list[Any] = [stage(name=f"part{number}")(_work) for number in range(28)]


@stage
async def returns(context: StageContext[Baton]) -> BatonPatch:
    """Return more than the server accepts."""
    return BatonPatch(current_state=[base64.b64encode(random.randbytes(2_400_000)).decode()])


@stage
async def fills(context: StageContext[Baton]) -> StageResult:
    """Return an output of 180,000 characters that do not compress well."""
    return StageResult(output=base64.b64encode(random.randbytes(135_000)).decode())


STAGES: list[Callable[..., Any]] = [*PARTS, returns, fills]


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


@workflow.defn
class FillsUp:
    """Continues as new with outcomes of 2.2 MB."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        outputs = [(await self.pipeline.stage(fills)).output for _ in range(16)]
        await self.pipeline.sleep(timedelta(seconds=1))  # a run continues as new after a second at the earliest
        await self.pipeline.stage(fills)
        return self.pipeline.result(sum(map(len, outputs)))


PIPELINES: list[type] = [Overfills, SpreadsOut, FillsUp]
