"""`Gated` as somebody changed it, so that its code no longer fits the runs that are open."""

from temporalio import workflow

from baton import PipelineInput, PipelineResult
from baton.workflow import Pipeline

with workflow.unsafe.imports_passed_through():
    from tests.temporal.stages import conclude


@workflow.defn(name="Gated")
class WithoutGate:
    """One stage and nothing else."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Conclude."""
        await self.pipeline.stage(conclude)
        return self.pipeline.result()
