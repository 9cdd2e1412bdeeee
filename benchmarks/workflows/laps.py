"""The pipeline whose workers are killed: one stage again and again, so that a handoff is never far."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from benchmarks.stages import lap


@workflow.defn
class Laps:
    """The same stage until it is told to stop; every lap is a handoff."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.stop = False

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run until told to stop."""
        while not self.stop:
            await self.pipeline.stage(lap)
        return self.pipeline.result()

    @workflow.signal
    def end(self) -> None:
        """Stop after this lap."""
        self.stop = True
