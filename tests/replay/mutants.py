"""Pipelines after a careless change: each has the type of a test pipeline and does not fit its runs."""

from datetime import timedelta

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from tests.pipelines.stages import check, conclude, document, implement, plan, review


@workflow.defn(name="Linear")
class StagesSwapped:
    """Linear, with two stages in the other order."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.stage(review)
        await self.pipeline.stage(implement)
        return self.pipeline.result()


@workflow.defn(name="Linear")
class AwaitDropped:
    """Linear, with a stage that is never awaited and so never runs."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        self.pipeline.stage(implement).close()  # a coroutine nobody awaits; closed, it does so without a warning
        await self.pipeline.stage(review)
        return self.pipeline.result()


@workflow.defn(name="Linear")
class StageRenamed:
    """Linear, with a stage of another name in the second place."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.stage(check)
        await self.pipeline.stage(review)
        return self.pipeline.result()


@workflow.defn(name="Linear")
class StageAdded:
    """Linear, with one more stage at its end."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.stage(implement)
        await self.pipeline.stage(review)
        await self.pipeline.stage(conclude)
        return self.pipeline.result()


@workflow.defn(name="FansOut")
class OneAfterTheOther:
    """FansOut, with its branches in sequence."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        for stage in (plan, check, document, review, conclude):
            await self.pipeline.stage(stage)
        return self.pipeline.result()


@workflow.defn(name="Gated")
class GateDropped:
    """Gated, without its gate."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.stage(conclude)
        return self.pipeline.result()


@workflow.defn(name="Gated")
class GateMoved:
    """Gated, asking before it plans."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.approve("release manager", within=timedelta(seconds=60))
        await self.pipeline.stage(plan)
        await self.pipeline.stage(conclude)
        return self.pipeline.result()


@workflow.defn(name="Parent")
class AnotherChild:
    """Parent, with a child of another type."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.child("FansOut", "Do the first half", name="half")
        await self.pipeline.stage(conclude)
        return self.pipeline.result()
