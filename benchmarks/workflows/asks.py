"""The pipeline that asks a person, in the list and the inbox of the console."""

from datetime import timedelta

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from benchmarks.stages import work


@workflow.defn
class Asks:
    """One stage, then a question that nobody answers."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the stage, and ask."""
        await self.pipeline.stage(work)
        await self.pipeline.approve("release", within=timedelta(days=1), asks="Ship it?", who=["ann"])
        return self.pipeline.result()
