"""The pipelines that the tests of the command operate."""

from datetime import timedelta

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from tests.acceptance.operated_stages import check, implement, plan, release, review, stumble


@workflow.defn
class Delivery:
    """Two stages, two in parallel, an approval, and one more."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        planned = await self.pipeline.stage(plan)
        await self.pipeline.stage(implement)
        await self.pipeline.fan_out(check, review)
        await self.pipeline.approve("release manager", within=timedelta(days=2), asks="Ship it?")
        await self.pipeline.stage(release)
        return self.pipeline.result(planned.output)


@workflow.defn
class Stumbles:
    """A stage that fails, and is retried much later."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(stumble)
        return self.pipeline.result()


PIPELINES = [Delivery, Stumbles]
