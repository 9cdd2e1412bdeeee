"""The pipeline of four light stages."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from benchmarks.stages import light_implement, light_plan, light_release, light_review


@workflow.defn
class LightDelivery:
    """Four light stages, one after the other."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        await self.pipeline.stage(light_plan)
        await self.pipeline.stage(light_implement)
        await self.pipeline.stage(light_review)
        await self.pipeline.stage(light_release)
        return self.pipeline.result()
