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


STAGES_BEFORE_WAIT = 90


@workflow.defn
class Waits:
    """Many stages, then a wait until it is told to go on; its memo says when it waits."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.told = False

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the stages, and wait."""
        for _ in range(STAGES_BEFORE_WAIT):
            await self.pipeline.stage(lap)
        workflow.upsert_memo({"waits": True})
        await workflow.wait_condition(lambda: self.told)
        return self.pipeline.result()

    @workflow.signal
    def go_on(self) -> None:
        """End."""
        self.told = True
