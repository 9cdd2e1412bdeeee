"""Baton's pipeline: four stages by agents of pydantic-ai, with contracts, as agents have them by default."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    # The stages by name: a module taken from its package would be loaded anew at every start.
    from benchmarks.peers.ours_pydantic_ai import STAGES


@workflow.defn
class PydanticAIStages:
    """Four stages by agents of pydantic-ai, with contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        for stage in STAGES:
            await self.pipeline.stage(stage)
        return self.pipeline.result()
