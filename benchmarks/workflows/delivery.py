"""The pipeline of four stages that most measurements run."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from benchmarks.stages import implement, plan, release, review


@workflow.defn
class Delivery:
    """Four stages, one after the other."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        await self.pipeline.stage(plan)
        await self.pipeline.stage(implement)
        await self.pipeline.stage(review)
        await self.pipeline.stage(release)
        return self.pipeline.result()
