"""The pipeline that tells when its first stage ran."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from benchmarks.stages import look_at_clock


@workflow.defn
class FirstStage:
    """One stage that looks at the clock."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline; its output is the time of the stage."""
        looked = await self.pipeline.stage(look_at_clock)
        return self.pipeline.result(looked.output)
