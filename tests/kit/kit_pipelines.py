"""The pipelines of the test kit's own tests."""

from datetime import timedelta

from temporalio import workflow

from baton import ContractTerms, Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from tests.kit.kit_stages import decide, research


@workflow.defn
class Researched:
    """Research, then a decision under a contract; with the parameter `approved` a person agrees first."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(research)
        if start.params.get("approved"):
            await self.pipeline.approve("release manager", within=timedelta(days=2))
        await self.pipeline.stage(decide)
        return self.pipeline.result()


@workflow.defn
class Patient:
    """Waits for a month between two stages."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(research)
        await workflow.sleep(timedelta(days=30))
        await self.pipeline.stage(decide)
        return self.pipeline.result()
