"""The chain of agents as a pipeline."""

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    # The stages by name: a module taken from its package would be loaded anew at every start.
    from benchmarks.peers.chain import STAGES


@workflow.defn
class AgentChain:
    """Four stages by agents; each is given the text of the one before."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        return await _run(self.pipeline)


@workflow.defn
class AgentChainAlone:
    """The same, without contracts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=False)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run the pipeline."""
        return await _run(self.pipeline)


async def _run(pipeline: Pipeline) -> PipelineResult:
    first, *others = STAGES
    last = await pipeline.stage(first)
    for one in others:
        last = await pipeline.stage(one, inputs={"text": last})
    return pipeline.result(last.output)
