"""A changed `Delivery`, whose code no longer fits earlier histories."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from tests.acceptance.operated_stages import plan, release


@workflow.defn
class Delivery:
    """Two stages and nothing else."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        await self.pipeline.stage(release)
        return self.pipeline.result()
