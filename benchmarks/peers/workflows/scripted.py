"""Baton's pipeline: four stages by agents that are scripts, with contracts."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult
from baton.contract.workflow import ContractTerms

with workflow.unsafe.imports_passed_through():
    # The stages by name: a module taken from its package would be loaded anew at every start.
    from benchmarks.peers.ours_scripted import STAGES


@workflow.defn
class ScriptedStages:
    """Four stages by agents that are scripts, with contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        for stage in STAGES:
            await self.pipeline.stage(stage)
        return self.pipeline.result()
