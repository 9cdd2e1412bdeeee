"""The pipeline of as many stages as its parameter `stages` says."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from benchmarks.stages import work


@workflow.defn
class LongDelivery:
    """One stage, many times."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        stages = self.pipeline.params["stages"]
        assert isinstance(stages, int)
        for _ in range(stages):
            await self.pipeline.stage(work)
        return self.pipeline.result()
