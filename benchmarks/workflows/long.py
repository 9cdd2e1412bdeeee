"""The pipelines of as many stages as their parameter `stages` says."""

from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from benchmarks.stages import decide, look_up, work


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


@workflow.defn
class LongDecisions:
    """One decision, many times."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        stages = self.pipeline.params["stages"]
        assert isinstance(stages, int)
        for _ in range(stages):
            await self.pipeline.stage(decide)
        return self.pipeline.result()


@workflow.defn
class LongContracts:
    """One stage with a contract and a tool, many times."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        stages = self.pipeline.params["stages"]
        assert isinstance(stages, int)
        for _ in range(stages):
            await self.pipeline.stage(look_up)
        return self.pipeline.result()
